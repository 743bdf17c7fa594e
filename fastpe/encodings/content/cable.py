"""CABLE: each token lowers the scores of all earlier keys by an amount that depends on the token's content.

    z = W x + b,    S_ij = q_i . k_j - sum over j < t <= i of softplus(z_h,t)

x is the input of a layer after normalisation, and z_h,t is the component of z for head h at token t.

Source: Veisi, Fartoot and Amirzadeh 2025, "Context-aware Biases for Length Extrapolation" (arXiv:2503.08067);
axiomlab/Cable, src/Cable.py, CausalSelfAttention.

**Slots**: `scale` is the only slot that is filled in advance. The encoding acts through a second slot, `key_offset`,
which the model's layers compute from their input. **Learns**, separately in every layer: `weight` (H, C) and `bias`
(H,), initialised as in `fox`: `weight` uniform in +-1/sqrt(C), `bias` equal to `initial`.

**Options**
- `initial`: the initial bias.
- `scaled`: whether scores are divided by sqrt(D), as usual. The released code divides them by the square root of a size
  that always equals 1, so in effect it does not divide them.

**Past the training length**: defined. For causal models only.

**Traps.** `cable` is `fox` with the sign of z reversed, because softplus(z) = -log sigmoid(-z). So `initial` has
opposite effects: with a large value, earlier keys have almost no weight in `cable`, and almost their full weight in
`fox`. The two also differ in the scale: by default, `cable` does not divide scores by sqrt(D).
"""

from typing import Any

from fastpe.base.option import Option
from fastpe.base.random import Stream
from fastpe.encodings.encoding import Encoding, Gate
from fastpe.encodings.parts.gates import gate_parameters, gate_values, needs_causal
from fastpe.encodings.slots import Spec


def check(spec: Spec, **options: Any) -> None:
    """Require a causal model."""
    needs_causal("cable", spec)


def parameters(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """The weight and bias of the gate."""
    return gate_parameters(spec, weight=True)


def init(spec: Spec, rng: Stream, *, initial: float, scaled: bool) -> dict[str, Any]:
    """The initial values of `fox`."""
    return gate_values(spec, rng, initial, weight=True)


def plain(spec: Spec, *, initial: float, scaled: bool) -> dict[str, Any]:
    """The factor of the scores, if it is not the usual one."""
    return {} if scaled else {"scale": 1.0}


def reference(spec: Spec, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    """Fill nothing: the layers compute the gate, see `fastpe.reference.gate`."""
    return {}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Fill nothing."""


ENCODING = Encoding(
    summary="distances are sums of steps set by the content",
    formula=r"z = W x + b, \quad S_{ij} = q_i \cdot k_j - \sum_{j < t \le i} \mathrm{softplus}(z_{h,t})",
    use_when="a causal model must read beyond its training length, and content should set the decay",
    also_called=("context-aware biases",),
    not_to_be_confused={
        "fox": "the same with the sign of z reversed, and with scaled scores",
        "CARoPE": "context-aware rotary angles: `fastpe.angles.carope`",
        "cope": "counts of keys that match the query, with a vector for each count",
    },
    use="proposed",
    slots=("scale",),
    gate=Gate(1),
    options={
        "initial": Option(0.0, "the initial bias", float, minimum=-20.0, maximum=20.0, samples=(5.0,)),
        "scaled": Option(False, "whether scores are divided by sqrt(D)", bool),
    },
    per_layer=("weight", "bias"),
    beyond="defined",
    direction="causal",
    source="Veisi, Fartoot and Amirzadeh 2025, arXiv:2503.08067, and released code",
    ulp=0.0,
)
