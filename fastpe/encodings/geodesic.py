"""ALiBi on the sphere: a penalty on the score that grows with the great-circle distance.

    S_ij = s q_i . k_j - slope_h angle_ij,      angle_ij in [0, pi] radians between the points i and j

Source: own construction, after Press, Smith and Lewis 2021, "Train Short, Test Long" (arXiv:2108.12409), section 3:
their distance of two tokens becomes that of two points.

**Slot**: `scores` (H, N, N), a value for every pair: O(N^2) memory. **Learns**: nothing, or with `learned` the `slope`
(H,).

**Positions** are (longitude, latitude) in degrees, (N, 2) or (B, N, 2), longitudes modulo 360, latitudes within ±90;
`start` is added to both. Without positions a spiral from pole to pole is taken, see `cartesian3d`.

**Options**
- `slope`: one slope for all heads, per radian; none: the list of `alibi`, times `scale`.
- `scale`: multiplies that list, whose steepest slope of eight heads is 1/2 per radian by itself.
- `learned`: the slopes, however chosen, are only initial values.

**Past the training length**: defined for every point. The spiral turns back at the pole there; its points within the
training length do not move.

**Traps.** The angle is even: such a model cannot tell east from west, nor any point from its mirror image, without
another encoding beside it. The arc cosine of a product of unit vectors loses half of the digits of small angles; here
the angle is 2 atan2(|a - b|, |a + b|), which loses none.
"""

from typing import Any

import numpy as np

from fastpe.encoding import Encoding, Option, Spec
from fastpe.encodings import _sphere
from fastpe.encodings.alibi import slopes

Array = np.ndarray[Any, Any]

_BLOCK = 2**14  # pairs whose differences are held at a time


def _chosen(spec: Spec, slope: float | None, scale: float) -> Array:
    return slopes(spec.heads) * scale if slope is None else np.full(spec.heads, slope)


def check(spec: Spec, **options: Any) -> None:
    """Latitudes end at the poles."""
    _sphere.check_latitudes(spec)


def shapes(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """A square for every sample."""
    return {"scores": (*spec.batch, spec.heads, spec.length, spec.length)}


def parameters(spec: Spec, *, learned: bool, **options: Any) -> dict[str, tuple[int, ...]]:
    """The slopes, where they are learned."""
    return {"slope": (spec.heads,)} if learned else {}


def init(spec: Spec, rng: Any, *, slope: float | None, scale: float, learned: bool) -> dict[str, Any]:
    """The chosen slopes."""
    return {"slope": _chosen(spec, slope, scale)} if learned else {}


def reference(
    spec: Spec, params: dict[str, Any], *, slope: float | None, scale: float, learned: bool
) -> dict[str, Any]:
    """Vincenty's formula of the angle, as exact for near points as for opposite ones."""
    lon, lat = np.radians(_sphere.coordinates(spec))
    across = lon[..., None, :] - lon[..., :, None]
    sin_i, cos_i = (f(lat)[..., :, None] for f in (np.sin, np.cos))
    sin_j, cos_j = (f(lat)[..., None, :] for f in (np.sin, np.cos))
    sine = np.hypot(cos_j * np.sin(across), cos_i * sin_j - sin_i * cos_j * np.cos(across))
    angles = np.arctan2(sine, sin_i * sin_j + cos_i * cos_j * np.cos(across))
    chosen = params["slope"] if learned else _chosen(spec, slope, scale)
    return {"scores": -chosen[:, None, None] * angles[..., None, :, :]}


def _angles(spec: Spec) -> Any:
    """Sample, rows, and their angles with all points of the sample, some rows at a time."""
    n = spec.length
    cos_lon, sin_lon, cos_lat, sin_lat = _sphere.directions(spec, slice(0, None if spec.batch else n))
    points = np.stack([cos_lon * cos_lat, sin_lon * cos_lat, sin_lat], axis=-1).reshape(*spec.batch, n, 3)
    step = max(1, _BLOCK // n)
    for sample in np.ndindex(*spec.batch):
        own = points[sample]
        for first in range(0, n, step):
            rows = slice(first, first + step)
            apart, together = own[rows, None] - own, own[rows, None] + own
            yield sample, rows, 2 * np.arctan2(*(np.sqrt(np.square(x).sum(axis=-1)) for x in (apart, together)))


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, slope: float | None, scale: float, learned: bool
) -> None:
    """Fill `scores`."""
    chosen = params["slope"].astype(np.float64) if learned else _chosen(spec, slope, scale)
    for sample, rows, angles in _angles(spec):
        for h in range(spec.heads):
            out["scores"][(*sample, h, rows)] = -chosen[h] * angles


def pull(spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], **options: Any) -> None:
    """dslope_h = -sum of dscores times the angle."""
    for sample, rows, angles in _angles(spec):
        dscores = dslots["scores"][(*sample, slice(None), rows)].astype(np.float64)
        dparams["slope"] -= (dscores * angles).sum(axis=(1, 2)).astype(dparams["slope"].dtype)


ENCODING = Encoding(
    slots=("scores",),
    options={
        "slope": Option(None, "one slope for all heads, per radian", float, minimum=0.0, optional=True),
        "scale": Option(1.0, "multiplies ALiBi's slopes", float, minimum=0.0),
        "learned": Option(False, "whether the slopes are learned", bool),
    },
    beyond="defined",
    direction="no",
    source="own construction, after Press, Smith and Lewis 2021, arXiv:2108.12409",
    ulp=16.0,
    reference=reference,
    fill=fill,
    pull=pull,
    init=init,
    parameters=parameters,
    shapes=shapes,
    check=check,
    axes=_sphere.two,
)
