"""Dynamic position bias: a small network maps the look-back i - j to a bias for every head.

    S_ij = s q_i . k_j + u_h(i - j),      u = W_out g(.. g(W g(w_in x + b_in) + b) ..) + b_out,      g(z) = z sigmoid(z)
    x = m = i - j,      or with `logarithm`      x = sign(m) ln(|m| + 1)

Source: lucidrains/x-transformers, x_transformers.py, DynamicPositionBias; the idea is from CrossFormer (Wang et al.
2021, arXiv:2108.00154), section 3.2. CrossFormer's own network, for grids, is `crossformer_bias`.

**Slot**: `bias` (H, 2N-1), or `scores` (H, N, N) if positions are given. **Learns**, shared by all layers: `w_in`,
`b_in` (K,), `w` (L-1, K, K), `b` (L-1, K) (absent if L = 1), `w_out` (K, H), `b_out` (H,). Each is initially uniform in
+-1/sqrt(fan in), as in PyTorch's linear layers.

**Options**
- `hidden`: K. Default: a quarter of the model's width, at least 1.
- `depth`: L, the number of hidden layers. Default: 2.
- `logarithm`: the network's input is the signed logarithm of the look-back (see above) instead of the look-back.

Positions, if given, may be real numbers.

**Past the training length**: defined. The output of SiLU units grows in proportion to their input, so without
`logarithm` the bias of far keys keeps rising, or falling, in proportion to the distance.

**Traps.** Without `logarithm` x is not scaled: with a long training length the units of the first layer are saturated
from the start, and each pair contributes to the gradient of `w_in` in proportion to its distance. The bias is added to
scores that are already divided by sqrt(D).
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from fastpe.base.initial_values import initial_values
from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts import offset_network
from fastpe.encodings.parts.offset_biases import as_slots, blocks, pairwise, shapes
from fastpe.encodings.parts.offsets import stream_of
from fastpe.encodings.slots import Spec

Array = np.ndarray[Any, Any]

_BLOCK = 2**11  # hidden units computed together


def _width(spec: Spec, hidden: int | None) -> int:
    return max(spec.dim // 4, 1) if hidden is None else hidden


def parameters(spec: Spec, *, hidden: int | None, depth: int, **options: Any) -> dict[str, tuple[int, ...]]:
    """The weights and biases of the network."""
    return offset_network.parameters((), _width(spec, hidden), depth, spec.heads)


def init(spec: Spec, rng: Any, *, hidden: int | None, depth: int, **options: Any) -> dict[str, Any]:
    """Uniform in +-1/sqrt(fan in)."""
    width = _width(spec, hidden)
    return {
        name: initial_values("uniform", stream_of(rng, name), "weight", shape, (1 if "_in" in name else width, width))
        for name, shape in parameters(spec, hidden=hidden, depth=depth).items()
    }


def reference(
    spec: Spec, params: dict[str, Any], *, hidden: int | None, depth: int, logarithm: bool
) -> dict[str, Any]:  # fmt: skip
    """The formula above, computed one hidden unit at a time."""

    def g(z: Array) -> Array:
        with np.errstate(over="ignore"):
            return z / (1 + np.exp(-z))

    m = -pairwise(spec)
    x = np.sign(m) * np.log(np.abs(m) + 1) if logarithm else m
    units = [g(w * x + b) for w, b in zip(params["w_in"], params["b_in"], strict=True)]
    for layer in range(depth - 1):
        units = [
            g(sum((unit * w for unit, w in zip(units, column, strict=True)), np.zeros_like(x)) + b)
            for column, b in zip(params["w"][layer].T, params["b"][layer], strict=True)
        ]
    scores = [
        sum((unit * w for unit, w in zip(units, column, strict=True)), np.zeros_like(x)) + b
        for column, b in zip(params["w_out"].T, params["b_out"], strict=True)
    ]
    return as_slots(spec, np.stack(scores, axis=-3))


def _pieces(spec: Spec, slots: dict[str, Array], logarithm: bool, width: int) -> Iterator[tuple[Array, Array]]:
    """Yield x (M, 1) for some look-backs, and a view (H, M) of the part of the slot, or of its gradient, for them."""
    step = max(1, _BLOCK // width)
    for offsets, slot in blocks(spec, slots):
        lines = [(offsets, slot)] if offsets.ndim == 1 else zip(offsets, slot.swapaxes(0, 1), strict=True)
        for line, values in lines:
            for first in range(0, len(line), step):
                m = -line[first : first + step]
                x = np.copysign(np.log1p(np.abs(m)), m) if logarithm else m
                yield x[:, None], values[:, first : first + step]


def _silu(z: Array, layer: int) -> tuple[Array, offset_network.Back]:
    """g(z) = z sigmoid(z), and its backward pass."""
    with np.errstate(over="ignore"):
        gate = 1.0 / (1.0 + np.exp(-z))
    return z * gate, lambda dg: dg * (gate * (1.0 + z * (1.0 - gate)))


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, logarithm: bool, **options: Any) -> None:
    """Fill `bias`, or `scores` if positions are given."""
    network = offset_network.as_float64(params)
    for x, values in _pieces(spec, out, logarithm, len(network["b_in"])):
        values[...] = offset_network.forward(x, network, _silu).T


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, logarithm: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Sum the gradients of all pairs with the same look-back, and backpropagate them through the network."""
    network = offset_network.as_float64(params)
    found = {name: np.zeros(each.shape) for name, each in network.items()}
    for x, dvalues in _pieces(spec, dslots, logarithm, len(network["b_in"])):
        layers: list[Any] = []
        offset_network.forward(x, network, _silu, layers)
        offset_network.backward(x, network, layers, dvalues.T, found)
    for name, gradient in found.items():
        dparams[name] += gradient


ENCODING = Encoding(
    summary="bias from a small network of the look-back",
    formula=r"""
        S_{ij} &= s\, q_i \cdot k_j + u_h(i - j) \\
        u &= W_{\mathrm{out}}\, g(\dots g(W g(w_{\mathrm{in}} x + b_{\mathrm{in}}) + b) \dots) + b_{\mathrm{out}},
            \quad g(z) = z\, \mathrm{sigmoid}(z) \\
        x &= m = i - j, \quad \text{or with } \mathrm{logarithm} \quad x = \mathrm{sign}(m) \ln(\left| m \right| + 1)
    """,
    use_when="a small network should learn any bias over the distance, without bounds for far keys",
    also_called=("dynamic_pos_bias",),
    not_to_be_confused={"crossformer_bias": "CrossFormer's network for grids, with normalisation"},
    use="proposed",
    slots=("bias", "scores"),
    options={
        "hidden": Option(None, "width of the network; none: a quarter of the model's", int, minimum=1, optional=True),
        "depth": Option(2, "hidden layers of the network", int, minimum=1, maximum=64),
        "logarithm": Option(False, "take the signed logarithm of the look-back as input", bool),
    },
    beyond="defined",
    direction="yes",
    source="lucidrains/x-transformers, DynamicPositionBias, after Wang et al. 2021, arXiv:2108.00154, section 3.2",
    ulp=lambda spec, *, hidden, depth, **options: 64.0 + 16.0 * depth * math.sqrt(_width(spec, hidden)),
    shapes=shapes,
)
