"""Log-n: scales queries so that attention over more keys than in training stays as sharp as in training.

    S_ij = f_i scale q_i . k_j,    f_i = max(ln(i + 1) / ln L0, 1)

Positions i start at 0, so under a causal mask query i sees i + 1 keys. L0 is the training length. Without a causal mask
every query sees all N keys, and every f_i is max(ln N / ln L0, 1).

Source: Su 2021 (kexue.fm/archives/8823), about a scale that keeps the entropy of attention constant; released code:
bojone/rerope. Qwen 1 uses this scale for texts longer than those of training.

**Slot**: `row_scale` (1, N). **Options**: none. **Learns**: nothing.

**Past the training length**: defined; the encoding is designed for longer texts, and has no effect up to the training
length. "rope+log_n" combines it with RoPE.

**Traps.** The factor depends on the position only. If a window or padding hides some keys, the query sees fewer keys
than the factor assumes. The factor multiplies the products of queries and keys, not biases.
"""

from typing import Any

import numpy as np

from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts import sharpness
from fastpe.encodings.parts.sharpness import shapes
from fastpe.encodings.slots import Spec


def check(spec: Spec, **options: Any) -> None:
    """Require a training length whose logarithm is not 0."""
    sharpness.check("log_n", spec)
    if spec.train_length < 2:
        raise ValueError(f"'log_n' needs train_length to be at least 2, not {spec.train_length}: ln 1 is 0")


def reference(spec: Spec, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    """The formula of Su 2021."""
    return {"row_scale": np.maximum(sharpness.logarithms(spec) / np.log(spec.train_length), 1.0)}


ENCODING = Encoding(
    summary="sharper attention past training, by ln i",
    formula=r"""
        S_{ij} = f_i\, \mathrm{scale}\, q_i \cdot k_j, \quad f_i = \max\left(\frac{\ln(i + 1)}{\ln L_0},\ 1\right)
    """,
    use_when="texts exceed the training length and attention would spread too thin; add it, as in rope+log_n",
    also_called=("logn_attn", "logn scaling"),
    not_to_be_confused={
        "ssmax": "the factor is learned and acts at all lengths",
        "temperature": "a factor that rises in steps, far into a text",
    },
    slots=("row_scale",),
    beyond="defined",
    direction="causal",
    use="earlier",
    source="Su 2021, kexue.fm/archives/8823, and released code",
    ulp=3.0,
    shapes=shapes,
)
