"""Positions that follow from tokens: the rules of `fastpe.model.positions`.

A rule reads the tokens of a sequence once, from first to last. Its state is a few integers per sequence, so that
generation can continue where the prompt ended. In Python, for one sequence:

    digits       run = run + 1 if token in digits else 0;      place = run + k if run else 0
    documents    place = next;   next = 0 if token in separators else place + 1

`fastpe.attention` and other functions of arrays do not need this module: select rows of a table with
``table[places]`` and rotations with ``angles[:, places]``, and separate documents with ``spans``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from fastpe.base.draws import Draws
from fastpe.base.random import Stream
from fastpe.encodings.encoding import BeyondTrainingLength
from fastpe.model.positions import Coupled, Digits, Documents, Rule, Segments

Array = np.ndarray[Any, Any]


class Placed(NamedTuple):
    """The positions of the tokens of a call, as kernels take them.

    Parameters
    ----------
    rows : (2, B, N) int64
        Rows of the table and of the rotations; or (1, B or 1, 1): the first row of the table, which the other rows
        follow.
    spans : (layers or 1, B, N, 2) int64 or None
        The keys that each query sees, if that depends on the sequence.
    state : array or None
        State of the rule after the last token, if there is a rule.
    """

    rows: Array
    spans: Array | None
    state: Array | None


class Places(NamedTuple):
    """The row of the table and of the rotations for each token (B, N), and the rule's state after the last token."""

    table: Array
    angles: Array
    state: Array


def follow(rule: Rule, tokens: Array, state: Array | None = None) -> Places:
    """Return the positions of tokens (B, N), without random shifts.

    state: state of the rule after the preceding tokens.

    Examples
    --------
    >>> follow(Digits(0, tuple(range(10))), np.array([[12, 3, 1, 4, 10, 1, 5, 11]])).table.tolist()
    [[0, 1, 2, 3, 0, 1, 2, 0]]
    >>> follow(Documents((9,)), np.array([[5, 6, 9, 7, 8]])).table.tolist()
    [[0, 1, 2, 0, 1]]
    """
    if isinstance(rule, Digits):
        runs = _runs(np.isin(tokens, rule.digits), None if state is None else state[:, 0])
        return Places(runs, np.zeros_like(runs), runs[:, -1:])
    if isinstance(rule, Coupled):
        return _coupled(rule, tokens, state)
    return _apart(rule, tokens, state)


def _runs(inside: Array, before: Array | None) -> Array:
    """Return the length of the unbroken run of `inside` that ends at each token, (B, N)."""
    places = np.arange(inside.shape[1])
    first = np.zeros(len(inside), np.int64) if before is None else before
    outside = np.where(inside, -1 - first[:, None], places)
    return places - np.maximum.accumulate(outside, axis=1)


def _apart(rule: Documents | Segments, tokens: Array, state: Array | None) -> Places:
    """Return positions within documents or segments. The state has two numbers for the next token, its position and its
    segment number; they are valid unless this token begins a document or segment.
    """
    count, n = tokens.shape
    places, ends = np.arange(n), np.isin(tokens, rule.separators)
    known = np.zeros((count, 2), np.int64) if state is None else state
    if rule.first and state is None:
        known[:, 1] -= ends[:, 0]  # the first token begins the first segment, not the second
    # where a document or segment begins: the index of its first token; elsewhere the beginning of the continued one
    firsts = np.where(ends, places if rule.first else places + 1, -known[:, :1])
    begun = np.maximum.accumulate(np.concatenate([-known[:, :1], firsts], axis=1), axis=1)
    before = known[:, 1:] + np.concatenate([np.zeros((count, 1), np.int64), np.cumsum(ends, axis=1)], axis=1)
    own = slice(1, None) if rule.first else slice(None, -1)
    within, number = places - begun[:, own], before[:, own]
    after = np.stack([n - begun[:, -1], before[:, -1]], axis=1)
    if isinstance(rule, Documents):
        return Places(within, within, after)
    return Places(np.minimum(within, rule.rows - 1), number, after)


