"""What bands of a call of few queries that is made again (`again`) are to kernels, and how what they give is merged.

A band is six words after the others of a call: the addresses of its places of queries, of those of keys and of its
spans, and how many samples each has. What `functional.bands` and `functional.merged` make of it in Python is made here.
"""

import math

import numpy as np

from fastpe.kernels._jit import allocating, entry, inlined, inner
from fastpe.kernels.at_address import flat_at
from fastpe.kernels.attention.cells import TILE_KEYS
from fastpe.kernels.attention.turns import scaled_of
from fastpe.kernels.attention.unfolding import are_finite
from fastpe.kernels.rotate import rotate_rows

OF_A_BAND = 6
_LOG_2 = math.log(2.0)


@allocating
def band_at(words, sizes):
    """Places of queries and of keys, and spans, flat."""
    counts = np.array([words[3] * sizes.queries, words[4] * sizes.keys, words[5] * 2 * sizes.queries])
    return (
        flat_at(words, counts, 0, np.float64),
        flat_at(words, counts, 1, np.float64),
        flat_at(words, counts, 2, np.int64),
    )


@inner
def _span(spans, b, i, n, m):
    """The keys of a query, of spans that have samples of their own or not."""
    place = (b * n + i) * 2 % spans.size
    return min(max(spans[place], np.int64(0)), m), min(max(spans[place + 1], np.int64(0)), m)


@allocating
def are_bands(words, sizes):
    """Whether places are finite, and no key of a query is in two bands."""
    n, m, count = sizes.queries, sizes.keys, words.size // OF_A_BAND
    for one in range(count):
        places, keys, spans = band_at(words[one * OF_A_BAND :], sizes)
        if not (are_finite(places) and are_finite(keys)):
            return False
        for other in range(one):
            others = band_at(words[other * OF_A_BAND :], sizes)[2]
            for b in range(sizes.samples):
                for i in range(n):
                    (first, last), (low, high) = _span(spans, b, i, n, m), _span(others, b, i, n, m)
                    if max(first, low) < min(last, high):
                        return False
    return True


@allocating
def spans_of_band(spans, own, sizes):
    """The keys that every query sees of a band's, (B, N, 2), the call having `own` spans or none; and the first and the
    last of all, in whole tiles."""
    b, n, m = sizes.samples, sizes.queries, sizes.keys
    found, low, high = np.empty((b, n, 2), np.int64), m, np.int64(0)
    for sample in range(b):
        for i in range(n):
            first, last = _span(spans, sample, i, n, m)
            if own.size:
                more = _span(own, sample, i, n, m)
                first, last = max(first, more[0]), min(last, more[1])
            found[sample, i, 0], found[sample, i, 1] = first, last
            if first < last:
                low, high = min(low, first), max(high, last)
    return found, low // TILE_KEYS * TILE_KEYS, min((high + TILE_KEYS - 1) // TILE_KEYS * TILE_KEYS, m)


@allocating
def rows_of_band(sizes, given, band, low, high, q, k):
    """Queries as a band turns them, and scaled, and keys, of which those from `low` to `high` are read; before both
    whether attention takes the scale."""
    places, keys, _ = band
    n, m, d, half = sizes.queries, sizes.keys, sizes.width, sizes.half > 0
    qr, kr = np.empty(sizes.samples * sizes.heads * n * d, q.dtype), k
    rotate_rows(q, (sizes.samples, sizes.heads, n, d), places, given.theta, 0, n, half, qr)
    if keys.any():
        kr = np.empty(sizes.samples * sizes.key_heads * m * d, k.dtype)
        rotate_rows(k, (sizes.samples, sizes.key_heads, m, d), keys, given.theta, low, high, half, kr)
    fits, qr = scaled_of(sizes, given, qr, d)
    return fits, qr, kr


@inlined
def _log_of_sum(a, b):
    """Of exp(a) + exp(b)."""
    if a == b:
        return a + _LOG_2
    high, low = (a, b) if a > b else (b, a)
    return high + math.log1p(math.exp(low - high))


@inner
def weigh_parts(lses, sinks, lse):
    """lse (B, H, N) of all parts and the sinks (H,), if there are any; in the place of those of parts, their weights.
    All are float64."""
    parts, samples, heads, queries = lses.shape
    for b in range(samples):
        for h in range(heads):
            for i in range(queries):
                whole = lses[0, b, h, i]
                for number in range(1, parts):
                    whole = _log_of_sum(whole, lses[number, b, h, i])
                if sinks.size:
                    whole = _log_of_sum(whole, np.float64(sinks[h]))
                lse[b, h, i] = whole
                for number in range(parts):
                    lses[number, b, h, i] = math.exp(lses[number, b, h, i] - (0.0 if whole == -np.inf else whole))


@entry(label="what parts of keys weigh")
def weigh(lses, sinks, lse):
    """`weigh_parts`, called from Python."""
    weigh_parts(lses, sinks, lse)


@allocating
def mix_parts(outs, weights, out):
    """out, the sum of those of parts by their weights, which are rounded first."""
    parts, samples, heads, queries, width = outs.shape
    rounded = np.empty(1, out.dtype)
    for b in range(samples):
        for h in range(heads):
            for i in range(queries):
                out[b, h, i] = 0.0
                for number in range(parts):
                    rounded[0] = weights[number, b, h, i]
                    factor = rounded[0]
                    for c in range(width):
                        out[b, h, i, c] += outs[number, b, h, i, c] * factor
