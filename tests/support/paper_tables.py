"""The tables of the paper's setting, which several tests of the theory look at."""

import functools

import pytest

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


def near(value, digits=1e-6):
    return pytest.approx(value, rel=digits, abs=0.0)
