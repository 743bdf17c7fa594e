"""``fastpe train``: train and test a model, and write a run folder."""

import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from fastpe.model import schedules
from fastpe.model.schedules import SCHEDULES
from fastpe.tasks.registry import load_task
from fastpe.training.config import TrainConfig
from fastpe.training.presets import PRESETS, preset

from .options import Grouped, as_json, earlier_names, joined, option, settings, threads
from .output import (
    INTERRUPTED,
    parse_options,
    parse_task_options,
    print_json,
    print_tests,
    use_threads,
)
from .presets import print_preset
from .terminal import next_step

if TYPE_CHECKING:
    from fastpe.training.events import Listener
    from fastpe.training.loop import TrainResult


_OPTIONS = {
    "Common": [
        *settings("Common"),
        option("--option", "options", multiple=True, metavar="K=V", help="Option of the encoding; may be repeated."),
        option(
            "--out", type=click.Path(path_type=Path),
            help="Run folder to create, or with --resume to continue.  [default: runs/<encoding>-<n>]",
        ),
    ],
    "Data": [
        option(
            "--task-option", "task_options", multiple=True, metavar="K=V", help="Option of the task; may be repeated."
        ),
        option(
            "--tokens", metavar="bytes|characters|bpe:N|FILE|ids",
            help="For --task text: what a token is. bytes; characters; bpe:N: one of N subwords of a byte-pair "
            "encoding that is trained on the training part of the text; FILE: a subword of a tokenizer.json; ids: a "
            "number in a .bin or .npy file.  [default: bytes; ids for a .bin or .npy file]",
        ),
        *settings("Data"),
    ],
    "Model": [
        *settings("Model"),
    ],
    "Encoding": [
        *settings("Encoding"),
        option(
            "--schedule", metavar="NAME[:W]",
            help="In place of --encoding: use the encodings and attention windows of the layers of a released model, "
            f"one of {', '.join(SCHEDULES)}. W is the number of positions in its windows or chunks.",
        ),
        option(
            "--paper", is_flag=True,
            help="Use the options that Li (2025) gives for the encoding. For alibi, this is one slope of 0.1/length.",
        ),
    ],
    "Training": [
        *settings("Training"),
        option(
            "--preset", "protocol", type=click.Choice(tuple(PRESETS)),
            help="Settings of the run. recipe: those of a small model that solves the task (the default with --task); "
            "li2025: the defaults of fastpe.TrainConfig (the default without --task); the others: published protocols.",
        ),
        option(
            "--from", "origin", type=click.Path(path_type=Path), metavar="RUN",
            help="Start a new run with the weights of RUN, a run folder or a model file. The model, its encoding and "
            "its task are those of RUN; --encoding, --option, --train-length, --data, --positions and --sight may "
            "change them.",
        ),
        option(
            "--resume", is_flag=True,
            help="Continue the run in --out with its settings. --epochs N trains a finished run further, which is not "
            "possible if its learning rate decays. If the text was moved, --data PATH gives its new place.",
        ),
        threads(),
    ],
    "Evaluation": [*settings("Evaluation")],
    "Output": [
        option(
            "--dry-run", is_flag=True,
            help="Only print the number of parameters and estimates of memory, FLOPs and time. No run folder is "
            "created.",
        ),
        option(
            "--log", "logs", type=click.Choice(("csv", "tensorboard")), multiple=True,
            help="Also write losses to metrics.csv in the run folder, or for TensorBoard to its folder tensorboard; "
            "may be repeated.",
        ),
        as_json(),
    ],
}  # fmt: skip


