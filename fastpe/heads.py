"""Scores of attention heads: which tokens each head attends to.

    head_scores         previous token, duplicate, induction, sink, distance and entropy, from attention weights
    frequency_use       how much each pair of rotated channels can contribute to the score

The functions take arrays, whatever model they come from: weights of `fastpe.attention_scores`, or queries and keys.
`fastpe.torch.head_scores` and `fastpe.torch.frequency_use` take a Hugging Face model.

>>> import fastpe
>>> q = np.zeros((1, 1, 4, 2))
>>> scores = head_scores([fastpe.attention_scores(q, q, causal=True)], [[5, 6, 5, 6]])
>>> round(scores["distance"].item(), 6), round(scores["induction"].item(), 6)
(1.0, 0.291667)
"""

from collections.abc import Iterable
from typing import Any

import numpy as np

from fastpe.base import validation
from fastpe.base.validation import real, whole

Array = np.ndarray[Any, Any]

__all__ = ["frequency_use", "head_scores"]

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
    queries, keys = (validation.array(name, value) for name, value in (("q", q), ("k", k)))
    fits = queries.ndim == keys.ndim == 4 and 0 not in queries.shape + keys.shape
    if not fits or queries.shape[1] % keys.shape[1] or queries.shape[::3] != keys.shape[::3]:
        raise ValueError(
            "q and k must have the shapes (B, H, N, D) and (B, Hk, M, D), without empty axes, and Hk must divide H, "
            f"not {queries.shape} and {keys.shape}"
        )
    width = queries.shape[-1]
    rotated = whole("rotated", rotated, 2, width)
    if rotated % 2:
        raise ValueError(f"rotated must be even, not {rotated}")
    validation.choice("pairs", pairs, ("interleaved", "half"))

    def norms(x: Array) -> Array:
        split = (rotated // 2, 2) if pairs == "interleaved" else (2, rotated // 2)
        squares = np.square(x[..., :rotated], dtype=np.float64).reshape(*x.shape[:-1], *split)
        return np.asarray(np.sqrt(squares.sum(-1 if pairs == "interleaved" else -2)).mean(axis=(0, 2)))

    of_keys = norms(keys).repeat(queries.shape[1] // keys.shape[1], axis=0)
    return norms(queries) * of_keys * (width**-0.5 if scale is None else real("scale", scale))
