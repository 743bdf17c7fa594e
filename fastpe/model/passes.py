"""A model's memory, and its forward and backward passes: calls of the kernels on checked inputs, one at a time."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fastpe.base import validation
from fastpe.base.guard import OneAtATime
from fastpe.kernels.model import batch as model_batch
from fastpe.kernels.model.batch import Asked
from fastpe.kernels.model.memory import LOSS_ROWS, Position
from fastpe.kernels.model.pack import LINE
from fastpe.kernels.rows.dropout import NO_DROPOUT
from fastpe.kernels.threads.team import run_exclusively, threads_for
from fastpe.model import dropout
from fastpe.model.checked_inputs import CheckedInputs
from fastpe.model.config import ModelConfig
from fastpe.model.encoding_by_rule import encoding_of
from fastpe.model.parameters import Parameters, Transposes
from fastpe.model.scratch import Scratch, Update

Array = np.ndarray[Any, Any]

_MANY_ROWS = 4096  # batches with at least this many positions may have more than eight groups
_GROUPS_BYTES = 2**24  # limit for the gradients of all groups, except with four groups or fewer
_MOST_KEPT, _KEPT_BYTES = 4, 2**30  # limits of the scratch memory that is kept, if a user tries many lengths
_LOGITS = 2**22  # logits in memory at a time, when they are computed by rows
_AT_ONCE = 2**24  # elements of the residual stream of the sequences that then pass through the model together
_PANEL, _PAD = 1024, 16  # rows of a tied embedding that are transposed at a time; unused elements of a head's rows


class Writer(NamedTuple):
    """State of a sequence during generation: scratch memory with the cached keys and values, and the last logits."""

    scratch: Scratch
    position: Position
    logits: Array
    head: Array  # as from `Passes._head`


class Prepared(NamedTuple):
    """What a forward pass needs in addition to its batch."""

    workers: int
    scratch: Scratch
    position: Position
    places: Array


class Passes:
    """Base class of `Transformer` with its memory and its forward and backward passes. Callers of the private methods
    hold the lock.
    """

    def __init__(self, config: ModelConfig) -> None:
        self._config, self._dtype = config, np.dtype(config.dtype)
        self._encoding = encoding_of(config)
        self._layout = Parameters(config, self._encoding.initial, self._encoding.gates)
        self._transposes = Transposes(config, self._layout.offsets)
        self._kept: dict[tuple[int, int, bool], Scratch] = {}
        self._inputs = CheckedInputs(config.vocabulary, self.dtype)
        self._lock = OneAtATime()  # for inputs, slots, scratch memory and gradients

    # read-only, because the layout of the memory depends on them
    config = property(lambda self: self._config)
    dtype = property(lambda self: self._dtype)

    @property
    def nbytes(self) -> int:
        """Size of the model in bytes: parameters, transposed matrices, and the memory that its calls use."""
        with self._lock:
            kept = (array for work in self._kept.values() for array in (work.workspaces, work.gradients))
            return sum(array.nbytes for array in (self._layout.flat, self._transposes.flat, *kept))

    def slots(self, length: int) -> dict[str, Any]:
        """Return copies of the slots that the encoding fills for a sequence length.

        Parameters
        ----------
        length : int
            Number of positions.

        Returns
        -------
        dict
            Arrays by slot, and the values of slots that are not arrays. The first axis of a slot that differs between
            layers is the layer.
        """
        with self._lock:
            slots = self._encoding.slots(length, self._layout.views)
            return {slot: x.copy() if isinstance(x, np.ndarray) else x for slot, x in slots.items()}

    def __call__(self, x: Any, *, lengths: Any = None, threads: int | None = None, draw: int = 0) -> Array:
        """Compute the outputs of the model.

        Parameters
        ----------
        x : array_like (B, N) or (N,)
            Inputs: finite numbers or, with a vocabulary of V tokens, integers in [0, V).
        lengths : array_like (B,) of int, optional
            Lengths of the sequences, at most N. Positions beyond the end of a sequence are not read, and their outputs
            are 0. The position encoding is the one for N positions.
        threads : int, optional
            Largest number of threads, by default all that Numba may use. Results do not depend on it.
        draw : int
            Selects the random positions of this call, if the model has random positions.

        Returns
        -------
        array
            The outputs, in the model's dtype and the shape of x. With a vocabulary: logits, (B, N, V) or (N, V).

        Raises
        ------
        TypeError, ValueError
            If x has another shape, or holds anything but finite numbers or, with a vocabulary, tokens.
        fastpe.BeyondTrainingLength
            If the encoding is undefined at this length.
        """
        vocabulary = self.config.vocabulary
        with self._lock:
            inputs, checked = self._inputs.inputs(x, lengths)
            outputs = self._outputs(np.atleast_2d(inputs), checked, threads, draw)
        return outputs.reshape(inputs.shape if vocabulary is None else (*inputs.shape, vocabulary))

    def logits_by_rows(
        self, x: Any, wanted: Any, use: Callable[[slice, Array], None], *, lengths: Any = None,
        threads: int | None = None, draw: int = 0,
    ) -> None:  # fmt: skip
        """Compute the logits at some positions, a block of rows at a time, so that only one block is in memory.

        Calling the model instead returns the logits at all positions, in an array of B x N x V numbers. The logits are
        the same.

        Parameters
        ----------
        x, lengths, threads, draw
            As in a call of the model, which must have a vocabulary.
        wanted : array_like of x's shape, bool
            The positions. They must lie within the lengths of their sequences.
        use : callable
            Called as ``use(rows, logits)`` for each block, so not at all if no position is wanted. `rows` is a slice of
            the wanted positions, in the order of ``wanted.nonzero()``; `logits` (R, V) is overwritten by the next
            block. The function must not call the model.

        Raises
        ------
        TypeError, ValueError
            If x is refused, `wanted` is not as described, or the model has no vocabulary.
        fastpe.BeyondTrainingLength
            If the encoding is undefined at this length.

        Examples
        --------
        >>> from fastpe import ModelConfig, Transformer
        >>> model = Transformer(ModelConfig("alibi", width=16, causal=True, vocabulary=65, train_length=8))
        >>> x, found = np.arange(8), []
        >>> model.logits_by_rows(x, x >= 6, lambda rows, logits: found.append(logits.copy()))
        >>> bool((found[0] == model(x)[6:]).all())
        True
        """
        if self.config.vocabulary is None:
            raise ValueError("model must have a vocabulary: this model returns numbers, not logits")
        if not callable(use):
            raise TypeError(f"use must be a function of a slice and an array, not {validation.shown(use)}")
        with self._lock:
            inputs, checked = self._inputs.inputs(x, lengths)
            marks = np.asarray(wanted)
            if marks.dtype != bool or marks.shape != inputs.shape:
                raise ValueError(f"wanted must be booleans of shape {inputs.shape}, not {validation.shown(wanted)}")
            batch, marks = np.atleast_2d(inputs), np.atleast_2d(marks)
            if (marks & (np.arange(batch.shape[1]) >= checked[:, None])).any():
                raise ValueError("wanted must be False beyond the lengths of the sequences")
            self._by_rows(batch, checked, marks, use, threads, draw)

    def _prepared(self, rows: Array, lengths: Array, threads: int | None, draw: int) -> Prepared:
        batch, length = rows.shape
        slots, workers = self._encoding.slots(length, self._layout.views, draw), min(threads_for(threads), batch)
        work, placed = self._scratch(length, workers, slots, backward=False), self._encoding.placed(rows, lengths)
        return Prepared(workers, work, work.position(slots, placed.spans), placed.rows)

    def _empty(self, what: str, rows: Array, values: int) -> Array:
        """Return an array for `values` numbers for each position. Raise ValueError if this machine has too little
        memory.
        """
        (batch, length), size = rows.shape, rows.size * values * self.dtype.itemsize
        validation.room(f"{what} of {batch} sequences with length={length}", size, "need")
        return np.empty((batch, length * values), self.dtype)

    def _outputs(self, rows: Array, lengths: Array, threads: int | None, draw: int) -> Array:
        workers, work, position, places = self._prepared(rows, lengths, threads, draw)
        y = self._empty("outputs", rows, self.config.vocabulary or 1)
        self._forward(workers, work, position, rows, lengths, places, Asked.outputs(y))
        return y

    def _by_rows(
        self, x: Array, lengths: Array, wanted: Array, use: Callable[[slice, Array], None], threads: int | None,
        draw: int,
    ) -> None:  # fmt: skip
        width, vocabulary, done = self.config.width, self.config.vocabulary or 1, 0
        head, most = self._head(), max(LOSS_ROWS, _LOGITS // vocabulary)
        logits = np.empty((min(most, int(wanted.sum())), vocabulary), self.dtype)
        some = max(1, _AT_ONCE // (x.shape[1] * width))
        for first in range(0, len(x), some):
            part = slice(first, first + some)
            batch, own = x[part], lengths if lengths.size == 1 else lengths[part]
            workers, work, position, places = self._prepared(batch, own, threads, draw)
            stream = self._empty("rows", batch, width)
            self._forward(workers, work, position, batch, own, places, Asked.stream(stream), head)
            rows = stream.reshape(batch.size, width)[wanted[part].ravel()]
            for start in range(0, len(rows), most):
                block = rows[start : start + most]
                found = logits[: len(block)]
                self._forward(workers, work, position, batch, own, places, Asked.head(block, found), head)
                use(slice(done, done + len(block)), found)
                done += len(block)

    def _loss(self, x: Any, y: Any, weights: Any, lengths: Any, threads: int | None, draw: int) -> float:
        x, y, shares, lengths = self._inputs.batch(x, y, weights, lengths)
        batch, length = x.shape
        slots, starts = self._encoding.slots(length, self._layout.views, draw), self._groups(batch, lengths)
        workers, losses = min(threads_for(threads), starts.size - 1), np.zeros(starts.size - 1)
        work, placed = self._scratch(length, workers, slots, backward=False), self._encoding.placed(x, lengths)
        position, asked = work.position(slots, placed.spans), Asked.losses_of(y, shares, starts, losses)
        self._forward(workers, work, position, x, lengths, placed.rows, asked)
        return float(losses.sum())

    def _forward(
        self, workers: int, work: Scratch, position: Position, x: Array, lengths: Array, places: Array, asked: Asked,
        head: Array | None = None,
    ) -> None:  # fmt: skip
        head = self._head() if head is None else head
        run_exclusively(
            workers, model_batch.forward, x, lengths, places, asked, head, self._layout.flat, work.workspaces,
            position, work.sizes, work.offsets, self._transposes.offsets, work.workspace,
        )  # fmt: skip

    def _head(self) -> Array:
        """Return the matrix of the head, flattened by rows. If the head is tied, it is a copy, whose rows have `_PAD`
        unused elements at their ends: products take twice as long if the rows of a matrix are a multiple of 4 KiB
        apart.
        """
        views = self._layout.views
        if not self.config.tied:
            return views["head.weight"].ravel()
        embedding = views["embed.weight"]
        head = np.empty((embedding.shape[1], len(embedding) + _PAD), self.dtype)
        for first in range(0, len(embedding), _PANEL):  # faster than all at once
            panel = embedding[first : first + _PANEL]
            head[:, first : first + len(panel)] = panel.T
        return head.ravel()

    def _gradients(
        self, x: Any, y: Any, weights: Any, lengths: Any, threads: int | None, draw: int, update: Update | None = None
    ) -> tuple[float, Array]:
        """Return the loss, and the gradients of each group (groups, stride), which the caller must sum in order.

        The gradients are valid until the next call. If `update` is given, the parameters are updated as well.
        """
        x, y, shares, lengths = self._inputs.batch(x, y, weights, lengths)
        batch, length = x.shape
        starts = self._groups(batch, lengths)
        groups = starts.size - 1
        slots = self._encoding.slots(length, self._layout.views, draw, training=True)
        workers = min(threads_for(threads), batch)
        turns = np.zeros(batch * int(LINE) if workers > groups else 0, np.int64)
        work = self._scratch(length, workers, slots, backward=True)
        gradients, losses = work.gradients[:groups], work.losses[:groups]
        placed = self._encoding.placed(x, lengths, step=draw)
        panels, position = self._transposes.panels, work.position(slots, placed.spans)
        dropped = dropout.of_step(self.config, draw)
        if dropped is None and (position.slots is not None or position.net is not None):
            dropped = NO_DROPOUT

        def run(panels: Array, starts: Array, update: Update) -> None:
            run_exclusively(
                workers, model_batch.step, x, y, shares, lengths, placed.rows, self._layout.flat, self._transposes.flat,
                panels, gradients, starts, turns, losses, work.workspaces, position, dropped, *update, work.sizes,
                work.offsets, self._transposes.offsets, work.workspace,
            )  # fmt: skip

        if not self._encoding.learned:
            run(panels, starts, update or Update.none(self.dtype))
            return float(losses.sum()), gradients
        run(panels, starts, Update.none(self.dtype))
        # add the gradients of the encoding's parameters to the first group's row
        target = self._layout.views_of(gradients[0], self._encoding.initial)
        self._encoding.pull(length, self._layout.views, work.slot_gradients(slots, groups), target)
        if update:
            run(panels[:0], starts[:1], update)
        return float(losses.sum()), gradients

    def _groups(self, batch: int, lengths: Array) -> Array:
        """Return the index of the first sequence of each group of a batch, followed by the batch size.

        The gradients of a group are summed separately. All groups have about the same number of positions. Groups
        depend only on shapes and lengths, so that results do not depend on the number of threads. More groups allow
        more threads, but every group adds work and memory, and the memory should fit into common caches.
        """
        same = lengths.size == 1
        rows = int(lengths[0]) * batch if same else int(lengths.sum())
        most = min(batch, 16 if batch >= 64 and rows >= _MANY_ROWS else 8)
        while most > 4 and most * self._layout.flat.nbytes > _GROUPS_BYTES:
            most //= 2
        shares = np.arange(most + 1)
        if same:
            return batch * shares // most
        before = np.concatenate([[0], np.cumsum(lengths)])
        return np.unique(np.searchsorted(before, rows * shares // most))

    def _writer(self, length: int, rows: int) -> "Writer":
        """Return memory for one sequence of this length. At most `rows` positions pass through the model at a time."""
        slots = self._encoding.slots(length, self._layout.views)
        work = Scratch.make(
            self.config, self._layout, length, 1, 0, slots, self._encoding.layered, self._encoding.learned, rows
        )
        rule = self.config.rule
        spans = np.zeros((self.config.layers, 1, length, 2), np.int64) if rule and rule.keeps_apart else None
        logits = np.empty(self.config.vocabulary or 1, self.dtype)
        return Writer(work, work.position(slots, spans), logits, self._head())

    def _place(self, writer: "Writer", tokens: Array, before: int, state: Array | None) -> tuple[Array, Array | None]:
        """Return the rows of the next tokens, (1 or 2, 1, n), and the state of the rule after them; see `Placed`.

        before: number of earlier tokens. state: state of the rule after the earlier tokens.
        """
        placed = self._encoding.placed(
            tokens[None], np.full(1, len(tokens)), state=state, before=before, length=writer.scratch.sizes.length
        )
        if placed.spans is not None:
            writer.position.spans[:, :, before : before + len(tokens)] = placed.spans
        return np.broadcast_to(placed.rows, (len(placed.rows), 1, len(tokens))), placed.state

    def _extend(self, writer: "Writer", tokens: Array, rows: Array, before: int) -> Array:
        """Return the logits after some tokens of a sequence whose first `before` tokens already passed through the
        model.
        """
        self._forward(
            1, writer.scratch, writer.position, tokens.astype(self.dtype)[None], np.full(1, len(tokens)),
            np.array(rows, order="C"), Asked.logits(writer.logits[None], before), writer.head,
        )  # fmt: skip
        return writer.logits

    def _scratch(self, length: int, workers: int, slots: Mapping[str, Any], *, backward: bool) -> Scratch:
        key = (length, workers, backward)
        if key not in self._kept:
            kept = sum(work.workspaces.nbytes + work.gradients.nbytes for work in self._kept.values())
            if len(self._kept) >= _MOST_KEPT or kept > _KEPT_BYTES:
                self._kept.clear()
            self._kept[key] = Scratch.make(
                self.config, self._layout, length, workers, 16 if backward else 0, slots, self._encoding.layered,
                self._encoding.learned,
            )  # fmt: skip
        return self._kept[key]
