"""Rotation of pairs of channels (Su et al. 2021, RoFormer, eq. 34): (x, y) -> (x cos - y sin, x sin + y cos).

x: rows of `width` elements. The first 2 R channels are R pairs: channels 2c and 2c + 1 or, with `half`, c and c + R.
The other channels are copied. Angles: R per row, float64. Sine and cosine are computed in float64 (for float32 rows
with a relative error of 2^-36) or passed by the caller, and then rounded to x's type. A pair takes 6 FLOP; memory is
the bottleneck.

A task is a block of rows of a few heads. The sines and cosines of a task are computed once for all heads that share
angles, and stay in cache. They are stored as factors of whole vectors: without `half` a rotated row is x C + x' S,
where x' is x with neighbours swapped, C = cos, cos, ... and S = -sin, sin, ... for each pair.
"""

from numba import types
from numba.extending import intrinsic

from fastpe.kernels.compile.decorators import entry, inlined, inner
from fastpe.kernels.compile.overload import overload_by_type
from fastpe.kernels.fills.trig import sincos, sincos_near
from fastpe.kernels.simd import (
    at,
    evens_first,
    lanes,
    load_first,
    minus,
    part,
    pointer,
    row,
    splat,
    store_first,
    store_interleaved,
    store_rounded,
    swapped,
)
from fastpe.kernels.threads.task_counter import next_task
from fastpe.kernels.threads.team import on_team

ROWS_OF_A_TASK = 64
HEADS_OF_A_TASK = 16


@inner
def factors_of_row(pairs, half):
    """Return the number of cosines (and of sines) for a row of `pairs` pairs."""
    return pairs if half else 2 * pairs


def scratch_size(pairs: int) -> int:
    """Return the number of elements that a worker needs for the sines and cosines of a task."""
    return 4 * ROWS_OF_A_TASK * pairs


@inlined
def put_factors(cos, sin, j, c, s, left, half):
    """Store the factors of the pairs from j on. The cosines and sines are float64 vectors; only the first `left` lanes
    are used."""
    if half:
        store_rounded(cos, j, c, left)
        store_rounded(sin, j, s, left)
    else:
        store_interleaved(cos, 2 * j, c, c, 2 * left)
        store_interleaved(sin, 2 * j, minus(s), s, 2 * left)


@inner
def _make_exactly(angles, sign, cos, sin, n, half):
    for j in range(0, n, lanes(angles)):
        s, c = sincos(load_first(angles, j, n - j), splat(1.0), splat(0.0))
        put_factors(cos, sin, j, c, splat(sign) * s, n - j, half)


@inner
def _make_nearly(angles, sign, cos, sin, n, half):
    for j in range(0, n, lanes(angles)):
        s, c = sincos_near(load_first(angles, j, n - j))
        put_factors(cos, sin, j, c, splat(sign) * s, n - j, half)


@intrinsic
def _make_of_angles(typingctx, angles, sign, cos, sin, n, half):
    """Compute the cosines and sines of n angles, in the form of `put_factors`. For float32 factors, sine and cosine are
    computed with lower precision than for float64 factors.
    """
    own = _make_nearly if cos.dtype == types.float32 else _make_exactly
    return overload_by_type(typingctx, own, (angles, sign, cos, sin, n, half))


@inner
def _make_factors(turns, sines, place, sign, cos, sin, n, half):
    angles = at(pointer(turns), place)
    if sines is None:
        _make_of_angles(angles, sign, cos, sin, n, half)
        return
    for j in range(0, n, lanes(angles)):
        s, c = load_first(pointer(sines), place + j, n - j), load_first(angles, j, n - j)
        put_factors(cos, sin, j, c, splat(sign) * s, n - j, half)


@entry(label="cosines and sines")
def make_factors(angles, half, found):
    """Compute the factors with which `rotate_row` rotates by the angles of one row, and back. The rows of `found`
    become the cosines, the sines, and the sines with the opposite sign. found: (3, number of angles), or twice as many
    columns without `half`."""
    cos, sin, back = row(found, 0), row(found, 1), row(found, 2)
    _make_factors(angles, None, 0, 1.0, cos, sin, angles.size, half)
    for j in range(0, found.shape[1], lanes(sin)):
        left = found.shape[1] - j
        store_first(back, j, minus(load_first(sin, j, left)), left)


