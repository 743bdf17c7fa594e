"""Products of few queries with keys that are lifted, turned and grown: of every key once, and in the cache alone.

Attention would read all keys, write them as they are turned, and read those again, which is three quarters of the
memory that a query goes through. The numbers are those that `polar`, `rotate` and `growth` make, in the same order.
"""

from typing import NamedTuple

import numpy as np

from fastpe.kernels._jit import allocating, inlined, inner
from fastpe.kernels.attention.cells import dots
from fastpe.kernels.board import BOARD, claim
from fastpe.kernels.growth import grown, growth_factors
from fastpe.kernels.narrow import as_floats
from fastpe.kernels.polar import lift_row
from fastpe.kernels.rotate import angle_factors, factors_of_row, rotate_row
from fastpe.kernels.simd import (
    at,
    fma,
    hold,
    lanes,
    load,
    load_first,
    pointer,
    put_totals,
    row,
    zeros,
)
from fastpe.kernels.threads import in_lanes

_ROWS = np.int64(32)  # of keys of a task


class Turns(NamedTuple):
    """What becomes of keys, of each an empty array where nothing does; sizes and strides are elements."""

    angles: np.ndarray  # of the first key on, float64
    angles_of_sample: int
    angles_of_head: int
    pairs: int
    growth: np.ndarray  # of the first key on, float64
    origin: np.ndarray  # of the first query
    grown_pairs: int
    phases: np.ndarray  # cosines and sines of each head's, or of all
    phases_of_sample: int
    phases_of_head: int
    half: bool


class _Room(NamedTuple):
    """Where in a lane's memory its parts begin."""

    cos: int
    sin: int
    powers: int
    wide: int
    size: int


@inner
def _room(width, turns):
    factors = _ROWS * factors_of_row(turns.pairs, turns.half)
    cos = _ROWS * width
    wide = cos + 2 * factors + _ROWS * 2 * turns.grown_pairs
    return _Room(cos, cos + factors, cos + 2 * factors, wide, wide + cos)


@inner
def _turn_block(source, d, count, cos, sin, turns, phases, room, own, width):
    """The rows of `count` keys as they are turned, which begin where `own` does."""
    x, x_row, factors = source, d, factors_of_row(turns.pairs, turns.half)
    if turns.phases.size:
        for i in range(count):
            lift_row(at(x, i * x_row), phases, at(phases, d), at(own, i * width), d)
        x, x_row = own, width
    if turns.angles.size:
        for i in range(count):
            place = i * factors
            rotate_row(
                at(x, i * x_row), at(cos, place), at(sin, place), at(own, i * width), width, turns.pairs, turns.half
            )
        x, x_row = own, width
    if turns.growth.size:
        grown(x, x_row, at(own, room.powers), 2 * turns.grown_pairs, own, count, width)


@inner
def _grown_dots(x, y, factors, n, d, out):
    """`cells.dots` of rows times factors, of a multiple of four, in one piece as these are: nothing is laid down."""
    width, whole = lanes(x), d // lanes(x) * lanes(x)
    for j in range(0, n, 4):
        first, second, third, fourth = j * d, (j + 1) * d, (j + 2) * d, (j + 3) * d
        s, t, u, w = zeros(x), zeros(x), zeros(x), zeros(x)
        for c in range(0, whole, width):
            own = load(x, c)
            s = fma(own, load(y, first + c) * load(factors, first + c), s)
            t = fma(own, load(y, second + c) * load(factors, second + c), t)
            u = fma(own, load(y, third + c) * load(factors, third + c), u)
            w = fma(own, load(y, fourth + c) * load(factors, fourth + c), w)
        if whole < d:
            left, own = d - whole, load_first(x, whole, d - whole)
            s = fma(own, _first_of_both(y, factors, first + whole, left), s)
            t = fma(own, _first_of_both(y, factors, second + whole, left), t)
            u = fma(own, _first_of_both(y, factors, third + whole, left), u)
            w = fma(own, _first_of_both(y, factors, fourth + whole, left), w)
        put_totals(out, j, s, t, u, w)


@inlined
def _first_of_both(x, factors, place, n):
    return load_first(x, place, n) * load_first(factors, place, n)


@inner
def _grown_products(q, keys, factors, n, d, own, out):
    """The products of one query with keys of which all channels grow, and nothing else becomes of them."""
    four = n // 4 * 4
    _grown_dots(q, keys, factors, four, d, out)
    if four < n:
        grown(at(keys, four * d), d, at(factors, four * d), d, own, n - four, d)
        dots(q, own, d, n - four, d, at(out, four))


@inner
def _lane(lane, board, q, k, turns, shape, products, arenas):
    """One task is a block of keys of all heads of a sample; q: as they are turned."""
    samples, heads, key_heads, n, m, d, width = shape
    room, own, blocks, group = _room(width, turns), row(arenas, lane), (m + _ROWS - 1) // _ROWS, heads // key_heads
    cos, sin, powers = at(own, room.cos), at(own, room.sin), at(own, room.powers)
    grows_alone = 2 * turns.grown_pairs == d and not (turns.angles.size or turns.phases.size)
    task = claim(board)
    while task < samples * blocks:
        b, start, known = task // blocks, task % blocks * _ROWS, np.int64(-1)
        count = min(_ROWS, m - start)
        if turns.growth.size:
            grows = at(pointer(turns.growth), start * turns.grown_pairs)
            growth_factors(grows, pointer(turns.origin), count, turns.grown_pairs, turns.half, -1.0, powers)
        for head in range(key_heads):
            turn = b * turns.angles_of_sample + head * turns.angles_of_head
            if turns.angles.size and turn != known:
                angle_factors(
                    at(pointer(turns.angles), turn + start * turns.pairs), cos, sin, count * turns.pairs, turns.half
                )
                known = turn
            phases = at(pointer(turns.phases), b * turns.phases_of_sample + head * turns.phases_of_head)
            source = as_floats(at(pointer(k), ((b * key_heads + head) * m + start) * d), at(own, room.wide), count * d)
            first = (b * heads + head * group) * n
            if grows_alone and group * n == 1:
                out = at(pointer(products), first * m + start)
                _grown_products(at(pointer(q), first * d), source, powers, count, d, own, out)
                continue
            _turn_block(source, d, count, cos, sin, turns, phases, room, own, width)
            for i in range(first, first + group * n):
                dots(at(pointer(q), i * width), own, width, count, width, at(pointer(products), i * m + start))
        task = claim(board)


@allocating
def products_within(crew, q, k, turns, shape):
    """The products (B, H, N, M), flat, of queries as they are turned and keys as `turns` has them, both in one piece,
    keys maybe of half precision. crew: as a plain tuple. shape: B, H, key heads, N, M, channels of keys, and those of
    keys as they are turned."""
    samples, heads, _, n, m, _, width = shape
    board, products = np.zeros(BOARD, np.int64), np.empty(samples * heads * n * m, q.dtype)
    arenas, first = np.empty((crew[1], _room(width, turns).size), q.dtype), pointer(board)
    in_lanes(crew, _lane, (first, q, k, turns, shape, products, arenas))
    hold(board)
    return products
