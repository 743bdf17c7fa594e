"""The fill of every encoding with C = 64, in cache and beyond it, and the usual NumPy code if there is any.

Compare the figures with the machine's rate of writing to memory (`fastpe.doctor.probe.bandwidth`). The table shows the
cost of each fill in vector operations per element, and what limits the fill: memory or arithmetic. `lanes` is the
number of float64 values in a register, for tables of any dtype. A core does one or two vector operations per cycle.

    ALiBi, T5        3 / lanes for each distance; equal values on the other side are only stored. Limit: memory
    KERPLE           (2 + terms) / lanes for each distance. The series has 3 terms (float32) or 7 (float64) near 2^18.
                     Limit: memory
    Sandwich         64 / lanes for each distance, once for all heads, and 1 / lanes for each head. Limit: memory;
                     in float32 or with few heads also arithmetic
    learned          a copy; the parameters are read once more to check that they are finite. Limit: memory
    grids            axial, factorised, learned rows and columns, sines of each side: a copy, or the sum of two rows
                     that stay in cache. Limit: memory, and ends of pieces that lie within a vector
    learned_2d       on its own grid, a copy that reads as much as it writes; resized, 4 / lanes and as many loads
    Laplacian        1 / lanes for each of 8 features of a node. Limit: arithmetic
    random walks     on a path, a copy of a few rows. Limit: memory
    sinusoidal       7 / lanes for float32 rows of consecutive positions (four products, two conversions, a check for
                     cancellation); otherwise 28 / lanes for an exact reduction and polynomials. Limit: arithmetic
    Fourier          one coordinate: the same as sinusoidal; several: 28 / lanes, and 12 / lanes for each coordinate.
                     Limit: arithmetic
    angles           11 / lanes for consecutive positions, or for the sum of both axes of a raster; a copy for one axis
                     of a raster; otherwise 17 / lanes. Limit: arithmetic
    Legendre         3 / lanes, and 3 / lanes for rounding and the transpose, which writes past the caches
    Chebyshev        1 / lanes, and the same rounding and transpose
    sph. harmonics   3 / lanes, and the same rounding and transpose
    lon-lat, 3-D     two sines and two cosines for each position; most entries are zeros. Limit: memory
    wavelet          2 L^2 / lanes for each row and coarse level (L taps), and about 10 / lanes for each nonzero entry
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