@click.command(
    cls=Grouped, groups=_OPTIONS, epilog="`fastpe encodings` lists the encodings, `fastpe tasks` lists the tasks.",
    context_settings=earlier_names(length="train-length", test_length="test-lengths"),
)  # fmt: skip
@click.pass_context
def train(
    context: click.Context,
    options: tuple[str, ...],
    out: Path | None,
    resume: bool,
    origin: Path | None,
    threads: int | None,
    paper: bool,
    as_json: bool,
    task_options: tuple[str, ...],
    tokens: str | None,
    protocol: str | None,
    schedule: str | None,
    dry_run: bool,
    logs: tuple[str, ...],
    **_settings: Any,
) -> None:
    """Train a small transformer on a task, and test it.

    The trained model is tested at several lengths. By default, some of them are longer than in training.

    With --task, the default settings are the recipe of the task (`fastpe tasks NAME` prints it). Without it, they are
    the protocol of Li (2025), section 7; these are the defaults that are listed below. By default, an encoding has the
    options of its own authors; --paper uses the options of Li (2025).

    To train a model further on longer inputs, use for example: fastpe train --from runs/rope-0 --train-length 400
    --encoding rope_yarn --option factor=8. The encoding is still built for the original training length, and its
    factor is relative to that length. A learned table is resized.
    """
    given = _given(context)
    if resume and out is None:
        raise click.UsageError("--resume needs --out, the run folder to continue", context)
    if threads is not None and threads < 1:
        raise click.UsageError(f"--threads must be at least 1, not {threads}", context)
    if protocol is not None and (paper or resume):
        raise click.UsageError(f"--preset cannot be combined with {'--paper' if paper else '--resume'}", context)
    if origin is not None:
        for flag, value in (("--resume", resume), ("--preset", protocol), ("--schedule", schedule), ("--paper", paper)):
            if value:
                raise click.UsageError(f"--from starts a new run with a trained model: leave out {flag}", context)
    if dry_run and (resume or out is not None):
        raise click.UsageError(
            f"--dry-run creates no run folder: leave out {'--resume' if resume else '--out'}", context
        )
    of_layers = _scheduled(context, schedule, given)
    use_threads(threads)
    from fastpe.training.logging import LOGS

    try:
        listeners = [LOGS[name]() for name in dict.fromkeys(logs)]
    except ModuleNotFoundError as error:
        raise click.UsageError(f"--log: {error}", context) from None
    stored = _stored(out) if resume and out is not None else None
    if stored is None and "encoding" not in given and origin is None:
        why = f": run folder {out} does not exist, and a new run needs it" if resume else ""
        raise click.UsageError(f"--encoding is missing{why}; 'fastpe encodings' lists all of them", context)
    task_options += () if tokens is None else (f"tokens={tokens}",)
    if origin is None:
        config = _configure(stored, given, options, of_layers, paper, protocol, task_options)
    else:
        config = _starting_from(origin, given, options, task_options)
    if dry_run:
        _print_estimate(config, threads, as_json)
        return
    result = _train(config, out, resume, threads, listeners)
    if as_json:
        print_json({**result.result, "run": str(result.run)})
    else:
        _print_result(result)
        next_step(_next(result))


def _given(context: click.Context) -> dict[str, Any]:
    """Return the settings that the command line contains, by their name in `TrainConfig`."""
    names = {field.name for field in fields(TrainConfig)} - {"options", "task_options"}
    return {
        name: value
        for name, value in context.params.items()
        if name in names and context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }


def _scheduled(context: click.Context, schedule: str | None, given: dict[str, Any]) -> dict[str, Any]:
    """Add the settings of a schedule to `given`, and return its encoding options."""
    if schedule is None:
        return {}
    if "encoding" in given:
        raise click.UsageError("--schedule determines the encoding of each layer: leave out --encoding", context)
    name, found = schedules.parse(schedule, given.get("layers", TrainConfig.layers))
    options: dict[str, Any] = found.pop("options")
    given |= {**found, **given}
    told = ", ".join(f"{key}={value}" for key, value in {**found, **options}.items())
    click.echo(f"schedule {name}, {SCHEDULES[name].summary} ({SCHEDULES[name].source}): {told}", err=True)
    return options


def _stored(out: Path) -> TrainConfig | None:
    from fastpe.training import config_file

    return config_file.read_config(out) if config_file.is_there(out) else None


def _configure(
    stored: TrainConfig | None, given: dict[str, Any], options: tuple[str, ...], of_layers: dict[str, Any],
    paper: bool, protocol: str | None, task_options: tuple[str, ...],
) -> TrainConfig:  # fmt: skip
    """Return the configuration: given settings first, then those of the stored run or of the paper, then defaults."""
    name: str = given["encoding"] if stored is None else given.get("encoding", stored.encoding)
    changed = of_layers | parse_options(name, options)
    if "test_lengths" in given:
        given["test_lengths"] = joined(given["test_lengths"])
    task = given.get("task", TrainConfig.task if stored is None else stored.task)
    of_task = parse_task_options(task, task_options)
    kept_of_task = {} if stored is None or task != stored.task else stored.task_options
    given["task_options"] = {**kept_of_task, **of_task}
    if stored is not None and "data" in given and stored.symbols is not None:
        given["text_places"] = (given.pop("data"),)  # the new place; a text with another SHA-256 is refused
    if stored is not None:
        if paper:
            return TrainConfig.paper(**{**vars(stored), **given, "options": changed})
        kept = stored.options if name == stored.encoding else {}
        return replace(stored, **given, options=kept | changed)
    if paper:
        if "causal" not in given and load_task(task).kind != "numbers":
            given["causal"] = True
        config = TrainConfig.paper(**given, options=changed)
        config = config if "causal" in given else config.causal_where_needed()
        added = [f"{key}={value}" for key, value in config.options.items() if key not in changed]
        click.echo(f"{name} as in Li (2025): {', '.join(added) or 'default options'}", err=True)
    else:
        protocol = protocol or ("recipe" if "task" in given else "li2025")
        own = {key: value for key, value in given.items() if key not in ("task", "encoding")}
        config = preset(protocol, name, changed, task=task, **own)
        if protocol != "li2025":
            print_preset(protocol, config, given)
            return config
    if config.causal and "causal" not in given:
        why = f"{name} needs a causal model" if config.chosen.task.kind == "numbers" else f"task {task} is of tokens"
        click.echo(f"{why}: using --causal", err=True)
    return config


