"""Mixed RoPE on a grid: for every pair, each head learns a direction on the grid and a speed of rotation.

    angle of pair t of head h at the cell in column x and row y:   fx_ht x + fy_ht y

Source: Heo, Park, Han and Yun 2024, "Rotary Position Embedding for Vision Transformer" (arXiv:2403.13298), eq. (14);
naver-ai/rope-vit, deit/models_v2_rope.py, init_random_2d_freqs and compute_mixed_cis.

**Slots**: `angles` (H, N, D/2), `pairs`. **Learns**: `fx`, `fy` (H, D/2), in radians per cell; each layer learns
separate values.

**Initial values.** mag_t = base^(-4t/D), t = 0 .. D/4 - 1, and one random direction psi for each head: fx = [mag cos
psi | mag cos(psi + pi/2)], fy = [mag sin psi | mag sin(psi + pi/2)]. If D/2 is odd, the first half has one pair more;
the authors do not define this case.

**Options**
- `grid`: the numbers of rows and columns, whose product is N. Tokens are in raster order: the column changes fastest.
  Default: the most nearly square grid of N cells.
- `class_token`: whether the first token is a class token, which has no cell and is not rotated.
- `base`: the base of mag_t in the initial values.
- `pairs`: as for `rope`.

If positions are given, they are (row, column) = (y, x) and may be real numbers; (0, 0) is not rotated.

**Past the training length**: defined, for any grid.

**Traps.** The gradient of a frequency is a sum over tokens, weighted by their coordinates, so it grows with the grid.
"""

import math
from decimal import Decimal
from typing import Any

import numpy as np

from fastpe.encodings.encoding import Encoding, Needs, Reported
from fastpe.encodings.parts.angles import fill_angles, fill_raster, precise, pull_angles, turns_of
from fastpe.encodings.parts.rotary import (
    CLASS_TOKEN,
    GRID,
    base_option,
    cells,
    check_cells,
    pairs_option,
    plain_pairs,
    raster_places,
    rotated_width,
)
from fastpe.encodings.slots import Spec
from fastpe.kernels.fills.trig import PI


def parameters(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """A frequency along each axis for each head and pair."""
    shape = (spec.heads, rotated_width(spec, None) // 2)
    return {"fx": shape, "fy": shape}


def shapes(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """Angles for each head."""
    return {"angles": (*spec.batch, spec.heads, spec.length, rotated_width(spec, None) // 2)}


def check(spec: Spec, *, grid: tuple[int, ...] | None, class_token: bool, **options: Any) -> None:
    """Require an even head width, and a grid with one cell for each token."""
    rotated_width(spec, None)
    check_cells(spec, grid, class_token)


def init(spec: Spec, rng: Any, *, base: float, **options: Any) -> dict[str, Any]:
    """The authors' frequencies, rotated by a random angle for each head."""
    pairs = rotated_width(spec, None) // 2
    along = np.arange(pairs) < (pairs + 1) // 2
    t = np.where(along, np.arange(pairs), np.arange(pairs) - (pairs + 1) // 2)
    size = base ** (-4.0 * t / spec.head_dim)
    direction = 2 * math.pi * rng.uniform(spec.heads)[:, None] + np.where(along, 0.0, math.pi / 2)
    return {"fx": size * np.cos(direction), "fy": size * np.sin(direction)}


def reference(
    spec: Spec, params: dict[str, Any], *, grid: tuple[int, ...] | None, class_token: bool, **options: Any
) -> dict[str, Any]:
    """fx x + fy y (Heo et al. 2024, eq. 14), in Decimal and rounded once."""
    points = cells(spec, grid, class_token)
    angles = np.empty((spec.heads, rotated_width(spec, None) // 2, *points.shape[:-1]))
    with precise():
        for place in np.ndindex(angles.shape):
            fx, fy = (Decimal(float(params[name][place[:2]])) for name in ("fx", "fy"))
            y, x = (Decimal(float(each)) for each in points[place[2:]])
            angle = fx * x + fy * y
            angles[place] = float(angle - (angle / (2 * PI)).to_integral_value() * 2 * PI)
    return {"angles": np.moveaxis(np.clip(angles, -math.pi, math.pi), (0, 1), (-3, -1))}


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, grid: tuple[int, ...] | None, class_token: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Fill `angles`."""
    frequencies = np.stack([params["fy"], params["fx"]], axis=1).astype(np.float64)
    if spec.positions is not None:
        fill_angles(spec.points(), turns_of(frequencies), out["angles"])
        return
    places, extra = raster_places(spec, grid, class_token)
    out["angles"][:, :extra] = 0.0
    fill_raster(places, turns_of(frequencies), out["angles"][:, extra:])


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *,
    grid: tuple[int, ...] | None, class_token: bool, **options: Any,
) -> None:  # fmt: skip
    """dfx_ht = sum over tokens of x times dangles, and dfy likewise."""
    gradient = pull_angles(cells(spec, grid, class_token), dslots["angles"])
    for axis, name in enumerate(("fy", "fx")):
        dparams[name] += gradient[:, axis]


ENCODING = Encoding(
    summary="rotary, each pair turning along its own direction",
    formula=r"""
        \text{angle of pair } t \text{ of head } h \text{ at the cell in column } x \text{ and row } y:
            \quad f^{x}_{ht}\, x + f^{y}_{ht}\, y
    """,
    use_when="inputs are images, diagonals matter, and larger images come without fine-tuning",
    also_called=("RoPE-Mixed",),
    not_to_be_confused={
        "golden gate RoPE": "directions that are fixed and spread evenly, not learned",
        "rope_mixed_radix": "MrRoPE, for longer texts",
    },
    use="images",
    needs=Needs("coordinates"),
    slots=("angles", "pairs"),
    options={
        "grid": GRID,
        "class_token": CLASS_TOKEN,
        "base": base_option(10.0),
        "pairs": pairs_option("interleaved"),
    },
    beyond="defined",
    direction="yes",
    source="Heo et al. 2024, arXiv:2403.13298, eq. (14)",
    reported=Reported(
        "partly",
        "ViT-B trained at 224 px: 83.8 %, and untuned 84.4 % at 384 px; a ViT-S rises from 80.9 to 81.8 %.",
        "Heo et al. 2024, arXiv:2403.13298; naver-ai/rope-vit, README.md",
    ),
    ulp=2.0,
    plain=plain_pairs,
    axes=lambda **options: 2,
    per_layer=("fx", "fy"),
)
