"""Normalisation of the rows of a matrix.

    layernorm (Ba, Kiros, Hinton 2016)   y = weight (x - mean) rstd + bias,   1 / rstd^2 = mean((x - mean)^2) + eps
    rmsnorm (Zhang, Sennrich 2019)       y = weight x rstd,                   1 / rstd^2 = mean(x^2) + eps

The means are over the elements of a row. rmsnorm is layernorm with 0 in place of the mean (`centred` is False) and
without bias (`biased` is False).

x, y: m rows of n contiguous elements. `stats`: m pairs (mean, rstd), kept for the backward pass.
"""

import math

from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.simd import (
    at,
    fma,
    get,
    keep_first,
    lanes,
    load_first,
    put,
    scalar,
    splat,
    store_first,
    total,
    zeros,
)


@inner
def norm_forward(x, weight, bias, y, stats, m, n, eps, centred, biased):
    """Normalise m rows of n elements. The mean is computed first. Then a second pass over the row computes the
    squared deviations from the mean.
    """
    width, zero = lanes(x), scalar(x, 0.0)
    for i in range(m):
        row, out = at(x, i * n), at(y, i * n)
        mean = zero
        if centred:
            sums = zeros(x)
            for j in range(0, n, width):
                sums = sums + load_first(row, j, n - j)
            mean = total(sums) / scalar(x, n)
        squares = zeros(x)
        for j in range(0, n, width):
            off = keep_first(load_first(row, j, n - j) - splat(mean), n - j, zero)
            squares = fma(off, off, squares)
        rstd = scalar(x, 1.0) / scalar(x, math.sqrt(total(squares) / scalar(x, n) + eps))
        put(stats, 2 * i, mean)
        put(stats, 2 * i + 1, rstd)
        for j in range(0, n, width):
            scaled = (load_first(row, j, n - j) - splat(mean)) * splat(rstd)
            shift = load_first(bias, j, n - j) if biased else zeros(x)
            store_first(out, j, fma(scaled, load_first(weight, j, n - j), shift), n - j)


@inner
def norm_backward(dy, x, weight, stats, dx, dweight, dbias, m, n, residual, centred, biased):
    """Compute the gradients of `norm_forward`. The gradients of weight and bias are added to dweight and dbias. The
    gradient of x is added to dx if `residual`; otherwise it overwrites dx, which may be dy.

    With h = (x - mean) rstd and g = weight dy:  dx = rstd (g - mean(g) - h mean(g h)), without mean(g) if not centred.
    """
    width, zero = lanes(x), scalar(x, 0.0)
    for i in range(m):
        row, grad, out = at(x, i * n), at(dy, i * n), at(dx, i * n)
        mean, rstd = splat(get(stats, 2 * i)), splat(get(stats, 2 * i + 1))
        sum_g, sum_gh = zeros(x), zeros(x)
        for j in range(0, n, width):
            d = load_first(grad, j, n - j)
            h = keep_first((load_first(row, j, n - j) - mean) * rstd, n - j, zero)
            g = d * load_first(weight, j, n - j)
            sum_g = sum_g + g
            sum_gh = fma(g, h, sum_gh)
            store_first(dweight, j, fma(d, h, load_first(dweight, j, n - j)), n - j)
            if biased:
                store_first(dbias, j, load_first(dbias, j, n - j) + d, n - j)
        mean_g = splat(total(sum_g) / scalar(x, n) if centred else zero)
        mean_gh = splat(total(sum_gh) / scalar(x, n))
        for j in range(0, n, width):
            h = (load_first(row, j, n - j) - mean) * rstd
            g = load_first(grad, j, n - j) * load_first(weight, j, n - j)
            d = (g - mean_g - h * mean_gh) * rstd
            if residual:
                d = d + load_first(out, j, n - j)
            store_first(out, j, d, n - j)
