"""Selective RoPE: a layer computes angles from its input, and rotates its queries and keys by these angles.

    u^ = u, the channels of each head divided by their norm;      p_t = u^_t down up
    f_t = sum over k < 4 of taps_k p_{t-3+k};      angles_t = tau (f_0 + ... + f_t)

If positions start again with every document, the sums and the convolution do, too (`Sizes.restarts`).

u (n, C) is the layer's input after its norm, down (C, rank), up (rank, C/2), taps (4, C/2), tau (C/2,)
(`Position.frequencies`). So p_t, f_t and angles_t have one number for each pair of channels of each head. Nothing is
rounded to bfloat16, sums over positions are float64, and whole turns are subtracted before sines and cosines are
computed. A model in which no layer computes angles has the `rank` 0, and may have None as `selective` (see
`model.memory.Position`).

A layer's activations hold

- the product `u^ down`;
- p;
- the sums f_0 + ... + f_t at the last row, from which generation continues, each as two numbers of the model's type;
- for every row, the factors of its rotation: the cosines, the sines, and the sines of the inverse rotation, each for
  all heads.
"""

import math
from typing import Any

import numpy as np

from fastpe.kernels.attention.tile import add_scaled, clear, dot
from fastpe.kernels.compile.decorators import inlined, inner
from fastpe.kernels.fills.trig import sincos
from fastpe.kernels.model.pack import pass_on, place_of, rows_of, take_turn
from fastpe.kernels.products.float_gemm import FROM, OVERWRITE, float_gemm, transpose
from fastpe.kernels.rows.rotate import add_angle_gradients, factors_of_row, put_factors, rotate_row
from fastpe.kernels.simd import (
    at,
    fma,
    lanes,
    load_first,
    load_wide,
    minus,
    pointer,
    scalar,
    splat,
    store_first,
    store_rounded,
    zeros,
)

DOWN, UP, TAPS, RANK = (np.int64(number) for number in range(4))
"""Columns of a row of `Position.selective`: start of each parameter of a layer in the flat array, and the rank of the
layer's matrices `down` and `up`. The rank is 0 if the layer computes no angles.
"""
KINDS = 3  # kinds of factors of rotation: cosines, sines, sines of the inverse rotation
_COUNT = np.int64(4)  # number of taps
_LEAST = 1e-6
ONE, NONE = np.int64(1), np.int64(0)


def kept_of_angles(sizes: Any, n: int) -> dict[str, int]:
    """Return the number of elements that a layer keeps for its angles, if n rows pass through the model at a time."""
    pairs = sizes.width // 2 * (sizes.rank > 0)
    factors = KINDS * pairs * (1 if sizes.half else 2)
    return {"low": n * sizes.rank, "steps": sizes.length * pairs, "sums": 2 * pairs, "factors": n * factors}


