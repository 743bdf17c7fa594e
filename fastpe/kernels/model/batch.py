"""The model on a batch: the parallel loops over sequences, and over the parameters to update.

Results are bitwise equal for any number of threads. A batch is cut into a fixed number of *groups* of sequences. The
gradients of each group are summed in order in a separate row, and the rows are added in order. The number of threads
only decides which thread runs which group (`kernels.threads.team`). A whole training step starts its threads once.

Sequences of a batch may differ in length: positions beyond the end of a sequence are neither read nor computed, and the
slots are those of the longest possible sequence.
"""

from typing import Any, NamedTuple

import numpy as np

from fastpe.kernels.compile.decorators import entry, inlined, inner
from fastpe.kernels.model.adam import adam, add_up, clipped_share
from fastpe.kernels.model.embedding_and_head import clear, copy
from fastpe.kernels.model.fused_embedding_and_head import compose, decompose
from fastpe.kernels.model.loss import step_of
from fastpe.kernels.model.pack import ALONE, Pack, pack_from, packs_in, pass_on, side_by_side, take_turn
from fastpe.kernels.model.transformer import (
    outputs_of_rows,
    pack_backward,
    pack_loss,
    rows_of_stream,
    stream_forward,
)
from fastpe.kernels.products.bfloat16.isa import named, rounding
from fastpe.kernels.products.bfloat16.pack import pack_band
from fastpe.kernels.products.float_gemm import FROM, OVERWRITE, transpose
from fastpe.kernels.simd import at, plain, pointer, row, with_pointers
from fastpe.kernels.simd.by_address import by_address
from fastpe.kernels.threads.task_counter import finish, next_task, wait_for
from fastpe.kernels.threads.team import on_team

Array = np.ndarray[Any, Any]

ALL = np.int64(-1)  # stands for all packs, in place of the number of one


@inlined
def _own(p, workspace, sizes, a):
    """Return the pointer in the form that the model's matrix products take. In a bfloat16 model, the products round the
    elements.
    """
    return rounding(p, at(workspace, a.packed), sizes.products)


@inner
def _clear_gradients(g, stride, sizes, o):
    """Clear all gradients except those of the layers' matrices, which the group's first pack overwrites.

    If the embedding or the output head is fused with a layer, no group writes the gradients of the fused matrices of
    the layers. They stay 0, as they were allocated, except in the first group's row, in which `decompose` overwrites
    them with the sums over all groups.
    """
    clear(g, o.layers)
    for layer in range(sizes.layers):
        vectors = o.layers + layer * o.layer_stride + plain(o.qkv_bias)
        clear(at(g, vectors), o.layer_stride - plain(o.qkv_bias))
    rest = o.layers + sizes.layers * o.layer_stride
    clear(at(g, rest), stride - rest)


@inner
def _group_gradients(
    x, target, shares, step, lengths, places, first, last, only, turns, w, wt, g, stride, loss, workspace, position,
    dropout, sizes, o, t, a,
):  # fmt: skip
    """Compute the loss (in loss[0]) and the gradients (in g) of a group, the sequences first .. last - 1, as sums over
    its packs. The first pack overwrites both.

    If `only` is not ALL, process only the pack with this number, while other workers process the other packs.
    """
    head, done, number, previous = at(wt, t.head_weight) if sizes.tied else at(w, o.head_weight), first, ALL, ALONE
    while done < last:
        pack, grow = pack_from(done, last, sizes.length, lengths, places), OVERWRITE if done == first else FROM
        done, number = pack.last, number + 1
        if only > ALL:
            pack = side_by_side(pack, turns, previous)
            previous = pack.first
        if only > ALL and number != only:
            continue
        if number == 0:
            _clear_gradients(g, stride, sizes, o)
            loss[0] = 0.0
        stream_forward(x, w, wt, workspace, position, dropout, pack, sizes, o, t, a)
        found, count = pack_loss(target, shares, step, head, sizes.vocabulary, w, workspace, pack, sizes, o, a)
        take_turn(pack)
        loss[0] += found
        pass_on(pack)
        pack_backward(
            x, head, w, wt, g, grow, shares, step, count, workspace, position, dropout, pack, sizes, o, t, a
        )  # fmt: skip


@inner
def _packs_of_a_group(lanes, starts, lengths, sizes):
    """Return the number of packs of a group to process in parallel. It is 1 if there are at most as many workers as
    groups, otherwise the largest number of packs of any group. The results are equal, but workers that add to the same
    gradients move these between caches.
    """
    most = np.int64(1)
    if lanes > starts.size - 1:
        for group in range(starts.size - 1):
            most = max(most, packs_in(starts[group], starts[group + 1], sizes.length, lengths))
    return most


