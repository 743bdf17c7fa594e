"""``fastpe evaluate``: test the model of a run again."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from .output import encoding_name, print_json, print_tests, use_threads

if TYPE_CHECKING:
    from fastpe.model.config import ModelConfig
    from fastpe.training.config import TrainConfig


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--encoding", callback=encoding_name, help="Its encoding, where that is a file: ./mine.py, as in training."
)
@click.option("--test-length", "test_lengths", type=int, multiple=True, help="Length to test at; may be repeated.")
@click.option("--sequences", "test_sequences", type=int, help="Test sequences at each length.  [default: the run's]")
@click.option("--seed", type=int, help="Seed of the test sequences.  [default: the run's]")
@click.option("--threads", type=int, help="Threads; the result does not depend on them.  [default: all cores]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def evaluate(
    run: Path,
    encoding: str | None,
    test_lengths: tuple[int, ...],
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
    config = _as_trained(model.config, test_lengths) if stored is None else stored
    if encoding not in (None, config.encoding):
        raise click.UsageError(f"run {run} has the encoding {config.encoding!r}, not {encoding!r}")
    config = replace(
        config,
        test_lengths=test_lengths or config.test_lengths,
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
            target_scale=config.target_scale,
            threads=threads,
            progress=reporter,
        )
    if as_json:
        print_json({"schema": 1, "run": str(run), "encoding": config.encoding, "seed": config.seed, "test": test})
    else:
        print_tests(test)


def _as_trained(config: "ModelConfig", test_lengths: tuple[int, ...]) -> "TrainConfig":
    """The settings for a model that no run of ours has trained: the usual lengths, as far as its positions reach."""
    from fastpe.training.config import TrainConfig

    reach = config.position_range
    usual = tuple(length for length in TrainConfig.test_lengths if reach is None or length <= reach)
    return TrainConfig(**vars(config), test_lengths=test_lengths or usual or (config.train_length,))
