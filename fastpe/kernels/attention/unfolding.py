"""Arrays of slots before they are read: whether their numbers are finite, and those over clipped offsets unfolded."""

from fastpe.kernels._jit import entry, inner
from fastpe.kernels.simd import lanes, load_first, pointer, scalar, splat, total, zeros


@inner
def are_finite(x):
    """Whether all elements of an array of one axis are finite."""
    start, count = pointer(x), x.size
    none, sums = splat(scalar(start, 0.0)), zeros(start)
    for place in range(0, count, lanes(start)):
        sums = sums + load_first(start, place, count - place) * none  # 0, or no number
    return total(sums) == 0.0


@entry(label="whether numbers are finite")
def finite(x):
    """`are_finite`, called from Python."""
    return are_finite(x)


@inner
def unfold_into(x, heads, count, first, n, m, unfolded):
    """Fill an array with an entry for each offset from -(n - 1) - first to m - 1 - first.

    x: (L, H, K) flat, over the clipped offsets -K // 2 .. K // 2. first: (B or 1,), the position of the first query.
    unfolded: (L, H, N + M - 1) flat, or with a sample of its own for each of `first`, which reads x's own or its only
    one.
    """
    met, leads = n + m - 1, x.size // (heads * count)
    for lead in range(unfolded.size // (heads * met)):
        start = count // 2 - (n - 1) - first[lead % first.size]  # the row of the first entry, were nothing clipped
        low = min(max(-start, 0), met)
        high = min(max(count - start, low), met)
        for head in range(heads):
            source, target = (lead % leads * heads + head) * count, (lead * heads + head) * met
            for place in range(low):
                unfolded[target + place] = x[source]
            for place in range(low, high):
                unfolded[target + place] = x[source + start + place]
            for place in range(high, met):
                unfolded[target + place] = x[source + count - 1]


@entry(label="arrays over offsets")
def unfold(x, heads, count, first, n, m, unfolded):
    """`unfold_into`, called from Python."""
    unfold_into(x, heads, count, first, n, m, unfolded)
