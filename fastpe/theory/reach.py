"""How far back attention reaches with a bias (Q7), and the certified window outside which keys can be dropped (Q8)."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mpmath
import numpy as np

from fastpe.base.validation import array, at_least_zero, finite, positive, whole
from fastpe.theory.decay import decay_of
from fastpe.theory.softmax import entropy, one_row, upward, weights
from fastpe.theory.value import Value, certified, exact

Array = np.ndarray[Any, Any]

SHARE = 0.99  # share of the weight that a window must hold

_SLACK = 2.0**-44  # tolerance in the logarithm of the odds, for rounding errors


@dataclass(frozen=True)
class Reach:
    """How far attention reaches if all contents are equal.

    Attributes
    ----------
    perplexity : Value
        exp of the entropy of the row, that is, the number of equally weighted keys with the same entropy.
    window : Value
        The smallest w such that the distances 0 .. w-1 hold 99 % of the weight. In a causal row these are w keys.
    beyond : Value or None
        The weight on distances of at least the training length. None if no training length is given.
    """

    perplexity: Value
    window: Value
    beyond: Value | None


def reaches(rows: Array, *, train_length: int | None = None, distances: Array | None = None) -> list[Reach]:
    """Return the reach of rows of biases, one for each head.

    Parameters
    ----------
    rows : (heads, n)
        The biases that each head adds to the scores of one query.
    train_length : int, optional
    distances : (n,), optional
        The distances of the keys. The default is 0, 1, ..., n-1, as in the rows of `fastpe.theory.biases.last_row`. In
        a bidirectional model, most distances occur twice.

    Returns
    -------
    list of Reach
        One for each head.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong shape or is not finite.

    Source: Q7.

    Examples
    --------
    >>> found = reaches(-0.002 * np.arange(200.0)[None], train_length=50)[0]
    >>> round(found.perplexity.value, 6), found.window.value, round(found.beyond.value, 3)
    (198.67641, 198.0, 0.711)
    """
    rows = finite("rows", array("rows", rows), np.float64)
    if rows.ndim != 2 or not rows.size:
        raise ValueError(f"rows must have shape (heads, n), not {rows.shape}")
    apart = np.arange(rows.shape[1]) if distances is None else array("distances", distances)
    if apart.shape != rows.shape[1:]:
        raise ValueError(f"distances must have shape ({rows.shape[1]},), not {apart.shape}")
    order = np.argsort(apart, kind="stable")
    found = weights(rows)
    inputs = {"length": rows.shape[1]}
    return [_of_row(head, found[head], apart, order, train_length, inputs) for head in range(len(rows))]


def _of_row(
    head: int, shares: Array, distances: Array, order: Array, train_length: int | None, inputs: Mapping[str, Any]
) -> Reach:
    held = np.cumsum(shares[order])
    last = int(np.argmax(held >= SHARE * (1.0 - 1e-12)))  # tolerates rounding errors for equal weights
    given = {**inputs, "head": head}
    beyond = None
    if train_length is not None:
        far = float(shares[distances >= whole("train_length", train_length, 1)].sum())
        beyond = exact(far, "weight of all keys at distances of at least N", **given, train_length=train_length)
    return Reach(
        exact(float(np.exp(entropy(shares))), "exp of the entropy of the row of P0", **given),
        exact(
            float(distances[order[last]]) + 1.0, f"number of distances that hold {SHARE:.0%} of the row of P0", **given
        ),
        beyond,
    )


def reach_over_length(row_of: Callable[[int], Array], lengths: Sequence[int], train_length: int) -> dict[str, Array]:
    """Return curves of the reach over the length of a causal text.

    Parameters
    ----------
    row_of : function
        Maps a length to the biases of the last query by distance, (heads, n).
    lengths : sequence of int
    train_length : int

    Returns
    -------
    dict
        "perplexity", "window" and "beyond", each (heads, lengths).

    Examples
    --------
    >>> curves = reach_over_length(lambda n: -0.5 * np.arange(float(n))[None], [1, 10, 1000], 10)
    >>> curves["perplexity"].round(4).tolist(), curves["window"].tolist()
    ([[1.0, 5.2742, 5.4931]], [[1.0, 9.0, 10.0]])
    """
    found = [reaches(row_of(length), train_length=train_length) for length in lengths]
    return {
        name: np.array([[getattr(head, name).value for head in each] for each in found]).T
        for name in ("perplexity", "window", "beyond")
    }


def limit(
    scheme: str, *, train_length: int | None = None, both_sides: bool = False, **parameters: float
) -> Reach | None:
    """Return the limit of the reach of one head for endless texts, in closed form.

    The values are infinite if the reach has no limit.

    Parameters
    ----------
    scheme, **parameters
        The same as for `fastpe.theory.decay.decay_of`.
    train_length : int, optional
    both_sides : bool
        Whether the query has keys on both sides. If so, the bias must be even in the offset.

    Returns
    -------
    Reach or None
        None if the limit is not known, as for registered encodings.

    Raises
    ------
    TypeError, ValueError
        For the same reasons as `fastpe.theory.decay.decay_of`.

    Examples
    --------
    >>> found = limit("alibi", slope=0.002)
    >>> round(found.perplexity.value, 6), found.window.value
    (1359.141141, 2303.0)
    >>> limit("t5").perplexity.value, limit("t5").perplexity.why
    (inf, 'infinite: all distances of at least max_distance share one number')
    """
    decay, why = decay_of(scheme, **parameters)
    if why is None:
        return None
    inputs: dict[str, Any] = {"scheme": scheme, **parameters, "both_sides": both_sides}
    far = None if train_length is None else whole("train_length", train_length, 1)
    if decay is None:
        endless = exact(math.inf, why, **inputs)
        return Reach(endless, endless, None if far is None else exact(1.0, why, **inputs, train_length=far))
    decay = decay.both_sides() if both_sides else decay
    total = decay.total
    window = decay.least(lambda tail: tail <= (1.0 - SHARE) * total)
    beyond = None if far is None else exact(float(decay.tail(far) / total), why, **inputs, train_length=far)
    return Reach(
        exact(decay.perplexity(), why, **inputs),
        exact(float(window), why, **inputs),
        beyond,
    )


def dropped_weight(row: Array, window: int, content: float = 0.0, *, both_sides: bool = False) -> Value:
    """Return the largest weight that keys farther than `window` can have, for content scores of size at most S.

    The far keys have this weight if the content scores are S for all far keys and -S for all near keys. Dropping the
    far keys changes an output by at most this weight times the diameter of the values. Queries with fewer keys before
    them lose less weight.

    Parameters
    ----------
    row : (n,)
        Biases by distance.
    window : int
        The largest distance that is kept. In a causal row window + 1 keys are kept.
    content : float
        S, the largest absolute value of a content score.
    both_sides : bool
        Whether the query is in the middle of a bidirectional text. If so, the bias must be even in the offset.

    Raises
    ------
    TypeError, ValueError
        If the row is not finite, or the window or the content is negative.

    Source: P7.

    Examples
    --------
    >>> round(dropped_weight(np.zeros(100), 89).value, 12)
    0.1
    """
    return _dropped(one_row("row", row), whole("window", window, 0), at_least_zero("content", content), both_sides)


def _dropped(row: Array, window: int, content: float, both_sides: bool) -> Value:
    far, near = _parts(row, both_sides)
    if window + 1 >= len(row):
        bound = 0.0
    else:
        left = float(near[window] - far[window + 1]) - 2.0 * content - _rounding(row)
        bound = upward(1.0 / (1.0 + math.exp(min(700.0, left))))
    return certified(
        "e^2S T / (e^2S T + H), where T and H are the sums of e^bias over far and near keys (P7)",
        high=min(1.0, bound), window=window, content=content, length=len(row), both_sides=both_sides,
    )  # fmt: skip


def _rounding(row: Array) -> float:
    """Return a bound on the total rounding error of two logarithms of sums over the row."""
    return 2.0**-50 * len(row)


def _parts(row: Array, both_sides: bool) -> tuple[Array, Array]:
    """Return the logarithms of the sums of e^bias over distances >= d and over distances <= d, for each d."""
    sides = row + math.log(2.0) * (np.arange(len(row)) > 0) if both_sides else row
    return np.logaddexp.accumulate(sides[::-1])[::-1], np.logaddexp.accumulate(sides)


def certified_window(row: Array, tolerance: float, content: float = 0.0, *, both_sides: bool = False) -> Value:
    """Return the smallest window outside which at most `tolerance` of the weight can lie.

    The other arguments are those of `dropped_weight`.

    Parameters
    ----------
    tolerance : float
        Largest weight outside the window, in (0, 1).

    Returns
    -------
    Value
        The largest distance w that must be kept. In a causal row, w + 1 keys are kept. If all keys must be kept, w is
        n - 1.

    Source: P7, Q8.

    Examples
    --------
    >>> certified_window(-0.5 * np.arange(1000.0), 2.0**-24).value
    33.0
    """
    row, content, odds = one_row("row", row), at_least_zero("content", content), _odds(tolerance)
    far, near = _parts(row, both_sides)
    enough = np.append(far[1:] - near[:-1] + 2.0 * content <= odds - _rounding(row), True)
    window = float(np.argmax(enough))
    return certified(
        "from this window on the dropped weight is at most the tolerance (P7)", high=window,
        tolerance=tolerance, content=content, length=len(row), both_sides=both_sides,
    )  # fmt: skip


def _odds(tolerance: float) -> float:
    """Return the logarithm of tolerance / (1 - tolerance)."""
    if not positive("tolerance", tolerance) < 1.0:
        raise ValueError(f"tolerance must lie in (0, 1), not {tolerance}")
    return math.log(tolerance) - math.log1p(-tolerance)


def endless_window(
    scheme: str, tolerance: float, content: float = 0.0, *, both_sides: bool = False, **parameters: float
) -> Value | None:
    """Return `certified_window` of one head for endless texts. It also holds for every query of a finite text.

    Parameters
    ----------
    scheme, **parameters
        The same as for `fastpe.theory.decay.decay_of`.

    Returns
    -------
    Value or None
        Infinite if the bias has no finite reach. None if it is not known whether the bias has a finite reach.

    Source: P7; for ALiBi w + 1 >= ln(1/q) / slope, where q = d / (d + (1 - d) e^2S) and d is the tolerance.

    Examples
    --------
    >>> endless_window("alibi", 2.0**-24, 5.0, slope=0.002).value, endless_window("sandwich", 0.01).value
    (13317.0, inf)
    """
    odds = _odds(tolerance) - 2.0 * at_least_zero("content", content)
    decay, why = decay_of(scheme, **parameters)
    if why is None:
        return None
    given: dict[str, Any] = {
        "scheme": scheme,
        **parameters,
        "tolerance": tolerance,
        "content": content,
        "both_sides": both_sides,
    }
    if decay is None:
        return certified(why, high=math.inf, **given)
    decay = decay.both_sides() if both_sides else decay
    most = decay.total / (1 + mpmath.exp(_SLACK - odds))
    kept = decay.least(lambda tail: tail <= most)
    why = f"the dropped weight is at most the tolerance (P7); {why}"
    return certified(why, high=float(max(0, kept - 1)), **given)
