"""Sines and cosines of the three coordinates of a video, added to the embeddings.

    PE[t, y, x] = [ sin(t w) | cos(t w) | sin(x w) | cos(x w) | sin(y w) | cos(y w) ]
    w_k = base^(-k / (C/6)),   k = 0 .. C/6 - 1

Source: Dehghani, Gritsenko, Arnab, Minderer and Tay 2021, "Scenic: A JAX Library for Computer Vision Research and
Beyond" (arXiv:2110.11403), released code: google-research/scenic, scenic/model_lib/layers/attention_layers.py,
get_fixed_sincos_position_embedding; Scenic's ViViT uses it with the option `sinusoidal_3d`
(scenic/projects/vivit/model.py).

**Slot**: `table` (N, C). **Learns**: nothing. If C is not a multiple of 6, the formula uses the next smaller multiple,
and the remaining channels are zero; Scenic refuses such a width.

**Options**
- `grid`: the sides (T, H, W) of the grid. Tokens are in raster order: cell (t, y, x) is token (t H + y) W + x. Default:
  the three factors of N that are closest to each other.
- `base`: the slowest frequency is about 1/base.
- `scale`: multiplies the table.

Positions, if given, are triples (t, y, x) of real numbers. The accuracy is that of `sinusoidal`.

**Past the training length**: defined for any coordinate. On a wider grid, the token with the same index has different
coordinates.

**Traps.** The channels are in the order time, x, y, although a position is (t, y, x).
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


def check(spec: Spec, *, grid: tuple[int, ...] | None, **options: Any) -> None:
    """Require C >= 6, and a grid that fits."""
    if spec.dim < 6:
        raise ValueError(f"dim must be at least 6 for 'sincos_3d', not {spec.dim}")
    axes_of(spec, grid, 3)


def remarks(spec: Spec, **options: Any) -> tuple[str, ...]:
    """Remark on the number of channels that are zero."""
    left = spec.dim % 6
    return (f"{left} of {spec.dim} channels are zero: three coordinates take a multiple of 6",) if left else ()


def reference(
    spec: Spec, params: dict[str, Any], *, grid: tuple[int, ...] | None, base: float, scale: float
) -> dict[str, Any]:
    """The printed formula, with angles in 60 decimal digits."""
    sixth = spec.dim // 6
    sine, cosine = exact(coordinates(spec, grid, 3), geometric(base, sixth, sixth))  # (..., N, 3, C/6)
    t, y, x = 0, 1, 2
    blocks = [wave[..., axis, :] for axis in (t, x, y) for wave in (sine, cosine)]
    zeros = np.zeros((*sine.shape[:-2], spec.dim % 6))
    return {"table": scale * np.concatenate([*blocks, zeros], axis=-1)}


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, grid: tuple[int, ...] | None, base: float, scale: float
) -> None:
    """Fill `table`."""
    t, y, x = axes_of(spec, grid, 3)
    width = spec.dim // 6 * 2
    fill_axes(out["table"], (t, x, y), frequencies(base, width), width, layout="concatenated", scale=scale)


ENCODING = Encoding(
    summary="sines and cosines of time, row and column, added",
    formula=r"""
        \mathrm{PE}[t, y, x] &= [\, \sin(t w) \mid \cos(t w) \mid \sin(x w) \mid \cos(x w) \mid \sin(y w) \mid \cos(y
            w) \,] \\
        w_k &= \mathrm{base}^{-k / (C/6)}, \quad k = 0, \dots, C/6 - 1
    """,
    use_when="inputs are videos, and a fixed table of time, row and column is enough",
    also_called=("sinusoidal_3d",),
    not_to_be_confused={"flat_sincos": "VideoMAE's table, which is one-dimensional"},
    use="images",
    needs=Needs("coordinates"),
    slots=("table",),
    options={
        "grid": Option(None, "sides of the grid; none: the closest factors of N", tuple, optional=True),
        "base": Option(10000.0, "the slowest frequency is about 1/base", float, minimum=1.0),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="defined",
    direction="yes",
    source="Dehghani et al. 2021, arXiv:2110.11403, released code",
    ulp=2.0,
    axes=lambda **options: 3,
)
