"""STRING: a learned orthogonal map of query and key, followed by RoPE with learned frequencies.

    R(x) = RoPE(x) P,   angle of pair t = sum_k x_k f_kt
    cayley:      P = (I - S) (I + S)^-1, S learned and skew-symmetric, f learned
    circulant:   P^T R(x) = exp(sum_k x_k (C_k - C_k^T)); C_k is circulant, and its first column c_k is learned

Source: Schenck et al. 2025, "Learning the RoPEs: Better 2D and 3D Position Encodings with STRING" (arXiv:2502.02562),
definition 3.1, theorem 3.4, eqs. (9) to (11).

**Slots**: `rotors` (H or 1, 1, 1, D, D), which holds P; `angles` (H, N, D/2); and `pairs`. **Learns**, separately in
every layer: with the form `cayley`, `skew` (H, D (D - 1) / 2), the upper triangle of S row by row, and `frequencies` f
(H, n, D/2), in radians per position. With the form `circulant`, it learns `circulant` (H, n, D), the columns c.

**Circulant.** The Fourier transform diagonalises all C_k: a query or key z at position x becomes ifft(exp(x lambda)
fft(z)), where lambda = 2i Im fft(c). So P is the real Fourier transform. Its rows are sqrt(2/D) cos(2 pi b m / D) and
sqrt(2/D) sin(2 pi b m / D) for the bins b = 1 .. D/2 - 1. Each of these bins is a pair of channels and has the
frequency f_b = 2 sum_m c_m sin(2 pi b m / D). The bins 0 and D/2 form the last pair, which is not rotated.

**Initial values.** S = 0, so P = I. The frequencies are those of `rope`, assigned to the axes in turn: pair t rotates
along axis t mod n, with the frequency base^(-2t/D). The columns c are chosen such that bin t + 1 has the frequencies of
pair t. (The paper does not give initial values; here both forms initially equal a rotary encoding.)

**Options**
- `form`: `cayley` or `circulant`.
- `base`: the slowest initial frequency is about 1/base.
- `pairs`: as for `rope`.
- `coordinates`: n, the number of coordinates of a position.
- `grid`: if n > 1, the sides of the grid that the tokens form in raster order.

x is the position: the index of the token or, if n > 1, its cell in the grid. If you pass positions, they are x, and may
be real numbers.

**Past the training length**: defined.

**Accuracy.** The error of an angle is about two unit roundoffs. P is computed by solving P (I + S) = I - S in float64.
A circulant frequency is a sum of D products, and its rounding error is multiplied by the position.

**Facts.** Let R(x) be smooth, with R(0) = I, and let the score of positions x and y depend only on y - x. Then R(x) =
P^T RoPE(x) P, where P is orthogonal and the same for all positions (theorem 3.4). The P^T on the left cancels in a
score, and the P on the right could be a part of the query and key projections. Learning P therefore changes how a model
learns, not which functions it can represent.

**Traps.** With -S instead of S, P becomes its inverse; eq. (10) can also be read in this way. With the form
`circulant`, only the differences c_m - c_(D-m) have an effect, so half of the numbers in c are redundant.
"""

import math
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts import generators as parts
from fastpe.encodings.parts.angles import Array, fill_angles, precise, pull_angles, turns_of
from fastpe.encodings.parts.generators import Grid
from fastpe.encodings.parts.rotary import base_option, pairs_option, plain_pairs, rotated_width
from fastpe.encodings.slots import Spec
from fastpe.kernels.fills.trig import PI


def check(spec: Spec, *, coordinates: int, grid: Grid, **options: Any) -> None:
    """Require an even head width, and a grid with one cell for each token."""
    rotated_width(spec, None)
    parts.check_places(spec, coordinates=coordinates, grid=grid)


