"""A learned vector for every cell of a grid (ViT); for other grids the vectors are interpolated.

    PE[y W + x] = table[y W + x];   on another grid, H' x W', each channel is resampled:
    PE'[y, x] = table at (y (H-1)/(H'-1), x (W-1)/(W'-1)), bilinear between the four nearest cells

Source: Dosovitskiy et al. 2020, "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale"
(arXiv:2010.11929), sections 3.1 and 3.2; the resizing: google-research/vision_transformer, vit_jax/checkpoint.py,
interpolate_posembed (scipy.ndimage.zoom with order 1, which keeps the corners).

**Slot**: `table` (N, C). **Learns**: `table` (N_train, C), initially N(0, 0.02^2). The grid has no effect until the
table is resized.

**Options**
- `grid`: the sides (H, W) of the sequence's grid, tokens in raster order. Default: at the training length the learned
  grid; at other lengths the most nearly square grid.
- `train_grid`: the sides of the learned grid. Default: `grid` if its number of cells is the training length (minus 1
  with a class token), otherwise the most nearly square grid with this number of cells.
- `class_token`: whether token 0 is a class token, which has no cell and gets row 0 of the table.
- `scale`: multiplies the table.

If positions are given, they are pairs (y, x) of real numbers: coordinates on `grid`, or on the learned grid if `grid`
is not given. The position of a class token is ignored.

**Past the training length**: resized by the formula above; `fastpe.resize` returns the table for further training on a
new grid. There is no extrapolation: a coordinate outside the grid raises an error.

**Accuracy.** On the learned grid, entries of the table are copied without rounding. On another grid, each coordinate is
rounded once, and the error of a value is at most (H + W) 2^-51 times the largest entry of the table.

**Traps.** Other code bases resize with bicubic or nearest interpolation, or without aligned corners, and get different
values from the same table. Every row changes when the grid changes.
"""

import math
from typing import Any

import numpy as np
from scipy import ndimage

from fastpe.base.option import Option
from fastpe.base.validation import truth
from fastpe.encodings.build import build
from fastpe.encodings.encoding import Encoding, Needs, Reported
from fastpe.encodings.parts.gather import Term, by_cell, fill_terms, pull_terms
from fastpe.encodings.parts.grids import axis_places, check_inside, coordinates, extent, learned_grid
from fastpe.encodings.parts.resizing import only_table, whole_sides
from fastpe.encodings.parts.row_blocks import row_blocks
from fastpe.encodings.slots import Spec

STANDARD_DEVIATION = 0.02
Grid = tuple[int, ...] | None


def resize(
    params: Any, *, grid: tuple[int, int], new_grid: tuple[int, int], class_token: bool = False
) -> dict[str, np.ndarray]:
    """Resample the table (cells, C), or (1 + cells, C) with a class token, from sides `grid` (H, W) to `new_grid`.

    >>> resize({"table": np.arange(4.0)[:, None]}, grid=(2, 2), new_grid=(3, 3))["table"].ravel().tolist()
    [0.0, 0.5, 1.0, 1.0, 1.5, 2.0, 2.0, 2.5, 3.0]
    """
    truth("class_token", class_token)
    old, new_sides = whole_sides("grid", grid, 2), whole_sides("new_grid", new_grid, 2)
    rows = only_table(params, (class_token + math.prod(old),))
    return build(
        "learned_2d", class_token + math.prod(new_sides), dim=rows.shape[1], train_length=len(rows),
        dtype=rows.dtype, params={"table": rows}, grid=new_sides, train_grid=old, class_token=class_token,
    )  # fmt: skip


def check(spec: Spec, *, grid: Grid, train_grid: Grid, class_token: bool, scale: float) -> None:
    """Check that both grids fit the lengths, and that coordinates lie inside the grid."""
    new = extent(spec, grid, learned_grid(spec, grid, train_grid, 2, extra=class_token), extra=class_token)
    check_inside("learned_2d", axis_places(spec, new, extra=class_token), new)


