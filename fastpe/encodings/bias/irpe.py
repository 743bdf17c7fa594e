"""Image RPE (iRPE), bias mode: a learned bias for each bucket of two-dimensional offsets.

    g(x) = round(x)                                                                       |x| <= alpha
         = sign(x) int(min(round(alpha + ln(|x|/alpha) / ln(gamma/alpha) (beta - alpha)), beta))    otherwise
    alpha, beta, gamma = ratio, 2 ratio, 8 ratio;  B = int(beta);  dy, dx: query minus key

    product     (g(dy) + B) (2B + 1) + g(dx) + B             cross       rows[g(dy) + B] + columns[g(dx) + B]
    euclidean   g(round(sqrt(dy^2 + dx^2))) + B              quant       g(dy^2 + dx^2) + B

Source: Wu et al. 2021, "Rethinking and Improving Relative Position Encoding for Vision Transformer"
(arXiv:2107.14222), section 3.2, eqs. (18) to (25); the order of rounding, clipping and truncation: microsoft/Cream,
iRPE/DeiT-with-iRPE/irpe.py, piecewise_index.

**Slot**: `index` (N, N), the bucket of each pair, and `values` (H, V), the bias of each bucket. V is the number of
buckets. **Learns**, separately in every layer: `table` (G, V), where G is 1 or H. The method `cross` instead learns
`rows` and `columns`, (G, 2B+1) each. All start as zeros.

**Options**
- `method`: `product` (the authors' default), `cross`, `euclidean` or `quant`.
- `ratio`: alpha, from 1e-6 to 512. The default, 1.9, gives B = 3, so `product` has 49 buckets.
- `shared_heads`: whether all heads share one table (G = 1), which is the authors' default. If not, every head has its
  own (G = H).
- `class_token`: whether the first token is a class token, which has no cell. All pairs with this token share one
  additional bucket.
- `grid`: the numbers of rows and columns of cells; tokens are in raster order. Default: the most nearly square grid.

If positions are given, their shape is (N, 2) or (B, N, 2). Each is a pair (row, column) of real numbers. The class
token's position is ignored.

**Past the training length**: clipped. Offsets beyond gamma share the outermost buckets, so the bias is defined for any
grid.

**Traps.** beta need not be an integer, and values clipped to beta are truncated: with ratio 1.9, the values g(0), g(1),
g(2), ... are 0, 1, 2, 2, 3, 3, ... Halves are rounded to even. `quant` applies g to the squared distance itself, as in
the code. Eq. (21) instead sorts all squared distances that occur, and applies g to the rank of the squared distance.
The bias is added to scores that are already divided by sqrt(D), as in the code; eq. (13) divides the bias too.
`euclidean` and `quant` never use the buckets below B, and their bias does not distinguish left from right. The authors'
other mode, "contextual", is not implemented here: it has a learned vector for each bucket, and multiplies query, key or
value by it. The tables start as zeros, so they add no bias until they have been trained.
"""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Needs
from fastpe.encodings.parts import offset_tables
from fastpe.encodings.parts.offset_tables import GRID, Sides
from fastpe.encodings.slots import Spec

Array = np.ndarray[Any, Any]


def _line(ratio: float) -> int:
    """The number of buckets of a coordinate."""
    return 2 * int(2 * ratio) + 1


def check(spec: Spec, *, ratio: float, class_token: bool, grid: Sides | None, **options: Any) -> None:
    """Check that the grid fits the tokens."""
    offset_tables.grid_of(spec, grid if spec.positions is None else None, class_token)


def shapes(spec: Spec, *, method: str, ratio: float, class_token: bool, **options: Any) -> dict[str, tuple[int, ...]]:
    """The index of every pair, and the values that it selects from."""
    line = _line(ratio)
    buckets = line * line if method in ("product", "cross") else line
    return {
        "index": (*spec.batch, spec.length, spec.length),
        "values": (spec.heads, buckets + class_token),
    }


