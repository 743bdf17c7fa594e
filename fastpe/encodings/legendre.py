"""Legendre polynomials of a bounded map of the position, added to the embeddings.

    PE[p, l] = P_l(x(p)),   l = 0 .. C - 1
    P_0 = 1,  P_1 = x,  (l+1) P_{l+1} = (2l+1) x P_l - l P_{l-1}

Source: Li (2025), "Theoretical Analysis of Positional Encodings in Transformer Models", section 6.2: eq. (11) is the
map `tanh`, eq. (10) the map `clamp`; section 5.4 speaks of a logarithmic one.

**Slot**: `table` (N, C). **Learns**: nothing, or with `learned` the number `gamma` (1,) of the map `tanh`.

**Options** (N is the training length, whatever the sequence's)
- `map`: how a position becomes x. `tanh`: tanh(gamma p / N). `clamp`: 2 min(p, N)/N - 1. `linear`: 2p/N - 1, not
  bounded. `log`: 2 min(1, ln(1+p)/ln(1+N)) - 1, a reading of "logarithmic scaling so that x stays bounded", for which
  the paper gives no formula.
- `gamma`: the steepness of `tanh`; section 7 of the paper has 1.
- `learned`: learn gamma, starting at `gamma`; needs the map `tanh`.
- `scale`: multiplies the table.

Positions may be real. A negative one is treated as 0 by `clamp` and `log`, which are bounded on that side too; `tanh`
and `linear` need no rule.

**Past the training length**: defined. `tanh` tends to the all-ones vector, `clamp` and `log` stay at it. `linear`
leaves [-1, 1] and explodes: P_63(3) = 1.2e47, past float32; a table that is not finite is refused.

**Traps.** gamma = 1 reaches only x = tanh 1 = 0.76 at the training length, not 0.99 (that takes 2.65). `tanh` uses
only x >= 0, half of the interval on which the polynomials are orthogonal: the columns are far from orthogonal (P_0
and P_1 correlate by 0.866 on [0, 0.99]). The norm is not constant: from 1.47 to 8 at C = 64.

**Accuracy.** x is computed in float64, within 2^-51, and |P_l'| is up to l(l+1)/2 in [-1, 1]; the
recurrence, written as P_{l+1} = x P_l + l/(l+1) (x P_l - P_{l-1}), is stable and adds at most 8l. So an entry is within
(l(l+1) + 8l) 2^-52 of the exact one, whatever its own size, and in float32 half a unit in the last place on top: next
to zeros of P_l relative errors are large in float64, and even in float32 an entry below 1e-5 can be off by more than
a unit. Seen up to degree 512: 2e-14.
"""

import math
from fractions import Fraction
from typing import Any

import numpy as np

from fastpe.encoding import BeyondTrainingLength, Encoding, Option, Spec
from fastpe.encodings._rows import points_of, row_blocks
from fastpe.kernels._jit import entry, inlined
from fastpe.kernels.simd import (
    absolute,
    aligned_zeros,
    at,
    exp,
    fma,
    lanes,
    load_first,
    minus,
    pointer,
    splat,
    store_rounded,
    where_negative,
    whole_vectors,
)
from fastpe.kernels.table import LARGE, columns_to_rows, finish, move_edges, move_line, move_rows


def _place(points: np.ndarray, length: int, name: str, gamma: float) -> np.ndarray:
    """x(p) of the map called `name`."""
    if name == "tanh":
        return np.tanh(gamma * points / length)
    if name == "linear":
        return 2.0 * points / length - 1.0
    inside = np.clip(points, 0.0, length)
    if name == "clamp":
        return 2.0 * inside / length - 1.0
    return 2.0 * (np.log1p(inside) / math.log1p(length)) - 1.0


def check(spec: Spec, *, map: str, gamma: float, learned: bool, scale: float) -> None:
    """gamma is learned with the map `tanh` only; the table must be finite in the dtype asked for."""
    if learned and map != "tanh":
        raise ValueError(f"option 'learned' needs map 'tanh', which has a gamma, not map {map!r}")
    if map != "linear":
        return
    farthest = float(np.abs(_place(spec.points(), spec.train_length, map, gamma)).max())
    before, value = 0.0, 1.0
    for degree in range(spec.dim - 1):
        before, value = value, ((2 * degree + 1) * farthest * value - degree * before) / (degree + 1)
    limit = float(np.finfo(spec.dtype).max)
    if not abs(scale) * value <= limit:
        raise BeyondTrainingLength(
            f"'legendre' with map 'linear' is not finite in {spec.dtype} here: P_{spec.dim - 1} at x = {farthest:g} "
            f"exceeds {limit:.1e}; the maps 'tanh', 'clamp' and 'log' stay bounded"
        )