def _starting_from(
    origin: Path, given: dict[str, Any], options: tuple[str, ...], task_options: tuple[str, ...]
) -> TrainConfig:
    """Return the settings of a run that starts from another: given ones, then those of the other run, then defaults."""
    from fastpe.training import starting_weights

    found = starting_weights.read(origin)
    name = given.pop("encoding", None)
    if "test_lengths" in given:
        given["test_lengths"] = joined(given["test_lengths"])
    given["task_options"] = parse_task_options(given.get("task", found.task), task_options)
    config = starting_weights.settings(found, name, parse_options(name or found.model.config.encoding, options), given)
    told = [config.encoding, *(f"{key}={value}" for key, value in config.options.items()), f"task {config.task}"]
    if config.encoding_length is not None:
        told.append(f"encoding for {config.encoding_length} positions")
    click.echo(f"weights of {origin}: {', '.join(told)}", err=True)
    return config


def _train(
    config: TrainConfig, out: Path | None, resume: bool, threads: int | None, logs: "Sequence[Listener]"
) -> "TrainResult":
    from fastpe.training import config_file, loop, run_folder

    from .progress import Reporter

    if out is None:
        config_file.check_folder("runs")
    target = out if out is not None else run_folder.Run.create_numbered
    with Reporter() as reporter:
        try:
            return loop.train(config, out=target, resume=resume, threads=threads, progress=[reporter, *logs])
        except KeyboardInterrupt:
            how = f"; continue with: {_resuming(reporter.run, config.encoding, config.task)}" if reporter.run else ""
            reporter.line(f"fastpe: interrupted{how}")
            sys.exit(INTERRUPTED)


def _resuming(run: Path, encoding: str, task: str) -> str:
    """Return the command that continues a run; it names the user's own encoding and task files again."""
    from fastpe.encodings import registry
    from fastpe.tasks.registry import TASKS

    files, tasks = (
        {key: found["way"] for key, found in each.ways().items() if found["way"].endswith(".py")}
        for each in (registry.ENCODINGS, TASKS)
    )
    own = set(registry.all_keys(encoding)) & set(files)
    named = ["--encoding", registry.canonical(encoding, files)] if own else []
    named += ["--task", tasks[task]] if task in tasks else []
    return shlex.join(["fastpe", "train", "--resume", "--out", str(run), *named])


def _print_result(result: "TrainResult") -> None:
    from fastpe.training.progress import per_second, unit

    facts = result.result
    done = facts["train"]
    click.echo(f"{facts['encoding']}, seed {facts['seed']}: loss {done['loss']:.6g} after {done['steps']} steps\n")
    print_tests(facts["test"])
    if "validation" in facts and result.config.symbols is not None:
        _print_validation(facts["validation"], result.config.train_length)
    each, what = unit(result.config)
    rate = per_second(each * result.config.batch * done["steps"], done["seconds"], what)
    click.echo(f"\ntrained in {done['seconds']:.1f} s, {rate}\nrun folder {result.run}")


def _next(result: "TrainResult") -> dict[str, str]:
    run = shlex.quote(str(result.run))
    if result.config.symbols is not None:
        return {
            f'fastpe generate {run} "The "': "generate text",
            f"fastpe evaluate {run} --length-curve": "loss beyond the training length",
        }
    longer = 8 * result.config.train_length
    return {
        f"fastpe evaluate {run} --test-lengths {longer}": "test at another length",
        f"fastpe show --run {run}": "plot the trained encoding",
    }


def _print_validation(found: Mapping[str, Any], length: int) -> None:
    if found["loss"] is None:
        click.echo(f"\nvalidation: {found['reason']}")
        return
    told = f"{found['loss']:.4f} nats per token"
    if found["bits_per_byte"] is not None:
        told += f", {found['bits_per_byte']:.4f} bits per byte"
    click.echo(f"\nvalidation, all {found['tokens']:,} tokens in blocks of {length}: {told}")


def _print_estimate(config: TrainConfig, threads: int | None, as_json: bool) -> None:
    from fastpe.training.estimate import estimate

    from .progress import Reporter

    with Reporter():
        found = estimate(config, threads=threads)
    if as_json:
        print_json(asdict(found))
        return
    pace = found.flop * found.updates / found.seconds / 1e9 if found.seconds else 0.0
    minutes = f"{found.seconds / 60:,.0f} min" if found.seconds > 100 else f"{found.seconds:,.1f} s"
    click.echo(f"parameters  {found.parameters:,}")
    click.echo(f"memory      {found.memory / 1e6:,.1f} MB")
    click.echo(f"updates     {found.updates:,} of {config.batch} sequences, {found.flop / 1e6:,.1f} MFLOP each")
    click.echo(f"time        {minutes} at {pace:,.1f} GFLOP/s, estimated from {found.timed} updates; without tests")
