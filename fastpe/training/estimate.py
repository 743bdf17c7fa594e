"""Estimates the cost of a training on this machine from a few of its steps. Nothing is saved."""

import time
from dataclasses import dataclass

import numpy as np

from fastpe.model.cost import sequence_flop
from fastpe.model.transformer import Transformer
from fastpe.tasks.frame import Sequences
from fastpe.training.config import TrainConfig
from fastpe.training.data import check_data, training_data
from fastpe.training.loop import optimiser, step

_SECONDS = 1.0  # least total time of the timed steps
_LEAST = 3  # least number of timed steps


@dataclass(frozen=True)
class Estimate:
    """Cost of a training.

    Attributes
    ----------
    parameters : int
        Number of parameters.
    memory : int
        Bytes of parameters, gradients, moments, scratch memory and training sequences.
    flop : float
        Useful FLOPs per update.
    updates : int
        Largest number of updates; a training may end early.
    seconds : float
        Time of all updates, without validation and tests, extrapolated from the timed updates.
    timed : int
        Number of timed updates.
    """

    parameters: int
    memory: int
    flop: float
    updates: int
    seconds: float
    timed: int


def estimate(config: TrainConfig, *, threads: int | None = None) -> Estimate:
    """Time a few steps of a training, after one step that compiles, and estimate the cost of all steps.

    Parameters
    ----------
    config : TrainConfig
    threads : int, optional
        Threads to use.

    Returns
    -------
    Estimate

    Raises
    ------
    ValueError
        As `fastpe.train` does before training.

    Examples
    --------
    >>> config = TrainConfig("nope", width=8, hidden=8, train_length=5, samples=64, epochs=2)
    >>> found = estimate(config)
    >>> found.parameters, found.updates, found.seconds > 0
    (889, 4, True)
    """
    config = config.tested()
    check_data(config)
    model = Transformer(config.model)
    adam, data = optimiser(config, model), training_data(config)
    batches = data.batches(1)
    step(adam, data.one(), threads)
    flop, sizes, seconds, timed = 0, 0, 0.0, 0
    for batch in batches:
        begin = time.perf_counter()
        step(adam, batch, threads)
        seconds += time.perf_counter() - begin
        timed, flop = timed + 1, flop + _flop(config, batch)
        sizes = max(sizes, sum(array.nbytes for array in batch if array is not None))
        if seconds > _SECONDS and timed >= _LEAST:
            break
    moments = sum(array.nbytes for group in (adam.first, adam.second) for array in group.values())
    return Estimate(
        parameters=sum(array.size for array in model.parameters.values()),
        memory=model.nbytes + moments + data.nbytes + sizes,
        flop=flop / timed,
        updates=config.steps,
        seconds=seconds / timed * config.steps,
        timed=timed,
    )


def _flop(config: TrainConfig, batch: Sequences) -> int:
    count, width = batch.x.shape
    lengths = np.full(count, width) if batch.lengths is None else batch.lengths
    targets = lengths if batch.weights is None else (batch.weights > 0).sum(axis=1)
    each = zip(lengths.tolist(), targets.tolist(), strict=True)
    return sum(sequence_flop(config.model, n, counts) for n, counts in each)
