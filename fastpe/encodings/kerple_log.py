"""KERPLE, logarithmic kernel: a penalty of r1 ln(1 + r2 distance), both learned for each head.

    S_ij = s q_i . k_j - r1_h ln(1 + r2_h |j - i|)

Source: Chi, Fan, Ramadge and Rudnicky 2022, "KERPLE: Kernelized Relative Positional Embedding for Length
Extrapolation" (arXiv:2205.09921), section 4, eqs. (1) and (4); initial values and clamps: chijames/KERPLE,
megatron/mpu/layers.py, ParallelKerpleLog.

**Slot**: `bias` (H, 2N-1); `scores` (H, N, N) where positions are given.
**Learns**: `r1` (H,), uniform in (0, 2) at first, and `r2` (H,), uniform in (0, 1); one pair for all layers.

**Options**: none.

**Past the training length**: defined. The penalty flattens: twice the distance costs about r1 ln 2 more.

**Traps.** Before every use the authors set an r1 or r2 below 0.01 to 0.01. Here the parameter stays as it is, acts as
0.01, and its gradient is zero: only the optimiser's momentum can carry it back, where theirs leaves the clamp freely.
The bias is added to scores that are already divided by sqrt(D), as in the code (eq. (1) of the paper divides it too),
and is even in j - i: a model without a causal mask cannot tell left from right by it. The release is for causal
models.
"""

from typing import Any

import numpy as np

from fastpe.encoding import Encoding, Spec
from fastpe.encodings import _kerple
from fastpe.encodings._biases import as_slots, pairwise, shapes


def parameters(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """Two numbers a head."""
    return {"r1": (spec.heads,), "r2": (spec.heads,)}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """r1 uniform in (0, 2), r2 uniform in (0, 1)."""
    drawn = rng.uniform((2, spec.heads))
    return {"r1": 2.0 * drawn[0], "r2": drawn[1]}


def reference(spec: Spec, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    """-r1 ln(1 + r2 r)."""
    r1, r2 = (np.maximum(params[name], 0.01)[:, None, None] for name in ("r1", "r2"))
    return as_slots(spec, -r1 * np.log(1 + r2 * np.abs(pairwise(spec))[..., None, :, :]))


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Fill `bias`, or `scores` where positions are given."""
    _kerple.fill(spec, _kerple.clamped(params, {}), out, lambda r, r1, r2: -r1 * np.log1p(r2 * r))


def pull(spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], **options: Any) -> None:
    """dr1 = -sum of dbias ln(1 + r2 r), dr2 = -sum of dbias r1 r / (1 + r2 r)."""
    _kerple.pull(
        spec, params, _kerple.clamped(params, {}), dslots, dparams,
        lambda r, r1, r2: (-np.log1p(r2 * r), -r1 * r / (1.0 + r2 * r)),
    )  # fmt: skip


ENCODING = Encoding(
    slots=("bias", "scores"),
    options={},
    beyond="defined",
    direction="no",
    source="Chi, Fan, Ramadge and Rudnicky 2022, arXiv:2205.09921, section 4, eqs. (1) and (4)",
    ulp=8.0,
    reference=reference,
    fill=fill,
    pull=pull,
    init=init,
    parameters=parameters,
    shapes=shapes,
)