def parameters(spec: Spec, *, learned: bool, **options: Any) -> dict[str, tuple[int, ...]]:
    """gamma, where it is learned."""
    return {"gamma": (1,)} if learned else {}


def init(spec: Spec, rng: Any, *, gamma: float, learned: bool, **options: Any) -> dict[str, Any]:
    """The option `gamma`."""
    return {"gamma": np.array([gamma])} if learned else {}


def reference(
    spec: Spec, params: dict[str, Any], *, map: str, gamma: float, learned: bool, scale: float
) -> dict[str, Any]:
    """Li 2025, eqs. (10) and (11), by NumPy's own Legendre polynomials."""
    p, n = spec.points(), spec.train_length
    if learned:
        gamma = float(params["gamma"][0])
    x = {
        "tanh": lambda: np.tanh(gamma * p / n),
        "clamp": lambda: 2.0 * np.minimum(np.maximum(p, 0.0), n) / n - 1.0,
        "linear": lambda: 2.0 * p / n - 1.0,
        "log": lambda: 2.0 * np.minimum(1.0, np.log(1.0 + np.maximum(p, 0.0)) / np.log(1.0 + n)) - 1.0,
    }[map]()
    return {"table": scale * np.polynomial.legendre.legvander(x, spec.dim - 1)}


def fill(
    spec: Spec,
    params: dict[str, Any],
    out: dict[str, Any],
    *,
    map: str,
    gamma: float,
    learned: bool,
    scale: float,
) -> None:
    """Fill `table`."""
    if learned:
        gamma = float(params["gamma"][0])
    table, dim = out["table"], spec.dim
    follows = np.arange(dim) / np.arange(1, dim + 1)
    at_once, wide = 4 * whole_vectors(1, np.float64), whole_vectors(1, table.dtype)
    columns, tile = aligned_zeros((dim + wide, at_once), table.dtype), aligned_zeros((wide, wide), table.dtype)
    blocks = aligned_zeros((2, at_once, dim), table.dtype)
    for rows, first, row_step, step in row_blocks(table):
        points, bounded = points_of(spec, rows), map == "tanh"
        x = gamma * points / spec.train_length if bounded else _place(points, spec.train_length, map, gamma)
        large = table.nbytes >= LARGE
        _fill(x, bounded, scale, first, row_step, step, large, follows, columns, blocks, tile)


def pull(
    spec: Spec,
    params: dict[str, Any],
    dslots: dict[str, Any],
    dparams: dict[str, Any],
    *,
    map: str,
    gamma: float,
    learned: bool,
    scale: float,
) -> None:
    """dgamma = sum over p and l of dPE[p, l] P_l'(x) (p/N) (1 - x^2)."""
    ratio = spec.points().ravel() / spec.train_length
    x = np.tanh(float(params["gamma"][0]) * ratio)
    slope = scale * ratio * (1.0 - x) * (1.0 + x)
    _pull(x, slope, dslots["table"].reshape(-1, spec.dim), dparams["gamma"])


