"""Biases on attention scores: their values, size and effect on attention, and changes at longer lengths (Q10).

All results are computed from the arrays that `fastpe.build` returns, whatever the parameters are. A row "by distance"
is the row of the last query of a causal model, with the nearest key first. P0 is the softmax of the bias, that is, the
attention weights if all products of query and key are equal.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fastpe.base.validation import array, at_least_zero, finite, whole
from fastpe.theory.softmax import variation_bound, weights
from fastpe.theory.value import Value, exact

Array = np.ndarray[Any, Any]

_BLOCK = 2**21  # number of scores in memory at once


def rows(slots: Mapping[str, Any], length: int, first: int = 0, stop: int | None = None) -> Array:
    """Return the sum of the slots `bias`, `scores` and `index` for some queries and all keys, in the order of the keys.

    Parameters
    ----------
    slots : dict
        The slots that `fastpe.build` returns for `length` positions. Slots that add nothing to a score are ignored.
    length : int
        Number of positions N.
    first, stop : int
        Rows are returned for the queries first .. stop - 1. The default of `stop` is the number of positions.

    Returns
    -------
    (heads, stop - first, N) float64
        If `slots` has none of the three slots, the array is zero and has one head.

    Raises
    ------
    TypeError, ValueError
        If a slot does not fit the length, or has an axis for several samples.

    Examples
    --------
    >>> import fastpe
    >>> rows(fastpe.build("alibi", 3, slope=0.5), 3).tolist()
    [[[0.0, -0.5, -1.0], [-0.5, 0.0, -0.5], [-1.0, -0.5, 0.0]]]
    """
    length, first = whole("length", length, 1), whole("first", first)
    stop = length if stop is None else whole("stop", stop)
    if not 0 <= first < stop <= length:
        raise ValueError(f"first and stop must satisfy 0 <= first < stop <= {length}, not be {first} and {stop}")
    found = np.zeros((1, stop - first, length))
    if "bias" in slots:
        bias = _slot("bias", slots["bias"], 2)
        far = bias.shape[1] // 2
        offsets = np.arange(length) - np.arange(first, stop)[:, None]
        found = found + bias[:, offsets.clip(-far, far) + far]
    if "scores" in slots:
        found = found + _square("scores", _slot("scores", slots["scores"], 3), length)[:, first:stop]
    if "index" in slots:
        index = _square("index", np.asarray(slots["index"])[None], length)[0, first:stop]
        found = found + _slot("values", slots["values"], 2)[:, index]
    return found


def _slot(name: str, value: Any, axes: int) -> Array:
    found = array(name, value)
    if found.ndim != axes or not found.size:
        raise ValueError(f"{name} must have {axes} axes, those of one sample, not shape {found.shape}")
    return finite(name, found, np.float64)


def _square(name: str, value: Array, length: int) -> Array:
    if value.shape[1:] != (length, length):
        raise ValueError(f"{name} must be made for length {length}, not of shape {value.shape}")
    return value


def last_row(slots: Mapping[str, Any], length: int) -> Array:
    """Return the biases of the last query of a causal model by distance, (heads, N).

    Parameters
    ----------
    slots : dict
        The slots that `fastpe.build` returns for `length` positions.
    length : int
        Number of positions N.

    Examples
    --------
    >>> import fastpe
    >>> last_row(fastpe.build("alibi", 3, slope=0.5), 3).tolist()
    [[0.0, -0.5, -1.0]]
    """
    return rows(slots, length, whole("length", length, 1) - 1)[:, 0, ::-1]


def _seen(slots: Mapping[str, Any], length: int, causal: bool) -> Iterator[Array]:
    """Yield blocks of queries with their biases, (heads, rows, N); the bias is -inf where a key is hidden."""
    wanted = slots.get("bias", slots.get("scores", slots.get("values", np.zeros((1, 1)))))
    step = max(1, _BLOCK // (whole("length", length, 1) * len(wanted)))
    for first in range(0, length, step):
        stop = min(first + step, length)
        found = rows(slots, length, first, stop)
        if causal:
            found[:, np.arange(length) > np.arange(first, stop)[:, None]] = -np.inf
        yield found


def _by_offset(slots: Mapping[str, Any], length: int, causal: bool) -> tuple[Array, Array] | None:
    """Return the biases at the offsets 0, -1, ... and those at 0, 1, ..., each (heads, N).

    The result is None if biases depend on more than the offset.
    """
    if "scores" in slots or "index" in slots:
        return None
    before = last_row(slots, length)
    return before, np.full_like(before, -np.inf) if causal else rows(slots, length, 0, 1)[:, 0]


def _extremes(slots: Mapping[str, Any], length: int, causal: bool) -> tuple[Array, Array]:
    """Return the smallest and the largest bias that each query sees, both (heads, N)."""
    if (sides := _by_offset(slots, length, causal)) is not None:
        before, after = sides
        after = before[:, :1] + np.zeros_like(before) if causal else after
        low, high = (
            over(over.accumulate(before, axis=-1), over.accumulate(after, axis=-1)[:, ::-1])
            for over in (np.minimum, np.maximum)
        )
        return low, high
    found = [
        (np.where(np.isinf(each), np.inf, each).min(axis=-1), each.max(axis=-1))
        for each in _seen(slots, length, causal)
    ]
    return np.concatenate([low for low, _ in found], axis=1), np.concatenate([high for _, high in found], axis=1)


def _columns_of_offsets(slots: Mapping[str, Any], length: int, causal: bool) -> Array | None:
    """Compute the column sums of P0 by a convolution.

    The result is None if biases depend on more than the offset, or if some bias is more than 1 above the bias at
    offset 0. Otherwise no key has more than e times the weight of the key at offset 0, which every query sees, and the
    convolution loses no precision.
    """
    sides = _by_offset(slots, length, causal)
    if sides is None or max(float((each - each[:, :1]).max()) for each in sides[: 1 if causal else 2]) > 1.0:
        return None
    from scipy.signal import fftconvolve

    before, after = (np.exp(each - sides[0][:, :1]) for each in sides)
    after[:, 0] = 0.0  # offset 0 is in both arrays and counts once
    inverse = 1.0 / (np.cumsum(before, axis=-1) + np.cumsum(after, axis=-1)[:, ::-1])
    kernel = np.concatenate([before[:, :0:-1], before[:, :1] + after[:, :1], after[:, 1:]], axis=1)
    found: Array = fftconvolve(kernel, inverse, axes=-1)[:, length - 1 : 2 * length - 1]
    return found


def oscillations(slots: Mapping[str, Any], length: int, *, causal: bool) -> list[Value]:
    """Return the oscillation of the bias for each head: the largest difference max - min over the keys of one query.

    Parameters
    ----------
    slots : dict
        The slots that `fastpe.build` returns for `length` positions.
    length : int
        Number of positions.
    causal : bool
        Whether keys after the query are hidden.

    Examples
    --------
    >>> import fastpe
    >>> round(oscillations(fastpe.build("alibi", 50, slope=0.002, dtype="float64"), 50, causal=True)[0].value, 6)
    0.098
    """
    low, high = _extremes(slots, length, causal)
    return _by_head(
        (high - low).max(axis=-1),
        "the largest max - min of the bias over the keys of a query",
        length=length,
        causal=causal,
    )


def largest_sizes(slots: Mapping[str, Any], length: int, *, causal: bool) -> list[Value]:
    """Return, for each head, the largest |bias| of all pairs of a query and a key that the query sees.

    The arguments are those of `oscillations`. Source: Li 2025, section 4.2 (C26, C52, C53).

    Examples
    --------
    >>> import fastpe
    >>> largest_sizes(fastpe.build("alibi", 3, heads=2), 3, causal=True)[0].value
    0.125
    """
    low, high = _extremes(slots, length, causal)
    return _by_head(
        np.maximum(-low, high).max(axis=-1),
        "the largest |b| over all pairs of query and key",
        length=length,
        causal=causal,
    )


def effects(slots: Mapping[str, Any], length: int, *, causal: bool) -> list[Value]:
    """Bound, for each head, the total variation by which the bias changes a row of attention, whatever the content is.

    The arguments are those of `oscillations`. Source: P6, TV <= tanh(osc/4).

    Examples
    --------
    >>> import fastpe
    >>> round(effects(fastpe.build("alibi", 200, slope=0.002, dtype="float64"), 200, causal=True)[0].value, 6)
    0.099173
    """
    found = oscillations(slots, length, causal=causal)
    return [variation_bound(each.value, **each.inputs) for each in found]


def column_maxima(slots: Mapping[str, Any], length: int, *, causal: bool) -> list[Value]:
    """Return the largest column sum of P0 for each head. A column sum adds the weights of one key over all queries.

    Lipschitz bounds use this number (P5). The arguments are those of `oscillations`. Without a bias the sum is 1 in a
    bidirectional model, and 1 + 1/2 + ... + 1/N in a causal model.

    Examples
    --------
    >>> round(column_maxima({}, 50, causal=True)[0].value, 6)
    4.499205
    """
    total = _columns_of_offsets(slots, length, causal)
    if total is None:
        total = sum((weights(found).sum(axis=1) for found in _seen(slots, length, causal)), start=np.zeros((1, length)))
    return _by_head(total.max(axis=-1), "the largest column sum of P0", length=length, causal=causal)


def _by_head(values: Array, why: str, **inputs: Any) -> list[Value]:
    return [exact(float(value), why, **inputs, head=head) for head, value in enumerate(values)]


def worst(values: Sequence[Value]) -> Value:
    """Return the largest of the values of the heads. The inputs of the result name the head.

    Parameters
    ----------
    values : sequence of Value
        The values of the heads, at least one.

    Examples
    --------
    >>> import fastpe
    >>> worst(oscillations(fastpe.build("alibi", 9, heads=4), 9, causal=True)).inputs["head"]
    0
    """
    return max(values, key=lambda each: each.value)


def drifts(trained: Array, tested: Array, *, offsets: tuple[Array, Array] | None = None) -> list[Value]:
    """Return, for each head, the total variation between a row of P0 at the training length and a row at a longer one.

    Keys at the same distance are compared. If the bias depends only on the distance, the result is the weight of the
    keys beyond the training length.

    Parameters
    ----------
    trained, tested : (heads, n), (heads, n')
        Biases by distance at both lengths.
    offsets : ((n,), (n',)) of integers, optional
        The offset of each key at both lengths, for example for a query of a bidirectional model. The default is the
        distances 0, 1, ...

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong shape or is not finite, or if `trained` and `tested` do not have the same number of
        heads.

    Source: Q10, C74.

    Examples
    --------
    >>> round(drifts(-0.002 * np.arange(50.0)[None], -0.002 * np.arange(100.0)[None])[0].value, 6)
    0.475021
    """
    trained, tested = _slot("trained", trained, 2), _slot("tested", tested, 2)
    if len(trained) != len(tested):
        raise ValueError(f"tested must have the {len(trained)} heads of trained, not {len(tested)}")
    here, there = (np.arange(each.shape[1]) for each in (trained, tested)) if offsets is None else offsets
    _, old, new = np.intersect1d(here, there, assume_unique=True, return_indices=True)
    before, after = weights(trained), weights(tested)
    left = np.delete(after, new, axis=1).sum(axis=-1) + np.delete(before, old, axis=1).sum(axis=-1)
    found = (np.abs(before[:, old] - after[:, new]).sum(axis=-1) + left) / 2.0
    return _by_head(
        found,
        "total variation between rows of P0, with keys aligned by offset",
        train_length=len(here),
        length=len(there),
    )


def alibi_drift(slope: float, train_length: int, length: int) -> Value:
    """Return, in closed form, `drifts` of a causal row with the bias -a * distance.

    The result is (e^-aN - e^-aN') / (1 - e^-aN'), or 1 - N/N' if a is 0.

    Parameters
    ----------
    slope : float
        The slope a, at least 0.
    train_length, length : int
        N and N', with N' at least N.

    Examples
    --------
    >>> round(alibi_drift(0.002, 50, 200).value, 9), alibi_drift(0.0, 50, 200).value
    (0.711348595, 0.75)
    """
    at_least_zero("slope", slope)
    train_length = whole("train_length", train_length, 1)
    length = whole("length", length, train_length)
    inputs = {"slope": slope, "train_length": train_length, "length": length}
    if slope == 0.0:
        return exact(1.0 - train_length / length, "1 - N/N', the limit for slope 0", **inputs)
    left = math.expm1(-slope * (length - train_length)) / math.expm1(-slope * length)
    return exact(math.exp(-slope * train_length) * left, "(e^-aN - e^-aN') / (1 - e^-aN')", **inputs)
