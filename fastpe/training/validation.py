"""The sequences that a training is validated on after every epoch: of its own lengths, and not among its own."""

import math
from typing import Any

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.random import Stream
from fastpe.model.transformer import Transformer
from fastpe.tasks import frame, targets
from fastpe.training.config import TrainConfig
from fastpe.training.evaluation import token_metrics


class Validation:
    """What a training is validated on. Of tokens it is the same for all seeds and encodings.

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
        """`loss`, and of tokens `exact`, the share of answers that are right; a loss that is not finite is None."""
        if self._tokens:
            found = token_metrics(model, self._data, self._chosen, threads)
            return {"loss": found["loss"], "exact": found["exact"]}
        config = self._config
        factors = targets.factors(config.train_length, config.target_scale, config.train_length)
        x, y = (array.astype(config.dtype) for array in (self._data.x, self._data.y * factors))
        loss = model.loss(x, y, weights=self._data.weights, threads=threads)
        return {"loss": loss if math.isfinite(loss) else None}
