"""CrossFormer's dynamic position bias: a small network with normalisation maps the offset of two cells to a bias.

    z_0 = (dy, dx) w_in + b_in,   z_l = f_l(z_(l-1)) w_(l-1) + b_(l-1), l = 1, 2,   u = f_3(z_2) w_out + b_out
    f_l(z) = max(norm_weight_l (z - mean z) / sqrt(var z + 1e-5) + norm_bias_l, 0),   (dy, dx): query minus key
    S_ab = s q_a . k_b + u_h(y_a - y_b, x_a - x_b)

Source: Wang et al. 2021, "CrossFormer: A Versatile Vision Transformer Hinging on Cross-scale Attention"
(arXiv:2108.00154), section 3.2; number of layers, width and initial values: cheerss/CrossFormer, models/crossformer.py,
DynamicPosBias. As in the attention layers of this code, the network has no residual connections.

**Slots**: `index` (N, N) and `values` (H, V), computed once for each of the V = (2h-1)(2w-1) offsets in a grid of h
rows and w columns. If positions are given, the slot is `scores` (H, N, N) instead. **Learns**, separately in every
layer: `w_in` (2, K), `b_in` (K,), `w` (2, K, K), `b` (2, K), `w_out` (K, H), `b_out` (H,), and `norm_weight` and
`norm_bias` (3, K) of the normalisations.

**Initial values.** N(0, 0.02^2) for the maps, zeros for `b_in`, `b`, `b_out` and `norm_bias`, ones for `norm_weight`.

**Options**
- `hidden`: K. Default: a sixteenth of the model's width, as in the authors' code, but at least 4, the width in their
  narrowest layer.
- `grid`: the numbers of rows and columns of the grid. Its tokens are in raster order. Default: the two factors of N
  that are closest to each other.

Positions, if given, have shape (N, 2) or (B, N, 2): the row and the column of each token. They may be real numbers.

**Past the training length**: defined for any grid, which is the purpose of this encoding. Because of the last
normalisation, the bias cannot exceed a bound that depends on the weights but not on the offset.

**Accuracy.** A normalisation divides its input by the standard deviation, but never by less than 0.003, so it may
multiply rounding errors of large offsets by up to 300.

**Traps.** The first normalisation removes the length of an offset; only b_in makes near and far offsets in the same
direction differ. b_in starts as zeros, so before training all offsets in one direction have the same bias. With K = 1,
a normalisation always gives zero, so the bias is constant; with K = 2, it leaves little more than a sign.
`dynamic_bias` is the variant of x-transformers for sequences.
"""

from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Needs
from fastpe.encodings.parts import offset_network, offset_tables
from fastpe.encodings.parts.offset_tables import GRID, Sides, shapes
from fastpe.encodings.parts.offsets import STANDARD_DEVIATION, stream_of
from fastpe.encodings.slots import Spec
from fastpe.kernels.arrays import layer_norm_backward, layer_norm_forward

Array = np.ndarray[Any, Any]

_LAYERS = 3
_LEAST = 4  # the width in the authors' narrowest layer, of 64 channels


