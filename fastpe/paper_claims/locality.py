"""Weights of near and far keys in one row of biases: eq. (9) of Li (2025), and distances that outweigh content.

A row holds biases by distance, with the nearest key first, as `fastpe.theory.biases.last_row` returns them.
"""

import math
from typing import Any

import numpy as np

from fastpe.base.validation import at_least_zero, whole
from fastpe.theory.softmax import one_row, upward, weights
from fastpe.theory.value import Value, certified, exact

Array = np.ndarray[Any, Any]


def equation_9(row: Array, trained: int, tested: int) -> dict[str, Value]:
    """Evaluate eq. (9) of Li (2025) on one row of P0: the weights at two distances, their difference, and its bounds.

    The equation says |A(b_D) - A(b_N)| <= L_A |b_D - b_N|. With L_A = 1/4, it is proved for a single key if only the
    score of this key changes. For two keys of the same row, it is proved if the nearer key has at most a quarter of the
    weight.

    Parameters
    ----------
    row : (n,)
        Biases by distance, which fall with the distance.
    trained, tested : int
        The distances N <= D < n.

    Returns
    -------
    dict
        - "near", "far": the weights A_N and A_D;
        - "difference": A_N - A_D;
        - "one score": the decrease of A_N if only its own score changes, from b_N to b_D;
        - "bound": the paper's bound |b_D - b_N| / 4;
        - "sharper": the smallest proved bound on "difference".

    Raises
    ------
    TypeError, ValueError
        If the row is not finite or rises from N to D, or the distances are out of range.

    Source: C70 to C73, P6. Let x = |b_D - b_N|. Three bounds on the difference A_N - A_D are proved: A_N; tanh(x / 2),
    since two weights of one row add up to at most 1; and, if A_N <= 1/4, (1 - e^-x) / 4 <= tanh(x / 4).

    Examples
    --------
    >>> found = equation_9(-0.002 * np.arange(100.0), 50, 99)
    >>> {name: float(f"{value.value:.6g}") for name, value in found.items()}  # doctest: +NORMALIZE_WHITESPACE
    {'near': 0.00997338, 'far': 0.00904235, 'difference': 0.000931026, 'one score': 0.000922599,
     'bound': 0.0245, 'sharper': 0.00997338}
    """
    row = one_row("row", row)
    trained, tested = whole("trained", trained), whole("tested", tested)
    if not 0 <= trained <= tested < len(row):
        raise ValueError(
            f"trained and tested must satisfy 0 <= trained <= tested < {len(row)}, not be {trained} and {tested}"
        )
    if (fall := float(row[trained] - row[tested])) < 0.0:
        raise ValueError(f"row must not rise from distance {trained} to {tested}, but it does by {-fall:g}")
    shares = weights(row)
    near, far = float(shares[trained]), float(shares[tested])
    others = float(np.delete(shares, trained).sum())  # 1 - near, without cancellation
    inputs = {"length": len(row), "trained": trained, "tested": tested}
    lost = -math.expm1(-fall)
    alone = near * lost * others / (others + near * math.exp(-fall)) if others else 0.0
    slack = math.tanh(fall / (4.0 if near <= 0.25 else 2.0))
    return {
        "near": exact(near, "A_N", **inputs),
        "far": exact(far, "A_D", **inputs),
        "difference": exact(near * lost, "A_N - A_D = A_N (1 - e^(b_D - b_N))", **inputs),
        "one score": exact(alone, "the decrease of A_N if its score falls to b_D", **inputs),
        "bound": exact(fall / 4.0, "eq. (9) with L_A = 1/4; a bound of 1 or more says nothing", **inputs),
        "sharper": certified("min(A_N, tanh(x/4)), tanh(x/2) where A_N > 1/4", high=upward(min(near, slack)), **inputs),
    }


def normalised_difference(alpha0: float, train_length: int, distance: int) -> Value:
    """Return the difference of the biases at distance N and at another distance, for the slope alpha0 / N (C75).

    Parameters
    ----------
    alpha0 : float
        At least 0.
    train_length : int
        N, at least 1.
    distance : int
        The distance d, at least 0.

    Examples
    --------
    >>> round(normalised_difference(0.1, 50, 200).value, 12)
    0.3
    """
    at_least_zero("alpha0", alpha0)
    distance, train_length = whole("distance", distance, 0), whole("train_length", train_length, 1)
    apart = abs(distance - train_length) / train_length
    return exact(
        alpha0 * apart, "alpha0 |d - N| / N, for equal content", alpha0=alpha0, train_length=train_length,
        distance=distance,
    )  # fmt: skip


def weight_ratio(row: Array, near: int, far: int, content: float = 0.0) -> Value:
    """Return a lower bound of ln(w_near / w_far), where w_near and w_far are the weights of the keys at two distances.

    Parameters
    ----------
    row : (n,)
        Biases by distance.
    near, far : int
        The two distances.
    content : float
        S, the largest absolute value of a product of query and key.

    Source: ln(w_near / w_far) >= b_near - b_far - 2 S (C6, C76).

    Examples
    --------
    >>> import math
    >>> math.exp(-weight_ratio(-0.002 * np.arange(50.0), 0, 49).value).__round__(6)
    0.906649
    """
    row = one_row("row", row)
    near, far = whole("near", near), whole("far", far)
    for name, distance in (("near", near), ("far", far)):
        if not 0 <= distance < len(row):
            raise ValueError(f"{name} must be a distance of 0 .. {len(row) - 1}, not {distance}")
    apart = float(row[near] - row[far])
    inputs = {"near": near, "far": far, "content": content}
    if at_least_zero("content", content) == 0.0:
        return exact(apart, "b_near - b_far", **inputs)
    return certified("ln(w_near / w_far) >= b_near - b_far - 2 S", low=apart - 2.0 * content, **inputs)


def dominates_from(row: Array, content: float) -> Value | None:
    """Return the distance from which on every key has less weight than the nearest key, for any bounded content.

    Parameters
    ----------
    row : (n,)
        Biases by distance.
    content : float
        S, the largest absolute value of a product of query and key.

    Returns
    -------
    Value or None
        None if the farthest key of the row may still have more weight.

    Source: a key at distance D has less weight if b_0 - b_D > 2 S (C66). For ALiBi these are the distances above
    2 S / slope.

    Examples
    --------
    >>> dominates_from(-0.5 * np.arange(50.0), 1.0).value, dominates_from(-0.002 * np.arange(200.0), 1.0)
    (5.0, None)
    """
    row = one_row("row", row)
    may_win = np.flatnonzero(row[0] - row <= 2.0 * at_least_zero("content", content))
    if (first := int(may_win.max(initial=-1)) + 1) == len(row):
        return None
    return exact(float(first), "b_0 - b_D > 2 S from this distance on", content=content, length=len(row))
