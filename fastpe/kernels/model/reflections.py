"""Reflections (PaTH): a layer computes one reflection for each token from its input. The reflections of the tokens
between a key and a query act on the query.

    p = u down up;   y_t = silu( sum over k < 3 of taps_k p_{t-2+k} );   w_t = y_t / sqrt(|y_t|^2 + 1e-6), head by head
    beta_t = 2 sigmoid(u_t W^T + b)

u (n, C) is the layer's input after its norm, down (C, rank), up (rank, C), taps (3, C), W (H, C); p is 0 before the
start of the sequence, or of the document if documents are separate. `attention.path` computes attention with w and
beta, one sequence at a time. Nothing here is rounded to bfloat16. A layer without reflections has the `rank` 0; a model
in which no layer has reflections has None as `Position.reflections`.

The activations of a layer hold the product `u down`, p, and for each head w and beta. Generation continues from them.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fastpe.kernels.attention.tile import add_scaled, dot, scale_row
from fastpe.kernels.compile.decorators import inlined, inner
from fastpe.kernels.model.gates import add_number
from fastpe.kernels.model.pack import pass_on, place_of, rows_of, take_turn
from fastpe.kernels.products.float_gemm import FROM, OVERWRITE, float_gemm, transpose
from fastpe.kernels.rows.activation import logistic
from fastpe.kernels.simd import (
    at,
    fma,
    get,
    lanes,
    load_first,
    put,
    scalar,
    splat,
    store_first,
    total,
    zeros,
)

DOWN, UP, TAPS, WEIGHT, BIAS, RANK = (np.int64(number) for number in range(6))
"""Columns of a row of `Reflections.layers`: start of each parameter of a layer in the flat array, and the rank of the
layer's matrices `down` and `up`.
"""
_COUNT = np.int64(3)  # number of taps
_LEAST = 1e-6
ONE, NONE = np.int64(1), np.int64(0)


class Reflections(NamedTuple):
    """The reflections of a model's layers."""

    layers: np.ndarray  # (layers, 6) int64, see `DOWN`
    apart: int  # whether the convolution starts again with every document


class Kept(NamedTuple):
    """The layout of a layer's activations: u down (n, rank), p (N, C), w (H, N, D), beta (H, N)."""

    low: int
    steps: int
    w: int
    beta: int


class Given(NamedTuple):
    """The layout, in the workspace, of the gradients of w, beta and p, and of `up` or `down`, transposed."""

    w: int
    beta: int
    steps: int
    map: int


def kept_of_reflections(sizes: Any, n: int, take: Callable[[int], Any]) -> Kept:
    """Return the layout of a layer's activations, if n rows pass through the model at a time. ``take(count)`` reserves
    memory and returns its start."""
    made, whole = int(sizes.reflects > 0), sizes.length
    counts = n * sizes.reflects, made * whole * sizes.width, made * whole * sizes.width, made * whole * sizes.heads
    return Kept._make([take(count) for count in counts])


def memory_for_reflections(sizes: Any, take: Callable[[int], Any], *, backward: bool) -> Given:
    """Return the layout of the memory for the backward pass; `take` as for `kept_of_reflections`."""
    rows, c = backward * int(sizes.reflects > 0) * sizes.length, sizes.width
    counts = rows * c, rows * sizes.heads, rows * c, backward * c * sizes.reflects
    return Given._make([take(count) for count in counts])


# ---------------------------------------------------------------------------------------------------------------------
# Forward


@inlined
def _place(reflections, new, own):
    """Return how many rows the convolution may read before one of a sequence's new rows."""
    return place_of(ONE, new, own) if reflections.apart else own.before + new


@inlined
def _before(steps, place, ago, j, width, left):
    """Return a part of the row that is `ago` rows before the row at `steps`. Return zeros if that row
    may not be read.
    """
    return load_first(steps, j - ago * width, left if place >= ago else 0)


@inlined
def _convolved(steps, taps, place, j, width, left):
    """Return a part of the convolution's row at `steps`."""
    found = load_first(taps, (_COUNT - 1) * width + j, left) * load_first(steps, j, left)
    found = fma(load_first(taps, width + j, left), _before(steps, place, 1, j, width, left), found)
    return fma(load_first(taps, j, left), _before(steps, place, 2, j, width, left), found)


