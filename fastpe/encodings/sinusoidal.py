"""Sines and cosines of geometrically spaced frequencies, added to the embeddings.

    PE[p, 2t]   = sin(p / base^(2t/C))
    PE[p, 2t+1] = cos(p / base^(2t/C))         t = 0 .. ceil(C/2) - 1

Source: Vaswani et al. 2017, "Attention Is All You Need" (arXiv:1706.03762), section 3.5; Li (2025), eqs. (1) and (2).

**Slot**: `table` (N, C). **Learns**: nothing. An odd width C drops the last cosine.

**Options**
- `base`: the slowest frequency is about 1/base.
- `scale`: multiplies the table.

Positions may be real or negative. The phase p * base^(-2t/C) is formed without rounding, so that up to position 2**24
in size a float32 value is the nearest or off by at most 0.51 units in the last place, and a float64 value by 1 (times
`scale`: 1.5). The usual float64 product is wrong there in the ninth digit and the float32 product in the first.

**Speed.** Arithmetic is the bound. In a float32 table of positions one apart, 13 operations on float64 vectors make one
vector of entries: four products, two conversions, the interleaving, the watch for cancellation. At one operation a
cycle on registers of 64 bytes, at 3 GHz, that is 15 GB/s. Elsewhere, and in float64, a vector of sines and one of
cosines take 55 operations: 7 GB/s of float64.

**Past the training length**: defined. No two integers have the same vector, at any length: already the first pair
differs, as no two integers are a multiple of 2 pi apart. (That the encoding repeats after base^(2t/C) positions, or
is ambiguous beyond 10000, is said of it but false.)

**Facts.** For even C every row has the norm scale * sqrt(C/2), and the product of two rows depends on their distance
alone.

**Traps.** The norm sqrt(C/2) swamps embeddings of standard deviation 0.02; the authors multiply those by sqrt(C)
first. Much code (tensor2tensor and its descendants) concatenates sines and cosines and has a slowest frequency of
exactly 1e-4: that is another table. The sine and the cosine of a pair share one frequency.
"""

from decimal import Decimal, localcontext
from typing import Any

import numpy as np

from fastpe.encoding import Encoding, Option, Spec
from fastpe.encodings._rows import points_of, row_blocks
from fastpe.encodings._trig import frequencies
from fastpe.kernels._jit import entry, inlined, inner
from fastpe.kernels.simd import (
    absolute,
    aligned_zeros,
    any_negative,
    at,
    before_boundary,
    fma,
    interleaved,
    lanes,
    load,
    maximum,
    minimum,
    minus,
    pointer,
    scalar,
    splat,
    store,
    store_first,
    store_interleaved,
    whole_vectors,
)
from fastpe.kernels.table import LARGE, finish, move_edges, move_line, move_rows
from fastpe.kernels.trig import PI, sincos


