"""The training sequences, batch by batch, as pure functions of the seed."""

from collections.abc import Iterator

import numpy as np

from fastpe.base import validation
from fastpe.base.draws import Draws
from fastpe.base.random import Stream
from fastpe.tasks import targets
from fastpe.tasks.frame import Sequences, draw, sequences
from fastpe.training.config import TrainConfig
from fastpe.training.evaluation import BYTES_DRAWN, check_room
from fastpe.training.lengths import ends
from fastpe.training.text_data import TextData, text_parts

_BLOCK = 64  # number of batches of fresh tokens drawn at once, because a task draws all sequences of one length at once


def check_data(config: TrainConfig) -> None:
    """Raise ValueError if the sequences need more memory than this machine has, or if a user's task draws invalid ones.

    Called before a run folder is created.
    """
    chosen = config.chosen
    what = f"validation with {config.validation} sequences of length {config.train_length}"
    validation.room(what, config.validation * config.model.train_length * BYTES_DRAWN)
    if chosen.task.kind == "text":
        text_parts(config)
        return
    count = config.batch * _BLOCK if _in_blocks(config) else config.samples
    what = f"{count} training sequences of length {config.train_length}"
    validation.room(what, count * config.model.train_length * BYTES_DRAWN, "need")
    check_room(config.test_lengths, config.test_sequences, chosen)
    if not chosen.task.file:
        return
    asked = (f"1-{config.train_length}", *config.test_lengths)
    for length in sorted({int(chosen.lengths.within(*ends(each))[-1]) for each in asked}):
        draw(chosen, Stream(config.seed, "tried"), 1, length, config.dtype)
        if chosen.task.kind == "numbers":
            chosen.squares(length)


def _in_blocks(config: TrainConfig) -> bool:
    return config.data == "fresh" and config.chosen.task.kind != "numbers"


def training_data(config: TrainConfig) -> "TrainingData | TextData":
    """Return the training data for these settings."""
    return TextData(config) if config.chosen.task.kind == "text" else TrainingData(config)


class TrainingData:
    """Training sequences of a task.

    Parameters
    ----------
    config : TrainConfig
    """

    def __init__(self, config: TrainConfig) -> None:
        self._config, self._in_blocks = config, _in_blocks(config)
        self._whole = None if self._in_blocks else self._drawn(0, config.samples)

    def batches(self, epoch: int) -> Iterator[Sequences]:
        """Yield the batches of an epoch (counted from 1) in the order of that epoch."""
        config = self._config
        if self._in_blocks:
            for begin in range(0, config.samples, config.batch * _BLOCK):
                count = min(config.batch * _BLOCK, config.samples - begin)
                drawn = self._drawn((epoch << 32) + begin // (config.batch * _BLOCK), count)
                yield from (_some(drawn, slice(i, i + config.batch)) for i in range(0, count, config.batch))
            return
        if config.data == "fresh":
            self._whole = self._drawn(epoch, config.samples)
        assert self._whole is not None
        order = Stream(config.seed, "order", epoch).permutation(config.samples)
        yield from (_some(self._whole, order[i : i + config.batch]) for i in range(0, config.samples, config.batch))

    @property
    def nbytes(self) -> int:
        """Memory of the stored sequences in bytes."""
        return 0 if self._whole is None else sum(array.nbytes for array in self._whole if array is not None)

    def one(self) -> Sequences:
        """Return one batch, for compiling."""
        if self._whole is None:
            return _some(self._drawn(0, self._config.batch), slice(None))
        return _some(self._whole, slice(self._config.batch))

    def _drawn(self, step: int, count: int) -> Sequences:
        config = self._config
        stream, width = Stream(config.seed, "train", step), config.model.train_length
        lengths = np.full(count, config.train_length)
        if config.lengths == "uniform":
            within = config.chosen.lengths.within(1, config.train_length)
            lengths = within[Draws(Stream(config.seed, "lengths", step)).integers(len(within), (count,))]
        drawn = sequences(config.chosen, stream, lengths, config.causal, config.dtype, width)
        if config.chosen.task.kind != "numbers":
            return drawn._replace(x=drawn.x.astype(np.int32), y=drawn.y.astype(np.int32))
        factors = targets.factors(config.train_length, config.target_scale, config.train_length)
        y = (drawn.y.astype(config.dtype) * factors).astype(config.dtype)
        return drawn._replace(x=drawn.x.astype(config.dtype), y=y)


def _some(data: Sequences, chosen: slice | np.ndarray) -> Sequences:
    weights = None if data.weights is None else data.weights[chosen]
    return Sequences(data.x[chosen], data.y[chosen], weights, None if data.lengths is None else data.lengths[chosen])


def counts(batch: Sequences) -> float:
    """Return the weight of a batch in a mean of losses."""
    return len(batch.x) if batch.weights is None else float(batch.weights.sum(dtype=np.float64))
