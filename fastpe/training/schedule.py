"""The learning rate of every update: a pure function of the settings and of the number of the update."""

import math

from fastpe.training.config import TrainConfig


def rate(config: TrainConfig, step: int) -> float:
    """The learning rate of an update, of which `step` were made before.

    It rises in equal steps over the first `warmup` updates, of which none has the rate 0, and then stays, or falls to
    `min_lr` along a line or half a cosine (Loshchilov and Hutter 2017, arXiv:1608.03983), which it would reach with the
    update after the last.

    Where the decay is not constant, every rate after the warm-up depends on the number of epochs
    (`depends_on_epochs`).

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
    """Whether updates depend on how many epochs there are to be. Their data, order and dropout never do."""
    return config.decay != "constant"
