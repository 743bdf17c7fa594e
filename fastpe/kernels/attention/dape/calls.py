"""Calls of attention with a network over scores (`attention.dape.network`). Tasks are blocks of queries of a sample."""

from typing import Any, NamedTuple

from fastpe.kernels.attention.calls import head_of_call
from fastpe.kernels.attention.dape.backward import backward_block
from fastpe.kernels.attention.dape.forward import forward_block
from fastpe.kernels.attention.dape.network import (
    Net,
    NetGradients,
    OneHead,
    count_blocks,
    end_of_block,
    makes_heads,
    start_of_block,
)
from fastpe.kernels.attention.inputs import NONE, ONE, HeadGradients, SlotGradients, terms_of
from fastpe.kernels.attention.terms.key_query_offsets import column_gradients
from fastpe.kernels.compile.decorators import entry, inner
from fastpe.kernels.simd import at, part, pointer, row
from fastpe.kernels.threads.task_counter import next_task
from fastpe.kernels.threads.team import on_team


class OfCall(NamedTuple):
    """One sample of a call, and its results. gradients: `inputs.Gradients`, or None in the forward pass. A gradient
    that is a sum over queries is computed in parts, one for each task of the sample; `task` is the number of the part.
    """

    x: Any
    dropout: Any
    out: Any
    lse: Any
    gradients: Any
    case: Any
    b: int
    task: int


@makes_heads(OfCall)
@inner
def _head(source, h):
    x, dropout, out, lse, gradients, case, b, task = source
    first = (b * case.heads + h) * case.queries
    head = head_of_call(x, b, h, dropout, None, case, pointer(out), None)
    return OneHead(
        head, terms_of(x.slots, b, h),
        part(pointer(out), first * case.o_row, case.queries * case.o_row), part(pointer(lse), first, case.queries),
        _gradients_of(gradients, b, h, task, case),
    )  # fmt: skip


@inner
def _gradients_of(g, b, h, task, case):
    """Return the gradients of one head. The gradients of keys and those over offsets start at the first key."""
    if g is None:
        return None
    n, m, d, dv, own = case.queries, case.keys, case.width, case.v_width, b * case.heads + h
    first, of_task = own * n, task * case.heads + h
    keys = (task * case.key_heads + h // (case.heads // case.key_heads)) * m
    return HeadGradients(
        part(pointer(g.dout), first * dv, n * dv), part(pointer(g.lse), first, n), part(pointer(g.deltas), first, n),
        part(pointer(g.dq), first * d, n * d), part(pointer(g.dq_rest), first * d, n * d),
        part(pointer(g.dk), keys * d, m * d), part(pointer(g.dk_rest), keys * d, m * d),
        part(pointer(g.dv), keys * dv, m * dv), SlotGradients(pointer(g.slots), pointer(g.places), NONE, of_task),
        SlotGradients(pointer(g.slots), pointer(g.places), NONE, own), NONE, part(pointer(g.dscale), of_task, ONE),
        column_gradients(g.columns, of_task, NONE, m, case),
    )  # fmt: skip


@inner
def _net_of(net):
    return Net(
        pointer(net.into), pointer(net.bias), pointer(net.out), net.units, net.taps, net.biased, net.follow
    )  # fmt: skip


@inner
def _forward(worker, counters, x, net, dropout, out, lse, case, layout, workspaces):
    """Each task is one block of queries; the blocks with the longest rows come first."""
    n, blocks, task = case.queries, count_blocks(case.queries), next_task(counters)
    while task < case.batch * blocks:
        b, i0 = task % case.batch, start_of_block(blocks - 1 - task // case.batch, n)
        source = OfCall(x, dropout, out, lse, None, case, b, task)
        forward_block(source, _net_of(net), i0, end_of_block(i0, n) - i0, case, row(workspaces, worker), layout)
        task = next_task(counters)


@inner
def _backward(worker, counters, x, net, dropout, gradients, dnet, parts, case, layout, workspaces):
    """Each task processes every `parts`-th block of queries of a sample, and has its own sums over queries."""
    n, blocks, task = case.queries, count_blocks(case.queries), next_task(counters)
    while task < case.batch * parts:
        b, weights = task // parts, net.units * case.heads * net.taps
        source = OfCall(x, dropout, gradients.out, gradients.lse, gradients, case, b, task)
        own = NetGradients(
            at(pointer(dnet.into), task * 2 * weights), at(pointer(dnet.bias), task * net.units),
            at(pointer(dnet.out), task * weights), ONE,
        )  # fmt: skip
        for block in range(task % parts, blocks, parts):
            i0, workspace = start_of_block(block, n), row(workspaces, worker)
            backward_block(source, _net_of(net), own, i0, end_of_block(i0, n) - i0, case, workspace, layout)
        task = next_task(counters)


@entry(label="attention through a network over scores")
def forward(team, counters, x, net, dropout, out, lse, case, layout, workspaces):
    """Fill out (B, H, N, Dv) and lse (B, H, N), except for padding queries. x: `Inputs`. net: `Net` with arrays in
    place of pointers.
    """
    on_team(team, _forward, (pointer(counters), x, net, dropout, out, lse, case, layout, workspaces))


@entry(label="gradients of attention through a network over scores")
def backward(team, counters, x, net, dropout, gradients, dnet, parts, case, layout, workspaces):
    """Add to all gradients. The gradients of the network have one row for each task: (B * parts, ...)."""
    rest = dropout, gradients, dnet, parts, case, layout, workspaces
    on_team(team, _backward, (pointer(counters), x, net, *rest))
