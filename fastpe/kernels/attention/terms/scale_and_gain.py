"""The scale of products, `rectify` and the slot `gain`: u = scale inner, then max(u, 0) if `rectify`, then times
gain[o]."""

import numpy as np

from fastpe.kernels.attention.inputs import at_offset, offset_gradient_of
from fastpe.kernels.attention.slots import GAIN, floats_of, has_slot, wants_gradient
from fastpe.kernels.attention.tile import TILE_KEYS
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.simd import (
    at,
    fma,
    get,
    lanes,
    load_first,
    put,
    relu,
    splat,
    store_first,
    total,
    where_negative,
    where_zero,
    zeros,
)


@inner
def scale_products(head, terms, tile, case, cells):
    """cells *= scale, then max(cells, 0) if `rectify`, then times gain."""
    gain = at_offset(floats_of(head.table, GAIN, terms, cells), tile, case)
    _scale_cells(cells, head.scale, case.options.rectify, gain, has_slot(head.table, GAIN), tile.m, tile.n)


@inner
def scale_products_backward(head, terms, grads, tile, case, scratch):
    """`dcells` holds the gradient of the result of `scale_products`. Overwrite it with the gradient of the input, which
    is in `raw`, and add the other gradients.
    """
    _, m, _, n = tile
    rectify, has_gain, wants_gain = case.options.rectify, has_slot(head.table, GAIN), wants_gradient(head.table, GAIN)
    gain = at_offset(floats_of(head.table, GAIN, terms, scratch.dcells), tile, case)
    dgain = at(offset_gradient_of(grads, GAIN), case.queries - 1 - tile.i0)
    cells, raw = scratch.dcells, scratch.raw
    factor, scale_sum, none = splat(head.scale), zeros(cells), zeros(cells)
    for i in range(m):
        row, inputs, offsets, doffsets = at(cells, i * TILE_KEYS), at(raw, i * TILE_KEYS), at(gain, -i), at(dgain, -i)
        for j in range(0, n, lanes(cells)):
            left = n - j
            d = load_first(row, j, left)
            x = where_zero(d, none, load_first(inputs, j, left))  # the input of a hidden key may be NaN
            if has_gain:
                u = x * factor
                if rectify:
                    u = relu(u)
                if wants_gain:
                    store_first(doffsets, j, fma(d, u, load_first(doffsets, j, left)), left)
                d = d * load_first(offsets, j, left)
            if rectify:
                d = where_negative(none - x * factor, d, none)
            scale_sum = fma(d, x, scale_sum)
            store_first(row, j, d * factor, left)
    put(grads.dscale, 0, get(grads.dscale, 0) + np.float64(total(scale_sum)))


@inner
def scale_backward(head, terms, tile, scratch):
    """Multiply dcells by the scale, for calls in which only the scale is applied between products and scores."""
    _scale_cells(scratch.dcells, head.scale, False, scratch.dcells, False, tile.m, tile.n)


@inner
def _scale_cells(cells, scale, rectify, gain, has_gain, m, n):
    """cells *= scale, then max(cells, 0) if `rectify`, then times gain. gain: pointer to the gain of entry (0, 0)."""
    factor = splat(scale)
    for i in range(m):
        row, offsets = at(cells, i * TILE_KEYS), at(gain, -i)
        for j in range(0, n, lanes(cells)):
            u = load_first(row, j, n - j) * factor
            if rectify:
                u = relu(u)
            if has_gain:
                u = u * load_first(offsets, j, n - j)
            store_first(row, j, u, n - j)
