"""FoX, the Forgetting Transformer: each position decides how much of what came before is forgotten.

    z = W x + b,    f = sigmoid(z),    S_ij = scale q_i . k_j + sum over j < t <= i of log f_h,t

x is a layer's input after its norm. ALiBi with slopes that the content chooses: a forget gate that stays at f is ALiBi
of the slope -log f.

Source: Lin, Nikishin, He and Courville 2025, "Forgetting Transformer: Softmax Attention with a Forget Gate"
(arXiv:2503.02130), eq. (7) and section 3.1; zhixuan-lin/forgetting-transformer, ForgettingAttentionLayer.

**Slots**: none that can be filled beforehand: what it adds is `key_offset`, which the model's layers make of their
input. With `fastpe.attention`, hand in `key_offset` = -cumsum(log f): the part of the query drops out of the softmax.
**Learns**, separately in every layer: `weight` (H, C) and `bias` (H,).

**Options**
- `gate`: `full`; or `bias_only`, which learns `bias` alone: an ALiBi of learned slopes, softplus(-b).
- `initial`: the initial bias. Near 0 in the authors' code; 5, where next to nothing is forgotten, elsewhere.

Initial `weight`: uniform in +-1/sqrt(C), as linear maps begin in the authors' framework.

**Past the training length**: defined; what is forgotten stays so. For causal models alone; attention of both
directions, with a gate for each, is `fastpe.columns.two_sided`.

**Traps.** Sums over a long text must not be made in float32. The gradient of the first position's gate is 0: it shifts
all keys alike. With learned sinks the query's part does not drop out. The authors use no other encoding beside it;
"rope+fox" rotates as well, and "fox+path" reflects (PaTH-FoX).
"""

from typing import Any

from fastpe.base.option import Option
from fastpe.base.random import Stream
from fastpe.encodings.encoding import Encoding, Gate, Reported
from fastpe.encodings.parts.gates import gate_parameters, gate_values, needs_causal
from fastpe.encodings.slots import Spec


def check(spec: Spec, **options: Any) -> None:
    """The model must be causal."""
    needs_causal("fox", spec)


def parameters(spec: Spec, *, gate: str, initial: float) -> dict[str, tuple[int, ...]]:
    """The gate's map; or its bias alone."""
    return gate_parameters(spec, weight=gate == "full")


def init(spec: Spec, rng: Stream, *, gate: str, initial: float) -> dict[str, Any]:
    """A linear map as its framework draws it, and a bias that stays where it is."""
    return gate_values(spec, rng, initial, weight=gate == "full")


def reference(spec: Spec, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    """No slot is filled: see `fastpe.reference.gate`."""
    return {}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Fill nothing."""


ENCODING = Encoding(
    summary="a forget gate: the content decides what fades",
    use="proposed",
    slots=(),
    gate=Gate(-1),
    options={
        "gate": Option("full", "what is learned of the gate", str, choices=("full", "bias_only")),
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