def reference(spec: Spec, params: dict[str, Any], *, base: float, scale: float) -> dict[str, Any]:
    """The table of Vaswani et al. 2017, section 3.5; angles in 60 decimal digits, then NumPy's sine and cosine."""
    points = spec.points()
    angles = np.empty((points.size, (spec.dim + 1) // 2))
    quarters = np.empty(angles.shape, dtype=np.int64)
    with localcontext() as context:
        context.prec = 60
        context.Emin, context.Emax = -999999, 999999
        omega = [1 / Decimal(base) ** (Decimal(2 * t) / spec.dim) for t in range(angles.shape[1])]
        for i, p in enumerate(points.ravel().tolist()):
            for t, frequency in enumerate(omega):
                angle = Decimal(p) * frequency
                turns = (angle / (PI / 2)).to_integral_value()
                angles[i, t] = float(angle - turns * (PI / 2))
                quarters[i, t] = int(turns) % 4
    sine, cosine = np.sin(angles), np.cos(angles)
    table = np.empty((points.size, spec.dim))
    table[:, 0::2] = np.choose(quarters, [sine, cosine, -sine, -cosine])
    table[:, 1::2] = np.choose(quarters, [cosine, -sine, -cosine, sine])[:, : spec.dim // 2]
    return {"table": scale * table.reshape((*points.shape, spec.dim))}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, base: float, scale: float) -> None:
    """Fill `table`."""
    omega, table = frequencies(base, spec.dim), out["table"]
    width, wide = whole_vectors(1, np.float64), whole_vectors(1, table.dtype)
    # a float64 table has no use for turns: what a rotation loses would be seen
    turns = aligned_zeros((omega.shape[1] // width, _RUN, 2 * width), np.float64) if wide > width else None
    blocks, fresh = aligned_zeros((2, _RUN, spec.dim), table.dtype), True
    for rows, first, row_step, step in row_blocks(table):
        points, large = points_of(spec, rows), table.nbytes >= LARGE
        _fill(points, omega, turns, fresh, blocks, scale, first, row_step, step, large)
        fresh = fresh and len(points) < 2 * _RUN


_RUN = 32  # rows of a block
_CANCELLED = 2.0**-20  # below so much of its terms a rotated value is computed anew: 2**-31 of its own size is kept


@entry(label="sinusoidal table")
def _fill(
    points: np.ndarray, omega: np.ndarray, turns: np.ndarray | None, fresh: bool, blocks: np.ndarray, scale: float,
    first: np.ndarray, row_step: int, step: int, large: bool,
) -> None:  # fmt: skip
    rows, dim, table, width = points.shape[0], blocks.shape[2], pointer(first), lanes(pointer(omega))
    if turns is not None:  # noqa: SIM102 - alone in its condition: what it guards is then not compiled for float64
        if fresh and rows >= 2 * _RUN:
            _all_turns(omega, turns)
    aside = large and step == 1 and row_step == dim
    # what takes long to compute is written where it belongs, if all lines of memory are whole ones
    direct = aside and dim % lanes(table) == 0 and before_boundary(table) == 0
    waiting = False  # whether the other block is still to be moved, as the next one is computed
    for i in range(0, rows, _RUN):
        count = min(_RUN, rows - i)
        target, before = at(table, i * row_step), at(table, (i - _RUN) * row_step)
        block, last = pointer(blocks[i // _RUN % 2]), pointer(blocks[(i // _RUN + 1) % 2])
        run = False
        if turns is not None:
            run = rows >= 2 * _RUN and count == _RUN and _in_steps_of_one(points, i)
            if waiting and not run:
                move_rows(last, _RUN, dim, before, row_step, step, large)
            if run:
                _rotate(points[i], omega, turns, scale, block, dim, _RUN * dim if waiting else 0, last, before)
        out = target if direct and not run else block
        for k in range(0 if run else count):
            for t in range(0, omega.shape[1], width):
                _exact(points[i + k], omega, t, scale, at(out, k * dim), dim)
        waiting = run and aside and i + _RUN < rows
        if not waiting and (run or not direct):
            move_rows(block, count, dim, target, row_step, step, large)
    finish(large)


@inner
def _in_steps_of_one(points, i):  # type: ignore[no-untyped-def]
    found = True
    for k in range(1, _RUN):
        found &= points[i + k] - points[i] == k
    return found


@inlined
def _pairs(position, omega, t):  # type: ignore[no-untyped-def]
    """Sines and cosines of one position and the frequencies from t on."""
    high = at(pointer(omega), t)
    return sincos(splat(position), load(high, 0), load(high, omega.shape[1]))


@inlined
def _exact(position, omega, t, scale, row, dim):  # type: ignore[no-untyped-def]
    """The channels of a vector of frequencies in one row."""
    sine, cosine = _pairs(position, omega, t)
    store_interleaved(row, 2 * t, splat(scale) * sine, splat(scale) * cosine, dim - 2 * t)


# A float32 table of positions one apart takes one sine and cosine of every frequency for each run of rows. The others
# are the first row rotated by w, 2w, ...: four products for two values instead of 60 operations. They are off by 2**-51
# of their larger term, which float32 does not see unless the terms cancel.


@inner
def _all_turns(omega, turns):  # type: ignore[no-untyped-def]
    """turns[vector, k] = cos kw, sin kw. Row 0, which turns nothing, holds the largest |sin kw| instead."""
    width = turns.shape[2] // 2
    for vector in range(turns.shape[0]):
        out = pointer(turns[vector])
        largest = splat(0.0)
        for k in range(1, _RUN):
            sine, cosine = _pairs(float(k), omega, vector * width)
            store(out, 2 * k * width, cosine)
            store(out, (2 * k + 1) * width, sine)
            largest = maximum(largest, absolute(sine))
        store(out, 0, largest)


@inner
def _rotate(position, omega, turns, scale, block, dim, moved, last, table):  # type: ignore[no-untyped-def]
    """A block of rows: for each vector of frequencies the first row, then all others from it.

    The last block, of `moved` elements, goes to its place in the table meanwhile.
    """
    width, line, head = turns.shape[2] // 2, 0, 0
    if moved > 0:
        head = move_edges(last, table, moved)
    for t in range(0, omega.shape[1], width):
        s, c = _pairs(position, omega, t)
        s, c = splat(scale) * s, splat(scale) * c
        minus_s = minus(s)
        store_interleaved(block, 2 * t, s, c, dim - 2 * t)
        move_line(last, table, head, line, moved)
        line += 1
        turn = pointer(turns[t // width])
        largest = load(turn, 0)
        least = interleaved(block, fma(absolute(c), largest, absolute(s)), fma(absolute(s), largest, absolute(c)))
        enough = least * splat(scalar(block, _CANCELLED))
        for k in range(1, _RUN):
            cosine, sine = load(turn, 2 * k * width), load(turn, (2 * k + 1) * width)
            row = interleaved(block, fma(c, sine, s * cosine), fma(minus_s, sine, c * cosine))
            least = minimum(absolute(row), least)
            store_first(block, k * dim + 2 * t, row, dim - 2 * t)
            move_line(last, table, head, line, moved)
            line += 1
        if any_negative(least - enough):
            for k in range(1, _RUN):
                _exact(position + k, omega, t, scale, at(block, k * dim), dim)


ENCODING = Encoding(
    slots=("table",),
    options={
        "base": Option(10000.0, "the slowest frequency is about 1/base", float, minimum=1.0),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="defined",
    direction="yes",
    source="Vaswani et al. 2017, arXiv:1706.03762, section 3.5",
    ulp=2.0,
    reference=reference,
    fill=fill,
)
