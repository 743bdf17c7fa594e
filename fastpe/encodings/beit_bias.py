"""BEiT's bias: Swin's table for the cells of an image, and three entries for a class token.

    S_ab = s q_a . k_b + table[(y_a - y_b + h - 1) (2w - 1) + x_a - x_b + w - 1]     two cells
                         table[n - 3]  class to cell,   table[n - 2]  cell to class,   table[n - 1]  class to class

Source: Bao, Dong, Piao and Wei 2021, "BEiT: BERT Pre-Training of Image Transformers" (arXiv:2106.08254), released
code; index and initial values: microsoft/unilm, beit/modeling_finetune.py, RelativePositionBias.

**Slot**: `index` (N, N) and `values` (H, V). **Learns**: `table` ((2h-1)(2w-1), H), with a class token three rows more;
in every layer its own, as the authors have it for fine-tuning (they pre-train with one for all layers). It starts as
zeros.

**Options**
- `class_token`: the first token is a class token, which has no cell: one token fewer is left for the grid.
- `grid`: rows and columns of this sequence's cells, in raster order; the two factors of their number closest to each
  other where not given.
- `window`: rows and columns the table is for; the grid of the training length where not given.
- `beyond`: what another grid gets. `error`: a smaller one uses the middle of the table, a larger one is refused.
  `resize`: the table is resampled bicubically; the rows of the class token are kept.

Positions, where given, are (N, 2) or (B, N, 2) integers, row and column; that of a class token is not read.

**Past the training length**: undefined, or resized by `beyond`; what counts is the grid, each side by itself. The
authors resample by splines over unevenly spaced offsets (beit/run_class_finetuning.py); `resize` is the even cubic
convolution of Swin's.

**Traps.** The entry of two class tokens is the last one: filling the class token's row and column of an index in the
wrong order leaves another. A table of zeros is no bias at all until it has been trained.
"""

from typing import Any

import numpy as np

from fastpe.encoding import Encoding, Option, Spec
from fastpe.encodings import _window
from fastpe.encodings._window import GRID, WINDOW, Sides

_CLASS_ROWS = 3


def check(spec: Spec, *, class_token: bool, grid: Sides | None, window: Sides | None, beyond: str) -> None:
    """Every offset has an entry, unless the table is resampled."""
    own = _window.window_of(spec, window, grid, class_token)
    _window.check_inside("beit_bias", spec, own, grid, class_token, beyond == "resize")


def _sides(spec: Spec, class_token: bool, grid: Sides | None, window: Sides | None, beyond: str) -> tuple[Sides, Sides]:
    """The window that is learned, and the one whose offsets the values are for."""
    own = _window.window_of(spec, window, grid, class_token)
    return own, own if beyond == "error" or spec.positions is not None else _window.grid_of(spec, grid, class_token)


def shapes(
    spec: Spec, *, class_token: bool, grid: Sides | None, window: Sides | None, beyond: str
) -> dict[str, tuple[int, ...]]:
    """The index of every pair, and the values it chooses from."""
    _, used = _sides(spec, class_token, grid, window, beyond)
    values = _window.entries(used) + _CLASS_ROWS * class_token
    return {"index": (*spec.batch, spec.length, spec.length), "values": (spec.heads, values)}


def parameters(
    spec: Spec, *, class_token: bool, grid: Sides | None, window: Sides | None, **options: Any
) -> dict[str, tuple[int, ...]]:
    """A number for every offset in the window, and for a class token's three kinds of pairs."""
    own = _window.window_of(spec, window, grid, class_token)
    return {"table": (_window.entries(own) + _CLASS_ROWS * class_token, spec.heads)}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """Zeros."""
    return {"table": np.zeros(parameters(spec, **options)["table"])}


def reference(
    spec: Spec, params: dict[str, Any], *, class_token: bool, grid: Sides | None, window: Sides | None, beyond: str
) -> dict[str, Any]:
    """The released code's index: the cells, then the class token's row, its column, and their corner."""
    own, (h, w) = _sides(spec, class_token, grid, window, beyond)
    y, x = np.moveaxis(_window.cells(spec, grid, class_token), -1, 0)
    n = _window.entries(own)
    values = np.concatenate([_window.resized(params["table"][:n], own, (h, w)), params["table"][n:]])
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
    index, before, after = out["index"], _window.entries(own), _window.entries(used)
    _window.write_index(index, spec, used, grid, class_token)
    if class_token:
        index[..., 0, 1:], index[..., 1:, 0], index[..., 0, 0] = after, after + 1, after + 2
    out["values"][:, :after] = _window.resized(params["table"][:before], own, used).T
    out["values"][:, after:] = params["table"][before:].T


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, class_token: bool,
    grid: Sides | None, window: Sides | None, beyond: str,
) -> None:  # fmt: skip
    """dtable = the transpose of the resampling, of dvalues; the class token's rows are copies."""
    own, used = _sides(spec, class_token, grid, window, beyond)
    before, after = _window.entries(own), _window.entries(used)
    dparams["table"][:before] += _window.resized_gradient(dslots["values"][:, :after].T, own, used)
    dparams["table"][before:] += dslots["values"][:, after:].T


ENCODING = Encoding(
    slots=("index", "values"),
    options={
        "class_token": Option(False, "whether the first token is a class token, which has no cell", bool),
        "grid": GRID,
        "window": WINDOW,
        "beyond": Option("error", "what another grid than the window's gets", str, ("error", "resize")),
    },
    beyond="undefined",
    moves=lambda *, beyond, **options: beyond == "resize",
    direction="yes",
    source="Bao, Dong, Piao and Wei 2021, arXiv:2106.08254, released code",
    ulp=8.0,
    reference=reference,
    fill=fill,
    pull=pull,
    init=init,
    parameters=parameters,
    shapes=shapes,
    axes=lambda **options: 2,
    check=check,
    per_layer=("table",),
)
