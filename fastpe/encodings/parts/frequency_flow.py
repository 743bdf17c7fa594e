"""Frequencies that change with the length by an ODE: its solution by Kutta's 3/8 rule, and the gradient.

    du_t/dtau = -2 c_t / (2 tau - 1) + [act(x Wu) Wd]_t,    x_t = 2 l_t + u_t - c_t ln(2 tau - 1),    u(1) = 0

l_t are the logarithms of the frequencies at tau = 1, l_t + u_t those at tau, and c_t = t / (R/2 - 1). Products are
computed row by row, without BLAS, so that results are bitwise equal for any number of threads.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from fastpe.kernels.compile.decorators import entry, inner

Array = np.ndarray[Any, Any]

# Kutta's 3/8 rule: stage s is at s/3 of a step, at u + dt sum_r _STAGES[s, r] k_r; the step is
# dt sum_s _SHARES[s] k_s
_STAGES = np.array([[0.0, 0.0, 0.0], [1 / 3, 0.0, 0.0], [-1 / 3, 1.0, 0.0], [1.0, -1.0, 1.0]])
_SHARES = np.array([1 / 8, 3 / 8, 3 / 8, 1 / 8])
_WHOLE = 1e-9  # a remainder of a step below this is rounding


class Flow(NamedTuple):
    """The parameters of an ODE."""

    logarithms: Array  # l, (R/2,)
    up: Array  # Wu, (R/2, M)
    down: Array  # Wd, (M, R/2)
    silu: bool  # if true, act(h) is h sigmoid(h), otherwise tanh(h)


def flow(logarithms: Array, up: Any, down: Any, act: str) -> Flow:
    """The ODE with these maps, which may have any dtype."""
    wu, wd = (np.ascontiguousarray(each, np.float64) for each in (up, down))
    return Flow(np.asarray(logarithms, np.float64), wu, wd, act == "silu")


def places(tau: float, step: float) -> Array:
    """1, 1 + step, ..., tau: the values of tau at which the solver's steps begin and end."""
    count = max(0, math.ceil((tau - 1) / step - _WHOLE))
    found = 1.0 + step * np.arange(count + 1)
    found[-1] = tau
    return found


def solve(of: Flow, tau: float, step: float) -> Array:
    """u at 1 and at the end of each step, (steps + 1, R/2); the last row is u at tau."""
    at = places(tau, step)
    states = np.zeros((len(at), len(of.logarithms)))
    _solve(at, *of, states)
    return states


def pull(of: Flow, tau: float, step: float, du: Array, dup: Array, ddown: Array) -> None:
    """Backpropagate the gradient `du` of u at tau through the solver's steps; add the gradients of Wu and Wd to `dup`
    and `ddown`, float64."""
    at, states = places(tau, step), solve(of, tau, step)
    transposed = (np.ascontiguousarray(each.T) for each in (of.up, of.down))
    _pull(at, *of, *transposed, states, np.array(du, np.float64), dup, ddown)


@inner
def _add_product(x, matrix, y):  # type: ignore[no-untyped-def] # a kernel's types are Numba's
    """Add x @ matrix to y."""
    for i in range(matrix.shape[0]):
        for j in range(matrix.shape[1]):
            y[j] += x[i] * matrix[i, j]


@inner
def _activated(h, silu):  # type: ignore[no-untyped-def]
    """The activation of a unit, and its derivative."""
    if silu:
        share = 1.0 / (1.0 + math.exp(-h))
        return h * share, share * (1.0 + h * (1.0 - share))
    found = math.tanh(h)
    return found, 1.0 - found * found


@inner
def _slope(tau, u, logarithms, up, down, silu, x, h, k):  # type: ignore[no-untyped-def]
    """Write du/dtau to k, and the inputs of the network and of its units to x and h."""
    pairs, stretch = u.shape[0], 2.0 * tau - 1.0
    passed = math.log(stretch)
    for t in range(pairs):
        share = t / max(pairs - 1, 1)
        x[t] = 2.0 * logarithms[t] + u[t] - share * passed
        k[t] = -2.0 * share / stretch
    h[:] = 0.0
    _add_product(x, up, h)
    for m in range(h.shape[0]):
        unit, _ = _activated(h[m], silu)
        for t in range(pairs):
            k[t] += unit * down[m, t]


@inner
def _stages(tau, dt, u, logarithms, up, down, silu, at, x, h, k):  # type: ignore[no-untyped-def]
    """Write the four slopes of a step, k (4, R/2), and the inputs of the network and of its units for each."""
    for s in range(4):
        for t in range(u.shape[0]):
            at[t] = u[t]
            for r in range(s):
                at[t] += dt * _STAGES[s, r] * k[r, t]
        _slope(tau + dt * s / 3.0, at, logarithms, up, down, silu, x[s], h[s], k[s])


@entry(label="ODE of frequencies")
def _solve(stops: Array, logarithms: Array, up: Array, down: Array, silu: bool, states: Array) -> None:
    pairs, units = up.shape
    at, x, h, k = np.empty(pairs), np.empty((4, pairs)), np.empty((4, units)), np.empty((4, pairs))
    for n in range(stops.shape[0] - 1):
        dt = stops[n + 1] - stops[n]
        _stages(stops[n], dt, states[n], logarithms, up, down, silu, at, x, h, k)
        for t in range(pairs):
            change = 0.0
            for s in range(4):
                change += _SHARES[s] * k[s, t]
            states[n + 1, t] = states[n, t] + dt * change


@entry(label="gradient of the ODE of frequencies")
def _pull(
    stops: Array, logarithms: Array, up: Array, down: Array, silu: bool, up_across: Array, down_across: Array,
    states: Array, du: Array, dup: Array, ddown: Array,
) -> None:  # fmt: skip
    pairs, units = up.shape
    at, x, h, k = np.empty(pairs), np.empty((4, pairs)), np.empty((4, units)), np.empty((4, pairs))
    dk, dh, dx = np.empty((4, pairs)), np.empty(units), np.empty(pairs)
    for n in range(stops.shape[0] - 2, -1, -1):
        dt = stops[n + 1] - stops[n]
        _stages(stops[n], dt, states[n], logarithms, up, down, silu, at, x, h, k)
        for s in range(4):
            for t in range(pairs):
                dk[s, t] = dt * _SHARES[s] * du[t]
        for s in range(3, -1, -1):
            dh[:] = 0.0
            _add_product(dk[s], down_across, dh)
            for m in range(units):
                unit, slope = _activated(h[s, m], silu)
                dh[m] *= slope
                for t in range(pairs):
                    ddown[m, t] += unit * dk[s, t]
            for t in range(pairs):
                for m in range(units):
                    dup[t, m] += x[s, t] * dh[m]
            dx[:] = 0.0
            _add_product(dh, up_across, dx)
            for t in range(pairs):
                du[t] += dx[t]
                for r in range(s):
                    dk[r, t] += dt * _STAGES[s, r] * dx[t]
