"""Linear maps of blocks of channels: y_r = R_r x_r for every block r of b channels, b given and the same for all.

Block r is channels r b, r b + 1, ...; or, with `half`, r, r + D/b, r + 2 D/b, ... (b = 2 are then the pairs of
`rotate`). The maps of one row stand one after the other, D b elements: transposed to be applied, by their rows for the
way back. 2 D b FLOP a row; bound by the maps' memory where every row has its own.

A row's result depends on nothing else, and the gradient of a map is one sum in the order of samples, heads and rows.
"""

from fastpe.kernels._jit import entry, inner
from fastpe.kernels.attention.cells import add_scaled
from fastpe.kernels.simd import at, fma, get, lanes, load_first, part, pointer, put, splat, store_first
from fastpe.kernels.simd import zeros as zeros_of
from fastpe.kernels.threads import claim, in_lanes

ROWS_OF_A_TASK = 64
CHANNELS_OF_A_TASK = 8  # of a gradient, where all rows have the same maps


def scratch_size(width: int) -> int:
    """Elements that a lane needs: two rows as blocks."""
    return 2 * width


@inner
def _as_blocks(x, y, width, block):
    """y, the channels of `half` one block after the other."""
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


@inner
def _times_maps(x, maps, y, width, block):
    """y_r = x_r M_r: row after row of a map in whole vectors, so that no sum goes across one."""
    for r in range(0, width, block):
        for c in range(0, block, lanes(x)):
            sums, left = zeros_of(x), block - c
            for i in range(block):
                sums = fma(splat(get(x, r + i)), load_first(maps, (r + i) * block + c, left), sums)
            store_first(y, r + c, sums, left)


@inner
def map_row(x, maps, y, width, block, half, scratch):
    """y_r = x_r M_r: R x where `maps` are the R_r^T, and R^T x where they are the R_r. y may be x with `half` alone."""
    source, target = x, y
    if half:
        source, target = scratch, at(scratch, width)
        _as_blocks(x, source, width, block)
    _times_maps(source, maps, target, width, block)
    if half:
        _as_channels(target, y, width, block)


@inner
def add_map_gradients(x, dy, dmaps, first, last, width, block, half, scratch):
    """dmaps += dy x^T of the rows `first` to `last` of all maps, which are as many as channels."""
    if half:
        own, down = scratch, at(scratch, width)
        _as_blocks(x, own, width, block)
        _as_blocks(dy, down, width, block)
        x, dy = own, down
    for c in range(first, last):
        add_scaled(at(dmaps, c * block), get(dy, c), at(x, c // block * block), block)


@inner
def _map_lane(lane, board, x, strides, maps, starts, y, shape, of_maps, half, scratch):
    batch, heads, rows, width = shape
    led, per_head, length, block = of_maps
    pieces, size = (rows + ROWS_OF_A_TASK - 1) // ROWS_OF_A_TASK, width * block
    own = part(pointer(scratch), lane * scratch.shape[1], scratch.shape[1])
    task = claim(board)
    while task < batch * heads * pieces:
        head, first = task // pieces, task % pieces * ROWS_OF_A_TASK
        b, h = head // heads, head % heads
        place = ((b if led > 1 else 0) * per_head + (h if per_head > 1 else 0)) * length
        for i in range(first, min(first + ROWS_OF_A_TASK, rows)):
            source = at(pointer(x), b * strides[0] + h * strides[1] + i * strides[2])
            which = place + (starts[b] + i if length > 1 else 0)
            target = at(pointer(y), (head * rows + i) * width)
            map_row(source, at(pointer(maps), which * size), target, width, block, half, own)
        task = claim(board)


@inner
def _gradient_lane(lane, board, x, dy, starts, dmaps, shape, of_maps, half, scratch):
    batch, heads, rows, width = shape
    led, per_head, length, block = of_maps
    channels = width if length > 1 else CHANNELS_OF_A_TASK
    pieces = (length + ROWS_OF_A_TASK - 1) // ROWS_OF_A_TASK if length > 1 else (width + channels - 1) // channels
    own = part(pointer(scratch), lane * scratch.shape[1], scratch.shape[1])
    task = claim(board)
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
        task = claim(board)


@entry(label="maps of channels")
def map_rows(crew, board, x, strides, maps, starts, y, shape, of_maps, half, scratch):
    """y (B, H, N, D), contiguous, from x by the maps of its rows, as `map_row` has them.

    strides: of batch, head and row of x, in elements. of_maps: samples, heads and positions that have maps of their
    own, 1 where one serves all, and the channels of a block. starts: the position of each sample's first row. scratch:
    `scratch_size` elements for every lane.
    """
    in_lanes(crew, _map_lane, (pointer(board), x, strides, maps, starts, y, shape, of_maps, half, scratch))


@entry(label="gradients of maps of channels")
def map_gradients(crew, board, x, dy, starts, dmaps, shape, of_maps, half, scratch):
    """Add the gradients of the maps, those of their results being dy; x and dy are contiguous."""
    in_lanes(crew, _gradient_lane, (pointer(board), x, dy, starts, dmaps, shape, of_maps, half, scratch))
