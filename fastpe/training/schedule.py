"""The learning rate of each update, as a pure function of the settings and the number of the update."""

import math

from fastpe.training.config import TrainConfig


def rate(config: TrainConfig, step: int) -> float:
    """Return the learning rate of the update that follows `step` updates.

    The rate rises in equal steps over the first `warmup` updates, starting above 0. It then stays constant, or falls
    along a line or half a cosine (Loshchilov and Hutter 2017, arXiv:1608.03983). An update after the last one would
    have the rate `min_lr`.

    If the rate falls, each rate after the warm-up depends on the number of epochs (`depends_on_epochs`).

    Examples
    --------
    >>> config = TrainConfig("nope", samples=80, batch=8, epochs=1, lr=1.0, warmup=3, decay="linear", min_lr=0.3)
    >>> [round(rate(config, step), 2) for step in range(10)]
    [0.25, 0.5, 0.75, 1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4]
    """
    if step < config.warmup:
        return config.lr * (step + 1) / (config.warmup + 1)
    if config.decay == "constant":
        return config.lr
    done = min(1.0, (step - config.warmup) / max(1, config.steps - config.warmup))
    left = 1.0 - done if config.decay == "linear" else (1.0 + math.cos(math.pi * done)) / 2.0
    return config.min_lr + left * (config.lr - config.min_lr)


def depends_on_epochs(config: TrainConfig) -> bool:
    """Return whether updates depend on the number of epochs. Only learning rates can, not data or dropout."""
    return config.decay != "constant"
