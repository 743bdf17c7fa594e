"""Geometrically spaced frequencies in more than float64 precision, for an exact phase at large positions.

`fastpe.kernels.fills.trig` uses them, each as an unevaluated sum of two float64.
"""

from decimal import Decimal, localcontext
from functools import lru_cache
from itertools import accumulate, repeat
from operator import mul
from typing import Any

import numpy as np

from fastpe.kernels.simd import whole_vectors


@lru_cache(maxsize=64)
def frequencies(base: float, dim: int, count: int | None = None) -> np.ndarray:
    """base**(-2t/dim), t = 0 .. count-1, as (2, .) float64: rounded value and rounding error.

    `count` defaults to ceil(dim/2). Columns are padded with zeros to whole vectors.
    """
    count = (dim + 1) // 2 if count is None else count
    table = np.zeros((2, whole_vectors(count, np.float64)))
    with localcontext() as context:
        context.prec = 50
        context.Emin, context.Emax = -999999, 999999
        ratio = Decimal(base) ** (Decimal(-2) / Decimal(dim))
        # products, because a power takes a hundred times as long; each has an error below 1 in 10^49
        exact = list(accumulate(repeat(ratio, count - 1), mul, initial=Decimal(1)))[:count]
        high = [float(value) for value in exact]
        table[0, :count] = high
        table[1, :count] = [float(value - Decimal(first)) for value, first in zip(exact, high, strict=True)]
    table.flags.writeable = False
    return table


def exact_product(x: Any, y: Any) -> tuple[Any, Any]:
    """x * y as a sum of two float64: rounded value and rounding error (Dekker 1971)."""
    product = x * y
    (x1, x2), (y1, y2) = _halves(x), _halves(y)
    return product, ((x1 * y1 - product) + x1 * y2 + x2 * y1) + x2 * y2


def _halves(x: Any) -> tuple[Any, Any]:
    """x as a sum of two numbers of 26 bits (Veltkamp's splitting), whose products are exact."""
    shifted = 134217729.0 * x
    large = shifted - (shifted - x)
    return large, x - large
