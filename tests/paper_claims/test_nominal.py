"""Norms that enter Table 2, beyond the numbers that are stored with claims C41 to C55 (test_claims.py)."""

import math

import numpy as np
import pytest

import fastpe
from fastpe.paper_claims.nominal import logit_bounds, nominal_complexity, random_rows_norm, smallest_slope, token_norms

OPTIONS = {"alibi": {"alpha0": 0.1}, "legendre": {"map": "tanh", "gamma": 1.0}}


def norms(name, length, **more):
    options = {**OPTIONS.get(name, {}), **more}
    slots = fastpe.build(name, length, dim=64, train_length=50, dtype="float64", reference=True, **options)
    return token_norms(name, slots)


@pytest.mark.parametrize(
    ("name", "kind", "norm"),
    [("wavelet", "paper", 2.0), ("legendre", "paper", 9.0), ("learned", "paper", 1.181666), ("nope", "exact", 1.0)],
)
def test_norms_of_tokens(name, kind, norm):
    assert norms(name, 50)[kind].value == pytest.approx(norm, abs=5e-7)


def test_relative_vectors_are_not_added_to_tokens():
    found = norms("shaw", 50)
    assert found["exact"].value == 1.0
    assert found["paper"].value > 1.0
    assert "paper" not in norms("nope", 50)


def test_random_logits_never_exceed_their_bound():
    rng = np.random.default_rng(0)
    assert logit_bounds(9.0, 1.0)["bound"].high == 11.125
    for _ in range(500):
        query, key = (_unit(rng, 4) * 1.3 for _ in range(2))
        zi, zj, vector, direction = (each / np.linalg.norm(each) for each in rng.normal(size=(4, 4)))
        for content, size, long in ((2.0, 0.7, 0.4), (0.1, 3.0, 2.0)):
            found = logit_bounds(content, size, weight=1.3, head_width=4, direction=long)
            relative = size * long * vector @ direction
            product = content**2 * (zi @ query) @ (zj @ key)
            assert abs(product + relative) <= found["bound_unscaled"].value
            assert abs(product / 2.0 + relative) <= found["bound"].value


def _unit(rng, width):
    found = rng.normal(size=(width, width))
    return found / np.linalg.norm(found, 2)


def test_norms_of_random_rows():
    rng = np.random.default_rng(1)
    for rows, width in ((1, 1), (1, 64), (33, 64), (500, 3)):
        largest = np.linalg.norm(rng.normal(size=(400, rows, width)), axis=2).max(axis=1)
        assert largest.mean() - 3 * largest.std() / 20 <= random_rows_norm(rows, width, 1.0).value
        assert random_rows_norm(rows, width, 1.0).value <= 1.6 * largest.mean()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: token_norms("nope", {}, content=-1.0), "content must be at least 0"),
        (lambda: nominal_complexity(math.inf), "token_norm must be finite"),
        (lambda: nominal_complexity(1.0, 0), "samples must be at least 1"),
        (lambda: logit_bounds(1.0, -1.0), "vector must be at least 0"),
        (lambda: random_rows_norm(0, 4), "rows must be at least 1"),
        (lambda: random_rows_norm(4, 4, 0.0), "deviation must be above 0"),
        (lambda: smallest_slope({}), "slots must have a bias"),
        (lambda: smallest_slope(fastpe.build("alibi", 1)), "slots must have a bias of at least two positions"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
