"""BEiT's bias: Swin's table for the cells of an image, and three more entries for a class token.

    S_ab = s q_a . k_b + table[(y_a - y_b + h - 1) (2w - 1) + x_a - x_b + w - 1]     two cells
                         table[n - 3]  class to cell,   table[n - 2]  cell to class,   table[n - 1]  class to class

The table has n rows and is made for a grid of h rows and w columns. Cell a is in row y_a and column x_a.

Source: Bao, Dong, Piao and Wei 2021, "BEiT: BERT Pre-Training of Image Transformers" (arXiv:2106.08254), released code;
index and initial values: microsoft/unilm, beit/modeling_finetune.py, RelativePositionBias; resizing:
beit/run_class_finetuning.py.

**Slot**: `index` (N, N) and `values` (H, V). **Learns**, separately in every layer: `table` ((2h-1)(2w-1), H), with
three more rows if `class_token` is set. All rows are initially zeros. The authors also use separate tables in
fine-tuning; in pre-training, all layers share one table.

**Options**
- `class_token`: whether the first token is a class token, which has no cell. The grid then has N - 1 cells.
- `grid`: the numbers of rows and columns of the grid, whose cells are in raster order. Default: the two factors of the
  number of cells that are closest to each other.
- `window`: h and w, the numbers of rows and columns of the grid that the table is made for. Default: the grid of the
  training length.
- `beyond`: how a grid other than the window is handled. `error`: a smaller grid uses the middle of the table, and a
  larger grid raises an error. `resize`: the table is resampled by the authors' method (see below); the rows of the
  class token are kept.

Positions, if given, are integers of shape (N, 2) or (B, N, 2): the row and the column of each token. The class token's
position is ignored.

**Past the training length**: undefined, or resized by `beyond`. The number of tokens does not matter: a longer sequence
is possible if no side of its grid is longer than that of the window.

**Resizing** moves the learned offsets 1, 2, 3, ... to 1, 1 + q, 1 + q + q^2, ..., where q is chosen so that the last
offset reaches the end of the new grid. A cubic spline through the moved values is evaluated at whole offsets: near
offsets keep their values, and far offsets are spread out. As in the released code, q is found by bisection in 1.01 ..
1.5, to 1e-6. Beyond its outermost point, the spline keeps the value of that point. If the new grid is smaller, or many
times larger, no q in this range places the last offset at the end of the grid. `fastpe.resize` returns the resampled
table for further training.

**Traps.** The entry for the class token with itself is the last one. Code that fills the class token's row and column
of the index must set this entry after the row and the column. The table starts as zeros, so it adds no bias until it
has been trained.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from scipy.interpolate import make_interp_spline

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Needs, Reported
from fastpe.encodings.parts import offset_tables
from fastpe.encodings.parts.offset_tables import GRID, WINDOW, Array, Sides
from fastpe.encodings.slots import Spec

_CLASS_ROWS = 3


def resize(params: Any, *, window: Sides, new_window: Sides) -> dict[str, Array]:
    """The table ((2h-1)(2w-1), H), possibly with three more rows for a class token, resampled for another window.

    >>> smaller = resize({"table": np.arange(25.0)[:, None] ** 2}, window=(3, 3), new_window=(2, 2))
    >>> smaller["table"].round(3).ravel().tolist()
    [36.0, 49.0, 64.0, 121.0, 144.0, 169.0, 256.0, 289.0, 324.0]
    """
    rows, old, new = offset_tables.checked(params, window, new_window, (0, _CLASS_ROWS))
    cells = offset_tables.entries(old)
    whole = np.concatenate([offset_tables.resized(rows[:cells], old, new, uneven_spline), rows[cells:]])
    return {"table": whole.astype(rows.dtype)}


@lru_cache(maxsize=64)
def uneven_spline(source: int, target: int) -> Array:
    """The matrix (target, source) that evaluates, at whole offsets, a cubic spline through increasingly spaced values.

    >>> (uneven_spline(5, 9) @ [0, 1, 2, 1, 0]).round(3)[3:6].tolist()
    [1.0, 2.0, 1.0]
    """
    left, right, q = 1.01, 1.5, 1.01
    while right - left > 1e-6:
        q = (left + right) / 2
        left, right = (left, q) if (1 - q ** (source // 2)) / (1 - q) > target // 2 else (q, right)
    behind = np.cumsum(q ** np.arange(source // 2))
    places = np.concatenate([-behind[::-1], [0.0], behind])
    wanted = np.clip(np.arange(target) - target // 2, places[0], places[-1])
    matrix = np.asarray(make_interp_spline(places, np.eye(source), k=min(3, source - 1))(wanted))
    matrix.flags.writeable = False
    return matrix


def check(spec: Spec, *, class_token: bool, grid: Sides | None, window: Sides | None, beyond: str) -> None:
    """Raise an error for offsets without an entry, unless the table is resampled."""
    own = offset_tables.window_of(spec, window, grid, class_token)
    offset_tables.check_inside("beit_bias", spec, own, grid, class_token, beyond == "resize")


def _sides(spec: Spec, class_token: bool, grid: Sides | None, window: Sides | None, beyond: str) -> tuple[Sides, Sides]:
    """The window of the learned table, and the window of the values."""
    own = offset_tables.window_of(spec, window, grid, class_token)
    return own, own if beyond == "error" or spec.positions is not None else offset_tables.grid_of(
        spec, grid, class_token
    )


def shapes(
    spec: Spec, *, class_token: bool, grid: Sides | None, window: Sides | None, beyond: str
) -> dict[str, tuple[int, ...]]:
    """The index of every pair, and the values that it selects from."""
    _, used = _sides(spec, class_token, grid, window, beyond)
    values = offset_tables.entries(used) + _CLASS_ROWS * class_token
    return {"index": (*spec.batch, spec.length, spec.length), "values": (spec.heads, values)}


def parameters(
    spec: Spec, *, class_token: bool, grid: Sides | None, window: Sides | None, **options: Any
) -> dict[str, tuple[int, ...]]:
    """A number for every offset in the window, and for the three kinds of pairs with a class token."""
    own = offset_tables.window_of(spec, window, grid, class_token)
    return {"table": (offset_tables.entries(own) + _CLASS_ROWS * class_token, spec.heads)}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """A table of zeros."""
    return {"table": np.zeros(parameters(spec, **options)["table"])}


def reference(
    spec: Spec, params: dict[str, Any], *, class_token: bool, grid: Sides | None, window: Sides | None, beyond: str
) -> dict[str, Any]:
    """The released code's index: first the cells, then the row and the column of the class token, then its corner."""
    own, (h, w) = _sides(spec, class_token, grid, window, beyond)
    y, x = np.moveaxis(offset_tables.cells(spec, grid, class_token), -1, 0)
    n = offset_tables.entries(own)
    values = np.concatenate(
        [offset_tables.resized(params["table"][:n], own, (h, w), uneven_spline), params["table"][n:]]
    )
    row = y[..., :, None] - y[..., None, :] + h - 1
    column = x[..., :, None] - x[..., None, :] + w - 1
    index = np.zeros((*spec.batch, spec.length, spec.length))
    index[..., spec.length - y.shape[-1] :, spec.length - y.shape[-1] :] = row * (2 * w - 1) + column
    if class_token:
        index[..., 0, :] = len(values) - 3
        index[..., :, 0] = len(values) - 2
        index[..., 0, 0] = len(values) - 1
    return {"index": index, "values": values.T}


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, class_token: bool, grid: Sides | None,
    window: Sides | None, beyond: str,
) -> None:  # fmt: skip
    """Fill `index` and `values`."""
    own, used = _sides(spec, class_token, grid, window, beyond)
    index, before, after = out["index"], offset_tables.entries(own), offset_tables.entries(used)
    offset_tables.write_index(index, spec, used, grid, class_token)
    if class_token:
        index[..., 0, 1:], index[..., 1:, 0], index[..., 0, 0] = after, after + 1, after + 2
    out["values"][:, :after] = offset_tables.resized(params["table"][:before], own, used, uneven_spline).T
    out["values"][:, after:] = params["table"][before:].T


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, class_token: bool,
    grid: Sides | None, window: Sides | None, beyond: str,
) -> None:  # fmt: skip
    """dtable = the transposed resampling applied to dvalues; the class token's rows are copied."""
    own, used = _sides(spec, class_token, grid, window, beyond)
    before, after = offset_tables.entries(own), offset_tables.entries(used)
    dparams["table"][:before] += offset_tables.resized_gradient(dslots["values"][:, :after].T, own, used, uneven_spline)
    dparams["table"][before:] += dslots["values"][:, after:].T


