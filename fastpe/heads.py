"""Scores of attention heads: which tokens each head attends to.

    head_scores         previous token, duplicate, induction, sink, distance and entropy, from attention weights
    frequency_use       how much each pair of rotated channels can contribute to the score
    frequency_share     how much each pair of rotated channels contributes to the variance of scores over keys
    position_share      the share of the variance of scores that the distance explains

The functions take arrays, whatever model they come from: weights of `fastpe.attention_scores`, or queries and keys.
`fastpe.torch.head_scores` and `fastpe.torch.frequency_use` take a Hugging Face model.

>>> import fastpe
>>> q = np.zeros((1, 1, 4, 2))
>>> scores = head_scores([fastpe.attention_scores(q, q, causal=True)], [[5, 6, 5, 6]])
>>> round(scores["distance"].item(), 6), round(scores["induction"].item(), 6)
(1.0, 0.291667)
"""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from fastpe.base import validation
from fastpe.base.validation import real, whole

Array = np.ndarray[Any, Any]

__all__ = ["frequency_share", "frequency_use", "head_scores", "position_share"]

SCORES = ("previous", "duplicate", "induction", "sink", "distance", "entropy")
"""The names of the scores."""


def head_scores(weights: Iterable[Any], tokens: Any, *, start: int = 1, sink: int = 1) -> dict[str, Array]:
    """Return scores of the heads of a layer, as means over queries and samples.

    For query i with the weights A_ij of the keys j <= i, and tokens t, the scores are:

    ============= ====================================================================================
    ``previous``  A_i,i-1, the weight of the previous token
    ``duplicate`` the weight of all keys j < i with t_j = t_i
    ``induction`` the weight of all keys j <= i with t_j-1 = t_i, the tokens after earlier copies
    ``sink``      the weight of the first `sink` keys
    ``distance``  the sum over j of A_ij (i - j)
    ``entropy``   minus the sum over j of A_ij ln A_ij, in nats
    ============= ====================================================================================

    `duplicate` and `induction` are means over the queries whose token occurs earlier, or NaN if there are none. `sink`
    is a mean over queries after the first `sink` keys.

    Parameters
    ----------
    weights : iterable of (B, H, n, M) floats
        Attention weights of consecutive queries for the first M <= N keys; those of other keys are 0. Weights of all N
        queries, such as those of `fastpe.attention_scores`, may be one array. For long sequences, a generator of blocks
        of queries needs less memory.
    tokens : (B, N) int
        The tokens. For ``induction``, take random tokens twice.
    start : int
        The first query of the means. Query 0 sees only itself, so its weights carry no information.
    sink : int
        The number of keys whose weight is ``sink``.

    Returns
    -------
    dict of (H,) float64

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type or shape.

    References
    ----------
    Olsson et al. 2022, "In-context Learning and Induction Heads" (prefix matching, as corrected by the authors: the
    weight of the token after the earlier copy); Gu et al. 2025, "When Attention Sink Emerges in Language Models"
    (arXiv:2410.10781).

    Examples
    --------
    >>> previous = np.eye(4, k=-1)
    >>> previous[0, 0] = 1.0
    >>> scores = head_scores([previous[None, None]], [[3, 4, 3, 4]])
    >>> scores["previous"].item(), scores["duplicate"].item(), scores["distance"].item()
    (1.0, 0.0, 1.0)
    """
    ids = validation.integer_array("tokens", tokens)
    if ids.ndim != 2 or ids.shape[1] < 2:
        raise ValueError(f"tokens must have the shape (B, N) with at least 2 tokens, not {ids.shape}")
    samples, count = ids.shape
    start, sink = whole("start", start, 0, count - 1), whole("sink", sink, 1, count - 1)
    sums: dict[str, Any] = dict.fromkeys(SCORES, 0.0)
    copies, first = 0, 0
    for each in weights:
        block = validation.array("weights", each)
        if block.ndim != 4 or len(block) != samples or block.shape[2] > count - first or block.shape[3] > count:
            raise ValueError(
                f"weights must have the shape (B, H, n, M) with B = {samples}, n at most {count - first} and M at most "
                f"{count}, not {block.shape}"
            )
        hidden = max(first + block.shape[2] - block.shape[3], 0)  # keys up to the last query that the block leaves out
        block = np.pad(block, [(0, 0)] * 3 + [(0, hidden)]) if hidden else block
        begin = max(start - first, 0)
        found, more = _sums(block[:, :, begin:], ids, first + begin, sink)
        sums = {name: sums[name] + found[name] for name in SCORES}
        copies += more
        first += block.shape[2]
    if first != count:
        raise ValueError(f"weights must have a row for each of the {count} tokens, not {first}")
    rows = dict.fromkeys(SCORES, samples * (count - start)) | {"sink": samples * (count - max(start, sink))}
    rows |= dict.fromkeys(("duplicate", "induction"), copies)
    return {name: sums[name] / rows[name] if rows[name] else np.full(np.shape(sums[name]), np.nan) for name in SCORES}