@inner
def rotate_row(x, cos, sin, y, width, pairs, half):
    """Rotate x into y, which may be x, with the factors of one row."""
    if half:
        for c in range(0, pairs, lanes(x)):
            left = pairs - c
            a, b = load_first(x, c, left), load_first(x, c + pairs, left)
            u, w = load_first(cos, c, left), load_first(sin, c, left)
            store_first(y, c, a * u - b * w, left)
            store_first(y, c + pairs, a * w + b * u, left)
    else:
        for c in range(0, 2 * pairs, lanes(x)):
            left = 2 * pairs - c
            a, u, w = load_first(x, c, left), load_first(cos, c, left), load_first(sin, c, left)
            store_first(y, c, a * u + swapped(a) * w, left)
    for c in range(2 * pairs, width, lanes(x)):
        store_first(y, c, load_first(x, c, width - c), width - c)


@inner
def add_angle_gradients(y, dy, dangles, pairs, half):
    """From dy, the gradient of the rotated row y, compute the gradient of the row's angles, and add it to dangles."""
    if half:
        for c in range(0, pairs, lanes(y)):
            left = pairs - c
            turned = load_first(dy, c + pairs, left) * load_first(y, c, left)
            _add(dangles, c, turned - load_first(dy, c, left) * load_first(y, c + pairs, left), left)
    else:
        for c in range(0, 2 * pairs, lanes(y)):
            left = 2 * pairs - c
            crossed = load_first(dy, c, left) * swapped(load_first(y, c, left))
            _add_of_pairs(dangles, c, swapped(crossed) - crossed, left)


@inner
def add_growth_gradients(y, dy, dgrowth, pairs, half, sign):
    """From dy, compute the gradient of a row's logarithms of growth, and add `sign` times this gradient to dgrowth. y
    is the row before growth.
    """
    if half:
        for c in range(0, pairs, lanes(y)):
            left = pairs - c
            first = load_first(dy, c, left) * load_first(y, c, left)
            second = load_first(dy, c + pairs, left) * load_first(y, c + pairs, left)
            _add(dgrowth, c, splat(sign) * (first + second), left)
    else:
        for c in range(0, 2 * pairs, lanes(y)):
            left = 2 * pairs - c
            own = load_first(dy, c, left) * load_first(y, c, left)
            _add_of_pairs(dgrowth, c, splat(sign) * (own + swapped(own)), left)


@inlined
def _add(sums, c, x, left):
    store_first(sums, c, load_first(sums, c, left) + x, left)


@inlined
def _add_of_pairs(sums, c, x, left):
    """Add the lanes of x that belong to first channels of pairs to the sums. x covers `left` channels from c on."""
    met = min(left, lanes(sums)) // 2
    store_first(sums, c // 2, load_first(sums, c // 2, met) + evens_first(x), met)


@inner
def _rotate_worker(worker, counters, x, strides, turns, sines, sign, turn_strides, factors, y, shape, pairs, half):
    batch, heads, rows, width = shape
    pieces = (rows + ROWS_OF_A_TASK - 1) // ROWS_OF_A_TASK
    tasks = (batch * heads + HEADS_OF_A_TASK - 1) // HEADS_OF_A_TASK * pieces
    row = factors_of_row(pairs, half)
    size = ROWS_OF_A_TASK * row
    cos = part(pointer(factors), worker * factors.shape[1], size)
    sin = part(pointer(factors), worker * factors.shape[1] + size, size)
    task = next_task(counters)
    while task < tasks:
        first, start = task // pieces * HEADS_OF_A_TASK, task % pieces * ROWS_OF_A_TASK
        count, known = min(ROWS_OF_A_TASK, rows - start), -1
        for head in range(first, min(first + HEADS_OF_A_TASK, batch * heads)):
            b, h = head // heads, head % heads
            turn = b * turn_strides[0] + h * turn_strides[1]
            if turn != known:
                _make_factors(turns, sines, turn + start * pairs, sign, cos, sin, count * pairs, half)
                known = turn
            source = at(pointer(x), b * strides[0] + h * strides[1] + start * strides[2])
            target = at(pointer(y), (head * rows + start) * width)
            for i in range(count):
                rotate_row(
                    at(source, i * strides[2]), at(cos, i * row), at(sin, i * row), at(target, i * width), width, pairs,
                    half,
                )  # fmt: skip
        task = next_task(counters)


@entry(label="rotation")
def rotate(team, counters, x, strides, turns, sines, sign, turn_strides, factors, y, shape, pairs, half):
    """Rotate x by the angles times `sign` (1 or -1) into y (B, H, N, D), contiguous; y may be x.

    turns, sines: either angles and None, or cosines and sines. strides: the strides of batch, head and row of x, in
    elements. turn_strides: the strides of batch and head of the angles, 0 if shared. factors: scratch memory of
    `scratch_size` elements for every worker.
    """
    on_team(
        team, _rotate_worker,
        (pointer(counters), x, strides, turns, sines, sign, turn_strides, factors, y, shape, pairs, half),
    )  # fmt: skip
