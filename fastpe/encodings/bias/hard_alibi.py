"""Hard-ALiBi: the first heads see windows of 1, 2, 3, ... keys; the others have no positions.

    S_ij = s q_i . k_j                      head h >= masked, or i - j <= h
         = -infinity                        otherwise

Source: Jelassi, Brandfonbrener, Kakade and Malach 2024, "Repeat After Me: Transformers are Better than State Space
Models at Copying" (arXiv:2402.01032); the windows: sjelassi/transformers_ssm_copy, synthetic_exps/models/
hard_alibi_model.py.

**Slot**: `bias` (H, 2N-1), 0 or -2^30, which leaves no weight; `scores` (H, N, N) if positions are given. Attention
leaves out whole tiles that a head does not see. **Learns**: nothing.

**Options**
- `masked`: how many heads have windows; by default the authors' 8, or all where there are fewer.

Head 0 sees the query's own key alone, head h the h nearest before it as well. In a causal model, which masks keys after
the query; other models are refused. Positions, if given, may be real; i - j is their difference.

**Past the training length**: defined: windows stay as they are, and the other heads have no positions.

**Traps.** With 8 heads or fewer, by default, no head sees farther back than 7 keys in a layer: the authors have more
heads. Head 0 only maps its token. Order comes from the windows and the causal mask alone.
"""

from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts.offset_biases import as_slots, blocks, pairwise, shapes
from fastpe.encodings.slots import Spec

_HIDDEN = -(2.0**30)
_MASKED = 8  # the authors'


def check(spec: Spec, *, masked: int | None) -> None:
    """A causal model, with as many heads."""
    if not spec.causal:
        raise ValueError("'hard_alibi' is made for causal models: set causal=True")
    if masked is not None and masked > spec.heads:
        raise ValueError(f"option 'masked' must be at most heads={spec.heads}, not {masked}")


def _windows(spec: Spec, masked: int | None) -> np.ndarray:
    """How far back each head sees, (H,)."""
    heads = np.arange(float(spec.heads))
    return np.where(heads < (_MASKED if masked is None else masked), heads, np.inf)


def reference(spec: Spec, params: dict[str, Any], *, masked: int | None) -> dict[str, Any]:
    """Head by head."""
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
    use="proposed",
    slots=("bias", "scores"),
    options={
        "masked": Option(None, "heads with windows; none: 8, or all where fewer", int, minimum=0, optional=True),
    },
    beyond="defined",
    direction="causal",
    source="Jelassi, Brandfonbrener, Kakade and Malach 2024, arXiv:2402.01032, and released code",
    ulp=0.5,
    shapes=shapes,
)
