"""``fastpe evaluate``: test a trained model."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .options import ENCODING, INTEGER, TASK, Grouped, as_json, earlier_names, joined, option, test_lengths, threads
from .output import Source, encoding_of, figure_kind, print_json, print_tests, use_threads, with_bands
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
            "than in training. Example: self_extend:group=4,window=32. With --length-curve, several schemes, and none, "
            "are compared.",
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
    lengths, drawn = joined(test_lengths), {"--test-sequences": test_sequences, "--seed": seed}
    refused = drawn if curve or field else {"--out": out}
    for flag, given in refused.items():
        if given is not None and (curve or field):
            raise click.UsageError(f"{flag} cannot be combined with --length-curve or --receptive-field")
        if given is not None:
            raise click.UsageError(f"{flag} needs --length-curve or --receptive-field")
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
    if curve or field:
        from . import curves

        show = curves.print_curves if curve else curves.print_fields
        show(curves.on_texts(sources, data, bands), _integers(lengths), threads, out, as_json)
        return
    (run,) = sources
    if run.hf or run.model.vocabulary is not None:
        _test_on_text(run, data, bands, lengths, threads, as_json)
    elif data is not None:
        raise click.UsageError(f"--data needs a model of a text, and run {run} has none")
    else:
        config = _as_asked(run.path, run.model.config, encoding, task, lengths, test_sequences, seed)
        _test(run.path, with_bands(run.model, *bands), config, threads, as_json)


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


def _test(run: Path, model: "Transformer", config: "TrainConfig", threads: int | None, as_json: bool) -> None:
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
            threads=threads,
            progress=reporter,
        )
    if as_json:
        facts = {"schema": 2, "run": str(run), "task": config.task, "encoding": config.encoding, "seed": config.seed}
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