@inner
def _make_row(steps, taps, place, first, width, head, w):
    """Compute w of one head in the row at `steps`. first: the first channel of the head."""
    squares, one = zeros(w), splat(scalar(w, 1.0))
    for j in range(0, head, lanes(w)):
        x = _convolved(steps, taps, place, first + j, width, head - j)
        share, _ = logistic(x, one)
        y = x * share
        store_first(w, j, y, head - j)
        squares = fma(y, y, squares)
    scale_row(w, head, scalar(w, 1.0 / math.sqrt(np.float64(total(squares)) + _LEAST)))


@inner
def make_reflections(reflections, layer, u, w, act, pack, sizes, a):
    """Compute w and beta of a pack. w: the parameters of the whole model, not only of the layer."""
    if reflections is None:
        return
    places, n, c, start = reflections.layers, pack.rows, sizes.width, NONE
    rank, head = places[layer, RANK], c // sizes.heads
    if rank == 0:
        return
    low, steps, taps = at(act, a.reflected.low), at(act, a.reflected.steps), at(w, places[layer, TAPS])
    down, up, made = at(w, places[layer, DOWN]), at(w, places[layer, UP]), at(steps, pack.before * c)
    float_gemm(u, c, ONE, down, rank, low, rank, n, rank, c, OVERWRITE, low, NONE, low, NONE)
    float_gemm(low, rank, ONE, up, c, made, c, n, c, rank, OVERWRITE, low, NONE, low, NONE)
    for sequence in range(pack.first, pack.last):
        own = rows_of(pack, sequence, start)
        for h in range(sizes.heads):
            rows, far = made_of_head(h, act, own, sizes, a)
            weight, bias = at(w, places[layer, WEIGHT] + h * c), np.float64(get(w, places[layer, BIAS] + h))
            for new in range(own.length):
                i = own.before + new
                place, p = _place(reflections, new, own), at(steps, (start + i) * c)
                _make_row(p, taps, place, h * head, c, head, at(rows, i * head))
                z = bias + np.float64(dot(at(u, (start + new) * c), weight, c))
                put(far, i, scalar(far, 2.0 / (1.0 + math.exp(-z))))
        start += own.length


