"""What generalisation bounds say of the paper's model: their values, and that intervals cover."""

import math

import numpy as np
import pytest

from fastpe import ModelConfig, Transformer
from fastpe.theory.gaps import (
    covering_bound,
    held_out_loss,
    held_out_width,
    occam_gap,
    parameter_counts,
    slack,
    zero_predictor_loss,
)


def test_valid_slack_holds_for_one_function():
    """McDiarmid for a class of one fair coin: the mean falls short by more with probability of at most delta."""
    means = np.random.default_rng(0).integers(0, 2, (4000, 100)).mean(axis=1)
    assert np.mean(0.5 - means > slack(100, 0.05)["valid"].value) <= 0.05


@pytest.mark.parametrize("name", ["sinusoidal", "learned", "alibi", "shaw", "rope*1,nope"])
def test_parameters_are_those_of_the_model(name):
    config = ModelConfig(name, heads=2)
    found = parameter_counts(config)
    model = Transformer(config)
    assert found["model"].value == sum(each.size for each in model.parameters.values())
    assert found["slot"].value == sum(x.size for key, x in model.parameters.items() if "encoding." in key)


def test_counting_bounds_of_the_papers_model_are_vacuous():
    count = int(parameter_counts(ModelConfig("sinusoidal"))["model"].value)
    assert count == 66625
    occam, net = occam_gap(count, 10000), covering_bound(count, 10000)
    assert occam.value == pytest.approx(8.5959, abs=5e-5)
    assert net.value == pytest.approx(6.4693, abs=5e-5)
    for each in (occam, net):
        assert each.inputs["vacuous"]
        assert "vacuous" in each.why
        assert (each.kind, each.low) == ("certified", None)
    small = occam_gap(1, 10**6)
    assert not small.inputs["vacuous"]
    assert "vacuous" not in small.why


def test_occam_is_hoeffding_over_all_models():
    assert occam_gap(0, 200).value == pytest.approx(slack(200)["valid"].value)
    models = 2.0**8
    union = math.sqrt(math.log(models / 0.05) / 400)
    assert occam_gap(1, 200, bits=8).value == pytest.approx(union)


def test_held_out_sequences():
    assert held_out_loss([5.0, 0.0], 2.0).value == 1.0  # clipped
    assert held_out_width(1000).value == pytest.approx(0.0429469, abs=5e-8)
    assert held_out_width(1000, 30.0).value == pytest.approx(30 * 0.0429469, abs=5e-6)
    rng = np.random.default_rng(1)
    covered = []
    for _ in range(300):
        losses = rng.exponential(size=60)
        found = held_out_loss(losses, 2.0)
        covered.append(found.low <= 1 - math.exp(-2.0) <= found.high)  # E min(X, 2)
        assert 0.0 <= found.low <= found.value <= found.high <= 2.0
    assert np.mean(covered) >= 0.95


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: slack(0), "samples must be at least 1"),
        (lambda: slack(10, 1.0), r"delta must lie in \(0, 1\), not 1.0"),
        (lambda: slack(10, math.nan), "delta must be finite"),
        (lambda: occam_gap(-1, 10), "parameters must be at least 0"),
        (lambda: covering_bound(1, 10, width=0.0), "width must be above 0"),
        (lambda: held_out_loss([], 1.0), "losses must be numbers of at least 0"),
        (lambda: held_out_loss([-1.0], 1.0), "losses must be numbers of at least 0"),
        (lambda: held_out_loss([1.0], -1.0), "largest must be at least 0"),
        (lambda: zero_predictor_loss(0), "length must be at least 1"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
