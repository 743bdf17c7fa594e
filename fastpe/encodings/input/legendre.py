"""Legendre polynomials of a bounded map of the position, added to the embeddings.

    PE[p, l] = P_l(x(p)),   l = 0 .. C - 1
    P_0 = 1,  P_1 = x,  (l+1) P_{l+1} = (2l+1) x P_l - l P_{l-1}

Source: Li (2025), "Theoretical Analysis of Positional Encodings in Transformer Models", section 6.2: eq. (11) is the
map `tanh`, and eq. (10) is the map `clamp`. Section 5.4 mentions a logarithmic map.

**Slot**: `table` (N, C). **Learns**: nothing by default; with the option `learned`, the number `gamma` (1,) of the map
`tanh`.

**Options** (N is the training length, not the length of the sequence)
- `map`: how a position becomes x. `tanh`: tanh(gamma p / N). `clamp`: 2 min(p, N)/N - 1. `linear`: 2p/N - 1, not
  bounded. `log`: 2 min(1, ln(1+p)/ln(1+N)) - 1. The paper mentions "logarithmic scaling so that x stays bounded"
  without a formula; the formula here is our interpretation.
- `gamma`: the steepness of `tanh`; 1 in section 7 of the paper.
- `learned`: whether gamma is learned; it then starts at the value of the option `gamma`. Only the map `tanh` has a
  gamma.
- `scale`: multiplies the table.

Positions may be real numbers. `clamp` and `log` treat a negative position as 0; `tanh` and `linear` apply their formula
to it.

**Past the training length**: defined. With `tanh`, rows tend to the all-ones vector. With `clamp` and `log`, all rows
at positions p >= N are the all-ones vector. With `linear`, x exceeds 1 and values grow without bound: for example,
P_63(3) = 1.2e47 overflows float32. If a value of the table is not finite, an error is raised.

**Traps.** With gamma = 1, x is only tanh 1 = 0.76 at the training length; x = 0.99 needs gamma = 2.65. For positions >=
0, `tanh` gives only x >= 0. This is half of the interval on which the polynomials are orthogonal, so the columns are
far from orthogonal: the correlation of P_0 and P_1 on [0, 0.99] is 0.866. The norm of a row is not constant: it varies
from 1.47 to 8 for C = 64.

**Accuracy.** x is computed in float64 with an error of at most 2^-51. In [-1, 1] the derivative of P_l is at most
l(l+1)/2, so this error changes P_l by at most l(l+1) 2^-52. The recurrence is computed as P_{l+1} = x P_l + l/(l+1) (x
P_l - P_{l-1}). It is stable and adds an error of at most 8l 2^-52. The error of an entry is at most the sum of these
two bounds, (l(l+1) + 8l) 2^-52; in float32, rounding adds at most half a unit in the last place. The two bounds do not
depend on the size of the entry. Near zeros of P_l, relative errors are therefore large in float64. Even in float32, an
entry below 1e-5 can have an error of more than a unit in the last place. The largest error measured up to degree 512 is
2e-14.
"""

from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import BeyondTrainingLength, Encoding, Reported
from fastpe.encodings.parts import polynomials
from fastpe.encodings.parts.polynomials import add_gradient, fill_polynomials, follows, init, parameters, place, slopes
from fastpe.encodings.slots import Spec


def check(spec: Spec, *, map: str, gamma: float, learned: bool, scale: float) -> None:
    """Allow `learned` only with the map `tanh`, and require a table that is finite in the dtype."""
    polynomials.check(spec, map=map, learned=learned)
    if map != "linear":
        return
    farthest = float(np.abs(place(spec.points(), spec.train_length, map, gamma)).max())
    before, value = 0.0, 1.0
    for degree in range(spec.dim - 1):
        before, value = value, ((2 * degree + 1) * farthest * value - degree * before) / (degree + 1)
    limit = float(np.finfo(spec.dtype).max)
    if not abs(scale) * value <= limit:
        raise BeyondTrainingLength(
            f"'legendre' with map 'linear' is not finite in {spec.dtype} here: P_{spec.dim - 1} at x = {farthest:g} "
            f"exceeds {limit:.1e}; the maps 'tanh', 'clamp' and 'log' stay bounded"
        )


def reference(
    spec: Spec, params: dict[str, Any], *, map: str, gamma: float, learned: bool, scale: float
) -> dict[str, Any]:
    """Li 2025, eqs. (10) and (11), by NumPy's Legendre polynomials."""
    p, n = spec.points(), spec.train_length
    if learned:
        gamma = float(params["gamma"][0])
    x = {
        "tanh": lambda: np.tanh(gamma * p / n),
        "clamp": lambda: 2.0 * np.minimum(np.maximum(p, 0.0), n) / n - 1.0,
        "linear": lambda: 2.0 * p / n - 1.0,
        "log": lambda: 2.0 * np.minimum(1.0, np.log(1.0 + np.maximum(p, 0.0)) / np.log(1.0 + n)) - 1.0,
    }[map]()
    return {"table": scale * np.polynomial.legendre.legvander(x, spec.dim - 1)}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Fill `table`."""
    fill_polynomials(spec, params, out["table"], follows(0.5, spec.dim), **options)


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, scale: float, **options: Any
) -> None:
    """dgamma = sum over p and l of dPE[p, l] P_l'(x) (p/N) (1 - x^2), with P_l' from `gegenbauer` for alpha = 3/2."""
    factor, follow = slopes(0.5, spec.dim), follows(1.5, spec.dim)
    add_gradient(spec, params, dslots["table"], dparams["gamma"], factor, follow, scale)


ENCODING = Encoding(
    summary="Legendre polynomials of the bounded position",
    formula=r"""
        \mathrm{PE}[p, l] &= P_l(x(p)), \quad l = 0, \dots, C - 1 \\
        P_0 &= 1, \quad P_1 = x, \quad (l + 1) P_{l+1} = (2 l + 1) x P_l - l P_{l-1}
    """,
    use_when="you reproduce Li (2025); in our language models it fails right beyond the training length",
    not_to_be_confused={"PoPE (arXiv:2405.04585)": "another paper's encoding by Legendre polynomials"},
    use="study",
    slots=("table",),
    options={
        "map": Option("tanh", "how a position becomes x", str, ("tanh", "clamp", "linear", "log")),
        "gamma": Option(1.0, "steepness of the map tanh", float, above=0.0),
        "learned": Option(False, "whether gamma is learned", bool),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="defined",
    direction="yes",
    source="Li 2025, section 6.2",
    reported=Reported(
        "partly",
        "Running sums, trained at 50: error 0.0022, at 100 0.0078, at 200 0.0215; our reproduction does not "
        "confirm it.",
        "Li 2025, Theoretical Analysis of Positional Encodings in Transformer Models, table 5",
    ),
    ulp=lambda spec, **options: 4.0 + 2.0 * spec.dim**2,
    parameters=parameters,
    init=init,
)