def shapes(spec: Spec, *, form: str, **options: Any) -> dict[str, tuple[int, ...]]:
    """One map for each head or for all heads, and angles for each head."""
    d, maps = rotated_width(spec, None), 1 if form == "circulant" else spec.heads
    return {"rotors": (maps, 1, 1, d, d), "angles": (*spec.batch, spec.heads, spec.length, d // 2)}


def parameters(spec: Spec, *, form: str, coordinates: int, **options: Any) -> dict[str, tuple[int, ...]]:
    """For each head, the triangle of S and the frequencies; or, with the form `circulant`, a column c for each axis."""
    d = rotated_width(spec, None)
    if form == "circulant":
        return {"circulant": (spec.heads, coordinates, d)}
    return {"skew": (spec.heads, d * (d - 1) // 2), "frequencies": (spec.heads, coordinates, d // 2)}


def init(spec: Spec, rng: Any, *, form: str, base: float, coordinates: int, **options: Any) -> dict[str, Any]:
    """S = 0, or the columns c of least norm that give the initial frequencies: those of `rope`, assigned to the axes in
    turn."""
    shape = parameters(spec, form=form, coordinates=coordinates)
    t = np.arange(spec.head_dim // 2)
    ladder = base ** (-2.0 * t / spec.head_dim) * (t % coordinates == np.arange(coordinates)[:, None])
    if form == "circulant":
        # sines of different bins are orthogonal, and the squares of each sum to D/2
        columns = (ladder[:, :-1, None] * _sines(spec.head_dim)).sum(axis=1) / spec.head_dim
        return {"circulant": np.broadcast_to(columns, shape["circulant"]).copy()}
    return {"skew": np.zeros(shape["skew"]), "frequencies": np.broadcast_to(ladder, shape["frequencies"]).copy()}


# ---------------------------------------------------------------------------------------------------------------------
# Maps and frequencies


def _skew(upper: Any, d: int) -> Array:
    """S of each head."""
    s = np.zeros((len(upper), d, d))
    s[:, *np.triu_indices(d, 1)] = upper
    return s - np.swapaxes(s, -1, -2)


def _map(s: Array) -> Array:
    """(I - S) (I + S)^-1. As (I + S)^T = I - S, this is the transpose of the solution X of (I - S) X = I + S."""
    unit = np.eye(s.shape[-1])
    return np.swapaxes(np.linalg.solve(unit - s, unit + s), -1, -2)


@lru_cache(maxsize=16)
def _waves(d: int) -> tuple[Array, Array]:
    """cos and sin of 2 pi b m / D for the bins b = 1 .. D/2 - 1, each (D/2 - 1, D); the angles are reduced exactly."""
    part = np.arange(1, d // 2)[:, None] * np.arange(d) % d * (2 * math.pi / d)
    found = np.cos(part), np.sin(part)
    for each in found:
        each.flags.writeable = False
    return found


def _sines(d: int) -> Array:
    return _waves(d)[1]


def _transform(d: int, pairs: str) -> Array:
    """The real Fourier transform: cosine and sine of bin t + 1 for pair t, and the bins 0 and D/2 for the last pair."""
    cosines, sines = _waves(d)
    found = np.empty((2, d // 2, d))
    found[0, :-1], found[1, :-1] = math.sqrt(2 / d) * cosines, math.sqrt(2 / d) * sines
    found[0, -1] = 1 / math.sqrt(d)
    found[1, -1] = found[0, -1] * (-1.0) ** np.arange(d)
    return (found if pairs == "half" else np.swapaxes(found, 0, 1)).reshape(d, d)


def _frequencies(params: dict[str, Any]) -> Array:
    """The frequencies of each head and axis, (H, n, D/2)."""
    if "frequencies" in params:
        return np.asarray(params["frequencies"], np.float64)
    columns = np.asarray(params["circulant"], np.float64)
    found = np.zeros((*columns.shape[:-1], columns.shape[-1] // 2))
    # a sum in a fixed order, which does not depend on the machine's BLAS
    found[..., :-1] = 2 * (columns[..., None, :] * _sines(columns.shape[-1])).sum(axis=-1)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Slots


def reference(
    spec: Spec, params: dict[str, Any], *, form: str, pairs: str, coordinates: int, grid: Grid, **options: Any
) -> dict[str, Any]:  # fmt: skip
    """P = 2 (I + S)^-1 - I, or the Fourier transform of unit vectors; sums of x_k f_kt in Decimal."""
    d = rotated_width(spec, None)
    points = parts.cells(spec, coordinates=coordinates, grid=grid)
    if form == "circulant":
        bins = np.fft.rfft(np.eye(d))
        bins[:, 1:-1] *= math.sqrt(2)
        of_pairs = np.concatenate([bins[:, 1:-1], bins[:, :1] - 1j * bins[:, -1:].real], axis=1) / math.sqrt(d)
        maps = np.stack([of_pairs.real, -of_pairs.imag], axis=-1 if pairs == "interleaved" else 1).reshape(1, d, d)
        maps = np.swapaxes(maps, -1, -2)
        turning = -2 * np.fft.rfft(np.asarray(params["circulant"], np.float64)).imag[..., 1:]
    else:
        maps = 2 * np.linalg.inv(np.eye(d) + _skew(params["skew"], d)) - np.eye(d)
        turning = params["frequencies"]
    angles = np.empty((spec.heads, d // 2, *points.shape[:-1]))
    with precise():
        for place in np.ndindex(angles.shape):
            frequencies = turning[place[0], :, place[1]].tolist()
            terms = zip(frequencies, points[place[2:]].tolist(), strict=True)
            angle = sum((Decimal(f) * Decimal(x) for f, x in terms), Decimal(0))
            angles[place] = float(angle - (angle / (2 * PI)).to_integral_value() * 2 * PI)
    return {
        "rotors": maps[:, None, None],
        "angles": np.moveaxis(np.clip(angles, -math.pi, math.pi), (0, 1), (-3, -1)),
    }


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, form: str, pairs: str, coordinates: int, grid: Grid,
    **options: Any,
) -> None:  # fmt: skip
    """Fill `rotors` and `angles`."""
    d = rotated_width(spec, None)
    circulant = form == "circulant"
    out["rotors"][:, 0, 0] = _transform(d, pairs) if circulant else _map(_skew(params["skew"], d))
    points = parts.cells(spec, coordinates=coordinates, grid=grid)
    fill_angles(points, turns_of(_frequencies(params)), out["angles"])


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, form: str,
    coordinates: int, grid: Grid, **options: Any,
) -> None:  # fmt: skip
    """df_kt = sum of x_k times dangles; dS = G - G^T with G = -(I + P)^T dP (I + S)^-T. With the form `circulant`,
    dc_m = 2 sum over b of df_b sin(2 pi b m / D)."""
    d = rotated_width(spec, None)
    points = parts.cells(spec, coordinates=coordinates, grid=grid)
    turning = pull_angles(points, dslots["angles"])
    if form == "circulant":
        dparams["circulant"] += 2 * (turning[..., :-1, None] * _sines(d)).sum(axis=-2)
        return
    dparams["frequencies"] += turning
    s = _skew(params["skew"], d)
    maps, dmaps = _map(s), dslots["rotors"][:, 0, 0].astype(np.float64)
    # a product with (I + S)^-T = (I - S)^-1 from the right is the transpose of one with (I + S)^-1 from the left
    left = np.swapaxes(np.eye(d) + maps, -1, -2) @ dmaps
    g = -np.swapaxes(np.linalg.solve(np.eye(d) + s, np.swapaxes(left, -1, -2)), -1, -2)
    dparams["skew"] += (g - np.swapaxes(g, -1, -2))[:, *np.triu_indices(d, 1)]


def _ulp(spec: Spec, *, form: str, coordinates: int, **options: Any) -> float:
    of_map = 16.0 + 16.0 * spec.head_dim
    return of_map if form == "cayley" else of_map * (1.0 + coordinates * spec.farthest)


ENCODING = Encoding(
    summary="rotary in a learned basis, learned frequencies",
    formula=r"""
        R(x) &= \mathrm{RoPE}(x)\, P, \quad \text{angle of pair } t = \sum_k x_k f_{kt} \\
        P &= (I - S)(I + S)^{-1}, \quad S \text{ learned and skew-symmetric, } f \text{ learned}
            \quad \text{form } \mathrm{cayley} \\
        R(x) &= \exp\left(\sum_k x_k (C_k - C_k^{\top})\right) \text{ up to an outer map}
            \quad \text{form } \mathrm{circulant} \\
        C_k &\text{ is circulant, its first column } c_k \text{ learned}
    """,
    use_when="inputs have two or three coordinates, and the most general relative rotation should be learned",
    not_to_be_confused={
        "HARoPE": "a learned matrix of any kind for each head before the rotation",
        "STRING (arXiv:2410.18745)": "shifted look-backs that let a RoPE model use its trained length better",
    },
    slots=("rotors", "angles", "pairs"),
    options={
        "form": Option(
            "cayley", "what is learned: a map and frequencies, or circulant columns", str, ("cayley", "circulant")
        ),
        "base": base_option(),
        "pairs": pairs_option("interleaved"),
        "coordinates": parts.COORDINATES,
        "grid": parts.GRID,
    },
    beyond="defined",
    direction="yes",
    use="images",
    source="Schenck et al. 2025, arXiv:2502.02562, definition 3.1 and eqs. (9) to (11)",
    ulp=_ulp,
    plain=plain_pairs,
    axes=lambda *, coordinates, **options: coordinates,
    per_layer=("skew", "frequencies", "circulant"),
)
