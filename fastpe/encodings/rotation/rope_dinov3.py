"""DINOv3's RoPE: pairs rotate with the row or the column, both scaled to the range -1 to 1 on any grid.

    y = 2 (row + 1/2) / Ny - 1,   x = 2 (column + 1/2) / Nx - 1
    period_t = base^(4t/D), t = 0 .. D/4 - 1,     or  p_min (p_max/p_min)^(t/(D/4 - 1))
    angles of a patch: [2 pi y / period | 2 pi x / period]

Source: Simeoni et al. 2025, "DINOv3" (arXiv:2508.10104); facebookresearch/dinov3,
dinov3/layers/rope_position_encoding.py, RopePositionEmbedding, and layers/attention.py.

**Slots**: `angles` (1, N, D/2), `pairs`. **Learns**: nothing.

**Options**
- `grid`: the numbers of rows and columns, Ny and Nx. Their product is N minus `prefix_tokens`. Patches are in raster
  order: the column changes fastest. Default: the most nearly square grid.
- `prefix_tokens`: the number of class and register tokens at the start. They have no patch and are not rotated. The
  released models have 5.
- `normalise`: which values Ny and Nx have in the formula. `separate`: the two sides of the grid. `max`: the longer side
  for both. `min`: the shorter side for both. With `max` and `min`, an image that is not square is not centred on (0,
  0). With `min`, some of its coordinates exceed 1.
- `base`: the base of the periods. Default: 100.
- `period_min`, `period_max`: the smallest and the largest period. They replace `base`; set both or neither.
- `pairs`: as for `rope`; the code uses `half`.

If positions are given, they are (row, column) and may be real numbers. If `grid` is set, they are converted into (y, x)
by the formula above. If not, they are used as (y, x) directly, so you can apply the authors' augmentation to them
first. During training, this augmentation replaces (y, x) by ((y, x) + u) e^w e^z: it shifts, jitters and rescales the
coordinates. The numbers u, w and z are drawn once per batch: u and w separately for each axis, z for both axes
together. The released models use only e^z, from 1/2 to 2.

**Past the training length**: defined. If `normalise` is `separate` or `max`, coordinates stay in (-1, 1): the patches
of a larger grid are closer together, and their angles hardly leave the range of training.

**Traps.** The pairs of the row come first, unlike in `rope_2d`. If `normalise` is `separate`, the angle between
neighbouring patches depends on the aspect ratio of the image. The fastest pair, with period 1, makes two turns over the
image. A patch at the centre of the image, (y, x) = (0, 0), has the angles 0, as class and register tokens have.
"""

from decimal import Decimal
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Needs
from fastpe.encodings.parts.angles import Array, Frequencies, exact_angles, fill_sections, precise
from fastpe.encodings.parts.grids import along_axes, chosen_sides
from fastpe.encodings.parts.rotary import GRID, LARGEST, pairs_option, plain_pairs, shapes
from fastpe.encodings.slots import Spec
from fastpe.kernels.fills.trig import PI

Grid = tuple[int, ...] | None


def check(
    spec: Spec, *, grid: Grid, prefix_tokens: int, period_min: float | None, period_max: float | None, **options: Any
) -> None:
    """Require a head width that is a multiple of 4, and a grid with one cell for each patch."""
    if spec.head_dim % 4:
        raise ValueError(f"dim / heads must be a multiple of 4, not {spec.dim} / {spec.heads}")
    if (period_min is None) != (period_max is None):
        raise ValueError("options 'period_min' and 'period_max' must be given together")
    if spec.positions is None:
        if spec.length <= prefix_tokens:
            raise ValueError(f"length must exceed option 'prefix_tokens', {prefix_tokens}, not {spec.length}")
        chosen_sides(spec, grid, 2, extra=prefix_tokens)
    elif grid is not None and (len(grid) != 2 or min(grid) < 1):
        raise ValueError(f"option 'grid' must be 2 sides of at least 1, not {grid}")


def _divisors(sides: tuple[int, ...], normalise: str) -> tuple[int, ...]:
    """The values of Ny and Nx in the formula."""
    one = {"max": max(sides), "min": min(sides)}.get(normalise)
    return sides if one is None else (one, one)