def _coupled(rule: Coupled, tokens: Array, state: Array | None) -> Places:
    """Return the positions of tokens by position coupling.

    The state has three numbers: the lengths of the current and of the longest run of digits, and the number of tokens
    since `equals`, which is -1 before `equals`.

    Raises
    ------
    ValueError
        If a sequence is continued before its operands have ended, because positions of earlier digits would change.
    """
    known = np.tile(np.array([0, 0, -1]), (len(tokens), 1)) if state is None else state
    ordinary, places = rule.order != "reversed", np.arange(tokens.shape[1])
    if state is not None and ordinary and (known[:, 2] < 0).any():
        raise ValueError(
            f"prompt must include token {rule.equals}, after which the answer follows: "
            "positions in numbers that begin with their most significant digit depend on where the numbers end"
        )
    equal = tokens == rule.equals
    first = np.where(equal.any(axis=1), equal.argmax(axis=1), tokens.shape[1])
    since = places - np.where(known[:, 2] >= 0, -1 - known[:, 2], first)[:, None]
    digits = np.isin(tokens, rule.digits) & (since < 0)
    runs = _runs(digits, known[:, 0])
    longest = np.maximum(known[:, 1], runs.max(axis=1))
    operands = _runs(digits[:, ::-1], None)[:, ::-1] if ordinary else runs
    answers = np.maximum(longest[:, None] + 2 - since, 0) if rule.order == "ordinary" else since
    table = np.where(since < 0, operands, answers)
    after = np.stack([runs[:, -1], longest, since[:, -1]], axis=1)
    return Places(table, np.zeros_like(table), after)


def begun(rule: Rule, places: Places) -> Array:
    """Return the rows of the table and of the rotations in testing, (2, B, N)."""
    table = places.table + 1 if isinstance(rule, Coupled) else places.table
    return np.stack([table, places.angles]).astype(np.int64)


def drawn(rule: Rule, places: Places, within: Array, stream: Stream) -> Array:
    """Return the rows of the table and of the rotations in a training step, (2, B, N). within (B, N): which tokens
    belong to sequences.
    """
    table, draws = places.table, Draws(stream)
    if isinstance(rule, Digits):
        table = np.where(table > 0, table + draws.integers(rule.most + 1, (1,))[0], 0)
    if isinstance(rule, Coupled):
        spare = rule.last - np.where(within, table, 0).max(axis=1)
        table = table + 1 + draws.integers(np.maximum(spare, 1), (len(table),))[:, None]
    return np.stack([table, places.angles]).astype(np.int64)


def checked(rule: Rule, places: Array, within: Array, rows: int) -> Array:
    """Return the rows (2, B, N), with 0 beyond the ends of sequences.

    Raises
    ------
    fastpe.BeyondTrainingLength
        If a row is beyond the end of the table.
    """
    places = np.ascontiguousarray(np.where(within, places, 0))
    if (wrong := np.argwhere(places[0] >= rows)).size:
        sequence, token = map(int, wrong[0])
        raise BeyondTrainingLength(
            f"token {token} of sequence {sequence} has the position {places[0, sequence, token]} by "
            f"positions={str(rule)!r}, but the table has {rows} rows"
        )
    return places


def spans(places: Array, lengths: Array, length: int, sight: Array | None, *, causal: bool, before: int = 0) -> Array:
    """Return the first key, and the last key plus 1, that each query sees within its document.

    The result is (layers or 1, B, n, 2) int64.

    Parameters
    ----------
    places : (B, n) integers
        Positions of the last n tokens within their documents.
    lengths : (B or 1,) integers
    length : int
        Number of positions, N.
    sight : (layers, N, 2) integers or None
        The keys that queries would see without documents.
    before : int
        Number of earlier tokens.
    """
    t = before + np.arange(places.shape[1])
    first = t - places
    last = np.broadcast_to(t + 1, first.shape)
    if not causal:
        starts = np.where(places == 0, t, length)
        following = np.minimum.accumulate(starts[:, ::-1], axis=1)[:, ::-1]
        last = np.concatenate([following[:, 1:], np.full((len(places), 1), length)], axis=1)
        last = np.minimum(last, lengths[:, None])
    found = np.stack([first, np.maximum(last, first)], axis=-1)[None]
    if sight is not None:
        own = sight[:, None, before : before + places.shape[1]]
        low = np.maximum(found[..., 0], own[..., 0])
        found = np.stack([low, np.maximum(np.minimum(found[..., 1], own[..., 1]), low)], axis=-1)
    return np.ascontiguousarray(found, np.int64)
