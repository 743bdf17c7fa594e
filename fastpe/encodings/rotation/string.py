"""Cayley-STRING: a learned orthogonal map of query and key, then rotary with learned frequencies.

    R(x) = RoPE(x) P,   P = (I - S) (I + S)^-1,   S learned and skew-symmetric,   angle of pair t = sum_k x_k f_kt

Source: Schenck et al. 2025, "Learning the RoPEs: Better 2D and 3D Position Encodings with STRING" (arXiv:2502.02562),
definition 3.1, theorem 3.4, eqs. (9) and (10).

**Slots**: `rotors` (H, 1, 1, D, D), which is P, `angles` (H, N, D/2), `pairs`. **Learns**: `skew` (H, D (D - 1) / 2),
the upper triangle of S by rows, and `frequencies` (H, n, D/2), radians a position; for every layer its own.

**Initial values.** S = 0, which is P = I, and the frequencies of `rope`, of several axes in turn: pair t turns with
axis t mod n at base^(-2t/D). (The paper does not say; this begins as a rotary encoding.)

**Options**
- `base`: of the initial frequencies. `pairs`: as for `rope`.
- `coordinates`: n, how many coordinates a position has.
- `grid`: sides of the grid, where n > 1.

Positions are x, a step of one for each token or cell; given ones may be real.

**Past the training length**: defined.

**Accuracy.** An angle is off by two units of rounding; P is P (I + S) = I - S solved in float64.

**Facts.** Every smooth encoding R(x) whose scores depend on y - x alone, with R(0) = I, is P^T RoPE(x) P with one
orthogonal P for all positions (theorem 3.4), of which the outer P^T cancels in a score. So P could as well be a part of
the maps to queries and keys: it changes how a model learns, not what it can be.

**Traps.** With -S, P is its inverse: the other reading of eq. (10).
"""

import math
from decimal import Decimal
from typing import Any

import numpy as np

from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts import generators as parts
from fastpe.encodings.parts.angles import Array, fill_angles, precise, turns_of
from fastpe.encodings.parts.generators import Grid
from fastpe.encodings.parts.rotary import base_option, pairs_option, plain_pairs, rotated_width
from fastpe.encodings.slots import Spec
from fastpe.kernels.trig import PI


def check(spec: Spec, *, coordinates: int, grid: Grid, **options: Any) -> None:
    """A head must be made of pairs, and the grid of all tokens."""
    rotated_width(spec, None)
    parts.check_places(spec, coordinates=coordinates, grid=grid)


def shapes(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """One map and angles for every head."""
    d = rotated_width(spec, None)
    return {"rotors": (spec.heads, 1, 1, d, d), "angles": (*spec.batch, spec.heads, spec.length, d // 2)}


def parameters(spec: Spec, *, coordinates: int, **options: Any) -> dict[str, tuple[int, ...]]:
    """A triangle and frequencies for every head."""
    d = rotated_width(spec, None)
    return {"skew": (spec.heads, d * (d - 1) // 2), "frequencies": (spec.heads, coordinates, d // 2)}


def init(spec: Spec, rng: Any, *, base: float, coordinates: int, **options: Any) -> dict[str, Any]:
    """No map, and the frequencies of `rope`, shared out to the axes."""
    shape = parameters(spec, coordinates=coordinates)
    t = np.arange(spec.head_dim // 2)
    ladder = base ** (-2.0 * t / spec.head_dim) * (t % coordinates == np.arange(coordinates)[:, None])
    return {"skew": np.zeros(shape["skew"]), "frequencies": np.broadcast_to(ladder, shape["frequencies"]).copy()}


def _skew(upper: Any, d: int) -> Array:
    """S of every head."""
    s = np.zeros((len(upper), d, d))
    s[:, *np.triu_indices(d, 1)] = upper
    return s - np.swapaxes(s, -1, -2)


def reference(
    spec: Spec, params: dict[str, Any], *, coordinates: int, grid: Grid, **options: Any
) -> dict[str, Any]:  # fmt: skip
    """P = 2 (I + S)^-1 - I, and sums of x_k f_kt in Decimal."""
    d = rotated_width(spec, None)
    points = parts.cells(spec, coordinates=coordinates, grid=grid)
    angles = np.empty((spec.heads, d // 2, *points.shape[:-1]))
    with precise():
        for place in np.ndindex(angles.shape):
            frequencies = params["frequencies"][place[0], :, place[1]].tolist()
            terms = zip(frequencies, points[place[2:]].tolist(), strict=True)
            angle = sum((Decimal(f) * Decimal(x) for f, x in terms), Decimal(0))
            angles[place] = float(angle - (angle / (2 * PI)).to_integral_value() * 2 * PI)
    maps = 2 * np.linalg.inv(np.eye(d) + _skew(params["skew"], d)) - np.eye(d)
    return {
        "rotors": maps[:, None, None],
        "angles": np.moveaxis(np.clip(angles, -math.pi, math.pi), (0, 1), (-3, -1)),
    }


def _map(s: Array) -> Array:
    """(I - S) (I + S)^-1: as (I + S)^T = I - S, the transpose of what (I - S) X = I + S gives."""
    unit = np.eye(s.shape[-1])
    return np.swapaxes(np.linalg.solve(unit - s, unit + s), -1, -2)


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, coordinates: int, grid: Grid, **options: Any
) -> None:  # fmt: skip
    """Fill `rotors` and `angles`."""
    d = rotated_width(spec, None)
    out["rotors"][:, 0, 0] = _map(_skew(params["skew"], d))
    points = parts.cells(spec, coordinates=coordinates, grid=grid)
    fill_angles(points, turns_of(np.asarray(params["frequencies"], np.float64)), out["angles"])


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, coordinates: int,
    grid: Grid, **options: Any,
) -> None:  # fmt: skip
    """dS = G - G^T on the upper triangle, G = -(I + P)^T dP (I + S)^-T; df_kt = sum of x_k times dangles."""
    d = rotated_width(spec, None)
    s = _skew(params["skew"], d)
    maps, dmaps = _map(s), dslots["rotors"][:, 0, 0].astype(np.float64)
    # (I + S)^-T = (I - S)^-1, from the right: the transpose of (I + S)^-1 from the left
    left = np.swapaxes(np.eye(d) + maps, -1, -2) @ dmaps
    g = -np.swapaxes(np.linalg.solve(np.eye(d) + s, np.swapaxes(left, -1, -2)), -1, -2)
    dparams["skew"] += (g - np.swapaxes(g, -1, -2))[:, *np.triu_indices(d, 1)]
    points = parts.cells(spec, coordinates=coordinates, grid=grid)
    rows = np.broadcast_to(points, (*spec.batch, spec.length, coordinates)).reshape(-1, coordinates)
    for head in range(spec.heads):
        own = dslots["angles"][..., head, :, :].reshape(-1, d // 2)
        dparams["frequencies"][head] += (rows[:, :, None] * own[:, None, :]).sum(axis=0)


ENCODING = Encoding(
    summary="rotary in a learned basis, learned frequencies",
    slots=("rotors", "angles", "pairs"),
    options={
        "base": base_option(),
        "pairs": pairs_option("interleaved"),
        "coordinates": parts.COORDINATES,
        "grid": parts.GRID,
    },
    beyond="defined",
    direction="yes",
    use="images",
    source="Schenck et al. 2025, arXiv:2502.02562, definition 3.1 and eqs. (9) and (10)",
    ulp=lambda spec, **options: 16.0 + 16.0 * spec.head_dim,
    plain=plain_pairs,
    axes=lambda *, coordinates, **options: coordinates,
    per_layer=("skew", "frequencies"),
)
