"""Chebyshev polynomials of a bounded map of the position, added to the embeddings.

    PE[p, l] = T_l(x(p)) = cos(l arccos x(p)),   l = 0 .. C - 1,   or   U_l(x) = sin((l + 1) arccos x) / sin(arccos x)
    T_0 = 1,  T_1 = x,  T_{l+1} = 2 x T_l - T_{l-1},                    U_0 = 1,  U_1 = 2x,  U_{l+1} = 2 x U_l - U_{l-1}

Source: Li (2025), "Theoretical Analysis of Positional Encodings in Transformer Models", section 8, names Chebyshev
polynomials as an extension but gives no formula. This encoding is the paper's Legendre encoding (section 6.2) with
Chebyshev polynomials instead.

**Slot**: `table` (N, C). **Learns**: nothing by default; with the option `learned`, the number `gamma` (1,) of the map
`tanh`.

**Options** (N is the training length, not the length of the sequence)
- `kind`: 1 for T_l, 2 for U_l, both with the usual normalisation. To get U_l / (l + 1), which is 1 at x = 1, use
  `gegenbauer` with alpha = 1.
- `map`: how a position becomes x. `tanh`: tanh(gamma p / N). `clamp`: 2 min(p, N)/N - 1, and -1 for negative p.
- `gamma`: the steepness of `tanh`.
- `learned`: whether gamma is learned. The option `gamma` then sets its initial value. Only for the map `tanh`.
- `scale`: multiplies the table.

Positions may be real numbers.

**Past the training length**: defined. With `tanh`, rows tend to the all-ones vector; with `clamp`, they are equal to
it. For the second kind, this vector is 1, 2, ..., C instead.

**Facts.** |T_l| is at most 1, and all zeros and extrema of T_l lie at cos(k pi / (2l)), so they are densest near x = -1
and 1. Legendre polynomials resolve x less finely there, and their values shrink inside the interval. |U_l| is at most 1
/ sqrt(1 - x^2). The U_l are orthogonal with the weight sqrt(1 - x^2), the T_l with the weight 1 / sqrt(1 - x^2).

**Traps.** With gamma = 1, x is only tanh 1 = 0.76 at the training length. For positions >= 0, `tanh` uses only x >= 0,
half of the interval on which the polynomials are orthogonal. The norm of a row of the second kind grows towards x = 1,
up to sqrt(C (C+1) (2C+1) / 6), which is 299 for C = 64. With `tanh`, such rows occur beyond the training length; with
`clamp`, within it.

**Accuracy.** The error of x is at most 2^-51. It is multiplied by the slope |T_l'|, which is at most l^2 in [-1, 1].
The recurrence adds a similar error. An entry is within (l^2 + 8l) 2^-51 of the exact value, regardless of its size; for
the second kind this bound is multiplied by l + 1.
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
    spec: Spec, params: dict[str, Any], *, kind: int, map: str, gamma: float, learned: bool, scale: float
) -> dict[str, Any]:
    """Li 2025, eqs. (10) and (11), with NumPy's Chebyshev polynomials; U_l as 2 (T_l + T_{l-2} + ...)."""
    p, n = spec.points(), spec.train_length
    if learned:
        gamma = float(params["gamma"][0])
    x = np.tanh(gamma * p / n) if map == "tanh" else 2.0 * np.minimum(np.maximum(p, 0.0), n) / n - 1.0
    table = np.polynomial.chebyshev.chebvander(x, spec.dim - 1)
    if kind == 2:
        table[..., 1:] *= 2.0
        for first in (0, 1):
            table[..., first::2] = np.cumsum(table[..., first::2], axis=-1)
    return {"table": scale * table}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, kind: int, **options: Any) -> None:
    """Fill `table`."""
    follow = follows(0.0, spec.dim) if kind == 1 else np.ones(spec.dim)
    fill_polynomials(spec, params, out["table"], follow, **options)


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, kind: int, scale: float,
    **options: Any,
) -> None:  # fmt: skip
    """dgamma = sum over p and l of dPE[p, l] P_l'(x) (p/N) (1 - x^2), with P_l = T_l or U_l; T_l' = l U_{l-1}."""
    degree = np.arange(float(spec.dim))
    if kind == 1:
        factor, follow = degree, np.ones(spec.dim)
    else:
        factor, follow = (degree + 1.0) * slopes(1.0, spec.dim), follows(2.0, spec.dim)
    add_gradient(spec, params, dslots["table"], dparams["gamma"], factor, follow, scale)


ENCODING = Encoding(
    summary="Chebyshev polynomials of the bounded position",
    formula=r"""
        \mathrm{PE}[p, l] &= T_l(x(p)) = \cos(l \arccos x(p)), \quad l = 0, \dots, C - 1 \\
        &\text{or } U_l(x) = \frac{\sin((l + 1) \arccos x)}{\sin(\arccos x)} \\
        T_0 &= 1, \quad T_1 = x, \quad T_{l+1} = 2 x T_l - T_{l-1} \\
        U_0 &= 1, \quad U_1 = 2 x, \quad U_{l+1} = 2 x U_l - U_{l-1}
    """,
    use_when="you compare polynomials as features of the position, after section 8 of Li (2025)",
    not_to_be_confused={
        "PoPE (arXiv:2405.04585)": "a polynomial encoding with Legendre polynomials: `legendre`",
    },
    use="study",
    slots=("table",),
    options={
        "kind": Option(1, "1: first kind, cos(n arccos x); 2: second kind", int, minimum=1, maximum=2, samples=(1, 2)),
        "map": Option("tanh", "how a position becomes x", str, ("tanh", "clamp")),
        "gamma": Option(1.0, "steepness of the map tanh", float, above=0.0),
        "learned": Option(False, "whether gamma is learned", bool),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="defined",
    direction="yes",
    source="Li 2025, section 8 (named there; the formula follows section 6.2)",
    ulp=lambda spec, **options: 4.0 + 4.0 * spec.dim**2,
    check=check,
    parameters=parameters,
    init=init,
)
