"""``fastpe train``: train a model, test it, leave a run folder."""

import os
import shlex
import sys
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from fastpe.encodings.registry import built_in, list_encodings
from fastpe.model.config import ACTIVATIONS, DTYPES, NORMS
from fastpe.tasks.registry import load_task
from fastpe.training.config import LENGTHS, TrainConfig

from .output import (
    INTERRUPTED,
    encoding_name,
    parse_lengths,
    parse_options,
    parse_task_options,
    print_json,
    print_tests,
    task_name,
    use_threads,
)

if TYPE_CHECKING:
    from fastpe.training.loop import TrainResult


def _setting(flag: str, name: str, kind: Any, text: str, **more: Any) -> Callable[..., Any]:
    """An option that is a field of `TrainConfig`, with that field's default."""
    default = getattr(TrainConfig, name)
    return click.option(flag, name, type=kind, default=default, show_default=True, help=text, **more)


@click.command(epilog=f"Encodings: {', '.join(built_in())}.")
@click.option(
    "--encoding", callback=encoding_name,
    help="Position encoding (`fastpe encodings` lists them), a sum such as wavelet+alibi, or your own file, ./mine.py.",
)  # fmt: skip
@click.option("--option", "options", multiple=True, metavar="K=V", help="Option of the encoding; may be repeated.")
@_setting(
    "--task", "task", str, "What to learn (`fastpe tasks` lists it), or your own file, ./mine.py.", callback=task_name
)
@click.option(
    "--task-option", "task_options", multiple=True, metavar="K=V", help="Option of the task; may be repeated."
)
@click.option("--paper", is_flag=True, help="The encoding's options as in Li (2025); of alibi, one slope 0.1/length.")
@click.option("--out", type=click.Path(path_type=Path), help="Run folder.  [default: runs/<encoding>-<n>]")
@click.option("--resume", is_flag=True, help="Continue the run in --out, with its settings.")
@_setting("--seed", "seed", int, "Seed of weights, data and order.")
@_setting("--epochs", "epochs", int, "Passes over the training sequences.")
@_setting("--batch", "batch", int, "Sequences per update.")
@_setting("--samples", "samples", int, "Training sequences.")
@_setting("--length", "train_length", int, "Length of the longest training input.")
@_setting("--lengths", "lengths", click.Choice(LENGTHS), "Lengths of training inputs: all --length, or 1 to --length.")
@_setting(
    "--test-length", "test_lengths", str, "Length to test at, or lengths: 51-100; may be repeated.", multiple=True,
    metavar="N|A-B",
)  # fmt: skip
@_setting(
    "--positions", "positions", str, "'usual', or 'random:L': other positions, drawn from 0 .. L-1, at every step."
)
@_setting("--lr", "lr", float, "Adam's learning rate.")
@click.option("--threads", type=int, help="Threads; the result does not depend on them.  [default: all cores]")
@_setting("--dtype", "dtype", click.Choice(DTYPES), "Type of all numbers.")
@click.option("--causal/--bidirectional", default=None, help="The model's mask.  [default: causal where it has to be]")
@_setting("--layers", "layers", int, "Layers.")
@_setting("--heads", "heads", int, "Attention heads.")
@_setting("--width", "width", int, "Width of the model.")
@_setting("--hidden", "hidden", int, "Width inside the feed-forward map.")
@_setting("--activation", "activation", click.Choice(ACTIVATIONS), "Activation of the feed-forward map.")
@_setting("--norm", "norm", click.Choice(NORMS), "Normalisation before attention and feed-forward.")
@click.option(
    "--no-residual", "residual", is_flag=True, flag_value=False, default=True, help="No residual connections."
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on standard output.")
@click.pass_context
def train(
    context: click.Context,
    encoding: str | None,
    options: tuple[str, ...],
    out: Path | None,
    resume: bool,
    threads: int | None,
    paper: bool,
    as_json: bool,
    task_options: tuple[str, ...],
    **_settings: Any,
) -> None:
    """Train a small transformer on a task and test it at several lengths.

    With nothing but --encoding this is the protocol of Li (2025), section 7, with the encoding as its own authors have
    it; --paper takes the encoding's options from Li (2025) too.
    """
    given = _given(context)
    if resume and out is None:
        raise click.UsageError("--resume needs --out, the run folder to continue", context)
    if threads is not None and threads < 1:
        raise click.UsageError(f"--threads must be at least 1, not {threads}", context)
    use_threads(threads)
    stored = _stored(out) if resume and out is not None else None
    if stored is None:
        if encoding is None:
            why = f": run folder {out} does not exist, and a new run needs it" if resume else ""
            raise click.UsageError(f"--encoding is missing{why}; known: {', '.join(list_encodings())}", context)
        if out is not None and not resume and os.path.lexists(out):
            raise click.UsageError(f"run folder {out} exists already: choose another --out, or --resume it", context)
    result = _train(_configure(stored, given, options, paper, task_options), out, resume, threads)
    if as_json:
        print_json({**result.result, "run": str(result.run)})
    else:
        _print_result(result)


def _given(context: click.Context) -> dict[str, Any]:
    """The settings that the command line names, by their name in `TrainConfig`."""
    names = {field.name for field in fields(TrainConfig)} - {"options", "task_options"}
    return {
        name: value
        for name, value in context.params.items()
        if name in names and context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }


def _stored(out: Path) -> TrainConfig | None:
    from fastpe.training.config_file import read_config

    return read_config(out) if os.path.lexists(out) else None


def _configure(
    stored: TrainConfig | None, given: dict[str, Any], options: tuple[str, ...], paper: bool,
    task_options: tuple[str, ...],
) -> TrainConfig:  # fmt: skip
    """The configuration: what is given, else what the run had, else the paper's choice if wanted and the defaults."""
    name: str = given["encoding"] if stored is None else given.get("encoding", stored.encoding)
    changed = parse_options(name, options)
    if "test_lengths" in given:
        given["test_lengths"] = parse_lengths(given["test_lengths"])
    task = given.get("task", TrainConfig.task if stored is None else stored.task)
    of_task = parse_task_options(task, task_options)
    kept_of_task = {} if stored is None or task != stored.task else stored.task_options
    given["task_options"] = {**kept_of_task, **of_task}
    if stored is not None:
        if paper:
            return TrainConfig.paper(**{**vars(stored), **given, "options": changed})
        kept = stored.options if name == stored.encoding else {}
        return replace(stored, **given, options=kept | changed)
    if "causal" not in given and load_task(task).kind != "numbers":
        given["causal"] = True
        click.echo(f"task {task}: --causal is taken, as language models have it", err=True)
    preset = TrainConfig.paper if paper else TrainConfig
    config = preset(**given, options=changed)
    if "causal" not in given:
        config = config.causal_where_needed()
        if config.causal:
            click.echo(f"{name} is made for causal models: --causal is taken", err=True)
    if paper:
        added = [f"{key}={value}" for key, value in config.options.items() if key not in changed]
        click.echo(f"{name} as in Li (2025): {', '.join(added) or 'its own defaults'}", err=True)
    return config


def _train(config: TrainConfig, out: Path | None, resume: bool, threads: int | None) -> "TrainResult":
    from fastpe.training import config_file, loop, run_folder

    from .progress import Reporter

    if out is None:
        config_file.check_folder("runs")
    target = out if out is not None else run_folder.Run.create_numbered
    with Reporter() as reporter:
        try:
            return loop.train(config, out=target, resume=resume, threads=threads, progress=reporter)
        except KeyboardInterrupt:
            how = f"; continue with: {_resuming(reporter.run, config.encoding, config.task)}" if reporter.run else ""
            reporter.line(f"fastpe: interrupted{how}")
            sys.exit(INTERRUPTED)


def _resuming(run: Path, encoding: str, task: str) -> str:
    """The command that goes on with a run, which wants an encoding's own file named again."""
    from fastpe.encodings import registry
    from fastpe.tasks.registry import TASKS

    files, tasks = (
        {key: found["way"] for key, found in each.ways().items() if found["way"].endswith(".py")}
        for each in (registry.ENCODINGS, TASKS)
    )
    keys = registry.split(encoding)
    named = ["--encoding", "+".join(files.get(key, key) for key in keys)] if set(keys) & set(files) else []
    named += ["--task", tasks[task]] if task in tasks else []
    return shlex.join(["fastpe", "train", "--resume", "--out", str(run), *named])


def _print_result(result: "TrainResult") -> None:
    from fastpe.training.progress import per_second

    facts = result.result
    done = facts["train"]
    click.echo(f"{facts['encoding']}, seed {facts['seed']}: loss {done['loss']:.6g} after {done['steps']} steps\n")
    print_tests(facts["test"])
    rate = per_second(result.config.samples * result.config.epochs, done["seconds"])
    click.echo(f"\ntrained in {done['seconds']:.1f} s, {rate}\nrun folder {result.run}")
