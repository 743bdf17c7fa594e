"""Rotation of pairs of channels (Su et al. 2021, RoFormer, eq. 34): (x, y) -> (x cos - y sin, x sin + y cos).

x: rows of `width` elements; its first 2 R channels are R pairs, channels 2c and 2c + 1 or, with `half`, c and c + R; the
others are copied. cos, sin: R a row. 6 FLOP a pair and direction; bound by memory.
"""

from fastpe.kernels._jit import entry, inner
from fastpe.kernels.simd import at, get, lanes, load_first, pointer, put, store_first
from fastpe.kernels.threads import claim, in_lanes

ROWS_OF_A_TASK = 256


@inner
def rotate_row(x, cos, sin, y, width, pairs, half):
    """One row of x into y."""
    apart, step = (pairs, 1) if half else (1, 2)
    for c in range(pairs):
        a, b = get(x, c * step), get(x, c * step + apart)
        put(y, c * step, a * get(cos, c) - b * get(sin, c))
        put(y, c * step + apart, a * get(sin, c) + b * get(cos, c))
    for c in range(2 * pairs, width, lanes(x)):
        store_first(y, c, load_first(x, c, width - c), width - c)


@inner
def _rotate_lane(lane, board, x, strides, cos, sin, angle_strides, y, shape, pairs, half):
    batch, heads, rows, width = shape
    pieces = (rows + ROWS_OF_A_TASK - 1) // ROWS_OF_A_TASK
    task = claim(board)
    while task < batch * heads * pieces:
        b, h, piece = task // pieces // heads, task // pieces % heads, task % pieces
        source = at(pointer(x), b * strides[0] + h * strides[1])
        turn = b * angle_strides[0] + h * angle_strides[1]
        for i in range(piece * ROWS_OF_A_TASK, min((piece + 1) * ROWS_OF_A_TASK, rows)):
            place = turn + i * pairs
            rotate_row(
                at(source, i * strides[2]), at(pointer(cos), place), at(pointer(sin), place),
                at(pointer(y), ((b * heads + h) * rows + i) * width), width, pairs, half,
            )  # fmt: skip
        task = claim(board)


@entry(label="rotation")
def rotate(crew, board, x, strides, cos, sin, angle_strides, y, shape, pairs, half):
    """y (B, H, N, D) contiguous, from x with `strides` of batch, head and row; cos, sin with those of batch and head."""
    in_lanes(crew, _rotate_lane, (pointer(board), x, strides, cos, sin, angle_strides, y, shape, pairs, half))
