"""Table 2's nominal numbers, and norms that enter them."""

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
    ("name", "length", "kind", "norm", "nominal"),
    [
        ("sinusoidal", 50, "paper", 9.0, 0.09), ("sinusoidal", 50, "exact", 6.656854249, 0.06656854),
        ("wavelet", 50, "exact", 2.0, 0.02), ("wavelet", 50, "paper", 2.0, 0.02),
        ("legendre", 50, "exact", 2.760348, 0.02760348), ("legendre", 100, "exact", 3.549870, 0.03549870),
        ("legendre", 200, "exact", 6.520529, 0.06520529), ("legendre", 50, "paper", 9.0, 0.09),
        ("learned", 50, "exact", 1.181666, 0.01181666), ("learned", 50, "paper", 1.181666, 0.01181666),
        ("alibi", 200, "paper", 1.398, 0.01398), ("alibi", 200, "exact", 1.0, 0.01), ("nope", 50, "exact", 1.0, 0.01),
    ],
)  # fmt: skip
def test_table_2(name, length, kind, norm, nominal):
    found = norms(name, length)[kind]
    assert found.value == pytest.approx(norm, abs=5e-7)
    number = nominal_complexity(found.value)
    assert number.value == pytest.approx(nominal, abs=5e-9)
    assert "nominal" in number.why


@pytest.mark.parametrize("position", [0, 1, 7, 1000, 123456])
def test_sinusoidal_rows_have_the_norm_of_half_the_width(position):
    rows = fastpe.build("sinusoidal", 1, dim=64, start=position, dtype="float64", reference=True)
    assert token_norms("sinusoidal", rows, content=0.0)["exact"].value == pytest.approx(5.656854249, abs=5e-10)


@pytest.mark.parametrize(("length", "largest"), [(50, 0.098), (100, 0.198), (200, 0.398)])
def test_bias_of_alibi(length, largest):
    assert norms("alibi", length)["paper"].value - 1.0 == pytest.approx(largest, abs=1e-12)


def test_relative_vectors_are_not_added_to_tokens():
    found = norms("shaw", 50)
    assert found["exact"].value == 1.0
    assert found["paper"].value > 1.0
    assert "paper" not in norms("nope", 50)


def test_largest_row_is_numpys():
    slots = fastpe.build("learned", 50, dim=64, dtype="float64")
    expected = np.linalg.norm(slots["table"], axis=1).max()
    assert token_norms("learned", slots, content=0.0)["exact"].value == pytest.approx(expected, rel=1e-14)
    assert norms("learned", 50)["exact"].value - 1.0 == pytest.approx(0.181666, abs=5e-7)


def test_logits_are_quadratic():
    found = logit_bounds(9.0, 1.0)
    assert [found[name].value for name in ("claimed", "attained", "attained_scaled")] == [10.0, 81.0, 10.125]
    assert found["bound"].high == 11.125
    ratios = [logit_bounds(b, 1.0)["attained_scaled"].value / logit_bounds(b, 1.0)["claimed"].value for b in (9, 90)]
    assert 1.0 < ratios[0] < ratios[1] / 5


def test_no_draw_is_beyond_the_logit_bound():
    rng = np.random.default_rng(0)
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
    assert random_rows_norm(33, 64).value == pytest.approx(0.212889, abs=5e-7)
    assert random_rows_norm(129, 64).value == pytest.approx(0.222353, abs=5e-7)
    rng = np.random.default_rng(1)
    for rows, width in ((1, 1), (1, 64), (33, 64), (500, 3)):
        largest = np.linalg.norm(rng.normal(size=(400, rows, width)), axis=2).max(axis=1)
        assert largest.mean() - 3 * largest.std() / 20 <= random_rows_norm(rows, width, 1.0).value
        assert random_rows_norm(rows, width, 1.0).value <= 1.6 * largest.mean()


def test_slopes():
    assert smallest_slope(fastpe.build("alibi", 50, heads=8)).value == 0.00390625
    paper = fastpe.build("alibi", 50, train_length=50, alpha0=0.1, dtype="float64")
    assert smallest_slope(paper).value == pytest.approx(0.002, rel=1e-12)


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
