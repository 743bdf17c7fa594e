"""Products that keep NaN and infinity away from queries and keys that do not see each other.

The weight of a hidden key is exactly 0, and so is the gradient of its score. But 0 times NaN is NaN: in a tile where
some queries do not see some keys, a matrix product would spread a NaN to all of them. Where a tile may be affected,
`add_product` processes the entries one by one and leaves out those that are 0.
"""

from fastpe.kernels.attention.inputs import NONE
from fastpe.kernels.attention.tile import add_rows, add_scaled, clear
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.products.float_gemm import ONTO
from fastpe.kernels.products.gemm import gemm
from fastpe.kernels.simd import at, fma, get, lanes, load_first, total, zeros


@inner
def all_finite(x, x_row, n, d, like):
    """Whether n rows of d elements hold neither NaN nor infinity. like: a pointer to elements of the type of sums."""
    none, sums = zeros(like), zeros(like)
    for j in range(n):
        for c in range(0, d, lanes(like)):
            sums = fma(load_first(x, j * x_row + c, d - c), none, sums)
    return total(sums) == 0.0


@inner
def add_nonzero_rows(weights, step, x, x_row, n, d, y):
    """y += the sum of weights[j] x_j over the rows of x whose weight is not 0. The weights are `step`
    elements apart.
    """
    for j in range(n):
        weight = get(weights, j * step)
        if weight != 0.0:  # also true for NaN
            add_scaled(y, weight, at(x, j * x_row), d)


@inner
def add_product(cells, row, col, x, x_row, y, y_row, m, n, depth, mode, careful):
    """y = cells x, added to y with mode ONTO. careful: whether x may hold NaN or infinity in rows whose cells are 0."""
    if not careful:
        gemm(cells, row, col, x, x_row, y, y_row, m, n, depth, mode, y, y_row, y, NONE)
        return
    for i in range(m):
        if not mode & ONTO:
            clear(at(y, i * y_row), n)
        add_nonzero_rows(at(cells, i * row), col, x, x_row, depth, n, at(y, i * y_row))


@inner
def add_weighted_rows(weights, x, x_row, n, d, y):
    """Do the same as `tile.add_rows`. If any row holds NaN or infinity, leave out the rows whose weight is 0."""
    if all_finite(x, x_row, n, d, y):
        add_rows(weights, x, x_row, n, d, y)
    else:
        add_nonzero_rows(weights, 1, x, x_row, n, d, y)
