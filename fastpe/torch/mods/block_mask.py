"""PyTorch's BlockMask: the tiles in which a query sees all keys, and those in which mask_mod is asked."""

from collections.abc import Callable
from typing import Any

import torch
from torch.nn.attention.flex_attention import BlockMask

from fastpe.base.validation import shown, whole
from fastpe.torch.mods import grids
from fastpe.torch.mods.grids import Outside, Sizes
from fastpe.torch.mods.tracing import Traced, called, trace

NO_TILES = 1 << 30
"""The size of tiles of the BlockMask that PyTorch uses in place of none."""


class Tiles:
    """What a BlockMask shows. A key in a tile that is not listed is hidden, whatever mask_mod says."""

    def __init__(self, mask: BlockMask, traced: Traced, sizes: Sizes) -> None:
        self.traced, self.sizes, self.size = traced, sizes, mask.BLOCK_SIZE
        self.some = _listed(mask.kv_num_blocks, mask.kv_indices)
        full = mask.full_kv_num_blocks
        self.all = torch.zeros_like(self.some) if full is None else _listed(full, mask.full_kv_indices)
        reads = traced.result.reads
        lead = [max(x.shape[at] for x in (self.some, self.all)) for at in (0, 1)]
        self.lead = tuple(size if name in reads else own for name, own, size in zip("bh", lead, sizes, strict=False))

    def cells(self, rows: slice, outside: Outside) -> torch.Tensor:
        """Return which keys some queries see, (B or 1, H or 1, rows, M)."""
        height, width = self.size
        first, last = rows.start // height, -(-rows.stop // height)
        some, whole = (x[:, :, first:last].expand(*self.lead, -1, -1) for x in (self.some, self.all))
        seen = whole[..., None, None].expand(-1, -1, -1, -1, height, width).clone()
        past = torch.zeros_like(seen)
        b, h, y, x = some.nonzero(as_tuple=True)
        tiles = torch.arange(len(b)).split(max(1, grids.MOST_CELLS // (height * width)))
        for part in tiles if len(b) else ():  # torch.vmap cannot index a table over no tiles
            q = ((y[part] + first) * height)[:, None] + torch.arange(height)
            k = (x[part] * width)[:, None] + torch.arange(width)
            place = b[part], h[part], y[part], x[part]
            seen[place], missing = self._asked(b[part], h[part], q, k)
            if missing is not None:
                past[place] = missing
        own = slice(rows.start - first * height, rows.stop - first * height)
        seen, past = (x.transpose(3, 4).flatten(4, 5).flatten(2, 3)[:, :, own, : self.sizes.m] for x in (seen, past))
        outside.append((self.traced.name, past))
        return seen

    def _asked(self, b: Any, h: Any, q: Any, k: Any) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Ask mask_mod in tiles: the samples and heads of the tiles, and the queries and keys of each."""
        over = {"b": b, "h": h, "q": q.clamp(max=self.sizes.n - 1), "k": k.clamp(max=self.sizes.m - 1)}
        axes = [dict.fromkeys("bhqk", 0), {"q": 0}, {"k": 0}]
        return grids.mapped(self.traced, self.traced.result, self.sizes, axes, over)


def _listed(counts: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Return which tiles are listed, (B or 1, H or 1, rows, columns) bool."""
    width = indices.shape[-1]
    valid = torch.arange(width) < counts[..., None]
    found = torch.zeros(*indices.shape[:-1], width + 1, dtype=torch.bool)
    return found.scatter_(-1, torch.where(valid, indices, width).long(), True)[..., :width]


def create_block_mask(
    mask_mod: Callable[..., torch.Tensor], B: int | None, H: int | None, Q_LEN: int, KV_LEN: int, device: Any = "cpu",
    BLOCK_SIZE: int | tuple[int, int] = 128, _compile: bool = False, separate_full_blocks: bool = True,
    compute_dq_write_order: bool = False, dq_kv_order: bool = True,
) -> BlockMask:  # fmt: skip
    """Return the BlockMask of a mask_mod, like PyTorch's function, but without an array of all queries and keys.

    Parameters
    ----------
    mask_mod : callable
        Function of sample, query head, query index and key index that returns a bool tensor: whether the query sees the
        key.
    B, H : int or None
        Numbers of samples and query heads, or None if all are alike.
    Q_LEN, KV_LEN : int
        Numbers of queries and keys.
    device : optional
        The CPU.
    BLOCK_SIZE : int or (int, int)
        Numbers of queries and of keys of a tile.
    _compile : bool
        Ignored.
    separate_full_blocks : bool
        Whether tiles in which all queries see all keys are listed apart, so that mask_mod is not asked there.
    compute_dq_write_order, dq_kv_order : bool
        For PyTorch's kernels on a GPU: `compute_dq_write_order` must be False.

    Returns
    -------
    block_mask : torch.nn.attention.flex_attention.BlockMask
        The mask, equal to PyTorch's.

    Raises
    ------
    TypeError
        If an argument has the wrong type.
    ValueError
        If a size is not positive, if `mask_mod` cannot be traced (see `flex_attention`), or if an argument needs a GPU.
    IndexError
        If `mask_mod` reads past the end of a tensor for a key that it shows.

    Examples
    --------
    >>> create_block_mask(lambda b, h, q, k: q >= k, None, None, 300, 300).sparsity() < 50
    True
    """
    if torch.device("cpu" if device is None else device).type != "cpu":
        raise ValueError(f"device must be 'cpu', not {device!r}")
    if compute_dq_write_order:
        raise ValueError("compute_dq_write_order must be False: only kernels on a GPU use it")
    size = BLOCK_SIZE if isinstance(BLOCK_SIZE, tuple | list) else (BLOCK_SIZE, BLOCK_SIZE)
    if len(size) != 2:
        raise ValueError(f"BLOCK_SIZE must be one number or two, not {shown(BLOCK_SIZE)}")
    height, width = (whole("BLOCK_SIZE", each, 1) for each in size)
    Q_LEN, KV_LEN = whole("Q_LEN", Q_LEN, 1), whole("KV_LEN", KV_LEN, 1)
    traced = trace(mask_mod, None, called(mask_mod, "mask_mod"))
    samples, heads = (1 if each is None else whole(name, each, 1) for name, each in (("B", B), ("H", H)))
    sizes = Sizes(samples, heads, Q_LEN, KV_LEN)
    counts = []
    for at in range(0, Q_LEN, height):
        seen, outside = grids.values(traced, traced.result, sizes, "cells", slice(at, min(at + height, Q_LEN)))
        if outside is not None:
            grids.check([(traced.name, outside)], seen)
        padded = torch.nn.functional.pad(seen, (0, -KV_LEN % width))
        counts.append(padded.unflatten(-1, (-1, width)).sum((-3, -1)))
    number = torch.stack(counts, -2).expand(sizes.b, sizes.h, -1, -1)
    full = (number == height * width) & bool(separate_full_blocks)
    lists = [*_ordered((number > 0) & ~full), *(_ordered(full) if separate_full_blocks else (None, None))]
    return BlockMask.from_kv_blocks(
        *lists, BLOCK_SIZE=(height, width), mask_mod=mask_mod, seq_lengths=(Q_LEN, KV_LEN)
    )  # fmt: skip


def _ordered(tiles: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the number of tiles in each row, and their columns, followed by the other columns."""
    found = tiles.to(torch.int32)
    columns = found.argsort(dim=-1, descending=True, stable=True)
    return found.sum(-1).to(torch.int32), columns.to(torch.int32)
