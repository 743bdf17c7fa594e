"""What the tests of benchmarks share."""

import importlib.util

import pytest

TORCH, TRANSFORMERS = (importlib.util.find_spec(name) is not None for name in ("torch", "transformers"))
needs_torch = pytest.mark.skipif(not TORCH, reason="PyTorch is a peer: pip install -e '.[peers]'")


def silent(text):
    """Progress that nobody reads."""


def numbers_in(value):
    """All numbers in lists and dicts that hold each other."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [number for item in value for number in numbers_in(item)]
    return [value] if isinstance(value, int | float) else []
