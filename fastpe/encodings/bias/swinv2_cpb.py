"""Swin Transformer V2's bias: a small network maps the offset of two cells, in logarithmic coordinates, to a bias.

    l(c) = sign(c) log2(|8 c / (side - 1)| + 1) / log2 8       for each coordinate c of the offset, query minus key
    S_ab = s q_a . k_b + 16 sigmoid(sum_k w2_kh max(w1_yk l(dy) + w1_xk l(dx) + b1_k, 0))

Source: Liu et al. 2022, "Swin Transformer V2: Scaling Up Capacity and Resolution" (arXiv:2111.09883), section 3.3,
eqs. (3) and (4); the factors 8, log2 8 and 16 and the initial values: microsoft/Swin-Transformer,
models/swin_transformer_v2.py, WindowAttention.

**Slots**: `index` (N, N) and `values` (H, V), one bias for each of the V = (2h-1)(2w-1) offsets of an h by w grid; or
`scores` (H, N, N) if positions are given. **Learns**: `w1` (2, K), `b1` (K,), `w2` (K, H), separately in every layer.
The weights are initially drawn from N(0, 0.02^2), and b1 is zero.

**Options**
- `hidden`: K, the width of the network.
- `grid`: numbers of rows and columns of the grid that this sequence's tokens form in raster order. Default: the two
  factors of N that are closest to each other.
- `window`: numbers of rows and columns of the window used in training, which are `side` in the formula. Default: the
  default grid of the training length.

Positions, if given, have shape (N, 2) or (B, N, 2): row and column. They may be real numbers.

**Past the training length**: defined, which is the purpose of this encoding: the input l of the network grows slowly.
It is at most 1.06 in the window, and about 1.4 on a grid with twice as many rows and columns.

**Traps.** Only the bias is implemented: the published attention also replaces the product q . k by the cosine of q and
k, times a learned factor per head. Because 16 sigmoid(0) = 8, untrained biases are about 8 everywhere, which does not
change the softmax.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Needs, Reported
from fastpe.encodings.parts import offset_tables
from fastpe.encodings.parts.offset_tables import GRID, WINDOW, Sides, shapes
from fastpe.encodings.slots import Spec
from fastpe.kernels.compile.decorators import entry, inner
from fastpe.kernels.simd import fma, lanes, load_first, minus, pointer, relu, splat, store_first, total, where_negative

Array = np.ndarray[Any, Any]

STANDARD_DEVIATION = 0.02


def check(spec: Spec, *, hidden: int, grid: Sides | None, window: Sides | None) -> None:
    """Check that the grid and the window fit the tokens."""
    offset_tables.window_of(spec, window, grid)
    if spec.positions is None:
        offset_tables.grid_of(spec, grid)


def parameters(spec: Spec, *, hidden: int, **options: Any) -> dict[str, tuple[int, ...]]:
    """The weights and biases of the network."""
    return {"w1": (2, hidden), "b1": (hidden,), "w2": (hidden, spec.heads)}


def init(spec: Spec, rng: Any, *, hidden: int, **options: Any) -> dict[str, Any]:
    """Weights drawn from N(0, 0.02^2), and zeros for `b1`."""
    drawn = STANDARD_DEVIATION * rng.normal(2 * hidden + hidden * spec.heads)
    w1, w2 = np.split(drawn, [2 * hidden])
    return {"w1": w1.reshape(2, hidden), "b1": np.zeros(hidden), "w2": w2.reshape(hidden, spec.heads)}


def logarithmic(offsets: Array, window: Sides) -> Array:
    """The input coordinates (..., 2) of the network; for a side of 1 the divisor is 1.

    >>> logarithmic(np.array([[1.0, -3.0]]), (8, 8)).round(9).tolist()
    [[0.366511891, -0.715613796]]
    """
    stretched = 8.0 * offsets / np.maximum(np.array(window) - 1.0, 1.0)
    return np.sign(stretched) * np.log1p(np.abs(stretched)) / np.log(8.0)


def reference(
    spec: Spec, params: dict[str, Any], *, hidden: int, grid: Sides | None, window: Sides | None
) -> dict[str, Any]:
    """The formula above, computed one hidden unit at a time."""
    side = np.array(offset_tables.window_of(spec, window, grid))
    c, index = offset_tables.printed_offsets(spec, grid)
    c = 8 * c / np.where(side > 1, side - 1, 1)
    c = np.sign(c) * np.log2(np.abs(c) + 1) / np.log2(8)
    u = np.zeros((*c.shape[:-1], spec.heads))
    for w1, b1, w2 in zip(params["w1"].T, params["b1"], params["w2"], strict=True):
        u += np.maximum(c[..., 0] * w1[0] + c[..., 1] * w1[1] + b1, 0)[..., None] * w2
    return offset_tables.as_slots(16 / (1 + np.exp(-u)), index)


def _blocks(
    spec: Spec, slots: dict[str, Array], grid: Sides | None, window: Sides | None
) -> Iterator[tuple[Array, Array]]:
    """Yield coordinates (M, 2) of some offsets, and their part (H, M) of the slot or of its gradient."""
    own = offset_tables.window_of(spec, window, grid)
    for some, part in offset_tables.blocks(spec, slots, grid):
        yield logarithmic(some, own), part


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, hidden: int, grid: Sides | None, window: Sides | None
) -> None:
    """Fill `index` and `values`, or `scores` if positions are given."""
    network = _network(params)
    offset_tables.write_own_index(out, spec, grid)
    for places, values in _blocks(spec, out, grid, window):
        u = np.empty((spec.heads, len(places)))
        _forward(places, *network, u)
        with np.errstate(over="ignore"):
            values[...] = 16.0 / (1.0 + np.exp(-u))


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, hidden: int,
    grid: Sides | None, window: Sides | None,
) -> None:  # fmt: skip
    """du = dvalues 16 sigmoid'(u), then backpropagate through the network."""
    network = _network(params)
    dw1, db1, dw2 = (np.zeros(each.shape) for each in network)
    for places, dvalues in _blocks(spec, dslots, grid, window):
        u = np.empty((spec.heads, len(places)))
        _forward(places, *network, u)
        with np.errstate(over="ignore"):
            bias = 16.0 / (1.0 + np.exp(-u))
        _backward(places, *network, dvalues * bias * (1.0 - bias / 16.0), dw1, db1, dw2)
    for name, gradient in {"w1": dw1, "b1": db1, "w2": dw2.T}.items():
        dparams[name] += gradient


