"""Calls of attention whose scores go through a small network (`attention.dape`): samples and blocks of queries as
tasks."""

from typing import Any, NamedTuple

from fastpe.kernels.attention.dape.backward import MlpGradients, mlp_backward
from fastpe.kernels.attention.dape.dropout import drops_of
from fastpe.kernels.attention.dape.forward import mlp_forward
from fastpe.kernels.attention.dape.layout import ONE, ROWS, Net, Side
from fastpe.kernels.attention.dape.masks import masked_of
from fastpe.kernels.attention.dape.terms import Terms
from fastpe.kernels.attention.extra_terms import extra_terms_of, makes_extra_terms
from fastpe.kernels.compile.decorators import entry, inner
from fastpe.kernels.simd import at, pointer, row
from fastpe.kernels.threads.task_counter import next_task
from fastpe.kernels.threads.team import on_team


class MlpCase(NamedTuple):
    """Sizes, flags, and strides in elements; 0 where an axis repeats."""

    batch: int
    heads: int
    group: int
    queries: int
    keys: int
    width: int
    v_width: int
    hidden: int
    taps: int
    causal: int
    q_batch: int
    q_head: int
    q_row: int
    k_batch: int
    k_head: int
    k_row: int
    v_batch: int
    v_head: int
    v_row: int
    biased: int
    bias_batch: int
    bias_head: int
    zero: int
    has_cells: int
    cells_batch: int
    cells_head: int
    cells_row: int
    has_values: int
    values_batch: int
    values_head: int
    index_batch: int
    window: int
    spanned: int
    spans_batch: int
    parts: int  # that the sums over queries are made in


class MlpInputs(NamedTuple):
    """Arrays of one axis."""

    q: Any
    k: Any
    v: Any
    bias: Any
    cells: Any
    values: Any
    index: Any  # int32
    scale: Any  # not read where there are others
    into: Any
    offsets: Any
    readout: Any
    lengths: Any  # (B, 2), int64: queries and keys that are no padding
    firsts: Any  # (B or 1,), int64: the positions of first queries
    spans: Any  # int64


class MlpOutputs(NamedTuple):
    """Those of the forward pass and, in several parts what is summed over queries, the gradients."""

    out: Any  # (B, H, N, Dv)
    lse: Any
    dout: Any
    dlse: Any
    dq: Any
    dk: Any  # (B, parts, Hk, M, D)
    dv: Any
    dscale: Any  # (B, parts, H)
    dbias: Any  # (B, parts, H, offsets)
    dcells: Any  # (B, H, N, M)
    dvalues: Any  # (B, parts, H, V)
    dinto: Any  # (B, parts, T, W, 2 H)
    doffsets: Any  # (B, parts, W)
    dreadout: Any  # (B, parts, T, W, H)


@inner
def _side(x, b, case):
    """One sample."""
    return Side(
        at(pointer(x.q), b * case.q_batch), case.q_head, case.q_row, at(pointer(x.k), b * case.k_batch), case.k_head,
        case.k_row, at(pointer(x.v), b * case.v_batch), case.v_head, case.v_row,
        at(pointer(x.bias), b * case.bias_batch), case.bias_head, case.zero, case.biased,
        at(pointer(x.cells), b * case.cells_batch), case.cells_head, case.cells_row, case.has_cells,
        at(pointer(x.values), b * case.values_batch), case.values_head, at(pointer(x.index), b * case.index_batch),
        case.has_values, pointer(x.scale), case.heads, case.group, case.width, case.v_width, x.lengths[b, 1],
        x.firsts[min(b, len(x.firsts) - 1)], case.causal, case.window, at(pointer(x.spans), b * case.spans_batch),
        case.spanned,
    )  # fmt: skip


@inner
def _net(x, case):
    return Net(pointer(x.into), pointer(x.offsets), pointer(x.readout), case.hidden, case.taps)


