"""What the kernels of reflections take of a call, and their forward pass."""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from fastpe.functional.arguments import Array
from fastpe.functional.extra_terms import dropout_beside
from fastpe.functional.layouts import contiguous
from fastpe.functional.result import apply_sinks
from fastpe.functional.visibility import NO_SPANS, Positions, Visibility
from fastpe.kernels import simd
from fastpe.kernels.attention.extra_terms import Others
from fastpe.kernels.attention.path import forward as reflected
from fastpe.kernels.attention.path import products as reflected_products
from fastpe.kernels.attention.path import rows as reflected_rows
from fastpe.kernels.attention.path.blocks import BLOCK, TILE
from fastpe.kernels.attention.path.workspace import forward_sizes, laid_out
from fastpe.kernels.attention.tile import FEW
from fastpe.kernels.rows.dropout import Dropout
from fastpe.kernels.threads.team import run_team, workers_for

_TILE, _FEW, _BLOCK = int(TILE), int(FEW), int(BLOCK)
_WORK = 2  # what a cell costs, measured by one of plain attention
_NO_OFFSETS, _NO_BASES = np.zeros(1), np.zeros((1, 1, 1))


def spans_near(spans: Array, window: int | None, positions: Positions) -> Array:
    """The keys that queries see of those up to their own, (B or 1, N, 2); `NO_SPANS` where all."""
    if window is None:
        return spans
    if spans is NO_SPANS and positions.starts is None:
        return _spans_of_window(positions.n, positions.m, window)
    queries = positions.first[:, None] + np.arange(positions.n)
    near = _firsts(queries, window)
    first, last = (near, queries + 1) if spans is NO_SPANS else np.moveaxis(spans, -1, 0)
    return np.stack(np.broadcast_arrays(np.maximum(first, near), last), axis=-1)


def _firsts(queries: Array, window: int) -> Array:
    """The first keys that queries at these positions see through a window."""
    return np.maximum(queries - min(window - 1, int(queries.max(initial=0))), 0)


@lru_cache(64)
def _spans_of_window(n: int, m: int, window: int) -> Array:
    """Where the last query stands at the last key."""
    queries = np.arange(m - n, m)[None]
    return np.stack([_firsts(queries, window), queries + 1], axis=-1)


def _strides(samples: int, heads: int, m: int) -> tuple[int, int]:
    """How many keys lie between those of samples and of heads of an array (B or 1, H or 1, M) in one piece."""
    return heads * m if samples > 1 else 0, m if heads > 1 else 0


@lru_cache
def _limits(dtype: np.dtype[Any]) -> Array:
    return np.array([np.finfo(dtype).min, 1.0], dtype)


