"""The setting that the paper's claims share: width, lengths, slope and tables."""

from functools import cache
from typing import Any

import numpy as np

import fastpe
from fastpe.model.config import ModelConfig
from fastpe.theory import gaps, lags
from fastpe.theory.pairs import Array
from fastpe.theory.value import Value

WIDTH, TRAINED = 64, 50
TESTED = (100, 200)
SLOPE = 0.1 / TRAINED
"""The slope of ALiBi in the paper, section 7."""
MANY_LAGS = 10**6


@cache
def table(name: str, length: int = 200, train_length: int = TRAINED, **options: Any) -> Array:
    """Return the read-only table of an encoding, (length, 64) float64, for positions from 0.

    >>> table("sinusoidal", 3)[0, :2].tolist()
    [0.0, 1.0]
    """
    sizes: dict[str, Any] = {"dim": WIDTH, "train_length": train_length, "dtype": "float64"}
    found: Array = fastpe.build(name, length, **sizes, **options)["table"]
    found.setflags(write=False)
    return found


def slots(name: str, length: int = TRAINED, **options: Any) -> dict[str, Array]:
    """Return the float64 slots of an encoding for a training length of 50. The slope of ALiBi is that of the paper.

    >>> sorted(slots("shaw"))
    ['rel_key', 'rel_value']
    """
    settings: dict[str, Any] = {"dim": WIDTH, "train_length": TRAINED, "dtype": "float64"} | options
    if name == "alibi" and not {"slope", "alpha0"} & set(settings):
        settings["slope"] = SLOPE
    return fastpe.build(name, length, **settings)


def known(value: Value | None) -> Value:
    """Return `value`, which is never None in the setting of the paper.

    >>> from fastpe.theory.value import exact
    >>> known(exact(1.0, "one")).value
    1.0
    """
    assert value is not None
    return value


def falling(length: int, slope: float = SLOPE) -> Array:
    """Return the biases of ALiBi at the distances 0 .. length - 1, (length,).

    >>> falling(3, 0.5).tolist()
    [-0.0, -0.5, -1.0]
    """
    return -slope * np.arange(float(length))


@cache
def nearest_lag(lag: int = MANY_LAGS) -> Value:
    """Return the least distance between sinusoidal rows that are at most `lag` positions apart.

    >>> round(nearest_lag(9).value, 6)
    1.471848
    """
    return lags.scan_lags(WIDTH, lag)["nearest"]


@cache
def learned_numbers(name: str) -> Value:
    """Count the parameters of an encoding in the model of the paper.

    >>> learned_numbers("alibi").value
    0.0
    """
    return gaps.parameter_counts(ModelConfig(name))["slot"]
