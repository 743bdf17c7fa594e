"""Geometrically spaced frequencies, to more than float64: half of what keeps the phase at large positions.

The other half is `fastpe.kernels.trig`, which takes a frequency as an unevaluated sum of two float64.
"""

from decimal import Decimal, localcontext
from functools import lru_cache

import numpy as np

from fastpe.kernels.simd import whole_vectors


@lru_cache(maxsize=64)
def frequencies(base: float, dim: int, count: int | None = None) -> np.ndarray:
    """base**(-2t/dim), t = 0 .. count-1, as (2, .) float64: rounded, and what rounding lost.

    `count` is ceil(dim/2) where it is not given. Columns are filled up with zeros to whole vectors.
    """
    count = (dim + 1) // 2 if count is None else count
    table = np.zeros((2, whole_vectors(count, np.float64)))
    with localcontext() as context:
        context.prec = 50
        context.Emin, context.Emax = -999999, 999999
        for t in range(count):
            exact = Decimal(base) ** (Decimal(-2 * t) / Decimal(dim))
            table[:, t] = float(exact), float(exact - Decimal(float(exact)))
    table.flags.writeable = False
    return table
