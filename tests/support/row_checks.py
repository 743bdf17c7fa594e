"""What attention must hold whatever is made of its rows before they meet: by threads, strides, half precision."""

import numpy as np
import pytest

import fastpe
from fastpe import reference
from fastpe.kernels.threads import team as threads_of_kernels


def assert_threads_do_not_matter(arguments, monkeypatch):
    """Outputs and gradients, bit by bit."""
    found = []
    for threads in (1, 2, 3, 8):
        monkeypatch.setattr(threads_of_kernels, "default_threads", lambda threads=threads: threads)
        out, pull = fastpe.attention_vjp(**arguments, causal=True)
        found.append({"out": out, **pull(out)})
    for other in found[1:]:
        for name, array in found[0].items():
            assert array.tobytes() == other[name].tobytes(), name


def assert_strides_do_not_matter(arguments, kind):
    """kind: lays out an array in another way."""
    expected, pull = fastpe.attention_vjp(**arguments)
    out, back = fastpe.attention_vjp(**{name: kind(array) for name, array in arguments.items()})
    np.testing.assert_array_equal(out, expected)
    expected = pull(out)
    for name, gradient in back(kind(out)).items():
        np.testing.assert_array_equal(gradient, expected[name])


def assert_halves_are_computed_in_float32(slot, make):
    """make(n): arguments of n queries, of which all but angles are then of half precision."""
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    for n, dtype in ((1, np.float16), (1, bfloat16), (20, np.float16), (90, bfloat16)):
        given = {name: x if name == "angles" else x.astype(dtype) for name, x in make(n).items()}
        exact = reference.attention(**{name: x.astype(np.float64) for name, x in given.items()})
        out, pull = fastpe.attention_vjp(**given)
        assert {out.dtype, pull(out)[slot].dtype} == {np.dtype(dtype)}
        for found in (out, fastpe.attention(**given), fastpe.attention(**given)):
            np.testing.assert_allclose(found.astype(float), exact, atol=0.03)
