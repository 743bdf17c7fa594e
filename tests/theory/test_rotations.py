"""Rotations: turns, angles that training never saw, similarity, aliasing."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastpe
from fastpe.theory import rotations

ROTATIONS = (
    "rope", "rope_linear", "rope_ntk", "rope_yarn", "rope_llama3", "rope_longrope", "rope_dynamic", "rope_mixed",
    "rope_2d", "mrope", "xpos", "pope", "rope_dinov3", "rope_ntk_mixed", "rope_proportional", "rope_resonance", "clex",
    "grape_m", "rope_clipped", "hope", "rope_mixed_radix",
)  # fmt: skip
LINEAR = set(ROTATIONS) - {"rope_mixed", "rope_2d", "rope_dinov3"}


def angles(name, length, dim=64, **options):
    return fastpe.build(name, length, dim=dim, causal=name == "xpos", **options)["angles"]


def ladder(dim, base=10000.0):
    return base ** (-np.arange(0.0, dim, 2) / dim)


# ---------------------------------------------------------------------------------------------------------------------
# Frequencies


@pytest.mark.parametrize("name", ROTATIONS)
def test_frequencies_give_the_angles_of_every_rotation_that_is_linear(name):
    table = angles(name, 100, train_length=50)
    omega = rotations.frequencies(table)
    if name not in LINEAR:
        assert omega is None
        return
    places = np.arange(100.0)[None, :, None]
    assert np.abs(np.exp(1j * omega[:, None] * places) - np.exp(1j * table)).max() < 1e-12
    assert name != "rope" or omega[0] == pytest.approx(ladder(64), rel=1e-14)


def test_frequencies_at_given_positions():
    positions = 3.0 + 0.125 * np.arange(64.0)
    fast = fastpe.build("rope", 64, dim=8, positions=8.0 * positions)["angles"]
    assert rotations.frequencies(fast, positions)[0] == pytest.approx(8.0 * ladder(8), rel=1e-12)
    whole = fastpe.build("rope", 64, dim=8, positions=8.0 * np.arange(64.0))["angles"]
    assert rotations.frequencies(whole)[0, 0] == pytest.approx(8.0 - 2 * math.pi, rel=1e-12)


def test_tokens_that_are_not_rotated_are_not_linear():
    short = np.linspace(1.0, 2.0, 16)
    kept = angles("rope_longrope", 100, dim=32, short=tuple(short), long=tuple(short), start_tokens=4)
    assert rotations.frequencies(kept) is None


def test_wrong_angles_are_refused():
    with pytest.raises(ValueError, match="angles must hold at least 2 positions, to compute a frequency"):
        rotations.frequencies(angles("rope", 1))
    with pytest.raises(ValueError, match=r"angles must have shape \(heads or 1, positions, channels\)"):
        rotations.frequencies(np.zeros((2, 1, 4, 2)))
    with pytest.raises(ValueError, match=r"positions must have shape \(4,\) and start with two different numbers"):
        rotations.frequencies(angles("rope", 4), [0, 0, 1, 2])
    with pytest.raises(ValueError, match="angles must be finite"):
        rotations.least_similarity(np.full((1, 3, 2), np.nan))
    with pytest.raises(ValueError, match="tested must have the heads and channels of trained"):
        rotations.unseen_chords(angles("rope", 4), angles("rope", 4, dim=32))


# ---------------------------------------------------------------------------------------------------------------------
# Turns


@pytest.mark.parametrize(("dim", "length", "count"), [(64, 50, 8), (128, 4096, 46)])
def test_channels_that_turned(dim, length, count):
    omega = rotations.frequencies(angles("rope", length, dim))
    assert rotations.turned(omega, length).value == count
    assert rotations.turns(omega, length)[0, 0] == pytest.approx((length - 1) / (2 * math.pi))


@pytest.mark.parametrize(("dim", "length", "place"), [(64, 50, 7.206), (128, 4096, 45.027)])
def test_critical_channel(dim, length, place):
    omega = rotations.frequencies(angles("rope", length, dim))[0]
    found = rotations.critical_channel(omega, length).value
    assert found == pytest.approx(place, abs=5e-4)
    assert found == pytest.approx(dim / 2 * math.log(length / (2 * math.pi)) / math.log(10000.0), rel=1e-12)


def test_no_critical_channel():
    assert rotations.critical_channel(ladder(64), 6) is None
    assert rotations.critical_channel(ladder(64), 10**6) is None
    assert rotations.critical_channel(np.array([1.0, 1.0, 0.001]), 50) is None
    with pytest.raises(ValueError, match=r"omega must have shape \(R/2,\), of one head"):
        rotations.critical_channel(ladder(64)[None], 50)


# ---------------------------------------------------------------------------------------------------------------------
# Unseen angles


@pytest.mark.parametrize(
    ("length", "channels", "largest", "rms"), [(100, 17, 1.739006, 0.620308), (200, 22, 1.944053, 0.895336)]
)
def test_unseen_angles(length, channels, largest, rms):
    """Q12."""
    found = rotations.unseen(angles("rope", 50), angles("rope", length))
    assert found["channels"].value == channels
    assert found["largest"].value == pytest.approx(largest, abs=5e-7)
    assert found["rms"].value == pytest.approx(rms, abs=5e-7)


@given(st.integers(1, 20), st.integers(1, 20), st.booleans(), st.integers(0, 2**32))
def test_chords_against_all_pairs(trained, tested, causal, seed):
    rng = np.random.default_rng(seed)
    seen, asked = (rng.uniform(-math.pi, math.pi, (2, count, 3)) for count in (trained, tested))
    found = rotations.unseen_chords(seen, asked, causal=causal)
    points, wanted = (np.exp(1j * (each - each[:, :1])) for each in (seen, asked))
    if not causal:
        points = np.concatenate([points, points.conj()], axis=1)
    brute = np.abs(wanted[:, :, None] - points[:, None]).min(axis=2).max(axis=1)
    assert np.allclose(found, brute, atol=1e-12)


# ---------------------------------------------------------------------------------------------------------------------
# Similarity


def test_least_similarity():
    assert rotations.least_similarity(angles("rope", 50)).value == pytest.approx(0.453664, abs=5e-7)
    assert rotations.least_similarity(angles("rope", 50, start=7)).value == pytest.approx(0.453664, abs=5e-7)
    assert rotations.least_similarity(angles("rope", 1)).value == 1.0


def test_similarity_is_the_score_of_vectors_of_ones():
    """Of xPos too, whose growth is a factor on query and, inverted, on key."""
    slots = fastpe.build("xpos", 40, dim=40, causal=True, dtype="float64")
    ones = np.ones((1, 40, 40))
    _, lse = fastpe.reference.attention(ones, ones, ones, causal=True, return_lse=True, scale=1 / 40, **slots)
    curve = rotations.similarity(slots["angles"], slots["growth"])[0]
    expected = np.log(np.cumsum(np.exp(curve)))
    assert np.allclose(lse[0], expected, atol=1e-12)


@pytest.mark.parametrize(
    ("dim", "base", "lag"), [(64, 1e4, 725), (128, 1e4, 1707), (128, 5e5, 18438), (128, 1e6, 27115)]
)
def test_first_negative_lag(dim, base, lag):
    omega = rotations.frequencies(angles("rope", 2, dim, base=base))
    found = rotations.first_negative_lag(omega)
    assert found.value == lag
    assert np.cos(omega[0] * (lag - 1)).sum() > 0 > np.cos(omega[0] * lag).sum() == pytest.approx(found.inputs["sum"])
    assert rotations.first_negative_lag(omega, limit=lag - 1) is None
    assert rotations.first_negative_lag(omega, limit=lag).value == lag


def test_first_negative_lag_across_blocks_and_heads(monkeypatch):
    omega = np.stack([ladder(64), 0.5 * ladder(64)])
    monkeypatch.setattr(rotations, "_BLOCK", 64 * 10)
    assert rotations.first_negative_lag(omega).value == 725
    assert rotations.first_negative_lag(omega[1]).value == 1449
    assert rotations.first_negative_lag(np.array([[math.pi]]), decay=np.array([-9.0])).value == 1
    table = angles("rope", 300)
    curve = rotations.similarity(table)
    monkeypatch.undo()
    assert np.array_equal(curve, rotations.similarity(table))


# ---------------------------------------------------------------------------------------------------------------------
# Aliasing


def test_aliasing_begins_where_a_position_is_half_a_turn():
    found = rotations.aliasing(ladder(64))
    assert (found["aliased"].value, found["from_scale"].value) == (0.0, math.pi)
    assert rotations.aliasing(ladder(64), scale=8.0)["aliased"].value == np.count_nonzero(8.0 * ladder(64) > math.pi)
    assert rotations.aliasing(np.array([3.2, -4.0, 1.0]))["aliased"].value == 2.0
    assert rotations.aliasing(np.zeros(2))["from_scale"].value == math.inf
    with pytest.raises(ValueError, match="scale must be above 0, not 0"):
        rotations.aliasing(ladder(4), scale=0.0)
