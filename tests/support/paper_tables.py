"""The tables of the paper's setting, which several tests of the theory look at."""

import functools

import numpy as np
import pytest
from hypothesis import strategies as st

import fastpe

ENCODINGS = {
    "sinusoidal": ("sinusoidal", {}),
    "wavelet": ("wavelet", {}),
    "raw": ("wavelet", {"normalise": "none"}),
    "legendre": ("legendre", {}),
    "clamp": ("legendre", {"map": "clamp"}),
    "chebyshev": ("chebyshev", {}),
    "fourier": ("fourier", {}),
    "learned": ("learned", {"beyond": "clip"}),
}


@functools.cache
def paper_table(name, length=200):
    """Positions from 0, 64 channels, trained on 50."""
    key, options = ENCODINGS[name]
    sizes = {"dim": 64, "train_length": 50, "dtype": "float64", "reference": True}
    return fastpe.build(key, length, **sizes, **options)["table"]


shapes = st.tuples(st.integers(2, 40), st.integers(1, 9), st.integers(0, 2**32 - 1))


def drawn(shape):
    """Rows whose distances differ by orders of magnitude, two of them nearly equal."""
    n, channels, seed = shape
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((n, channels)) * 10.0 ** rng.integers(-3, 4)
    rows[rng.integers(n)] = rows[0] + 1e-10 * rng.standard_normal(channels)
    return rows + rng.choice([0.0, 1e3])


def near(value, digits=1e-6):
    return pytest.approx(value, rel=digits, abs=0.0)
