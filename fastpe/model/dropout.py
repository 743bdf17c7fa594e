"""Dropout in a training step: the parameters that kernels take, and the same dropout as arrays of factors."""

from typing import Any

import numpy as np

from fastpe import reference
from fastpe.base import validation
from fastpe.base.random import Stream
from fastpe.kernels.rows.dropout import Dropout, places_of
from fastpe.model.config import ModelConfig

Array = np.ndarray[Any, Any]

_HALF = 2**32


def of_step(config: ModelConfig, step: int) -> Dropout | None:
    """Return the parameters of dropout for kernels in this step, counted from 0; None without dropout."""
    if not config.dropout:
        return None
    step = validation.seed("draw", step)
    key = int(Stream(config.seed, "dropout").words(1)[0])
    words = key % _HALF, key // _HALF, step % _HALF, step // _HALF
    threshold = round(config.dropout * _HALF)
    return Dropout(*words, threshold, 1.0 / (1.0 - config.dropout), places_of(config.layers, config.heads))


def factors(config: ModelConfig, batch: int, length: int, step: int) -> dict[str, Array]:
    """Return the factors of dropout for `reference.model_loss_and_grads`: see `Transformer.dropout_factors`."""
    given = of_step(config, step)
    size = batch * length * (config.width * (1 + 2 * config.layers) + config.layers * config.heads * length)
    validation.room(f"factors of batch={batch}, length={length}", size * 8, "need")

    def of_place(place: int, columns: int) -> Array:
        if given is None:
            return np.ones((batch, length, columns))
        each = (
            reference.dropout_factors(
                (length, columns), config.dropout, key=given[:2], counter=(sequence * given.places + place, *given[2:4])
            )
            for sequence in range(batch)
        )
        return np.stack(list(each))

    found = {"embed": of_place(0, config.width)}
    for layer in range(config.layers):
        first = 1 + layer * (2 + config.heads)
        for number, name in enumerate(("attention", "feedforward")):
            found[f"layers.{layer}.{name}"] = of_place(first + number, config.width)
        weights = [of_place(first + 2 + head, length) for head in range(config.heads)]
        found[f"layers.{layer}.attention.weights"] = np.stack(weights, axis=1)
    return found
