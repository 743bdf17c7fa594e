"""Scalable-Softmax: scores grow with the logarithm of the number of keys, so that large weights stay large.

    S_ij = s_h ln(i + 1) scale q_i . k_j

i counts from 0. A causal query sees i + 1 keys, and exp(S_ij) is i + 1 to the power s_h scale q_i . k_j. Without a
causal mask every query sees all N keys, so the factor is s_h ln N in every row.

Source: Nakanishi 2025, "Scalable-Softmax Is Superior for Attention" (arXiv:2501.19399), in the form without a bias.

**Slot**: `row_scale` (H, N). **Learns**, separately in every layer: `scale` (H,), which is s.

**Options**
- `initial`: the initial s. The default, 0.43, is the value in the paper's figure 1. The initial value of the paper's
  models was not verified. The paper's form with a bias, s_h ln(i + 1) + b_h, is not implemented, and was not verified
  either.

**Past the training length**: defined; the encoding is made for longer texts.

**Traps.** The factor is computed from positions: if a window or padding hides some keys, the query sees fewer keys than
the factor assumes. The first query has the factor 0, which does no harm because it sees only one key. With s = 1/ln(n),
attention over n keys equals standard attention; s = 0.43 corresponds to ten keys.
"""

from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Reported
from fastpe.encodings.parts import sharpness
from fastpe.encodings.slots import Spec


def check(spec: Spec, **options: Any) -> None:
    """Raise an error for negative positions, because the factor counts keys."""
    sharpness.check("ssmax", spec)


def parameters(spec: Spec, *, initial: float) -> dict[str, tuple[int, ...]]:
    """A scale for each head."""
    return {"scale": (spec.heads,)}


def shapes(spec: Spec, *, initial: float) -> dict[str, tuple[int, ...]]:
    """A factor for every head and query."""
    return {"row_scale": (*spec.batch, spec.heads, spec.length)}


def init(spec: Spec, rng: Any, *, initial: float) -> dict[str, Any]:
    """`initial` for every head."""
    return {"scale": np.full(spec.heads, initial)}


def reference(spec: Spec, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    """The formula of Nakanishi 2025, s ln n."""
    return {"row_scale": params["scale"][:, None] * sharpness.logarithms(spec)}


def pull(spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], **options: Any) -> None:
    """dscale = the sum over queries of drow_scale times ln(i + 1), or ln N without a causal mask."""
    own = (dslots["row_scale"] * sharpness.logarithms(spec)).sum(axis=-1)
    dparams["scale"] += own.reshape(-1, spec.heads).sum(axis=0)


ENCODING = Encoding(
    summary="score times a learned factor and log of the length",
    formula=r"S_{ij} = s_h \ln(i + 1)\, \mathrm{scale}\, q_i \cdot k_j",
    use_when="a model trained from scratch should stay sharp over more keys; add it, but here it gained little",
    also_called=("Scalable-Softmax",),
    not_to_be_confused={"log_n": "a fixed factor that acts only beyond the training length"},
    slots=("row_scale",),
    options={
        "initial": Option(0.43, "the initial scale", float, minimum=-100.0, maximum=100.0, samples=(1.0, 0.1)),
    },
    per_layer=("scale",),
    beyond="defined",
    direction="causal",
    use="proposed",
    source="Nakanishi 2025, arXiv:2501.19399",
    reported=Reported(
        "partly",
        "Models trained with it from the start generalise better to longer texts than those with a standard softmax.",
        "Nakanishi 2025, arXiv:2501.19399, abstract",
    ),
    ulp=3.0,
)