@entry(label="Legendre table")
def _fill(
    x: np.ndarray, bounded: bool, scale: float, first: np.ndarray, row_step: int, step: int, large: bool,
    follows: np.ndarray, columns: np.ndarray, blocks: np.ndarray, tile: np.ndarray,
) -> None:  # fmt: skip
    # Lanes are positions. The recurrence is a chain of dependent operations, so four vectors of positions go side by
    # side; three operations an element. Written in this order it is exact at x = 1.
    table, width, dim = pointer(first), lanes(splat(0.0)), blocks.shape[2]
    rows, wide = 4 * width, lanes(pointer(first))
    lines = rows // wide  # of the last block, which go to memory with each degree of this one
    aside = large and step == 1 and row_step == dim
    for i in range(0, x.shape[0], rows):
        count = min(rows, x.shape[0] - i)
        block, last = pointer(blocks[i // rows % 2]), pointer(blocks[(i // rows + 1) % 2])
        before = at(table, (i - rows) * row_step)
        moved = rows * dim if aside and i > 0 else 0
        head = move_edges(last, before, moved) if moved else 0
        places = at(pointer(x), i)
        x0, x1 = load_first(places, 0, count), load_first(places, width, count - width)
        x2, x3 = load_first(places, 2 * width, count - 2 * width), load_first(places, 3 * width, count - 3 * width)
        if bounded:
            x0, x1, x2, x3 = _tanh(x0), _tanh(x1), _tanh(x2), _tanh(x3)
        none, one = splat(0.0), splat(scale)
        older0, older1, older2, older3, newer0, newer1, newer2, newer3 = none, none, none, none, one, one, one, one
        for degree in range(dim):
            column, follow = at(pointer(columns), degree * rows), splat(follows[degree])
            store_rounded(column, 0, newer0, width)
            store_rounded(column, width, newer1, width)
            store_rounded(column, 2 * width, newer2, width)
            store_rounded(column, 3 * width, newer3, width)
            for line in range(degree * lines, (degree + 1) * lines):
                move_line(last, before, head, line, moved)
            older0, newer0 = newer0, _next(x0, newer0, older0, follow)
            older1, newer1 = newer1, _next(x1, newer1, older1, follow)
            older2, newer2 = newer2, _next(x2, newer2, older2, follow)
            older3, newer3 = newer3, _next(x3, newer3, older3, follow)
        columns_to_rows(pointer(columns), block, rows, dim, pointer(tile))
        if not aside or i + rows >= x.shape[0]:
            move_rows(block, count, dim, at(table, i * row_step), row_step, step, large)
    finish(large)


@inlined
def _next(x, newer, older, follow):  # type: ignore[no-untyped-def]
    """P_{l+1} = x P_l + l/(l+1) (x P_l - P_{l-1})."""
    return fma(follow, fma(x, newer, minus(older)), x * newer)


def _tangent_series(terms: int) -> tuple[float, ...]:
    """Coefficients of y^3, y^5, ... of tanh, by tanh' = 1 - tanh^2."""
    series = [Fraction(1)]
    for n in range(1, terms + 1):
        series.append(-sum((series[k] * series[n - 1 - k] for k in range(n)), Fraction(0)) / (2 * n + 1))
    return tuple(map(float, series[1:]))


_NEAR = 0.3  # up to here the series, whose terms shrink by (2 y / pi)^2 < 1/27; e^(-2y) would lose digits
_T3, _T5, _T7, _T9, _T11, _T13, _T15, _T17, _T19, _T21, _T23 = _tangent_series(11)


@inlined
def _tanh(y):  # type: ignore[no-untyped-def]
    """tanh of a float64 vector, off by at most 2^-52 and three units in the last place."""
    size = absolute(y)
    power = exp(splat(-2.0) * size)
    far = (splat(1.0) - power) / (splat(1.0) + power)
    # next to 1, where the polynomials are steepest, a small term taken from 1 leaves but one rounding
    farther = splat(1.0) - (power + power) / (splat(1.0) + power)
    far = where_negative(power - splat(0.25), farther, far)
    z = y * y
    t = fma(z, splat(_T23), splat(_T21))
    t = fma(z, t, splat(_T19))
    t = fma(z, t, splat(_T17))
    t = fma(z, t, splat(_T15))
    t = fma(z, t, splat(_T13))
    t = fma(z, t, splat(_T11))
    t = fma(z, t, splat(_T9))
    t = fma(z, t, splat(_T7))
    t = fma(z, t, splat(_T5))
    t = fma(z, t, splat(_T3))
    return where_negative(size - splat(_NEAR), fma(y * z, t, y), where_negative(y, minus(far), far))


@entry(label="gradient of Legendre's gamma")
def _pull(x: np.ndarray, slope: np.ndarray, dtable: np.ndarray, dgamma: np.ndarray) -> None:
    # P'_{l+1} = P'_{l-1} + (2l+1) P_l has no quotient by x^2 - 1, which is 0/0 at x = 1
    total = 0.0
    for i in range(x.shape[0]):
        older, value = 0.0, 1.0
        older_slope, value_slope = 0.0, 0.0
        along = 0.0
        for degree in range(dtable.shape[1]):
            along += float(dtable[i, degree]) * value_slope
            next_slope = older_slope + (2 * degree + 1) * value
            older, value = value, ((2 * degree + 1) * x[i] * value - degree * older) / (degree + 1)
            older_slope, value_slope = value_slope, next_slope
        total += along * slope[i]
    dgamma[0] += total


ENCODING = Encoding(
    slots=("table",),
    options={
        "map": Option("tanh", "how a position becomes x", str, ("tanh", "clamp", "linear", "log")),
        "gamma": Option(1.0, "steepness of the map tanh", float, above=0.0),
        "learned": Option(False, "whether gamma is learned", bool),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="defined",
    direction="yes",
    source="Li 2025, section 6.2",
    ulp=lambda spec, **options: 4.0 + 2.0 * spec.dim**2,
    reference=reference,
    fill=fill,
    pull=pull,
    init=init,
    parameters=parameters,
    check=check,
)
