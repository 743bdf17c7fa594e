"""Validation after each epoch, on sequences with the lengths of the training that are not used for training."""

import math
from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.random import Stream
from fastpe.model.transformer import Transformer
from fastpe.tasks import frame, targets
from fastpe.training import text_metrics
from fastpe.training.config import TrainConfig
from fastpe.training.evaluation import token_metrics
from fastpe.training.text_data import crops, text_parts


class Validation:
    """Validation sequences of a task. For tokens they are the same for all seeds and encodings.

    Parameters
    ----------
    config : TrainConfig
    """

    def __init__(self, config: TrainConfig) -> None:
        chosen, count = config.chosen, config.validation
        self._config, self._chosen, self._tokens = config, chosen, chosen.task.kind != "numbers"
        seed = 0 if self._tokens else config.seed
        lengths = np.full(count, config.train_length)
        if config.lengths == "uniform":
            within = chosen.lengths.within(1, config.train_length)
            lengths = within[Draws(Stream(seed, "validation lengths")).integers(len(within), (count,))]
        width = config.model.train_length
        self._data = frame.sequences(chosen, Stream(seed, "validation"), lengths, config.causal, config.dtype, width)

    def metrics(self, model: Transformer, threads: int | None) -> dict[str, Any]:
        """Return `loss`, and for tokens `exact`, the share of right answers. The loss is None if it is not finite."""
        if self._tokens:
            found = token_metrics(model, self._data, self._chosen, threads)
            return {"loss": found["loss"], "exact": found["exact"]}
        config = self._config
        factors = targets.factors(config.train_length, config.target_scale, config.train_length)
        x, y = (array.astype(config.dtype) for array in (self._data.x, self._data.y * factors))
        loss = model.loss(x, y, weights=self._data.weights, threads=threads)
        return {"loss": loss if math.isfinite(loss) else None}


class TextValidation:
    """Validation blocks of a text, evenly spaced over its validation part.

    Parameters
    ----------
    config : TrainConfig
    """

    def __init__(self, config: TrainConfig) -> None:
        tokens = text_parts(config)[1]
        length = min(config.train_length, len(tokens) - 1)
        starts = np.linspace(0, len(tokens) - 1 - length, config.validation).astype(np.int64)
        self._blocks = crops(tokens, starts, length)
        text, before = config.read_text(), len(text_parts(config)[0]) + 1
        sizes = [text.bytes_in(before + start, before + start + length) for start in starts]
        self._size = None if None in sizes else sum(size for size in sizes if size is not None)

    def metrics(self, model: Transformer, threads: int | None) -> dict[str, Any]:
        """Return `loss` in nats for each token and, if the text is known, `bits_per_byte`. Values are None if not
        finite.
        """
        found = text_metrics.summed(
            text_metrics.losses(model, self._blocks.x, self._blocks.y, threads=threads), self._size
        )
        return {name: found[name] for name in ("loss", *(("bits_per_byte",) if self._size else ()))}


def validation_of(config: TrainConfig) -> Validation | TextValidation:
    """Return the validation for these settings."""
    return TextValidation(config) if config.chosen.task.kind == "text" else Validation(config)
