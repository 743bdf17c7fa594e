"""The one-dimensional sinusoidal table over the tokens of a video in raster order (VideoMAE).

    PE[t, y, x] = sinusoidal[p],   p = (t H + y) W + x
    sinusoidal[p, 2k] = sin(p / base^(2k/C)),  sinusoidal[p, 2k+1] = cos(p / base^(2k/C))

Source: Tong, Song, Wang and Wang 2022, "VideoMAE: Masked Autoencoders are Data-Efficient Learners for Self-Supervised
Video Pre-Training" (arXiv:2203.12602), released code: MCG-NJU/VideoMAE, modeling_finetune.py,
get_sinusoid_encoding_table. It is often called a three-dimensional encoding, but it is one-dimensional.

**Slot**: `table` (N, C). **Learns**: nothing.

**Options**
- `grid`: the sides (T, H, W); needed only if positions are given.
- `base`: the slowest frequency is about 1/base.
- `scale`: multiplies the table.

Positions, if given, are triples (t, y, x) of real numbers on `grid`. The argument `start` is added to p. Accuracy and
speed are those of `sinusoidal`.

**Past the training length**: defined. On a grid of another width, however, the index p changes for every token after
the first row. On a grid of another height, it changes for every token after the first frame. The same place in the same
frame then gets a different vector.

**Traps.** Vertical neighbours are W positions apart, and the same place in consecutive frames is H W positions apart;
no channel represents these neighbourhoods.
"""

import math
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Needs
from fastpe.encodings.parts.frequencies import frequencies
from fastpe.encodings.parts.grids import chosen_sides
from fastpe.encodings.parts.row_blocks import points_of
from fastpe.encodings.parts.sinusoid import exact, fill_sinusoid, geometric
from fastpe.encodings.slots import MAX_POSITION, Spec


def check(spec: Spec, *, grid: tuple[int, ...] | None, **options: Any) -> None:
    """Require a grid if positions are given, and check that a given grid fits."""
    if spec.positions is None:
        chosen_sides(spec, grid, 3)
        return
    if grid is None or len(grid) != 3 or min(grid) < 1:
        raise ValueError(f"positions of 'flat_sincos' need option 'grid', three sides of at least 1, not {grid}")
    farthest = np.abs(spec.positions).max() * (grid[1] * grid[2] + grid[2] + 1) + abs(spec.start)
    if farthest > MAX_POSITION:
        raise ValueError(f"positions on grid {grid} must have indices within ±2**27, but one may be {farthest:g}")


def _numbers(spec: Spec, grid: tuple[int, ...]) -> np.ndarray:
    """The index p of each given position (t, y, x)."""
    assert spec.positions is not None
    t, y, x = np.moveaxis(spec.positions, -1, 0)
    numbers: np.ndarray = (t * grid[1] + y) * grid[2] + x + spec.start
    return numbers


def reference(
    spec: Spec, params: dict[str, Any], *, grid: tuple[int, ...] | None, base: float, scale: float
) -> dict[str, Any]:
    """The table of Vaswani et al. at p, with angles in 60 decimal digits."""
    if spec.positions is None:
        numbers = spec.points()
    else:
        assert grid is not None
        strides = [math.prod(grid[axis + 1 :]) for axis in range(3)]
        numbers = (spec.positions * strides).sum(axis=-1) + spec.start
    sine, cosine = exact(numbers, geometric(base, (spec.dim + 1) // 2, spec.dim / 2))
    pairs = np.stack([sine, cosine], axis=-1)
    return {"table": scale * pairs.reshape(*numbers.shape, -1)[..., : spec.dim]}


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, grid: tuple[int, ...] | None, base: float, scale: float
) -> None:
    """Fill `table`."""
    omega = frequencies(base, spec.dim)
    if spec.positions is None or grid is None:
        fill_sinusoid(out["table"], lambda rows: points_of(spec, rows), omega, scale=scale)
    else:
        fill_sinusoid(out["table"], _numbers(spec, grid).reshape(-1).__getitem__, omega, scale=scale)


ENCODING = Encoding(
    summary="sines and cosines of a token's index in a video",
    formula=r"""
        \mathrm{PE}[t, y, x] &= \mathrm{sinusoidal}[p], \quad p = (t H + y) W + x \\
        \mathrm{sinusoidal}[p, 2k] &= \sin\left(p / \mathrm{base}^{2k/C}\right) \\
        \mathrm{sinusoidal}[p, 2k + 1] &= \cos\left(p / \mathrm{base}^{2k/C}\right)
    """,
    use_when="you reproduce or fine-tune VideoMAE, with the grid it was trained on",
    not_to_be_confused={"sincos_3d": "sines and cosines of each of the three coordinates"},
    use="images",
    needs=Needs("coordinates", "positions are the index in raster order: this is sinusoidal"),
    slots=("table",),
    options={
        "grid": Option(None, "sides of the grid of given positions", tuple, optional=True),
        "base": Option(10000.0, "the slowest frequency is about 1/base", float, minimum=1.0),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="defined",
    direction="yes",
    source="Tong et al. 2022, arXiv:2203.12602, released code",
    ulp=2.0,
    axes=lambda **options: 3,
)