@inner
def _step_worker(
    worker, counters, x, target, shares, lengths, places, w, wt, panels, gradients, starts, turns, losses,
    workspaces, position, dropout, moments, numbers, ranges, squares, sizes, o, t, a,
):  # fmt: skip
    """Run the tasks of five phases in order: transpose a panel of a matrix; process a group of sequences, or one of its
    packs; split the gradients of a fused embedding or output head; sum up some gradients, for clipping; update some
    parameters.
    """
    transposes, (rows, stride), composed = panels.shape[0], gradients.shape, False
    packs = _packs_of_a_group(workspaces.shape[0], starts, lengths, sizes)
    before_ends = transposes + (starts.size - 1) * packs
    before_sums = before_ends + (sizes.fused_input + sizes.fused_output if starts.size > 1 else 0)
    before_update = before_sums + squares.size
    everything, share = before_update + ranges.shape[0], -1.0
    task = next_task(counters)
    while task < everything:
        if task < transposes:
            _turn(sizes.products, pointer(w), pointer(wt), panels, task, at(row(workspaces, worker), a.packed))
        elif task < before_ends:
            wait_for(counters, transposes)
            (number, group), workspace = divmod(task - transposes, starts.size - 1), row(workspaces, worker)
            if not composed:  # the worker's first task of this phase
                compose(pointer(w), workspace, position, sizes, o, a)
                composed = True
            _group_gradients(
                _own(pointer(x), workspace, sizes, a), _own(pointer(target), workspace, sizes, a),
                _own(pointer(shares), workspace, sizes, a), step_of(shares), lengths, places, starts[group],
                starts[group + 1], number if packs > 1 else ALL, turns, _own(pointer(w), workspace, sizes, a),
                _own(pointer(wt), workspace, sizes, a), _own(row(gradients, group), workspace, sizes, a), stride,
                losses[group:], _own(workspace, workspace, sizes, a), position, dropout, sizes, o, t, a,
            )  # fmt: skip
        elif task < before_sums:
            wait_for(counters, before_ends)
            decompose(
                task - before_ends, pointer(w), pointer(wt), pointer(gradients), stride, rows, row(workspaces, worker),
                position, sizes, o, t, a,
            )  # fmt: skip
        elif task < before_update:
            wait_for(counters, before_sums)
            number = task - before_sums
            squares[number] = add_up(pointer(gradients), stride, rows, ranges[number, 0], ranges[number, 1])
        else:
            wait_for(counters, before_update)
            if share < 0.0:  # the worker's first task of this phase
                share = clipped_share(squares, numbers)
            number, summed = task - before_update, np.int64(1) if squares.size else rows
            adam(
                pointer(w), pointer(moments), at(pointer(moments), w.size), pointer(gradients), stride, summed,
                ranges[number, 0], ranges[number, 1], numbers, ranges[number, 2], share,
            )  # fmt: skip
        finish(counters)
        task = next_task(counters)
    wait_for(counters, everything)  # workers that end together need not wake each other up


@inner
def _turn(isa, w, wt, panels, number, spare):
    """Transpose a panel of a matrix, or pack it, both as it is and transposed.

    The meaning of the six columns of `panels` (P, 6) depends on whether the matrix is transposed or packed:

        transposed   start of the panel in w, rows, columns, start of its transpose in wt, row stride of the transpose,
                     -1
        packed       start of the matrix in w, first row of the panel, columns, start of the packed transpose in wt,
                     rows of the matrix, start of the packed matrix in wt

    This is done in every step, because users may change parameters.
    """
    source, rows, columns, target = panels[number, 0], panels[number, 1], panels[number, 2], panels[number, 3]
    all_rows, words = panels[number, 4], panels[number, 5]
    if isa is not None and words >= 0:
        pack_band(named(isa), at(w, source), rows, all_rows, columns, spare, at(wt, words), at(wt, target))
    else:
        transpose(at(w, source), columns, at(wt, target), all_rows, rows, columns)


