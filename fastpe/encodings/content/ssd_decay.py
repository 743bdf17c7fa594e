"""Mamba-2's decay as a bias: minus a rate for each head times the sum of step sizes that follow from the tokens.

    D_t = softplus(w x_t + b),    S_ij = scale q_i . k_j - exp(a_h) sum over j < t <= i of D_h,t

x is the input of a layer after normalisation. D_t, one number for each head, is the step size of token t, and exp(a_h)
is the decay rate of head h. In the softmax, the second term multiplies exp(scale q_i . k_j) by exp(-exp(a_h) sum of
D_h,t). This is the factor by which token j has decayed in Mamba-2's state at token i.

Source: Dao and Gu 2024, "Transformers are SSMs" (arXiv:2405.21060), section 7.2 for the decay; initial values of
state-spaces/mamba, modules/mamba2.py. Its use as a bias of softmax attention is our own construction: Mamba-2 has no
softmax, and also multiplies the key by D_j.

**Slots**: none. The model's layers compute the sum of exp(a_h) D_h,t up to each token from their input, and pass these
sums to `fastpe.attention` as `key_offset`. To call `fastpe.attention` yourself, compute `key_offset` with
`fastpe.columns.decay`. **Learns**, separately in every layer: `weight` w (H, C), `bias` b (H,) and `rate` a (H,).

**Options**
- `slowest`, `fastest`: exp(a) is initially uniform between these two values, 1 and 16 in the source.
- `shortest`, `longest`: the initial step size D at x = 0 is log-uniform between these two values, 0.001 and 0.1 in the
  source.

**Past the training length**: defined. For causal models only.
"""

from typing import Any

from fastpe.base.option import Option
from fastpe.base.random import Stream
from fastpe.encodings.encoding import Encoding, Gate
from fastpe.encodings.parts.gates import gate_parameters, gate_values, needs_causal
from fastpe.encodings.parts.offsets import stream_of
from fastpe.encodings.slots import Spec


def check(spec: Spec, *, slowest: float, fastest: float, shortest: float, longest: float) -> None:
    """Require a causal model, and bounds of initial values in ascending order."""
    needs_causal("ssd_decay", spec)
    for low, high, names in ((slowest, fastest, "slowest and fastest"), (shortest, longest, "shortest and longest")):
        if low > high:
            raise ValueError(f"options {names} must be in ascending order, not {low} and {high}")


def parameters(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """The weight and bias of the gate, and the logarithm of its rate."""
    return gate_parameters(spec, weight=True) | {"rate": (spec.heads,)}


def init(spec: Spec, rng: Stream, *, slowest: float, fastest: float, shortest: float, longest: float) -> dict[str, Any]:
    """The initial values of the source; `bias` is chosen so that softplus gives the drawn time."""
    import numpy as np

    values = gate_values(spec, rng, 0.0, weight=True)
    rate, time = (stream_of(rng, name).uniform((spec.heads,)) for name in ("rate", "bias"))
    times = np.exp(np.log(shortest) + time * (np.log(longest) - np.log(shortest)))
    values["bias"] = times + np.log(-np.expm1(-times))
    values["rate"] = np.log(slowest + rate * (fastest - slowest))
    return values


def reference(spec: Spec, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Fill nothing: the layers compute the gate, see `fastpe.reference.gate`."""
    return {}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Fill nothing."""


ENCODING = Encoding(
    summary="Mamba-2's decay as a bias, set by the content",
    formula=r"""
        D_t &= \mathrm{softplus}(w x_t + b) \\
        S_{ij} &= \mathrm{scale}\, q_i \cdot k_j - \exp(a_h) \sum_{j < t \le i} D_{h,t}
    """,
    use_when="you compare Mamba-2's decay with gates such as fox in softmax attention",
    also_called=("Mamba-2's decay",),
    not_to_be_confused={"Mamba-2": "a state space model without a softmax, which also multiplies keys by their step"},
    use="proposed",
    slots=(),
    gate=Gate(1),
    options={
        "slowest": Option(1.0, "smallest initial rate of decay", float, minimum=1e-6, maximum=1e6, samples=(0.5,)),
        "fastest": Option(16.0, "largest initial rate of decay", float, minimum=1e-6, maximum=1e6, samples=(20.0,)),
        "shortest": Option(0.001, "smallest initial time", float, minimum=1e-9, maximum=100.0, samples=(0.01,)),
        "longest": Option(0.1, "largest initial time", float, minimum=1e-9, maximum=100.0, samples=(1.0,)),
    },
    per_layer=("weight", "bias", "rate"),
    beyond="defined",
    direction="causal",
    source="after Dao and Gu 2024, arXiv:2405.21060, and released code",
    ulp=0.0,
)
