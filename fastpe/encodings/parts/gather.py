"""Tables whose rows are sums or concatenations of weighted rows of small tables, as for learned tables and grids.

The row of a token is a sum of terms. A `Term` adds one row of its table to the channels from `channel` on. Sums are
computed in float64 and rounded once.
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from fastpe.encodings.parts.row_blocks import row_blocks
from fastpe.kernels.compile.decorators import entry, inlined
from fastpe.kernels.fills.table import LARGE, finish, move_rows
from fastpe.kernels.simd import (
    at,
    before_boundary,
    fma,
    get,
    lanes,
    load,
    load_first,
    load_wide,
    pointer,
    splat,
    store,
    store_first,
    store_past_caches,
    store_rounded,
)

Array = np.ndarray[Any, Any]
_NO_COLUMN, _ALL = np.zeros(1, np.int64), np.ones(1)


class Term(NamedTuple):
    """The contribution of one table to every row.

    Token t = a * B + b, at row a and column b of a grid with B columns, gets row `rows[a] + columns[b]` of `table`,
    multiplied by `weight[a] * across[b]`.
    """

    table: Array
    rows: Array
    channel: int = 0
    weight: Array | None = None
    columns: Array = _NO_COLUMN
    across: Array = _ALL


def by_cell(parts: Sequence[Array], combine: Any = np.add) -> tuple[Array, Array]:
    """`rows` and `columns` of a term, or its weights, as the sum or product of one array for each axis of a grid.

    The arrays are as returned by `grids.axis_places`: each runs along its axis, or all have the same shape.
    """
    *slow, fast = parts
    rows = reduce(combine, slow)
    if rows.size * fast.size == np.broadcast(*parts).size:
        return rows.reshape(-1), fast.reshape(-1)
    return combine(rows, fast).reshape(-1), np.array([combine.identity])


def of_axis(axis: int, places: Sequence[Array]) -> tuple[Array, Array]:
    """`rows` and `columns` of a term that depends on one coordinate only."""
    return by_cell([place if other == axis else 0 * place for other, place in enumerate(places)])


class _Plan(NamedTuple):
    """The terms as arrays, with terms of the same channels adjacent."""

    flat: Array  # all tables, one after the other
    start: Array  # where each term's table starts in `flat`
    width: Array
    channel: Array
    group: Array  # the first term of each group of terms with the same channels, and the number of terms
    rows: Array
    columns: Array
    weight: Array  # (1, 0) if all are 1
    across: Array


def _plan(terms: Sequence[Term]) -> _Plan:
    tables = {id(term.table): term.table for term in terms}
    starts = dict(zip(tables, np.cumsum([0, *(table.size for table in tables.values())]), strict=False))
    pieces = [table.reshape(-1) for table in tables.values()]
    terms = sorted(terms, key=lambda term: term.channel)
    channels = [term.channel for term in terms]
    rows = np.stack([term.rows for term in terms]).astype(np.int64, copy=False)
    weight = across = np.ones((1, 0))
    if any(term.weight is not None for term in terms):
        weight = np.stack([np.ones(rows.shape[1]) if term.weight is None else term.weight for term in terms])
        across = np.stack([np.broadcast_to(term.across, term.columns.shape) for term in terms])
    return _Plan(
        pieces[0] if len(pieces) == 1 else np.concatenate(pieces),
        np.array([starts[id(term.table)] for term in terms]),
        np.array([term.table.shape[1] for term in terms]),
        np.array(channels),
        np.array([*map(channels.index, sorted(set(channels))), len(terms)]),
        rows,
        np.stack([term.columns for term in terms]).astype(np.int64, copy=False),
        weight,
        across,
    )


def fill_terms(out: Array, terms: Sequence[Term], scale: float = 1.0, start: int = 0) -> None:
    """Fill `out` (..., N, C), of any strides, with the terms' sum times `scale`; its first row is token `start`.

    Two terms must have either the same channels or no channel in common, and every channel must belong to a term.
    """
    plan, dim, channels = _plan(terms), out.shape[-1], [term.channel for term in terms]
    unscaled = scale == 1.0 and not plan.weight.size and plan.flat.dtype == out.dtype
    if unscaled and max(map(channels.count, channels)) <= 2:  # a sum of two is rounded once in any dtype
        places = plan[:7]
        for rows, first, row_step, step in row_blocks(out, out.size):
            where = start + rows.start, rows.stop - rows.start
            _copy(*places, *where, dim, first, row_step, step, out.nbytes >= LARGE)
        return
    for rows, first, row_step, step in row_blocks(out):
        where = start + rows.start, rows.stop - rows.start
        _fill(*plan, scale, *where, dim, first, row_step, step, out.nbytes >= LARGE)


def pull_terms(dout: Array, terms: Sequence[Term], scale: float = 1.0, start: int = 0) -> list[Array]:
    """The float64 gradients of the terms' tables, one for each table, in the order of first occurrence.

    `dout` is the gradient of the output of `fill_terms`.
    """
    flat, first, width, channel, _, *places = _plan(terms)
    total = np.zeros(flat.size)
    _pull(np.ascontiguousarray(dout).reshape(-1, dout.shape[-1]), first, width, channel, *places, scale, start, total)
    tables = {id(term.table): term.table for term in terms}
    edges = np.cumsum([table.size for table in tables.values()])[:-1]
    return [part.reshape(table.shape) for part, table in zip(np.split(total, edges), tables.values(), strict=True)]


_RUN = 16  # rows of a block


@entry(label="rows of small tables")
def _copy(
    flat: Array, start: Array, width: Array, channel: Array, group: Array, rows: Array, columns: Array, number: int,
    count: int, dim: int, first: Array, row_step: int, step: int, large: bool,
) -> None:  # fmt: skip
    table, across, most = pointer(first), columns.shape[1], lanes(pointer(first))
    # a piece that consists of whole cache lines is written directly, and may bypass the caches
    in_lines = row_step % most == 0 and before_boundary(table) == 0
    for term in range(start.size):
        in_lines = in_lines and channel[term] % most == 0 and width[term] % most == 0
    direct, past = step == 1 and (in_lines or not large), large and step == 1 and in_lines
    block = np.empty((_RUN, dim), first.dtype)
    for i in range(0, count, _RUN):
        here, some = at(table, i * row_step), min(_RUN, count - i)
        out, apart = (here, row_step) if direct else (pointer(block), dim)
        for g in range(group.size - 1):
            term, twin = group[g], group[g + 1] - 1
            wide, target = width[term], at(out, channel[term])
            one, other = at(pointer(flat), start[term]), at(pointer(flat), start[twin])
            column, twins = at(pointer(columns), term * across), at(pointer(columns), twin * across)
            k = 0
            while k < some:
                a, begin = (number + i + k) // across, (number + i + k) % across
                row, twin_row = rows[term, a], rows[twin, a]
                for b in range(begin, min(begin + some - k, across)):
                    source = at(one, (row + get(column, b)) * wide)
                    second = at(other, (twin_row + get(twins, b)) * wide)
                    _piece(source, twin > term, second, at(target, k * apart), wide, past)
                    k += 1
        if not direct:
            move_rows(out, some, dim, here, row_step, step, large)
    finish(large)


@inlined
def _piece(source, two, second, target, count, past):  # type: ignore[no-untyped-def]
    """Copy a part of a row, or the sum of two such parts; the last two vectors may overlap. If `past` is true, `target`
    must be whole cache lines, which bypass the caches."""
    most = lanes(source)
    whole = count // most * most
    for c in range(0, whole, most):
        value = load(source, c)
        value = value + load(second, c) if two else value
        if past:
            store_past_caches(target, c, value)
        else:
            store(target, c, value)
    if whole < count:
        c = max(count - most, 0)
        value = load_first(source, c, count)
        store_first(target, c, value + load_first(second, c, count) if two else value, count)


@entry(label="sums of rows of small tables")
def _fill(
    flat: Array, start: Array, width: Array, channel: Array, group: Array, rows: Array, columns: Array, weight: Array,
    across: Array, scale: float, number: int, count: int, dim: int, first: Array, row_step: int, step: int, large: bool,
) -> None:  # fmt: skip
    table, block, most = pointer(first), np.empty((_RUN, dim), first.dtype), lanes(splat(scale))
    place, share = np.empty(start.size, np.int64), np.empty(start.size)
    for i in range(0, count, _RUN):
        some = min(_RUN, count - i)
        for k in range(some):
            a, b = (number + i + k) // columns.shape[1], (number + i + k) % columns.shape[1]
            for term in range(start.size):
                place[term] = start[term] + (rows[term, a] + columns[term, b]) * width[term]
                share[term] = scale * (weight[term, a] * across[term, b]) if weight.size else scale
            for g in range(group.size - 1):
                term, stop = group[g], group[g + 1]
                target, wide = at(pointer(block), k * dim + channel[term]), width[term]
                whole = wide // most * most
                for c in range(0, whole, most):
                    store_rounded(target, c, _sum(flat, place, share, term, stop, c, most), most)
                if whole < wide:
                    left = wide - whole
                    store_rounded(target, whole, _sum(flat, place, share, term, stop, whole, left), left)
        move_rows(pointer(block), some, dim, at(table, i * row_step), row_step, step, large)
    finish(large)


@inlined
def _sum(flat, place, share, term, stop, c, left):  # type: ignore[no-untyped-def]
    """One vector of the weighted sum of some terms."""
    total = splat(share[term]) * load_wide(pointer(flat), place[term] + c, left)
    for other in range(term + 1, stop):
        total = fma(splat(share[other]), load_wide(pointer(flat), place[other] + c, left), total)
    return total


@entry(label="gradient of rows of small tables")
def _pull(
    dout: Array, start: Array, width: Array, channel: Array, rows: Array, columns: Array, weight: Array, across: Array,
    scale: float, number: int, total: Array,
) -> None:  # fmt: skip
    for i in range(dout.shape[0]):
        a, b = (number + i) // columns.shape[1], (number + i) % columns.shape[1]
        for term in range(start.size):
            share = splat(scale * (weight[term, a] * across[term, b] if weight.size else 1.0))
            target = at(pointer(total), start[term] + (rows[term, a] + columns[term, b]) * width[term])
            source = at(pointer(dout[i]), channel[term])
            for c in range(0, width[term], lanes(share)):
                left = width[term] - c
                store_first(target, c, fma(share, load_wide(source, c, left), load_first(target, c, left)), left)
