"""Optimise a table of given norm, so that the lower bound of its information about the position becomes large."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastpe.base import validation
from fastpe.base.random import Stream
from fastpe.theory.value import Value, certified

Array = np.ndarray[Any, Any]

ROWS = 512
_GROW, _SHRINK = 1.5, 0.25  # factors of the step size after an accepted step and after a rejected one
_LEAST = 1e-14  # the ascent ends at a step below this size, relative to the norm of the table


@dataclass(frozen=True)
class MaximalTable:
    """The result of `maximal_table`, with the history of the optimisation.

    Attributes
    ----------
    table : (length, dim) float64
    history : (steps + 1,) float64
        The lower bound in nats before the first step and after each step. The numbers never fall.
    information : Value
        The bound that the table reaches, certified from below.
    ceiling : Value
        A number that the lower bound of no table of this power exceeds, certified from above. With n - 1 channels or
        more, the table of a simplex reaches it. With fewer channels it is not known how close a table can come.
    """

    table: Array
    history: Array
    information: Value
    ceiling: Value


def maximal_table(
    length: int, dim: int, sigma: float = 1.0, *, power: float | None = None, equal_rows: bool = False,
    steps: int = 200, seed: int = 0, initial: Any = None,
) -> MaximalTable:  # fmt: skip
    """Maximise the lower bound of `position_information` over tables of the same norm, by gradient ascent.

    The objective is not concave. The ascent ends near a stationary point, which depends on the initial table. The
    result need not be the maximum of the bound or of the information.

    Parameters
    ----------
    length, dim : int
        Positions n and channels d.
    sigma : float
        Standard deviation of the noise that is added to the rows.
    power : float, optional
        Mean squared norm of the rows, (1/n) sum T^2, which every step keeps. The default is the power of `initial` or,
        without `initial`, d / 2, the power of the sinusoidal table.
    equal_rows : bool
        Whether the squared norm of every row must be `power`. Otherwise only the mean over the rows must be `power`.
    steps : int
        Largest number of steps.
    seed : int
        Seed of the initial table of independent normal numbers.
    initial : array_like (length, dim), optional
        An initial table to use instead, for example of another encoding. It is scaled to `power`.

    Returns
    -------
    MaximalTable

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range, or if `equal_rows` is set and a row of `initial` is 0.

    Notes
    -----
    I7. Let ``w[p, q]`` be the softmax over q of -D[p, q] / 8 sigma^2. The gradient at row r is
    sum_q (w[r, q] + w[q, r]) (T[r] - T[q]) / (4 n sigma^2). The ceiling holds because ln mean_q exp(-D / 8 sigma^2) is
    convex in the distances, whose mean over pairs is at most 2 n power / (n - 1). So equal distances, as in a simplex,
    are best.

    The table can be used as the initial value of the encoding "learned", which training then changes:
    ``fastpe.build("learned", length, dim=dim, params={"table": found.table})`` fills the slot, and
    ``model.parameters["encoding.learned.table"][...] = found.table`` sets it in a model before training.
    bench/maximal.py registers it as a fixed table.

    Examples
    --------
    >>> found = maximal_table(4, 3, power=6.0)
    >>> bool(found.history[-1] > found.history[0]), round(found.ceiling.high - found.information.low, 6)
    (True, 0.0)
    >>> from fastpe import build
    >>> slots = build("learned", 4, dim=3, params={"table": found.table})
    >>> bool((slots["table"] == found.table.astype("float32")).all())
    True
    """
    length, dim = validation.whole("length", length, 1), validation.whole("dim", dim, 1)
    sigma, steps = validation.positive("sigma", sigma), validation.whole("steps", steps, 0)
    equal_rows = validation.truth("equal_rows", equal_rows)
    begin = _begin(length, dim, seed, initial)
    mean = float(np.mean(np.sum(begin**2, axis=1)))
    wanted = validation.positive("power", (dim / 2 if initial is None else mean) if power is None else power)
    table, history = _climb(_scaled(begin, wanted, equal_rows), wanted, equal_rows, sigma, steps)
    inputs = {"length": length, "dim": dim, "sigma": sigma, "power": wanted, "steps": len(history) - 1, "seed": seed}
    information = certified("P12: the lower bound of this table", low=float(history[-1]), **inputs)
    ceiling = certified(
        "I7: the bound is convex in the distances, so equal distances are best",
        high=_ceiling(length, wanted, sigma),
        **inputs,
    )
    return MaximalTable(table, history, information, ceiling)


def _begin(length: int, dim: int, seed: int, initial: Any) -> Array:
    if initial is None:
        return Stream(seed, "maximal").normal((length, dim))
    table = validation.finite("initial", validation.array("initial", initial), np.float64)
    if table.shape != (length, dim):
        raise ValueError(f"initial must have the shape {(length, dim)}, not {table.shape}")
    return table


def _ceiling(length: int, power: float, sigma: float) -> float:
    if length == 1:
        return 0.0
    distance = 2.0 * length * power / (length - 1)
    return math.log(length) - math.log1p((length - 1) * math.exp(-distance / (8.0 * sigma**2)))


def _climb(table: Array, power: float, equal_rows: bool, sigma: float, steps: int) -> tuple[Array, Array]:
    """Run projected gradient ascent. A step that would not raise the bound is shortened until it does."""
    reached, gradient = lower_bound_and_gradient(table, sigma)
    history, norm, step = [reached], math.sqrt(power * len(table)), 0.1
    while len(history) <= steps:
        along = _tangent(gradient, table, equal_rows)
        size = float(np.linalg.norm(along))
        if size <= _LEAST * max(1.0, reached) or step < _LEAST:
            break
        tried = _scaled(table + (step * norm / size) * along, power, equal_rows)
        value, uphill = lower_bound_and_gradient(tried, sigma)
        if value > reached:
            table, reached, gradient, step = tried, value, uphill, min(step * _GROW, 1.0)
            history.append(value)
        else:
            step *= _SHRINK
    return table, np.array(history)


def _tangent(gradient: Array, table: Array, equal_rows: bool) -> Array:
    """Return the gradient without its part along the table (or along each row), which scaling to the norm removes."""
    axis = 1 if equal_rows else None
    share = np.sum(gradient * table, axis=axis, keepdims=True) / np.sum(table**2, axis=axis, keepdims=True)
    found: Array = gradient - share * table
    return found


def _scaled(table: Array, power: float, equal_rows: bool) -> Array:
    squares = np.sum(table**2, axis=1)
    sizes = squares[:, None] if equal_rows else np.mean(squares)
    if not np.all(sizes > 0):
        raise ValueError(
            "initial must not be 0, and with equal_rows no row of it, because it is scaled to a given norm"
        )
    scaled: Array = table * np.sqrt(power / sizes)
    return scaled


def lower_bound_and_gradient(table: Any, sigma: float) -> tuple[float, Array]:
    """Return the lower bound of `position_information` for noise sigma, and its gradient with respect to the table.

    Parameters
    ----------
    table : array_like (n, d)
    sigma : float

    Returns
    -------
    float, (n, d) float64

    Examples
    --------
    >>> value, gradient = lower_bound_and_gradient([[-1.0], [1.0]], 1.0)
    >>> round(value, 6), gradient.round(6).ravel().tolist()
    (0.21907, [-0.18877, 0.18877])
    """
    rows = validation.finite("table", validation.array("table", table), np.float64)
    if rows.ndim != 2 or not rows.size:
        raise ValueError(f"table must have the shape (positions, channels), not {rows.shape}")
    rate = 1.0 / (8.0 * validation.positive("sigma", sigma) ** 2)
    centred = rows - rows.mean(axis=0)
    total, shares, gradient = 0.0, np.ones(len(rows)), centred.copy()
    for part, near in _kernels(centred, rate):
        sums = near.sum(axis=1)
        total += float(np.log(sums / len(rows)).sum())
        near /= sums[:, None]
        shares += near.sum(axis=0)
        gradient[part] -= near @ centred
        gradient -= near.T @ centred[part]
    # for every row, sum_q (w[r, q] + w[q, r]) T[r]; `gradient` began as T[r], so this term is not added again
    gradient += (shares - 1.0)[:, None] * centred
    gradient *= 2.0 * rate / len(rows)
    return max(-total / len(rows), 0.0), gradient


def _kernels(centred: Array, rate: float) -> Iterator[tuple[slice, Array]]:
    """Yield exp(-rate D) for blocks of rows against all rows."""
    squares = np.einsum("ij,ij->i", centred, centred)
    for start in range(0, len(centred), ROWS):
        part = slice(start, min(start + ROWS, len(centred)))
        near = 2.0 * (centred[part] @ centred.T)
        near -= squares[part, None]
        near -= squares
        near *= rate
        yield part, np.exp(np.minimum(near, 0.0, out=near), out=near)
