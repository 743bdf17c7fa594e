"""What the kernels of a network over scores take of a call, and their forward pass."""

import math
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from fastpe.functional.arguments import Array
from fastpe.functional.extra_terms import dropout_beside
from fastpe.functional.layouts import contiguous
from fastpe.functional.result import apply_sinks
from fastpe.functional.rows import Rows
from fastpe.functional.slot_arrays import cells_of, expand_relative_bias
from fastpe.functional.slots import NETWORK
from fastpe.functional.visibility import NO_SPANS, Positions, Visibility
from fastpe.kernels import simd
from fastpe.kernels.attention.dape.calls import MlpCase, MlpInputs, MlpOutputs, mlp_backward_calls, mlp_forward_calls
from fastpe.kernels.attention.dape.layout import ROWS, layout_for_dape
from fastpe.kernels.attention.extra_terms import Others
from fastpe.kernels.rows.dropout import Dropout
from fastpe.kernels.threads.team import run_team, workers_for

_PARTS = 8  # that sums over queries are made in, at most: as many threads take part
_ROWS = int(ROWS)
_NO_BASES, _NO_INDEX = np.zeros((1, 1, 1)), np.zeros(1, np.int32)
_room = lru_cache(layout_for_dape)


@lru_cache
def _nothing(dtype: np.dtype[Any]) -> Array:
    return np.zeros(1, dtype)


class Network:
    """Outputs, and what they are made of; something is to be computed."""

    def __init__(
        self, rows: Rows, slots: Mapping[str, Array], positions: Positions, visibility: Visibility, scale: Array,
        dropout: Dropout | None, *, causal: bool, window: int | None,
    ) -> None:  # fmt: skip
        """rows: of the content. scale: of each head."""
        _, q, _, k, v = rows
        self.dtype, self.scale, self.dropout = q.dtype, scale, dropout
        (b, h, n, d), m, dv, into = q.shape, k.shape[2], v.shape[-1], slots["mlp_in"][0]
        (bias, of_bias), (cells, of_cells) = self._laid_bias(slots, positions), self._laid_cells(slots, positions)
        values, of_values, index, of_index = self._laid_values(slots, positions)
        spans = visibility.spans
        strides = [stride // x.itemsize for x in (q, k, v) for stride in x.strides[:3]]
        biased, has_cells, has_values = (int(name in slots) for name in ("bias", "scores", "values"))
        self.case = MlpCase._make((
            b, h, h // k.shape[1], n, m, d, dv, into.shape[0], into.shape[-1], int(causal), *strides,
            biased, *of_bias, n - 1, has_cells, *of_cells, m, has_values, *of_values, of_index,
            window or 0, int(spans is not NO_SPANS), spans[0].size if len(spans) > 1 else 0,
            min(_PARTS, -(-n // _ROWS)),
        ))  # fmt: skip
        net = (contiguous(slots[name], self.dtype).reshape(-1) for name in NETWORK)
        self.inputs = MlpInputs._make((
            simd.start_of(q), simd.start_of(k), simd.start_of(v), bias, cells, values, index, scale, *net,
            visibility.lengths, visibility.starts, spans.reshape(-1),
        ))  # fmt: skip
        self.out, self.lse = np.zeros((b, h, n, dv), self.dtype), np.empty((b, h, n), self.dtype)
        self.lse.fill(-np.inf)
        self.has_offsets = "key_offset" in slots
        self.bases = np.zeros((b, h, n)) if self.has_offsets else _NO_BASES

    def _laid_bias(self, slots: Mapping[str, Array], positions: Positions) -> tuple[Array, tuple[int, int]]:
        """In one piece, and its strides of samples and heads."""
        if "bias" not in slots:
            return _nothing(self.dtype), (0, 0)
        return self._in_one_piece(expand_relative_bias(slots["bias"], positions), 1)

    def _laid_cells(self, slots: Mapping[str, Array], positions: Positions) -> tuple[Array, tuple[int, int]]:
        """Likewise, what `scores` adds."""
        if "scores" not in slots:
            return _nothing(self.dtype), (0, 0)
        return self._in_one_piece(cells_of(slots["scores"], positions), 2)

    def _laid_values(
        self, slots: Mapping[str, Array], positions: Positions
    ) -> tuple[Array, tuple[int, int], Array, int]:
        """Likewise, of `values`; which of them every cell has, and the stride of samples."""
        if "values" not in slots:
            return _nothing(self.dtype), (0, 0), _NO_INDEX, 0
        index = contiguous(cells_of(slots["index"], positions), np.int32)
        return *self._in_one_piece(slots["values"], 1), index.reshape(-1), index[0].size if len(index) > 1 else 0

    def _in_one_piece(self, x: Array, axes: int) -> tuple[Array, tuple[int, int]]:
        """An array (B or 1, H, ...) of so many axes for a head, and the strides of samples and heads."""
        of_head = math.prod(x.shape[-axes:])
        return contiguous(x, self.dtype).reshape(-1), (x.shape[1] * of_head if x.shape[0] > 1 else 0, of_head)

    def forward(self, others: Callable[[int], Others] | None) -> None:
        """others: what goes beside, on so many workers, or None."""
        self.run(mlp_forward_calls, self.case.batch * -(-self.case.queries // _ROWS), self.outputs(), others)

    def run(
        self, function: Any, tasks: int, y: MlpOutputs, others: Callable[[int], Others] | None, *sizes: int
    ) -> None:  # fmt: skip
        """Either pass."""
        case, backward = self.case, function is mlp_backward_calls
        sizes_of_room = case.heads, case.width, case.v_width, case.hidden, case.taps
        layout = _room(*sizes_of_room, backward=backward, dropped=self.dropout is not None)
        work = case.width + case.v_width + 3 * case.hidden * case.taps
        work *= case.batch * case.heads * case.queries * case.keys
        workers = workers_for(work, tasks)
        make = simd.aligned_zeros if backward else simd.aligned_empty
        workspaces = make((workers, layout.size), self.dtype)
        beside = None if others is None else others(workers)
        rest = beside, self.bases.reshape(-1), y, case, *sizes, layout, workspaces
        run_team(workers, function, self.inputs, dropout_beside(beside, self.dropout), *rest)

    def outputs(self, *gradients: Array) -> MlpOutputs:
        """What either pass fills."""
        arrays = [simd.start_of(x) for x in (self.out, self.lse, *gradients)]
        return MlpOutputs._make(arrays + [_nothing(self.dtype)] * (len(MlpOutputs._fields) - len(arrays)))

    def apply_sinks(self, sinks: Array) -> None:
        """What sinks take."""
        whole = self.lse_with_base()
        apply_sinks(self.out, whole, sinks)
        self.lse[...] = whole - self.bases

    def lse_with_base(self) -> Array:
        """lse with what kernels leave it less of; float64 where keys have offsets."""
        return self.lse + self.bases if self.has_offsets else self.lse.copy()