@entry(label="the training step")
def step(
    team, counters, x, target, shares, lengths, places, w, wt, panels, gradients, starts, turns, losses, workspaces,
    position, dropout, moments, numbers, ranges, squares, steps, sizes, o, t, a,
):  # fmt: skip
    """Compute the losses (G,) and gradients (G, stride) of a batch x, target (B, n), then update w (P,) with AdamW.

    starts (G + 1,): the first sequence of every group, and the number of sequences.
    turns (8 B,): zeros; used if there are more workers than groups.
    shares (B n,), or (1,) if all are equal: weights of the targets in the mean, see `kernels.model.loss`.
    lengths (B,), or (1,) if all are equal.
    places (1, B, 1), or (1, 1, 1) if all are equal: the first row of the table for each sequence, which uses
        consecutive rows from there on; or (2, B, n) if rows are gathered: the row of each token in the table and in the
        rotations.
    workspaces: one per worker.
    dropout: as in `kernels.rows.dropout`, or None.
    moments (2, P).
    ranges (R, 3): ranges of parameters to update: start, stop, and whether they decay; none if nothing is updated.
    squares (R,), or (0,) without clipping.
    steps (1,): the number of updates.

    Tokens are integers in the type of w, so that code is compiled once for scalars and tokens. Without gradients there
    are no groups and no panels."""
    on_team(
        team, _step_worker, (pointer(counters), x, target, shares, lengths, places, w, wt, panels, gradients, starts,
        turns, losses, workspaces,
         by_address(with_pointers(position)), dropout, moments, numbers, ranges, squares, by_address(sizes),
         by_address(o), by_address(t), by_address(a)),
    )  # fmt: skip
    if ranges.shape[0]:
        steps[0] += 1


class Asked(NamedTuple):
    """The requested result of a forward pass: one of `outputs`, `stream`, `losses`, `logits` and `head`."""

    y: Array  # outputs (B, n) or logits (B, n V), 0 beyond the lengths; logits of the last token (1, V), of rows (M, V)
    rows: Array  # rows of the residual stream that the head takes: (B, n c), not written beyond the lengths; or (M, c)
    target: Array  # (B, n)
    shares: Array  # as for a step
    starts: Array  # (G + 1,) groups, as for a step, so that sums have the same order
    losses: Array  # (G,): each group's part of the mean; the parts add up to it
    before: Array  # (1,): number of earlier positions whose keys and values are in the workspace, in every layer

    @classmethod
    def outputs(cls, y: Array) -> "Asked":
        """Request the outputs for every token."""
        nothing, no_number = np.empty(0, y.dtype), np.empty(0, np.int64)
        return cls(y, y[:0], y[:0], nothing, no_number, np.empty(0), no_number)

    @classmethod
    def stream(cls, rows: Array) -> "Asked":
        """Request the rows that the head takes, for every token."""
        return cls.outputs(rows[:0])._replace(rows=rows)

    @classmethod
    def head(cls, rows: Array, y: Array) -> "Asked":
        """Request the logits of these rows. The batch is not read."""
        return cls.outputs(y)._replace(rows=rows)

    @classmethod
    def losses_of(cls, target: Array, shares: Array, starts: Array, losses: Array) -> "Asked":
        """Request the losses of a batch."""
        return cls(target[:0], target[:0], target, shares, starts, losses, starts[:0])

    @classmethod
    def logits(cls, y: Array, before: int) -> "Asked":
        """Request the logits after the tokens of one sequence."""
        return cls.outputs(y)._replace(before=np.full(1, before))


@inner
def _forward_worker(worker, counters, x, lengths, places, asked, head, w, workspaces, position, sizes, o, t, a):
    if asked.starts.size:
        _losses(worker, counters, x, lengths, places, asked, head, w, workspaces, position, sizes, o, t, a)
    elif asked.before.size:
        _logits(worker, counters, x, lengths, places, asked, head, w, workspaces, position, sizes, o, t, a)
    elif asked.rows.size and asked.y.size:
        _head(worker, counters, asked, head, w, workspaces, sizes, o, a)
    else:
        _outputs(worker, counters, x, lengths, places, asked, head, w, workspaces, position, sizes, o, t, a)


