"""Hard-ALiBi: the first heads see windows of 1, 2, 3, ... keys; the other heads use no positions.

    S_ij = s q_i . k_j                      head h >= masked, or i - j <= h
         = -infinity                        otherwise

Source: Jelassi, Brandfonbrener, Kakade and Malach 2024, "Repeat After Me: Transformers are Better than State Space
Models at Copying" (arXiv:2402.01032); the windows: sjelassi/transformers_ssm_copy, synthetic_exps/models/
hard_alibi_model.py.

**Slot**: `bias` (H, 2N-1), or `scores` (H, N, N) if positions are given. Values are 0, or -2^30 for a key outside the
window, so that its attention weight is 0. Attention skips blocks of scores in which a head sees no key. **Learns**:
nothing.

**Options**
- `masked`: the number of heads with windows. Default: 8, as in the authors' code, or all heads if there are fewer.

Head 0 sees only the key at the query's position; head h also sees the h nearest keys before it. The model must be
causal, so that keys after the query are masked; otherwise an error is raised. Positions, if given, may be real numbers;
i - j is then the difference of two positions.

**Past the training length**: defined: the windows do not change, and the other heads use no positions.

**Traps.** In a model with at most 8 heads, the default gives every head a window, so no head of a layer sees farther
back than 7 keys. The authors use more heads. Head 0 attends only to the query's token, so it carries no information
between tokens. The model learns about order only from the windows and the causal mask.
"""

from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts.offset_biases import as_slots, blocks, pairwise, shapes
from fastpe.encodings.slots import Spec

_HIDDEN = -(2.0**30)
_MASKED = 8  # as in the authors' code


def check(spec: Spec, *, masked: int | None) -> None:
    """Require a causal model, and at least `masked` heads."""
    if not spec.causal:
        raise ValueError("'hard_alibi' is made for causal models: set causal=True")
    if masked is not None and masked > spec.heads:
        raise ValueError(f"option 'masked' must be at most heads={spec.heads}, not {masked}")


def _windows(spec: Spec, masked: int | None) -> np.ndarray:
    """The number of keys before the query that each head sees, (H,); infinite without a window."""
    heads = np.arange(float(spec.heads))
    return np.where(heads < (_MASKED if masked is None else masked), heads, np.inf)


def reference(spec: Spec, params: dict[str, Any], *, masked: int | None) -> dict[str, Any]:
    """The formula above, one head at a time."""
    back = -pairwise(spec)
    count = min(8, spec.heads) if masked is None else masked
    scores = [-(2.0**30) * (back > h) if h < count else 0.0 * back for h in range(spec.heads)]
    return as_slots(spec, np.stack(scores, axis=-3))


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, masked: int | None) -> None:
    """Fill `bias`, or `scores` if positions are given."""
    windows = _windows(spec, masked)
    if spec.positions is None:
        out["bias"][...] = 0.0
        for row, window in zip(out["bias"], windows, strict=True):
            row[: int(max(0.0, spec.length - 1 - window))] = _HIDDEN
        return
    for offsets, scores in blocks(spec, out):
        for slot, window in zip(scores, windows, strict=True):
            slot[...] = np.where(-offsets > window, _HIDDEN, 0.0)


ENCODING = Encoding(
    summary="windows of 1, 2, 3, ... keys; other heads see all",
    formula=r"""
        S_{ij} = \begin{cases}
        s\, q_i \cdot k_j & \text{head } h \ge \mathrm{masked}, \text{ or } i - j \le h \\
        -\infty & \text{otherwise}
        \end{cases}
    """,
    use_when="a causal model with well over 8 heads must copy from its context, as in Jelassi et al. 2024",
    not_to_be_confused={"alibi": "slopes in place of windows"},
    use="proposed",
    slots=("bias", "scores"),
    options={
        "masked": Option(None, "number of heads with windows; none: 8, or all if fewer", int, minimum=0, optional=True),
    },
    beyond="defined",
    direction="causal",
    source="Jelassi, Brandfonbrener, Kakade and Malach 2024, arXiv:2402.01032, and released code",
    ulp=0.5,
    shapes=shapes,
)
