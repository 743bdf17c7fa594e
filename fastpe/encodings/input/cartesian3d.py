"""The three coordinates of a point of the unit sphere, added to the embeddings.

    PE = [cos lon cos lat, sin lon cos lat, sin lat, 0, 0, ...]

Source: Tseng, Kerner and Rolnick 2022, "TIML: Task-Informed Meta-Learning for Agriculture" (arXiv:2202.02124), released
code: nasaharvest/timl, yield/src/data.py. It is called Cartesian3D in Rußwurm, Klemmer, Rolf, Zbinden and Tuia 2024,
"Geographic Location Encoding with Spherical Harmonics and Sinusoidal Representation Networks" (arXiv:2310.06743):
MarcCoru/locationencoder, locationencoder/pe/cartesian3d.py. In older code it is called encode_3D: Mac Aodha et al. 2019
(arXiv:1906.05272), macaodha/geo_prior, geo_prior/utils.py, encode_loc_time.

**Slot**: `table` (N, C), in which only three channels are not zero. **Learns**: nothing; the next projection of the
embeddings mixes the channels.

**Positions** are (longitude, latitude) in degrees, an array (N, 2) or (B, N, 2). Longitudes are taken modulo 360, and
latitudes must be within ±90. The argument `start` is added to both. If no positions are given, the points follow a
spiral from the south pole to the north pole, in steps of equal area: sin lat = 2t - 1, lon = 180 sqrt(pi N) t - 180,
where t = (p + 1/2)/N, p is the index of the token and N is the training length.

**Options**
- `scale`: multiplies the table.

**Past the training length**: defined everywhere. If no positions are given, the spiral turns back at the north pole
after N points. The first N points are the same for every length of the sequence.

**Facts.** Every row has the norm `scale`, and the dot product of two rows is scale^2 times the cosine of the angle
between the points. There is no discontinuity at ±180 degrees or at the poles.
"""

from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Needs
from fastpe.encodings.parts import feature_columns, sphere
from fastpe.encodings.slots import Spec


def check(spec: Spec, *, scale: float) -> None:
    """Require latitudes within ±90 degrees."""
    sphere.check_latitudes(spec)


def remarks(spec: Spec, *, scale: float) -> tuple[str, ...]:
    """Remark on the number of channels that are used."""
    return feature_columns.remark(3, spec.dim, "coordinates")


def reference(spec: Spec, params: dict[str, Any], *, scale: float) -> dict[str, Any]:
    """The formula, with x and y from the distance to the nearer pole, so that small values keep their digits."""
    lon, lat = np.radians(sphere.coordinates(spec))
    radius = np.sin(np.radians(sphere.from_pole(spec)))
    point = np.stack([radius * np.cos(lon), radius * np.sin(lon), np.sin(lat)], axis=-1)
    return {"table": feature_columns.beside_zeros(point, spec.dim, scale)}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, scale: float) -> None:
    """Fill `table`."""

    def coordinates(rows: slice) -> Any:
        directions = sphere.directions(spec, rows)
        directions[:2] *= directions[2]
        return directions[[0, 1, 3]]

    feature_columns.fill_columns(out["table"], coordinates, scale)


ENCODING = Encoding(
    summary="x, y and z of a point on the sphere, added",
    formula=r"""
        \mathrm{PE} = [\cos \mathrm{lon} \cos \mathrm{lat},\ \sin \mathrm{lon} \cos \mathrm{lat},\ \sin
            \mathrm{lat},\ 0,\ 0,\ \dots]
    """,
    use_when="inputs are points on a sphere, and three smooth features without a jump are enough",
    also_called=("encode_3D",),
    use="other",
    needs=Needs("coordinates"),
    slots=("table",),
    options={"scale": Option(1.0, "multiplies the table", float)},
    beyond="defined",
    direction="yes",
    source="Tseng, Kerner and Rolnick 2022, arXiv:2202.02124, released code",
    ulp=32.0,  # an angle of up to 2 pi is rounded
    axes=sphere.two,
)
