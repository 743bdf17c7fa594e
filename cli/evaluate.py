"""``fastpe evaluate``: test the model of a run again."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .output import (
    encoding_name,
    figure_kind,
    parse_lengths,
    print_json,
    print_tests,
    task_name,
    use_threads,
    with_bands,
)

if TYPE_CHECKING:
    from fastpe.model.config import ModelConfig
    from fastpe.model.transformer import Transformer
    from fastpe.training.config import TrainConfig


@click.command()
@click.argument("runs", metavar="RUN...", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--encoding", callback=encoding_name, help="Its encoding, where that is a file: ./mine.py, as in training."
)
@click.option("--task", callback=task_name, help="Its task, where that is a file: ./mine.py, as in training.")
@click.option(
    "--test-length", "test_lengths", multiple=True, metavar="N|A-B", help="Length to test at; may be repeated."
)
@click.option("--length-curve", "curve", is_flag=True, help="Of a text: the loss by length, and by place in a block.")
@click.option(
    "--receptive-field", "field", is_flag=True, help="Of a text: how far back the gradient of the last loss comes from."
)
@click.option("--lengths", metavar="N,N,...", help="Lengths for these two.  [default: that of training, doubled]")
@click.option("--data", type=click.Path(path_type=Path), help="Another text, all of it.  [default: the run's own]")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE", help="Draw them: a .png, .svg or .pdf (needs matplotlib)."
)
@click.option(
    "--bands", metavar="SCHEME", help="Read longer inputs by it, as self_extend:group=4,window=32 (fastpe.bands)."
)
@click.option("--sequences", "test_sequences", type=int, help="Test sequences at each length.  [default: the run's]")
@click.option("--seed", type=int, help="Seed of the test sequences.  [default: the run's]")
@click.option("--threads", type=int, help="Threads; the result does not depend on them.  [default: all cores]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def evaluate(
    runs: tuple[Path, ...],
    curve: bool,
    field: bool,
    lengths: str | None,
    data: Path | None,
    out: Path | None,
    encoding: str | None,
    task: str | None,
    test_lengths: tuple[str, ...],
    bands: str | None,
    test_sequences: int | None,
    seed: int | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Test the trained model in RUN, a run folder, by default as its own run did; or that of a model's file.

    With --length-curve and --receptive-field several runs stand side by side. Nothing is written but --out.
    """
    if curve and field:
        raise click.UsageError("--length-curve and --receptive-field are two commands: give one")
    drawn = {"--test-length": test_lengths or None, "--sequences": test_sequences, "--seed": seed}
    refused = drawn if curve or field else {"--lengths": lengths, "--out": out}
    for flag, given in refused.items():
        if given is not None:
            whose = "sequences that are drawn" if curve or field else "--length-curve and --receptive-field"
            raise click.UsageError(f"{flag} is of {whose}")
    if not (curve or field) and len(runs) > 1:
        raise click.UsageError("several runs are for --length-curve and --receptive-field: give one, or one of these")
    if field and bands is not None:
        raise click.UsageError("--bands is of models that read, and --receptive-field of gradients")
    if out is not None:
        figure_kind(out)
    use_threads(threads)
    if curve or field:
        from . import curves

        show = curves.print_curves if curve else curves.print_fields
        show(curves.on_texts(runs, data, bands), _lengths(lengths), threads, out, as_json)
        return
    from fastpe.training import run_folder

    model = with_bands(run_folder.load(runs[0]), bands)
    if model.vocabulary is not None:
        _test_on_text(runs[0], data, bands, test_lengths, threads, as_json)
    elif data is not None:
        raise click.UsageError(f"--data is of a text: run {runs[0]} has none")
    else:
        config = _as_asked(runs[0], model.config, encoding, task, parse_lengths(test_lengths), test_sequences, seed)
        _test(runs[0], model, config, threads, as_json)


def _as_asked(
    run: Path, made: "ModelConfig", encoding: str | None, task: str | None, lengths: tuple[int | str, ...],
    sequences: int | None, seed: int | None,
) -> "TrainConfig":  # fmt: skip
    """The settings of the test: the run's own, but for what is given."""
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
    """Errors on sequences that are drawn."""
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


def _as_trained(config: "ModelConfig", test_lengths: "tuple[int | str, ...]") -> "TrainConfig":
    """The settings for a model that no run of ours has trained: the usual lengths, as far as its positions reach."""
    from fastpe.training.config import TrainConfig
    from fastpe.training.lengths import OF_NUMBERS

    if config.vocabulary is not None:
        raise click.UsageError("a file of a model of tokens does not say which task it is for: name its run folder")
    reach = config.position_range
    usual = tuple(length for length in OF_NUMBERS if reach is None or length <= reach)
    return TrainConfig(**vars(config), test_lengths=test_lengths or usual or (config.train_length,))


def _test_on_text(
    run: Path, data: Path | None, bands: str | None, given: tuple[str, ...], threads: int | None, as_json: bool
) -> None:
    """Loss and bits per byte in blocks of each length, of a model that was trained on a text."""
    from fastpe.tasks.registry import choose
    from fastpe.training.lengths import checked_lengths
    from fastpe.training.text_metrics import test_text

    from .curves import on_texts, stored_text
    from .progress import Reporter

    (found,) = on_texts([run], data, bands)
    config, train_length = stored_text(run), found.model.config.train_length
    usual = (train_length, 2 * train_length, 4 * train_length) if config is None else config.test_lengths
    lengths = checked_lengths("test_lengths", parse_lengths(given) or usual or (train_length,), choose("text"))
    assert found.model.vocabulary is not None
    with Reporter() as reporter:
        test = test_text(
            found.model, found.tokens, [int(length) for length in lengths], found.model.vocabulary, threads, reporter
        )
    if as_json:
        own = {"encoding": found.model.config.encoding, "seed": found.model.config.seed}
        print_json({"schema": 2, "run": str(run), "task": "text", **own, **_bands_of(found.model), "test": test})
    else:
        print_tests(test)


def _bands_of(model: "Transformer") -> dict[str, str]:
    return {"bands": bands} if (bands := getattr(model, "bands", None)) is not None else {}


def _lengths(text: str | None) -> tuple[int, ...] | None:
    """Those that `--lengths 64,128` names."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and 0 < len(part) < 12 for part in parts):
        raise click.UsageError(f"--lengths must be integers with commas between, not {text!r}")
    return tuple(int(part) for part in parts)
