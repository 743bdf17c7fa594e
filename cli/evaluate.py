"""``fastpe evaluate``: test a trained model."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import ENCODING, INTEGER, TASK, Grouped, as_json, earlier_names, joined, option, test_lengths, threads
from .output import (
    Source,
    encoding_of,
    figure_kind,
    parse_task_options,
    print_json,
    print_tests,
    use_threads,
    with_bands,
)
from .terminal import next_step

if TYPE_CHECKING:
    from fastpe.model.config import ModelConfig
    from fastpe.model.transformer import Transformer
    from fastpe.training.config import TrainConfig


_OPTIONS = {
    "Common": [
        test_lengths(
            "Test lengths, such as 50,100, or ranges, such as 1-50,51-100; one length for --receptive-field.  "
            "[default: those of the run; 1, 2, 4, 8 and 16 times the training length for --length-curve; 2 times for "
            "--receptive-field]"
        ),
        option(
            "--test-sequences", type=INTEGER,
            help="Number of test sequences for each test length.  [default: that of the run]",
        ),
        option("--seed", type=INTEGER, help="Seed of the test sequences.  [default: that of the run]"),
        threads(),
    ],
    "Task": [
        option(
            "--test", metavar="NAME",
            help="Test with the options of one of the task's named tests, which `fastpe tasks TASK` lists.",
        ),
        option(
            "--task-option", "task_options", multiple=True, metavar="K=V",
            help="Test with another value of an option of the task; may be repeated.",
        ),
        option("--by-place", is_flag=True, help="Also count right tokens by the place in the input they are about."),
    ],
    "Text": [
        option("--length-curve", "curve", is_flag=True, help="Measure the loss by length, and by position in a block."),
        option(
            "--receptive-field", "field", is_flag=True,
            help="Measure how much each earlier token contributes to the gradient of the loss of the last token.",
        ),
        option(
            "--data", type=click.Path(path_type=Path),
            help="Another text to test on, used in full.  [default: the validation part of the run's text]",
        ),
        option(
            "--bands", metavar="SCHEME", multiple=True,
            help="Change the rotary positions by a scheme of fastpe.bands, so that the model can read longer inputs "
            "than in training. Example: self_extend:group=4,window=32. With --length-curve, several schemes can be "
            "compared; the scheme none changes nothing.",
        ),
        option(
            "--out", type=click.Path(path_type=Path), metavar="FILE",
            help="Draw --length-curve or --receptive-field as a .svg, or as a .png or .pdf, which need matplotlib.",
        ),
    ],
    "File": [
        option(
            "--hf", type=click.Path(path_type=Path), metavar="FOLDER", multiple=True,
            help="Also test a model in the format of Hugging Face's transformers. It needs --data.",
        ),
        option("--encoding", type=ENCODING, help="File that defines your own encoding, if the run uses one."),
        option("--task", type=TASK, help="File that defines your own task, if the run uses one."),
    ],
    "Output": [as_json()],
}  # fmt: skip


@click.command(
    cls=Grouped, groups=_OPTIONS,
    context_settings=earlier_names(
        lengths="test-lengths", test_length="test-lengths", sequences="test-sequences"
    ),
)  # fmt: skip
@click.argument("runs", metavar="RUN...", nargs=-1, type=click.Path(path_type=Path))
def evaluate(
    runs: tuple[Path, ...],
    hf: tuple[Path, ...],
    curve: bool,
    field: bool,
    data: Path | None,
    out: Path | None,
    encoding: str | None,
    task: str | None,
    test_lengths: tuple[tuple[int | str, ...], ...],
    bands: tuple[str, ...],
    test_sequences: int | None,
    seed: int | None,
    test: str | None,
    task_options: tuple[str, ...],
    by_place: bool,
    threads: int | None,
    as_json: bool,
) -> None:
    """Test a trained model.

    RUN is a run folder or a model file. By default, the command repeats the test at the end of training. With
    --length-curve or --receptive-field, it accepts several runs and compares them. It writes no file except the figure
    --out.
    """
    if curve and field:
        raise click.UsageError("--length-curve and --receptive-field exclude each other: give one")
    lengths = joined(test_lengths)
    _refuse_alone(curve or field, {"--test-sequences": test_sequences, "--seed": seed}, out)
    sources = [*map(Source, runs), *(Source(folder, hf=True, in_torch=not field) for folder in hf)]
    if not sources:
        raise click.UsageError("Missing argument 'RUN...'.")
    if hf and data is None:
        raise click.UsageError("--hf needs --data FILE, the text to test on")
    if len(bands) > 1 and not curve:
        raise click.UsageError("several --bands need --length-curve")
    if not (curve or field) and len(sources) > 1:
        raise click.UsageError(
            "several runs need --length-curve or --receptive-field: give one run, or one of these options"
        )
    if field and bands:
        raise click.UsageError("--bands cannot be combined with --receptive-field, which needs gradients")
    if out is not None:
        figure_kind(out)
    use_threads(threads)
    for flag, asked in (("--test", test), ("--task-option", task_options), ("--by-place", by_place)):
        if asked and (curve or field or data is not None or _is_of_text(sources[0])):
            raise click.UsageError(f"{flag} needs a task whose sequences are drawn, not a text")
    if curve or field:
        from . import curves

        show = curves.print_curves if curve else curves.print_fields
        show(curves.on_texts(sources, data, bands), _integers(lengths), threads, out, as_json)
        return
    (run,) = sources
    if _is_of_text(run):
        _test_on_text(run, data, bands, lengths, threads, as_json)
    elif data is not None:
        raise click.UsageError(f"--data needs a model of a text, and run {run} has none")
    else:
        config = _as_asked(run.path, run.model.config, encoding, task, lengths, test_sequences, seed)
        config = _with_options(config, test, task_options)
        _test(run.path, with_bands(run.model, *bands), config, by_place, threads, as_json)


def _refuse_alone(of_text: bool, drawn: Mapping[str, object], out: Path | None) -> None:
    """Refuse options of drawn sequences for --length-curve and --receptive-field, and --out without these."""
    for flag, given in (drawn if of_text else {"--out": out}).items():
        if given is not None and of_text:
            raise click.UsageError(f"{flag} cannot be combined with --length-curve or --receptive-field")
        if given is not None:
            raise click.UsageError(f"{flag} needs --length-curve or --receptive-field")


def _is_of_text(run: Source) -> bool:
    return run.hf or run.model.vocabulary is not None


def _as_asked(
    run: Path, made: "ModelConfig", encoding: str | None, task: str | None, lengths: tuple[int | str, ...],
    sequences: int | None, seed: int | None,
) -> "TrainConfig":  # fmt: skip
    """Return the settings of the test: those of the run, unless an option changes them."""
    from dataclasses import replace

    from fastpe.training import run_folder

    stored = run_folder.read_config(run) if run.is_dir() else None
    config = _as_trained(made, lengths) if stored is None else stored
    if task not in (None, config.task):
        raise click.UsageError(f"run {run} has the task {config.task!r}, not {task!r}")
    if encoding not in (None, config.encoding):
        raise click.UsageError(f"run {run} has the encoding {config.encoding!r}, not {encoding!r}")
    return replace(
        config,
        test_lengths=lengths or config.test_lengths,
        test_sequences=config.test_sequences if sequences is None else sequences,
        seed=config.seed if seed is None else seed,
    )


def _with_options(config: "TrainConfig", test: str | None, task_options: tuple[str, ...]) -> "TrainConfig":
    """Return the settings with the options of a named test, and other options of the task."""
    from dataclasses import replace

    named: Mapping[str, Any] = {}
    if test is not None:
        tests = config.chosen.task.tests
        if test not in tests:
            known = f"one of {', '.join(tests)}" if tests else "left out: the task has none"
            raise click.UsageError(f"--test must be {known}, not {test!r}")
        named = tests[test]
    given = parse_task_options(config.task, task_options)
    return replace(config, task_options={**config.task_options, **named, **given})


def _test(
    run: Path, model: "Transformer", config: "TrainConfig", by_place: bool, threads: int | None, as_json: bool
) -> None:
    """Print the errors on drawn test sequences."""
    from fastpe.training.evaluation import evaluate as test_model

    from .progress import Reporter

    with Reporter() as reporter:
        test = test_model(
            model,
            config.test_lengths,
            config.test_sequences,
            seed=config.seed,
            task=config.task,
            task_options=config.task_options,
            target_scale=config.target_scale,
            by_place=by_place,
            threads=threads,
            progress=reporter,
        )
    if as_json:
        facts = {"schema": 2, "run": str(run), "task": config.task, "encoding": config.encoding, "seed": config.seed}
        facts |= {"task_options": dict(config.task_options)} if config.task_options else {}
        print_json({**facts, **_bands_of(model), "test": test})
    else:
        print_tests(test)
        next_step({f"fastpe show --run {shlex.quote(str(run))}": "plot the trained encoding"})


def _as_trained(config: "ModelConfig", test_lengths: "tuple[int | str, ...]") -> "TrainConfig":
    """Return settings for a model file without a run: the default test lengths that its positions allow."""
    from fastpe.training.config import TrainConfig
    from fastpe.training.lengths import OF_NUMBERS

    if config.vocabulary is not None:
        raise click.UsageError(
            "a model file does not contain the task of a model of tokens: name the run folder instead"
        )
    reach = config.position_range
    usual = tuple(length for length in OF_NUMBERS if reach is None or length <= reach)
    return TrainConfig(**vars(config), test_lengths=test_lengths or usual or (config.train_length,))


def _test_on_text(
    run: Source, data: Path | None, bands: tuple[str, ...], given: tuple[int | str, ...], threads: int | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Print loss and bits per byte in blocks of each length for a model of a text."""
    from fastpe.tasks.registry import choose
    from fastpe.training.lengths import checked_lengths
    from fastpe.training.text_metrics import test_text

    from .curves import on_texts
    from .progress import Reporter

    (found,) = on_texts([run], data, bands)
    model = with_bands(found.model, found.bands)
    config, train_length = run.stored_text(), model.config.train_length
    usual = (train_length, 2 * train_length, 4 * train_length) if config is None else config.test_lengths
    lengths = checked_lengths("test_lengths", given or usual or (train_length,), choose("text"))
    with Reporter() as reporter:
        test = test_text(model, found.tokens, [int(length) for length in lengths], found.size, threads, reporter)
    if as_json:
        own = {"encoding": encoding_of(model), "seed": model.config.seed}
        print_json({"schema": 2, "run": str(run), "task": "text", **own, **_bands_of(model), "test": test})
    else:
        print_tests(test)
        named = shlex.join(["--hf", str(run)] if run.hf else [str(run)])
        next_step({f"fastpe evaluate {named} --length-curve": "loss by length and position"})


def _bands_of(model: "Transformer") -> dict[str, str]:
    return {"bands": bands} if (bands := getattr(model, "bands", None)) is not None else {}


def _integers(lengths: tuple[int | str, ...]) -> tuple[int, ...] | None:
    """Return the lengths of `--length-curve` and `--receptive-field`, which have no ranges."""
    for length in lengths:
        if not isinstance(length, int) or length < 1:
            raise click.UsageError(f"--test-lengths must be integers >= 1 on a text, not {length!r}")
    return tuple(map(int, lengths)) or None
