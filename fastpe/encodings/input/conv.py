"""A learned convolution over the sequence, one filter for every channel, added to the embeddings.

    z_i <- z_i + sum_k taps[k] * z_{i + k - P}        zeros outside the sequence; channel by channel
    P = floor(K / 2), or K - 1 in a causal model, which then sees nothing of what follows

Source: after Baevski et al. 2020, "wav2vec 2.0: A Framework for Self-Supervised Learning of Speech Representations"
(arXiv:2006.11477), section 2 (a convolution in place of position embeddings, after Mohamed et al. 2019,
arXiv:1904.11660); initial values: facebookresearch/fairseq, fairseq/models/wav2vec/wav2vec2.py, make_conv_pos. Theirs
mixes channels in 16 groups, normalises the weights over the kernel and applies a GELU; this one is depthwise and
linear.

**Slot**: `taps` (K, C). **Learns**: `taps` (K, C), from N(0, 1 / (4K)): the authors draw each of the K C/16 weights
that make an output from N(0, 4 / (K C)), so that both have outputs of a quarter of their input's variance.

**Options**
- `kernel`: the number K of taps; the authors' 128.

The positions' values do not matter, only their order.

**Past the training length**: defined.

**Traps.** Away from the borders it commutes with shifting the sequence: absolute position is known only from the zeros
outside, within K of an end and one K further in every layer. That wav2vec 2.0 has no position encoding is said, and
wrong, for this reason.
"""

from typing import Any

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.slots import Spec


def parameters(spec: Spec, *, kernel: int) -> dict[str, tuple[int, ...]]:
    """The taps; also the slot's shape."""
    return {"taps": (kernel, spec.dim)}


def init(spec: Spec, rng: Any, *, kernel: int) -> dict[str, Any]:
    """N(0, 1 / (4K))."""
    return {"taps": 0.5 / kernel**0.5 * rng.normal((kernel, spec.dim))}


def reference(spec: Spec, params: dict[str, Any], *, kernel: int) -> dict[str, Any]:
    """The taps as they are."""
    return {"taps": params["taps"]}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, kernel: int) -> None:
    """Fill `taps`."""
    out["taps"][...] = params["taps"]


def pull(spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, kernel: int) -> None:
    """The slot's gradient is the parameter's."""
    dparams["taps"] += dslots["taps"]


ENCODING = Encoding(
    summary="a trained filter over neighbours in each channel",
    use="other",
    slots=("taps",),
    options={"kernel": Option(128, "number of taps", int, minimum=1)},
    beyond="defined",
    direction="yes",
    source="after Baevski et al. 2020, arXiv:2006.11477, section 2",
    ulp=0.0,
    shapes=parameters,
)
