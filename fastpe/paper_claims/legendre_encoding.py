"""Computations on the Legendre encoding of Li (2025), section 6.2, for the claims C78 to C119."""

import math
from typing import Any

import numpy as np
from numpy.polynomial.legendre import leggauss, legvander

from fastpe.base.validation import choice, positive, real, whole
from fastpe.theory.pairs import Array, checked
from fastpe.theory.precision import PRECISIONS, rounded
from fastpe.theory.value import Value, exact


def step_bounds(dim: int, train_length: int, step: float, gamma: float = 1.0) -> dict[str, Value]:
    """Return the distance of the rows N and N + step, and three bounds on it (P9, C118).

    Two facts are used: |P_l'| <= l(l + 1)/2 on [-1, 1], and x(p) = tanh(gamma p / N) is concave. The bounds are:

    - "sharp": (gamma/2) sech^2(gamma) (step/N) sqrt(sum_l (l(l + 1))^2);
    - "paper": the same with 4 e^(-2 gamma) in place of the smaller sech^2(gamma);
    - "trivial": 2 sqrt(dim), since entries are in [-1, 1]. A bound above this one is useless.

    Parameters
    ----------
    dim, train_length : int
        Width d and training length N, at least 1.
    step : float
        Number of positions, at least 0.
    gamma : float
        Slope of the map x, above 0.

    Returns
    -------
    dict
        "actual", "sharp", "paper", "trivial".

    Raises
    ------
    ValueError, TypeError
        If an argument is invalid. The message names the argument, its value and what was expected.

    Examples
    --------
    >>> {name: round(value.value, 6) for name, value in step_bounds(64, 50, 1).items()}
    {'actual': 0.404522, 'sharp': 61.531758, 'paper': 79.313587, 'trivial': 16.0}
    """
    dim, n, gamma = whole("dim", dim, 1), whole("train_length", train_length, 1), positive("gamma", gamma)
    if real("step", step) < 0.0:
        raise ValueError(f"step must be at least 0, not {step}")
    size, share = math.sqrt(derivative_sum(dim).value), gamma * step / n
    rows = _rows(np.array([math.tanh(gamma), math.tanh(gamma + share)]), dim)
    sharp = share * size / (2.0 * math.cosh(gamma) ** 2) if gamma < 300.0 else 0.0
    about = {"dim": dim, "train_length": n, "step": step, "gamma": gamma}
    return {
        "actual": exact(float(np.linalg.norm(rows[1] - rows[0])), "|T[N + step] - T[N]|", **about),
        "sharp": exact(sharp, "(gamma/2) sech^2(gamma) (step/N) sqrt(sum (l(l+1))^2) (P9)", **about),
        "paper": exact(
            2.0 * share * math.exp(-2.0 * gamma) * size, "2 gamma e^(-2 gamma) (step/N) sqrt(sum) (C118)", **about
        ),
        "trivial": exact(2.0 * math.sqrt(dim), "2 sqrt(d): entries lie in [-1, 1]", **about),
    }


