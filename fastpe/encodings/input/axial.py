"""Axial positions: a long learned table composed of a small table for each axis of a grid.

    p = a n_2 + b,   PE[p] = [ axis0[a] | axis1[b] ]        (for two axes of n_1 and n_2 cells; more axes work alike)

Position p is the cell (a, b) of the grid.

Source: Kitaev, Kaiser and Levskaya 2020, "Reformer: The Efficient Transformer" (arXiv:2001.04451), which refers to its
code for details: google/trax, trax/layers/research/position_encodings.py, AxialPositionalEncoding. The order `dufter`
is from Dufter, Schmitt and Schütze 2021, "Position Information in Transformers: An Overview" (arXiv:2102.11090), figure
3.

**Slot**: `table` (N, C). **Learns**: `axis0` (n_1, d_1), `axis1` (n_2, d_2), ...; initially N(0, 1), as in trax.
Positions are integers >= 0.

**Options**
- `grid`: the sides n_1, n_2, ... of the grid. Their product is the number of positions. Default: the two factors of the
  training length that are closest to each other.
- `widths`: the numbers of channels d_1, d_2, ... of the axes, which add up to C. Default: equal numbers; if the number
  of axes does not divide C, the first axes have one channel more.
- `order`: which axis varies most slowly. `trax`: the first, p = a n_2 + b. `dufter`: the last, p = a + b n_1.
- `combine`: `concat`: as above. `sum`: all tables have C channels, and their rows are added, as in some third-party
  code.
- `scale`: multiplies the table.

**Past the training length**: undefined for positions past the product of the sides. This product may exceed the
training length, so choose a large enough `grid` before training.

**Facts.** There are n_1 d_1 + n_2 d_2 learned numbers instead of n_1 n_2 C, for example 131,072 instead of 67,108,864
for sides 512 and 512 and widths 64 and 192. Some texts say that absolute positions are not encoded. They are, because
the map p -> (a, b) is one-to-one.

**Traps.** A prime training length has the sides 1 and N; give a larger `grid` instead. Rows that no training position
uses get no gradient. This does not happen on the axis that varies fastest, because every sequence uses all of its rows
early.
"""

import math
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import BeyondTrainingLength, Encoding
from fastpe.encodings.parts.gather import Term, fill_terms, pull_terms
from fastpe.encodings.parts.grids import sides, whole_points
from fastpe.encodings.parts.row_blocks import farthest_of
from fastpe.encodings.slots import Spec


def _sides(spec: Spec, grid: tuple[int, ...] | None) -> tuple[int, ...]:
    if grid is None:
        return sides(spec.train_length, 2)
    if len(grid) < 1 or min(grid) < 1:
        raise ValueError(f"option 'grid' must be sides of at least 1, not {grid}")
    return grid


