"""Real spherical harmonics of a point on the sphere, added to the embeddings.

    PE[l^2 + l + m] = Y_lm(theta, alpha),   l = 0 .. L-1,  m = -l .. l
    Y_lm = K_l0 P_l0(cos theta)                              m = 0
           sqrt2 K_lm cos(m alpha) P_lm(cos theta)           m > 0
           sqrt2 K_l|m| sin(|m| alpha) P_l|m|(cos theta)     m < 0
    K_lm = sqrt((2l+1)/(4 pi) (l-m)!/(l+m)!)

P_lm are the associated Legendre functions, including the sign (-1)^m of Condon and Shortley. With longitude and
latitude in radians, alpha = lon + pi and theta = lat + pi/2, so theta is 0 at the south pole.

Source: Rußwurm, Klemmer, Rolf, Zbinden and Tuia 2024, "Geographic Location Encoding with Spherical Harmonics and
Sinusoidal Representation Networks" (arXiv:2310.06743); angles, order and signs: MarcCoru/locationencoder,
locationencoder/pe/spherical_harmonics.py, SphericalHarmonics, with spherical_harmonics_closed_form.py.

**Slot**: `table` (N, C). **Learns**: nothing.

**Positions** are (longitude, latitude) in degrees, an array (N, 2) or (B, N, 2). Longitudes are taken modulo 360, and
latitudes must be within ±90. `start` is added to both coordinates. If no positions are given, the points lie on a
spiral from the south pole to the north pole, with equal area for each point. Let N be the training length, and t = (p +
1/2)/N for position p. The point of p then has sin lat = 2t - 1 and lon = 180 sqrt(pi N) t - 180.

**Options**
- `degrees`: L, the number of degrees l, from 1 to 1024. Default: the largest L with L^2 <= C. Of the L^2 harmonics, at
  most the first C are used; if there are fewer than C, the last channels are zero.
- `scale`: multiplies the table.

**Past the training length**: defined everywhere. If no positions are given, the spiral turns back at the north pole
after N points; a longer sequence does not change the points of earlier positions.

**Facts.** If no degree is cut off by the width C, the dot product of two rows depends only on the angle between the
points: sum_m Y_lm(a) Y_lm(b) = (2l+1)/(4 pi) P_l(cos angle). So every row has the norm L/sqrt(4 pi), and there is no
discontinuity at ±180 degrees or at the poles. No direction is special for a model that can learn to rotate the channels
of each degree l.

**Traps.** The authors have two implementations, which differ in signs. This encoding follows the closed form. The
expanded formulas of spherical_harmonics_ylm.py, which the authors use by default, omit (-1)^m, so their columns with
odd m are the negatives of the columns here.

**Speed.** Arithmetic is the bottleneck: the entries of m and -m need one common step of the recurrence, and then one
product each. A row takes four sines and cosines in total.

**Accuracy.** The recurrence in l gives normalised functions, without factorials, which would overflow past l = 80. The
error of an entry is within (16 + 8L) 2^-52 times the table's largest entry.
"""

import math
from typing import Any

import numpy as np
from scipy import special

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Needs
from fastpe.encodings.parts import feature_columns, sphere
from fastpe.encodings.parts.row_blocks import row_blocks
from fastpe.encodings.slots import Spec
from fastpe.kernels.compile.decorators import entry, inner
from fastpe.kernels.fills.table import LARGE, columns_to_table, finish
from fastpe.kernels.simd import (
    aligned_zeros,
    at,
    fma,
    lanes,
    load_first,
    minus,
    pointer,
    splat,
    store_rounded,
    whole_vectors,
)

_MOST = 1024  # the recurrence starts from sin^m; past degree 1900 it would underflow where it is not negligible


def _degrees(spec: Spec, degrees: int | None) -> int:
    return min(math.isqrt(spec.dim), _MOST) if degrees is None else degrees


def check(spec: Spec, *, degrees: int | None, scale: float) -> None:
    """Require latitudes within ±90 degrees, and a limited number of degrees."""
    if degrees is not None and degrees > _MOST:
        raise ValueError(f"option 'degrees' must be at most {_MOST}, not {degrees}")
    sphere.check_latitudes(spec)


def remarks(spec: Spec, *, degrees: int | None, scale: float) -> tuple[str, ...]:
    """Remark on the number of channels that are used."""
    return feature_columns.remark(_degrees(spec, degrees) ** 2, spec.dim, "harmonics")


def reference(spec: Spec, params: dict[str, Any], *, degrees: int | None, scale: float) -> dict[str, Any]:
    """K_lm P_lm(cos theta) = (-1)^m sqrt((2l+1)/(4 pi) (l-m)! (l+m)! / l!^2) (sin(theta)/2)^m P_(l-m)^(m,m)(cos theta),
    with Jacobi polynomials (DLMF 18.7.25 and 14.3.21), computed for one l and m at a time.
    """
    lon, lat = np.radians(sphere.coordinates(spec))
    theta, alpha = lat + np.pi / 2, lon + np.pi
    table = np.zeros((*lon.shape, spec.dim))
    for channel in range(min(spec.dim, _degrees(spec, degrees) ** 2)):
        degree = math.isqrt(channel)
        order = channel - degree * degree - degree
        m = abs(order)
        ratio = math.comb(2 * degree, degree) / math.comb(2 * degree, degree + m)
        height = special.eval_jacobi(degree - m, m, m, np.cos(theta)) * (-np.sin(theta) / 2) ** m
        height *= math.sqrt((2 * degree + 1) / (4 * math.pi) * ratio)
        turn = math.sqrt(2) * (np.cos(m * alpha) if order > 0 else np.sin(m * alpha)) if order else 1.0
        table[..., channel] = scale * height * turn
    return {"table": table}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, degrees: int | None, scale: float) -> None:
    """Fill `table`."""
    table, count = out["table"], _degrees(spec, degrees)
    at_once, wide = 4 * whole_vectors(1, np.float64), whole_vectors(1, table.dtype)
    columns, tile = aligned_zeros((spec.dim + wide, at_once), table.dtype), aligned_zeros((wide, wide), table.dtype)
    block, steps = aligned_zeros((at_once, spec.dim), table.dtype), _recurrence(count)
    for rows, first, row_step, step in row_blocks(table):
        cos_lon, sin_lon, cos_lat, sin_lat = sphere.directions(spec, rows)
        # add half a turn to the longitude and a quarter to the latitude
        places, large = np.stack([-sin_lat, cos_lat, -cos_lon, -sin_lon]), table.nbytes >= LARGE
        _fill(places, steps, scale, first, row_step, step, large, columns, block, tile)


