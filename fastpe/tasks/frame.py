"""Builds model inputs and targets from the inputs i1 .. in and answers a1 .. am that a task draws.

The sequence and its targets depend on the kind of the task, and for answers on whether the model is causal:

    answer, causal          begin i1 .. in separator a1 .. am         separator: a1, a1: a2, ..., am: end
    answer, bidirectional   begin i1 .. in separator blank .. blank   blanks: a1 .. am, end
    labels                  begin i1 .. in                            each i: its label
    numbers                 i1 .. in                                  each i: its answer

The last column lists tokens and the targets at them. A blank is a placeholder token. Sequences of a batch may differ in
length; positions past the end of a sequence are padding, for which nothing is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from fastpe.base import validation
from fastpe.base.draws import Draws
from fastpe.base.random import Stream
from fastpe.base.validation import unmasked, whole
from fastpe.tasks.sizes import FRAME, check_length
from fastpe.tasks.task import Chosen

Array = np.ndarray[Any, Any]

NONE = -1
"""The value in answers for a missing token or a label without weight."""


class Drawn(NamedTuple):
    """The inputs (count, length), the answers (count, any), and the weights of the answers (None if all are equal)."""

    inputs: Array
    answers: Array
    weights: Array | None = None


class Sequences(NamedTuple):
    """A batch of sequences with their targets.

    Parameters
    ----------
    x, y : (count, positions)
        Inputs and targets, padded at the end: tokens int64, numbers float64.
    weights : (count, positions) float64 or None
        The weight of each target, 0 where there is no target; None if all weights are equal.
    lengths : (count,) int64 or None
        The number of positions of each sequence; None if no sequence is padded.
    """

    x: Array
    y: Array
    weights: Array | None = None
    lengths: Array | None = None


def draw(chosen: Chosen, stream: Stream, count: int, length: int, dtype: DTypeLike = np.float64) -> Drawn:
    """Draw inputs of one length and their answers from a task, and check them.

    Parameters
    ----------
    chosen : Chosen
    stream : Stream
    count, length : int
    dtype : float32 or float64
        The dtype of the model's numbers, to which drawn numbers are rounded.

    Returns
    -------
    Drawn

    Raises
    ------
    ValueError
        If the task does not allow this length, or draws something invalid; the message says what.

    Examples
    --------
    >>> from fastpe.tasks.registry import choose
    >>> draw(choose("reverse"), Stream(0, "test"), 1, 5)[:2]
    (array([[1, 1, 0, 1, 0]]), array([[0, 1, 0, 1, 1]]))
    """
    count, length = whole("count", count, 1), whole("length", length, 1)
    check_length(chosen, length)
    drawn = chosen.task.sample(Draws(stream, dtype), length, count, **chosen.options)
    most = 2 if chosen.task.kind == "answer" else 3
    if not isinstance(drawn, tuple) or not 2 <= len(drawn) <= most:
        found = f"{len(drawn)} values" if isinstance(drawn, tuple) else type(drawn).__name__
        more = ", or (inputs, answers, weights)" if most > 2 else ""
        raise ValueError(f"{chosen.whose}: sample must return (inputs, answers){more}, not {found}")
    inputs, answers = _checked(chosen, "inputs", drawn[0]), _checked(chosen, "answers", drawn[1])
    if inputs.shape != (count, length):
        raise ValueError(f"{chosen.whose}: inputs must have the shape {(count, length)}, not {inputs.shape}")
    widest = chosen.answer_length(length) if chosen.task.kind == "answer" else length
    right = answers.ndim == 2 and len(answers) == count and 1 <= answers.shape[1] <= widest
    if not right or (chosen.task.kind != "answer" and answers.shape != inputs.shape):
        wanted = f"({count}, 1 .. {widest})" if chosen.task.kind == "answer" else f"{inputs.shape}"
        raise ValueError(f"{chosen.whose}: answers must have the shape {wanted}, not {answers.shape}")
    weights = _weights(chosen, drawn[2], answers.shape) if len(drawn) > 2 else None
    _check_tokens(chosen, inputs, answers)
    counts = answers != NONE if weights is None else (answers != NONE) & (weights > 0)
    if chosen.task.kind != "numbers" and not counts.any(axis=1).all():
        raise ValueError(
            f"{chosen.whose}: every sequence needs a label with weight > 0, but one at length={length} has none"
        )
    return Drawn(inputs, answers, weights)


def sequences(
    chosen: Chosen, stream: Stream, lengths: Sequence[int] | Array, causal: bool, dtype: DTypeLike = np.float64,
    width: int | None = None,
) -> Sequences:  # fmt: skip
    """Draw framed sequences of a task whose inputs have these lengths.

    If `lengths` has several different lengths, each of them has a random stream of its own. So a longer list of lengths
    begins with the same sequences.

    Parameters
    ----------
    chosen : Chosen
    stream : Stream
    lengths : (count,) integers
    causal : bool
        Whether the model is causal.
    dtype : float32 or float64
        As in `draw`.
    width : int, optional
        The number of positions of the batch. The default is the number of positions of the longest sequence.

    Returns
    -------
    Sequences

    Examples
    --------
    >>> from fastpe.tasks.registry import choose
    >>> found = sequences(choose("reverse"), Stream(0, "test"), [2, 3], causal=True)
    >>> found.x
    array([[2, 0, 1, 3, 1, 0, 0, 0],
           [2, 1, 1, 0, 3, 0, 1, 1]])
    >>> found.weights.sum(axis=1), found.lengths
    (array([3., 4.]), array([6, 8]))
    """
    wanted = np.asarray(lengths)
    values = np.unique(wanted)
    if len(values) == 1:
        alone = _framed(chosen, draw(chosen, stream, len(wanted), int(values[0]), dtype), causal)
        if width is None or alone.x.shape[1] == width:
            return alone
    parts = []
    for length in values.tolist():
        own = Stream(stream.seed, f"{stream.stream}@{length}", stream.step) if len(values) > 1 else stream
        parts.append(_framed(chosen, draw(chosen, own, int((wanted == length).sum()), length, dtype), causal))
    width = width or max(part.x.shape[1] for part in parts)
    x, y = (np.zeros((len(wanted), width), part.dtype) for part in parts[0][:2])
    weights, ends = np.zeros(x.shape), np.zeros(len(wanted), np.int64)
    for length, part in zip(values, parts, strict=True):
        rows, own_width = np.flatnonzero(wanted == length), part.x.shape[1]
        x[rows, :own_width], y[rows, :own_width] = part.x, part.y
        weights[rows, :own_width] = 1.0 if part.weights is None else part.weights
        ends[rows] = own_width if part.lengths is None else part.lengths
    return Sequences(x, y, weights, ends)


class Part(NamedTuple):
    """Sequences of a batch whose inputs have the same length.

    Parameters
    ----------
    rows : (count,)
        The sequences of the batch.
    first : int
        The position whose target is the first token of the answer or the first label.
    inputs, answers : (count, length), (count, any)
        As they were drawn, except that answers may be wider.
    """

    rows: Array
    first: int
    inputs: Array
    answers: Array


def unframed(chosen: Chosen, data: Sequences, causal: bool) -> Iterator[Part]:
    """Return inputs and answers of framed sequences of tokens, for each length of the inputs.

    Examples
    --------
    >>> from fastpe.tasks.registry import choose
    >>> data = sequences(choose("reverse"), Stream(0, "test"), [2, 3], causal=True)
    >>> [(part.first, part.inputs.tolist(), part.answers.tolist()) for part in unframed(choose("reverse"), data, True)]
    [(3, [[0, 1]], [[1, 0, -1, -1, -1]]), (4, [[1, 1, 0]], [[0, 1, 1, -1]])]
    """
    assert data.weights is not None
    _, separator, end, _ = range(chosen.symbols, chosen.symbols + len(FRAME))
    labels, count = chosen.task.kind == "labels", len(data.x)
    if labels:
        found = np.full(count, data.x.shape[1]) if data.lengths is None else data.lengths
    else:
        found = np.argmax(data.x == separator, axis=1)
    y = np.where((data.weights > 0) & (data.y != end), data.y, NONE)
    for length in np.unique(found - 1).tolist():
        rows, first = np.flatnonzero(found - 1 == length), 1 if labels else length + 2 - causal
        answers = y[rows, first : first + length] if labels else y[rows, first:]
        yield Part(rows, first, data.x[rows, 1 : length + 1], answers)


def _framed(chosen: Chosen, drawn: Drawn, causal: bool) -> Sequences:
    inputs, answers, weights = drawn
    kind = chosen.task.kind
    if kind == "numbers":
        return Sequences(inputs, answers, weights)
    begin, separator, end, blank = range(chosen.symbols, chosen.symbols + len(FRAME))
    count, length = inputs.shape
    if kind == "labels":
        x = np.concatenate([np.full((count, 1), begin), inputs], axis=1)
        y = np.concatenate([np.full((count, 1), NONE), answers], axis=1)
        counts = (y != NONE).astype(np.float64)
        if weights is not None:
            counts[:, 1:] *= weights
        return Sequences(x, np.maximum(y, 0), counts)
    sizes = (answers != NONE).sum(axis=1)
    most = answers.shape[1]
    x = np.zeros((count, length + 2 + most), np.int64)
    x[:, 0], x[:, 1 : length + 1], x[:, length + 1] = begin, inputs, separator
    targets = np.concatenate([answers, np.full((count, 1), NONE)], axis=1)
    targets[np.arange(count), sizes] = end
    x[:, length + 2 :] = np.maximum(answers, 0) if causal else blank
    y = np.full((count, length + 2 + most), NONE)
    y[:, length + 1 :] = targets
    if not causal:  # a blank in place of each token of the answer, and one for its end
        x = np.concatenate([x, np.full((count, 1), blank)], axis=1)
        y = np.concatenate([np.full((count, 1), NONE), y], axis=1)
        return Sequences(x, np.maximum(y, 0), (y != NONE).astype(np.float64))
    ragged = (sizes < most).any()
    return Sequences(x, np.maximum(y, 0), (y != NONE).astype(np.float64), length + 2 + sizes if ragged else None)


def _checked(chosen: Chosen, name: str, value: Any) -> Array:
    unmasked(f"{name} of {chosen.whose}", value)
    array = np.asarray(value)
    if chosen.task.kind == "numbers":
        if array.dtype.kind not in "iuf" or not np.isfinite(array).all():
            raise ValueError(f"{chosen.whose}: {name} must be finite numbers")
        return array.astype(np.float64)
    if array.dtype.kind == "b":
        array = array.astype(np.int64)
    try:
        return validation.integers(f"{chosen.whose}: {name}", array)
    except TypeError as error:  # the error is in the task, not in an argument
        raise ValueError(str(error)) from None


def _weights(chosen: Chosen, value: Any, shape: tuple[int, ...]) -> Array:
    unmasked(f"weights of {chosen.whose}", value)
    weights = np.asarray(value)
    if weights.dtype.kind not in "biuf" or weights.shape != shape:
        raise ValueError(f"{chosen.whose}: weights must be {shape} numbers, not {weights.shape} of {weights.dtype}")
    if not (np.isfinite(weights).all() and weights.min() >= 0):
        raise ValueError(f"{chosen.whose}: weights must be finite and >= 0")
    return weights.astype(np.float64)


def _check_tokens(chosen: Chosen, inputs: Array, answers: Array) -> None:
    if chosen.task.kind == "numbers":
        return
    least = {"inputs": 0, "answers": NONE}
    for name, array in (("inputs", inputs), ("answers", answers)):
        if array.min() < least[name] or array.max() >= chosen.symbols:
            wrong = array[(array < least[name]) | (array >= chosen.symbols)][0]
            raise ValueError(f"{chosen.whose}: {name} must be tokens of 0 .. {chosen.symbols - 1}, not {wrong}")
    counts = answers != NONE
    if chosen.task.kind == "answer" and not (counts[:, 0].all() and (counts[:, :-1] >= counts[:, 1:]).all()):
        raise ValueError(f"{chosen.whose}: an answer must begin with a token, and -1 may only follow its last token")
