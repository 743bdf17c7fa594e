"""The model on a batch: the loops that fork, over sequences, and over parameters for their update.

Same bits at any number of threads: a batch is cut into a fixed number of *groups* of sequences, each group sums its
gradients in order into its own row, and the rows are added in order. Threads only choose who runs which
(`kernels.threads`); a whole training step forks once.

Sequences of a batch may differ in length: of what lies past the end of one nothing is read or computed, and the slots
are those of the longest that there is room for.
"""

import numpy as np

from fastpe.kernels._jit import entry, inner
from fastpe.kernels.adam import adam
from fastpe.kernels.gemm import FROM, OVERWRITE, transpose
from fastpe.kernels.loss import step_of
from fastpe.kernels.model import head_of_rows, of_length, sequence_backward, sequence_loss, stream_forward
from fastpe.kernels.simd import at, lanes, part, plain, pointer, row, store_first, zeros
from fastpe.kernels.threads import claim, finish, in_lanes, wait_for

CHUNK = np.int64(4096)  # parameters that one task of the optimiser updates


@inner
def _clear(p, n):
    for j in range(0, n, lanes(p)):
        store_first(p, j, zeros(p), n - j)


@inner
def _clear_gradients(g, stride, sizes, o):
    """All but the matrices of the layers, which the first sequence overwrites."""
    _clear(g, o.layers)
    for layer in range(sizes.layers):
        vectors = o.layers + layer * o.layer_stride + plain(o.qkv_bias)
        _clear(at(g, vectors), o.layer_stride - plain(o.qkv_bias))
    rest = o.layers + sizes.layers * o.layer_stride
    _clear(at(g, rest), stride - rest)


@inner
def _group_gradients(x, target, shares, step, lengths, first, last, w, wt, g, stride, arena, position, sizes, o, t, a):
    """Loss and gradients (into g) of the sequences first .. last - 1."""
    _clear_gradients(g, stride, sizes, o)
    loss = 0.0
    for sequence in range(first, last):
        begin, n = sequence * sizes.length, lengths[min(sequence, lengths.size - 1)]
        own, x_own, shares_own = of_length(sizes, n), part(x, begin, n), at(shares, begin * step)
        stream_forward(x_own, w, arena, position, own, o, a)
        found, count = sequence_loss(part(target, begin, n), shares_own, step, w, arena, own, o, a)
        loss += found
        grow = OVERWRITE if sequence == first else FROM
        sequence_backward(x_own, w, wt, g, grow, shares_own, step, count, arena, position, own, o, t, a)
    return loss


@inner
def _step_lane(lane, board, x, target, shares, lengths, w, wt, panels, gradients, groups, losses, arenas, position,
               moments, rates, chunks, sizes, o, t, a):  # fmt: skip
    """Tasks of three phases: transpose a panel of a matrix; go through a group of sequences; update some parameters."""
    transposes, (rows, stride), batch = panels.shape[0], gradients.shape, x.shape[0]
    before_update = transposes + groups
    task = claim(board)
    while task < before_update + chunks:
        if task < transposes:
            _transpose_panel(pointer(w), pointer(wt), panels, task)
        elif task < before_update:
            wait_for(board, transposes)
            group = task - transposes
            losses[group] = _group_gradients(
                pointer(x), pointer(target), pointer(shares), step_of(shares), lengths, batch * group // groups,
                batch * (group + 1) // groups, pointer(w), pointer(wt), row(gradients, group), stride,
                row(arenas, lane), position, sizes, o, t, a,
            )  # fmt: skip
        else:
            wait_for(board, before_update)
            start = (task - before_update) * CHUNK
            adam(
                pointer(w), pointer(moments), at(pointer(moments), w.size), pointer(gradients), stride, rows, start,
                min(start + CHUNK, w.size), rates,
            )  # fmt: skip
        finish(board)
        task = claim(board)
    wait_for(board, before_update + chunks)  # lanes that leave together need not wake each other up


