"""Every encoding's fill, C = 64, in cache and past it, beside NumPy's usual way of writing it where there is one.

Beside the figures stands the machine's own rate of writing to memory (`fastpe.speed.bandwidth`). What bounds each fill,
by element and in vector operations (a core does one or two in a cycle; float64 lanes, whatever the table's type):

    ALiBi            3 or 4 / lanes: memory
    learned          a copy, and one reading of the parameters to see that they are finite: memory
    sinusoidal       float32 rows one apart: 7 / lanes (four products, two conversions, the watch for cancellation)
                     otherwise, and in float64, 28 / lanes for an exact reduction and the polynomials: arithmetic
    Legendre         3 / lanes, about as much for the transpose; tanh of every position is a small part
    wavelet          per row and coarse level 2 L^2 / lanes (L taps), about 10 / lanes for each entry that is not zero
"""

import pytest

from fastpe.benchmarks import fills
from fastpe.benchmarks.numpy_ways import numpy_tables

LENGTHS, DIM = (4096, 2**18), 64


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", fills.names(min(LENGTHS), DIM))
@pytest.mark.benchmark(group="fill")
def test_fill_fastpe(measure, name, dtype, length):
    call, result = fills.fill_call("fastpe", name, length, DIM, dtype)
    fills.check_fill("fastpe", name, length, DIM, result())
    measure(call, bytes_moved=result().nbytes)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", numpy_tables())
@pytest.mark.benchmark(group="fill")
def test_fill_numpy(measure, name, length):
    call, result = fills.fill_call("numpy", name, length, DIM)
    fills.check_fill("numpy", name, length, DIM, result())
    measure(call, bytes_moved=result().nbytes)