def _network(params: dict[str, Any]) -> tuple[Array, Array, Array]:
    """w1 (2, K), b1 (K,) and the transpose of w2, (H, K), float64."""
    w1, b1, w2 = (np.ascontiguousarray(each, np.float64) for each in (params["w1"], params["b1"], params["w2"].T))
    return w1, b1, w2


@inner
def _units(places, m, w1, b1, k, hidden):  # type: ignore[no-untyped-def] # a kernel's types are Numba's
    """The hidden values of offset m from unit k on, before the ReLU."""
    rows, left = pointer(w1), hidden - k
    found = fma(splat(places[m, 0]), load_first(rows, k, left), load_first(pointer(b1), k, left))
    return fma(splat(places[m, 1]), load_first(rows, hidden + k, left), found)


@entry(label="bias of offsets by a network")
def _forward(places: Array, w1: Array, b1: Array, w2: Array, u: Array) -> None:
    heads, hidden = w2.shape
    for m in range(places.shape[0]):
        for h in range(heads):
            found = splat(0.0)
            for k in range(0, hidden, lanes(found)):
                units = relu(_units(places, m, w1, b1, k, hidden))
                found = fma(units, load_first(pointer(w2), h * hidden + k, hidden - k), found)
            u[h, m] = total(found)


@entry(label="gradient of the bias of offsets")
def _backward(
    places: Array, w1: Array, b1: Array, w2: Array, du: Array, dw1: Array, db1: Array, dw2: Array
) -> None:  # fmt: skip
    heads, hidden = w2.shape
    none = splat(0.0)
    for m in range(places.shape[0]):
        y, x = splat(places[m, 0]), splat(places[m, 1])
        for k in range(0, hidden, lanes(none)):
            left = hidden - k
            before = _units(places, m, w1, b1, k, hidden)
            units, change = relu(before), none
            for h in range(heads):
                of_head, row = splat(du[h, m]), h * hidden + k
                change = fma(of_head, load_first(pointer(w2), row, left), change)
                target = pointer(dw2)
                store_first(target, row, fma(of_head, units, load_first(target, row, left)), left)
            change = where_negative(minus(before), change, none)
            for row, factor in ((k, y), (hidden + k, x)):
                target = pointer(dw1)
                store_first(target, row, fma(factor, change, load_first(target, row, left)), left)
            store_first(pointer(db1), k, load_first(pointer(db1), k, left) + change, left)


ENCODING = Encoding(
    summary="bias from a small network of log 2-D offsets",
    formula=r"""
        l(c) &= \mathrm{sign}(c)\, \frac{\log_2\left(\left| \frac{8 c}{\mathrm{side} - 1} \right| + 1\right)}{\log_2 8}
            \quad \text{for each coordinate } c \text{ of the offset, query minus key} \\
        S_{ab} &= s\, q_a \cdot k_b + 16\, \mathrm{sigmoid}\left(\sum_k w_{2,kh} \max(w_{1,yk}\, l(dy) + w_{1,xk}\,
            l(dx) + b_{1,k},\ 0)\right)
    """,
    use_when="inputs are images whose windows are larger in tests than in training, as in Swin V2",
    also_called=("log-CPB", "CPB", "continuous position bias"),
    not_to_be_confused={"swin_bias": "a table of the first version of Swin"},
    use="images",
    needs=Needs("coordinates"),
    slots=("index", "values", "scores"),
    options={
        "hidden": Option(512, "width of the network", int, minimum=1),
        "grid": GRID,
        "window": WINDOW,
    },
    beyond="defined",
    direction="yes",
    source="Liu et al. 2022, arXiv:2111.09883, section 3.3, eqs. (3) and (4)",
    reported=Reported(
        "partly",
        "Trained on windows of 8 cells (256 px): 81.8 %; untuned 81.7 % at 16 cells (512 px), 79.1 % at 24 "
        "(84.2 % tuned).",
        "Liu et al. 2022, arXiv:2111.09883, table 1",
    ),
    ulp=64.0,
    axes=lambda **options: 2,
    shapes=shapes,
    per_layer=("w1", "b1", "w2"),
)
