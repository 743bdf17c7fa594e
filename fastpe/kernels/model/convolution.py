"""A depthwise convolution over a sequence, whose result is added to the sequence: every channel has separate taps.

    z[i] = x[i] + sum_k taps[k] x[i + k - before]        before = K // 2, or K - 1 in causal models; zero padding

x, z: n rows of c contiguous elements; taps (K, c). The forward pass takes 2 n c K FLOP, the backward pass twice as
many; the cache is the bottleneck. (Baevski et al. 2020, "wav2vec 2.0", has such a relative position embedding.)
"""

from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.simd import at, fma, lanes, load_first, store_first, zeros


@inner
def _overlap(k, count, causal, n):
    """For tap k, return how many rows after row i it reads (`ahead`), and the range of rows i for which row i + ahead
    exists.
    """
    ahead = k - (count - 1 if causal else count // 2)
    return ahead, max(0, -ahead), min(n, n - ahead)


@inner
def convolution_forward(x, taps, count, causal, z, before, n, c):
    """Add the convolution of x with the taps to x, and write the result to z, for the rows from `before` on. x has n
    rows.
    """
    new = at(x, before * c)
    for j in range(0, (n - before) * c, lanes(x)):
        store_first(z, j, load_first(new, j, (n - before) * c - j), (n - before) * c - j)
    for k in range(count):
        ahead, first, last = _overlap(k, count, causal, n)
        for i in range(max(first, before), last):
            source, target = at(x, (i + ahead) * c), at(z, (i - before) * c)
            for j in range(0, c, lanes(x)):
                left = c - j
                row = fma(load_first(taps, k * c + j, left), load_first(source, j, left), load_first(target, j, left))
                store_first(target, j, row, left)


@inner
def convolution_backward(dz, x, taps, count, causal, dx, dtaps, wants_taps, n, c):
    """Write the gradient of x to dx; add the gradient of the taps to dtaps."""
    for j in range(0, n * c, lanes(x)):
        store_first(dx, j, load_first(dz, j, n * c - j), n * c - j)
    for k in range(count):
        ahead, first, last = _overlap(k, count, causal, n)
        for j in range(0, c, lanes(x)):
            left, total = c - j, zeros(x)
            tap = load_first(taps, k * c + j, left)
            for i in range(first, last):
                d, there = load_first(dz, i * c + j, left), (i + ahead) * c + j
                total = fma(d, load_first(x, there, left), total)
                store_first(dx, there, fma(tap, d, load_first(dx, there, left)), left)
            if wants_taps:
                store_first(dtaps, k * c + j, load_first(dtaps, k * c + j, left) + total, left)
