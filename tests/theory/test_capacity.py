"""Complexities by enumeration and by draws, beside brute force, closed forms and known constants."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paper_tables import paper_table

from fastpe.theory.capacity import (
    mean_absolute_sum,
    nuclear_complexity,
    readout_bounds,
    readout_complexity,
    shifted_complexity,
)


def table(name):
    return paper_table(name)[:50]


def every_sign(count):
    return np.array(list(itertools.product((1.0, -1.0), repeat=count)))


def test_few_rows_by_full_enumeration():
    rows = np.random.default_rng(3).normal(size=(10, 4))
    found = readout_complexity(rows)
    expected = np.linalg.norm(every_sign(10) @ rows, axis=1).mean() / 10
    assert (found.kind, found.value) == ("exact", pytest.approx(expected, rel=1e-13))


# expected: one million draws, of which the tested 4096 are the first
@pytest.mark.parametrize(
    ("name", "expected", "bound"),
    [("sinusoidal", 0.739223, 0.8), ("wavelet", 0.141281, 0.141421), ("legendre", 0.210483, 0.222539)],
)
def test_fifty_positions_by_draws(name, expected, bound):
    found, sure = readout_complexity(table(name)), readout_bounds(table(name))
    assert found.kind == "estimate"
    assert found.low < found.value < found.high
    assert abs(found.value - expected) <= 1.6 * (found.high - found.value)  # 3 standard deviations
    assert sure.high == pytest.approx(bound, abs=1e-6)
    assert sure.low <= found.high
    assert found.low <= sure.high


@given(st.integers(1, 9), st.integers(1, 5), st.integers(0, 2**32), st.floats(0, 10))
def test_complexity_lies_between_its_bounds(count, width, seed, bound):
    rows = np.random.default_rng(seed).standard_cauchy((count, width)).clip(-1e6, 1e6)
    found, sure = readout_complexity(rows, bound).value, readout_bounds(rows, bound)
    assert sure.low * (1 - 1e-12) <= found <= sure.high * (1 + 1e-12)


def test_both_bounds_are_attained():
    two, orthogonal = np.array([[1.0], [1.0]]), np.eye(3)
    assert readout_complexity(two).value == pytest.approx(readout_bounds(two).low)
    assert readout_complexity(orthogonal).value == pytest.approx(readout_bounds(orthogonal).high)


def test_the_bound_scales_and_draws_repeat():
    rows = np.random.default_rng(0).normal(size=(20, 3))
    one, again, other = (readout_complexity(rows, 2.0, draws=100, seed=s) for s in (1, 1, 2))
    assert one == again
    assert one.value != other.value
    assert readout_complexity(rows, 4.0, draws=100, seed=1).value == pytest.approx(2 * one.value)
    assert one.inputs["draws"] == 100


def test_blocks_of_draws_differ():
    rows = np.random.default_rng(0).normal(size=(17, 2**14))
    one, two = (readout_complexity(rows, draws=draws).value for draws in (64, 128))
    assert one != pytest.approx(two, rel=1e-9)


def test_intervals_cover_what_is_exact():
    rows = np.random.default_rng(5).normal(size=(17, 4))
    exact = np.linalg.norm(np.concatenate([np.ones((2**16, 1)), every_sign(16)], axis=1) @ rows, axis=1).mean() / 17
    intervals = [readout_complexity(rows, draws=400, seed=seed) for seed in range(200)]
    covered = np.mean([each.low <= exact <= each.high for each in intervals])
    assert 0.90 <= covered <= 0.99


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 12])
def test_sum_of_signs_by_brute_force(count):
    assert mean_absolute_sum(count).value == pytest.approx(np.abs(every_sign(count).sum(axis=1)).mean(), rel=1e-14)


def test_sum_of_signs_of_many():
    exact = 50 * math.comb(49, 24) / 2**49
    assert mean_absolute_sum(50).value == pytest.approx(exact, rel=1e-15)
    assert mean_absolute_sum(10**9).value == pytest.approx(math.sqrt(2e9 / math.pi), rel=1e-9)


@pytest.mark.parametrize("width", [1, 2, 3])
def test_nuclear_norms_of_all_sign_matrices(width):
    matrices = every_sign(width * width).reshape(-1, width, width)
    brute = np.linalg.svd(matrices, compute_uv=False).sum(axis=1).mean() / width**2
    assert nuclear_complexity(width)["complexity"].value == pytest.approx(brute, rel=1e-13)
    assert nuclear_complexity(width, 3.0)["complexity"].value == pytest.approx(3 * brute, rel=1e-13)


def test_nuclear_norm_class_of_width_64():
    found = nuclear_complexity(64)
    assert found["factor"].kind == found["complexity"].kind == "estimate"
    assert abs(found["factor"].value - 6.7961) <= math.hypot(0.0020, found["factor"].high - found["factor"].value)
    assert found["limit"].value == pytest.approx(6.790611, abs=5e-7)
    assert found["complexity"].value == pytest.approx(found["factor"].value / 64)


def test_complexity_with_one_learned_row():
    rows = np.random.default_rng(2).normal(size=(6, 3))
    signs = every_sign(6)
    # the best p of norm B_p lies along sum s x, with the sign of sum s
    best = np.linalg.norm(signs @ rows, axis=1) + 0.7 * np.abs(signs.sum(axis=1))
    found = shifted_complexity(rows, 2.0, 0.7)
    assert found.value == pytest.approx(2.0 * best.mean() / 6, rel=1e-13)
    assert found.kind == "exact"
    assert shifted_complexity(np.zeros((50, 2)), 1.0, 1.0, draws=64).kind == "estimate"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: readout_complexity(np.ones(3)), r"rows must have shape \(N, d\), not \(3,\)"),
        (lambda: readout_complexity(np.full((2, 2), np.inf)), "rows must be finite"),
        (lambda: readout_complexity(np.ones((2, 2)), -1.0), "bound must be at least 0"),
        (lambda: readout_complexity(np.ones((20, 2)), draws=3), "draws must be at least 64, not 3"),
        (lambda: nuclear_complexity(0), "width must be at least 1"),
        (lambda: nuclear_complexity(4096), "width must be at most 1024"),
        (lambda: mean_absolute_sum(0), "count must be at least 1"),
        (lambda: shifted_complexity(np.ones((2, 2)), 1.0, -1.0), "shift must be at least 0"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_complexity_of_a_long_table_needs_little_memory():
    import tracemalloc

    rows = np.ones((2**14, 64))
    tracemalloc.start()
    readout_complexity(rows, draws=64)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6
