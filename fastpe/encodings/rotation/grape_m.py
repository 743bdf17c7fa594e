"""GRAPE-M: RoPE whose frequencies are learned through their logarithms.

    theta_t = exp(log_freq_t / scale),  t = 0 .. D/2 - 1,         the angle of pair t at position p is p theta_t

Source: GRAPE, multiplicative and without context (Zhang et al. 2025, arXiv:2512.07805), from the released code,
model-architectures/GRAPE, model/llama-mha-grape-m-nonctx.py. We read this code but did not run it, so no values have
been compared.

**Slots**: `angles` (1 or H, N, D/2), `pairs`. **Learns**: `log_freq` (1 or H, D/2). Each layer learns separate values.

**Initial values.** log_freq_t = -scale (2t/D) ln(base), which gives the frequencies of `rope`.

**Options**
- `scale`: divides the learned numbers. The initial rotations do not depend on `scale`. A step of Adam changes a
  parameter by about the learning rate, whatever the size of the gradient. So it changes the logarithm of a frequency by
  about the learning rate divided by `scale`. The models in the released code use 16.
- `shared`: whether all heads have the same frequencies, as in the authors' models. With `scale` 1 and shared heads this
  is LeRoPE, which Mistral Large 4 uses after YaRN (huggingface/transformers 5.24, models/mistral_large4); it has one
  set of numbers for all layers.
- `base`: the slowest initial frequency is about 1/base.
- `pairs`: as for `rope`; the code uses `half`.

Positions may be any real numbers, including negative ones.

**Past the training length**: defined, as for `rope`: the slow pairs reach angles that did not occur in training.

**Accuracy.** An angle is as exact as that of `rope` for the given log_freq. Rounding log_freq to float32 causes a
relative change of the initial frequencies of up to 10^-6.

**Traps.** The gradient of log_freq is a sum over tokens weighted by their positions. The code rotates in the opposite
direction, which does not change any score. It also normalises queries and keys after rotating them, with a weight for
each channel (QK-RMSNorm). If the weights of a pair's two channels differ, scores depend on more than the offset.
"""

import math
from decimal import Decimal
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts.angles import exact_angles, fill_angles, precise, pull_angles
from fastpe.encodings.parts.exponentials import in_turns
from fastpe.encodings.parts.rotary import base_option, check, pairs_option, plain_pairs, rotated_width
from fastpe.encodings.slots import Spec

Array = np.ndarray[Any, Any]


def parameters(spec: Spec, *, shared: bool, **options: Any) -> dict[str, tuple[int, ...]]:
    """One number per pair, for all heads together or for each head."""
    return {"log_freq": (1 if shared else spec.heads, rotated_width(spec, None) // 2)}


def shapes(spec: Spec, *, shared: bool, **options: Any) -> dict[str, tuple[int, ...]]:
    """Angles for all heads together, or for each head."""
    groups, pairs = parameters(spec, shared=shared)["log_freq"]
    return {"angles": (*spec.batch, groups, spec.length, pairs)}


def init(spec: Spec, rng: Any, *, scale: float, shared: bool, base: float, **options: Any) -> dict[str, Any]:
    """The values that give the frequencies of `rope`."""
    shape = parameters(spec, shared=shared)["log_freq"]
    ladder = -2.0 * np.arange(shape[1]) / spec.head_dim * math.log(base)
    return {"log_freq": np.broadcast_to(scale * ladder, shape).copy()}


def reference(spec: Spec, params: dict[str, Any], *, scale: float, **options: Any) -> dict[str, Any]:
    """p exp(log_freq / scale), in Decimal and rounded once."""
    with precise():
        theta = [[(Decimal(each) / Decimal(scale)).exp() for each in own] for own in params["log_freq"].tolist()]
    return {"angles": np.stack([exact_angles(spec.points(), own) for own in theta], axis=-3)}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, scale: float, **options: Any) -> None:
    """Fill `angles`."""
    # float64 frequencies are not enough, as positions multiply their rounding errors
    fill_angles(spec.points()[..., None], in_turns(params["log_freq"], scale), out["angles"])


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, scale: float,
    **options: Any,
) -> None:  # fmt: skip
    """dlog_freq_t = theta_t / scale times the sum over tokens of p dangles."""
    turning = pull_angles(spec.points()[..., None], dslots["angles"])[:, 0]
    dparams["log_freq"] += np.exp(params["log_freq"].astype(np.float64) / scale) / scale * turning


ENCODING = Encoding(
    summary="rotary, with learned logarithms of frequencies",
    formula=r"""
        \theta_t &= \exp(\mathrm{log\_freq}_t / \mathrm{scale}), \quad t = 0, \dots, D/2 - 1 \\
        &\text{the angle of pair } t \text{ at position } p \text{ is } p\, \theta_t
    """,
    use_when="you want RoPE with frequencies that training adapts",
    also_called=("multiplicative GRAPE", "LeRoPE"),
    not_to_be_confused={"contextual GRAPE-M": "angles are sums of gates of the content: `fastpe.angles.grape_m`"},
    use="proposed",
    slots=("angles", "pairs"),
    options={
        "scale": Option(16.0, "divides the learned logarithms", float, above=0.0),
        "shared": Option(True, "whether all heads have the same frequencies", bool),
        "base": base_option(),
        "pairs": pairs_option("half"),
    },
    beyond="defined",
    direction="yes",
    source="Zhang et al. 2025, arXiv:2512.07805, by its released code",
    ulp=2.0,
    shapes=shapes,
    plain=plain_pairs,
    check=check,
    per_layer=("log_freq",),
)
