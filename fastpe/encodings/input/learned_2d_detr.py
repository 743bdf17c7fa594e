"""Learned vectors for rows and columns of an image (DETR), added to the input of every query and key projection.

    PE[y, x] = [ column[x] | row[y] ]

Source: Carion et al. 2020, "End-to-End Object Detection with Transformers" (arXiv:2005.12872), section 4.2, the
learned alternative to the sines and cosines (`sincos_2d_detr`); facebookresearch/detr, models/position_encoding.py,
PositionEmbeddingLearned.

**Slot**: `qk_table` (N, C), where C is even. In every layer it is added to the input of the query and key projections,
but not of the value projection. **Learns**: `row` and `column`, (50, C/2) each, initially uniform in [0, 1).

**Options**
- `grid`: the sides (H, W) of the sequence's grid, tokens in raster order. Default: the most nearly square grid of N
  cells.
- `entries`: the number of learned row vectors, and also of learned column vectors.
- `scale`: multiplies the table.

If positions are given, they are pairs (y, x) of integers.

**Past the training length**: undefined past `entries` rows or columns. Within this limit a grid may be larger than the
training grid. Rows and columns that did not occur in training then use vectors that still have their initial values.

**Traps.** The vector of the column fills the first half of the channels. In `sincos_2d_detr`, from the same code, the
row comes first.
"""

from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Needs
from fastpe.encodings.parts.gather import Term, fill_terms, of_axis, pull_terms
from fastpe.encodings.parts.grids import axis_places, check_inside, chosen_sides, coordinates, whole_points
from fastpe.encodings.slots import Spec


def _places(spec: Spec, grid: tuple[int, ...] | None) -> list[np.ndarray]:
    """The coordinates y and x of the tokens, as arrays that broadcast."""
    return axis_places(spec, (1, 1) if spec.positions is not None else chosen_sides(spec, grid, 2))


def check(spec: Spec, *, grid: tuple[int, ...] | None, entries: int, **options: Any) -> None:
    """Require an even C, and rows and columns that are integers below `entries`."""
    if spec.dim % 2:
        raise ValueError(f"dim must be even for 'learned_2d_detr', half for rows and half for columns, not {spec.dim}")
    places = [whole_points("learned_2d_detr", each) for each in _places(spec, grid)]
    check_inside("learned_2d_detr", places, (entries, entries), "; set option entries to a larger number")


def parameters(spec: Spec, *, entries: int, **options: Any) -> dict[str, tuple[int, ...]]:
    """A table for rows and one for columns."""
    return {"row": (entries, spec.dim // 2), "column": (entries, spec.dim // 2)}


def init(spec: Spec, rng: Any, *, entries: int, **options: Any) -> dict[str, Any]:
    """Uniform on (0, 1)."""
    row, column = rng.uniform((2, entries, spec.dim // 2))
    return {"row": row, "column": column}


def reference(
    spec: Spec, params: dict[str, Any], *, grid: tuple[int, ...] | None, entries: int, scale: float
) -> dict[str, Any]:
    """The vectors of columns and of rows, concatenated."""
    y, x = np.moveaxis(coordinates(spec, grid, 2).astype(int), -1, 0)
    return {"qk_table": scale * np.concatenate([params["column"][x], params["row"][y]], axis=-1)}


def _terms(spec: Spec, params: dict[str, Any], grid: tuple[int, ...] | None) -> list[Term]:
    places = _places(spec, grid)
    y, x = of_axis(0, places), of_axis(1, places)
    return [Term(params["row"], y[0], spec.dim // 2, columns=y[1]), Term(params["column"], x[0], columns=x[1])]


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, grid: tuple[int, ...] | None, entries: int, scale: float
) -> None:
    """Fill `qk_table`."""
    fill_terms(out["qk_table"], _terms(spec, params, grid), scale)


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *,
    grid: tuple[int, ...] | None, entries: int, scale: float,
) -> None:  # fmt: skip
    """Add the gradient of every token to the gradients of the vectors of its row and its column."""
    gradients = pull_terms(dslots["qk_table"], _terms(spec, params, grid), scale)
    for name, gradient in zip(("row", "column"), gradients, strict=True):
        dparams[name] += gradient.astype(spec.dtype)


ENCODING = Encoding(
    summary="learned row and column vectors for query and key",
    formula=r"\mathrm{PE}[y, x] = [\, \mathrm{column}[x] \mid \mathrm{row}[y] \,]",
    use_when="you reproduce DETR's learned variant, on images of at most 50 rows and columns of cells",
    also_called=("PositionEmbeddingLearned",),
    not_to_be_confused={"learned_2d": "one vector for each cell, added to the embeddings"},
    use="images",
    needs=Needs("coordinates"),
    slots=("qk_table",),
    options={
        "grid": Option(None, "sides of the sequence's grid; none: the closest factors", tuple, optional=True),
        "entries": Option(50, "number of rows, and of columns, that have vectors", int, minimum=1),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="undefined",
    direction="yes",
    source="Carion et al. 2020, arXiv:2005.12872, section 4.2, and released code",
    ulp=4.0,
    axes=lambda **options: 2,
)