class Reflections:
    """Outputs, and what they are made of; something is to be computed."""

    def __init__(
        self, rows: tuple[Array, Array, Array], slots: Mapping[str, Array], visibility: Visibility, scale: Array,
        offsets: Array | None, dropout: Dropout | None,
    ) -> None:  # fmt: skip
        """rows: q, k and v as they are reflected. sight: with a window in its spans. scale: of each head. offsets: of
        keys, where there are any."""
        q, k, v = rows
        self.dtype, self.scale, self.dropout = q.dtype, scale, dropout
        (b, h, n, d), (hk, m), dv = q.shape, k.shape[1:3], v.shape[-1]
        w, beta = slots["reflectors"], slots["reflect"]
        samples, heads = max(len(w), len(beta)), max(w.shape[1], beta.shape[1])
        self.shape = samples, heads, m, d
        self.lane = simd.whole_vectors(1, self.dtype)
        of_offsets = (0, 0) if offsets is None else _strides(*offsets.shape)
        self.sizes = reflected.Sizes(
            b, h, hk, n, m, d, dv, *_strides(samples, heads, m), max(heads, hk),
            0 if visibility.spans is NO_SPANS else len(visibility.spans), int(offsets is not None), *of_offsets,
        )  # fmt: skip
        counts = np.empty((b, 3), np.int64)
        counts[:, :2], counts[:, 2] = visibility.lengths, visibility.starts
        limits = _limits(self.dtype)
        self.tokens = reflected.Tokens._make((
            *(self.in_one_piece(x) for x in (q, k, v)), self._of_tokens(w, self.shape),
            self._of_tokens(beta, self.shape[:3]), limits[:0], scale, counts,
            visibility.spans.reshape(-1),
            _NO_OFFSETS if offsets is None else contiguous(offsets, np.float64).reshape(-1), limits,
        ))  # fmt: skip
        self.out, self.lse = np.zeros((b, h, n, dv), self.dtype), np.empty((b, h, n), self.dtype)
        self.lse.fill(-np.inf)
        self.has_offsets = offsets is not None
        self.bases = np.zeros((b, h, n)) if self.has_offsets else _NO_BASES

    def in_one_piece(self, x: Array) -> Array:
        """x as kernels read it."""
        return contiguous(x, self.dtype).reshape(-1)

    def _of_tokens(self, x: Array, shape: tuple[int, ...]) -> Array:
        return self.in_one_piece(x if x.shape == shape else np.broadcast_to(x, shape))

    def lay_products(self) -> None:
        """Of the rows of every tile of keys, those with reflectors."""
        if self.tokens.products.size:
            return
        sizes = self.sizes
        tasks = sizes.batch * sizes.pairs * -(-sizes.keys // _TILE)
        found = np.zeros(tasks * 2 * _TILE * _TILE, self.dtype)
        workers = workers_for(found.size * sizes.width, tasks)
        workspaces = simd.aligned_zeros((workers, sizes.width * _TILE), self.dtype)
        run_team(workers, reflected_products.lay_products, self.tokens, sizes, found, workspaces)
        self.tokens = self.tokens._replace(products=found)

    def workers(self, tasks: int) -> int:
        """The workers of so many tasks."""
        sizes = self.sizes
        cells = sizes.batch * sizes.heads * sizes.queries * sizes.keys
        return workers_for(_WORK * cells * (sizes.width + sizes.v_width), tasks)

    def forward(self, others: Callable[[int], Others] | None) -> None:
        """others: what goes beside, on so many workers, or None."""
        if self.sizes.queries <= _FEW:
            self._forward_by_rows(others)
        else:
            self._forward_in_blocks(others)

    def apply_sinks(self, sinks: Array) -> None:
        """What sinks take."""
        whole = self.lse_with_base()
        apply_sinks(self.out, whole, sinks)
        self.lse[...] = whole - self.bases

    def lse_with_base(self) -> Array:
        """lse with what kernels leave it less of; float64 where keys have offsets."""
        return self.lse + self.bases if self.has_offsets else self.lse.copy()

    def _outputs(self) -> tuple[Array, Array, Array]:
        return self.out.reshape(-1), self.lse.reshape(-1), self.bases.reshape(-1)

    def _forward_by_rows(self, others: Callable[[int], Others] | None) -> None:
        sizes = self.sizes
        workers = self.workers(sizes.batch * sizes.heads * sizes.queries)
        size = simd.whole_vectors(sizes.width, self.dtype) + simd.whole_vectors(sizes.keys, self.dtype)
        workspaces = np.zeros((workers, size), self.dtype)  # to align it takes longer than its vectors gain
        beside = None if others is None else others(workers)
        rest = dropout_beside(beside, self.dropout), beside, *self._outputs(), workspaces
        run_team(workers, reflected_rows.forward, self.tokens, sizes, *rest)

    def _forward_in_blocks(self, others: Callable[[int], Others] | None) -> None:
        self.lay_products()
        sizes = self.sizes
        dropped = self.dropout is not None
        starts, total = laid_out(forward_sizes(sizes.width, sizes.v_width, self.lane, dropped=dropped))
        workers = self.workers(sizes.batch * sizes.heads * -(-sizes.queries // (_BLOCK * self.lane)))
        workspaces = simd.aligned_zeros((workers, total), self.dtype)
        beside = None if others is None else others(workers)
        rest = beside, *self._outputs(), tuple(starts), workspaces
        run_team(workers, reflected.forward, self.tokens, sizes, dropout_beside(beside, self.dropout), *rest)
