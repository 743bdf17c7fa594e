"""Longitude and latitude, each wrapped into a cosine and a sine, added to the embeddings.

    PE = [cos lon, sin lon, cos lat, sin lat, 0, 0, ...]

Source: Rußwurm, Klemmer, Rolf, Zbinden and Tuia 2024, "Geographic Location Encoding with Spherical Harmonics and
Sinusoidal Representation Networks" (arXiv:2310.06743), released code: MarcCoru/locationencoder,
locationencoder/pe/wrap.py, Wrap; after Mac Aodha, Cole and Perona 2019, "Presence-Only Geographical Priors for
Fine-Grained Image Classification" (arXiv:1906.05272), macaodha/geo_prior, geo_prior/utils.py, encode_loc_time.

**Slot**: `table` (N, C), in which only four channels are not zero. **Learns**: nothing; the linear map after the
embeddings mixes the channels.

**Positions** are (longitude, latitude) in degrees, an array (N, 2) or (B, N, 2). Longitudes are taken modulo 360, and
latitudes must be within ±90. `start` is added to both coordinates. If no positions are given, the points follow a
spiral from the south pole to the north pole, in steps of equal area: sin lat = 2t - 1, lon = 180 sqrt(pi N) t - 180,
where t = (p + 1/2)/N, p is the index of the token and N is the training length.

**Options**
- `scale`: multiplies the table.

**Past the training length**: defined everywhere. If no positions are given, the spiral reaches the north pole after N
points and then turns back. In a longer sequence the first N points are the same.

**Traps.** A pole is a single point but gets a different vector for every longitude; `cartesian3d` and `sph_harm` avoid
this. The code of Mac Aodha et al. uses another map: it doubles the latitude, so that both poles have the same cosine
and sine, and it puts the two sines first. If C < 4, only the first C features are used.
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
    return feature_columns.remark(4, spec.dim, "features")


def reference(spec: Spec, params: dict[str, Any], *, scale: float) -> dict[str, Any]:
    """The real and imaginary parts of e^(i lon) and e^(i lat)."""
    turns = np.exp(1j * np.pi / 180.0 * np.stack(sphere.coordinates(spec), axis=-1))
    features = np.stack([turns.real, turns.imag], axis=-1).reshape(*turns.shape[:-1], 4)
    return {"table": feature_columns.beside_zeros(features, spec.dim, scale)}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, scale: float) -> None:
    """Fill `table`."""
    feature_columns.fill_columns(out["table"], lambda rows: sphere.directions(spec, rows), scale)


ENCODING = Encoding(
    summary="sine and cosine of longitude and latitude, added",
    formula=r"""
        \mathrm{PE} = [\cos \mathrm{lon},\ \sin \mathrm{lon},\ \cos \mathrm{lat},\ \sin \mathrm{lat},\ 0,\ 0,\ \dots]
    """,
    use_when="you reproduce a location encoder that wraps both angles; cartesian3d has no seams at the poles",
    also_called=("Wrap",),
    use="other",
    needs=Needs("coordinates"),
    slots=("table",),
    options={"scale": Option(1.0, "multiplies the table", float)},
    beyond="defined",
    direction="yes",
    source="Rußwurm et al. 2024, arXiv:2310.06743, released code, after Mac Aodha et al. 2019, arXiv:1906.05272",
    ulp=16.0,  # an angle of up to 2 pi is rounded
    axes=sphere.two,
)
