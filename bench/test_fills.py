"""Every encoding's fill, C = 64, in cache and past it, beside NumPy's usual way of writing it where there is one.

Beside the figures stands the machine's own rate of writing to memory (`fastpe.speed.bandwidth`). What bounds each fill,
by element and in vector operations (a core does one or two in a cycle; float64 lanes, whatever the table's type):

    ALiBi, learned   3 or 4 / lanes: memory
    sinusoidal       float32 rows one apart: 9 / lanes (four products, two conversions, the watch for cancellation)
                     otherwise, and in float64, 30 / lanes for an exact reduction and the polynomials: arithmetic
    Legendre         4 / lanes, about as much for the transpose, and tanh or log of every position by NumPy
    wavelet          per row and level 2 L^2 / lanes (L taps), and about 25 / lanes for each column: arithmetic
"""

import numpy as np
import pytest
from peers import HEADS, learned_rows, numpy_tables

import fastpe

LENGTHS, DIM = (4096, 2**18), 64


def keywords(name, length):
    params = {"params": {"table": learned_rows(length, DIM)}} if name == "learned" else {}
    return {"dim": DIM, "heads": HEADS, **params}


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", fastpe.list_encodings())
@pytest.mark.benchmark(group="fill")
def test_fill_fastpe(measure, name, dtype, length):
    small = {**keywords(name, 100), "dtype": dtype}
    expected = fastpe.build(name, 100, **small, reference=True)
    for slot, array in fastpe.build(name, 100, **small).items():
        np.testing.assert_allclose(array, expected[slot], atol=1e-5)
    large = {**keywords(name, length), "dtype": dtype}
    out = fastpe.build(name, length, **large)
    measure(
        lambda: fastpe.build(name, length, **large, out=out), bytes_moved=sum(array.nbytes for array in out.values())
    )


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", numpy_tables())
@pytest.mark.benchmark(group="fill")
def test_fill_numpy(measure, name, length):
    write = numpy_tables()[name]
    (built,) = fastpe.build(name, 100, **keywords(name, 100)).values()
    # interpolating PyWavelets' samples of a wavelet is not exact
    np.testing.assert_allclose(write(100, DIM), built, atol=2e-2 if name == "wavelet" else 1e-5)
    measure(write, length, DIM, bytes_moved=write(length, DIM).nbytes)
