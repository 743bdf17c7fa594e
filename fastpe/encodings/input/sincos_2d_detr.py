"""Sines and cosines of row and column in an image (DETR), added to the input of query and key projections.

    PE[y, x] = [ enc(v_y) | enc(v_x) ],   F = C/2 channels each
    enc(a)[f] = sin(a / T_f) for even f, cos(a / T_f) for odd f,   T_f = base^(2 floor(f/2) / F)
    v_y = y + 1, v_x = x + 1;   normalised: v_y = 2 pi (y + 1) / (H + 1e-6), v_x = 2 pi (x + 1) / (W + 1e-6)

Source: Carion et al. 2020, "End-to-End Object Detection with Transformers" (arXiv:2005.12872), appendix A.4, "Spatial
positional encoding"; facebookresearch/detr, models/position_encoding.py, PositionEmbeddingSine.

**Slot**: `qk_table` (N, C), where C is even. In every layer it is added to the input of the query and key projections,
but not of the value projection. **Learns**: nothing.

**Options**
- `grid`: the sides (H, W) of the grid. Tokens are in raster order: cell (y, x) is token y W + x. Default: the two
  factors of N that are closest to each other.
- `normalize`: whether coordinates are divided by the image's extent. DETR divides them, although the default of the
  class in its code is not to divide.
- `base`: the slowest frequency is about 1/base.
- `scale`: multiplies the table.

Positions, if given, are pairs (y, x) of real numbers. In each sample, H and W are then the largest y and x plus one.
For a padded image as in DETR, pass the cumulative counts of valid cells, minus one. With `normalize`, positions must
not be negative.

**Past the training length**: defined. With `normalize`, v_y and v_x lie between 0 and 2 pi in every image, so adjacent
tokens of a larger image differ less.

**Accuracy.** The error of an entry is that of `sinusoidal`. With `normalize`, rounding the coordinate changes an entry
by at most 2^-50 more.

**Traps.** Positions count from 1, and y comes first. The learned alternative, `learned_2d_detr`, has x first.
"""

import math
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Needs
from fastpe.encodings.parts.frequencies import frequencies
from fastpe.encodings.parts.grid_sinusoid import axes_of, fill_axes
from fastpe.encodings.parts.grids import coordinates
from fastpe.encodings.parts.sinusoid import exact, geometric
from fastpe.encodings.slots import Spec

_EPSILON = 1e-6  # as in the authors' code


def check(spec: Spec, *, grid: tuple[int, ...] | None, normalize: bool, **options: Any) -> None:
    """Require an even C, a grid that fits, and normalised coordinates >= 0."""
    if spec.dim % 2:
        raise ValueError(f"dim must be even for 'sincos_2d_detr', half for rows and half for columns, not {spec.dim}")
    least = min(float(axis.values.min()) for axis in axes_of(spec, grid, 2))
    if normalize and least < 0:
        raise ValueError(f"positions must be >= 0 with option 'normalize', not {least:g}")


def reference(
    spec: Spec, params: dict[str, Any], *, grid: tuple[int, ...] | None, normalize: bool, base: float, scale: float
) -> dict[str, Any]:
    """The printed formula, with angles in 60 decimal digits."""
    counts, half = coordinates(spec, grid, 2) + 1.0, spec.dim // 2
    if normalize:
        counts = 2 * np.pi * counts / (counts.max(axis=-2, keepdims=True) + _EPSILON)
    sine, cosine = exact(counts, geometric(base, (half + 1) // 2, half / 2))
    table = np.empty((*counts.shape, half))
    table[..., 0::2], table[..., 1::2] = sine, cosine[..., : half // 2]
    return {"qk_table": scale * table.reshape(*counts.shape[:-1], spec.dim)}


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, grid: tuple[int, ...] | None, normalize: bool,
    base: float, scale: float,
) -> None:  # fmt: skip
    """Fill `qk_table`."""
    half, axes = spec.dim // 2, []
    for axis in axes_of(spec, grid, 2):
        counts = axis.values + 1.0
        if normalize:
            counts = 2.0 * math.pi * counts / (counts.max(axis=-1, keepdims=True) + _EPSILON)
        axes.append(axis._replace(values=counts))
    fill_axes(out["qk_table"], axes, frequencies(base, half), half, layout="interleaved", scale=scale)


ENCODING = Encoding(
    summary="sinusoids of row and column, for query and key",
    formula=r"""
        \mathrm{PE}[y, x] &= [\, \mathrm{enc}(v_y) \mid \mathrm{enc}(v_x) \,], \quad F = C/2 \text{ channels each} \\
        \mathrm{enc}(a)[f] &= \sin(a / T_f) \text{ for even } f, \quad \cos(a / T_f) \text{ for odd } f \\
        T_f &= \mathrm{base}^{2 \lfloor f/2 \rfloor / F} \\
        v_y &= y + 1, \quad v_x = x + 1 \\
        v_y &= \frac{2 \pi (y + 1)}{H + 10^{-6}}, \quad v_x = \frac{2 \pi (x + 1)}{W + 10^{-6}}
            \quad \text{if normalised}
    """,
    use_when="inputs are images of varying size, and only queries and keys need positions, as in DETR",
    also_called=("PositionEmbeddingSine",),
    not_to_be_confused={"sincos_2d_mae": "column first, sines and cosines in blocks, added to the embeddings"},
    use="images",
    needs=Needs("coordinates"),
    slots=("qk_table",),
    options={
        "grid": Option(None, "sides of the grid; none: the closest factors of N", tuple, optional=True),
        "normalize": Option(True, "whether coordinates are divided by the image's extent", bool),
        "base": Option(10000.0, "the slowest frequency is about 1/base", float, minimum=1.0),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="defined",
    moves=lambda *, normalize, **options: normalize,
    direction="yes",
    source="Carion et al. 2020, arXiv:2005.12872, appendix A.4, and released code",
    ulp=2.0,
    axes=lambda **options: 2,
)
