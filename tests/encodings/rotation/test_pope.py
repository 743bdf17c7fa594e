"""PoPE: printed values, its frequencies, phases within their interval, and what it goes with."""

import math

import numpy as np
import pytest
from fixture_attention import results

import fastpe
from fastpe.model.encoding import ModelEncoding

DOUBLE = {"dtype": np.float64, "heads": 1, "dim": 4}


@pytest.mark.parametrize("by_formula", [False, True])
@pytest.mark.parametrize(("phases", "printed"), [
    ([-0.1, -0.2, 0.3, -7.0], [0.321782262, 0.307362357, 0.286584498, 0.301876686, 0.617542594]),
    ([0.0] * 4, [0.290385149, 0.336346695, 0.294149724, 0.298317227, 0.617953706]),
])  # fmt: skip
def test_printed_values(phases, printed, by_formula):
    """Of the released code."""
    slots = fastpe.build("pope", 4, params={"phases": np.array([phases])}, reference=by_formula, **DOUBLE)
    np.testing.assert_allclose(results(slots, causal=True), printed, rtol=0, atol=5.1e-10)


def test_every_channel_has_a_frequency():
    slots = fastpe.build("pope", 3, dim=16, heads=2, positions=[0.0, 1.0, -2.5], dtype=np.float64)
    assert slots["polar"].shape == (2, 8)
    theta = 10000.0 ** (-np.arange(8) / 8)
    np.testing.assert_allclose(slots["angles"][0], np.outer([0, 1, -2.5], theta), rtol=1e-15, atol=1e-15)
    same = fastpe.build("rope", 9, dim=32, heads=2, dtype=np.float64)["angles"]  # of a head twice as wide
    np.testing.assert_array_equal(fastpe.build("pope", 9, dim=16, heads=2, dtype=np.float64)["angles"], same)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_phases_stay_within_a_turn_and_learn_at_its_ends(dtype):
    """As torch.clamp has it."""
    phases = np.array([[0.0, -2 * math.pi, -1.0, 1e-6, -6.2832, 5.0]], dtype)
    request = {"dim": 6, "heads": 1, "dtype": dtype}
    slots = fastpe.build("pope", 3, params={"phases": phases}, **request)
    np.testing.assert_array_equal(slots["polar"], np.array([[0, -2 * math.pi, -1, 0, -2 * math.pi, 0]], dtype))
    dslots = {"polar": np.arange(1.0, 7)[None], "angles": np.zeros((1, 3, 6))}
    found = fastpe.pull("pope", 3, dslots, params={"phases": phases}, **request)["phases"]
    np.testing.assert_array_equal(found, [[1, 2, 3, 0, 0, 0]])


def test_initial_phases():
    assert not fastpe.init("pope", dim=8, heads=2, train_length=4)["phases"].any()
    drawn = fastpe.init("pope", dim=512, heads=8, train_length=4, initial="uniform")["phases"]
    assert -2 * math.pi < drawn.min() < -6
    assert -0.3 < drawn.max() <= 0


@pytest.mark.parametrize(("name", "message"), [
    ("pope+shaw", "fills 'rel_key', which cannot be combined with its 'polar'"),
    ("pope+huang3", "fills 'rel_gain', which cannot be combined with its 'polar'"),
    ("pope+liere", "fills 'rotors', which cannot be combined with its 'polar'"),
    ("pope+rope", "slot 'angles' has different shapes"),
    ("pope,nope", "fills 'polar' in some layers"),
    ("rope,pope", "fills 'polar' in some layers"),
])  # fmt: skip
def test_combinations_that_pope_refuses(name, message):
    with pytest.raises(ValueError, match=message):
        ModelEncoding(fastpe.ModelConfig(name, width=16, heads=2, train_length=8))


@pytest.mark.parametrize("name", ["pope+alibi", "pope+log_n", "pope+sinusoidal", "pope+t5", "pope+fox"])
def test_combinations_that_pope_allows(name):
    model = fastpe.Transformer(fastpe.ModelConfig(name, width=16, heads=2, train_length=8, causal=True))
    assert np.isfinite(model(np.zeros((1, 8)))).all()
