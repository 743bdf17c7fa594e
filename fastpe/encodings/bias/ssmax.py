"""Scalable-Softmax: scores grow with the logarithm of the number of keys, so that large weights stay large.

    S_ij = (s_h ln(i + 1) + b_h) scale q_i . k_j

b is 0 unless the option `bias` is set. i counts from 0. A causal query sees i + 1 keys, and exp(S_ij) is i + 1 to the
power s_h scale q_i . k_j if b is 0. Without a causal mask every query sees all N keys, so the factor is s_h ln N + b_h
in every row.

Source: Nakanishi 2025, "Scalable-Softmax Is Superior for Attention" (arXiv:2501.19399), for the form without a bias;
Mistral Large 4 (Mistral AI 2026) for the form with one, implemented as in Hugging Face's transformers.

**Slot**: `row_scale` (H, N). **Learns**, separately in every layer: `scale` (H,), which is s; with `bias` also `bias`
(H,), which is b and initially 1.

**Options**
- `bias`: whether b is learned.
- `initial`: the initial s. Default: 0.43 without `bias`, the value in the paper's figure 1; the initial value of the
  paper's models was not verified. With `bias` the default is 0, so that all factors are 1 at first, as in the library.

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


def parameters(spec: Spec, *, bias: bool, **options: Any) -> dict[str, tuple[int, ...]]:
    """A scale for each head, and with `bias` a second number."""
    return dict.fromkeys(("scale", "bias") if bias else ("scale",), (spec.heads,))


def shapes(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """A factor for every head and query."""
    return {"row_scale": (*spec.batch, spec.heads, spec.length)}


def init(spec: Spec, rng: Any, *, initial: float | None, bias: bool) -> dict[str, Any]:
    """The same numbers for every head."""
    scale = {"scale": np.full(spec.heads, (0.0 if bias else 0.43) if initial is None else initial)}
    return scale | {"bias": np.ones(spec.heads)} if bias else scale


def reference(spec: Spec, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    """The formula of Nakanishi 2025, s ln n, plus b."""
    factors = params["scale"][:, None] * sharpness.logarithms(spec)
    return {"row_scale": factors + params["bias"][:, None] if options["bias"] else factors}


def pull(spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], **options: Any) -> None:
    """dscale = the sum over queries of drow_scale times ln(i + 1), or ln N without a causal mask; dbias = the sum of
    drow_scale."""
    own = (dslots["row_scale"] * sharpness.logarithms(spec)).sum(axis=-1)
    dparams["scale"] += own.reshape(-1, spec.heads).sum(axis=0)
    if options["bias"]:
        dparams["bias"] += dslots["row_scale"].sum(axis=-1).reshape(-1, spec.heads).sum(axis=0)


ENCODING = Encoding(
    summary="score times a learned factor and log of the length",
    formula=r"S_{ij} = (s_h \ln(i + 1) + b_h)\, \mathrm{scale}\, q_i \cdot k_j",
    use_when="a model trained from scratch should stay sharp over more keys; add it, but here it gained little",
    also_called=("Scalable-Softmax",),
    not_to_be_confused={
        "log_n": "a fixed factor that acts only beyond the training length",
        "temperature": "fixed factors of released models, among them beam's, which its code calls scalable softmax",
    },
    slots=("row_scale",),
    options={
        "initial": Option(
            None, "the initial scale; none: 0.43, or 0 with bias", float, minimum=-100.0, maximum=100.0,
            optional=True, samples=(1.0, 0.1),
        ),
        "bias": Option(False, "whether a number is added to the factor", bool),
    },
    per_layer=("scale", "bias"),
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
)  # fmt: skip