@inner
def _outputs(worker, counters, x, lengths, places, asked, head, w, workspaces, position, sizes, o, t, a):
    """Compute outputs, or the rows that the head takes; each task is one sequence."""
    memory, y, stride = row(workspaces, worker), asked.y, head.size // sizes.width
    workspace, weights = _own(memory, memory, sizes, a), _own(pointer(w), memory, sizes, a)
    inputs, outward = _own(pointer(x), memory, sizes, a), _own(pointer(head), memory, sizes, a)
    sequence = next_task(counters)
    while sequence < x.shape[0]:
        pack = pack_from(sequence, sequence + 1, sizes.length, lengths, places)
        stream_forward(inputs, weights, weights, workspace, position, None, pack, sizes, o, t, a)
        rows = rows_of_stream(workspace, sizes, a)
        if asked.rows.size:
            copy(rows, _own(row(asked.rows, sequence), memory, sizes, a), pack.rows * sizes.width)
        else:
            output, end = _own(row(y, sequence), memory, sizes, a), pack.rows * max(sizes.vocabulary, 1)
            outputs_of_rows(rows, pack.rows, outward, stride, weights, output, workspace, sizes, o, a)
            clear(at(output, end), y.shape[1] - end)
        sequence = next_task(counters)


@inner
def _head(worker, counters, asked, head, w, workspaces, sizes, o, a):
    """Compute the logits of rows. The rows are divided into as many equal parts as there are workspaces; each part is a
    task.
    """
    memory, (count, c), (parts, _) = row(workspaces, worker), asked.rows.shape, workspaces.shape
    workspace, weights = _own(memory, memory, sizes, a), _own(pointer(w), memory, sizes, a)
    outward, stride = _own(pointer(head), memory, sizes, a), head.size // c
    rows, output = _own(pointer(asked.rows), memory, sizes, a), _own(pointer(asked.y), memory, sizes, a)
    number = next_task(counters)
    while number < parts:
        first, last = number * count // parts, (number + 1) * count // parts
        own = at(output, first * sizes.vocabulary)
        outputs_of_rows(at(rows, first * c), last - first, outward, stride, weights, own, workspace, sizes, o, a)
        number = next_task(counters)


@inner
def _losses(worker, counters, x, lengths, places, asked, head, w, workspaces, position, sizes, o, t, a):
    """Compute losses; each task is one group of sequences."""
    memory, group, step, starts = row(workspaces, worker), next_task(counters), step_of(asked.shares), asked.starts
    workspace, weights = _own(memory, memory, sizes, a), _own(pointer(w), memory, sizes, a)
    inputs, outward = _own(pointer(x), memory, sizes, a), _own(pointer(head), memory, sizes, a)
    targets, counts = _own(pointer(asked.target), memory, sizes, a), _own(pointer(asked.shares), memory, sizes, a)
    stride = head.size // sizes.width
    while group < asked.losses.size:
        loss, done, last = 0.0, starts[group], starts[group + 1]
        while done < last:
            pack = pack_from(done, last, sizes.length, lengths, places)
            stream_forward(inputs, weights, weights, workspace, position, None, pack, sizes, o, t, a)
            loss += pack_loss(targets, counts, step, outward, stride, weights, workspace, pack, sizes, o, a)[0]
            done = pack.last
        asked.losses[group] = loss
        group = next_task(counters)


@inner
def _logits(worker, counters, x, lengths, places, asked, head, w, workspaces, position, sizes, o, t, a):
    """Compute logits in a single task, because one sequence is not divided."""
    memory, sequence, stride = row(workspaces, worker), next_task(counters), head.size // sizes.width
    if sequence:
        return
    workspace, weights = _own(memory, memory, sizes, a), _own(pointer(w), memory, sizes, a)
    inputs, outward = _own(pointer(x), memory, sizes, a), _own(pointer(head), memory, sizes, a)
    whole = pack_from(sequence, sequence + 1, sizes.length, lengths, places)
    pack = Pack(whole.first, whole.last, whole.rows, lengths, places, asked.before[0], lengths, ALONE, ALONE)
    stream_forward(inputs, weights, weights, workspace, position, None, pack, sizes, o, t, a)
    last = at(rows_of_stream(workspace, sizes, a), (pack.rows - 1) * sizes.width)
    output = _own(pointer(asked.y), memory, sizes, a)
    outputs_of_rows(last, pack.last - pack.first, outward, stride, weights, output, workspace, sizes, o, a)


@entry(label="the forward pass")
def forward(team, counters, x, lengths, places, asked, head, w, workspaces, position, sizes, o, t, a):
    """Compute the result that `asked` selects, for a batch x (B, n); one workspace per worker. head: (C * R,), the C
    rows of the head, of R >= V elements each, of which the first V are read; in a model of numbers, R = V = 1.

    All results are compiled as one function, because most of their code is the same: the model.
    """
    on_team(
        team, _forward_worker,
        (pointer(counters), x, lengths, places, asked, head, w, workspaces, by_address(with_pointers(position)),
         by_address(sizes), by_address(o), by_address(t), by_address(a)),
    )  # fmt: skip
