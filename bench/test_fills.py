"""Every encoding's fill, C = 64, in cache and past it, beside NumPy's usual way of writing it where there is one.

Beside the figures stands the machine's own rate of writing to memory (`fastpe.speed.bandwidth`). What bounds each fill,
by element and in vector operations (a core does one or two in a cycle; float64 lanes, whatever the table's type):

    ALiBi, T5        3 / lanes for each distance, whose other side, if it is equal, costs only its storing: memory
    KERPLE           (2 + terms) / lanes likewise; terms of a series, 3 (float32) or 7 (float64) near 2^18: memory
    Sandwich         64 / lanes for each distance, once for all heads, and 1 / lanes for each of them: memory, and in
                     float32, or with few heads, arithmetic too
    learned          a copy, and one reading of the parameters to see that they are finite: memory
    axial, grids     a copy from tables that stay in cache, rows of two or three pieces: memory, and the pieces' ends
    sines of grids   as those of runs, or a copy where an axis repeats: memory and arithmetic
    Laplacian, random walks   1 / lanes for each feature of a node
    sinusoidal       float32 rows one apart: 7 / lanes (four products, two conversions, the watch for cancellation)
                     otherwise, and in float64, 28 / lanes for an exact reduction and the polynomials: arithmetic
    Legendre         3 / lanes, about as much for the transpose; tanh of every position is a small part
    Chebyshev        as Legendre
    sph. harmonics   half in their recurrences, half in sines and cosines of every position by NumPy
    lon-lat, 3-D     four or three columns beside zeros: sines and cosines of every position by NumPy, most of the time
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
