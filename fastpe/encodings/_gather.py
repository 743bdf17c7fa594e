"""Rows of small tables looked up, weighted, and set side by side or added: what learned tables and grids are made of.

Every token's row is a sum of terms. A `Term` adds, from its channel on, one row of its table. Sums are made in float64
and rounded once.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from fastpe.encodings._rows import row_blocks
from fastpe.kernels._jit import entry
from fastpe.kernels.simd import at, fma, lanes, load_first, load_wide, pointer, splat, store_first, store_rounded
from fastpe.kernels.table import LARGE, finish, move_rows

Array = np.ndarray[Any, Any]
_NONE = np.ones((1, 0))


class Term(NamedTuple):
    """One table's part in every row: `rows` (N,) says which row of `table`, `weight` (N,) how much of it."""

    table: Array
    rows: Array
    channel: int = 0
    weight: Array | None = None


class _Plan(NamedTuple):
    """The terms as arrays: where each table starts among all parameters, its width, its first channel in a row."""

    flat: Array
    start: Array
    width: Array
    channel: Array
    adds: Array  # whether a term's channels are another's too


def _plan(terms: Sequence[Term]) -> _Plan:
    tables = {id(term.table): term.table for term in terms}
    starts = dict(zip(tables, np.cumsum([0, *(table.size for table in tables.values())]), strict=False))
    pieces = [table.reshape(-1) for table in tables.values()]
    ends: list[tuple[int, int]] = []
    adds = []
    for term in terms:
        first, last = term.channel, term.channel + term.table.shape[1]
        adds.append(any(first < other_last and other_first < last for other_first, other_last in ends))
        ends.append((first, last))
    return _Plan(
        pieces[0] if len(pieces) == 1 else np.concatenate(pieces),
        np.array([starts[id(term.table)] for term in terms]),
        np.array([term.table.shape[1] for term in terms]),
        np.array([term.channel for term in terms]),
        np.array(adds),
    )


def _weights(terms: Sequence[Term], rows: slice) -> Array:
    if all(term.weight is None for term in terms):
        return _NONE
    count = len(terms[0].rows[rows])
    return np.stack([np.ones(count) if term.weight is None else term.weight[rows] for term in terms])


def _rows(terms: Sequence[Term], rows: slice) -> Array:
    return np.stack([term.rows[rows] for term in terms]).astype(np.int64, copy=False)


def fill_terms(out: Array, terms: Sequence[Term], scale: float = 1.0) -> None:
    """Fill `out` (..., N, C), of any strides, with the terms' sum times `scale`.

    Terms that share channels must have the same ones, and all channels must be some term's.
    """
    plan = _plan(terms)
    for rows, first, row_step, step in row_blocks(out):
        _fill(
            plan.flat, plan.start, plan.width, plan.channel, plan.adds, _rows(terms, rows), _weights(terms, rows),
            scale, out.shape[-1], first, row_step, step, out.nbytes >= LARGE,
        )  # fmt: skip


def pull_terms(dout: Array, terms: Sequence[Term], scale: float = 1.0) -> list[Array]:
    """The gradients, float64, of the terms' tables, each once and in the order in which they first occur.

    `dout` is the gradient of what `fill_terms` fills.
    """
    plan, everything = _plan(terms), slice(None)
    total = np.zeros(plan.flat.size)
    dim = dout.shape[-1]
    _pull(
        np.ascontiguousarray(dout).reshape(-1, dim), plan.start, plan.width, plan.channel, _rows(terms, everything),
        _weights(terms, everything), scale, total,
    )  # fmt: skip
    tables = {id(term.table): term.table for term in terms}
    edges = np.cumsum([table.size for table in tables.values()])[:-1]
    return [part.reshape(table.shape) for part, table in zip(np.split(total, edges), tables.values(), strict=True)]


_RUN = 16  # rows of a block


@entry(label="rows of small tables")
def _fill(
    flat: Array, start: Array, width: Array, channel: Array, adds: Array, index: Array, weight: Array, scale: float,
    dim: int, first: Array, row_step: int, step: int, large: bool,
) -> None:  # fmt: skip
    block, row = np.empty((_RUN, dim), first.dtype), np.zeros(dim)
    table, parameters, wide, factor = pointer(first), pointer(flat), lanes(splat(0.0)), splat(scale)
    alone = not adds.any()
    for i in range(0, index.shape[1], _RUN):
        count = min(_RUN, index.shape[1] - i)
        for k in range(count):
            out = at(pointer(block), k * dim)
            for term in range(start.size):
                source = at(parameters, start[term] + index[term, i + k] * width[term])
                share = splat(weight[term, i + k] if weight.size else 1.0)
                target, ours = at(pointer(row), channel[term]), at(out, channel[term])
                for c in range(0, width[term], wide):
                    left = width[term] - c
                    value = share * load_wide(source, c, left)
                    if alone:
                        store_rounded(ours, c, factor * value, left)
                    elif adds[term]:
                        store_first(target, c, load_first(target, c, left) + value, left)
                    else:
                        store_first(target, c, value, left)
            if not alone:
                for c in range(0, dim, wide):
                    store_rounded(out, c, factor * load_first(pointer(row), c, dim - c), dim - c)
        move_rows(pointer(block), count, dim, at(table, i * row_step), row_step, step, large)
    finish(large)


@entry(label="gradient of rows of small tables")
def _pull(
    dout: Array, start: Array, width: Array, channel: Array, index: Array, weight: Array, scale: float, total: Array
) -> None:
    wide = lanes(splat(0.0))
    for i in range(dout.shape[0]):
        row = pointer(dout[i])
        for term in range(start.size):
            share = splat(scale * (weight[term, i] if weight.size else 1.0))
            target, source = at(pointer(total), start[term] + index[term, i] * width[term]), at(row, channel[term])
            for c in range(0, width[term], wide):
                left = width[term] - c
                gradient = load_wide(source, c, left)
                store_first(target, c, fma(share, gradient, load_first(target, c, left)), left)
