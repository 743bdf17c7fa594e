"""Sines and cosines of the two coordinates of an image (MAE), added to the embeddings.

    PE[y, x] = [ sin(x w) | cos(x w) | sin(y w) | cos(y w) ]
    w_t = base^(-t / (C/4)),   t = 0 .. C/4 - 1

Source: He et al. 2021, "Masked Autoencoders Are Scalable Vision Learners" (arXiv:2111.06377), appendix A.1, which gives
no formula; the formula is that of the code: facebookresearch/mae, util/pos_embed.py, get_2d_sincos_pos_embed.

**Slot**: `table` (N, C), C a multiple of 4. **Learns**: nothing.

**Options**
- `grid`: the sides (H, W) of the grid. Tokens are in raster order: cell (y, x) is token y W + x. Default: the two
  factors of N that are closest to each other.
- `class_token`: whether token 0 is a class token, which has no cell and gets a row of zeros.
- `base`: the slowest frequency is about 1/base.
- `scale`: multiplies the table.

Positions, if given, are pairs (y, x) of real numbers; the position of a class token is ignored. The accuracy is that of
`sinusoidal`.

**Past the training length**: defined for any coordinate. On a wider grid, the token with the same index has different
coordinates.

**Traps.** A comment in the authors' code says that the first half of the channels is for the height. In fact x comes
first, because the code's mesh grid puts the width first. Sines and cosines are not interleaved.
"""

from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Needs
from fastpe.encodings.parts.frequencies import frequencies
from fastpe.encodings.parts.grid_sinusoid import axes_of, fill_axes
from fastpe.encodings.parts.grids import coordinates
from fastpe.encodings.parts.sinusoid import exact, geometric
from fastpe.encodings.slots import Spec


def check(spec: Spec, *, grid: tuple[int, ...] | None, class_token: bool, **options: Any) -> None:
    """Require a C that is a multiple of 4, and a grid that fits."""
    if spec.dim % 4:
        raise ValueError(f"dim must be a multiple of 4 for 'sincos_2d_mae', not {spec.dim}")
    axes_of(spec, grid, 2, extra=class_token)


def reference(
    spec: Spec, params: dict[str, Any], *, grid: tuple[int, ...] | None, class_token: bool, base: float, scale: float
) -> dict[str, Any]:
    """The printed formula, with angles in 60 decimal digits."""
    points, quarter = coordinates(spec, grid, 2, extra=class_token), spec.dim // 4
    sine, cosine = exact(points, geometric(base, quarter, quarter))  # (..., cells, 2, C/4)
    y, x = 0, 1
    blocks = [sine[..., x, :], cosine[..., x, :], sine[..., y, :], cosine[..., y, :]]
    table = np.zeros((*spec.batch, spec.length, spec.dim))
    table[..., int(class_token) :, :] = np.concatenate(blocks, axis=-1)
    return {"table": scale * table}


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, grid: tuple[int, ...] | None, class_token: bool,
    base: float, scale: float,
) -> None:  # fmt: skip
    """Fill `table`."""
    table, extra, half = out["table"], int(class_token), spec.dim // 2
    table[..., :extra, :] = 0.0
    y, x = axes_of(spec, grid, 2, extra=extra)
    fill_axes(table[..., extra:, :], (x, y), frequencies(base, half), half, layout="concatenated", scale=scale)


ENCODING = Encoding(
    summary="sines and cosines of row and column, added",
    formula=r"""
        \mathrm{PE}[y, x] &= [\, \sin(x w) \mid \cos(x w) \mid \sin(y w) \mid \cos(y w) \,] \\
        w_t &= \mathrm{base}^{-t / (C/4)}, \quad t = 0, \dots, C/4 - 1
    """,
    use_when="inputs are images, and a fixed table is enough, as in MAE",
    not_to_be_confused={"sincos_2d_detr": "row first, sines and cosines interleaved, added to queries and keys only"},
    use="images",
    needs=Needs("coordinates"),
    slots=("table",),
    options={
        "grid": Option(None, "sides of the grid; none: the closest factors of N", tuple, optional=True),
        "class_token": Option(False, "whether token 0 is outside the grid", bool),
        "base": Option(10000.0, "the slowest frequency is about 1/base", float, minimum=1.0),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="defined",
    direction="yes",
    source="He et al. 2021, arXiv:2111.06377, appendix A.1, and released code",
    ulp=2.0,
    axes=lambda **options: 2,
)