def memory_for_angles(sizes: Any, n: int, *, backward: bool) -> dict[str, int]:
    """Return the number of elements of scratch memory for computing angles."""
    c, made = sizes.width, int(sizes.rank > 0)
    return {"unit": made * n * c, "dangles": backward * made * n * (c // 2), "maps": backward * c * sizes.rank}


@inner
def _inverse_norm(x, n):
    return 1.0 / math.sqrt(np.float64(dot(x, x, n)) + _LEAST)


@inner
def _directions(u, unit, n, sizes):
    """Compute unit = u^."""
    head = sizes.width // sizes.heads
    for part in range(n * sizes.heads):
        x, y = at(u, part * head), at(unit, part * head)
        factor = splat(scalar(u, _inverse_norm(x, head)))
        for j in range(0, head, lanes(x)):
            store_first(y, j, factor * load_first(x, j, head - j), head - j)


@inlined
def _row(steps, i, ago, place, j, width, left):
    """Return a part of the row that is `ago` rows before row i, in float64; zeros before the first row of its
    document."""
    return load_wide(steps, (i - ago) * width + j, left if ago <= place else 0)


@inlined
def _place(new, own, sizes):
    """Return the number of rows before a new row of a sequence. If there are documents, count only rows of the same
    document.
    """
    return place_of(1, new, own) if sizes.restarts else own.before + new


@inner
def make_angles(selective, layer, tau, u, w, act, workspace, pack, sizes, a):
    """Compute the factors of a pack's rotations from the layer's input. w: the parameters of the whole model, not only
    of the layer."""
    if selective is None:
        return
    rank, n, c, pairs, start = selective[layer, RANK], pack.rows, sizes.width, sizes.width // 2, NONE
    if rank == 0:
        return
    unit, low, steps = at(workspace, a.unit), at(act, a.low), at(act, a.steps + pack.before * pairs)
    down, up, taps = at(w, selective[layer, DOWN]), at(w, selective[layer, UP]), at(w, selective[layer, TAPS])
    _directions(u, unit, n, sizes)
    float_gemm(unit, c, ONE, down, rank, low, rank, n, rank, c, OVERWRITE, low, NONE, low, NONE)
    float_gemm(low, rank, ONE, up, pairs, steps, pairs, n, pairs, rank, OVERWRITE, low, NONE, low, NONE)
    for sequence in range(pack.first, pack.last):
        own = rows_of(pack, sequence, start)
        factors = at(act, a.factors + start * KINDS * factors_of_row(pairs, sizes.half))
        _sum_up(at(act, a.steps + start * pairs), taps, tau, at(act, a.sums), factors, own, pairs, sizes)
        start += own.length


@inner
def _sum_up(steps, taps, tau, sums, factors, own, width, sizes):
    """Compute the factors of a sequence's new rows from p (`steps`) in these rows and in earlier ones. Keep the sums
    for later rows.
    """
    half = sizes.half
    row = factors_of_row(width, half)
    for j in range(0, width, lanes(pointer(tau))):
        left = width - j
        speed, total = load_first(pointer(tau), j, left), zeros(pointer(tau))
        if own.before:
            total = load_wide(sums, j, left) + load_wide(sums, width + j, left)
        for new in range(own.length):
            i, place, step = own.before + new, _place(new, own, sizes), zeros(pointer(tau))
            for k in range(_COUNT):
                p = _row(steps, i, _COUNT - 1 - k, place, j, width, left)
                step = fma(load_wide(taps, k * width + j, left), p, step)
            total = step if place == 0 else total + step
            s, c = sincos(total, speed, splat(0.0))
            cos = at(factors, KINDS * new * row)
            put_factors(cos, at(cos, row), j, c, s, left, half)
            put_factors(cos, at(cos, 2 * row), j, c, minus(s), left, half)
        store_rounded(sums, j, total, left)
        store_rounded(sums, width + j, total - load_wide(sums, j, left), left)


@inner
def turn_row(selective, layer, x, h, i, back, act, sizes, a):
    """Rotate a head's query or key of row i of the pack in place; with `back` 1, rotate a gradient back."""
    if selective is None:
        return
    if selective[layer, RANK] == 0:
        return
    head = sizes.width // sizes.heads
    row = factors_of_row(head // 2, sizes.half)
    kind = sizes.heads * row
    cos = at(act, a.factors + KINDS * i * kind + h * row)
    rotate_row(x, cos, at(cos, (1 + back) * kind), x, head, head // 2, sizes.half)


@inner
def clear_turns(selective, workspace, own, sizes, a):
    """Clear the gradients of the angles of a sequence, before `add_turns` adds to them."""
    if selective is None:
        return
    if not sizes.rank:
        return
    pairs = sizes.width // 2
    clear(at(workspace, a.dangles + own.start * pairs), own.length * pairs)


@inner
def add_turns(selective, y, dy, h, i, workspace, sizes, a):
    """From the gradient dy of a rotated row y, compute the gradient of the angles of row i of the pack, and add it to
    the gradients of all angles in the workspace.
    """
    if selective is None:
        return
    if not sizes.rank:
        return
    pairs = sizes.width // sizes.heads // 2
    add_angle_gradients(y, dy, at(workspace, a.dangles + (i * sizes.heads + h) * pairs), pairs, sizes.half)


@inner
def angles_backward(selective, layer, tau, u, du, w, g, act, workspace, pack, sizes, a):
    """From the gradients of the angles, add to du, the gradient of u. Also add to g, which holds the
    gradients of all parameters.
    """
    if selective is None:
        return
    rank, n, c, pairs, start = selective[layer, RANK], pack.rows, sizes.width, sizes.width // 2, NONE
    if rank == 0:
        return
    take_turn(pack)
    taps, dtaps = at(w, selective[layer, TAPS]), at(g, selective[layer, TAPS])
    dsteps, low, unit, turned = at(workspace, a.dangles), at(act, a.low), at(workspace, a.unit), at(workspace, a.maps)
    for sequence in range(pack.first, pack.last):
        own = rows_of(pack, sequence, start)
        _sum_down(at(act, a.steps + start * pairs), at(dsteps, start * pairs), taps, dtaps, tau, own, pairs, sizes)
        start += own.length
    dup, ddown = at(g, selective[layer, UP]), at(g, selective[layer, DOWN])
    float_gemm(low, ONE, rank, dsteps, pairs, dup, pairs, rank, pairs, n, FROM, dup, pairs, dup, NONE)
    transpose(at(w, selective[layer, UP]), pairs, turned, rank, rank, pairs)
    float_gemm(dsteps, pairs, ONE, turned, rank, low, rank, n, rank, pairs, OVERWRITE, low, NONE, low, NONE)
    _directions(u, unit, n, sizes)
    float_gemm(unit, ONE, c, low, rank, ddown, rank, c, rank, n, FROM, ddown, rank, ddown, NONE)
    transpose(at(w, selective[layer, DOWN]), rank, turned, c, c, rank)
    float_gemm(low, rank, ONE, turned, c, unit, c, n, c, rank, OVERWRITE, unit, NONE, unit, NONE)
    _directions_backward(u, unit, du, n, sizes)
    pass_on(pack)


@inner
def _sum_down(steps, dangles, taps, dtaps, tau, own, width, sizes):
    """Overwrite the gradients of a sequence's angles with the gradients of p. Also add to the gradients of taps."""
    for j in range(0, width, lanes(pointer(tau))):
        left = width - j
        speed, later = load_first(pointer(tau), j, left), zeros(pointer(tau))
        # the gradients of f in the last rows processed, and those of taps so far
        f0, f1, f2, f3 = later, later, later, later
        t0, t1, t2, t3 = later, later, later, later
        for back in range(own.length):
            i = own.length - 1 - back
            place = _place(i, own, sizes)
            later = fma(speed, load_wide(dangles, i * width + j, left), later)
            f0, f1, f2, f3 = later, f0, f1, f2
            t3 = fma(f0, _row(steps, i, 0, place, j, width, left), t3)
            t2 = fma(f0, _row(steps, i, 1, place, j, width, left), t2)
            t1 = fma(f0, _row(steps, i, 2, place, j, width, left), t1)
            t0 = fma(f0, _row(steps, i, 3, place, j, width, left), t0)
            step = load_wide(taps, j, left) * f3
            step = fma(load_wide(taps, width + j, left), f2, step)
            step = fma(load_wide(taps, 2 * width + j, left), f1, step)
            step = fma(load_wide(taps, 3 * width + j, left), f0, step)
            store_rounded(dangles, i * width + j, step, left)
            if place == 0:  # sums do not reach back into the previous document
                later = f0 = f1 = f2 = zeros(pointer(tau))
        store_rounded(dtaps, j, load_wide(dtaps, j, left) + t0, left)
        store_rounded(dtaps, width + j, load_wide(dtaps, width + j, left) + t1, left)
        store_rounded(dtaps, 2 * width + j, load_wide(dtaps, 2 * width + j, left) + t2, left)
        store_rounded(dtaps, 3 * width + j, load_wide(dtaps, 3 * width + j, left) + t3, left)


@inner
def _directions_backward(u, dunit, du, n, sizes):
    """From dunit, the gradient of u^, compute the gradient of u, and add it to du."""
    head = sizes.width // sizes.heads
    for part in range(n * sizes.heads):
        x, d, dx = at(u, part * head), at(dunit, part * head), at(du, part * head)
        inverse = _inverse_norm(x, head)
        along = np.float64(dot(x, d, head)) * inverse**3
        add_scaled(dx, scalar(dx, inverse), d, head)
        add_scaled(dx, scalar(dx, -along), x, head)
