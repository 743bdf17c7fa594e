"""Whole calls of attention: many heads, many workers."""

import numpy as np

from fastpe.kernels.attention.backward import Ticket, key_block_backward, prepare_deltas, prepare_key_block
from fastpe.kernels.attention.bf16_panels import blocks_of_panels, pack_key_block, panels_of_head
from fastpe.kernels.attention.forward import forward_rows
from fastpe.kernels.attention.inputs import (
    COUNT,
    NONE,
    ONE,
    Guard,
    Head,
    HeadGradients,
    SlotGradients,
    Visibility,
    gradient_of,
    place,
    terms_of,
)
from fastpe.kernels.attention.path.content import path_of_head
from fastpe.kernels.attention.slots import BIAS, GAIN, GIVEN, MASK, ROW_COUNT
from fastpe.kernels.attention.terms.contextual_positions import running_counts_of
from fastpe.kernels.attention.terms.key_query_offsets import column_gradients, columns_of
from fastpe.kernels.attention.tile import TILE_KEYS, TILE_QUERIES, add_scaled, clear
from fastpe.kernels.attention.workspace import scratch_of
from fastpe.kernels.compile.decorators import entry, inlined, inner
from fastpe.kernels.products.bfloat16.isa import rounding
from fastpe.kernels.simd import at, part, plain, pointer, row, scalar
from fastpe.kernels.threads.task_counter import (
    finish,
    next_task,
    next_task_from_ends,
    pass_ticket,
    wait_for,
    wait_for_ticket,
)
from fastpe.kernels.threads.team import on_team

_OF_A_CLAIM = 2**15  # number of multiplications that take as long as one change of the task counter


@inlined
def _own(array, memory, isa):
    """Return the pointer to an array in the form that products take. With an `isa`, it is a `RoundingPointer` that
    carries the worker's memory.
    """
    return rounding(pointer(array), memory, isa)


@inner
def _visibility_of(x, b, h, case):
    """Return the arrays that say which keys the queries of one head see."""
    by_sample, by_head = x.occupied.shape[:2]
    blocks = (case.queries + TILE_QUERIES - 1) // TILE_QUERIES * case.key_blocks
    own = (b % by_sample * by_head + h % by_head) * blocks
    spans = b % x.spans.shape[0] * case.queries * 2
    size = max(x.table[MASK, ROW_COUNT] * case.queries, case.keys)
    return Visibility(
        x.starts[b], part(pointer(x.spans), spans, 2 * case.queries * case.spanned),
        part(pointer(x.mask), place(x.table, MASK, b, h), size * x.table[MASK, GIVEN]),
        part(pointer(x.occupied), own, blocks * x.table[MASK, GIVEN]),
    )  # fmt: skip


@inner
def head_of_call(x, b, h, dropout, words, case, memory, isa):
    """Return the arrays of one head that attention reads."""
    kh = h // (case.heads // case.key_heads)
    q, k = b * case.q_batch + h * case.q_head, b * case.k_batch + kh * case.k_head
    guard = Guard(
        part(pointer(x.q_norms), (b * case.heads + h) * case.queries, case.queries), pointer(x.key_norms[b, kh]),
        pointer(x.bias_tails[b % x.bias_tails.shape[0], h]), x.limits[0], x.limits[1],
    )  # fmt: skip
    return Head(
        at(_own(x.q, memory, isa), q), at(_own(x.qr, memory, isa), q), at(_own(x.k, memory, isa), k),
        at(_own(x.kr, memory, isa), k), at(_own(x.v, memory, isa), b * case.v_batch + kh * case.v_head),
        part(pointer(x.bias), place(x.table, BIAS, b, h), case.queries + case.keys - 1), pointer(x.table),
        x.scale[h], x.lengths[b, 0], x.lengths[b, 1], _visibility_of(x, b, h, case), guard, dropout, b * case.heads + h,
        columns_of(x.columns, x.table, b, h, case), running_counts_of(x.running_counts, x.table, b, h, case),
        panels_of_head(words, b, kh, memory, isa, case), path_of_head(x.path, b, h, case),
    )  # fmt: skip