def _recurrence(count: int) -> np.ndarray:
    """a_lm and a_lm b_lm of P_lm = a_lm (x P_(l-1)m - b_lm P_(l-2)m), m < l, with each P normalised by its K_lm.

    The result (L, L + 1, 2) is indexed by order and degree. At l = m, it has the factor a_mm of
    P_mm = -a_mm sin(theta) P_(m-1)(m-1).
    """
    order, degree = np.ogrid[0.0:count, 0.0 : count + 1]
    with np.errstate(divide="ignore", invalid="ignore"):  # for l <= m, which is not used
        a = np.sqrt((4 * degree**2 - 1) / (degree**2 - order**2))
        b = np.sqrt(((degree - 1) ** 2 - order**2) / (4 * (degree - 1) ** 2 - 1))
    steps = np.stack([np.triu(a, 1), np.triu(a * b, 2)], axis=-1)
    later = np.arange(1, count)
    steps[later, later, 0] = np.sqrt((2 * later + 1) / (2 * later))
    return steps


_LOWEST, _ROOT = math.sqrt(1 / (4 * math.pi)), math.sqrt(2)


@entry(label="spherical harmonics")
def _fill(
    places: np.ndarray, steps: np.ndarray, scale: float, first: np.ndarray, row_step: int, step: int, large: bool,
    columns: np.ndarray, block: np.ndarray, tile: np.ndarray,
) -> None:  # fmt: skip
    # lanes are positions; the steps of one order depend on each other, but the processor can run steps of the next
    # order at the same time
    width, dim, count = lanes(splat(0.0)), block.shape[1], places.shape[1]
    rows = 4 * width
    for i in range(0, count, rows):
        for k in range(0, rows, width):
            place, left = at(pointer(places), i + k), count - i - k
            _harmonics(place, count, left, steps, scale, at(pointer(columns), k), rows, dim)
        columns_to_table(
            pointer(columns), rows, min(rows, count - i), dim, pointer(block), pointer(tile),
            at(pointer(first), i * row_step), row_step, step, large,
        )  # fmt: skip
    finish(large)


@inner
def _harmonics(place, stride, left, steps, scale, column, rows, dim):  # type: ignore[no-untyped-def]
    """Process one vector of positions: channel c is written to column[c * rows]."""
    width, orders = lanes(splat(0.0)), steps.shape[0]
    x, up = load_first(place, 0, left), load_first(place, stride, left)
    turn_cos, turn_sin = load_first(place, 2 * stride, left), load_first(place, 3 * stride, left)
    cosine, sine, corner = splat(scale * _ROOT), splat(0.0), splat(_LOWEST)  # cos and sin of m alpha, and P_mm
    for m in range(orders):
        if m > 0:
            cosine, sine = fma(cosine, turn_cos, minus(sine * turn_sin)), fma(cosine, turn_sin, sine * turn_cos)
            corner = minus(splat(steps[m, m, 0]) * up * corner)
        even = cosine if m > 0 else splat(scale)
        older, height = splat(0.0), corner
        for degree in range(m, orders):
            middle = degree * degree + degree
            if middle + m < dim:
                store_rounded(at(column, (middle + m) * rows), 0, height * even, width)
            if m > 0 and middle - m < dim:
                store_rounded(at(column, (middle - m) * rows), 0, height * sine, width)
            ahead, back = splat(steps[m, degree + 1, 0]), splat(steps[m, degree + 1, 1])
            older, height = height, fma(ahead * x, height, minus(back * older))


ENCODING = Encoding(
    summary="spherical harmonics of a point, added",
    formula=r"""
        \mathrm{PE}[l^2 + l + m] &= Y_{lm}(\theta, \alpha), \quad l = 0, \dots, L - 1, \quad m = -l, \dots, l \\
        Y_{lm} &= \begin{cases}
        K_{l0} P_{l0}(\cos \theta) & m = 0 \\
        \sqrt{2}\, K_{lm} \cos(m \alpha) P_{lm}(\cos \theta) & m > 0 \\
        \sqrt{2}\, K_{l \left| m \right|} \sin(\left| m \right| \alpha) P_{l \left| m \right|}(\cos \theta) & m < 0
        \end{cases} \\
        K_{lm} &= \sqrt{\frac{2 l + 1}{4 \pi} \frac{(l - m)!}{(l + m)!}}
    """,
    use_when="inputs are points on a sphere, detail matters, and no direction or pole may be special",
    also_called=("spherical harmonics",),
    use="other",
    needs=Needs("coordinates"),
    slots=("table",),
    options={
        "degrees": Option(
            None, "number of degrees; none: as many as the channels allow", int, minimum=1, optional=True
        ),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="defined",
    direction="yes",
    source="Rußwurm et al. 2024, arXiv:2310.06743, and released code",
    ulp=lambda spec, degrees, scale: 16.0 + 8.0 * _degrees(spec, degrees),
    axes=sphere.two,
)