def derivative_sum(dim: int) -> Value:
    """Return the sum of (l(l + 1))^2 over l < d, which is (d - 1) d (d + 1) (3 d^2 - 2) / 15 (C118).

    Parameters
    ----------
    dim : int
        Width d, at least 1.

    Examples
    --------
    >>> derivative_sum(64).value
    214660992.0
    """
    d = whole("dim", dim, 1)
    return exact(float((d - 1) * d * (d + 1) * (3 * d * d - 2) // 15), "(d-1) d (d+1) (3 d^2 - 2) / 15", dim=d)


def useful_step(dim: int, train_length: int, gamma: float = 1.0) -> dict[str, Value]:
    """Return the number of positions beyond N up to which the bound of the paper is better than trivial (C119).

    Parameters
    ----------
    dim, train_length, gamma
        The same as for `step_bounds`, but dim is at least 2.

    Returns
    -------
    dict
        - "trivial": the step at which the bound of C118 equals 2 sqrt(d);
        - "claimed": N / d^2.5. The paper states this order; the constant is taken as 1;
        - "width": N^0.4, the width above which "claimed" is less than one position.

    Examples
    --------
    >>> {name: round(value.value, 6) for name, value in useful_step(64, 50).items()}
    {'trivial': 0.201731, 'claimed': 0.001526, 'width': 4.781762}
    """
    dim, n = whole("dim", dim, 2), whole("train_length", train_length, 1)
    about = {"dim": dim, "train_length": n, "gamma": gamma}
    one = step_bounds(dim, n, 1.0, gamma)
    bound = one["paper"].value
    reached = one["trivial"].value / bound if bound else math.inf
    return {
        "trivial": exact(reached, "the step at which the bound of C118 is 2 sqrt(d)", **about),
        "claimed": exact(n / dim**2.5, "N / d^2.5", **about),
        "width": exact(n**0.4, "N^(2/5)", train_length=n),
    }


def degree_step(degree: int, train_length: int, step: float = 1.0, gamma: float = 1.0) -> dict[str, Value | None]:
    """Return |P_l(x(N + step)) - P_l(x(N))| and the paper's value 2 l(l + 1) gamma (step/N) e^(-2 gamma) (C117).

    Parameters
    ----------
    degree : int
        The degree l, at least 0.
    train_length, step, gamma
        The same as for `step_bounds`.

    Returns
    -------
    dict
        "actual", "paper", and "ratio", which is "paper" divided by "actual", or None if "actual" is 0. Since P_l is in
        [-1, 1], "actual" cannot exceed 2.

    Examples
    --------
    >>> {name: round(value.value, 6) for name, value in degree_step(63, 50).items()}
    {'actual': 0.038655, 'paper': 21.826874, 'ratio': 564.660234}
    """
    degree, n, gamma = whole("degree", degree, 0), whole("train_length", train_length, 1), positive("gamma", gamma)
    share = gamma * real("step", step) / n
    before, after = _rows(np.array([math.tanh(gamma), math.tanh(gamma + share)]), degree + 1)[:, degree]
    actual, paper = float(abs(after - before)), 2.0 * degree * (degree + 1) * share * math.exp(-2.0 * gamma)
    about = {"degree": degree, "train_length": n, "step": step, "gamma": gamma}
    return {
        "actual": exact(actual, "|P_l(x(N + step)) - P_l(x(N))|", **about),
        "paper": exact(paper, "2 l(l+1) gamma (step/N) e^(-2 gamma) (C117)", **about),
        "ratio": exact(paper / actual, "the paper's value divided by the actual one", **about) if actual else None,
    }


def end_gap(gamma: float = 1.0) -> dict[str, Value]:
    """Return 1 - x(N) = 1 - tanh gamma = 2 / (e^(2 gamma) + 1), and the paper's value 2 e^(-2 gamma) (C116).

    Parameters
    ----------
    gamma : float
        Slope of the map x, above 0.

    Examples
    --------
    >>> {name: round(value.value, 9) for name, value in end_gap().items()}
    {'actual': 0.238405844, 'paper': 0.270670566}
    """
    gamma = positive("gamma", gamma)
    paper = 2.0 * math.exp(-2.0 * gamma)
    return {
        "actual": exact(paper / (1.0 + math.exp(-2.0 * gamma)), "1 - tanh(gamma)", gamma=gamma),
        "paper": exact(paper, "2 e^(-2 gamma)", gamma=gamma),
    }


def bend(gamma: float = 1.0) -> Value:
    """Return how far the paper's map is from linear: max |tanh(gamma u) - u tanh(gamma)| over u in [0, 1] (C110).

    At the maximum, both functions of u have the same slope, so cosh^2(gamma u) = gamma / tanh(gamma).

    Parameters
    ----------
    gamma : float
        Slope of the map x, above 0.

    Examples
    --------
    >>> round(bend(1.0).value, 7), round(bend(1.0).inputs["u"], 6)
    (0.0817415, 0.533784)
    """
    gamma = positive("gamma", gamma)
    u = math.acosh(max(1.0, math.sqrt(gamma / math.tanh(gamma)))) / gamma
    return exact(
        math.tanh(gamma * u) - u * math.tanh(gamma),
        "at the point where the slope of tanh(gamma u) equals that of the chord",
        gamma=gamma,
        u=u,
    )


def gram(dim: int, end: float = 0.99) -> Array:
    """Return the cosines between P_0 .. P_{dim - 1} as functions on [0, end], (dim, dim) (C112).

    For an orthogonal basis the result is the unit matrix. The integrals of products of two polynomials are computed by
    Gauss's rule with `dim` points, which is exact for them.

    Parameters
    ----------
    dim : int
        Number of polynomials, at least 1.
    end : float
        End of the interval, in (0, 1].

    Examples
    --------
    >>> gram(2).round(6).tolist()
    [[1.0, 0.866025], [0.866025, 1.0]]
    """
    dim, end = whole("dim", dim, 1), positive("end", end)
    if end > 1.0:
        raise ValueError(f"end must be at most 1, the end of the polynomials' interval, not {end}")
    points, weights = leggauss(dim)
    values = np.sqrt(weights)[:, None] * _rows((points + 1.0) * (end / 2.0), dim)
    values /= np.linalg.norm(values, axis=0)
    found: Array = values.T @ values
    return found


def near_orthonormality(dim: int, end: float = 0.99) -> dict[str, Value]:
    """Return how far P_0 .. P_{dim - 1} on [0, end] are from the "nearly orthonormal basis" that C112 calls them.

    Parameters
    ----------
    dim : int
        Number of polynomials, at least 2.
    end : float
        End of the interval, in (0, 1].

    Returns
    -------
    dict
        - "first_pair": the cosine of P_0 and P_1, which is sqrt(3)/2 for any `end`;
        - "largest", "smallest": the largest and the smallest eigenvalue of the matrix of cosines. For an orthogonal
          basis both are 1. The smallest is never below 0.

    Examples
    --------
    >>> found = near_orthonormality(64)
    >>> round(found["first_pair"].value, 9), round(found["largest"].value, 6)
    (0.866025404, 2.268151)
    """
    cosines = gram(whole("dim", dim, 2), end)
    values, about = np.linalg.eigvalsh(cosines), {"dim": dim, "end": end}
    return {
        "first_pair": exact(float(cosines[0, 1]), "cosine of P_0 and P_1", **about),
        "largest": exact(float(values[-1]), "the largest eigenvalue of the cosines", **about),
        "smallest": exact(max(0.0, float(values[0])), "the smallest eigenvalue of the cosines", **about),
    }


def taylor(degree: int, x: float) -> dict[str, Value]:
    """Return P_l(x), its linear approximation at x = 1, and a bound on their difference (C115).

    The bound is |P_l(x) - 1 + l(l + 1)/2 (1 - x)| <= (l - 1) l (l + 1) (l + 2) / 16 (1 - x)^2, since
    |P_l''| is largest at 1.

    Parameters
    ----------
    degree : int
        l.
    x : float
        A number in [-1, 1].

    Returns
    -------
    dict
        "actual", "linear", and the bound "remainder".

    Examples
    --------
    >>> {name: round(value.value, 6) for name, value in taylor(2, 0.9).items()}
    {'actual': 0.715, 'linear': 0.7, 'remainder': 0.015}
    """
    n, x = whole("degree", degree, 0), real("x", x)
    if not -1.0 <= x <= 1.0:
        raise ValueError(f"x must lie in [-1, 1], not {x}")
    about, gap = {"degree": n, "x": x}, 1.0 - x
    actual = float(_rows(np.array([x]), n + 1)[0, n])
    return {
        "actual": exact(actual, "P_l(x)", **about),
        "linear": exact(1.0 - 0.5 * n * (n + 1) * gap, "1 - l(l+1)/2 (1 - x)", **about),
        "remainder": exact((n - 1) * n * (n + 1) * (n + 2) / 16.0 * gap * gap, "P_l''(1)/2 (1 - x)^2", **about),
    }


def growth(degree: int, x: float) -> dict[str, Value]:
    """Return P_l(x) beyond x = 1, and x^l for comparison (C78).

    Parameters
    ----------
    degree : int
        l.
    x : float
        At least 1.

    Returns
    -------
    dict
        - "value": P_l(x);
        - "power": x^l;
        - "coefficient": binom(2l, l) / 2^l, the limit of P_l(x) / x^l as x grows;
        - "rate": x + sqrt(x^2 - 1), the limit of P_{l+1}(x) / P_l(x).

    Raises
    ------
    ValueError
        If x is below 1, or P_l(x) is too large for float64.

    Examples
    --------
    >>> found = growth(63, 3.0)
    >>> f"{found['value'].value:.6e}", f"{found['power'].value:.5e}", round(found["rate"].value, 6)
    ('1.222279e+47', '1.14456e+30', 5.828427)
    """
    n, x = whole("degree", degree, 0), real("x", x)
    if x < 1.0:
        raise ValueError(f"x must be at least 1, not {x}")
    rate = x + math.sqrt(x - 1.0) * math.sqrt(x + 1.0)
    if n * math.log10(rate) > 300.0:
        raise ValueError(f"degree must be lower than {n} at x = {x:g}, because P_{n}(x) is too large for float64")
    about = {"degree": n, "x": x}
    return {
        "value": exact(float(_rows(np.array([x]), n + 1)[0, n]), "P_l(x) by the recurrence", **about),
        "power": exact(x**n, "x^l", **about),
        "coefficient": exact(math.comb(2 * n, n) / 2**n, "binom(2l, l) / 2^l", degree=n),
        "rate": exact(rate, "x + sqrt(x^2 - 1)", x=x),
    }


def saturation(train_length: int, gamma: float = 1.0, precision: str = "float64") -> Value:
    """Return the first position p at which x = tanh(gamma p / N) is rounded to 1, so that the row is all ones (C85).

    The position is found by bisection, which is possible because tanh never decreases.

    Parameters
    ----------
    train_length : int
        Training length N, at least 1.
    gamma : float
        Slope of the map x, above 0.
    precision : "float64", "float32" or "bfloat16"
        The precision to which x is rounded.

    Examples
    --------
    >>> [saturation(50, precision=name).value for name in ("float64", "float32")]
    [950.0, 451.0]
    """
    n, gamma = whole("train_length", train_length, 1), positive("gamma", gamma)
    choice("precision", precision, PRECISIONS)
    low, high = 0, math.ceil(20.0 * n / gamma)  # 1 - tanh 20 is below 2^-53
    while high - low > 1:
        middle = (low + high) // 2
        at_one = float(rounded(np.tanh(np.array([gamma * middle / n])), precision)[0]) == 1.0
        low, high = (low, middle) if at_one else (middle, high)
    why = f"the first p with tanh(gamma p / N) = 1 in {precision}"
    return exact(float(high), why, train_length=n, gamma=gamma, precision=precision)


def near_ones(table: Any, limit: float) -> Value | None:
    """Return the position from which on every row of the table is closer than `limit` to the all-ones vector (C86).

    Parameters
    ----------
    table : (positions, channels)
    limit : float
        Largest Euclidean distance, above 0.

    Returns
    -------
    Value, or None if the last row is not closer than `limit`

    Examples
    --------
    >>> near_ones([[0.0], [0.5], [0.9], [1.0]], 0.2).value
    2.0
    """
    gaps = np.linalg.norm(checked(table) - 1.0, axis=1)
    far = np.flatnonzero(gaps >= positive("limit", limit))
    first = int(far[-1]) + 1 if len(far) else 0
    if first == len(gaps):
        return None
    return exact(float(first), "|T[p] - 1| is below the limit from this position on", rows=len(gaps), limit=limit)


def _rows(x: Array, dim: int) -> Array:
    """Return P_0 .. P_{dim - 1} at every x."""
    found: Array = legvander(x, dim - 1)
    return found
