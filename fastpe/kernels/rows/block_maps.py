"""Matrices ("maps") that multiply blocks of channels: y_r = R_r x_r for every block r. All blocks have b channels.

Block r consists of channels r b, r b + 1, ...; with `half`, of channels r, r + D/b, r + 2 D/b, ... (for b = 2 these are
the pairs of `rows.rotate` with `half`). A row takes 2 D b FLOP. If every row has a different map, reading the maps from
memory is the bottleneck.

The maps of one row have D b elements. If b is a power of 2, their layout (`lie_in`) allows computing with whole vectors
and without sums across lanes: the element R_r[i, i ^ d] is at d D + r b + i, where ^ is the exclusive or. If b is not a
power of 2, the maps are stored one after the other, each row by row.

The result of a row depends only on that row, and the gradient of a map is one sum in the order of samples, heads and
rows.
"""

import numpy as np

from fastpe.kernels.attention.tile import add_scaled
from fastpe.kernels.compile.decorators import entry, inner
from fastpe.kernels.rows.block_maps_xor_shuffle import add_apart, map_apart, map_apart_back
from fastpe.kernels.simd import (
    at,
    fma,
    get,
    lanes,
    load_first,
    part,
    pointer,
    put,
    splat,
    store_first,
    total,
)
from fastpe.kernels.simd import zeros as zeros_of
from fastpe.kernels.threads.task_counter import next_task
from fastpe.kernels.threads.team import on_team

ROWS_OF_A_TASK = 64
CHANNELS_OF_A_TASK = 16  # of `map_gradients`, if all rows have the same maps; a multiple of every vector's length


def scratch_size(width: int) -> int:
    """Return the number of scratch elements that a worker needs: two rows in which the channels of a block are
    adjacent.
    """
    return 2 * width


def lie_in(maps: np.ndarray) -> np.ndarray:
    """Return the maps (..., D/b, b, b) in the layout of the kernels, flattened."""
    *leading, count, b, _ = maps.shape
    if _is_power(b):
        own = maps.reshape(*leading, count, b * b).take(_partners(b), axis=-1)
        maps = np.moveaxis(own, -2, -3)
    return np.ascontiguousarray(maps).reshape(-1)


