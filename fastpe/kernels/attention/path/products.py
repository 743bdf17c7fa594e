"""Products of the rows of every tile of keys with its reflectors: `path.forward` takes them for all blocks."""

from fastpe.kernels.attention.path.blocks import TILE
from fastpe.kernels.attention.path.forward import ONE, head_of
from fastpe.kernels.compile.decorators import entry, inner
from fastpe.kernels.products.gemm import OVERWRITE, float_gemm, transpose
from fastpe.kernels.simd import at, pointer, row
from fastpe.kernels.threads.task_counter import next_task
from fastpe.kernels.threads.team import on_team


@inner
def tile_products(w, k, width, count, turned, own):
    """W W^T and K W^T of a tile's rows, into `own`. turned: room for D TILE numbers."""
    transpose(w, width, turned, TILE, count, width)
    for a, c in ((w, own), (k, at(own, TILE * TILE))):
        float_gemm(a, width, ONE, turned, TILE, c, TILE, count, count, width, OVERWRITE, c, TILE, c, TILE)


@inner
def _products_lane(worker, counters, tokens, sizes, products, workspaces):
    turned, width = row(workspaces, worker), sizes.width
    tiles, repeats = (sizes.keys + TILE - 1) // TILE, sizes.heads // sizes.pairs
    task = next_task(counters)
    while task < sizes.batch * sizes.pairs * tiles:
        pair, first = task // tiles, task % tiles * TILE
        head = head_of(tokens, sizes, pair // sizes.pairs, pair % sizes.pairs * repeats)
        w, k = at(head.w, first * width), at(head.k, first * width)
        count, own = min(TILE, sizes.keys - first), at(pointer(products), task * 2 * TILE * TILE)
        tile_products(w, k, width, count, turned, own)
        task = next_task(counters)


@entry(label="products of reflectors")
def lay_products(team, counters, tokens, sizes, products, workspaces):
    """products (B, pairs, tiles, 2, TILE, TILE): of every tile W W^T and K W^T. workspaces: D TILE numbers for a
    lane."""
    on_team(team, _products_lane, (pointer(counters), tokens, sizes, products, workspaces))
