"""Mamba-2's decay as a bias: the content sets the time that passes, the head how fast it forgets.

    D_t = softplus(w x_t + b),    S_ij = scale q_i . k_j - exp(a_h) sum over j < t <= i of D_h,t

x is a layer's input after its norm. The weight that the state space model gives j at i, exp(-exp(a) sum of D), times
exp of the product: softmax attention with its decay.

Source: Dao and Gu 2024, "Transformers are SSMs" (arXiv:2405.21060), section 7.2 for the decay; initial values of
state-spaces/mamba, modules/mamba2.py. As a bias of softmax attention an own construction: Mamba-2 has no softmax, and
multiplies the key by D_j too.

**Slots**: none that can be filled beforehand: what it adds is `key_offset`. **Learns**, separately in every layer:
`weight`
(H, C), `bias` (H,) and `rate` (H,), which is a.

**Options**
- `slowest`, `fastest`: exp(a) begins uniform between them, 1 and 16 in the source.
- `shortest`, `longest`: D at x = 0 begins log-uniform between them, 0.001 and 0.1 in the source.

**Past the training length**: defined. For causal models alone.
"""

from typing import Any

from fastpe.base.option import Option
from fastpe.base.random import Stream
from fastpe.encodings.encoding import Encoding, Gate
from fastpe.encodings.parts.gates import gate_parameters, gate_values, needs_causal
from fastpe.encodings.parts.offsets import stream_of
from fastpe.encodings.slots import Spec


def check(spec: Spec, *, slowest: float, fastest: float, shortest: float, longest: float) -> None:
    """The model must be causal, and what begins between two values have such."""
    needs_causal("ssd_decay", spec)
    for low, high, names in ((slowest, fastest, "slowest and fastest"), (shortest, longest, "shortest and longest")):
        if low > high:
            raise ValueError(f"{names} must be in this order, not {low} and {high}")


def parameters(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """The gate's map, and the logarithm of its rate."""
    return gate_parameters(spec, weight=True) | {"rate": (spec.heads,)}


def init(spec: Spec, rng: Stream, *, slowest: float, fastest: float, shortest: float, longest: float) -> dict[str, Any]:
    """As the source draws them; `bias` is where softplus gives the time that is drawn."""
    import numpy as np

    values = gate_values(spec, rng, 0.0, weight=True)
    rate, time = (stream_of(rng, name).uniform((spec.heads,)) for name in ("rate", "bias"))
    times = np.exp(np.log(shortest) + time * (np.log(longest) - np.log(shortest)))
    values["bias"] = times + np.log(-np.expm1(-times))
    values["rate"] = np.log(slowest + rate * (fastest - slowest))
    return values


def reference(spec: Spec, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    """No slot is filled: see `fastpe.reference.gate`."""
    return {}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Fill nothing."""


ENCODING = Encoding(
    summary="Mamba-2's decay: time by content, speed by head",
    use="proposed",
    slots=(),
    gate=Gate(1),
    options={
        "slowest": Option(1.0, "least initial rate", float, minimum=1e-6, maximum=1e6, samples=(0.5,)),
        "fastest": Option(16.0, "largest initial rate", float, minimum=1e-6, maximum=1e6, samples=(20.0,)),
        "shortest": Option(0.001, "least initial time", float, minimum=1e-9, maximum=100.0, samples=(0.01,)),
        "longest": Option(0.1, "largest initial time", float, minimum=1e-9, maximum=100.0, samples=(1.0,)),
    },
    per_layer=("weight", "bias", "rate"),
    beyond="defined",
    direction="causal",
    source="after Dao and Gu 2024, arXiv:2405.21060, and released code",
    ulp=0.0,
)
