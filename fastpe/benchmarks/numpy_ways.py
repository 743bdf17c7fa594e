"""Tables and biases in usual NumPy code, for comparison with the fills."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pywt

from fastpe.encodings.build import init
from fastpe.encodings.input.wavelet import columns
from fastpe.encodings.registry import parse
from fastpe.encodings.slots import make_spec

Array = np.ndarray[Any, Any]

HEADS = 32
"""Number of heads of a bias (heads, 2 N - 1). With 32 heads it is as large as a table of 64 columns."""


def numpy_tables() -> dict[str, Callable[[int, int], Array]]:
    """Functions (length, width) that return the slot of an encoding in float32, in usual NumPy code."""

    def sinusoidal(length: int, dim: int) -> Array:
        angles = np.arange(length)[:, None] * 10000.0 ** (-np.arange(0, dim, 2) / dim)
        table = np.empty((length, dim), np.float32)
        table[:, 0::2], table[:, 1::2] = np.sin(angles), np.cos(angles)
        return table

    def legendre(length: int, dim: int) -> Array:
        return np.polynomial.legendre.legvander(np.tanh(np.arange(length) / length), dim - 1).astype(np.float32)

    def wavelet(length: int, dim: int) -> Array:
        spec = make_spec(length, dim=dim)
        (part,) = parse("wavelet")
        chosen = columns(spec, **part.options)  # which functions to use, chosen by fastpe's code
        phi, psi, grid = pywt.Wavelet("db4").wavefun(level=10)
        positions, table = np.arange(length), np.empty((length, dim))
        for c, (kind, level, shift) in enumerate(zip(*chosen, strict=True)):
            values = (np.zeros_like(grid), phi, psi)[kind]
            table[:, c] = np.interp(positions / 2.0**level - shift, grid, values, 0.0, 0.0) * 2.0 ** (-level / 2)
        norm = np.linalg.norm(table, axis=1, keepdims=True)
        return np.divide(table, norm, where=norm > 0, out=table).astype(np.float32)

    def alibi(length: int, dim: int) -> Array:
        slopes = 2.0 ** (-8 * np.arange(1, HEADS + 1) / HEADS)
        return (-slopes[:, None] * np.abs(np.arange(1 - length, length))).astype(np.float32)

    def learned(length: int, dim: int) -> Array:
        return learned_rows(length, dim)[np.arange(length)]

    def kerple_log(length: int, dim: int) -> Array:
        r1, r2 = (np.maximum(each, 0.01)[:, None] for each in _of_heads("kerple_log", length, dim).values())
        return (-r1 * np.log1p(r2 * np.abs(np.arange(1.0 - length, length)))).astype(np.float32)

    def kerple_power(length: int, dim: int) -> Array:
        a, p = (np.maximum(each, 0.01)[:, None] for each in _of_heads("kerple_power", length, dim).values())
        return (-a * np.abs(np.arange(1.0 - length, length)) ** p).astype(np.float32)

    def t5(length: int, dim: int) -> Array:
        offset = np.arange(1 - length, length)
        far = np.log(np.maximum(np.abs(offset), 8) / 8) / np.log(128 / 8) * 8
        found = np.where(np.abs(offset) < 8, np.abs(offset), np.minimum(8 + far.round(12).astype(int), 15))
        return _of_heads("t5", length, dim)["table"].T[:, found + 16 * (offset > 0)]

    def sandwich(length: int, dim: int) -> Array:
        angles = np.abs(np.arange(1 - length, length))[:, None] * 10000.0 ** (-np.arange(64) / 64)
        divisors = 8 * np.arange(1, HEADS + 1) / HEADS
        return (np.cos(angles).sum(axis=1) / divisors[:, None]).astype(np.float32)

    ways = sinusoidal, legendre, wavelet, alibi, learned, kerple_log, kerple_power, t5, sandwich
    return {way.__name__: way for way in ways}


@lru_cache(maxsize=4)
def _of_heads(name: str, length: int, dim: int) -> dict[str, Array]:
    """The initial parameters of a bias, in float64; a table, which is only copied, keeps float32."""
    values = init(name, dim=dim, heads=HEADS, train_length=length)
    return {key: value if key == "table" else value.astype(np.float64) for key, value in values.items()}


@lru_cache(maxsize=2)
def learned_rows(length: int, dim: int) -> Array:
    """The parameters of a learned table."""
    rows: Array = init("learned", dim=dim, train_length=length)["table"]
    return rows
