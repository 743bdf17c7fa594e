"""ALiBi on the sphere: a penalty on the score that grows with the great-circle distance.

    S_ij = s q_i . k_j - slope_h angle_ij,      angle_ij in [0, pi] radians between the points i and j

Source: own construction, after Press, Smith and Lewis 2021, "Train Short, Test Long" (arXiv:2108.12409), section 3. The
distance between two points replaces the distance between two tokens.

**Slot**: `scores` (H, N, N), a value for every pair, which takes O(N^2) memory. **Learns**: nothing by default; with
`learned`, `slope` (H,).

**Positions** are (longitude, latitude) in degrees, an array (N, 2) or (B, N, 2). Longitudes are taken modulo 360, and
latitudes must be within ±90. `start` is added to both coordinates. If no positions are given, the points follow a
spiral from pole to pole, described under `cartesian3d`.

**Options**
- `slope`: one slope for all heads, per radian. Default: the slopes of `alibi` times `scale`.
- `scale`: multiplies the slopes of `alibi`. The steepest slope is 1/2 per radian for eight heads.
- `learned`: train the slopes; the values set by the other options are only the initial ones.

**Past the training length**: defined for every point. If no positions are given, the spiral turns back at the pole past
the training length. Its points within the training length are the same for every length of the sequence.

**Traps.** The angle is symmetric: without a second encoding the model can tell neither east from west nor a set of
points from its mirror image. The arc cosine of a dot product of unit vectors a and b gives small angles with only half
of their digits. Here the angle is computed as 4 arctan(|a - b| / (2 + |a + b|)), which is accurate for all angles.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.bias.alibi import slopes
from fastpe.encodings.encoding import Encoding, Needs
from fastpe.encodings.parts import sphere
from fastpe.encodings.slots import Spec
from fastpe.kernels.compile.decorators import entry, inner
from fastpe.kernels.fills.table import LARGE, finish, move_rows
from fastpe.kernels.simd import (
    at,
    fma,
    lanes,
    load_first,
    load_wide,
    pointer,
    splat,
    sqrt,
    start_of,
    store_first,
    store_rounded,
    total,
    where_negative,
)

Array = np.ndarray[Any, Any]


def _chosen(spec: Spec, slope: float | None, scale: float) -> Array:
    return slopes(spec.heads) * scale if slope is None else np.full(spec.heads, slope)


def check(spec: Spec, **options: Any) -> None:
    """Require latitudes within ±90 degrees."""
    sphere.check_latitudes(spec)


def shapes(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """A square matrix for every sample."""
    return {"scores": (*spec.batch, spec.heads, spec.length, spec.length)}


def parameters(spec: Spec, *, learned: bool, **options: Any) -> dict[str, tuple[int, ...]]:
    """The slopes, if they are learned."""
    return {"slope": (spec.heads,)} if learned else {}


def init(spec: Spec, rng: Any, *, slope: float | None, scale: float, learned: bool) -> dict[str, Any]:
    """The chosen slopes."""
    return {"slope": _chosen(spec, slope, scale)} if learned else {}


def reference(
    spec: Spec, params: dict[str, Any], *, slope: float | None, scale: float, learned: bool
) -> dict[str, Any]:
    """The haversine formulas of the angle and of pi minus the angle, which are exact for near and opposite points."""
    chosen = params["slope"] if learned else _chosen(spec, slope, scale)
    lon, lat = sphere.coordinates(spec)
    angles = _haversine(*(x[..., :, None] for x in (lon, lat)), *(x[..., None, :] for x in (lon, lat)))
    return {"scores": -chosen[:, None, None] * angles[..., None, :, :]}


def _haversine(lon_a: Array, lat_a: Array, lon_b: Array, lat_b: Array) -> Array:
    """The angles of points given in degrees."""
    across, apart, together = (np.radians(x) / 2 for x in (lon_b - lon_a, lat_b - lat_a, lat_b + lat_a))
    flat = np.cos(np.radians(lat_a)) * np.cos(np.radians(lat_b))
    sine = np.hypot(np.sin(apart), np.sqrt(flat) * np.sin(across))
    return 2.0 * np.arctan2(sine, np.hypot(np.sin(together), np.sqrt(flat) * np.cos(across)))


def _ulp(spec: Spec, **options: Any) -> float:
    """16, or more if all points are within a radian: rounding errors of unit vectors do not shrink with the angle."""
    lon, lat = sphere.coordinates(spec)
    widest = float(_haversine(lon[..., :1], lat[..., :1], lon, lat).max())
    return 16.0 / min(1.0, widest) if widest else 16.0


def _samples(spec: Spec) -> Iterator[tuple[Any, Array]]:
    """Yield every sample and its points as unit vectors (3, N)."""
    n = spec.length
    cos_lon, sin_lon, cos_lat, sin_lat = sphere.directions(spec, slice(0, None if spec.batch else n))
    points = np.stack([cos_lon * cos_lat, sin_lon * cos_lat, sin_lat]).reshape(3, *spec.batch, n)
    for sample in np.ndindex(*spec.batch):
        yield sample, np.ascontiguousarray(points[(slice(None), *sample)])


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, slope: float | None, scale: float, learned: bool
) -> None:
    """Fill `scores`."""
    scores, chosen = out["scores"], params["slope"].astype(np.float64) if learned else _chosen(spec, slope, scale)
    for sample, points in _samples(spec):
        own = scores[sample]
        steps = (stride // own.itemsize for stride in own.strides)
        _fill(points, -chosen, start_of(own), *steps, scores.nbytes >= LARGE)


def pull(spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], **options: Any) -> None:
    """dslope_h = -sum of dscores times the angle."""
    found = np.zeros(spec.heads)
    for sample, points in _samples(spec):
        _pull(points, np.ascontiguousarray(dslots["scores"][sample]), found)
    dparams["slope"] -= found.astype(dparams["slope"].dtype)


_QUARTER = math.tan(math.pi / 8)
_ARC_TANGENT = np.array([(-1.0) ** k / (2 * k + 1) for k in range(21, 0, -1)])  # of y^43 ... y^3, for |y| < 0.415


@inner
def _angles(points, i, series, angles):  # type: ignore[no-untyped-def] # a kernel's types are Numba's
    """The angles between point i and all points: 4 arctan(|a - b| / (2 + |a + b|)).

    Half the angle has the sine |a - b| / 2 and the cosine |a + b| / 2. Because tan(h/2) = sin h / (1 + cos h), the
    argument of the arc tangent is the tangent of a quarter of the angle.

    For x above tan(pi/8), arctan(x) = pi/4 + arctan((x - 1) / (x + 1)), which keeps the series short.
    """
    n, none, two = points.shape[1], splat(0.0), splat(2.0)
    for j in range(0, n, lanes(none)):
        apart, together = none, none
        for axis in range(3):
            a, b = splat(points[axis, i]), load_first(pointer(points[axis]), j, n - j)
            apart, together = fma(b - a, b - a, apart), fma(b + a, b + a, together)
        opposite, adjacent = sqrt(apart), two + sqrt(together)
        near = opposite - splat(_QUARTER) * adjacent
        y = where_negative(near, opposite, opposite - adjacent) / where_negative(near, adjacent, opposite + adjacent)
        z, p = y * y, none
        for k in range(series.size):
            p = fma(p, z, splat(series[k]))
        arc = splat(4.0) * fma(y * z, p, y) + where_negative(near, none, splat(math.pi))
        store_first(pointer(angles), j, arc, n - j)


@entry(label="scores of angles on a sphere")
def _fill(points: Array, factors: Array, first: Array, head_step: int, row_step: int, step: int, large: bool) -> None:
    n, width = points.shape[1], lanes(splat(0.0))
    angles, line, series = np.empty(n), np.empty(n, first.dtype), np.asarray(_ARC_TANGENT)
    for i in range(n):
        _angles(points, i, series, angles)
        for h in range(factors.size):
            for j in range(0, n, width):
                store_rounded(pointer(line), j, splat(factors[h]) * load_first(pointer(angles), j, n - j), n - j)
            move_rows(pointer(line), 1, n, at(pointer(first), h * head_step + i * row_step), n, step, large)
    finish(large)


@entry(label="gradient of scores of angles")
def _pull(points: Array, dscores: Array, found: Array) -> None:
    n, width, series = points.shape[1], lanes(splat(0.0)), np.asarray(_ARC_TANGENT)
    angles = np.empty(n)
    for i in range(n):
        _angles(points, i, series, angles)
        for h in range(found.size):
            row, sums = pointer(dscores[h, i]), splat(0.0)
            for j in range(0, n, width):
                sums = fma(load_wide(row, j, n - j), load_first(pointer(angles), j, n - j), sums)
            found[h] += total(sums)


ENCODING = Encoding(
    summary="linear penalty on the great-circle distance",
    formula=r"""
        S_{ij} = s\, q_i \cdot k_j - \mathrm{slope}_h\, \mathrm{angle}_{ij},
            \quad \mathrm{angle}_{ij} \in [0, \pi] \text{ radians between the points } i \text{ and } j
    """,
    use_when="inputs are points on a sphere, and near points should count more",
    use="other",
    needs=Needs("coordinates"),
    slots=("scores",),
    options={
        "slope": Option(None, "one slope for all heads, per radian", float, minimum=0.0, optional=True),
        "scale": Option(1.0, "multiplies ALiBi's slopes", float, minimum=0.0),
        "learned": Option(False, "whether the slopes are learned", bool),
    },
    beyond="defined",
    direction="no",
    source="own construction, after Press, Smith and Lewis 2021, arXiv:2108.12409",
    ulp=_ulp,
    axes=sphere.two,
)