def reference(
    spec: Spec, params: dict[str, Any], *, grid: Grid, prefix_tokens: int, normalise: str, base: float,
    period_min: float | None, period_max: float | None, pairs: str,
) -> dict[str, Any]:  # fmt: skip
    """[2 pi y / period | 2 pi x / period], one coordinate after the other."""
    quarter, blocks = spec.head_dim // 4, []
    on_grid = spec.positions is None or grid is not None
    sides = chosen_sides(spec, grid, 2, extra=prefix_tokens) if spec.positions is None else grid or (1, 1)
    points = spec.points() if spec.positions is not None else np.indices(sides).reshape(2, -1).T + spec.start
    for axis, divisor in enumerate(_divisors(sides, normalise)):
        with precise():
            if period_min is None or period_max is None:
                periods = [Decimal(base) ** (Decimal(4 * t) / spec.head_dim) for t in range(quarter)]
            else:
                ratio = Decimal(period_max) / Decimal(period_min)
                steps = max(quarter - 1, 1)
                periods = [Decimal(period_min) * ratio ** (Decimal(t) / steps) for t in range(quarter)]
            theta = [2 * PI / each / (divisor if on_grid else 1) for each in periods]
        places = 2 * points[..., axis] + 1 - divisor if on_grid else points[..., axis]
        blocks.append(exact_angles(places, theta))
    angles = np.concatenate(blocks, axis=-1)
    prefix = np.zeros((prefix_tokens if spec.positions is None else 0, angles.shape[-1]))
    angles = np.concatenate([prefix, angles]) if len(prefix) else angles
    return {"angles": angles[..., None, :, :]}


def _frequencies(
    width: int, base: float, period_min: float | None, period_max: float | None, divisor: int
) -> Frequencies:  # fmt: skip
    """The frequencies of one axis, in radians per unit of 2 row + 1 - Ny."""
    quarter = width // 4
    with precise():
        first, ratio, steps = Decimal(1), Decimal(base), Decimal(quarter)
        if period_min is not None and period_max is not None:
            first, ratio = Decimal(period_min), Decimal(period_max) / Decimal(period_min)
            steps = Decimal(max(quarter - 1, 1))
        return tuple(2 * PI / (divisor * first * ratio ** (t / steps)) for t in range(quarter))


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, grid: Grid, prefix_tokens: int, normalise: str,
    base: float, period_min: float | None, period_max: float | None, pairs: str,
) -> None:  # fmt: skip
    """Fill `angles`."""
    periods, extra = (spec.head_dim, base, period_min, period_max), 0
    if spec.positions is not None and grid is None:
        theta = _frequencies(*periods, 1)
        points = spec.points()
        fill_sections(spec, [points[..., 0], points[..., 1]], [(0, theta), (1, theta)], out["angles"])
        return
    if spec.positions is None:
        extra = prefix_tokens
        sides = chosen_sides(spec, grid, 2, extra=extra)
        places: list[Array] = [axis + spec.start for axis in along_axes(sides)]
    else:
        sides, points = grid or (1, 1), spec.points()
        places = [points[..., 0], points[..., 1]]
    divisors = _divisors(sides, normalise)
    odd = [2.0 * place + 1.0 - divisor for place, divisor in zip(places, divisors, strict=True)]
    sections = [(axis, _frequencies(*periods, divisor)) for axis, divisor in enumerate(divisors)]
    out["angles"][..., :extra, :] = 0.0
    fill_sections(spec, odd, sections, out["angles"][..., extra:, :])


ENCODING = Encoding(
    summary="rotary, by rows and columns of an image as -1 to 1",
    formula=r"""
        y &= \frac{2 (\mathrm{row} + 1/2)}{N_y} - 1, \quad x = \frac{2 (\mathrm{column} + 1/2)}{N_x} - 1 \\
        \mathrm{period}_t &= \mathrm{base}^{4t/D}, \quad t = 0, \dots, D/4 - 1 \\
        &\text{or } p_{\min} \left(\frac{p_{\max}}{p_{\min}}\right)^{t / (D/4 - 1)} \\
        &\text{angles of a patch:} \quad [\, 2 \pi y / \mathrm{period} \mid 2 \pi x / \mathrm{period} \,]
    """,
    use_when="inputs are images whose grid changes its size, and no new angle may occur, as in DINOv3",
    use="images",
    needs=Needs("coordinates"),
    slots=("angles", "pairs"),
    options={
        "grid": GRID,
        "prefix_tokens": Option(0, "how many tokens at the start have no patch", int, minimum=0),
        "normalise": Option("separate", "by which side coordinates are divided", str, ("separate", "max", "min")),
        "base": Option(100.0, "the largest period is about the base, in units of half an image", float, minimum=1.0),
        "period_min": Option(
            None, "the smallest period; replaces base", float, minimum=1e-6, optional=True, maximum=LARGEST,
            samples=(None,),
        ),
        "period_max": Option(
            None, "the largest period; replaces base", float, minimum=1e-6, optional=True, maximum=LARGEST,
            samples=(None,),
        ),
        "pairs": pairs_option("half"),
    },
    beyond="defined",
    moves=lambda **options: True,
    direction="yes",
    source="Simeoni et al. 2025, arXiv:2508.10104, and released code",
    ulp=2.0,
    shapes=shapes,
    plain=plain_pairs,
    axes=lambda **options: 2,
)  # fmt: skip
