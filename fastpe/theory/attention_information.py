"""Information about positions, in nats, that attention weights and single attention scores carry."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from fastpe.base import validation
from fastpe.theory.value import Value, exact

Array = np.ndarray[Any, Any]

_BLOCK = 2**21  # number of weights in a block of queries
_STEPS, _REACH = 100, 10  # integral over a score: steps per standard deviation, and standard deviations on either side
_POINTS, _TERMS = 8192, 512  # numbers of points and of distances that are computed together


def attention_information(rows: Any) -> Value:
    """Return I(query position; attended position) for a uniform query: (1/n) sum_i KL(P_i || mean of all P_i).

    Parameters
    ----------
    rows : array_like (n, m), or iterable of such blocks
        The attention weights of each query over the keys: numbers of at least 0 that sum to 1 in each row. For long
        sequences, pass blocks of rows, such as `zero_content_rows` yields, to save memory.

    Returns
    -------
    Value
        Exact.

    Raises
    ------
    ValueError
        If a row is not a probability distribution.

    Examples
    --------
    >>> round(attention_information([[1.0, 0.0], [0.0, 1.0]]).value, 6)
    0.693147
    """
    blocks = rows if isinstance(rows, Iterator) else [rows]
    total, entropies, count = np.zeros(0), 0.0, 0
    for block in blocks:
        weights = _distributions(block)
        total = total if count else np.zeros(weights.shape[1])
        if weights.shape[1] != len(total):
            raise ValueError(f"rows must have {len(total)} keys in every block, not {weights.shape[1]}")
        total += weights.sum(axis=0)
        entropies += _entropy(weights)
        count += len(weights)
    if not count:
        raise ValueError("rows must hold at least one distribution")
    value = max(_entropy(total / count) - entropies / count, 0.0)
    return exact(
        value, "I3: mean divergence of a row of attention weights from the mean row", queries=count, keys=len(total)
    )


def _distributions(block: Any) -> Array:
    weights = validation.array("rows", block).astype(np.float64)
    if weights.ndim != 2 or not weights.size:
        raise ValueError(f"rows must have the shape (queries, keys), not {weights.shape}")
    sums = weights.sum(axis=1)
    if not (weights.min() >= 0 and np.abs(sums - 1.0).max() < 1e-4):
        raise ValueError("rows must be distributions: every weight at least 0, and every row with the sum 1")
    weights /= sums[:, None]
    return weights


def _entropy(weights: Array) -> float:
    """Return the sum of the entropies of all rows."""
    logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
    return -float(np.vdot(weights, logs))


def zero_content_rows(bias: Any, length: int, causal: bool) -> Iterator[Array]:
    """Yield the attention weights if all content scores are equal: the softmax of a bias, in blocks of queries.

    Parameters
    ----------
    bias : array_like (2K + 1,)
        The bias of one head at each offset, key - query, from -K to K. Offsets below -K have the bias of -K, and
        offsets above K have the bias of K. [0] means no bias.
    length : int
        Number n of queries and of keys.
    causal : bool
        Whether keys after the query are hidden.

    Yields
    ------
    (512 or fewer, n) array

    Examples
    --------
    >>> next(zero_content_rows([0.0], 3, causal=True)).round(3).tolist()
    [[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.333, 0.333, 0.333]]
    """
    by_offset = validation.finite("bias", validation.array("bias", bias), np.float64)
    length, causal = validation.whole("length", length, 1), validation.truth("causal", causal)
    if by_offset.ndim != 1 or not len(by_offset) % 2:
        raise ValueError(f"bias must have the shape (2K + 1,), not {by_offset.shape}")
    return _softmax_blocks(by_offset, length, causal)


def _softmax_blocks(by_offset: Array, length: int, causal: bool) -> Iterator[Array]:
    reach = len(by_offset) // 2
    rows = max(1, min(512, _BLOCK // length))
    for start in range(0, length, rows):
        offsets = np.arange(length) - np.arange(start, min(start + rows, length))[:, None]
        scores = by_offset[np.clip(offsets, -reach, reach) + reach]
        if causal:
            scores[offsets > 0] = -np.inf
        np.exp(scores - scores.max(axis=1, keepdims=True), out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        yield scores


def causal_mean_information(length: int) -> Value:
    """Return `attention_information` of causal attention without a bias, in closed form: H(J) - ln(n!) / n.

    J is the attended key, with P(J = j) = (H_n - H_j) / n for j from 0; H_n are harmonic numbers.

    Parameters
    ----------
    length : int
        Number n of queries and of keys.

    Examples
    --------
    >>> round(causal_mean_information(50).value, 9)
    0.541976082
    """
    length = validation.whole("length", length, 1)
    tails = np.cumsum(1.0 / np.arange(length, 0, -1.0))[::-1]  # H_n - H_j
    value = _entropy(tails / length) - math.lgamma(length + 1.0) / length
    return exact(max(value, 0.0), "I3: closed form for uniform causal rows", length=length)


def offset_information(bias: Any, sigma: float = 1.0) -> Value:
    """Return I(D; b(D) + sigma e), the information in one score about a uniform distance D.

    D is uniform over the distances 0 .. n - 1. The score is the bias b(D) plus normal noise, sigma e, which stands for
    the content.

    Parameters
    ----------
    bias : array_like (n,)
        The bias b of one head at each distance.
    sigma : float
        Standard deviation of the content scores.

    Returns
    -------
    Value
        Exact: it follows from the entropy of a mixture of normal distributions, which is integrated with an error below
        1e-12. The input `gaussian` of the value is an upper bound, (1/2) ln(1 + Var b / sigma^2).

    Examples
    --------
    >>> round(offset_information(-0.002 * np.arange(50)).value, 9)
    0.000416327
    """
    shifts = validation.finite("bias", validation.array("bias", bias), np.float64)
    if shifts.ndim != 1 or not shifts.size:
        raise ValueError(f"bias must have the shape (distances,), not {shifts.shape}")
    sigma = validation.positive("sigma", sigma)
    centred = shifts - shifts[0]
    centred = (centred - centred.mean()) / sigma
    places, counts = np.unique(centred, return_counts=True)
    gaussian = 0.5 * math.log1p(float(np.mean(centred**2)))
    value = min(max(_mixture_information(places, counts / len(shifts)), 0.0), gaussian)
    return exact(value, "I4: entropy of a mixture of normal distributions, by the trapezoidal rule", sigma=sigma,
                 gaussian=gaussian, distances=len(shifts))  # fmt: skip


def _mixture_information(places: Array, weights: Array) -> float:
    """Return the entropy of a mixture of unit normal distributions around `places`, minus the entropy of one of them.

    `places` are in ascending order. The trapezoidal rule computes the integral up to ten standard deviations from each
    place. Its error falls faster than any power of the step, because the integrand is analytic around the real line.
    The part of the integral that is left out is below 1e-22.
    """
    step, entropy = 1.0 / _STEPS, 0.0
    for points in _grid(places):
        density = np.zeros(len(points))
        near = slice(*np.searchsorted(places, [points[0] - 2 * _REACH, points[-1] + 2 * _REACH]))
        for start in range(near.start, near.stop, _TERMS):
            part = slice(start, min(start + _TERMS, near.stop))
            density += np.exp(-0.5 * (points[:, None] - places[part]) ** 2) @ weights[part]
        density *= step / math.sqrt(2.0 * math.pi)
        positive = density[density > 0]
        entropy -= float(np.sum(positive * (np.log(positive) - math.log(step))))
    return entropy - 0.5 * math.log(2.0 * math.pi * math.e)


def _grid(places: Array) -> Iterator[Array]:
    """Yield, in blocks, points in steps of 0.01 that are at most 10 from the nearest of `places`."""
    first = np.floor((places - _REACH) * _STEPS)
    last = np.ceil((places + _REACH) * _STEPS)
    ends = np.flatnonzero(np.append(first[1:] > last[:-1], True))
    starts = np.append(0, ends[:-1] + 1)
    for begin, end in zip(first[starts], last[ends], strict=True):
        for start in range(0, int(end - begin) + 1, _POINTS):
            yield (begin + np.arange(start, min(start + _POINTS, int(end - begin) + 1))) / _STEPS
