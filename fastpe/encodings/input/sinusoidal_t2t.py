"""Sines and cosines as in tensor2tensor: all sines first, the slowest frequency exactly 1/base.

    PE[p] = [ sin(p w_0) ... sin(p w_{h-1}) | cos(p w_0) ... cos(p w_{h-1}) | 0 if C is odd ]
    w_t = base^(-t / max(h - 1, 1)),   h = floor(C / 2)

Source: Vaswani et al. 2018, "Tensor2Tensor for Neural Machine Translation" (arXiv:1803.07416), released code:
tensorflow/tensor2tensor, tensor2tensor/layers/common_attention.py, get_timing_signal_1d. The same table is in fairseq,
in TENER and in much code that says it follows Vaswani et al. 2017.

**Slot**: `table` (N, C), C at least 2. **Learns**: nothing.

**Options**
- `base`: the slowest frequency is 1/base.
- `scale`: multiplies the table.

Positions may be any real numbers, including negative ones; accuracy and speed are those of `sinusoidal`.

**Past the training length**: defined, as for `sinusoidal`.

**Traps.** This table differs from the paper's table (`sinusoidal`) in two ways. The channels have a different order,
which a learned map can undo. All frequencies except the first are different, which no map can undo. Some
implementations, such as fairseq's, give the first token the position padding_idx + 1 instead of 0, and set row
padding_idx of the table to zero.
"""

from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Reported
from fastpe.encodings.parts.frequencies import frequencies
from fastpe.encodings.parts.row_blocks import points_of
from fastpe.encodings.parts.sinusoid import exact, fill_sinusoid, geometric
from fastpe.encodings.slots import Spec


def check(spec: Spec, **options: Any) -> None:
    """Require a width for at least one sine and one cosine."""
    if spec.dim < 2:
        raise ValueError(f"dim must be at least 2 for 'sinusoidal_t2t', not {spec.dim}")


def reference(spec: Spec, params: dict[str, Any], *, base: float, scale: float) -> dict[str, Any]:
    """The printed formula, with angles in 60 decimal digits."""
    half = spec.dim // 2
    sine, cosine = exact(spec.points(), geometric(base, half, max(half - 1, 1)))
    zero = np.zeros((*sine.shape[:-1], spec.dim % 2))
    return {"table": scale * np.concatenate([sine, cosine, zero], axis=-1)}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, base: float, scale: float) -> None:
    """Fill `table`."""
    half, table = spec.dim // 2, out["table"]
    omega = frequencies(base, 2 * max(half - 1, 1), half)
    pairs = table[..., : 2 * half]
    fill_sinusoid(pairs, lambda rows: points_of(spec, rows), omega, layout="concatenated", scale=scale)
    table[..., 2 * half :] = 0.0


ENCODING = Encoding(
    summary="sines, then cosines, of geometric frequencies",
    formula=r"""
        \mathrm{PE}[p] &= [\, \sin(p\, w_0) \dots \sin(p\, w_{h-1}) \mid \cos(p\, w_0) \dots \cos(p\, w_{h-1}) \mid 0
            \text{ if } C \text{ is odd} \,] \\
        w_t &= \mathrm{base}^{-t / \max(h - 1, 1)}, \quad h = \lfloor C/2 \rfloor
    """,
    use_when="weights or results come from tensor2tensor, fairseq or code derived from them",
    also_called=("timing signal", "get_timing_signal_1d"),
    not_to_be_confused={"sinusoidal": "the table of the paper: interleaved, with a slowest frequency above 1/base"},
    use="earlier",
    slots=("table",),
    options={
        "base": Option(10000.0, "the slowest frequency is 1/base", float, minimum=1.0),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="defined",
    direction="yes",
    source="Vaswani et al. 2018, arXiv:1803.07416, released code",
    reported=Reported(
        "fails",
        "Trained on 1024 tokens: perplexity improves for 50 more, then rises, from 19.3 to 51 at 2024 and 453 "
        "at 16024.",
        "Press, Smith and Lewis 2021, arXiv:2108.12409, section 2.2 and table 3",
    ),
    ulp=2.0,
)