@inner
def _gradients(y, b, part, offsets, case):
    """Where those of one sample go, of sums the part's."""
    h, n, keys, d, e, w = case.heads, case.queries, case.keys, case.width, case.v_width, case.hidden
    of_keys, own = h // case.group * keys, b * case.parts + part
    units = case.taps * w * h
    return MlpGradients(
        at(pointer(y.dout), b * h * n * e), at(pointer(y.out), b * h * n * e), n * e, e, at(pointer(y.lse), b * h * n),
        at(pointer(y.dlse), b * h * n), n, at(pointer(y.dq), b * h * n * d), n * d, d,
        at(pointer(y.dk), own * of_keys * d), keys * d, d, at(pointer(y.dv), own * of_keys * e), keys * e, e,
        at(pointer(y.dscale), own * h), at(pointer(y.dbias), own * h * offsets),
        at(pointer(y.dcells), b * h * n * keys * case.has_cells),
        at(pointer(y.dvalues), own * h * case.values_head), at(pointer(y.dinto), own * 2 * units),
        at(pointer(y.doffsets), own * w), at(pointer(y.dreadout), own * units), ONE, case.biased, case.has_cells,
        case.has_values, ONE,
    )  # fmt: skip


class OfSample(NamedTuple):
    """`extra_terms.Others`, the lane, the sample, and the place of its first head, where gradients are sums over
    queries."""

    others: Any
    lane: int
    b: int
    place: int


@makes_extra_terms(OfSample)
@inner
def _beside(given, h):
    return extra_terms_of(given.others, given.lane, given.b, h, given.place + h)


@inner
def _terms(others, bases, worker, b, place):
    """None, for which nothing is compiled, where nothing is beside the network."""
    if others is None:
        return None
    case = others.case
    first = at(pointer(bases), b * case.heads * case.queries * (bases.size > 1))
    return Terms(OfSample(others, worker, b, place), masked_of(others.x, b, case), first, case.queries)


@inner
def _drops(dropout, b, case):
    return drops_of(dropout, b * case.heads, case.keys)


@inner
def _forward(worker, counters, x, dropout, others, bases, y, case, layout, workspaces):
    blocks, task = (case.queries + ROWS - 1) // ROWS, next_task(counters)
    h, n, e = case.heads, case.queries, case.v_width
    while task < case.batch * blocks:
        b, query = task // blocks, task % blocks * ROWS
        queries = min(ROWS, x.lengths[b, 0] - query)
        if queries > 0:
            out, lse = at(pointer(y.out), b * h * n * e), at(pointer(y.lse), b * h * n)
            mlp_forward(
                _side(x, b, case), _net(x, case), _terms(others, bases, worker, b, b * h), _drops(dropout, b, case),
                query, queries, out, n * e, e, lse, n, row(workspaces, worker), layout,
            )  # fmt: skip
        task = next_task(counters)


@inner
def _backward(worker, counters, x, dropout, others, bases, y, case, offsets, layout, workspaces):
    blocks, task = (case.queries + ROWS - 1) // ROWS, next_task(counters)
    while task < case.batch * case.parts:
        b, part = task // case.parts, task % case.parts
        side, drops, gradients = _side(x, b, case), _drops(dropout, b, case), _gradients(y, b, part, offsets, case)
        terms = _terms(others, bases, worker, b, task * case.heads)
        for block in range(part, blocks, case.parts):
            rows = min(ROWS, x.lengths[b, 0] - block * ROWS)
            if rows > 0:
                net, workspace = _net(x, case), row(workspaces, worker)
                mlp_backward(side, net, terms, drops, gradients, block * ROWS, rows, workspace, layout)
        task = next_task(counters)


@entry(label="attention through a network over scores")
def mlp_forward_calls(team, counters, x, dropout, others, bases, y, case, layout, workspaces):
    """`out` and `lse` of `y`, which hold zeros and minus infinity for queries that are padding.

    others: `extra_terms.Others`, or None. bases (B, H, N), float64: where keys have offsets, what lse is less of.
    """
    on_team(team, _forward, (pointer(counters), x, dropout, others, bases, y, case, layout, workspaces))


@entry(label="gradients of attention through a network over scores")
def mlp_backward_calls(team, counters, x, dropout, others, bases, y, case, offsets, layout, workspaces):
    """All gradients of `y`, which hold zeros. offsets: the axis of `dbias`."""
    on_team(team, _backward, (pointer(counters), x, dropout, others, bases, y, case, offsets, layout, workspaces))
