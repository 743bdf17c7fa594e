"""Training and validation parts of a text, and training batches from the first part."""

from collections.abc import Iterator

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.random import Stream
from fastpe.tasks.frame import Sequences
from fastpe.training.config import TrainConfig

Array = np.ndarray


def text_parts(config: TrainConfig) -> tuple[Array, Array]:
    """Return the training tokens and the validation tokens.

    Raises
    ------
    ValueError
        If a part is too short, or if the text is missing (`fastpe.text.corpus.TextNotFound`).
    OSError
        If the text cannot be read.
    """
    found = config.read_text()
    share, tuning = (config.chosen.options[name] for name in ("share", "tuning"))
    training, validation = found.parts(share, tuning)
    if len(training) < 2:
        raise ValueError(f"data must have at least two tokens for training, but {config.data} has {len(training)}")
    if len(training) <= config.train_length:
        raise ValueError(
            f"train_length must be below the {len(training)} tokens that {config.data} has for training, not "
            f"{config.train_length}"
        )
    if len(validation) < 2:
        raise ValueError(
            f"data must have at least two tokens for validation, but {config.data} has {len(validation)}: its text is "
            f"too short for share={share}"
        )
    found_share = len(validation) / (len(training) + len(validation))
    if not share / 2 <= found_share <= 2 * share and len(found.documents) > 2:
        raise ValueError(
            f"option 'share' of task 'text' must be near a share of whole documents: the one nearest to {share} is "
            f"{found_share:.3f}"
        )
    return training, validation


def predicted_bytes(config: TrainConfig) -> int | None:
    """Return the number of bytes of the validation text without its first token; None if tokens are ids.

    The errors are those of `text_parts`.
    """
    training, validation = map(len, text_parts(config))
    return config.read_text().bytes_in(training + 1, training + validation)


def crops(tokens: Array, starts: Array, length: int) -> Sequences:
    """Return blocks of tokens from the given starts, with the next tokens as targets."""
    places = starts[:, None] + np.arange(length + 1)
    found = tokens[places].astype(np.int32)
    return Sequences(found[:, :-1], found[:, 1:])


class TextData:
    """Training blocks from random starts in the training part of a text, with new starts in each epoch.

    Parameters
    ----------
    config : TrainConfig
    """

    def __init__(self, config: TrainConfig) -> None:
        self._config, self._tokens = config, text_parts(config)[0]

    def batches(self, epoch: int) -> Iterator[Sequences]:
        """Yield the batches of an epoch (counted from 1)."""
        config = self._config
        starts = self._starts(epoch, config.samples)
        for begin in range(0, config.samples, config.batch):
            yield crops(self._tokens, starts[begin : begin + config.batch], config.train_length)

    def one(self) -> Sequences:
        """Return one batch, for compiling."""
        return crops(self._tokens, self._starts(0, self._config.batch), self._config.train_length)

    @property
    def nbytes(self) -> int:
        """Memory of the stored sequences in bytes: 0, because the text is memory-mapped."""
        return 0

    def _starts(self, epoch: int, count: int) -> Array:
        possible = len(self._tokens) - self._config.train_length
        return Draws(Stream(self._config.seed, "train", epoch)).integers(possible, (count,))
