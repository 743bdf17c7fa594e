"""`fastpe.rotate` beside NumPy's complex product, and its gradients beside the reference and the adjoint's identity."""

import numpy as np
import pytest
from array_kinds import gapped, read_only, stepped, transposed, unaligned
from guards import assert_error_law, guarded_allocations, guarded_results
from hypothesis import given
from hypothesis import strategies as st

import fastpe
from fastpe import reference
from fastpe.functional import rotation

PAIRS = ("interleaved", "half")


@pytest.fixture
def rng():
    return np.random.default_rng(4)


def complex_product(x, factors, pairs):
    """x with its pairs, as complex numbers, times factors, in complex128."""
    x, count = x.astype(np.float64), factors.shape[-1]
    channels = np.arange(2 * count).reshape((2, count), order="F" if pairs == "interleaved" else "C")
    product = (x[..., channels[0]] + 1j * x[..., channels[1]]) * factors
    y = x.copy()
    y[..., channels[0]], y[..., channels[1]] = product.real, product.imag
    return y


@given(data=st.data())
def test_outputs_are_complex_products(data):
    draw = data.draw
    lead = draw(st.sampled_from([(), (1,), (17,), (2, 3), (1, 17), (3, 1), (17, 1, 2), (2, 3, 17), (3, 2, 1)]))
    n, d = draw(st.sampled_from([1, 2, 63, 64, 65])), draw(st.sampled_from([2, 3, 7, 16, 33, 64, 130]))
    count = draw(st.integers(1, d // 2))
    kept = draw(st.integers(0, len(lead)))
    own = tuple(size if draw(st.booleans()) else 1 for size in lead[len(lead) - kept :])
    dtype, pairs = draw(st.sampled_from([np.float32, np.float64])), draw(st.sampled_from(PAIRS))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    x, angles = rng.standard_normal((*lead, n, d)).astype(dtype), rng.uniform(-4, 4, (*own, n, count))
    y, exact = fastpe.rotate(x, angles, pairs=pairs), complex_product(x, np.exp(1j * angles), pairs)
    assert y.shape == x.shape
    assert_error_law(y, exact, exact.astype(dtype), 2)
    cos, sin = rng.standard_normal((2, *angles.shape))
    y, exact = fastpe.rotate(x, pairs=pairs, cos_sin=(cos, sin)), complex_product(x, cos + 1j * sin, pairs)
    assert_error_law(y, exact, exact.astype(dtype), 2)


@given(data=st.data())
def test_gradients(data):
    draw = data.draw
    lead = tuple(draw(st.lists(st.integers(1, 3), max_size=3)))
    n, d = draw(st.integers(1, 9)), draw(st.integers(2, 20))
    own = (*(draw(st.sampled_from([1, size])) for size in lead), n, draw(st.integers(1, d // 2)))
    own, pairs = own[draw(st.integers(0, len(lead))) :], draw(st.sampled_from(PAIRS))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    x, dy = rng.standard_normal((2, *lead, n, d))
    by_angles, by_factors = {"angles": rng.uniform(-4, 4, own)}, {"cos_sin": tuple(rng.standard_normal((2, *own)))}
    for arguments in (by_angles, by_factors):
        y, pullback = fastpe.rotate_vjp(x, pairs=pairs, **arguments)
        exact, exact_pullback = reference.rotate_vjp(x, pairs=pairs, **arguments)
        np.testing.assert_allclose(y, exact, rtol=1e-13, atol=1e-13)
        found, wanted = pullback(dy), exact_pullback(dy)
        assert list(found) == list(wanted)
        for name, gradient in found.items():
            assert np.shape(gradient) == np.shape(wanted[name])
            np.testing.assert_allclose(gradient, wanted[name], rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose((found["x"] * x).sum(), (dy * y).sum(), rtol=1e-12, atol=1e-12)  # the adjoint


def test_the_reference_has_the_gradient_of_its_own_value(rng):
    """Beside differences: complex numbers, which know no pairs of channels."""
    x, dy, angles = rng.standard_normal((2, 3, 6)), rng.standard_normal((2, 3, 6)), rng.uniform(-4, 4, (3, 2))
    gradient, step = reference.rotate_vjp(x, angles)[1](dy)["angles"], 1e-6
    for place in np.ndindex(angles.shape):
        moved = angles.copy()
        moved[place] += step
        change = complex_product(x, np.exp(1j * moved), "interleaved") - reference.rotate(x, angles)
        assert abs((change * dy).sum() / step - gradient[place]) < 1e-4


@pytest.mark.parametrize("layout", [gapped, stepped, read_only, unaligned, transposed])
def test_every_layout(rng, layout):
    x, angles = rng.standard_normal((2, 3, 5, 8)).astype(np.float32), rng.uniform(-4, 4, (3, 5, 2))
    expected = fastpe.rotate(x, angles)
    np.testing.assert_array_equal(fastpe.rotate(layout(x), layout(angles[None])[0]), expected)
    np.testing.assert_array_equal(fastpe.rotate(layout(x)[0, 0], angles[0]), expected[0, 0])


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_half_precision_is_computed_in_float32(rng, name):
    dtype = np.float16 if name == "float16" else pytest.importorskip("ml_dtypes").bfloat16
    x, angles = rng.standard_normal((3, 5, 8)).astype(dtype), rng.uniform(-4, 4, (5, 4)).astype(dtype)
    y, pullback = fastpe.rotate_vjp(x, angles)
    wide = fastpe.rotate_vjp(x.astype(np.float32), angles)
    np.testing.assert_array_equal(y, wide[0].astype(dtype))
    for name, gradient in pullback(x).items():
        assert gradient.dtype == dtype
        np.testing.assert_array_equal(gradient, wide[1](x.astype(np.float32))[name].astype(dtype))


def test_sines_of_float32_are_the_nearest_but_where_two_are_as_near(rng):
    """Up to 2^26 radians: one in two thousand may be the other neighbour of what lies in the middle."""
    for reach in (1.0, 100.0, 2.0**26):
        angles = rng.uniform(-reach, reach, (5000, 2))
        turned = fastpe.rotate(np.tile(np.float32([1, 0, 1, 0]), (5000, 1)), angles)
        exact = np.stack([np.cos(angles), np.sin(angles)], -1).reshape(5000, 4)
        nearest = exact.astype(np.float32)
        assert (turned != nearest).mean() < 1 / 2000
        np.testing.assert_array_less(np.abs(turned - exact), 0.51 * np.spacing(np.abs(nearest)))


def test_what_attention_turns_by_its_slot_is_what_rotate_turns(rng):
    q, k, v = rng.standard_normal((3, 2, 4, 9, 8))
    angles = rng.uniform(-4, 4, (4, 9, 3))
    for pairs in PAIRS:
        turned = (fastpe.rotate(x, angles, pairs=pairs) for x in (q, k))
        np.testing.assert_array_equal(
            fastpe.attention(*turned, v, causal=True),
            fastpe.attention(q, k, v, causal=True, angles=angles, pairs=pairs),
        )


def test_arguments_are_left_as_they_are_and_nothing_is_read_or_written_beyond(rng, monkeypatch):
    checks = guarded_allocations(monkeypatch), guarded_results(monkeypatch, rotation)
    x, angles = rng.standard_normal((3, 70, 6)), rng.uniform(-4, 4, (70, 2))
    before = x.copy(), angles.copy()
    y, pullback = fastpe.rotate_vjp(x, angles, wrt=("angles",))
    assert list(pullback(y)) == ["angles"]
    np.testing.assert_array_equal(x, before[0])
    np.testing.assert_array_equal(angles, before[1])
    for check in checks:
        check()
    assert not np.shares_memory(x, y)


@pytest.mark.parametrize("shape", [(0, 4), (0, 3, 4), (2, 0, 3, 4)])
def test_no_rows_are_rotated(shape):
    y, pullback = fastpe.rotate_vjp(np.zeros(shape), np.zeros((shape[-2], 2)))
    assert y.shape == shape
    gradients = pullback(y)
    np.testing.assert_array_equal(gradients["angles"], np.zeros((shape[-2], 2)))


def test_infinities_and_nan_stay_in_their_pairs(rng):
    x = rng.standard_normal((2, 6))
    x[0, 0], x[1, 5] = np.inf, np.nan
    y = fastpe.rotate(x, rng.uniform(0.1, 1, (2, 3)))
    np.testing.assert_array_equal(np.isfinite(y), [[0, 0, 1, 1, 1, 1], [1, 1, 1, 1, 0, 0]])


@pytest.mark.parametrize(
    ("kind", "words", "arguments"),
    [
        (ValueError, "x must have the shape (..., N, D), D at least 2, not (8,)", {"x": np.ones(8)}),
        (ValueError, "x must have the shape", {"x": np.ones((5, 1))}),
        (TypeError, "x must ", {"x": np.ones((5, 8), int)}),
        (ValueError, "angles must have the shape (N, R)", {"angles": np.ones((4, 2))}),
        (ValueError, "R from 1 to 4", {"angles": np.ones((5, 5))}),
        (ValueError, "angles must have the shape", {"angles": np.ones((5, 0))}),
        (ValueError, "angles must have the shape", {"angles": np.ones((2, 5, 2))}),
        (ValueError, "angles must have the shape", {"angles": np.ones((1, 3, 5, 2))}),
        (ValueError, "angles must be finite", {"angles": np.full((5, 2), np.nan)}),
        (ValueError, "exactly one of angles and cos_sin", {"cos_sin": (np.ones((5, 2)),) * 2}),
        (ValueError, "exactly one of angles and cos_sin", {"angles": None}),
        (TypeError, "cos_sin must be a tuple of two arrays", {"angles": None, "cos_sin": np.ones((2, 5, 2))}),
        (ValueError, "cos_sin[1] must be finite", {"angles": None, "cos_sin": (np.eye(5, 2), np.full((5, 2), np.nan))}),
        (ValueError, "two arrays of one shape", {"angles": None, "cos_sin": (np.ones((5, 2)), np.ones((5, 1)))}),
        (ValueError, "pairs must be 'interleaved' or 'half', not 'both'", {"pairs": "both"}),
        (ValueError, "pairs must be", {"pairs": np.array(["half", "half"])}),
    ],
)  # fmt: skip
def test_wrong_arguments_are_refused_before_anything_is_computed(monkeypatch, kind, words, arguments):
    monkeypatch.setattr(rotation, "run_team", lambda *a: pytest.fail("something was computed"))
    for call in (fastpe.rotate, fastpe.rotate_vjp):
        with pytest.raises(kind) as caught:
            call(**{"x": np.ones((3, 5, 8)), "angles": np.ones((5, 2)), **arguments})
        assert words in str(caught.value)


def test_wrong_arguments_of_gradients_are_refused():
    x, angles = np.ones((5, 4)), np.ones((5, 2))
    with pytest.raises(
        ValueError, match="wrt names 'cos_sin', but the given arguments that have a gradient are x, angles"
    ):
        fastpe.rotate_vjp(x, angles, wrt=("cos_sin",))
    pullback = fastpe.rotate_vjp(x, angles)[1]
    with pytest.raises(ValueError, match=r"dy must have the shape of x, \(5, 4\), not \(5, 2\)"):
        pullback(angles)