ENCODING = Encoding(
    summary="a bias for each 2-D offset and for a class token",
    formula=r"""
        S_{ab} &= s\, q_a \cdot k_b + \mathrm{table}[t_{ab}] \\
        t_{ab} &= \begin{cases}
        (y_a - y_b + h - 1)(2w - 1) + x_a - x_b + w - 1 & \text{two cells} \\
        n - 3 & \text{class to cell} \\
        n - 2 & \text{cell to class} \\
        n - 1 & \text{class to class}
        \end{cases}
    """,
    use_when="inputs are images with a class token, and the model is fine-tuned on larger grids, as in BEiT",
    not_to_be_confused={"swin_bias": "the same table without a class token"},
    use="images",
    needs=Needs("coordinates"),
    slots=("index", "values"),
    options={
        "class_token": Option(False, "whether the first token is a class token, which has no cell", bool),
        "grid": GRID,
        "window": WINDOW,
        "beyond": Option("error", "how a grid other than the window is handled", str, ("error", "resize")),
    },
    beyond="undefined",
    moves=lambda *, beyond, **options: beyond == "resize",
    direction="yes",
    source="Bao, Dong, Piao and Wei 2021, arXiv:2106.08254, released code",
    reported=Reported(
        "tuned",
        "Pre-trained at 224 px and fine-tuned: BEiT-large 87.4 % at 224, 88.4 % at 384 and 88.6 % at 512 px.",
        "Bao et al. 2021, arXiv:2106.08254; microsoft/unilm, beit/README.md",
    ),
    ulp=8.0,
    axes=lambda **options: 2,
    per_layer=("table",),
)
