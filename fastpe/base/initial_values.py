"""Initial values of a model's weights, by the usual rules of random initialisation."""

import math
from typing import Any

import numpy as np

from fastpe.base.random import Stream

Array = np.ndarray[Any, Any]


def initial_values(rule: str, stream: Stream, kind: str, shape: tuple[int, ...], fans: tuple[int, int]) -> Array:
    """Draw initial values of a weight or a bias, float64.

    ================  =================================================  =========
    rule              weights                                            biases
    ================  =================================================  =========
    `uniform`         uniform in ±1/sqrt(fan in)                         the same
    `xavier_uniform`  uniform in ±sqrt(6 / (fan in + fan out))           zero
    `xavier_normal`   normal, variance 2 / (fan in + fan out)            zero
    `fan_in_normal`   normal, variance 1 / fan in                        zero
    `small_normal`    normal, standard deviation 0.02                    zero
    ================  =================================================  =========

    Parameters
    ----------
    rule : str
        A row of the table above (Xavier initialisation: Glorot and Bengio 2010, eqs. 12 and 16).
    stream : Stream
        Source of the random numbers.
    kind : {"weight", "bias"}
        What the array is.
    shape : tuple of int
        Shape of the array.
    fans : (int, int)
        Fan in and fan out: the numbers of rows and columns of the matrix. For a bias, of the matrix that it belongs to.

    Returns
    -------
    array of the given shape, float64

    Raises
    ------
    ValueError
        If there is no such rule.

    Examples
    --------
    >>> initial_values("xavier_normal", Stream(0, "init", "x"), "bias", (3,), (2, 3)).tolist()
    [0.0, 0.0, 0.0]
    """
    fan_in, fan_out = fans
    if rule == "uniform":
        # the order of these operations is fixed, so that a seed always gives the same bits
        return (2.0 * stream.uniform(shape) - 1.0) / math.sqrt(fan_in)
    if kind == "bias":
        return np.zeros(shape)
    if rule == "xavier_uniform":
        return math.sqrt(6.0 / (fan_in + fan_out)) * (2.0 * stream.uniform(shape) - 1.0)
    deviation = {
        "xavier_normal": math.sqrt(2.0 / (fan_in + fan_out)),
        "fan_in_normal": 1.0 / math.sqrt(fan_in),
        "small_normal": 0.02,
    }
    if rule not in deviation:
        raise ValueError(f"rule must be one of uniform, xavier_uniform, {', '.join(deviation)}, not {rule!r}")
    return deviation[rule] * stream.normal(shape)
