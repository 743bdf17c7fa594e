"""Log-n: attention over more keys than in training is made as sharp as it was there.

    S_ij = f_i scale q_i . k_j,    f_i = max(ln(i + 1) / ln L0, 1)

i counts from 0: i + 1 keys are seen. L0 is the training length. Without a causal mask all N keys are seen, and f is
max(ln N / ln L0, 1) in every row.

Source: Su 2021, on the scale that keeps the entropy of attention (kexue.fm/archives/8823), with his code
bojone/rerope; Qwen 1, in texts longer than those of training.

**Slot**: `row_scale` (1, N). **Options**: none. **Learns**: nothing.

**Past the training length**: defined, and what it is for; up to there it changes nothing. "rope+log_n" rotates as well.

**Traps.** It counts positions: where a window or padding hides some of the keys, there are fewer. The factor is on the
products of queries and keys, not on biases.
"""

from typing import Any

import numpy as np

from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts import sharpness
from fastpe.encodings.parts.sharpness import shapes
from fastpe.encodings.slots import Spec


def check(spec: Spec, **options: Any) -> None:
    """Its logarithm is divided by that of the training length."""
    sharpness.check("log_n", spec)
    if spec.train_length < 2:
        raise ValueError(f"'log_n' needs train_length to be at least 2, not {spec.train_length}: ln 1 is 0")


def reference(spec: Spec, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Su 2021."""
    return {"row_scale": np.maximum(sharpness.logarithms(spec) / np.log(spec.train_length), 1.0)}


ENCODING = Encoding(
    summary="sharper past the training length, by ln i",
    slots=("row_scale",),
    beyond="defined",
    direction="causal",
    use="earlier",
    source="Su 2021, kexue.fm/archives/8823, and released code",
    ulp=3.0,
    shapes=shapes,
)
