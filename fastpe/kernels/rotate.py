"""Rotation of pairs of channels (Su et al. 2021, RoFormer, eq. 34): (x, y) -> (x cos - y sin, x sin + y cos).

x: rows of `width` elements; its first 2 R channels are R pairs, channels 2c and 2c + 1 or, with `half`, c and c + R;
the others are copied. Angles: R a row, float64; sine and cosine are taken in float64 and rounded to x's type. 6 FLOP
a pair; bound by memory.
"""

from fastpe.kernels._jit import entry, inner
from fastpe.kernels.simd import at, get, lanes, load_first, pointer, put, splat, store_first, store_rounded
from fastpe.kernels.threads import claim, finish, in_lanes, wait_for
from fastpe.kernels.trig import sincos

ROWS_OF_A_TASK = 256
ANGLES_OF_A_TASK = 4096


@inner
def rotate_row(x, cos, sin, y, width, pairs, half):
    """y = x rotated."""
    apart, step = (pairs, 1) if half else (1, 2)
    for c in range(pairs):
        a, b = get(x, c * step), get(x, c * step + apart)
        put(y, c * step, a * get(cos, c) - b * get(sin, c))
        put(y, c * step + apart, a * get(sin, c) + b * get(cos, c))
    for c in range(2 * pairs, width, lanes(x)):
        store_first(y, c, load_first(x, c, width - c), width - c)


@inner
def turn_back_row(y, cos, sin, x, width, pairs, half, onto):
    """x = y rotated back, or that added to x where `onto`."""
    apart, step = (pairs, 1) if half else (1, 2)
    for c in range(pairs):
        i, j = c * step, c * step + apart
        a, b = get(y, i), get(y, j)
        first, second = a * get(cos, c) + b * get(sin, c), b * get(cos, c) - a * get(sin, c)
        if onto:
            first, second = first + get(x, i), second + get(x, j)
        put(x, i, first)
        put(x, j, second)
    for c in range(2 * pairs, width, lanes(x)):
        more = load_first(y, c, width - c)
        if onto:
            more = more + load_first(x, c, width - c)
        store_first(x, c, more, width - c)


@inner
def add_angle_gradients(y, dy, dangles, pairs, half):
    """dangles += the gradient of the angles, y being what they made."""
    apart, step = (pairs, 1) if half else (1, 2)
    for c in range(pairs):
        i, j = c * step, c * step + apart
        put(dangles, c, get(dangles, c) + (get(dy, j) * get(y, i) - get(dy, i) * get(y, j)))


@inner
def _turn(angles, sign, cos, sin, n):
    for j in range(0, n, lanes(angles)):
        s, c = sincos(load_first(angles, j, n - j), splat(1.0), splat(0.0))
        store_rounded(sin, j, splat(sign) * s, n - j)
        store_rounded(cos, j, c, n - j)


@inner
def _rotate_lane(lane, board, x, strides, angles, sign, angle_strides, turns, y, shape, pairs, half):
    """Tasks of two phases: sines and cosines; rows."""
    batch, heads, rows, width = shape
    first = (angles.size + ANGLES_OF_A_TASK - 1) // ANGLES_OF_A_TASK
    pieces = (rows + ROWS_OF_A_TASK - 1) // ROWS_OF_A_TASK
    cos, sin = pointer(turns), at(pointer(turns), angles.size)
    task = claim(board)
    while task < first + batch * heads * pieces:
        if task < first:
            start = task * ANGLES_OF_A_TASK
            count = min(ANGLES_OF_A_TASK, angles.size - start)
            _turn(at(pointer(angles), start), sign, at(cos, start), at(sin, start), count)
        else:
            wait_for(board, first)
            head, piece = (task - first) // pieces, (task - first) % pieces
            b, h = head // heads, head % heads
            source = at(pointer(x), b * strides[0] + h * strides[1])
            turn = b * angle_strides[0] + h * angle_strides[1]
            for i in range(piece * ROWS_OF_A_TASK, min((piece + 1) * ROWS_OF_A_TASK, rows)):
                place = turn + i * pairs
                target = at(pointer(y), (head * rows + i) * width)
                rotate_row(at(source, i * strides[2]), at(cos, place), at(sin, place), target, width, pairs, half)
        finish(board)
        task = claim(board)


@entry(label="rotation")
def rotate(crew, board, x, strides, angles, sign, angle_strides, turns, y, shape, pairs, half):
    """y (B, H, N, D), contiguous, from x by `angles` times `sign` (1 or -1).

    strides, angle_strides: of batch, head (and row) of x and of batch and head of the angles, in elements, 0 where one
    serves all. turns: scratch for twice as many elements as there are angles.
    """
    in_lanes(
        crew, _rotate_lane,
        (pointer(board), x, strides, angles, sign, angle_strides, turns, y, shape, pairs, half),
    )  # fmt: skip
