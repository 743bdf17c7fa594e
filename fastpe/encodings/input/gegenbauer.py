"""Gegenbauer polynomials of a bounded map of the position, added to the embeddings.

    PE[p, l] = R_l(x(p)) = C_l^(alpha)(x(p)) / C_l^(alpha)(1),   l = 0 .. C - 1
    R_0 = 1,  R_1 = x,  (l + 2 alpha) R_{l+1} = 2 (l + alpha) x R_l - l R_{l-1}

Source: our own construction, after the Legendre encoding of Li (2025), "Theoretical Analysis of Positional Encodings in
Transformer Models", section 6.2. Ultraspherical polynomials (Szego 1939, "Orthogonal Polynomials", section 4.7) replace
the Legendre polynomials. Li's section 8 names members of this family.

**Slot**: `table` (N, C). **Learns**: nothing by default; with the option `learned`, the number `gamma` (1,) of the map
`tanh`.

**Options** (N is the training length, not the length of the sequence)
- `alpha`: a number larger than -1/2. The polynomials are orthogonal on [-1, 1] with the weight (1 - x^2)^(alpha - 1/2).
  For alpha = 1/2 the values equal the values of `legendre` bit for bit. For alpha = 0, which is defined as the limit,
  they equal the values of `chebyshev`. alpha = 1 gives U_l / (l + 1), where U_l is Chebyshev's polynomial of the second
  kind.
- `map`: how a position becomes x. `tanh`: tanh(gamma p / N). `clamp`: 2 min(p, N)/N - 1. `log`:
  2 min(1, ln(1+p)/ln(1+N)) - 1. `clamp` and `log` treat a negative position as 0.
- `gamma`: the steepness of `tanh`.
- `learned`: whether gamma is learned. The option `gamma` then sets its initial value. Only for the map `tanh`.
- `scale`: multiplies the table.

Positions may be real numbers.

**Past the training length**: defined. For every alpha, rows tend to the all-ones vector with `tanh`; with the other
maps, they are equal to it.

**Facts.** For alpha >= 0 no entry exceeds 1 in absolute value. As alpha grows, R_l tends to x^l. Away from x = -1 and
1, the entries with large l then become small, so fewer columns matter. For alpha < 0 entries exceed 1 inside the
interval, without bound as alpha approaches -1/2.

**Traps.** At x = 1, the usual polynomial C_l^(alpha) is not 1 but 2 alpha (2 alpha + 1) .. (2 alpha + l - 1) / l!,
which grows or shrinks like l^(2 alpha - 1). With gamma = 1, x is only tanh 1 = 0.76 at the training length. For
positions >= 0, `tanh` uses only x >= 0, half of the interval on which the polynomials are orthogonal.

**Accuracy.** The error of x is at most 2^-51. For alpha >= 0, the largest slope of R_l is R_l'(1) = l (l + 2 alpha) /
(2 alpha + 1). An entry is within (2 R_l'(1) + 8l) 2^-51 of the exact value; for alpha < 0 this bound is multiplied by
the largest entry.
"""

from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts.polynomials import (
    add_gradient,
    check,
    fill_polynomials,
    follows,
    init,
    parameters,
    slopes,
)
from fastpe.encodings.slots import Spec


def reference(
    spec: Spec, params: dict[str, Any], *, alpha: float, map: str, gamma: float, learned: bool, scale: float
) -> dict[str, Any]:
    """Szego 1939, eq. (4.7.17), divided by the values at 1."""
    p, n = spec.points(), spec.train_length
    if learned:
        gamma = float(params["gamma"][0])
    x = {
        "tanh": lambda: np.tanh(gamma * p / n),
        "clamp": lambda: 2.0 * np.minimum(np.maximum(p, 0.0), n) / n - 1.0,
        "log": lambda: 2.0 * np.minimum(1.0, np.log(1.0 + np.maximum(p, 0.0)) / np.log(1.0 + n)) - 1.0,
    }[map]()
    columns = [np.ones_like(x), x][: spec.dim]
    for degree in range(1, spec.dim - 1):
        share = degree / (degree + 2.0 * alpha)
        columns.append((1.0 + share) * x * columns[degree] - share * columns[degree - 1])
    return {"table": scale * np.stack(columns, axis=-1)}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, alpha: float, **options: Any) -> None:
    """Fill `table`."""
    fill_polynomials(spec, params, out["table"], follows(alpha, spec.dim), **options)


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, alpha: float, scale: float,
    **options: Any,
) -> None:  # fmt: skip
    """dgamma = sum over p and l of dPE[p, l] R_l'(x) (p/N) (1 - x^2), with R_l' from R_{l-1} for alpha + 1."""
    factor, follow = slopes(alpha, spec.dim), follows(alpha + 1.0, spec.dim)
    add_gradient(spec, params, dslots["table"], dparams["gamma"], factor, follow, scale)


ENCODING = Encoding(
    summary="ultraspherical polynomials of the bounded position",
    formula=r"""
        \mathrm{PE}[p, l] &= R_l(x(p)) = \frac{C_l^{(\alpha)}(x(p))}{C_l^{(\alpha)}(1)}, \quad l = 0, \dots, C - 1 \\
        R_0 &= 1, \quad R_1 = x \\
        (l + 2 \alpha) R_{l+1} &= 2 (l + \alpha) x R_l - l R_{l-1}
    """,
    use_when="you compare families of orthogonal polynomials, such as Legendre and Chebyshev",
    also_called=("ultraspherical polynomials",),
    not_to_be_confused={
        "PoPE (arXiv:2405.04585)": "a polynomial encoding with Legendre polynomials: `legendre`",
    },
    use="study",
    slots=("table",),
    options={
        "alpha": Option(
            1.0, "parameter of the family of polynomials", float, above=-0.5, samples=(2.5, -0.4, 0.0, 0.5)
        ),
        "map": Option("tanh", "how a position becomes x", str, ("tanh", "clamp", "log")),
        "gamma": Option(1.0, "steepness of the map tanh", float, above=0.0),
        "learned": Option(False, "whether gamma is learned", bool),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="defined",
    direction="yes",
    source="own construction, after Li 2025, section 6.2; polynomials: Szego 1939, section 4.7",
    ulp=lambda spec, alpha, **options: 4.0 + 4.0 * spec.dim * (2.0 + spec.dim / (2.0 * alpha + 1.0)),
    check=check,
    parameters=parameters,
    init=init,
)
