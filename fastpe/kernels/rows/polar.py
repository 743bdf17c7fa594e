"""Channels in polar form: each channel of a row becomes two, y = (softplus(x) cos phi, softplus(x) sin phi).

The first numbers of all channels come before the second numbers, so that channels c and c + D are a pair that
`rows.rotate` rotates with `half`. The caller passes D factors cos phi and D factors sin phi. softplus(x) = log(1 + e^x)
is computed as max(x, 0) + log(1 + t), with t = exp(-|x|), and log(1 + t) = 2 artanh(t / (2 + t)) by the series of
artanh. Neither of the two terms is negative, so softplus has a small relative error even where it is close to 0. A
channel takes about 40 (float32) or 60 (float64) FLOP."""

from numba.extending import intrinsic

from fastpe.kernels.compile.decorators import entry, inlined, inner
from fastpe.kernels.fills.trig import sincos
from fastpe.kernels.simd import (
    absolute,
    at,
    code,
    exp,
    lanes,
    load_first,
    minus,
    pointer,
    relu,
    scalar,
    splat,
    store_first,
    store_rounded,
    where_negative,
)
from fastpe.kernels.threads.task_counter import next_task
from fastpe.kernels.threads.team import on_team

ROWS_OF_A_TASK = 64

_TERMS = {32: 8, 64: 18}  # the omitted terms are below 9^-8 / 17 and 9^-18 / 37


@intrinsic
def _artanh_ratio(typingctx, u):
    """Return artanh(s) / s = 1 + u / 3 + u^2 / 5 + ... for u = s^2, which is at most 1/9."""

    def emit(context, b, signature, arguments):
        count, (value,) = _TERMS[u.dtype.bitwidth], arguments
        found = code.constant(u, 1 / (2 * count - 1))
        for term in reversed(range(count - 1)):
            found = code.multiply_add(b, u, found, value, code.constant(u, 1 / (2 * term + 1)))
        return found

    return u(u), emit


@inlined
def _softplus(x, one):
    t = exp(minus(absolute(x)))
    s = t / (one + one + t)
    return relu(x) + (s + s) * _artanh_ratio(s * s)


@inlined
def _slope(x, one):
    """Return the derivative of softplus, 1 / (1 + exp(-x))."""
    t = exp(minus(absolute(x)))
    share = one / (one + t)
    return where_negative(x, t * share, share)


@inner
def lift_row(x, cos, sin, y, width):
    """Write softplus(x) times `cos`, then softplus(x) times `sin`, to y, which is twice as wide as x."""
    one = splat(scalar(x, 1.0))
    for c in range(0, width, lanes(x)):
        left = width - c
        radii = _softplus(load_first(x, c, left), one)
        store_first(y, c, radii * load_first(cos, c, left), left)
        store_first(y, c + width, radii * load_first(sin, c, left), left)


@inner
def lower_row(x, dy, cos, sin, dx, width):
    """From dy, the gradient of y in `lift_row`, compute dx, the gradient of x."""
    one = splat(scalar(x, 1.0))
    for c in range(0, width, lanes(x)):
        left = width - c
        along = load_first(dy, c, left) * load_first(cos, c, left)
        across = load_first(dy, c + width, left) * load_first(sin, c, left)
        store_first(dx, c, _slope(load_first(x, c, left), one) * (along + across), left)


@inner
def _lane(worker, counters, x, strides, factors, own, y, dy, shape):
    batch, heads, rows, width = shape
    pieces = (rows + ROWS_OF_A_TASK - 1) // ROWS_OF_A_TASK
    task = next_task(counters)
    while task < batch * heads * pieces:
        head, first = task // pieces, task % pieces * ROWS_OF_A_TASK
        b, h = head // heads, head % heads
        cos = at(pointer(factors), b * own[0] + h * own[1])
        sin = at(cos, width)
        for i in range(first, min(first + ROWS_OF_A_TASK, rows)):
            source, row = at(pointer(x), b * strides[0] + h * strides[1] + i * strides[2]), head * rows + i
            if dy is None:
                lift_row(source, cos, sin, at(pointer(y), 2 * row * width), width)
            else:
                lower_row(source, at(pointer(dy), 2 * row * width), cos, sin, at(pointer(y), row * width), width)
        task = next_task(counters)


@entry(label="factors of radii")
def fill_factors(phases, width, factors):
    """For each group of `width` adjacent phases (float64), write the cosines of the group, then its sines."""
    for first in range(0, phases.size, width):
        angles, cos = at(pointer(phases), first), at(pointer(factors), 2 * first)
        for j in range(0, width, lanes(angles)):
            left = width - j
            s, c = sincos(load_first(angles, j, left), splat(1.0), splat(0.0))
            store_rounded(cos, j, c, left)
            store_rounded(cos, width + j, s, left)


@entry(label="radii of channels")
def lift_rows(team, counters, x, strides, factors, own, y, shape):
    """Compute y (B, H, N, 2 D), contiguous, from x (B, H, N, D).

    strides: of batch, head and row of x, in elements. factors: groups of D cosines and D sines. own: the strides of the
    groups over batch and head, 0 if shared. shape: the shape of x.
    """
    on_team(team, _lane, (pointer(counters), x, strides, factors, own, y, None, shape))


@entry(label="gradients of radii of channels")
def lower_rows(team, counters, x, strides, factors, own, dx, dy, shape):
    """Compute dx (B, H, N, D) from dy (B, H, N, 2 D), both contiguous; the other arguments are as for `lift_rows`."""
    on_team(team, _lane, (pointer(counters), x, strides, factors, own, dx, dy, shape))
