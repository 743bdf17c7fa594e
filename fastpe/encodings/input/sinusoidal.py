"""Sines and cosines of geometrically spaced frequencies, added to the embeddings.

    PE[p, 2t]   = sin(p / base^(2t/C))
    PE[p, 2t+1] = cos(p / base^(2t/C))         t = 0 .. ceil(C/2) - 1

Source: Vaswani et al. 2017, "Attention Is All You Need" (arXiv:1706.03762), section 3.5; Li (2025), eqs. (1) and (2).

**Slot**: `table` (N, C). **Learns**: nothing. An odd width C drops the last cosine.

**Options**
- `base`: the slowest frequency is about 1/base.
- `layout`: the order of the channels. `interleaved`: as above. `concatenated`: all sines, then all cosines, with the
  same frequencies.
- `scale`: multiplies the table.

Positions may be any real numbers, including negative ones. The phase p * base^(-2t/C) is computed without rounding. At
positions up to ±2**24, the error of a float32 entry is at most 0.51 units in the last place. The error of a float64
entry is at most 1 unit, or 1.5 units if it is multiplied by `scale`. If the phase were a rounded product, as usual,
entries near position 2**24 would be wrong in the ninth digit (float64) or in the first digit (float32).

**Speed.** Arithmetic is the bottleneck. In a float32 table of consecutive positions, a 64-byte vector of entries takes
13 vector operations: products, conversions, the interleaving, and a check for cancellation. At 3 GHz and one operation
per cycle, this gives 15 GB/s. These 13 operations are enough because sines and cosines are computed only for the first
row of each block of 32 rows; the other rows are rotations of it. In float64 the error of a rotation would be visible,
so every sine and cosine is computed directly. A vector of sines and a vector of cosines together take 55 operations,
which gives 7 GB/s.

**Past the training length**: defined. No two integers have the same vector, at any length: already their first pairs
differ, because the difference of two integers is never a multiple of 2 pi. (It is sometimes said that the encoding
repeats after base^(2t/C) positions, or is ambiguous beyond 10000; this is false.)

**Facts.** For even C every row has the norm scale * sqrt(C/2), and the dot product of two rows depends only on their
distance.

**Traps.** The norm sqrt(C/2) is much larger than that of embeddings with standard deviation 0.02; the authors multiply
embeddings by sqrt(C) first. Much code (tensor2tensor and its descendants) concatenates sines and cosines *and* has a
slowest frequency of exactly 1e-4: that is a different table, `sinusoidal_t2t`. The sine and the cosine of a pair share
one frequency.
"""

from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Reported
from fastpe.encodings.parts.frequencies import frequencies
from fastpe.encodings.parts.row_blocks import points_of
from fastpe.encodings.parts.sinusoid import LAYOUTS, exact, fill_sinusoid, geometric
from fastpe.encodings.slots import Spec


def reference(spec: Spec, params: dict[str, Any], *, base: float, layout: str, scale: float) -> dict[str, Any]:
    """The table of Vaswani et al. 2017, section 3.5, with angles in 60 decimal digits and NumPy's sine and cosine."""
    points = spec.points()
    sine, cosine = exact(points, geometric(base, (spec.dim + 1) // 2, spec.dim / 2))
    table = np.empty((*points.shape, spec.dim))
    table[..., 0::2], table[..., 1::2] = sine, cosine[..., : spec.dim // 2]
    if layout == "concatenated":
        table = np.concatenate([table[..., 0::2], table[..., 1::2]], axis=-1)
    return {"table": scale * table}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, base: float, layout: str, scale: float) -> None:
    """Fill `table`."""
    omega = frequencies(base, spec.dim)
    fill_sinusoid(out["table"], lambda rows: points_of(spec, rows), omega, layout=layout, scale=scale)


ENCODING = Encoding(
    summary="sines and cosines of geometric frequencies, added",
    formula=r"""
        \mathrm{PE}[p, 2t] &= \sin\left(p / \mathrm{base}^{2t/C}\right) \\
        \mathrm{PE}[p, 2t + 1] &= \cos\left(p / \mathrm{base}^{2t/C}\right) \quad t = 0, \dots, \lceil C/2 \rceil - 1
    """,
    use_when="exact order matters, nothing may be learned, and no sequence is longer than in training",
    also_called=("sinusoidal position encoding", "sine-cosine encoding"),
    not_to_be_confused={"sinusoidal_t2t": "sines first, and other frequencies; much code calls it sinusoidal"},
    use="earlier",
    slots=("table",),
    options={
        "base": Option(10000.0, "the slowest frequency is about 1/base", float, minimum=1.0),
        "layout": Option("interleaved", "the order of the channels", str, LAYOUTS),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="defined",
    direction="yes",
    source="Vaswani et al. 2017, arXiv:1706.03762, section 3.5",
    reported=Reported(
        "fails",
        "Trained on 1024 tokens: perplexity improves for 50 more, then rises, from 19.3 to 51 at 2024 and 453 "
        "at 16024.",
        "Press, Smith and Lewis 2021, arXiv:2108.12409, section 2.2 and table 3",
    ),
    ulp=2.0,
)
