"""The text of a training: crops of its first part to learn from."""

from collections.abc import Iterator

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.random import Stream
from fastpe.tasks.frame import Sequences
from fastpe.training.config import TrainConfig

Array = np.ndarray


def text_parts(config: TrainConfig) -> tuple[Array, Array]:
    """The tokens to train with, and those to validate with.

    Raises
    ------
    ValueError
        If a part is too short, or (`fastpe.text.corpus.TextNotFound`) the text is not there any more.
    OSError
        If it cannot be read.
    """
    found = config.read_text()
    share, tuning = (config.chosen.options[name] for name in ("share", "tuning"))
    training, validation = found.parts(share, tuning)
    if len(training) < 2:
        raise ValueError(f"data must have two tokens at least for training, and {config.data} has {len(training)}")
    if len(training) <= config.train_length:
        raise ValueError(
            f"train_length must be below the {len(training)} tokens that {config.data} has for training, not "
            f"{config.train_length}"
        )
    if len(validation) < 2:
        raise ValueError(
            f"data must have two tokens at least for validation, and {config.data} has {len(validation)}: its text is "
            f"short for share={share}"
        )
    found_share = len(validation) / (len(training) + len(validation))
    if not share / 2 <= found_share <= 2 * share and len(found.documents) > 2:
        raise ValueError(
            f"option 'share' of task 'text' must be one that its documents allow: they are kept whole, and what is "
            f"nearest to {share} is {found_share:.3f}"
        )
    return training, validation


def crops(tokens: Array, starts: Array, length: int) -> Sequences:
    """Blocks of a row of tokens, from these places on, and after each token the next one."""
    places = starts[:, None] + np.arange(length + 1)
    found = tokens[places].astype(np.int32)
    return Sequences(found[:, :-1], found[:, 1:])


class TextData:
    """What a training on a text learns from: blocks from anywhere in its first part, new ones in every epoch.

    Parameters
    ----------
    config : TrainConfig
    """

    def __init__(self, config: TrainConfig) -> None:
        self._config, self._tokens = config, text_parts(config)[0]

    def batches(self, epoch: int) -> Iterator[Sequences]:
        """The batches of an epoch, from 1 on."""
        config = self._config
        starts = self._starts(epoch, config.samples)
        for begin in range(0, config.samples, config.batch):
            yield crops(self._tokens, starts[begin : begin + config.batch], config.train_length)

    def one(self) -> Sequences:
        """A batch to compile for."""
        return crops(self._tokens, self._starts(0, self._config.batch), self._config.train_length)

    @property
    def nbytes(self) -> int:
        """Memory of the sequences that are kept, in bytes: the text is mapped."""
        return 0

    def _starts(self, epoch: int, count: int) -> Array:
        possible = len(self._tokens) - self._config.train_length
        return Draws(Stream(self._config.seed, "train", epoch)).integers(possible, (count,))