@inner
def _next_tasks(counters, worker, run, tasks):
    """Return the range of tasks that the worker takes next: the first task, and the one after the last. run: the result
    of `_run_of`.
    """
    if run == 0:
        task = next_task(counters)
        return task, task + 1
    first = run * next_task_from_ends(counters, worker, (tasks + run - 1) // run)
    return min(first, tasks), min(first + run, tasks)


@inner
def _run_of(blocks, packed, tasks, lanes, case):
    """Return the number of tasks that a worker takes at once. It is 0, which means one task at a time, if a head has
    several blocks or if there are key blocks to pack, because tasks then do not take equally long.

    Otherwise, workers take several tasks at once, because the shared counter is slow: loading it after another core has
    changed it takes as long as computing a query with a dozen keys.
    """
    if blocks > 1 or packed > 0:
        return np.int64(0)
    many = _OF_A_CLAIM // max(case.queries * case.keys * (case.width + case.v_width), 1)
    return max(np.int64(1), min(many, (tasks + lanes - 1) // lanes))


@inner
def _forward_worker(worker, counters, x, dropout, out, lse, case, layout, workspaces, isa, words):
    """Each task is one block of queries of one head; the blocks with the longest rows come first. Before these tasks,
    there is one task for each key block to be packed."""
    blocks = (case.queries + TILE_QUERIES - 1) // TILE_QUERIES
    heads, packed = case.batch * case.heads, blocks_of_panels(words)
    memory = at(row(workspaces, worker), layout.size)
    workspace = rounding(row(workspaces, worker), memory, isa)
    scratch = scratch_of(workspace, layout, at(workspace, layout.cells))
    tasks = packed + heads * blocks
    run = _run_of(blocks, packed, tasks, workspaces.shape[0], case)
    task, after = _next_tasks(counters, worker, run, tasks)
    if words is not None:
        while task < packed:
            pack_key_block(task, words, x, memory, isa, case)
            finish(counters)
            task, after = _next_tasks(counters, worker, run, tasks)
        wait_for(counters, packed)
    while task < tasks:
        block, head = (task - packed) // heads, (task - packed) % heads
        b, h = head // case.heads, head % case.heads
        rows = (b * case.heads + h) * case.queries
        i0, terms = (blocks - 1 - block) * TILE_QUERIES, terms_of(x.slots, b, h)
        forward_rows(
            head_of_call(x, b, h, dropout, words, case, memory, isa), terms, i0,
            part(_own(out, memory, isa), rows * case.o_row, case.queries * case.o_row),
            part(_own(lse, memory, isa), rows, case.queries), case, scratch,
        )  # fmt: skip
        task += 1
        if task == after:
            task, after = _next_tasks(counters, worker, run, tasks)


@entry(label="attention")
def forward(team, counters, x, dropout, out, lse, case, layout, workspaces):
    """Fill out (B, H, N, Dv) and lse (B, H, N); x: `Inputs`."""
    on_team(team, _forward_worker, (pointer(counters), x, dropout, out, lse, case, layout, workspaces, None, None))


@entry(label="attention with bfloat16 products")
def rounded_forward(team, counters, isa, words, x, dropout, out, lse, case, layout, workspaces):
    """Do the same as `forward`, with operands rounded to bfloat16. words: the packed operands (`Panels`). The
    workspaces are `MEMORY` elements longer (see `products.bfloat16.product`).
    """
    on_team(team, _forward_worker, (pointer(counters), x, dropout, out, lse, case, layout, workspaces, isa, words))


@inner
def _add(target, source, n):
    add_scaled(target, scalar(source, 1.0), source, n)


@inner
def _flush(g, own, head, number, case):
    """Add the key block's sums to the gradients of the head's slots."""
    whole = SlotGradients(pointer(g.slots), pointer(g.places), NONE, head)
    for slot in range(g.sum_places.shape[0]):
        size = g.sum_places[slot, COUNT]
        if size > 0:
            shift = number * TILE_KEYS if slot in (BIAS, GAIN) else NONE
            _add(
                at(gradient_of(whole, slot), shift),
                gradient_of(own.sums, slot),
                min(size, g.places[slot, COUNT] - shift),
            )


@inner
def _gradients(g, b, h, number, case, workspace, layout, memory, isa):
    """Return the addresses of the gradients of one head. The sums of a key block for slots are in the
    worker's memory.
    """
    d, dv, n, head, j0 = case.width, case.v_width, case.queries, b * case.heads + h, number * TILE_KEYS
    first, queries = head * n, head * n * d
    kh = h // (case.heads // case.key_heads)
    row, rows = (b * case.key_heads + kh) * case.keys + j0, min(TILE_KEYS, case.keys - j0)
    keys, met = row * d, rows * d
    return HeadGradients(
        part(_own(g.dout, memory, isa), first * dv, n * dv), part(_own(g.lse, memory, isa), first, n),
        part(_own(g.deltas, memory, isa), first, n), part(_own(g.dq, memory, isa), queries, n * d),
        part(_own(g.dq_rest, memory, isa), queries, n * d), part(_own(g.dk, memory, isa), keys, met),
        part(_own(g.dk_rest, memory, isa), keys, met), part(_own(g.dv, memory, isa), row * dv, rows * dv),
        SlotGradients(at(workspace, layout.sums), pointer(g.sum_places), NONE, NONE),
        SlotGradients(_own(g.slots, memory, isa), pointer(g.places), NONE, head), NONE,
        part(_own(g.dscale, memory, None), head * case.key_blocks + number, ONE),
        column_gradients(g.columns, head, j0, min(TILE_KEYS, case.keys - j0), case),
    )  # fmt: skip


@inner
def _key_block(b, kh, number, x, dropout, g, tickets, case, layout, workspace, memory, isa):
    """Compute the gradients that come from one block of keys and all blocks of queries that see it."""
    group, heads = case.heads // case.key_heads, case.batch * case.heads
    blocks = (case.queries + TILE_QUERIES - 1) // TILE_QUERIES
    scratch = scratch_of(workspace, layout, at(workspace, layout.cells))
    for h in range(kh * group, (kh + 1) * group):
        head = b * case.heads + h
        own, terms = head_of_call(x, b, h, dropout, None, case, memory, isa), terms_of(x.slots, b, h)
        grads = _gradients(g, b, h, number, case, workspace, layout, memory, isa)
        if h == kh * group:
            prepare_key_block(own, terms, grads, number, case, scratch)
        clear(at(workspace, plain(layout.sums)), layout.size - plain(layout.sums))
        key_block_backward(own, terms, grads, number, Ticket(tickets, head * blocks, number), case, scratch)
        spot = heads * blocks + head
        wait_for_ticket(tickets, spot, number)
        _flush(g, grads, head, number, case)
        pass_ticket(tickets, spot)


@inner
def subtract_dlse(deltas, dlse, block, case):
    """Subtract dlse from deltas. The derivative of lse_i by S_ij is P_ij, so dS = P (dP - (delta - dlse))."""
    i0 = block * TILE_QUERIES
    add_scaled(at(deltas, i0), scalar(deltas, -1.0), at(dlse, i0), min(TILE_QUERIES, case.queries - i0))


@inner
def _backward_worker(worker, counters, x, dropout, g, tickets, case, layout, workspaces, isa):
    """Run the tasks of two phases: compute the deltas of a block of queries; process a block of keys."""
    blocks, heads = (case.queries + TILE_QUERIES - 1) // TILE_QUERIES, case.batch * case.heads
    memory = at(row(workspaces, worker), layout.size)
    workspace = rounding(row(workspaces, worker), memory, isa)
    prepared = heads * blocks
    tasks = prepared + case.batch * case.key_heads * case.key_blocks
    task = next_task(counters)
    while task < tasks:
        if task < prepared:
            rows = task // blocks * case.queries
            prepare_deltas(
                at(pointer(g.dout), rows * case.v_width), at(pointer(g.out), rows * case.v_width),
                at(pointer(g.deltas), rows), task % blocks, case.queries, case,
            )  # fmt: skip
            subtract_dlse(at(pointer(g.deltas), rows), at(pointer(g.dlse), rows), task % blocks, case)
        else:
            wait_for(counters, prepared)
            key_block = task - prepared
            b, kh = key_block // case.key_blocks // case.key_heads, key_block // case.key_blocks % case.key_heads
            _key_block(
                b,
                kh,
                key_block % case.key_blocks,
                x,
                dropout,
                g,
                pointer(tickets),
                case,
                layout,
                workspace,
                memory,
                isa,
            )
        finish(counters)
        task = next_task(counters)
    wait_for(counters, tasks)


@entry(label="the gradients of attention")
def backward(team, counters, x, dropout, g, tickets, case, layout, workspaces):
    """Write the gradients of rows to g, and add to the gradients of slots, which are zero initially."""
    on_team(team, _backward_worker, (pointer(counters), x, dropout, g, tickets, case, layout, workspaces, None))


@entry(label="the gradients of attention with bfloat16 products")
def rounded_backward(team, counters, isa, x, dropout, g, tickets, case, layout, workspaces):
    """Do the same as `backward`, with operands rounded to bfloat16. The workspaces are as for `rounded_forward`."""
    on_team(team, _backward_worker, (pointer(counters), x, dropout, g, tickets, case, layout, workspaces, isa))
