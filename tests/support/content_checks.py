"""Attention whose scores the content decides, in `fastpe.reference`: weights of cells, gradients by differences."""

from collections.abc import Callable

import numpy as np
from scipy.special import softmax

from fastpe import reference

NEAR = {"rtol": 0, "atol": 5.1e-10}
G = np.cos(0.5 * np.arange(4)[:, None] - np.arange(4))  # what the printed gradients are of: sum(G * out)


def differences(function: Callable[[np.ndarray], float], at: np.ndarray, step: float = 1e-6) -> np.ndarray:
    """The gradient of a number, by central differences."""
    found = np.zeros(at.shape)
    for place in np.ndindex(at.shape):
        ends = []
        for sign in (1, -1):
            moved = at.copy()
            moved[place] += sign * step
            ends.append(function(moved))
        found[place] = (ends[0] - ends[1]) / (2 * step)
    return found


def assert_gradients(function, given: dict, weight: np.ndarray, got: dict | None = None) -> None:
    """The gradients of sum(weight * out) beside differences; by default those that the function's own vjp gives."""
    got = getattr(reference, f"{function.__name__}_vjp")(**given)[1](weight) if got is None else got
    assert set(got) == set(given)
    for name, array in given.items():
        expected = differences(lambda x, name=name: np.sum(function(**{**given, name: x}) * weight), array)
        np.testing.assert_allclose(got[name], expected, atol=1e-8, err_msg=name)


def causal(scores: np.ndarray) -> np.ndarray:
    """Weights of these scores."""
    return softmax(np.where(np.tri(scores.shape[-1], dtype=bool), scores, -np.inf), axis=-1)