def _sums(weights: Array, ids: Array, first: int, sink: int) -> tuple[dict[str, Array], int]:
    """Return the sums of all scores over the queries first, first + 1, ..., and the number of these queries whose token
    occurs earlier."""
    queries = first + np.arange(weights.shape[2])
    keys = np.arange(weights.shape[3])
    earlier = (ids[:, queries, None] == ids[:, None, : len(keys)]) & (keys < queries[:, None])
    sample, row, key = np.nonzero(earlier)
    later = np.minimum(key + 1, len(keys) - 1)  # the key after an earlier copy is at most the query itself
    logs = np.log(np.maximum(weights, np.finfo(weights.dtype).tiny))
    has_previous, after = queries > 0, queries >= sink

    def total(values: Array) -> Array:
        axes = tuple(each for each in range(values.ndim) if each != 1)
        return np.asarray(np.sum(values, axis=axes, dtype=np.float64))

    found = {
        "previous": total(weights[:, :, has_previous, queries[has_previous] - 1]),
        "duplicate": total(weights[sample, :, row, key]),
        "induction": total(weights[sample, :, row, later]),
        "sink": total(weights[:, :, after, :sink]),
        "distance": total(weights * (queries[:, None] - keys).astype(weights.dtype)),
        "entropy": -total(weights * logs),
    }
    return found, int(earlier.any(axis=-1).sum())


