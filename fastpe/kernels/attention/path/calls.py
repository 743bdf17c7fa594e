"""Calls of attention with reflections: products of sub-tiles, and the backward pass. The forward pass is in
`attention.calls.forward`."""

from fastpe.kernels.attention.backward import prepare_deltas
from fastpe.kernels.attention.calls import head_of_call, subtract_dlse
from fastpe.kernels.attention.inputs import NONE, ONE, HeadGradients, SlotGradients, terms_of
from fastpe.kernels.attention.path.backward import PathGradients, head_backward
from fastpe.kernels.attention.path.content import OF_PAIR, path_of_head, subtile_products
from fastpe.kernels.attention.terms.key_query_offsets import column_gradients
from fastpe.kernels.attention.tile import SUBTILE, TILE_QUERIES
from fastpe.kernels.attention.workspace import scratch_of
from fastpe.kernels.compile.decorators import entry, inner
from fastpe.kernels.simd import at, part, pointer, row
from fastpe.kernels.threads.task_counter import next_task
from fastpe.kernels.threads.team import on_team


@inner
def _products_worker(worker, counters, x, case, workspaces):
    """Each task is one sub-tile."""
    path, d, columns = x.path, case.width, row(workspaces, worker)
    subtiles, repeats = (case.keys + SUBTILE - 1) // SUBTILE, case.heads // path.pairs
    task = next_task(counters)
    while task < case.batch * path.pairs * subtiles:
        pair, first = task // subtiles, task % subtiles * SUBTILE
        b, h = pair // path.pairs, pair % path.pairs * repeats
        kh = h // (case.heads // case.key_heads)
        k = at(pointer(x.kr), b * case.k_batch + kh * case.k_head + first * case.kr_row)
        own, count = path_of_head(path, b, h, case), min(SUBTILE, case.keys - first)
        products = at(own.products, first // SUBTILE * 2 * OF_PAIR)
        subtile_products(at(own.w, first * d), k, case.kr_row, d, count, columns, products)
        task = next_task(counters)


@entry(label="products of reflectors")
def make_products(team, counters, x, case, workspaces):
    """Fill `Path.products`. workspaces: `D * SUBTILE` elements per worker."""
    on_team(team, _products_worker, (pointer(counters), x, case, workspaces))


@inner
def _head_gradients(g, head, case):
    """The addresses of the gradients of one head. Query heads that read the same keys have separate gradients of the
    keys.
    """
    n, m, d, dv = case.queries, case.keys, case.width, case.v_width
    slots = SlotGradients(pointer(g.slots), pointer(g.places), NONE, head)
    return HeadGradients(
        part(pointer(g.dout), head * n * dv, n * dv), part(pointer(g.lse), head * n, n),
        part(pointer(g.deltas), head * n, n), part(pointer(g.dq), head * n * d, n * d),
        part(pointer(g.dq_rest), head * n * d, n * d), part(pointer(g.dk), head * m * d, m * d),
        part(pointer(g.dk_rest), head * m * d, m * d), part(pointer(g.dv), head * m * dv, m * dv), slots, slots, NONE,
        part(pointer(g.dscale), head * case.key_blocks, ONE), column_gradients(g.columns, head, NONE, m, case),
    )  # fmt: skip


@inner
def _backward_worker(worker, counters, x, dropout, g, of_path, case, layout, workspaces):
    """Each task is one head."""
    workspace = row(workspaces, worker)
    scratch = scratch_of(workspace, layout, at(workspace, layout.cells))
    task = next_task(counters)
    while task < case.batch * case.heads:
        b, h, rows = task // case.heads, task % case.heads, task * case.queries
        head, terms = head_of_call(x, b, h, dropout, None, case, workspace, None), terms_of(x.slots, b, h)
        grads = _head_gradients(g, task, case)
        for block in range((case.queries + TILE_QUERIES - 1) // TILE_QUERIES):
            out = at(pointer(g.out), rows * case.v_width)
            prepare_deltas(grads.dout, out, grads.deltas, block, case.queries, case)
            subtract_dlse(grads.deltas, at(pointer(g.dlse), rows), block, case)
        keys, d = task * case.keys, case.width
        own = PathGradients(
            part(pointer(of_path.dw), keys * d, case.keys * d), part(pointer(of_path.dbeta), keys, case.keys)
        )
        head_backward(head, terms, grads, own, case, scratch)
        task = next_task(counters)


@entry(label="the gradients of attention through reflections")
def backward(team, counters, x, dropout, g, of_path, case, layout, workspaces):
    """Do the same as `attention.calls.backward`, but with gradients of keys and values (B, H, M, ...) in g. of_path:
    `PathGradients`.
    """
    on_team(team, _backward_worker, (pointer(counters), x, dropout, g, of_path, case, layout, workspaces))