def _widths(spec: Spec, axes: int, widths: tuple[int, ...] | None, combine: str) -> tuple[int, ...]:
    if combine == "sum":
        if widths is not None:
            raise ValueError(
                f"option 'widths' must be none with combine 'sum', where each axis has C channels, not {widths}"
            )
        return (spec.dim,) * axes
    if widths is None:
        if spec.dim < axes:
            raise ValueError(f"dim must be at least {axes}, a channel for each axis, not {spec.dim}")
        return tuple((spec.dim + axes - 1 - axis) // axes for axis in range(axes))
    if len(widths) != axes or min(widths) < 1 or sum(widths) != spec.dim:
        raise ValueError(f"option 'widths' must be {axes} numbers >= 1 that add up to dim={spec.dim}, not {widths}")
    return widths


def check(
    spec: Spec, *, grid: tuple[int, ...] | None, widths: tuple[int, ...] | None, combine: str, **options: Any
) -> None:
    """Require integer positions from 0 to below the product of the sides."""
    chosen = _sides(spec, grid)
    _widths(spec, len(chosen), widths, combine)
    given = spec.positions is not None
    farthest = whole_points("axial", spec.points() if given else np.array([spec.start, farthest_of(spec)])).max()
    if farthest >= math.prod(chosen):
        raise BeyondTrainingLength(
            f"'axial' has no row for position {farthest:.0f}: the product of its sides {chosen} is {math.prod(chosen)}"
            "; set option grid to larger sides"
        )


def parameters(
    spec: Spec, *, grid: tuple[int, ...] | None, widths: tuple[int, ...] | None, combine: str, **options: Any
) -> dict[str, tuple[int, ...]]:
    """A table for each axis."""
    chosen = _sides(spec, grid)
    wide = _widths(spec, len(chosen), widths, combine)
    return {f"axis{axis}": shape for axis, shape in enumerate(zip(chosen, wide, strict=True))}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """N(0, 1), as in trax."""
    shapes = parameters(spec, **options)
    edges = np.cumsum([math.prod(shape) for shape in shapes.values()])
    parts = np.split(rng.normal(int(edges[-1])), edges[:-1])
    return {name: part.reshape(shape) for (name, shape), part in zip(shapes.items(), parts, strict=True)}


def reference(
    spec: Spec, params: dict[str, Any], *, order: str, combine: str, scale: float, **options: Any
) -> dict[str, Any]:
    """The formula of trax with NumPy's raster order; with order `dufter` the first axis varies fastest."""
    tables = list(params.values())
    places = np.unravel_index(
        spec.points().astype(np.int64), tuple(map(len, tables)), order="C" if order == "trax" else "F"
    )
    parts = [table[place] for table, place in zip(tables, places, strict=True)]
    return {"table": scale * (np.concatenate(parts, axis=-1) if combine == "concat" else np.sum(parts, axis=0))}


def _terms(spec: Spec, params: dict[str, Any], order: str, combine: str) -> list[Term]:
    """A term for each axis: positions are divided by the sides one after the other, the fastest axis first."""
    fast, *slower = reversed(params) if order == "trax" else params
    side, rows, columns = len(params[fast]), {}, {}
    if spec.positions is None:  # the tokens are a part of a raster
        left = np.arange(-(-int(spec.start + spec.length) // side))
        rows[fast], columns[fast] = 0 * left, np.arange(side)
    else:
        left, rows[fast] = np.divmod(spec.points().reshape(-1).astype(np.int32), side)
        columns[fast] = np.zeros(1, np.int64)
    for name in slower:
        left, rows[name] = np.divmod(left, len(params[name]))
        columns[name] = 0 * columns[fast]
    widths = [table.shape[1] for table in params.values()]
    channels = np.cumsum([0, *widths]) if combine == "concat" else [0] * len(widths)
    return [
        Term(table, rows[name], int(channel), columns=columns[name])
        for (name, table), channel in zip(params.items(), channels, strict=False)
    ]


def _start(spec: Spec) -> int:
    return int(spec.start) if spec.positions is None else 0


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, order: str, combine: str, scale: float, **options: Any
) -> None:
    """Fill `table`."""
    fill_terms(out["table"], _terms(spec, params, order, combine), scale, _start(spec))


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, order: str, combine: str,
    scale: float, **options: Any,
) -> None:  # fmt: skip
    """Add the gradient of every row of the slot to the gradients of the rows of `axis0`, `axis1`, ... that form it."""
    gradients = pull_terms(dslots["table"], _terms(spec, params, order, combine), scale, _start(spec))
    for name, gradient in zip(params, gradients, strict=True):
        dparams[name] += gradient.astype(dparams[name].dtype)


ENCODING = Encoding(
    summary="a small learned table for each axis of a grid",
    formula=r"""
        p &= a\, n_2 + b \\
        \mathrm{PE}[p] &= \left[\, \mathrm{axis0}[a] \mid \mathrm{axis1}[b] \,\right]
            \quad \text{(for two axes of } n_1 \text{ and } n_2 \text{ cells)}
    """,
    use_when="a learned table for a long sequence must be small, as in Reformer",
    also_called=("axial position embeddings",),
    not_to_be_confused={"rope_2d": "axial RoPE, which rotates queries and keys by row and column"},
    use="earlier",
    slots=("table",),
    options={
        "grid": Option(
            None, "the sides; none: the closest factors of the training length", tuple, optional=True,
            samples=((8, 8), (3, 7, 4), (70,)),
        ),
        "widths": Option(None, "channels of each axis; none: equal widths", tuple, optional=True, samples=((2, 14),)),
        "order": Option("trax", "whether the first or the last axis is the slow one", str, ("trax", "dufter")),
        "combine": Option("concat", "whether the axes' vectors are concatenated or added", str, ("concat", "sum")),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="undefined",
    direction="yes",
    source="Kitaev, Kaiser and Levskaya 2020, arXiv:2001.04451, released code",
    ulp=4.0,
)  # fmt: skip
