"""Biases: their rows, how much they sway, and what a longer text changes."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fastpe
from fastpe.theory import biases
from fastpe.theory.softmax import weights


def alibi(length, slope=0.002, **options):
    return fastpe.build("alibi", length, slope=slope, dtype="float64", **options)


def falling(length, slope=0.002):
    return -slope * np.arange(float(length))


# ---------------------------------------------------------------------------------------------------------------------
# Rows


@pytest.mark.parametrize("name", ["alibi", "t5", "sandwich", "kerple_log", "fire", "swin_bias", "li_eq5", "alibi+t5"])
def test_rows_are_what_attention_adds(name):
    """With keys of zeros and values of unit vectors, attention gives the softmax of the bias itself."""
    length, heads = 36, 2
    options = {"li_eq5.reach": 5} if "li_eq5" in name else {}
    options = {key.split(".")[1]: value for key, value in options.items()}
    slots = fastpe.build(name, length, dim=2 * length, heads=heads, causal=True, dtype="float64", seed=3, **options)
    zeros = np.zeros((1, heads, length, length))
    values = np.broadcast_to(np.eye(length), zeros.shape).copy()
    known = {key: value for key, value in slots.items() if key != "table"}
    out = fastpe.reference.attention(zeros, zeros, values, causal=True, **known)
    found = biases.rows(slots, length)
    hidden = np.where(np.tri(length, dtype=bool), found, -np.inf)
    assert np.allclose(out[0], weights(hidden), atol=1e-13)
    assert np.allclose(biases.last_row(slots, length), found[:, -1, ::-1], atol=0)


def test_no_bias_is_one_head_of_zeros():
    assert biases.rows(fastpe.build("rope", 4, dim=8), 4).tolist() == np.zeros((1, 4, 4)).tolist()


def test_wrong_slots_and_lengths_are_refused():
    with pytest.raises(ValueError, match="scores must be made for length 5, not of shape"):
        biases.rows({"scores": np.zeros((1, 4, 4))}, 5)
    with pytest.raises(ValueError, match="scores must have 3 axes, those of one sample, not shape"):
        biases.rows({"scores": np.zeros((2, 1, 4, 4))}, 4)
    with pytest.raises(ValueError, match="bias must be finite in float64, but 1 of its 3 values are not"):
        biases.rows({"bias": np.array([[0.0, np.nan, 0.0]])}, 2)
    with pytest.raises(ValueError, match="first and stop must satisfy 0 <= first < stop <= 3"):
        biases.rows({}, 3, 2, 2)
    with pytest.raises(ValueError, match="length must be at least 1, not 0"):
        biases.oscillations({}, 0, causal=True)


# ---------------------------------------------------------------------------------------------------------------------
# Sway


def test_random_content_never_exceeds_the_bound_on_the_effect_of_a_bias():
    slots, length = fastpe.build("t5", 24, heads=2, dtype="float64", seed=1), 24
    bias = 10.0 * biases.rows(slots, length)
    bounds = biases.effects({"scores": bias}, length, causal=False)
    rng = np.random.default_rng(0)
    for _ in range(200):
        content = rng.standard_normal(bias.shape) * rng.exponential(3.0)
        moved = np.abs(weights(content + bias) - weights(content)).sum(axis=-1).max(axis=-1) / 2
        assert all(each <= bound.high for each, bound in zip(moved, bounds, strict=True))


def test_oscillations_are_given_for_every_head():
    slots = fastpe.build("alibi", 65, heads=8, dtype="float64")
    found = biases.oscillations(slots, 65, causal=True)
    assert [each.value for each in found] == [64.0 * 2.0 ** -(h + 1) for h in range(8)]
    assert biases.worst(found).inputs["head"] == 0
    assert biases.worst(found[::-1]).value == 32.0


@given(st.integers(1, 40), st.integers(1, 3), st.booleans(), st.integers(0, 2**32))
def test_blocks_of_queries_against_the_whole_square(length, heads, causal, seed):
    square = np.random.default_rng(seed).standard_normal((heads, length, length))
    seen = np.tri(length, dtype=bool) if causal else np.ones((length, length), bool)
    block, biases._BLOCK = biases._BLOCK, 3 * length * heads
    try:
        osc = biases.oscillations({"scores": square}, length, causal=causal)
        most = biases.largest_sizes({"scores": square}, length, causal=causal)
        columns = biases.column_maxima({"scores": square}, length, causal=causal)
    finally:
        biases._BLOCK = block
    for h in range(heads):
        rows = [square[h, i][seen[i]] for i in range(length)]
        assert osc[h].value == max(max(row) - min(row) for row in rows)
        assert most[h].value == max(np.abs(row).max() for row in rows)
        shares = np.zeros((length, length))
        for i, row in enumerate(rows):
            shares[i, seen[i]] = np.exp(row) / np.exp(row).sum()
        assert columns[h].value == pytest.approx(shares.sum(axis=0).max(), rel=1e-12)


@given(st.integers(1, 40), st.integers(0, 45), st.floats(0.1, 100.0), st.booleans(), st.integers(0, 2**32))
def test_biases_of_offsets_against_the_square_they_stand_for(length, far, size, causal, seed):
    bias = {"bias": size * np.random.default_rng(seed).standard_normal((2, 2 * far + 1))}
    bias["bias"][0, far] += 4.0 * size
    square = {"scores": biases.rows(bias, length)}
    for quantity in (biases.oscillations, biases.largest_sizes, biases.column_maxima):
        found, expected = (quantity(each, length, causal=causal) for each in (bias, square))
        assert [each.value for each in found] == pytest.approx([each.value for each in expected], rel=1e-11)


# ---------------------------------------------------------------------------------------------------------------------
# Drift


@pytest.mark.parametrize(
    ("slope", "length", "moved"),
    [
        (0.002, 100, 0.475020813), (0.002, 200, 0.711348595), (2.0**-8, 100, 0.451326506), (2.0**-8, 200, 0.672752941),
        (0.5, 100, 1.3887944e-11), (0.5, 200, 1.3887944e-11), (0.0, 100, 0.5), (0.0, 200, 0.75),
    ],
)  # fmt: skip
def test_drift_of_alibi_has_its_closed_form(slope, length, moved):
    """C74, Q10."""
    closed = biases.alibi_drift(slope, 50, length).value
    found = biases.drifts(falling(50, slope)[None], falling(length, slope)[None])[0].value
    assert closed == pytest.approx(moved, rel=1e-6)
    assert found == pytest.approx(closed, rel=1e-4, abs=1e-14)


def test_drift_of_a_middle_query_on_both_sides():
    short, long = np.arange(-25, 25), np.arange(-50, 50)
    found = biases.drifts(np.zeros((1, 50)), np.zeros((1, 100)), offsets=(short, long))[0].value
    assert found == pytest.approx(0.5, rel=1e-12)
    apart = biases.drifts(np.zeros((1, 50)), np.zeros((1, 50)), offsets=(short, short + 100))[0].value
    assert apart == pytest.approx(1.0, rel=1e-12)


def test_drift_refuses_different_numbers_of_heads():
    with pytest.raises(ValueError, match="tested must have the 1 heads of trained, not 2"):
        biases.drifts(np.zeros((1, 3)), np.zeros((2, 4)))
