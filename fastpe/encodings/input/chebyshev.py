"""Chebyshev polynomials of a bounded map of the position, added to the embeddings.

    PE[p, l] = T_l(x(p)) = cos(l arccos x(p)),   l = 0 .. C - 1
    T_0 = 1,  T_1 = x,  T_{l+1} = 2 x T_l - T_{l-1}

Source: named as an extension by Li (2025), "Theoretical Analysis of Positional Encodings in Transformer Models",
section 8, without a formula; this is its Legendre encoding (section 6.2) with the other polynomials.

**Slot**: `table` (N, C). **Learns**: nothing, or with `learned` the number `gamma` (1,) of the map `tanh`.

**Options** (N is the training length, whatever the sequence's)
- `map`: how a position becomes x. `tanh`: tanh(gamma p / N). `clamp`: 2 min(p, N)/N - 1, and -1 for negative p.
- `gamma`: the steepness of `tanh`.
- `learned`: learn gamma, starting at `gamma`; needs the map `tanh`.
- `scale`: multiplies the table.

Positions may be real.

**Past the training length**: defined. `tanh` tends to the all-ones vector, `clamp` stays at it.

**Facts.** Every entry is at most 1 in size, and all zeros and extrema of T_l lie at cos(k pi / (2l)): x near -1 or 1 is
resolved more finely than by Legendre polynomials, whose values shrink in between.

**Traps.** gamma = 1 reaches only x = tanh 1 = 0.76 at the training length; `tanh` uses only x >= 0, half of the
interval on which the polynomials are orthogonal.

**Accuracy.** x is off by at most 2^-51 and |T_l'| is up to l^2 in [-1, 1]; the recurrence adds as much. So an entry is
within (l^2 + 8l) 2^-51 of the exact one, whatever its own size.
"""

from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts.polynomials import fill_polynomials
from fastpe.encodings.slots import Spec
from fastpe.kernels._jit import entry


def check(spec: Spec, *, map: str, learned: bool, **options: Any) -> None:
    """gamma is learned with the map `tanh` only."""
    if learned and map != "tanh":
        raise ValueError(f"option 'learned' needs map 'tanh', which has a gamma, not map {map!r}")


def parameters(spec: Spec, *, learned: bool, **options: Any) -> dict[str, tuple[int, ...]]:
    """gamma, where it is learned."""
    return {"gamma": (1,)} if learned else {}


def init(spec: Spec, rng: Any, *, gamma: float, learned: bool, **options: Any) -> dict[str, Any]:
    """The option `gamma`."""
    return {"gamma": np.array([gamma])} if learned else {}


def reference(
    spec: Spec, params: dict[str, Any], *, map: str, gamma: float, learned: bool, scale: float
) -> dict[str, Any]:
    """Li 2025, eqs. (10) and (11), with NumPy's own Chebyshev polynomials."""
    p, n = spec.points(), spec.train_length
    if learned:
        gamma = float(params["gamma"][0])
    x = np.tanh(gamma * p / n) if map == "tanh" else 2.0 * np.minimum(np.maximum(p, 0.0), n) / n - 1.0
    return {"table": scale * np.polynomial.chebyshev.chebvander(x, spec.dim - 1)}


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, map: str, gamma: float, learned: bool, scale: float
) -> None:
    """Fill `table`."""
    if learned:
        gamma = float(params["gamma"][0])
    follows = np.ones(spec.dim)
    follows[0] = 0.0
    fill_polynomials(spec, out["table"], follows, map=map, gamma=gamma, scale=scale)


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, scale: float, **options: Any
) -> None:
    """dgamma = sum over p and l of dPE[p, l] T_l'(x) (p/N) (1 - x^2)."""
    ratio = spec.points().ravel() / spec.train_length
    x = np.tanh(float(params["gamma"][0]) * ratio)
    slope = scale * ratio * (1.0 - x) * (1.0 + x)
    _pull(x, slope, dslots["table"].reshape(-1, spec.dim), dparams["gamma"])


@entry(label="gradient of Chebyshev's gamma")
def _pull(x: np.ndarray, slope: np.ndarray, dtable: np.ndarray, dgamma: np.ndarray) -> None:
    # T_l' = l U_{l-1}, and U_l = 2 x U_{l-1} - U_{l-2}
    total = 0.0
    for i in range(x.shape[0]):
        older, value, along = 0.0, 1.0, 0.0
        for degree in range(1, dtable.shape[1]):
            along += float(dtable[i, degree]) * degree * value
            older, value = value, 2.0 * x[i] * value - older
        total += along * slope[i]
    dgamma[0] += total


ENCODING = Encoding(
    summary="polynomials cos(n arccos x) of the bounded position",
    slots=("table",),
    options={
        "map": Option("tanh", "how a position becomes x", str, ("tanh", "clamp")),
        "gamma": Option(1.0, "steepness of the map tanh", float, above=0.0),
        "learned": Option(False, "whether gamma is learned", bool),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="defined",
    direction="yes",
    source="Li 2025, section 8 (named there; the formula follows section 6.2)",
    ulp=lambda spec, **options: 4.0 + 4.0 * spec.dim**2,
)
