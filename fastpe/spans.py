"""The interval of keys that each query sees: arrays for the argument `spans` of `fastpe.attention`.

Every function except `positions` returns an integer array (B or 1, N, 2). For each query, the array holds the index of
the first key that the query sees and the index after the last key. `intersect` combines several such arrays: for
example a window and documents, or left padding and causal attention.

>>> both = intersect(causal(4), padding(4, left=[1]))
>>> both.tolist()
[[[1, 1], [1, 2], [1, 3], [1, 4]]]
"""

from typing import Any

import numpy as np

from fastpe.base import validation
from fastpe.base.validation import FARTHEST, whole

Array = np.ndarray[Any, Any]

__all__ = ["causal", "documents", "intersect", "padding", "positions", "prefix", "window"]


def causal(queries: int, keys: int | None = None, *, offset: Any = None) -> Array:
    """Spans of causal attention: a query sees the keys up to its own position.

    Parameters
    ----------
    queries, keys : int
        Number of queries and number of keys. By default, there are as many keys as queries.
    offset : int or (B,) int, optional
        The position of the first query; by default keys - queries, so that the last query sees all keys.

    Returns
    -------
    (B or 1, queries, 2) int64

    Raises
    ------
    TypeError, ValueError
        If a size or an offset is not an integer of at least 0.

    Examples
    --------
    >>> causal(2, 5).tolist(), causal(1, 9, offset=[3, 4]).tolist()
    ([[[0, 4], [0, 5]]], [[[0, 4]], [[0, 5]]])
    """
    places, keys = _places(queries, keys, offset)
    return _joined(np.zeros_like(places), places + 1, keys)


def window(queries: int, keys: int | None = None, *, back: int, ahead: int = 0, offset: Any = None) -> Array:
    """Spans of a window: a query sees keys at most `back` positions before it and `ahead` positions after it.

    Parameters
    ----------
    queries, keys, offset
        As for `causal`.
    back, ahead : int
        How far a query sees in each direction; with 0 and 0 it sees only its own position.

    Returns
    -------
    (B or 1, queries, 2) int64

    Raises
    ------
    TypeError, ValueError
        As for `causal`.

    Examples
    --------
    >>> window(3, back=1).tolist()
    [[[0, 1], [0, 2], [1, 3]]]
    """
    places, keys = _places(queries, keys, offset)
    back, ahead = (min(whole(name, value, 0), 2 * FARTHEST) for name, value in (("back", back), ("ahead", ahead)))
    return _joined(places - back, places + ahead + 1, keys)


def positions(queries: int, keys: int | None = None, *, offset: Any = None) -> Array:
    """The positions of queries. `causal`, `prefix` and `window` compute spans from them.

    Parameters
    ----------
    queries, keys, offset
        As for `causal`.

    Returns
    -------
    (B or 1, queries) int64

    Raises
    ------
    TypeError, ValueError
        As for `causal`.

    Examples
    --------
    >>> positions(2, 5).tolist()
    [[3, 4]]
    """
    count = whole("queries", queries, 0, FARTHEST)
    keys = count if keys is None else whole("keys", keys, 0, FARTHEST)
    first = np.array([keys - count]) if offset is None else _samples("offset", offset, FARTHEST)
    _check_room(len(first), count)
    return np.asarray(first[:, None] + np.arange(count))


def documents(ids: Any = None, *, cu_seqlens: Any = None) -> Array:
    """Spans of documents packed into one row: a query sees the keys of its own document.

    Parameters
    ----------
    ids : (N,) or (B, N) int
        The number of each token's document. Tokens of a document must be adjacent: an id that occurs again later starts
        another document.
    cu_seqlens : (documents + 1,) int
        An alternative to `ids`: the start of each document (0 for the first), followed by the end of the last document.

    Returns
    -------
    (B or 1, N, 2) int64

    Raises
    ------
    TypeError, ValueError
        If neither or both of `ids` and `cu_seqlens` are given, if they are not integers, or if `cu_seqlens` decreases
        or does not begin with 0.

    Examples
    --------
    >>> documents([7, 7, 3]).tolist(), documents(cu_seqlens=[0, 2, 3]).tolist()
    ([[[0, 2], [0, 2], [2, 3]]], [[[0, 2], [0, 2], [2, 3]]])
    """
    if (ids is None) == (cu_seqlens is None):
        raise ValueError("documents needs exactly one of ids and cu_seqlens")
    if ids is None:
        edges = validation.integers("cu_seqlens", cu_seqlens, 0, FARTHEST)
        if edges.ndim != 1 or edges.size < 2 or edges[0] != 0 or (np.diff(edges) < 0).any():
            raise ValueError(f"cu_seqlens must rise from 0, not {edges.tolist()}")
        _check_room(1, int(edges[-1]))
        lengths = np.diff(edges)
        return np.stack([np.repeat(edges[:-1], lengths), np.repeat(edges[1:], lengths)], axis=-1)[None]
    rows = validation.integer_array("ids", ids)
    if rows.ndim not in (1, 2) or 0 in rows.shape:
        raise ValueError(f"ids must have the shape (N,) or (B, N), not {rows.shape}")
    return np.stack([_edges(row) for row in np.atleast_2d(rows)])