def parameters(
    spec: Spec, *, method: str, ratio: float, shared_heads: bool, class_token: bool, **options: Any
) -> dict[str, tuple[int, ...]]:
    """A number for every bucket, for all heads together or for each head."""
    groups, line = 1 if shared_heads else spec.heads, _line(ratio)
    if method == "cross":
        return {"rows": (groups, line + class_token), "columns": (groups, line + class_token)}
    return {"table": (groups, (line * line if method == "product" else line) + class_token)}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """Tables of zeros."""
    return {name: np.zeros(shape) for name, shape in parameters(spec, **options).items()}


def piecewise(x: Array, ratio: float) -> Array:
    """g(x), int32.

    >>> piecewise(np.array([0.0, 1, 2, 3, 4, -9]), 1.9).tolist()
    [0, 1, 2, 2, 3, -3]
    """
    size = np.abs(x)
    far = (ratio + (np.log(np.maximum(size, ratio)) - math.log(ratio)) / math.log(8.0) * ratio).round()
    return (np.sign(x) * np.where(size <= ratio, size.round(), np.minimum(far, 2 * ratio))).astype(np.int32)


def reference(
    spec: Spec, params: dict[str, Any], *, method: str, ratio: float, shared_heads: bool, class_token: bool,
    grid: Sides | None,
) -> dict[str, Any]:  # fmt: skip
    """The released code, computed one offset at a time."""
    alpha, beta, gamma = ratio, 2 * ratio, 8 * ratio
    reach = int(beta)

    def g(x: float) -> int:
        if abs(x) <= alpha:
            return round(x)
        far = round(alpha + math.log(abs(x) / alpha) / math.log(gamma / alpha) * (beta - alpha))
        return int(math.copysign(1, x) * min(far, beta))

    def bucket(dy: float, dx: float) -> int:
        if method in ("product", "cross"):
            return (g(dy) + reach) * (2 * reach + 1) + g(dx) + reach
        square = dy * dy + dx * dx
        return g(round(math.sqrt(square)) if method == "euclidean" else square) + reach

    cells = offset_tables.cells(spec, grid, class_token)
    names = shapes(spec, method=method, ratio=ratio, class_token=class_token)
    index = np.full(names["index"], names["values"][1] - 1)
    for *sample, i in np.ndindex(cells.shape[:-1]):
        for j in range(cells.shape[-2]):
            offset = cells[(*sample, i)] - cells[(*sample, j)]
            index[(*sample, i + class_token, j + class_token)] = bucket(*offset.tolist())
    if method == "cross":
        rows, columns = (params[name] for name in ("rows", "columns"))
        line = 2 * reach + 1
        values = (rows[:, :line, None] + columns[:, None, :line]).reshape(len(rows), -1)
        values = np.concatenate([values, rows[:, line:] + columns[:, line:]], axis=1)
    else:
        values = params["table"]
    return {"index": index, "values": values + np.zeros((spec.heads, 1))}


def _buckets(offsets: Array, method: str, ratio: float) -> Array:
    """The bucket of offsets (..., 2), int32."""
    reach, (dy, dx) = int(2 * ratio), np.moveaxis(offsets, -1, 0)
    if method in ("product", "cross"):
        line = 2 * reach + 1
        return piecewise(dy, ratio) * np.int32(line) + piecewise(dx, ratio) + np.int32(reach * (line + 1))
    square = dy * dy + dx * dx
    return piecewise(np.sqrt(square).round() if method == "euclidean" else square, ratio) + np.int32(reach)