@inner
def made_of_head(h, act, own, sizes, a):
    """Return w and beta of one head of a sequence."""
    place = h * sizes.length + own.start
    return at(act, a.reflected.w + place * (sizes.width // sizes.heads)), at(act, a.reflected.beta + place)


@inner
def given_of_head(h, workspace, own, sizes, a):
    """Return the gradients of w and beta of one head of a sequence."""
    place = h * sizes.length + own.start
    return at(workspace, a.dreflected.w + place * (sizes.width // sizes.heads)), at(
        workspace, a.dreflected.beta + place
    )


# ---------------------------------------------------------------------------------------------------------------------
# Backward


@inner
def _row_back(steps, taps, place, first, width, head, w, dw, dsteps):
    """From the gradient of w, compute the gradient of the convolution's row at `steps`, for the channels
    of one head.
    """
    squares, along, one = zeros(w), zeros(w), splat(scalar(w, 1.0))
    for j in range(0, head, lanes(w)):
        x = _convolved(steps, taps, place, first + j, width, head - j)
        share, _ = logistic(x, one)
        y = x * share
        squares = fma(y, y, squares)
        along = fma(load_first(w, j, head - j), load_first(dw, j, head - j), along)
    inverse = splat(scalar(w, 1.0 / math.sqrt(np.float64(total(squares)) + _LEAST)))
    part_of_w = splat(total(along))
    for j in range(0, head, lanes(w)):
        x = _convolved(steps, taps, place, first + j, width, head - j)
        share, rise = logistic(x, one)
        across = load_first(dw, j, head - j) - load_first(w, j, head - j) * part_of_w
        store_first(dsteps, j, across * inverse * fma(x, rise, share), head - j)


@inner
def _convolved_back(reflections, steps, dsteps, taps, dtaps, own, width):
    """Overwrite the gradients of a sequence's convolution with the gradients of p, and add to the gradients of taps."""
    none = zeros(steps)
    for j in range(0, width, lanes(steps)):
        left = width - j
        # gradients of rows i + 1 and i + 2, or 0 if these do not read row i; f2 of the next step
        f1, f2, later = none, none, none
        t0, t1, t2 = none, none, none
        for back in range(own.length):
            i = own.length - 1 - back
            p, place, f0 = at(steps, i * width), _place(reflections, i, own), load_first(dsteps, i * width + j, left)
            t2 = fma(f0, load_first(p, j, left), t2)
            t1 = fma(f0, _before(p, place, 1, j, width, left), t1)
            t0 = fma(f0, _before(p, place, 2, j, width, left), t0)
            step = load_first(taps, 2 * width + j, left) * f0
            step = fma(load_first(taps, width + j, left), f1, step)
            store_first(dsteps, i * width + j, fma(load_first(taps, j, left), f2, step), left)
            f1, f2, later = f0 if place >= 1 else none, later, f0 if place >= 2 else none
        store_first(dtaps, j, load_first(dtaps, j, left) + t0, left)
        store_first(dtaps, width + j, load_first(dtaps, width + j, left) + t1, left)
        store_first(dtaps, 2 * width + j, load_first(dtaps, 2 * width + j, left) + t2, left)


@inner
def _far_back(places, layer, h, u, du, w, g, beta, dbeta, n, c):
    """From the gradients of a head's beta, compute the gradients of W and b, which compute beta, and add to them. Also
    add to du, the gradient of u in the rows of a sequence.
    """
    weight, of_bias = places[layer, WEIGHT] + h * c, 0.0
    for i in range(n):
        far = np.float64(get(beta, i))
        dz = np.float64(get(dbeta, i)) * far * (1.0 - 0.5 * far)
        of_bias += dz
        add_scaled(at(du, i * c), scalar(du, dz), at(w, weight), c)
        add_scaled(at(g, weight), scalar(g, dz), at(u, i * c), c)
    add_number(g, places[layer, BIAS] + h, of_bias)


@inner
def reflections_backward(reflections, layer, u, du, w, g, act, workspace, pack, sizes, a):
    """From the gradients of w and beta, add to du, the gradient of u. Also add to g, which holds the
    gradients of all parameters.
    """
    if reflections is None:
        return
    places, n, c, start = reflections.layers, pack.rows, sizes.width, NONE
    rank, head = places[layer, RANK], c // sizes.heads
    if rank == 0:
        return
    take_turn(pack)
    taps, dtaps = at(w, places[layer, TAPS]), at(g, places[layer, TAPS])
    low, turned, dsteps = at(act, a.reflected.low), at(workspace, a.dreflected.map), at(workspace, a.dreflected.steps)
    for sequence in range(pack.first, pack.last):
        own = rows_of(pack, sequence, start)
        steps, given = at(act, a.reflected.steps + start * c), at(dsteps, start * c)
        for h in range(sizes.heads):
            (rows, beta), (drows, dbeta) = (
                made_of_head(h, act, own, sizes, a),
                given_of_head(h, workspace, own, sizes, a),
            )
            for i in range(own.length):
                row, drow, place = at(rows, i * head), at(drows, i * head), _place(reflections, i, own)
                _row_back(at(steps, i * c), taps, place, h * head, c, head, row, drow, at(given, i * c + h * head))
            _far_back(places, layer, h, at(u, start * c), at(du, start * c), w, g, beta, dbeta, own.length, c)
        _convolved_back(reflections, steps, given, taps, dtaps, own, c)
        start += own.length
    dup, ddown = at(g, places[layer, UP]), at(g, places[layer, DOWN])
    float_gemm(low, ONE, rank, dsteps, c, dup, c, rank, c, n, FROM, dup, c, dup, NONE)
    transpose(at(w, places[layer, UP]), c, turned, rank, rank, c)
    float_gemm(dsteps, c, ONE, turned, rank, low, rank, n, rank, c, OVERWRITE, low, NONE, low, NONE)
    float_gemm(u, ONE, c, low, rank, ddown, rank, c, rank, n, FROM, ddown, rank, ddown, NONE)
    transpose(at(w, places[layer, DOWN]), rank, turned, c, c, rank)
    float_gemm(low, rank, ONE, turned, c, du, c, n, c, rank, FROM, du, c, du, NONE)
    pass_on(pack)