def prefix(lengths: Any, queries: int, keys: int | None = None, *, offset: Any = None) -> Array:
    """Spans of a prefix LM: all queries see the prefix, and attention is causal after it.

    Parameters
    ----------
    lengths : int or (B,) int
        The length of the prefix: one number for all samples, or one for each sample.
    queries, keys, offset
        As for `causal`.

    Returns
    -------
    (B or 1, queries, 2) int64

    Raises
    ------
    TypeError, ValueError
        As for `causal`.

    Examples
    --------
    >>> prefix(2, 3).tolist()
    [[[0, 2], [0, 2], [0, 3]]]
    """
    places, keys = _places(queries, keys, offset)
    whole_prefix = _samples("lengths", lengths)
    _same_samples(lengths=whole_prefix, offset=places)
    last = np.maximum(places + 1, whole_prefix[:, None])
    return _joined(np.zeros_like(last), last, keys)


def padding(keys: int, *, left: Any = 0, right: Any = 0, queries: int | None = None) -> Array:
    """Spans of the keys that are not padding. If `queries` is not given, queries at padding positions see no key.

    Parameters
    ----------
    keys : int
        Number of keys, including padding.
    left, right : int or (B,) int
        Number of padding keys at the left and right end.
    queries : int, optional
        Number of queries; by default as many as keys.

    Returns
    -------
    (B or 1, queries, 2) int64

    Raises
    ------
    TypeError, ValueError
        As for `causal`; also if there is more padding than keys.

    Examples
    --------
    >>> padding(3, left=[0, 1]).tolist()
    [[[0, 3], [0, 3], [0, 3]], [[1, 1], [1, 3], [1, 3]]]
    """
    keys = whole("keys", keys, 0, FARTHEST)
    count = keys if queries is None else whole("queries", queries, 0, FARTHEST)
    ends = {name: _samples(name, value, keys) for name, value in (("left", left), ("right", right))}
    _same_samples(**ends)
    _check_room(max(map(len, ends.values())), count)
    first, last = np.broadcast_arrays(ends["left"], keys - ends["right"])
    spans = np.repeat(np.stack([first, np.maximum(first, last)], axis=-1)[:, None], count, axis=1)
    if queries is None:
        places = np.arange(count)
        away = (places < first[:, None]) | (places >= last[:, None])
        spans[..., 1] = np.where(away, spans[..., 0], spans[..., 1])
    return spans


def intersect(*spans: Any) -> Array:
    """Spans of the keys that are visible in all given spans.

    Parameters
    ----------
    *spans : (B or 1, N, 2) int
        One or more arrays of spans.

    Returns
    -------
    (B or 1, N, 2) int64

    Raises
    ------
    TypeError, ValueError
        If no spans are given, or if their shapes do not match.

    Examples
    --------
    >>> intersect(causal(3), documents([0, 0, 1])).tolist()
    [[[0, 1], [0, 2], [2, 3]]]
    """
    arrays = [validation.integers(f"spans[{number}]", each, clipped=True) for number, each in enumerate(spans)]
    if not arrays or any(each.ndim != 3 or each.shape[-1] != 2 for each in arrays):
        raise ValueError(f"spans must have the shape (B or 1, N, 2), not {[each.shape for each in arrays]}")
    if len({each.shape[1] for each in arrays}) > 1:
        raise ValueError(f"spans must have the same number of queries, not {[each.shape[1] for each in arrays]}")
    _same_samples(**{f"spans[{number}]": each for number, each in enumerate(arrays)})
    first = np.maximum.reduce(np.broadcast_arrays(*(each[..., 0] for each in arrays)))
    last = np.minimum.reduce(np.broadcast_arrays(*(each[..., 1] for each in arrays)))
    return np.stack([first, np.maximum(first, last)], axis=-1)


def _samples(name: str, value: Any, most: int = validation.LARGEST) -> Array:
    """Check that the value has one integer of at least 0 for each sample, and return it as (B or 1,)."""
    array = np.atleast_1d(validation.integers(name, value, 0, most))
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name} must be an integer, or one for each sample, not an array of shape {array.shape}")
    return array


def _check_room(samples: int, queries: int) -> None:
    """Raise ValueError for spans that need more memory than this machine has."""
    validation.room(f"spans of queries={queries}", 16 * samples * queries, "need")


def _same_samples(**arrays: Array) -> None:
    """Raise ValueError for arrays with different numbers of samples, except 1, which applies to all samples."""
    if len({len(each) for each in arrays.values()} - {1}) > 1:
        sizes = ", ".join(f"{name} {len(each)}" for name, each in arrays.items())
        raise ValueError(f"{' and '.join(arrays)} must have the same number of samples, or one for all, not {sizes}")


def _places(queries: int, keys: int | None, offset: Any) -> tuple[Array, int]:
    """Return the positions of queries, (B or 1, N), and the number of keys."""
    places = positions(queries, keys, offset=offset)
    return places, whole("keys", queries if keys is None else keys)


def _joined(first: Array, last: Array, keys: int) -> Array:
    first, last = np.clip(first, 0, keys), np.clip(last, 0, keys)
    return np.stack([first, np.maximum(first, last)], axis=-1)


def _edges(row: Array) -> Array:
    """Return, for each entry of a row, the start and the end of the run of equal entries that contains it: (N, 2)."""
    starts = np.flatnonzero(np.concatenate([[True], row[1:] != row[:-1]]))
    lengths = np.diff(np.append(starts, len(row)))
    return np.stack([np.repeat(starts, lengths), np.repeat(starts + lengths, lengths)], axis=-1)