def frequency_use(q: Any, k: Any, *, rotated: int, pairs: str = "interleaved", scale: float | None = None) -> Array:
    """Return how much each pair of rotated channels can contribute to the score, by head.

    For the pair p this is ``s mean_i |q_i^p| mean_j |k_j^p|``, where q_i^p has the two channels of the pair in query i,
    and k_j^p those in key j. By the Cauchy-Schwarz inequality, this bounds the mean contribution of the pair to the
    scores, at whatever angles the pair is rotated. A pair with a large bound is not necessarily used to attend by
    position.

    Parameters
    ----------
    q : (B, H, N, D) floats
        Queries, rotated or not.
    k : (B, Hk, M, D) floats
        Keys. Hk divides H.
    rotated : int
        The number R of rotated channels, which are the first ones.
    pairs : {"interleaved", "half"}
        Which channels are pairs, as for `fastpe.attention`.
    scale : float, optional
        The factor s of products, by default 1/sqrt(D).

    Returns
    -------
    (H, R/2) float64
        The pairs are in the order of the frequencies.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type or shape.

    References
    ----------
    Barbero et al. 2025, "Round and Round We Go! What makes Rotary Positional Encodings useful?" (arXiv:2410.06205).

    Examples
    --------
    >>> q = np.array([[[[3.0, 4.0, 0.0, 0.0]]]])
    >>> frequency_use(q, q, rotated=4).tolist()
    [[12.5, 0.0]]
    """
    queries, keys, rotated, split = _checked_pairs(q, k, rotated, pairs)

    def norms(x: Array) -> Array:
        squares = np.square(x[..., :rotated], dtype=np.float64).reshape(*x.shape[:-1], *split)
        return np.asarray(np.sqrt(squares.sum(-1 if pairs == "interleaved" else -2)).mean(axis=(0, 2)))

    of_keys = norms(keys).repeat(queries.shape[1] // keys.shape[1], axis=0)
    return norms(queries) * of_keys * _scale(queries, scale)


def frequency_share(
    q: Any, k: Any, scores: Iterable[Any], *, rotated: int, pairs: str = "interleaved", scale: float | None = None
) -> Array:
    """Return how much each pair of rotated channels contributes to the differences of scores, by head.

    It is the variance of the pair's part of the scores over the keys that a query sees, divided by the variance of the
    whole scores. Both are means over queries and samples. The parts of two pairs may be correlated, so the shares need
    not add up to 1. In contrast to `frequency_use`, the share is large only if the pair tells keys apart.

    Parameters
    ----------
    q : (B, H, N, D) floats
        Queries as they enter the product, so after rotation.
    k : (B, Hk, N, D) floats
        Keys as they enter the product. Hk divides H.
    scores : iterable of (B, H, n, M) floats
        Scores of consecutive queries for the first M keys, before the softmax; minus infinity for hidden keys. Keys
        after the query are left out.
    rotated, pairs, scale
        As for `frequency_use`.

    Returns
    -------
    (H, R/2) float64
        NaN for heads whose scores do not differ.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type or shape.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> q, k = rng.normal(size=(2, 1, 1, 9, 4)) * [1.0, 1.0, 0.0, 0.0]
    >>> frequency_share(q, k, [0.5 * q @ k.swapaxes(-1, -2)], rotated=4).tolist()
    [[1.0, 0.0]]
    """
    queries, keys, rotated, split = _checked_pairs(q, k, rotated, pairs)
    factor, count = _scale(queries, scale), queries.shape[2]
    axis = -1 if pairs == "interleaved" else -2
    by_pair = (np.moveaxis(x[..., :rotated].reshape(*x.shape[:-1], *split), axis, -1) for x in (queries, keys))
    of_queries, of_keys = (np.moveaxis(x, -2, 0) for x in by_pair)  # (R/2, B, H or Hk, N, 2)
    of_keys = of_keys.repeat(queries.shape[1] // keys.shape[1], axis=2)
    parts, whole_scores = np.zeros((queries.shape[1], rotated // 2)), np.zeros(queries.shape[1])
    for first, block, seen in _blocks("scores", scores, count):
        if block.shape[:2] != queries.shape[:2]:
            raise ValueError(f"scores must have the shape {(*queries.shape[:2], 'n', 'M')}, not {block.shape}")
        rows = slice(first, first + block.shape[2])
        whole_scores += _variances(block, seen)
        for pair, (own_q, own_k) in enumerate(zip(of_queries, of_keys, strict=True)):
            part = factor * (own_q[:, :, rows] @ np.swapaxes(own_k[:, :, : block.shape[3]], -1, -2))
            parts[:, pair] += _variances(part, seen)
    with np.errstate(invalid="ignore"):
        return np.where(whole_scores[:, None] > 0, parts / whole_scores[:, None], np.nan)


def position_share(scores: Iterable[Any]) -> Array:
    """Return the share of the variance of the scores that the distance of query and key explains (R2), by head.

    The prediction of a score is the mean over all samples and queries of the scores with the same distance. It is 1 if
    scores depend on the distance alone, and about 0 if they do not depend on it. Few scores have the largest distances,
    so with few samples, scores that are random have a share above 0: about 2 / (B N) if they are independent.

    Parameters
    ----------
    scores : iterable of (B, H, n, M) floats
        Scores of consecutive queries for the first M keys, before the softmax; minus infinity for hidden keys. Keys
        after the query are left out.

    Returns
    -------
    (H,) float64
        NaN for heads whose scores do not differ.

    Raises
    ------
    TypeError, ValueError
        If the scores have the wrong type or shape.

    Examples
    --------
    >>> distance = np.arange(6.0)[:, None] - np.arange(6.0)
    >>> position_share([-distance[None, None]]).tolist()
    [1.0]
    """
    sums = np.zeros((3, 1, 0))  # of 1, of the scores and of their squares, by head and distance
    for first, block, seen in _blocks("scores", scores):
        heads, rows, keys = block.shape[1:]
        distances = np.broadcast_to(first + np.arange(rows)[:, None] - np.arange(keys), seen[:, 0].shape)
        found = np.zeros((3, heads, max(first + rows, sums.shape[2])))
        found[..., : sums.shape[2]] = sums
        for head in range(heads):
            inside = seen[:, head]
            own = block[:, head][inside]
            for power in range(3):
                found[power, head] += np.bincount(distances[inside], own**power, found.shape[2])
        sums = found
    counts, totals, squares = sums
    count = counts.sum(axis=-1)
    mean = totals.sum(axis=-1) / count
    explained = np.sum(counts * np.square(totals / np.maximum(counts, 1) - mean[:, None]), axis=-1)
    variance = squares.sum(axis=-1) - count * mean**2
    differs = variance > 1e-12 * squares.sum(axis=-1)
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(differs, np.minimum(explained / variance, 1.0), np.nan)


def _checked_pairs(q: Any, k: Any, rotated: int, pairs: str) -> tuple[Array, Array, int, tuple[int, int]]:
    """Check queries, keys and their rotated channels, and return the shape in which channels are pairs."""
    queries, keys = (validation.array(name, value) for name, value in (("q", q), ("k", k)))
    fits = queries.ndim == keys.ndim == 4 and 0 not in queries.shape + keys.shape
    if not fits or queries.shape[1] % keys.shape[1] or queries.shape[::3] != keys.shape[::3]:
        raise ValueError(
            "q and k must have the shapes (B, H, N, D) and (B, Hk, M, D), without empty axes, and Hk must divide H, "
            f"not {queries.shape} and {keys.shape}"
        )
    rotated = whole("rotated", rotated, 2, queries.shape[-1])
    if rotated % 2:
        raise ValueError(f"rotated must be even, not {rotated}")
    validation.choice("pairs", pairs, ("interleaved", "half"))
    return queries, keys, rotated, (rotated // 2, 2) if pairs == "interleaved" else (2, rotated // 2)


def _scale(queries: Array, scale: float | None) -> float:
    return float(queries.shape[-1] ** -0.5) if scale is None else real("scale", scale)


def _blocks(name: str, blocks: Iterable[Any], count: int | None = None) -> Iterator[tuple[int, Array, Array]]:
    """Yield the first query of each block, its entries in float64, and which of them a query sees."""
    first = 0
    for each in blocks:
        block = validation.array(name, each)
        most = block.shape[-1] if count is None else count
        if (
            block.ndim != 4
            or 0 in block.shape
            or first + block.shape[2] > max(most, first + 1)
            or block.shape[3] > most
        ):
            raise ValueError(f"{name} must have the shape (B, H, n, M), not {block.shape}")
        queries, keys = first + np.arange(block.shape[2]), np.arange(block.shape[3])
        seen = (keys <= queries[:, None]) & np.isfinite(block)
        yield first, np.where(seen, block, 0).astype(np.float64), seen
        first += block.shape[2]
    if not first or first < (count or 0):
        raise ValueError(f"{name} must have a row for each of the {count or 'N'} queries, not {first}")


def _variances(values: Array, seen: Array) -> Array:
    """Return the sums over samples and queries of the variances over the keys that a query sees, (H,)."""
    counts = np.maximum(seen.sum(axis=-1, keepdims=True), 1)
    means = np.sum(values, axis=-1, keepdims=True, where=seen) / counts
    return np.asarray(np.sum(np.square(values - means) / counts, axis=(0, 2, 3), where=seen))
