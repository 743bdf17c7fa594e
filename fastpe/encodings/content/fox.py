"""FoX, the Forgetting Transformer: a gate at each position reduces the attention weights of all earlier keys.

    z = W x + b,    f = sigmoid(z),    S_ij = scale q_i . k_j + sum over j < t <= i of log f_h,t

x is the input of a layer after normalisation. FoX is ALiBi with slopes that depend on the content: a constant forget
gate f is ALiBi with slope -log f.

Source: Lin, Nikishin, He and Courville 2025, "Forgetting Transformer: Softmax Attention with a Forget Gate"
(arXiv:2503.02130), eq. (7) and section 3.1; zhixuan-lin/forgetting-transformer, ForgettingAttentionLayer.

**Slots**: none can be filled in advance. The encoding acts through `key_offset`, which the model's layers compute from
their input. With `fastpe.attention`, pass `key_offset` = -cumsum(log f). The sum in S_ij is the cumulative sum at i
minus the cumulative sum at j. The former is the same for all keys of a query, so it cancels in the softmax. **Learns**,
separately in every layer: `weight` (H, C) and `bias` (H,).

**Options**
- `gate`: `full`, or `bias_only`, which learns only `bias`: this is ALiBi with the learned slopes softplus(-b).
- `initial`: the initial bias. It is near 0 in the authors' code. Other implementations use 5, with which f is initially
  close to 1, so that weights of earlier keys are hardly reduced.

`weight` is initially uniform in +-1/sqrt(C), the default of linear maps in the authors' framework.

**Past the training length**: defined; once gates have reduced the weight of a key to almost 0, it stays there. For
causal models only. For bidirectional attention with a gate for each direction, see `fastpe.columns.two_sided`.

**Traps.** Sums over a long text must not be computed in float32. The gradient of the first position's gate is 0,
because this gate shifts all keys equally. With learned sinks, the cumulative sum at i does not cancel. The authors use
no other encoding with FoX; "rope+fox" adds rotations, and "fox+path" reflections (PaTH-FoX).
"""

from typing import Any

from fastpe.base.option import Option
from fastpe.base.random import Stream
from fastpe.encodings.encoding import Encoding, Gate, Reported
from fastpe.encodings.parts.gates import gate_parameters, gate_values, needs_causal
from fastpe.encodings.slots import Spec


def check(spec: Spec, **options: Any) -> None:
    """Require a causal model."""
    needs_causal("fox", spec)


def parameters(spec: Spec, *, gate: str, initial: float) -> dict[str, tuple[int, ...]]:
    """The weight and bias of the gate, or only its bias."""
    return gate_parameters(spec, weight=gate == "full")


def init(spec: Spec, rng: Stream, *, gate: str, initial: float) -> dict[str, Any]:
    """A weight drawn as for linear maps in the authors' framework, and the bias `initial`."""
    return gate_values(spec, rng, initial, weight=gate == "full")


def reference(spec: Spec, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Fill nothing: the layers compute the gate, see `fastpe.reference.gate`."""
    return {}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Fill nothing."""


ENCODING = Encoding(
    summary="a forget gate: ALiBi with slopes set by content",
    formula=r"""
        z &= W x + b, \quad f = \mathrm{sigmoid}(z) \\
        S_{ij} &= \mathrm{scale}\, q_i \cdot k_j + \sum_{j < t \le i} \log f_{h,t}
    """,
    use_when="a causal model must read beyond its training length, and content decides what to forget",
    also_called=("Forgetting Transformer", "forgetting attention", "data-dependent ALiBi"),
    not_to_be_confused={
        "cable": "the same with the sign of z reversed, and with unscaled scores",
        "ssd_decay": "Mamba-2's decay, with a rate for each head",
    },
    use="proposed",
    slots=(),
    gate=Gate(-1),
    options={
        "gate": Option("full", "the learned part of the gate", str, choices=("full", "bias_only")),
        "initial": Option(0.0, "the initial bias", float, minimum=-20.0, maximum=20.0, samples=(5.0,)),
    },
    per_layer=("weight", "bias"),
    beyond="defined",
    direction="causal",
    source="Lin et al. 2025, arXiv:2503.02130, eq. (7), and released code",
    reported=Reported(
        "holds",
        "The loss per token stays low past the 16,384 tokens of training, where the Transformer with RoPE fails.",
        "Lin et al. 2025, arXiv:2503.02130, section 4.2 and fig. 2",
    ),
    ulp=0.0,
)
