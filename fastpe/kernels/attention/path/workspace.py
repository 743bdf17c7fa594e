"""How much memory a block needs on its way through reflections, and where things lie in it."""

from collections.abc import Sequence
from typing import Any

from fastpe.kernels.attention.path.backward import Layout
from fastpe.kernels.attention.path.blocks import BLOCK, TILE
from fastpe.kernels.rows.dropout import CELL
from fastpe.kernels.simd import region

_TILE = int(TILE)


def laid_out(sizes: Sequence[int]) -> tuple[list[Any], int]:
    """Where parts of memory begin that hold so many numbers, each on a cache line, and the size of all.

    >>> laid_out([3, 17, 1])[1]
    64
    """
    starts, total = [], 0
    for size in sizes:
        starts.append(region(total, size))
        total += -(-size // 16) * 16
    return starts, total


def _factors(lane: int, *, dropped: bool) -> int:
    """Of the memory of a `path.dropout.Dropped`."""
    return dropped * int(CELL) * (int(BLOCK) + 1) * lane


def forward_sizes(width: int, v_width: int, lane: int, *, dropped: bool) -> list[int]:
    """Of the parts of a `path.forward.Desk`, of vectors of so many numbers, and of factors where weights are
    dropped."""
    size = int(BLOCK) * lane
    desk = [width * size, _TILE * size, _TILE * size, _TILE * size, size, size, v_width * size, 2 * size]
    return [*desk, _factors(lane, dropped=dropped)]


def backward_room(keys: int, width: int, v_width: int, lane: int, *, dropped: bool) -> Layout:
    """Of `path.backward.block_back`, with so many keys."""
    size = int(BLOCK) * lane
    tiles, cells, pairs = -(-keys // _TILE), _TILE * size, _TILE * _TILE
    starts, total = laid_out([
        tiles * width * size, tiles * cells, tiles * cells, cells, cells, cells, width * size, v_width * size,
        width * size, width * size, cells, pairs, pairs, 2 * size, 2 * size, _factors(lane, dropped=dropped),
    ])  # fmt: skip
    return Layout._make([*starts, total])
