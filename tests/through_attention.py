"""Gradients of an encoding's parameters through attention, beside central differences of the references."""

import numpy as np

import fastpe
from fastpe import reference


def assert_same_gradients(name: str, length: int, *, unseen: tuple[str, ...] = (), **request) -> None:
    """Compare `attention_vjp` followed by `pull` with differences of a sum of the reference's outputs, in float64.

    `unseen` names parameters that no output depends on, such as a constant added to all scores.
    """
    rng = np.random.default_rng(0)
    request = {"dim": 8, "heads": 2, "dtype": np.float64, **request}
    causal = request.get("causal", False)
    heads, width = request["heads"], request["dim"] // request["heads"]
    first = fastpe.init(name, **{"train_length": length, **{k: v for k, v in request.items() if k != "positions"}})
    params = {key: value + rng.uniform(0.1, 0.5, value.shape) for key, value in first.items()}
    q, k, v, weight = rng.normal(size=(4, 1, heads, length, width))

    def loss(values: dict) -> float:
        slots = fastpe.build(name, length, params=values, reference=True, **request)
        return float((reference.attention(q, k, v, causal=causal, **slots) * weight).sum())

    slots = fastpe.build(name, length, params=params, **request)
    gradients = fastpe.attention_vjp(q, k, v, causal=causal, **slots)[1](weight)
    dslots = {slot: gradients[slot] for slot, array in slots.items() if slot in gradients and np.ndim(array)}
    got = fastpe.pull(name, length, dslots, params=params, **request)
    assert set(got) == set(params) != set()
    for key, value in params.items():
        expected = np.zeros(value.shape)
        for place in np.ndindex(value.shape):
            ends = []
            for step in (1e-5, -1e-5):
                moved = {**params, key: value.copy()}
                moved[key][place] += step
                ends.append(loss(moved))
            expected[place] = (ends[0] - ends[1]) / 2e-5
        assert (np.abs(expected).max() < 1e-8) == (key in unseen), f"{name}: whether anything depends on {key}"
        np.testing.assert_allclose(got[key], expected, atol=1e-8 + 1e-7 * np.abs(expected).max(), err_msg=key)