def _width(spec: Spec, hidden: int | None) -> int:
    return max(spec.dim // 16, _LEAST) if hidden is None else hidden


def check(spec: Spec, *, hidden: int | None, grid: Sides | None) -> None:
    """Check that the grid fits the tokens."""
    if spec.positions is None:
        offset_tables.grid_of(spec, grid)


def parameters(spec: Spec, *, hidden: int | None, **options: Any) -> dict[str, tuple[int, ...]]:
    """The network, and the weights of its normalisations."""
    width = _width(spec, hidden)
    maps = offset_network.parameters((2,), width, _LAYERS, spec.heads)
    return {**maps, "norm_weight": (_LAYERS, width), "norm_bias": (_LAYERS, width)}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """Weights drawn from N(0, 0.02^2), zeros for biases, and ones for `norm_weight`."""
    found = {name: np.zeros(shape) for name, shape in parameters(spec, **options).items()}
    found["norm_weight"] += 1.0
    for name in ("w_in", "w", "w_out"):
        found[name] += STANDARD_DEVIATION * stream_of(rng, name).normal(found[name].shape)
    return found


def reference(spec: Spec, params: dict[str, Any], *, hidden: int | None, grid: Sides | None) -> dict[str, Any]:
    """The formula above, layer by layer."""
    offsets, index = offset_tables.printed_offsets(spec, grid)
    z = offsets @ params["w_in"] + params["b_in"]
    for layer in range(_LAYERS):
        mean, var = z.mean(axis=-1)[..., None], z.var(axis=-1)[..., None]
        normal = (z - mean) / np.sqrt(var + 1e-5)
        units = np.maximum(params["norm_weight"][layer] * normal + params["norm_bias"][layer], 0)
        last = layer == _LAYERS - 1
        w, b = (params[f"{name}_out"] if last else params[name][layer] for name in ("w", "b"))
        z = units @ w + b
    return offset_tables.as_slots(z, index)


def _between(network: dict[str, Array], found: dict[str, Array]) -> offset_network.Between:
    """f_l with its backward pass, which adds the gradients of the normalisation's weights to `found`."""

    def units(z: Array, layer: int) -> tuple[Array, offset_network.Back]:
        weight = network["norm_weight"][layer]
        before, stats = layer_norm_forward(z, weight, network["norm_bias"][layer])
        after = np.maximum(before, 0.0)

        def back(dunits: Array) -> Array:
            dz, dweight, dbias = layer_norm_backward(np.where(after > 0.0, dunits, 0.0), z, weight, stats)
            found["norm_weight"][layer] += dweight
            found["norm_bias"][layer] += dbias
            return dz

        return after, back

    return units


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, hidden: int | None, grid: Sides | None
) -> None:  # fmt: skip
    """Fill `index` and `values`, or `scores` if positions are given."""
    network = offset_network.as_float64(params)
    offset_tables.write_own_index(out, spec, grid)
    for offsets, values in offset_tables.blocks(spec, out, grid):
        values[...] = offset_network.forward(offsets, network, _between(network, {})).T


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, hidden: int | None,
    grid: Sides | None,
) -> None:  # fmt: skip
    """Sum the gradients of all pairs with the same offset, and backpropagate them through the network."""
    network = offset_network.as_float64(params)
    found = {name: np.zeros(each.shape) for name, each in network.items()}
    for offsets, dvalues in offset_tables.blocks(spec, dslots, grid):
        layers: list[Any] = []
        offset_network.forward(offsets, network, _between(network, found), layers)
        offset_network.backward(offsets, network, layers, dvalues.T, found)
    for name, gradient in found.items():
        dparams[name] += gradient


ENCODING = Encoding(
    summary="bias from a normalised network of the 2-D offset",
    formula=r"""
        z_0 &= (dy, dx)\, w_{\mathrm{in}} + b_{\mathrm{in}} \\
        z_l &= f_l(z_{l-1})\, w_{l-1} + b_{l-1}, \quad l = 1, 2 \\
        u &= f_3(z_2)\, w_{\mathrm{out}} + b_{\mathrm{out}} \\
        f_l(z) &= \max\left(\mathrm{norm\_weight}_l\, \frac{z - \mathrm{mean}\, z}{\sqrt{\mathrm{var}\, z + 10^{-5}}} +
            \mathrm{norm\_bias}_l,\ 0\right) \\
        S_{ab} &= s\, q_a \cdot k_b + u_h(y_a - y_b,\ x_a - x_b), \quad \text{query minus key in } dy \text{ and } dx
    """,
    use_when="inputs are images whose grid changes its size, and the bias should stay bounded",
    also_called=("DPB", "CrossFormer's dynamic position bias"),
    not_to_be_confused={
        "dynamic_bias": "the variant of x-transformers for sequences, without normalisation",
        "swinv2_cpb": "one hidden layer of logarithmic coordinates",
    },
    use="images",
    needs=Needs("coordinates"),
    slots=("index", "values", "scores"),
    options={
        "hidden": Option(None, "width of the network; none: a sixteenth of the model's", int, minimum=1, optional=True),
        "grid": GRID,
    },
    beyond="defined",
    direction="yes",
    source="Wang et al. 2021, arXiv:2108.00154, section 3.2, and released code",
    # second term: sums of K products in each of four maps; third term: the rounding of the first map, 0.06 per unit of
    # offset, times 1/sqrt(1e-5)
    ulp=lambda spec, *, hidden, **options: 256.0 + 64.0 * _width(spec, hidden) + 40.0 * spec.farthest,
    axes=lambda **options: 2,
    shapes=shapes,
    per_layer=("w_in", "b_in", "w", "b", "w_out", "b_out", "norm_weight", "norm_bias"),
)
