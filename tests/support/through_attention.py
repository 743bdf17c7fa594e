"""Gradients of an encoding's parameters through attention, beside central differences of the references."""

from collections.abc import Callable
from functools import partial

import numpy as np

import fastpe
from fastpe import reference

AT_THE_INPUT = ("table", "qk_table", "taps")
STEP = 1e-5
Arrays = dict[str, np.ndarray]


def assert_same_gradients(name: str, length: int, *, unseen: tuple[str, ...] = (), **request) -> None:
    """Compare `attention_vjp` followed by `pull` with differences of a sum of the reference's outputs, in float64.

    `unseen` names parameters that no output depends on, such as a constant added to all scores.
    """
    rng = np.random.default_rng(0)
    params, got, loss = _problem(name, length, {"dim": 8, "heads": 2, **request}, rng, _above)
    for key, value in params.items():
        expected = np.zeros(value.shape)
        for place in np.ndindex(value.shape):
            unit = np.zeros(value.shape)
            unit[place] = 1.0
            expected[place] = _slope(loss, params, key, unit)
        assert (np.abs(expected).max() < 1e-8) == (key in unseen), f"{name}: whether anything depends on {key}"
        np.testing.assert_allclose(got[key], expected, atol=1e-8 + 1e-7 * np.abs(expected).max(), err_msg=key)


def assert_same_along(name: str, length: int, directions: int, *, size: float = 0.3, **request) -> None:
    """As `assert_same_gradients`, along a few random directions of every parameter."""
    rng = np.random.default_rng(0)
    params, got, loss = _problem(name, length, request, rng, partial(away, size=size))
    assert max(np.abs(gradient).max() for gradient in got.values()) > 1e-6
    for key, value in params.items():
        for _ in range(directions):
            along = rng.normal(size=value.shape)
            along /= np.linalg.norm(along)
            expected = _slope(loss, params, key, along)
            np.testing.assert_allclose((got[key] * along).sum(), expected, rtol=1e-6, atol=1e-8, err_msg=key)


def away(value: np.ndarray, rng: np.random.Generator, size: float = 0.3) -> np.ndarray:
    """Values away from initial ones, many of which are zero or one.

    Matrices are moved to both sides: their sums would become so large that differences of the loss were noise.
    """
    return value + size * rng.normal(size=value.shape) if value.ndim > 1 else _above(value, rng)


def _above(value: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    return value + rng.uniform(0.1, 0.5, value.shape)


def _problem(
    name: str,
    length: int,
    request: dict,
    rng: np.random.Generator,
    moved: Callable[[np.ndarray, np.random.Generator], np.ndarray],
) -> tuple[Arrays, Arrays, Callable[[Arrays], float]]:
    """Parameters, our gradients, and the reference of what they are gradients of."""
    request = {"dtype": np.float64, **request}
    causal = request.get("causal", False)
    heads, width = request["heads"], request["dim"] // request["heads"]
    first = fastpe.init(name, **{"train_length": length, **{k: v for k, v in request.items() if k != "positions"}})
    params = {key: moved(value, rng) for key, value in first.items()}
    q, k, v, weight = rng.normal(size=(4, 1, heads, length, width))

    def built(values: Arrays, **how: bool) -> tuple[dict, Arrays]:
        """What attention takes, and zeros for what it does not, which acts before it."""
        slots = fastpe.build(name, length, params=values, **how, **request)
        before = {slot: np.zeros_like(slots.pop(slot)) for slot in AT_THE_INPUT if slot in slots}
        return slots, before

    def loss(values: Arrays) -> float:
        slots, _ = built(values, reference=True)
        return float((reference.attention(q, k, v, causal=causal, **slots) * weight).sum())

    slots, before = built(params)
    gradients = fastpe.attention_vjp(q, k, v, causal=causal, **slots)[1](weight)
    dslots = {slot: gradients[slot] for slot, array in slots.items() if slot in gradients and np.ndim(array)}
    got = fastpe.pull(name, length, {**dslots, **before}, params=params, **request)
    assert set(got) == set(params) != set()
    return params, got, loss


def _slope(loss: Callable[[Arrays], float], params: Arrays, key: str, along: np.ndarray) -> float:
    ends = [loss({**params, key: params[key] + step * along}) for step in (STEP, -STEP)]
    return (ends[0] - ends[1]) / (2 * STEP)
