"""Axial RoPE on a grid: half of the pairs rotate with the column, the other half with the row.

    theta_t = base^(-4t/D),  t = 0 .. D/4 - 1,        angles of the cell in column x and row y: [x theta | y theta]

Source: Heo, Park, Han and Yun 2024, "Rotary Position Embedding for Vision Transformer" (arXiv:2403.13298), section
3.2; naver-ai/rope-vit, deit/models_v2_rope.py, compute_axial_cis. Options for EVA-02 (Fang et al. 2023,
arXiv:2303.11331): baaivision/EVA, EVA-02/asuka/rope.py, VisionRotaryEmbeddingFast.

**Slots**: `angles` (1, N, D/2), `pairs`. **Learns**: nothing. A score depends on the differences of rows and columns
only.

**Options**
- `grid`: the numbers of rows and columns, whose product is N. Tokens are in raster order: the column changes fastest.
  Default: the most nearly square grid of N cells.
- `class_token`: whether the first token is a class token, which has no cell and is not rotated.
- `base`: the base of the frequencies. The default is 100, because images have fewer rows than texts have tokens.
- `pairs`: as for `rope`.
- `first`: which block of pairs comes first: `column` (x theta) or `row` (y theta).
- `train_grid`: the numbers of rows and columns of the training grid. Other grids are scaled to it: row y of Ny rows
  becomes y / Ny times the number of rows of `train_grid`, and columns are scaled likewise. None: nothing is scaled.

EVA-02 uses `base=10000` and `first=row`, and sets `class_token`. For fine-tuning on other image sizes it also uses
`train_grid=16,16`, which is 224 pixels in patches of 14.

If positions are given, they are (row, column) = (y, x) and may be real numbers; (0, 0) is not rotated. If both `grid`
and `train_grid` are set, positions are coordinates on `grid` and are scaled to `train_grid`. If only `train_grid` is
set, they are coordinates on `train_grid` and are not scaled. The width of a head must be a multiple of 4.

**Past the training length**: defined, for any grid. Models become worse on grids larger than the training grid, unless
`train_grid` scales the coordinates to the range of training.

**Traps.** Each half of the pairs depends on one axis: no pair rotates along a diagonal (`rope_mixed` learns such
directions). By default the block of x comes first, as in the code, although y comes first in a position. The paper
instead assigns the pairs to x and y in turn.
"""

from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Needs, Reported
from fastpe.encodings.parts.angles import exact_angles, fill_sections, precise
from fastpe.encodings.parts.grids import chosen_sides
from fastpe.encodings.parts.rotary import (
    CLASS_TOKEN,
    GRID,
    base_option,
    cells,
    check_cells,
    ladder,
    pairs_option,
    plain_pairs,
    raster_places,
    shapes,
)
from fastpe.encodings.slots import Spec

Grid = tuple[int, ...] | None


def check(spec: Spec, *, grid: Grid, class_token: bool, train_grid: Grid, **options: Any) -> None:
    """Require a head width that is a multiple of 4, and a grid with one cell for each token."""
    if spec.head_dim % 4:
        raise ValueError(f"dim / heads must be a multiple of 4, not {spec.dim} / {spec.heads}")
    check_cells(spec, grid, class_token)
    sides = {"train_grid": train_grid} | ({"grid": grid} if train_grid is not None else {})
    for option, each in sides.items():
        if each is not None and (len(each) != 2 or min(each) < 1):
            raise ValueError(f"option {option!r} must be 2 sides of at least 1, not {each}")


def _steps(spec: Spec, grid: Grid, class_token: bool, train_grid: Grid) -> list[Fraction]:
    """The step of one row and of one column, in rows and columns of the training grid."""
    if train_grid is None or (spec.positions is not None and grid is None):
        return [Fraction(1), Fraction(1)]
    sides = grid if spec.positions is not None else chosen_sides(spec, grid, 2, extra=class_token)
    return [Fraction(trained, side) for trained, side in zip(train_grid, sides or (1, 1), strict=True)]


def reference(
    spec: Spec, params: dict[str, Any], *, grid: Grid, class_token: bool, first: str, train_grid: Grid, base: float,
    pairs: str,
) -> dict[str, Any]:  # fmt: skip
    """[x theta | y theta] (Heo et al. 2024, eq. 11)."""
    width, points, blocks = spec.head_dim, cells(spec, grid, class_token), []
    steps = _steps(spec, grid, class_token, train_grid)
    for axis in (1, 0) if first == "column" else (0, 1):
        with precise():
            step = Decimal(steps[axis].numerator) / steps[axis].denominator
            theta = [step / Decimal(base) ** (Decimal(4 * t) / width) for t in range(width // 4)]
        blocks.append(exact_angles(points[..., axis], theta))
    return {"angles": np.concatenate(blocks, axis=-1)[..., None, :, :]}


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, grid: Grid, class_token: bool, first: str,
    train_grid: Grid, base: float, pairs: str,
) -> None:  # fmt: skip
    """Fill `angles`."""
    (places, extra), theta = raster_places(spec, grid, class_token), ladder(base, spec.head_dim, 4)
    steps = _steps(spec, grid, class_token, train_grid)
    with precise():
        scaled = [tuple(each * step.numerator / step.denominator for each in theta) for step in steps]
    out["angles"][..., :extra, :] = 0.0
    axes = (1, 0) if first == "column" else (0, 1)
    fill_sections(spec, places, [(axis, scaled[axis]) for axis in axes], out["angles"][..., extra:, :])


ENCODING = Encoding(
    summary="rotary, half the pairs for rows, half for columns",
    formula=r"""
        \theta_t &= \mathrm{base}^{-4t/D}, \quad t = 0, \dots, D/4 - 1 \\
        &\text{angles of the cell in column } x \text{ and row } y: \quad [\, x\, \theta \mid y\, \theta \,]
    """,
    use_when="inputs are images, and offsets of rows and columns should count, with nothing learned",
    also_called=("axial RoPE", "RoPE-Axial", "2D RoPE"),
    not_to_be_confused={
        "moirai": "only the time is rotated, and a bias tells the series apart",
        "axial": "learned tables for the axes of a grid, added to the embeddings",
        "mrope": "the axes have different bands of frequencies",
        "V-JEPA 2's RoPE": "the two channels of a pair turn by different angles, so it is not a rotation",
    },
    use="images",
    needs=Needs("coordinates"),
    slots=("angles", "pairs"),
    options={
        "grid": GRID,
        "class_token": CLASS_TOKEN,
        "first": Option("column", "whose pairs come first", str, ("column", "row")),
        "train_grid": Option(
            None,
            "rows and columns of the training grid; other grids are scaled to it",
            tuple,
            optional=True,
            samples=((4, 3),),
        ),
        "base": base_option(100.0),
        "pairs": pairs_option("interleaved"),
    },
    beyond="defined",
    moves=lambda *, train_grid, **options: train_grid is not None,
    direction="yes",
    source="Heo et al. 2024, arXiv:2403.13298, section 3.2",
    reported=Reported(
        "partly",
        "ViT-B trained at 224 px: 83.6 %, and untuned 83.9 % at 384 px; a ViT-S falls from 80.9 to 80.0 %.",
        "Heo et al. 2024, arXiv:2403.13298; naver-ai/rope-vit, README.md",
    ),
    ulp=2.0,
    shapes=shapes,
    plain=plain_pairs,
    axes=lambda **options: 2,
)
