"""Separate space and time (TimeSformer): a learned vector for each place in a frame, plus one for each frame.

    PE[t, y, x] = space[y W + x] + time[t]

Source: Bertasius, Wang and Torresani 2021, "Is Space-Time Attention All You Need for Video Understanding?"
(arXiv:2102.05095), section 3, eq. (1). That equation has a separate vector for every pair of a place p and a frame t.
The sum of two vectors is from the code: facebookresearch/TimeSformer, timesformer/models/vit.py, VisionTransformer.

**Slot**: `table` (N, C), tokens in raster order, index (t H + y) W + x. **Learns**: `space` (H W, C), initially drawn
from N(0, 0.02^2), and `time` (T, C), initially zeros. (The authors truncate the normal at an absolute value of 2, which
is a hundred standard deviations and thus has no effect.)

**Options**
- `grid`: the sides (T, H, W) of the sequence's grid. Default: at the training length, the learned grid (see
  `train_grid`); at other lengths, the three factors of N that are closest to each other.
- `train_grid`: the sides of the learned grid, the grid for which the tables are made. Default: `grid` if its number of
  cells is the training length (minus 1 with a class token), otherwise the three factors of this number that are closest
  to each other.
- `class_token`: whether token 0 is a class token, which has no cell. Row 0 of `space` is then the vector of the class
  token, to which no vector of `time` is added.
- `scale`: multiplies the table.

Positions, if given, are integers (t, y, x) on `grid`, or on the learned grid if `grid` is not given; the position of a
class token is ignored.

**Past the training length**: resized by nearest neighbour, as the authors' model does: on another grid (T', H', W'),
cell (t, y, x) takes the vectors of floor(t T/T'), floor(y H/H') and floor(x W/W'). (The authors' helpers.py, which
loads checkpoints for another grid, resamples along the index y W + x instead, ignoring rows and columns.)
`fastpe.resize` returns the tables for further training on a new grid. A coordinate outside the grid raises an error.

**Traps.** Height and width share one table, so this is not a sum of three tables for time, height and width. Nor is it
ViViT's factorised encoder, which adds the table of time only before its second encoder.
"""

import math
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.base.validation import truth
from fastpe.encodings.encoding import Encoding, Needs
from fastpe.encodings.parts.gather import Term, by_cell, fill_terms, of_axis, pull_terms
from fastpe.encodings.parts.grids import axis_places, check_inside, coordinates, extent, learned_grid, whole_points
from fastpe.encodings.parts.resizing import checked_names, learned_table, whole_sides
from fastpe.encodings.slots import Spec

STANDARD_DEVIATION = 0.02
Grid = tuple[int, ...] | None