def lie_out(flat: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return maps of this shape from their layout in the kernels, the result of `lie_in`."""
    *leading, count, b, _ = shape
    if not _is_power(b):
        return flat.reshape(shape)
    own = np.moveaxis(flat.reshape(*leading, b, count, b), -3, -2).reshape(*leading, count, b * b)
    return own.take(_places(b), axis=-1).reshape(shape)


def _partners(b: int) -> np.ndarray:
    """Return an array (b, b) whose element [d, i] is the position of R[i, i ^ d] in a map stored row by row."""
    channels = np.arange(b)
    return channels * b + (channels ^ channels[:, None])


def _places(b: int) -> np.ndarray:
    """Return an array (b, b) whose element [i, j] is (i ^ j) b + i: the position of R[i, j] among the elements of R in
    the order of `_partners`."""
    channels = np.arange(b)
    return (channels[:, None] ^ channels) * b + channels[:, None]


def _is_power(b: int) -> bool:
    return b & (b - 1) == 0


@inner
def _as_blocks(x, y, width, block):
    """Copy x to y, where the channels of each block are adjacent; in x they are in the order of `half`."""
    count = width // block
    for r in range(count):
        for i in range(block):
            put(y, r * block + i, get(x, r + i * count))


@inner
def _as_channels(x, y, width, block):
    count = width // block
    for r in range(count):
        for i in range(block):
            put(y, r + i * count, get(x, r * block + i))


# ---------------------------------------------------------------------------------------------------------------------
# Maps that are stored row by row


@inner
def _map(x, maps, y, width, block):
    for c in range(width):
        row, own = at(maps, c * block), at(x, c // block * block)
        if block < lanes(x):
            found = get(row, 0) * get(own, 0)
            for j in range(1, block):
                found += get(row, j) * get(own, j)
            put(y, c, found)
        else:
            sums = zeros_of(x)
            for j in range(0, block, lanes(x)):
                sums = fma(load_first(row, j, block - j), load_first(own, j, block - j), sums)
            put(y, c, total(sums))


@inner
def _map_back(dy, maps, dx, width, block):
    for r in range(0, width, block):
        for c in range(0, block, lanes(dy)):
            sums, left = zeros_of(dy), block - c
            for i in range(block):
                sums = fma(splat(get(dy, r + i)), load_first(maps, (r + i) * block + c, left), sums)
            store_first(dx, r + c, sums, left)


@inner
def _add_rows(x, dy, dmaps, first, last, block):
    for c in range(first, last):
        add_scaled(at(dmaps, c * block), get(dy, c), at(x, c // block * block), block)


# ---------------------------------------------------------------------------------------------------------------------
# Rows


@inner
def map_row(x, maps, y, width, block, half, back, scratch):
    """y = R x, or R^T x with `back`; y and x must be different arrays."""
    source, target = x, y
    if half:
        source, target = scratch, at(scratch, width)
        _as_blocks(x, source, width, block)
    if block & (block - 1) == 0:
        if back:
            map_apart_back(source, maps, target, width, block)
        else:
            map_apart(source, maps, target, width, block)
    elif back:
        _map_back(source, maps, target, width, block)
    else:
        _map(source, maps, target, width, block)
    if half:
        _as_channels(target, y, width, block)


@inner
def add_map_gradients(x, dy, dmaps, first, last, width, block, half, scratch):
    """dmaps += dy x^T for the rows first .. last - 1 of the maps; row r b + i is row i of map r. `first` must be a
    multiple of a vector's length.
    """
    if half:
        own, down = scratch, at(scratch, width)
        _as_blocks(x, own, width, block)
        _as_blocks(dy, down, width, block)
        x, dy = own, down
    if block & (block - 1) == 0:
        add_apart(x, dy, dmaps, first, last, width, block)
    else:
        _add_rows(x, dy, dmaps, first, last, block)


@inner
def _map_worker(worker, counters, x, strides, maps, starts, y, shape, of_maps, half, back, scratch):
    batch, heads, rows, width = shape
    led, per_head, length, block = of_maps
    pieces, size = (rows + ROWS_OF_A_TASK - 1) // ROWS_OF_A_TASK, width * block
    own = part(pointer(scratch), worker * scratch.shape[1], scratch.shape[1])
    task = next_task(counters)
    while task < batch * heads * pieces:
        head, first = task // pieces, task % pieces * ROWS_OF_A_TASK
        b, h = head // heads, head % heads
        place = ((b if led > 1 else 0) * per_head + (h if per_head > 1 else 0)) * length
        for i in range(first, min(first + ROWS_OF_A_TASK, rows)):
            source = at(pointer(x), b * strides[0] + h * strides[1] + i * strides[2])
            which = place + (starts[b] + i if length > 1 else 0)
            target = at(pointer(y), (head * rows + i) * width)
            map_row(source, at(pointer(maps), which * size), target, width, block, half, back, own)
        task = next_task(counters)


@inner
def _gradient_worker(worker, counters, x, dy, starts, dmaps, shape, of_maps, half, scratch):
    batch, heads, rows, width = shape
    led, per_head, length, block = of_maps
    channels = width if length > 1 else CHANNELS_OF_A_TASK
    pieces = (length + ROWS_OF_A_TASK - 1) // ROWS_OF_A_TASK if length > 1 else (width + channels - 1) // channels
    own = part(pointer(scratch), worker * scratch.shape[1], scratch.shape[1])
    task = next_task(counters)
    while task < led * per_head * pieces:
        which, piece = task // pieces, task % pieces
        c0 = 0 if length > 1 else piece * channels
        for sample in range(1 if led > 1 else batch):
            b = which // per_head if led > 1 else sample
            first, last = 0, rows
            if length > 1:
                first = max(0, piece * ROWS_OF_A_TASK - starts[b])
                last = min(rows, (piece + 1) * ROWS_OF_A_TASK - starts[b])
            for head in range(1 if per_head > 1 else heads):
                h = which % per_head if per_head > 1 else head
                for i in range(first, last):
                    row = ((b * heads + h) * rows + i) * width
                    place = which * length + (starts[b] + i if length > 1 else 0)
                    add_map_gradients(
                        at(pointer(x), row), at(pointer(dy), row), at(pointer(dmaps), place * width * block), c0,
                        min(c0 + channels, width), width, block, half, own,
                    )  # fmt: skip
        task = next_task(counters)


@entry(label="maps of channels")
def map_rows(team, counters, x, strides, maps, starts, y, shape, of_maps, half, back, scratch):
    """Multiply each row of x by its maps, or by the transposed maps with `back`, and write y (B, H, N, D), contiguous.

    strides: of batch, head and row of x, in elements. of_maps: the numbers of samples, of heads and of positions with
    separate maps (1 if shared), and the number b of channels of a block. starts: the position of each sample's first
    row. scratch: `scratch_size` elements for every worker.
    """
    on_team(
        team, _map_worker, (pointer(counters), x, strides, maps, starts, y, shape, of_maps, half, back, scratch)
    )  # fmt: skip


@entry(label="gradients of maps of channels")
def map_gradients(team, counters, x, dy, starts, dmaps, shape, of_maps, half, scratch):
    """From dy, the gradient of y, compute the gradients of the maps, and add them to dmaps. x and dy are contiguous."""
    on_team(team, _gradient_worker, (pointer(counters), x, dy, starts, dmaps, shape, of_maps, half, scratch))
