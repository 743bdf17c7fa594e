"""``fastpe evaluate``: test the model of a run again."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .output import encoding_name, parse_lengths, print_json, print_tests, task_name, use_threads

if TYPE_CHECKING:
    from fastpe.model.config import ModelConfig
    from fastpe.training.config import TrainConfig


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--encoding", callback=encoding_name, help="Its encoding, where that is a file: ./mine.py, as in training."
)
@click.option("--task", callback=task_name, help="Its task, where that is a file: ./mine.py, as in training.")
@click.option(
    "--test-length", "test_lengths", multiple=True, metavar="N|A-B", help="Length to test at; may be repeated."
)
@click.option("--sequences", "test_sequences", type=int, help="Test sequences at each length.  [default: the run's]")
@click.option("--seed", type=int, help="Seed of the test sequences.  [default: the run's]")
@click.option("--threads", type=int, help="Threads; the result does not depend on them.  [default: all cores]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def evaluate(
    run: Path,
    encoding: str | None,
    task: str | None,
    test_lengths: tuple[str, ...],
    test_sequences: int | None,
    seed: int | None,
    threads: int | None,
    as_json: bool,
) -> None:
    """Test the trained model in RUN, a run folder, by default as its own run did; or that of a model's file.

    Nothing is written.
    """
    use_threads(threads)
    from dataclasses import replace

    from fastpe.training import run_folder
    from fastpe.training.evaluation import evaluate as test_model

    from .progress import Reporter

    model = run_folder.load(run)
    stored = run_folder.read_config(run) if run.is_dir() else None
    wanted = parse_lengths(test_lengths)
    config = _as_trained(model.config, wanted) if stored is None else stored
    if task not in (None, config.task):
        raise click.UsageError(f"run {run} has the task {config.task!r}, not {task!r}")
    if encoding not in (None, config.encoding):
        raise click.UsageError(f"run {run} has the encoding {config.encoding!r}, not {encoding!r}")
    config = replace(
        config,
        test_lengths=wanted or config.test_lengths,
        test_sequences=config.test_sequences if test_sequences is None else test_sequences,
        seed=config.seed if seed is None else seed,
    )
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
        print_json({**facts, "test": test})
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