def resize(
    params: Any, *, grid: tuple[int, int, int], new_grid: tuple[int, int, int], class_token: bool = False
) -> dict[str, np.ndarray]:
    """Resize learned tables from one grid to another by nearest neighbour.

    `params` holds `space` (H W, C), or (1 + H W, C) with a class token, and `time` (T, C). `grid` and `new_grid` are
    the old and the new sides (T, H, W).

    >>> tables = {"space": np.arange(4.0)[:, None], "time": np.array([[0.0], [10.0]])}
    >>> {name: table.ravel().tolist() for name, table in resize(tables, grid=(2, 2, 2), new_grid=(3, 2, 1)).items()}
    {'space': [0.0, 2.0], 'time': [0.0, 0.0, 10.0]}
    """
    truth("class_token", class_token)
    old, new = whole_sides("grid", grid, 3), whole_sides("new_grid", new_grid, 3)
    checked_names(params, ("space", "time"))
    space = learned_table("params['space']", params["space"], (class_token + old[1] * old[2],))
    time = learned_table("params['time']", params["time"], old[:1])
    if space.shape[1] != time.shape[1]:
        raise ValueError(f"params['time'] must have the shape {(old[0], space.shape[1])}, not {time.shape}")
    t, y, x = (np.arange(wanted) * side // wanted for side, wanted in zip(old, new, strict=True))
    places = class_token + (y[:, None] * old[2] + x).ravel()
    return {"space": np.concatenate([space[:class_token], space[places]]), "time": time[t]}


def check(spec: Spec, *, grid: Grid, train_grid: Grid, class_token: bool, scale: float) -> None:
    """Check that both grids fit the lengths, and that given positions are cells of the grid."""
    new = extent(spec, grid, learned_grid(spec, grid, train_grid, 3, extra=class_token), extra=class_token)
    places = axis_places(spec, new, extra=class_token)
    check_inside("factorised_st", [whole_points("factorised_st", each) for each in places], new)


def parameters(
    spec: Spec, *, grid: Grid, train_grid: Grid, class_token: bool, **options: Any
) -> dict[str, tuple[int, ...]]:
    """A table for the places of a frame, and one for frames."""
    frames, height, width = learned_grid(spec, grid, train_grid, 3, extra=class_token)
    return {"space": (class_token + height * width, spec.dim), "time": (frames, spec.dim)}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """N(0, 0.02^2) for `space` and zeros for `time`, as in the authors' code."""
    shapes = parameters(spec, **options)
    return {"space": STANDARD_DEVIATION * rng.normal(shapes["space"]), "time": np.zeros(shapes["time"])}


def reference(
    spec: Spec, params: dict[str, Any], *, grid: Grid, train_grid: Grid, class_token: bool, scale: float
) -> dict[str, Any]:
    """space + time, each resized by nearest neighbour, one cell at a time."""
    old = learned_grid(spec, grid, train_grid, 3, extra=class_token)
    new = extent(spec, grid, old, extra=class_token)
    extra, space, time = int(class_token), params["space"], params["time"]
    image = space[extra:].reshape(old[1], old[2], spec.dim)
    table = np.empty((*spec.batch, spec.length, spec.dim))
    table[..., :extra, :] = space[:extra]
    points = coordinates(spec, new, 3, extra=extra)
    for cell in np.ndindex(points.shape[:-1]):
        t, y, x = (int(c) * side // other for c, side, other in zip(points[cell], old, new, strict=True))
        table[(*cell[:-1], cell[-1] + extra)] = image[y, x] + time[t]
    return {"table": scale * table}


def _terms(spec: Spec, params: dict[str, Any], grid: Grid, train_grid: Grid, extra: int) -> list[Term]:
    """The terms of space and time for all tokens except a class token."""
    old = learned_grid(spec, grid, train_grid, 3, extra=extra)
    new = extent(spec, grid, old, extra=extra)
    places = axis_places(spec, new, extra=extra)
    t, y, x = (each.astype(np.int64) * side // own for each, side, own in zip(places, old, new, strict=True))
    (place, column), (frame, same) = by_cell([0 * t, y * old[2], x]), of_axis(0, [t, y, x])
    return [Term(params["space"][extra:], place, columns=column), Term(params["time"], frame, columns=same)]


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, grid: Grid, train_grid: Grid, class_token: bool,
    scale: float,
) -> None:  # fmt: skip
    """Fill `table`."""
    extra, table = int(class_token), out["table"]
    table[..., :extra, :] = scale * params["space"][:extra].astype(np.float64)
    fill_terms(table[..., extra:, :], _terms(spec, params, grid, train_grid, extra), scale)


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, grid: Grid,
    train_grid: Grid, class_token: bool, scale: float,
) -> None:  # fmt: skip
    """Add the gradient of every row of the slot to the gradients of the two rows of `space` and `time` that form it."""
    extra, dtable = int(class_token), dslots["table"]
    space, time = pull_terms(dtable[..., extra:, :], _terms(spec, params, grid, train_grid, extra), scale)
    dparams["space"][extra:] += space.astype(spec.dtype)
    dparams["time"] += time.astype(spec.dtype)
    first = dtable[..., :extra, :].reshape(math.prod(spec.batch), extra, spec.dim)
    dparams["space"][:extra] += (scale * first.sum(axis=0, dtype=np.float64)).astype(spec.dtype)


ENCODING = Encoding(
    summary="learned vectors for places and for frames, added",
    formula=r"\mathrm{PE}[t, y, x] = \mathrm{space}[y W + x] + \mathrm{time}[t]",
    use_when="inputs are videos, and places in a frame and frames may be learned separately, as in TimeSformer",
    not_to_be_confused={
        "ViViT's factorised encoder": "it adds the table of time only before its second encoder",
        "sincos_3d": "fixed sines and cosines of time, row and column",
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
    source="Bertasius, Wang and Torresani 2021, arXiv:2102.05095, section 3, eq. (1), and released code",
    ulp=4.0,
    axes=lambda **options: 3,
)
