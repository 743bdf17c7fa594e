"""Values at and past the limits of options and sizes."""

import math

import numpy as np

from fastpe.base.option import Option

NUMBERS = (1e300, 1e154, 1e30, 2**62, 2**31, 1e10, 1e-154, 5e-324, 0.0, -0.0, -1e300, math.nan, math.inf, 10**400)
SIDES = ((), (0,), (4,), (2, 2, 2), (2**62, 1), (2**62, 2**62), (-2, -2), (1,) * 12, (True,), ("a",), 3, "ab")
SEVERAL = ((), (1.0,), (1e300,) * 6, (5e-324,) * 6, (-0.0,) * 6, (math.inf,) * 6, (math.nan,), ("a",), 3, "ab")


def extremes(option: Option) -> tuple:
    if option.kind is tuple:
        return SIDES if option.item is int else SEVERAL
    return NUMBERS if option.kind in (int, float) else ("", "x", None, 3)


SIZES = {
    "length": (0, -1, 1, 2, 300, 2**27 + 1, 10**30, 1.5, True, "a", None),
    "dim": (0, -3, 1, 7, 255, 10**12, 10**30, 2.5, "a", None),
    "heads": (0, -1, 5, 7, 24, 10**12, 1.0, None),
    "train_length": (0, -1, 1, 2, 2**20, 2**27, 2**27 + 1, 10**30, 2.5, "a"),
    "causal": (1, None, "yes", np.True_),
    "start": (2.0**27, -(2.0**27), 2.0**27 + 1, 2.0**26 + 0.5, 0.1, -0.0, 1e-300, 1e300, math.inf, math.nan, 10**400),
    "dtype": ("float32", "float16", ">f8", None, int, np.longdouble, "a"),
    "seed": (0, 1, 2**63, 10**30, -1, 1.5, None, "a"),
    "positions": (
        [], [[]], 3, "a", [0, 1], [[0.0]], [math.nan], [math.inf], [2.0**27], [2.0**27 + 1], [1j], [True], [None],
        np.zeros((3, 0)), np.zeros((1, 1, 1)), np.full((2, 1, 2), 1e300), np.arange(4, dtype=np.uint8),
    ),
}  # fmt: skip
