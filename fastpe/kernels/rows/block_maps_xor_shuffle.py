"""Multiply each block of b channels by a matrix (b is a power of 2), one vector register at a time. See
`rows.block_maps`; `rows.block_maps.lie_in` describes the layout of the matrices.

Channel i is combined with channel i ^ d of its block for every d below b, where ^ is the exclusive or. For d below the
length of a vector, the two channels lie in the same vector, and lanes 1, 2, 4 or 8 apart are exchanged. For larger d,
the other vector is loaded first.
"""

from fastpe.kernels.compile.decorators import inlined, inner
from fastpe.kernels.simd import (
    fma,
    lanes,
    load_first,
    store_first,
    swapped,
    swapped_eights,
    swapped_fours,
    swapped_twos,
    zeros,
)


@inlined
def _one(x, maps, place, step, left, sums):
    return fma(load_first(maps, place, left), x, sums)


@inlined
def _two(x, maps, place, step, left, sums):
    return _one(swapped(x), maps, place + step, step, left, _one(x, maps, place, step, left, sums))


@inlined
def _four(x, maps, place, step, left, sums):
    return _two(swapped_twos(x), maps, place + 2 * step, step, left, _two(x, maps, place, step, left, sums))


@inlined
def _eight(x, maps, place, step, left, sums):
    return _four(swapped_fours(x), maps, place + 4 * step, step, left, _four(x, maps, place, step, left, sums))


@inlined
def _sixteen(x, maps, place, step, left, sums):
    return _eight(swapped_eights(x), maps, place + 8 * step, step, left, _eight(x, maps, place, step, left, sums))


@inner
def map_apart(x, maps, y, width, block):
    """y = R x."""
    span = min(block, lanes(x))
    for c in range(0, width, lanes(x)):
        left, sums = width - c, zeros(x)
        for d in range(0, block, span):
            own, place = load_first(x, c ^ d, left), d * width + c
            if span == 16:
                sums = _sixteen(own, maps, place, width, left, sums)
            elif span == 8:
                sums = _eight(own, maps, place, width, left, sums)
            elif span == 4:
                sums = _four(own, maps, place, width, left, sums)
            elif span == 2:
                sums = _two(own, maps, place, width, left, sums)
            else:
                sums = _one(own, maps, place, width, left, sums)
        store_first(y, c, sums, left)


@inlined
def _one_back(x, maps, place, step, left):
    return load_first(maps, place, left) * x


@inlined
def _two_back(x, maps, place, step, left):
    return _one_back(x, maps, place, step, left) + swapped(_one_back(x, maps, place + step, step, left))


@inlined
def _four_back(x, maps, place, step, left):
    return _two_back(x, maps, place, step, left) + swapped_twos(_two_back(x, maps, place + 2 * step, step, left))


@inlined
def _eight_back(x, maps, place, step, left):
    return _four_back(x, maps, place, step, left) + swapped_fours(_four_back(x, maps, place + 4 * step, step, left))


@inlined
def _sixteen_back(x, maps, place, step, left):
    return _eight_back(x, maps, place, step, left) + swapped_eights(_eight_back(x, maps, place + 8 * step, step, left))


@inner
def map_apart_back(x, maps, y, width, block):
    """y = R^T x."""
    span = min(block, lanes(x))
    for c in range(0, width, lanes(x)):
        left, sums = width - c, zeros(x)
        for d in range(0, block, span):
            own, place = load_first(x, c ^ d, left), d * width + (c ^ d)
            if span == 16:
                sums = sums + _sixteen_back(own, maps, place, width, left)
            elif span == 8:
                sums = sums + _eight_back(own, maps, place, width, left)
            elif span == 4:
                sums = sums + _four_back(own, maps, place, width, left)
            elif span == 2:
                sums = sums + _two_back(own, maps, place, width, left)
            else:
                sums = sums + _one_back(own, maps, place, width, left)
        store_first(y, c, sums, left)


@inlined
def _add_one(d, x, dmaps, place, left):
    store_first(dmaps, place, fma(d, x, load_first(dmaps, place, left)), left)


@inner
def add_apart(x, dy, dmaps, first, last, width, block):
    """dmaps += dy x^T for the channels first .. last - 1 of dy; `first` must be a multiple of a vector's length."""
    span = min(block, lanes(x))
    for c in range(first, last, lanes(x)):
        left, own = last - c, load_first(dy, c, last - c)
        for d in range(0, block, span):
            other = load_first(x, c ^ d, width - c)
            for e in range(span):
                _add_one(own, other, dmaps, (d + (e ^ (e >> 1))) * width + c, left)
                turn = (e + 1) & -(e + 1)  # the bit that changes in the next Gray code
                if turn == 1:
                    other = swapped(other)
                elif turn == 2:
                    other = swapped_twos(other)
                elif turn == 4:
                    other = swapped_fours(other)
                else:
                    other = swapped_eights(other)
