"""Swin Transformer's bias: a learned number for every offset between two cells of a window.

    S_ab = s q_a . k_b + table[(y_a - y_b + h - 1) (2w - 1) + x_a - x_b + w - 1],   a window of h rows and w columns

Source: Liu et al. 2021, "Swin Transformer: Hierarchical Vision Transformer using Shifted Windows" (arXiv:2103.14030),
section 3.2, eq. (4); the index, query minus key: microsoft/Swin-Transformer, models/swin_transformer.py,
WindowAttention.

**Slots**: `index` (N, N), shared by all heads, and `values` (H, V), one bias for each of the V offsets. **Learns**,
separately in every layer: `table` ((2h-1)(2w-1), H), initially N(0, 0.02^2). The authors truncate this distribution at
an absolute value of 2, which is a hundred standard deviations and thus has no effect.

**Options**
- `grid`: numbers of rows and columns of the grid that this sequence's tokens form in raster order. Default: the two
  factors of N that are closest to each other.
- `window`: numbers of rows and columns of the window for which the table is made. Default: the default grid of the
  training length.
- `beyond`: how a grid other than the window is handled. `error`: a smaller grid uses the middle of the table, and a
  larger grid raises an error. `resize`: the table is resampled bicubically, as the authors do to fine-tune with other
  windows.

Positions, if given, are integers of shape (N, 2) or (B, N, 2): row and column. All must fit in one window.

**Past the training length**: undefined, or resized if you set `beyond` to `resize`. The number of tokens does not
matter: a longer sequence is possible if no side of its grid is longer than that of the window. For further training,
`fastpe.resize` returns the resampled table.

**Traps.** `resize` resamples the table for every grid that differs from the window, even for a smaller grid. The bias
of an offset therefore changes with the grid. Here a sequence is one window: the model must divide the image into
windows and shift them.
"""

from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Needs, Reported
from fastpe.encodings.parts import offset_tables
from fastpe.encodings.parts.offset_tables import GRID, WINDOW, Array, Sides
from fastpe.encodings.slots import Spec

STANDARD_DEVIATION = 0.02


def resize(params: Any, *, window: Sides, new_window: Sides) -> dict[str, Array]:
    """The table ((2h-1)(2w-1), H) resampled for another window.

    >>> larger = resize({"table": np.array([[1.0], [5.0], [3.0]])}, window=(1, 2), new_window=(1, 3))
    >>> larger["table"].round(3).ravel().tolist()
    [0.616, 2.696, 5.0, 4.064, 2.808]
    """
    rows, old, new = offset_tables.checked(params, window, new_window)
    return {"table": offset_tables.resized(rows, old, new).astype(rows.dtype)}


def check(spec: Spec, *, grid: Sides | None, window: Sides | None, beyond: str) -> None:
    """Raise an error for offsets without an entry, unless the table is resampled."""
    own = offset_tables.window_of(spec, window, grid)
    offset_tables.check_inside("swin_bias", spec, own, grid, 0, beyond == "resize")


def _sides(spec: Spec, grid: Sides | None, window: Sides | None, beyond: str) -> tuple[Sides, Sides]:
    """The window of the learned table, and the window of the values."""
    own = offset_tables.window_of(spec, window, grid)
    return own, own if beyond == "error" or spec.positions is not None else offset_tables.grid_of(spec, grid)


def shapes(spec: Spec, *, grid: Sides | None, window: Sides | None, beyond: str) -> dict[str, tuple[int, ...]]:
    """The index of every pair, and the values that it selects from."""
    _, used = _sides(spec, grid, window, beyond)
    return {"index": (*spec.batch, spec.length, spec.length), "values": (spec.heads, offset_tables.entries(used))}


def parameters(spec: Spec, *, grid: Sides | None, window: Sides | None, **options: Any) -> dict[str, tuple[int, ...]]:
    """A number for every offset in the window and every head."""
    return {"table": (offset_tables.entries(offset_tables.window_of(spec, window, grid)), spec.heads)}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """A table drawn from N(0, 0.02^2)."""
    return {"table": STANDARD_DEVIATION * rng.normal(parameters(spec, **options)["table"])}


def reference(
    spec: Spec, params: dict[str, Any], *, grid: Sides | None, window: Sides | None, beyond: str
) -> dict[str, Any]:
    """The released code's index for each pair, and cubic convolution by the printed kernel."""
    own, (h, w) = _sides(spec, grid, window, beyond)
    y, x = np.moveaxis(offset_tables.cells(spec, grid), -1, 0)
    row = y[..., :, None] - y[..., None, :] + h - 1
    column = x[..., :, None] - x[..., None, :] + w - 1
    return {"index": row * (2 * w - 1) + column, "values": offset_tables.resized(params["table"], own, (h, w)).T}


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, grid: Sides | None, window: Sides | None, beyond: str
) -> None:
    """Fill `index` and `values`."""
    own, used = _sides(spec, grid, window, beyond)
    offset_tables.write_index(out["index"], spec, used, grid)
    out["values"][...] = offset_tables.resized(params["table"], own, used).T


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, grid: Sides | None,
    window: Sides | None, beyond: str,
) -> None:  # fmt: skip
    """dtable = the transposed resampling applied to dvalues."""
    own, used = _sides(spec, grid, window, beyond)
    dparams["table"] += offset_tables.resized_gradient(dslots["values"].T, own, used)


ENCODING = Encoding(
    summary="learned bias for each 2-D offset in a window",
    formula=r"""
        S_{ab} &= s\, q_a \cdot k_b + \mathrm{table}[(y_a - y_b + h - 1)(2w - 1) + x_a - x_b + w - 1] \\
        &\text{a window of } h \text{ rows and } w \text{ columns}
    """,
    use_when="inputs are images in windows of a fixed size, as in Swin",
    also_called=("RPB", "relative position bias of Swin"),
    not_to_be_confused={
        "LeViT's attention bias": "one number for each pair of absolute distances",
        "decomposed relative positions": "the query times a vector of the row and of the column offset (MViTv2, SAM)",
        "swinv2_cpb": "a network of the offset in place of the table",
    },
    use="images",
    needs=Needs("coordinates"),
    slots=("index", "values"),
    options={
        "grid": GRID,
        "window": WINDOW,
        "beyond": Option("error", "how a grid other than the window is handled", str, ("error", "resize")),
    },
    beyond="undefined",
    moves=lambda *, beyond, **options: beyond == "resize",
    direction="yes",
    source="Liu et al. 2021, arXiv:2103.14030, section 3.2, eq. (4)",
    reported=Reported(
        "tuned",
        "Trained on windows of 8 cells (256 px): 81.7 %; at 24 cells (768 px) 68.7 %, and 83.2 % after fine-tuning.",
        "Liu et al. 2022, arXiv:2111.09883, table 1",
    ),
    ulp=8.0,
    axes=lambda **options: 2,
    per_layer=("table",),
)
