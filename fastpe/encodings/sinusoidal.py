"""Sines and cosines of geometrically spaced frequencies, added to the embeddings.

    PE[p, 2t]   = sin(p / base^(2t/C))
    PE[p, 2t+1] = cos(p / base^(2t/C))         t = 0 .. ceil(C/2) - 1

Source: Vaswani et al. 2017, "Attention Is All You Need" (arXiv:1706.03762), section 3.5; Li (2025), eqs. (1) and (2).

**Slot**: `table` (N, C). **Learns**: nothing. An odd width C drops the last cosine.

**Options**
- `base`: the slowest frequency is about 1/base.
- `scale`: multiplies the table.

Positions may be real or negative. The phase p * base^(-2t/C) is formed without rounding, so values are right to about
one unit in the last place up to position 2**24 in size, where the usual float64 product is wrong in the ninth digit
and the float32 product in the first.

**Past the training length**: defined. No two integers have the same vector, at any length: already the first pair
differs, as no two integers are a multiple of 2 pi apart. (That the encoding repeats after base^(2t/C) positions, or
is ambiguous beyond 10000, is said of it but false.)

**Facts.** For even C every row has the norm scale * sqrt(C/2), and the product of two rows depends on their distance
alone.

**Traps.** The norm sqrt(C/2) swamps embeddings of standard deviation 0.02; the authors multiply those by sqrt(C)
first. Much code (tensor2tensor and its descendants) concatenates sines and cosines and has a slowest frequency of
exactly 1e-4: that is another table. The sine and the cosine of a pair share one frequency.
"""

from decimal import Decimal, localcontext
from typing import Any

import numpy as np

from fastpe.encoding import Encoding, Option, Spec
from fastpe.encodings._trig import PI, frequencies, sincos
from fastpe.kernels._jit import entry


def reference(spec: Spec, params: dict[str, Any], *, base: float, scale: float) -> dict[str, Any]:
    """The table of Vaswani et al. 2017, section 3.5; angles in 60 decimal digits, then NumPy's sine and cosine."""
    points = spec.points()
    angles = np.empty((points.size, (spec.dim + 1) // 2))
    quarters = np.empty(angles.shape, dtype=np.int64)
    with localcontext() as context:
        context.prec = 60
        context.Emin, context.Emax = -999999, 999999
        omega = [1 / Decimal(base) ** (Decimal(2 * t) / spec.dim) for t in range(angles.shape[1])]
        for i, p in enumerate(points.ravel().tolist()):
            for t, frequency in enumerate(omega):
                angle = Decimal(p) * frequency
                turns = (angle / (PI / 2)).to_integral_value()
                angles[i, t] = float(angle - turns * (PI / 2))
                quarters[i, t] = int(turns) % 4
    sine, cosine = np.sin(angles), np.cos(angles)
    table = np.empty((points.size, spec.dim))
    table[:, 0::2] = np.choose(quarters, [sine, cosine, -sine, -cosine])
    table[:, 1::2] = np.choose(quarters, [cosine, -sine, -cosine, sine])[:, : spec.dim // 2]
    return {"table": scale * table.reshape((*points.shape, spec.dim))}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, base: float, scale: float) -> None:
    """Fill `table`."""
    _fill(spec.points().ravel(), frequencies(base, spec.dim), scale, out["table"].reshape(-1, spec.dim))


@entry(label="sinusoidal table")
def _fill(points: np.ndarray, omega: np.ndarray, scale: float, table: np.ndarray) -> None:
    pairs = table.shape[1] // 2
    for i in range(points.shape[0]):
        p = points[i]
        for t in range(pairs):
            sine, cosine = sincos(p, omega[0, t], omega[1, t])
            table[i, 2 * t] = scale * sine
            table[i, 2 * t + 1] = scale * cosine
        if table.shape[1] > 2 * pairs:
            table[i, 2 * pairs] = scale * sincos(p, omega[0, pairs], omega[1, pairs])[0]


ENCODING = Encoding(
    slots=("table",),
    options={
        "base": Option(10000.0, "the slowest frequency is about 1/base", float, minimum=1.0),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="defined",
    source="Vaswani et al. 2017, arXiv:1706.03762, section 3.5",
    ulp=2.0,
    reference=reference,
    fill=fill,
)
