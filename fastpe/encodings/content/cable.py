"""CABLE, context-aware biases: every position adds to the distance of all that came before it.

    z = W x + b,    S_ij = q_i . k_j - sum over j < t <= i of softplus(z_h,t)

x is a layer's input after its norm.

Source: Veisi, Fartoot and Amirzadeh 2025, "Context-aware Biases for Length Extrapolation" (arXiv:2503.08067);
axiomlab/Cable, src/Cable.py, CausalSelfAttention.

**Slots**: `scale`. What it adds is `key_offset`, which the model's layers make of their input. **Learns**, separately
in every layer: `weight` (H, C) and `bias` (H,), which begin as `fox`'s do.

**Options**
- `initial`: the initial bias.
- `scaled`: whether scores are divided by sqrt(D), as everywhere else. In the released code they are not: it divides by
  the root of a width that is 1.

**Past the training length**: defined. For causal models alone.

**Traps.** It is `fox` with the sign of z reversed: softplus(z) = -log sigmoid(-z). The two differ in where they begin
and in the scale.
"""

from typing import Any

from fastpe.base.option import Option
from fastpe.base.random import Stream
from fastpe.encodings.encoding import Encoding, Gate
from fastpe.encodings.parts.gates import gate_parameters, gate_values, needs_causal
from fastpe.encodings.slots import Spec


def check(spec: Spec, **options: Any) -> None:
    """The model must be causal."""
    needs_causal("cable", spec)


def parameters(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """The gate's map."""
    return gate_parameters(spec, weight=True)


def init(spec: Spec, rng: Stream, *, initial: float, scaled: bool) -> dict[str, Any]:
    """As `fox`."""
    return gate_values(spec, rng, initial, weight=True)


def plain(spec: Spec, *, initial: float, scaled: bool) -> dict[str, Any]:
    """The factor of the scores, where it is not the usual one."""
    return {} if scaled else {"scale": 1.0}


def reference(spec: Spec, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    """No array is filled: see `fastpe.reference.gate`."""
    return {}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Fill nothing."""


ENCODING = Encoding(
    summary="distances that every position adds to by itself",
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