@inner
def _transpose_panel(w, wt, panels, number):
    """panels (P, 5): a panel's start in w, its rows and columns, where its transpose starts in wt, and that one's row.

    The transposes are made anew in every step: parameters are the user's to change.
    """
    columns = panels[number, 2]
    transpose(
        at(w, panels[number, 0]), columns, at(wt, panels[number, 3]), panels[number, 4], panels[number, 1], columns
    )


@entry(label="the training step")
def step(crew, board, x, target, shares, lengths, w, wt, panels, gradients, groups, losses, arenas, position, moments,
         rates, chunks, steps, sizes, o, t, a):  # fmt: skip
    """Losses (G,) and gradients (G, stride) of a batch x, target (B, n) in `groups` groups, then Adam on w (P,).

    shares (B n,), or (1,) where all are the same: what the targets have of the mean, as in `kernels.loss`. lengths
    (B,), or (1,) where all are the same. Tokens are whole numbers in the type of w, so that everything is compiled once
    for scalars and tokens. One arena per lane.
    moments (2, P), steps (1,) of updates; without one `chunks` is 0, without gradients there are no groups, no panels.
    """
    in_lanes(
        crew, _step_lane,
        (pointer(board), x, target, shares, lengths, w, wt, panels, gradients, groups, losses, arenas, position,
         moments, rates, chunks, sizes, o, t, a),
    )  # fmt: skip
    if chunks:
        steps[0] += 1


@inner
def _forward_lane(lane, board, x, lengths, y, w, arenas, position, sizes, o, a):
    """One task is one sequence."""
    arena = row(arenas, lane)
    sequence = claim(board)
    while sequence < x.shape[0]:
        n = lengths[min(sequence, lengths.size - 1)]
        own, rows = of_length(sizes, n), at(arena, a.streams + sizes.layers * a.stream_stride)
        stream_forward(part(pointer(x), sequence * sizes.length, n), pointer(w), arena, position, own, o, a)
        head_of_rows(rows, n, pointer(w), arena, own, o, a)
        end = n * max(sizes.vocabulary, 1)
        for i in range(end):
            y[sequence, i] = arenas[lane, plain(a.output) + i]
        for i in range(end, y.shape[1]):
            y[sequence, i] = 0.0
        sequence = claim(board)


@entry(label="the forward pass")
def forward(crew, board, x, lengths, y, w, arenas, position, sizes, o, a):
    """y (B, n), or (B, n V) logits, from x (B, n), 0 past the lengths; one arena per lane."""
    in_lanes(crew, _forward_lane, (pointer(board), x, lengths, y, w, arenas, position, sizes, o, a))


@inner
def _losses_lane(lane, board, x, target, shares, lengths, losses, w, arenas, position, sizes, o, a):
    """One task is one group of sequences, as in a step, so that the sums have the same order."""
    arena, batch, groups, group = row(arenas, lane), x.shape[0], losses.size, claim(board)
    step = step_of(shares)
    while group < groups:
        loss = 0.0
        for sequence in range(batch * group // groups, batch * (group + 1) // groups):
            begin, n = sequence * sizes.length, lengths[min(sequence, lengths.size - 1)]
            own, target_own = of_length(sizes, n), part(pointer(target), begin, n)
            stream_forward(part(pointer(x), begin, n), pointer(w), arena, position, own, o, a)
            loss += sequence_loss(target_own, at(pointer(shares), begin * step), step, pointer(w), arena, own, o, a)[0]
        losses[group] = loss
        group = claim(board)


@entry(label="the loss")
def losses(crew, board, x, target, shares, lengths, losses, w, arenas, position, sizes, o, a):
    """losses (G,), those of the groups of a batch x, target (B, n), which add up to the mean; one arena per lane."""
    in_lanes(crew, _losses_lane, (pointer(board), x, target, shares, lengths, losses, w, arenas, position, sizes, o, a))
