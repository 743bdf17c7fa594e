"""Calls that are made again: without a record of any, compared to the bit."""

import numpy as np
import pytest

import fastpe
from fastpe.functional import again, attention, seen

DTYPES = ("float32", "float64", "float16", "bfloat16")


def dtype_of(name):
    return np.dtype(pytest.importorskip("ml_dtypes").bfloat16 if name == "bfloat16" else name)


def bits(found):
    """Of an output, or of output and lse, what can be compared to the bit."""
    return [x.view(f"u{x.itemsize}") for x in (found if isinstance(found, tuple) else [found])]


def only_again(*arguments, **given):
    """Attention that must go the shortest way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seen, "attend", None)
        patch.setattr(attention, "checked", None)
        return fastpe.attention(*arguments, **given)


def in_dtype(given, dtype):
    """Slots in the dtype that kernels compute with."""
    wide = np.float64 if dtype == np.float64 else np.float32
    floats = (name for name, x in given.items() if isinstance(x, np.ndarray) and x.dtype.kind == "f")
    return given | {name: given[name].astype(wide) for name in floats}


def reference_of(q, k, v, given):
    seen._kept.clear()
    again._kept.clear()
    return fastpe.attention(q, k, v, **given)