def parameters(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """A row for every cell, and for a class token."""
    return {"table": (spec.train_length, spec.dim)}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """N(0, 0.02^2)."""
    return {"table": STANDARD_DEVIATION * rng.normal((spec.train_length, spec.dim))}


def reference(
    spec: Spec, params: dict[str, Any], *, grid: Grid, train_grid: Grid, class_token: bool, scale: float
) -> dict[str, Any]:
    """SciPy's spline of order 1 through the learned grid, for each channel, as in the authors' code."""
    extra, table = int(class_token), params["table"]
    old = learned_grid(spec, grid, train_grid, 2, extra=extra)
    new = extent(spec, grid, old, extra=extra)
    image = table[extra:].reshape(*old, spec.dim)
    points = coordinates(spec, new, 2, extra=extra)
    # corners are kept: 0 and H' - 1 are mapped to 0 and H - 1
    places = [np.interp(points[..., axis], [0, max(new[axis] - 1, 1)], [0, old[axis] - 1]) for axis in range(2)]
    channels = [ndimage.map_coordinates(image[..., c], places, order=1, mode="nearest") for c in range(spec.dim)]
    rows = np.stack(channels, axis=-1)
    first = np.broadcast_to(table[:extra], (*rows.shape[:-2], extra, spec.dim))
    return {"table": scale * np.concatenate([first, rows], axis=-2)}


def _between(places: np.ndarray, own: int, learned: int) -> tuple[np.ndarray, np.ndarray]:
    """Map coordinates on a side of `own` cells to a side of `learned` cells; return the cell at or before each
    coordinate and the weight of the next cell."""
    if own != learned:
        places = places * (learned - 1) / max(own - 1, 1)
    low = np.floor(places)
    if (low == places).all():
        return low.astype(np.int64), np.zeros_like(places)
    low = np.minimum(low, learned - 2)
    return low.astype(np.int64), places - low


def _terms(spec: Spec, table: np.ndarray, grid: Grid, train_grid: Grid, extra: int) -> list[Term]:
    """The terms of every token except a class token: its cell of the learned grid, or the 2 or 4 cells around it."""
    learned = learned_grid(spec, grid, train_grid, 2, extra=extra)
    own = extent(spec, grid, learned, extra=extra)
    (y, down), (x, right) = map(_between, axis_places(spec, own, extra=extra), own, learned)
    between, terms = down.any() or right.any(), []
    for i in range(1 + down.any()):
        for j in range(1 + right.any()):
            rows, columns = by_cell([(y + i) * learned[1], x + j])
            weight, across = by_cell([np.abs(1 - i - down), np.abs(1 - j - right)], np.multiply)
            terms.append(Term(table, rows, 0, weight if between else None, columns, across))
    return terms


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, grid: Grid, train_grid: Grid, class_token: bool,
    scale: float,
) -> None:  # fmt: skip
    """Fill `table`."""
    extra, table = int(class_token), params["table"]
    out["table"][..., :extra, :] = scale * table[:extra].astype(np.float64)
    fill_terms(out["table"][..., extra:, :], _terms(spec, table[extra:], grid, train_grid, extra), scale)


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, grid: Grid,
    train_grid: Grid, class_token: bool, scale: float,
) -> None:  # fmt: skip
    """Add the gradient of every row of the slot to the gradients of the rows of `table` that form it."""
    extra, dtable, dlearned = int(class_token), dslots["table"], dparams["table"]
    learned = learned_grid(spec, grid, train_grid, 2, extra=extra)
    if spec.positions is None and extent(spec, grid, learned, extra=extra) == learned:
        for rows, *_ in row_blocks(dlearned[extra:]):  # every token has its own row, so nothing is summed
            dlearned[extra:][rows] += scale * dtable[extra:][rows].astype(np.float64)
    else:
        terms = _terms(spec, params["table"][extra:], grid, train_grid, extra)
        (gradient,) = pull_terms(dtable[..., extra:, :], terms, scale)
        dlearned[extra:] += gradient
    first = dtable[..., :extra, :].reshape(math.prod(spec.batch), extra, spec.dim)
    dlearned[:extra] += (scale * first.sum(axis=0, dtype=np.float64)).astype(spec.dtype)


ENCODING = Encoding(
    summary="learned vector for every cell of a grid, added",
    formula=r"""
        \mathrm{PE}[y W + x] &= \mathrm{table}[y W + x] \\
        \mathrm{PE}'[y, x] &= \mathrm{table} \text{ at } \left(y\, \frac{H - 1}{H' - 1},\ x\, \frac{W - 1}{W' -
            1}\right) \\
        &\text{on another grid, } H' \times W' \text{, bilinear between the four nearest cells}
    """,
    use_when="inputs are images, and the model is fine-tuned when the grid changes, as in ViT",
    also_called=("ViT's position embeddings",),
    not_to_be_confused={
        "pix2struct's table": "vectors by the row and column that each patch states",
        "learned_2d_detr": "one vector for each row and one for each column, added to queries and keys",
    },
    use="images",
    needs=Needs("coordinates"),
    slots=("table",),
    options={
        "grid": Option(None, "sides of the sequence's grid; none: the closest factors", tuple, optional=True),
        "train_grid": Option(None, "sides of the learned grid; none: the closest factors", tuple, optional=True),
        "class_token": Option(False, "whether token 0 is outside the grid", bool),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="resized",
    moves=lambda **options: True,
    direction="yes",
    source="Dosovitskiy et al. 2020, arXiv:2010.11929, sections 3.1 and 3.2",
    reported=Reported(
        "tuned",
        "For larger images the table is interpolated in two dimensions, and the model is fine-tuned.",
        "Dosovitskiy et al. 2020, arXiv:2010.11929, section 3.2",
    ),
    ulp=lambda spec, **options: 8.0 + 8.0 * spec.train_length,
    axes=lambda **options: 2,
)
