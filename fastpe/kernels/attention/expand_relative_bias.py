"""Preparation of slot arrays: a check for finite numbers, and the expansion of arrays over clipped offsets."""

from fastpe.kernels.compile.decorators import entry, inner
from fastpe.kernels.simd import at, get, lanes, load, load_first, pointer, scalar, splat, store_first, total, zeros


@inner
def are_finite(x):
    """Whether all elements of a one-dimensional array are finite."""
    start, count = pointer(x), x.size
    none, step = splat(scalar(start, 0.0)), lanes(start)
    whole = count - count % (4 * step)
    # four independent sums: each addition to a sum waits for the previous one
    sums, a, b, c = zeros(start), zeros(start), zeros(start), zeros(start)
    for place in range(0, whole, 4 * step):
        sums = sums + load(start, place) * none  # 0, or NaN
        a = a + load(start, place + step) * none
        b = b + load(start, place + 2 * step) * none
        c = c + load(start, place + 3 * step) * none
    for place in range(whole, count, step):
        sums = sums + load_first(start, place, count - place) * none
    return total((sums + a) + (b + c)) == 0.0


@inner
def _repeat(x, target, count):
    for place in range(0, count, lanes(target)):
        store_first(target, place, splat(x), count - place)


@entry(label="arrays over offsets")
def expand_relative_bias(x, heads, count, first, n, m, unfolded):
    """Fill an array with an entry for each offset from -(n - 1) - first to m - 1 - first.

    x: (L, H, K) flattened, over the clipped offsets -(K // 2) .. K // 2. first: (B or 1,), the position of the first
    query. unfolded: (S, H, N + M - 1) flattened, where S is L or the size of `first`. Sample s of `unfolded` reads
    sample s of x and of `first`. If x or `first` has only one sample, all samples of `unfolded` read this one.
    """
    met, leads = n + m - 1, x.size // (heads * count)
    for lead in range(unfolded.size // (heads * met)):
        start = count // 2 - (n - 1) - first[lead % first.size]  # the row of the first entry without clipping
        low = min(max(-start, 0), met)
        high = min(max(count - start, low), met)
        for head in range(heads):
            source = at(pointer(x), (lead % leads * heads + head) * count)
            target = at(pointer(unfolded), (lead * heads + head) * met)
            _repeat(get(source, 0), target, low)
            for place in range(low, high, lanes(source)):
                store_first(target, place, load_first(source, start + place, high - place), high - place)
            _repeat(get(source, count - 1), at(target, high), met - high)
