"""A learned convolution over the sequence, one filter for every channel, added to the embeddings.

    z_i <- z_i + sum_k taps[k] * z_{i + k - P}        zeros outside the sequence; channel by channel
    P = floor(K / 2), or K - 1 in a causal model, so that no later token is read

Source: after Baevski et al. 2020, "wav2vec 2.0: A Framework for Self-Supervised Learning of Speech Representations"
(arXiv:2006.11477), section 2, which replaces position embeddings by a convolution, as do Mohamed et al. 2019
(arXiv:1904.11660); initial values: facebookresearch/fairseq, fairseq/models/wav2vec/wav2vec2.py, make_conv_pos. The
authors' convolution mixes channels in 16 groups, normalises the weights over the kernel and applies a GELU; the
convolution here is depthwise and linear.

**Slot**: `taps` (K, C). **Learns**: `taps` (K, C), initially N(0, 1 / (4K)). In the authors' code, each output is a sum
of K C/16 terms, whose weights are drawn from N(0, 4 / (K C)). In both cases, outputs have a quarter of the variance of
the input.

**Options**
- `kernel`: the number K of taps; 128 in the authors' code.

The convolution uses only the order of the tokens; the values of `positions` have no effect.

**Past the training length**: defined.

**Traps.** Far from both ends, a shift of the sequence shifts the output of the convolution. The convolution depends on
absolute positions only within K tokens of an end, because it reads zeros outside the sequence. So it is wrong to say
that wav2vec 2.0 has no position encoding.
"""

from typing import Any

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.slots import Spec


def parameters(spec: Spec, *, kernel: int) -> dict[str, tuple[int, ...]]:
    """The taps; their shape is also that of the slot."""
    return {"taps": (kernel, spec.dim)}


def init(spec: Spec, rng: Any, *, kernel: int) -> dict[str, Any]:
    """N(0, 1 / (4K))."""
    return {"taps": 0.5 / kernel**0.5 * rng.normal((kernel, spec.dim))}


def reference(spec: Spec, params: dict[str, Any], *, kernel: int) -> dict[str, Any]:
    """The slot is the taps."""
    return {"taps": params["taps"]}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, kernel: int) -> None:
    """Fill `taps`."""
    out["taps"][...] = params["taps"]


def pull(spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, kernel: int) -> None:
    """The slot is the parameter itself, so both have the same gradient."""
    dparams["taps"] += dslots["taps"]


ENCODING = Encoding(
    summary="learned convolution over tokens in each channel",
    formula=r"""
        z_i &\leftarrow z_i + \sum_k \mathrm{taps}[k] \, z_{i + k - P}
            \quad \text{zeros outside the sequence; channel by channel} \\
        P &= \lfloor K / 2 \rfloor, \quad \text{or } K - 1 \text{ in a causal model}
    """,
    use_when="the order of neighbouring tokens matters more than their absolute position, as in speech",
    not_to_be_confused={
        "wav2vec 2.0's convolution": "it mixes channels in 16 groups, normalises the weights and applies a GELU",
        "PEG": "a 3 x 3 convolution over the grid of an image, after the first block",
        "Canon": "short causal convolutions inside every layer",
    },
    use="other",
    slots=("taps",),
    options={"kernel": Option(128, "number of taps", int, minimum=1)},
    beyond="defined",
    direction="yes",
    source="after Baevski et al. 2020, arXiv:2006.11477, section 2",
    ulp=0.0,
    shapes=parameters,
)