@lru_cache(maxsize=8)
def _backwards(grid: Sides, method: str, ratio: float) -> Array:
    """The buckets of all offsets of a grid, from the last to the first, (2h-1, 2w-1)."""
    h, w = grid
    found = _buckets(offset_tables.offsets(grid)[::-1], method, ratio).reshape(2 * h - 1, 2 * w - 1)
    found.flags.writeable = False
    return found


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, method: str, ratio: float, shared_heads: bool,
    class_token: bool, grid: Sides | None,
) -> None:  # fmt: skip
    """Fill `index` and `values`."""
    index, values, line = out["index"], out["values"], _line(ratio)
    if class_token:
        index[...] = values.shape[1] - 1
    inner = index[..., class_token:, class_token:]
    if spec.positions is None:
        rows, columns = offset_tables.grid_of(spec, grid, class_token)
        # a query's row is a slice of the buckets of all offsets, listed from last to first
        backwards = _backwards((rows, columns), method, ratio)
        windows = np.lib.stride_tricks.sliding_window_view(backwards, (rows, columns))
        inner.reshape(rows, columns, rows, columns)[...] = windows[::-1, ::-1]
    else:
        cells = offset_tables.cells(spec, grid, class_token)
        for sample in np.ndindex(*spec.batch):
            inner[sample] = _buckets(cells[sample][:, None] - cells[sample], method, ratio)
    if method != "cross":
        values[...] = params["table"]
        return
    rows, columns = (params[name].astype(np.float64) for name in ("rows", "columns"))
    pairs = rows[:, :line, None] + columns[:, None, :line]
    values[:, : line * line] = pairs.reshape(len(rows), -1)
    values[:, line * line :] = rows[:, line:] + columns[:, line:]


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, method: str, ratio: float,
    shared_heads: bool, **options: Any,
) -> None:  # fmt: skip
    """dtable = dvalues, summed over heads that share a table; with `cross`, drows sums dvalues over columns, and
    dcolumns over rows."""
    dvalues = dslots["values"].astype(np.float64)
    if shared_heads:
        dvalues = dvalues.sum(axis=0, keepdims=True)
    if method != "cross":
        dparams["table"] += dvalues
        return
    line = _line(ratio)
    pairs = dvalues[:, : line * line].reshape(-1, line, line)
    dparams["rows"][:, :line] += pairs.sum(axis=2)
    dparams["columns"][:, :line] += pairs.sum(axis=1)
    for name in ("rows", "columns"):
        dparams[name][:, line:] += dvalues[:, line * line :]


ENCODING = Encoding(
    summary="learned bias for each bucket of 2-D offsets",
    formula=r"""
        g(x) &= \begin{cases}
        \mathrm{round}(x) & \left| x \right| \le \alpha \\
        \mathrm{sign}(x)\, \mathrm{int}\left(\min\left(\mathrm{round}\left(\alpha + \frac{\ln(\left| x \right| /
            \alpha)}{\ln(\gamma / \alpha)} (\beta - \alpha)\right), \beta\right)\right) & \text{otherwise}
        \end{cases} \\
        \alpha, \beta, \gamma &= \mathrm{ratio},\ 2\, \mathrm{ratio},\ 8\, \mathrm{ratio};
            \quad B = \mathrm{int}(\beta); \quad dy, dx \text{: query minus key} \\
        &(g(dy) + B)(2B + 1) + g(dx) + B \quad \text{method } \mathrm{product} \\
        &\mathrm{rows}[g(dy) + B] + \mathrm{columns}[g(dx) + B] \quad \text{method } \mathrm{cross} \\
        &g\left(\mathrm{round}\left(\sqrt{dy^2 + dx^2}\right)\right) + B \quad \text{method } \mathrm{euclidean} \\
        &g(dy^2 + dx^2) + B \quad \text{method } \mathrm{quant}
    """,
    use_when="inputs are images, near offsets need a bias each, and far ones may share a bucket",
    also_called=("image RPE",),
    not_to_be_confused={"iRoPE": "Llama 4's layers: most with RoPE, some without positions"},
    use="images",
    needs=Needs("coordinates"),
    slots=("index", "values"),
    options={
        "method": Option("product", "how an offset becomes a bucket", str, ("product", "cross", "euclidean", "quant")),
        "ratio": Option(1.9, "offsets up to this have separate buckets", float, minimum=1e-6, maximum=512.0),
        "shared_heads": Option(True, "whether all heads share a table", bool),
        "class_token": Option(False, "whether the first token is a class token, which has no cell", bool),
        "grid": GRID,
    },
    beyond="clipped",
    direction="yes",
    source="Wu et al. 2021, arXiv:2107.14222, section 3.2, eqs. (18) to (25)",
    ulp=1.0,
    axes=lambda **options: 2,
    per_layer=("table", "rows", "columns"),
)
