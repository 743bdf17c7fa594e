"""How far a softmax moves, how flat it starts, and what a sharp one needs."""

import math

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import entropy as scipy_entropy

from fastpe.theory.softmax import (
    entropy,
    initial_entropy,
    score_gap,
    softmax_bounds,
    temperature,
    variation_bound,
    weights,
)


def test_weights_and_entropy_as_scipy_has_them():
    scores = np.random.default_rng(0).standard_normal((5, 7)) * 30
    assert np.allclose(weights(scores), softmax(scores, axis=-1), rtol=1e-13)
    assert np.allclose(entropy(weights(scores)), scipy_entropy(weights(scores), axis=-1), atol=1e-13)
    assert weights(np.array([-np.inf, 3.0])).tolist() == [0.0, 1.0]
    assert float(entropy(np.array([1.0, 0.0]))) == 0.0


def test_random_steps_never_exceed_the_bounds():
    """P6; the random search of the specification comes as near."""
    rng, nearest = np.random.default_rng(0), dict.fromkeys(("tv", "l1", "l2"), 0.0)
    for _ in range(3000):
        count = int(rng.integers(1, 6))
        x = rng.standard_normal(count) * rng.exponential(2.0)
        step = rng.choice([rng.standard_normal(count), rng.integers(0, 2, count) - 0.5]) * rng.exponential(1.0)
        before, after = softmax(x), softmax(x + step)
        moved = {
            "tv": np.abs(before - after).sum() / 2, "l1": np.abs(before - after).sum(),
            "l2": np.linalg.norm(before - after),
        }  # fmt: skip
        for name, bound in softmax_bounds(step).items():
            assert moved[name] <= bound.high + 1e-15  # what the weights here are rounded by
            nearest[name] = max(nearest[name], moved[name] / bound.high if bound.high > 1e-6 else 0.0)
    assert min(nearest.values()) > 0.97


@pytest.mark.parametrize("delta", [1e-3, 0.5, 1.0, 7.0])
@pytest.mark.parametrize("keys", [1, 4])
def test_two_groups_of_keys_attain_the_variation(delta, keys):
    """C70: at mass 1/(1 + e^delta) of the group that gains."""
    step = np.repeat([delta, -delta], keys)
    before = softmax(-step / 2)
    found = np.abs(softmax(-step / 2 + step) - before).sum() / 2
    assert found == pytest.approx(softmax_bounds(step)["tv"].high, rel=1e-12)
    assert before[:keys].sum() == pytest.approx(1 / (1 + math.exp(delta)), rel=1e-12)


def test_wrong_differences_are_refused():
    with pytest.raises(ValueError, match=r"difference must have shape \(n,\) with n >= 1, not \(2, 2\)"):
        softmax_bounds(np.zeros((2, 2)))
    with pytest.raises(ValueError, match="difference must be finite in float64, but 1 of its 1 values are not"):
        softmax_bounds([np.nan])
    with pytest.raises(ValueError, match="oscillation must be finite, not nan"):
        variation_bound(math.nan)


@pytest.mark.parametrize(
    ("deviation", "mean", "half", "limit"),
    [(0.5, 8.192852, 0.0003, 8.192766), (1.0, 7.81707, 0.0021, 7.817766), (2.0, 6.3532, 0.029, 6.317766)],
)
def test_entropy_at_initialisation(deviation, mean, half, limit):
    """Q18."""
    found = initial_entropy(4096, deviation)
    assert found["limit"].value == pytest.approx(limit, abs=5e-7)
    assert found["entropy"].kind == "estimate"
    own = found["entropy"].high - found["entropy"].value
    assert abs(found["entropy"].value - mean) <= 1.5 * (own + half)
    assert own < 2 * half


def test_entropy_at_initialisation_at_its_ends():
    assert initial_entropy(1, 1.0)["entropy"].value == 0.0
    assert initial_entropy(64, 0.0)["entropy"].value == pytest.approx(math.log(64), rel=1e-12)
    assert "limit" not in initial_entropy(50, 3.0, draws=4)
    assert initial_entropy(50, 1.0) == initial_entropy(50, 1.0)
    for wrong, message in (
        ({"length": 0}, "length must be at least 1, not 0"), ({"deviation": -1}, "deviation must be at least 0"),
        ({"deviation": math.nan}, "deviation must be finite"), ({"draws": 1}, "draws must be at least 2, not 1"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            initial_entropy(**{"length": 5, "deviation": 1.0, **wrong})


@pytest.mark.parametrize(("length", "gap"), [(50, 6.089045), (100, 6.792344), (200, 7.490529)])
def test_score_gap(length, gap):
    """Q19, and that the gap gives the weight."""
    found = score_gap(length, 0.9).value
    assert found == pytest.approx(gap, abs=5e-7)
    assert softmax(np.append(found, np.zeros(length - 1)))[0] == pytest.approx(0.9, rel=1e-12)


def test_temperature():
    found = temperature(50, 200)
    assert found["factor"].value == pytest.approx(1.230165, abs=5e-7)
    assert found["logarithms"].value == pytest.approx(1.354368, abs=5e-7)
    assert set(temperature(2, 200, 0.5)) == {"logarithms"}
    with pytest.raises(ValueError, match=r"weight must lie in \[0, 1\), not 1.0"):
        temperature(50, 200, 1.0)
    with pytest.raises(ValueError, match=r"weight must lie in \(0, 1\), not 0"):
        score_gap(50, 0)
    with pytest.raises(ValueError, match="length must be at least 2, not 1"):
        score_gap(1, 0.5)
