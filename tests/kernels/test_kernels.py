"""Every kernel, forward and backward, against plain NumPy in higher precision: error law, hostile inputs, guards."""

import math

import numpy as np
import pytest
from guards import assert_error_law, guarded
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from fastpe.doctor.allowed_error import wider
from fastpe.kernels import arrays, simd
from fastpe.kernels.fills import table
from fastpe.kernels.products.float_gemm import FROM, LOWER_A, LOWER_C, ONTO, PLUS, RELU, ROWS, UPPER_A, WHERE_POSITIVE
from fastpe.kernels.rows.dropout import Dropout

DTYPES = [np.float32, np.float64]
TILE = 4 * simd.REGISTER_BYTES // 4  # columns of a whole float32 panel
SIZES = sorted({1, 2, 3, ROWS - 1, ROWS, ROWS + 1, 29, 30, 31, TILE - 1, TILE, TILE + 1})
sizes = st.integers(1, 70)


def normal(seed, *shape, dtype=np.float64, scale=1.0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


def both(formula, dtype, *inputs):
    """The formula in higher precision and in the kernel's own dtype."""
    return formula(*(np.asarray(x, wider(dtype)) for x in inputs)), formula(*inputs)


# ---------------------------------------------------------------------------------------------------------------- gemm


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("mode", [0, FROM, FROM | PLUS, FROM | RELU, WHERE_POSITIVE])
@given(m=st.sampled_from(SIZES), n=sizes, depth=st.integers(0, 40), transposed=st.booleans(), seed=st.integers(0, 99))
def test_gemm(dtype, mode, m, n, depth, transposed, seed):
    a, b = normal(seed, m, depth, dtype=dtype), normal(seed + 1, depth, n, dtype=dtype)
    d, e = normal(seed + 2, m, n, dtype=dtype), normal(seed + 3, m, n, dtype=dtype)

    def formula(a, b, d, e):
        c = a @ b
        if mode & FROM:
            c = c + d
        if mode & PLUS:
            c = c + e
        if mode & RELU:
            c = np.maximum(c, 0)
        return np.where(e > 0, c, 0) if mode & WHERE_POSITIVE else c

    laid_out = np.ascontiguousarray(a.T) if transposed else a
    c, check = guarded((m, n), dtype)
    arrays._gemm(laid_out, transposed, b, c, np.int64(mode), d, e)
    check()
    reference, same = both(formula, dtype, a, b, d, e)
    # max(., 0) and the mask are exact: an entry may differ only where the sum changes sign within its own error
    scale = np.abs(a).astype(float) @ np.abs(b).astype(float) + np.abs(d) + np.abs(e)
    np.testing.assert_array_less(np.abs(c - reference), (depth + 4) * np.finfo(dtype).eps * scale + 1e-300)
    assert same.shape == c.shape


@pytest.mark.parametrize("dtype", DTYPES)
@given(n=st.integers(1, 150), width=sizes, seed=st.integers(0, 99))
def test_gemm_leaves_out_what_causal_attention_masks(dtype, n, width, seed):
    lower = np.tril(normal(seed, n, n, dtype=dtype))
    b = normal(seed + 1, n, width, dtype=dtype)
    for mode, a in ((LOWER_A, lower), (UPPER_A, lower.T)):
        scale = np.abs(a).astype(float) @ np.abs(b).astype(float)
        error = np.abs(arrays.gemm(a, b, mode) - a.astype(wider(dtype)) @ b)
        np.testing.assert_array_less(error, (n + 4) * np.finfo(dtype).eps * scale + 1e-300)
    c, check = guarded((n, n), dtype)
    arrays._gemm(b, False, np.ascontiguousarray(b.T), c, LOWER_C, c, c)
    check()
    np.testing.assert_allclose(np.tril(c), np.tril(arrays.gemm(b, np.ascontiguousarray(b.T))), rtol=1e-5, atol=1e-5)


def test_gemm_repeats_a_single_row_of_d():
    a, b, row = normal(0, 7, 5), normal(1, 5, 9), normal(2, 1, 9)
    np.testing.assert_allclose(arrays.gemm(a, b, FROM, row), a @ b + row, rtol=1e-13)


@pytest.mark.parametrize("dtype", DTYPES)
def test_products_and_sums_are_added_to_arrays_bit_by_bit(dtype):
    """To the bit: a product is finished before it goes onto D; sums of columns go on from what they are added to."""
    a, b, d = normal(0, 13, 40, dtype=dtype), normal(1, 40, 21, dtype=dtype), normal(2, 13, 21, dtype=dtype, scale=1e3)
    np.testing.assert_array_equal(arrays.gemm(a, b, ONTO, d), arrays.gemm(a, b) + d)
    out = d[0].copy()
    arrays._column_sums(d[1:], out)
    np.testing.assert_array_equal(out, np.add.accumulate(d)[-1])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [1, 7, 17, 33])
def test_no_kernel_writes_past_its_arrays(dtype, n):
    x, row, z = normal(n, n, dtype=dtype), normal(1, n, dtype=dtype), normal(2, 3, n, dtype=dtype)
    three, pairs, flat = normal(3, 3, dtype=dtype), normal(4, 3, 2, dtype=dtype), (n,)
    numbers, both = np.full(9, 0.5, dtype), normal(6, 3, 2 * n, dtype=dtype)
    for kernel, before, shapes, after in (
        (arrays._exp, (-abs(x),), [flat], ()),
        (arrays._norm, (z, row, row), [z.shape, pairs.shape], (1e-5, True, True)),
        (arrays._norm_backward, (z, z, row, pairs), [z.shape, flat, flat], (True, True)),
        *((arrays._activate, (), [y.shape, z.shape], (which,)) for y, which in ((z, 1), (z, 2), (both, 3))),
        *((arrays._activate_backward, (y,), [y.shape], (n, which)) for y, which in ((z, 1), (z, 2), (both, 3))),
        (arrays._drop, (), [z.shape], (Dropout(1, 2, 3, 4, 2**31, 2.0, 1), 5)),
        (arrays._squared_error, (x, row), [flat], (numbers[:1],)),
        (arrays._embed, (three, row, row, z, True), [z.shape], ()),
        (arrays._embed_backward, (z, three), [flat, flat, z.shape], ()),
        (arrays._head, (z, row, three), [three.shape], ()),
        (arrays._head_backward, (three, z, row), [z.shape, flat, (1,)], ()),
        (arrays._adam, (), [flat, flat, flat], (normal(5, 2, n, dtype=dtype), numbers, 1, True)),
    ):
        written, checks = zip(*(guarded(shape, dtype, 0.5) for shape in shapes), strict=True)
        kernel(*before, *written, *after)
        assert all(np.isfinite(array).all() for array in written)
        for check in checks:
            check()


def test_relu_lets_nan_through():
    a = np.array([[np.nan, 1.0], [1.0, -1.0]])
    c = arrays.gemm(a, np.eye(2), RELU)
    assert np.isnan(c[0]).all()
    np.testing.assert_array_equal(c[1], [1.0, 0.0])


@pytest.mark.parametrize("dtype", DTYPES)
@given(m=sizes, n=sizes)
def test_transpose_and_column_sums(dtype, m, n):
    x = normal(m * n, m, n, dtype=dtype)
    target, check = guarded((n, m), dtype)
    arrays._transpose(x, target)
    check()
    np.testing.assert_array_equal(target, x.T)
    reference, same = both(lambda x: x.sum(0), dtype, x)
    assert_error_law(arrays.column_sums(x), reference, same, m)


# ----------------------------------------------------------------------------------------------------------------- exp


@pytest.mark.parametrize(("dtype", "lowest"), [(np.float32, -87.0), (np.float64, -708.0)])
def test_exp_is_within_one_ulp(dtype, lowest):
    x = np.concatenate([np.linspace(lowest, 0, 200_001), -np.logspace(-30, 0, 1001), [0.0, -0.0]]).astype(dtype)
    exact = np.exp(x.astype(np.longdouble))
    ulps = np.abs(arrays.exp(x) - exact) / np.spacing(exact.astype(dtype))
    assert ulps.max() <= 1.0


@pytest.mark.parametrize("dtype", DTYPES)
def test_exp_of_special_values(dtype):
    x = np.array([0.0, -1e-40, -710.0, -np.inf, np.nan, -1e30], dtype)
    np.testing.assert_array_equal(arrays.exp(x), np.array([1.0, 1.0, 0.0, 0.0, np.nan, 0.0], dtype))


# --------------------------------------------------------------------------------------------------- norm, activation


def layer_norm_formula(x, weight, bias):
    centred = x - x.mean(1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(1, keepdims=True) + x.dtype.type(1e-5)) * weight + bias


def layer_norm_gradients(dy, x, weight):
    centred = x - x.mean(1, keepdims=True)
    rstd = 1 / np.sqrt((centred**2).mean(1, keepdims=True) + x.dtype.type(1e-5))
    h, g = centred * rstd, dy * weight
    dx = rstd * (g - g.mean(1, keepdims=True) - h * (g * h).mean(1, keepdims=True))
    return dx, (dy * h).sum(0), dy.sum(0)


@pytest.mark.parametrize("dtype", DTYPES)
@given(m=st.integers(1, 20), n=sizes, offset=st.sampled_from([0.0, 100.0]), seed=st.integers(0, 99))
def test_layer_norm(dtype, m, n, offset, seed):
    x = normal(seed, m, n, dtype=dtype) + dtype(offset)
    weight, bias, dy = (
        normal(seed + 1, n, dtype=dtype),
        normal(seed + 2, n, dtype=dtype),
        normal(seed + 3, m, n, dtype=dtype),
    )
    reference, same = both(layer_norm_formula, dtype, x, weight, bias)
    y, stats = arrays.layer_norm_forward(x, weight, bias)
    condition = 1 + abs(offset)  # the mean is rounded to the size of x
    assert_error_law(y, reference, same, n, condition)
    reference, same = both(layer_norm_gradients, dtype, dy, x, weight)
    eps = np.finfo(dtype).eps
    for ours, exact, numpy in zip(arrays.layer_norm_backward(dy, x, weight, stats), reference, same, strict=True):
        # at n = 1 the exact gradient of x is 0 and rstd is 1/sqrt(eps)
        floor = 64 * eps * condition * np.abs(dy).max() * max(1.0, np.abs(weight).max()) * np.abs(stats[:, 1]).max()
        np.testing.assert_array_less(np.abs(ours - exact), 2 * np.abs(numpy - exact).max() + floor * max(m, n) + 1e-300)


@pytest.mark.parametrize("dtype", DTYPES)
def test_gelu(dtype):
    x = np.concatenate([np.linspace(-40, 40, 4001), [0.0, -1e-30]]).astype(dtype)
    exact = x.astype(float) * special.ndtr(x.astype(float))
    # rounding the argument of Phi moves its tail by a factor of 1 + x^2 eps
    relative = (8 + x.astype(float) ** 2) * np.finfo(dtype).eps
    np.testing.assert_array_less(np.abs(arrays.gelu_forward(x) - exact), relative * np.abs(exact) + 1e-37)
    slope = special.ndtr(x.astype(float)) + x * np.exp(-0.5 * x.astype(float) ** 2) / math.sqrt(2 * math.pi)
    np.testing.assert_allclose(arrays.gelu_backward(x, np.full_like(x, 3)), 3 * slope, atol=16 * np.finfo(dtype).eps)


# ------------------------------------------------------------------------------------------------ ends, loss, optimiser


@pytest.mark.parametrize("dtype", DTYPES)
@given(n=st.integers(1, 40), c=sizes, seed=st.integers(0, 99))
def test_embedding_and_head(dtype, n, c, seed):
    x, z, dz = normal(seed, n, dtype=dtype), normal(seed + 1, n, c, dtype=dtype), normal(seed + 2, n, c, dtype=dtype)
    weight, bias, dy = (
        normal(seed + 3, c, dtype=dtype),
        normal(seed + 4, c, dtype=dtype),
        normal(seed + 5, n, dtype=dtype),
    )
    checks = [
        (arrays.embed_forward(x, weight, bias, z), lambda x, w, b, t: x[:, None] * w + b + t, (x, weight, bias, z), 3),
        (arrays.embed_backward(dz, x)[0], lambda d, x: x @ d, (dz, x), n),
        (arrays.embed_backward(dz, x)[1], lambda d: d.sum(0), (dz,), n),
        (arrays.head_forward(z, weight, bias[:1]), lambda z, w, b: z @ w + b, (z, weight, bias[:1]), c),
        (arrays.head_backward(dy, z, weight)[0], np.outer, (dy, weight), 1),
        (arrays.head_backward(dy, z, weight)[1], lambda d, z: d @ z, (dy, z), n),
        (arrays.head_backward(dy, z, weight)[2], lambda d: d.sum(keepdims=True), (dy,), n),
    ]
    for result, formula, inputs, terms in checks:
        # sums may cancel: measure against the sum of the sizes of their terms
        reference, same = both(formula, dtype, *inputs)
        size, _ = both(formula, dtype, *(np.abs(array) for array in inputs))
        bound = 2 * np.abs(same - reference).max() + 8 * np.finfo(dtype).eps * max(1, math.log2(terms + 1)) * size.max()
        assert np.abs(result - reference).max() <= bound
    np.testing.assert_array_equal(arrays.embed_backward(dz, x)[2], dz)


@pytest.mark.parametrize("dtype", DTYPES)
def test_mean_squared_error(dtype):
    y, target = normal(0, 77, dtype=dtype), normal(1, 77, dtype=dtype)
    loss, dy = arrays.mean_squared_error(y, target)
    assert loss == pytest.approx(np.mean((y.astype(float) - target) ** 2), rel=10 * float(np.finfo(dtype).eps))
    np.testing.assert_allclose(dy, 2 * (y.astype(float) - target) / 77, rtol=8 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", DTYPES)
@given(
    n=st.integers(1, 20), vocabulary=st.integers(1, 300), scale=st.sampled_from([0.1, 3, 1e3]), seed=st.integers(0, 99)
)
def test_cross_entropy(dtype, n, vocabulary, scale, seed):
    logits = normal(seed, n, vocabulary, dtype=dtype, scale=scale)
    tokens = np.random.default_rng(seed).integers(0, vocabulary, n)
    tokens[0], tokens[-1] = 0, vocabulary - 1
    dlogits, check = guarded(logits.shape, dtype)
    loss = arrays._cross_entropy(logits, tokens.astype(dtype), dlogits, np.full(1, 1 / n, dtype))
    check()
    exact, rows = logits.astype(float), np.arange(n)
    eps = float(np.finfo(dtype).eps)
    chosen = special.log_softmax(exact, -1)[rows, tokens]
    np.testing.assert_allclose(loss, -chosen.mean(), rtol=8 * eps, atol=8 * eps * math.log2(vocabulary + 1))
    # the rounding of a logit's distance from the largest moves its exponential by that distance times eps
    expected = special.softmax(exact, -1)
    expected[rows, tokens] -= 1
    spread = 8 * math.log2(vocabulary + 1) + np.minimum(np.ptp(exact, -1, keepdims=True), 90)
    assert (np.abs(dlogits * n - expected) <= spread * eps).all()
    ours, gradient = arrays.cross_entropy(logits, tokens)
    assert ours == loss
    np.testing.assert_array_equal(gradient, dlogits)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shift", [-1e4, -130.0, 900.0])
@pytest.mark.parametrize("vocabulary", [3, 37])
def test_cross_entropy_of_logits_that_all_lie_far_on_one_side(dtype, shift, vocabulary):
    """The largest is subtracted, whatever it is: what fills up the last vector is no logit."""
    logits = normal(0, 6, vocabulary, dtype=dtype) + dtype(shift)
    tokens, exact = np.arange(6) % vocabulary, logits.astype(float)
    loss, gradient = arrays.cross_entropy(logits, tokens)
    bound = 8 * np.finfo(dtype).eps * math.log2(vocabulary + 1)
    chosen = special.log_softmax(exact, -1)[np.arange(6), tokens]
    np.testing.assert_allclose(loss, -chosen.mean(), rtol=0, atol=bound * 4)
    expected = (special.softmax(exact, -1) - np.eye(vocabulary)[tokens]) / 6
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=bound)


def test_the_gradient_of_cross_entropy_may_take_the_place_of_the_logits():
    logits, tokens = normal(0, 5, 37, dtype=np.float32), np.arange(5) * 9
    loss, expected = arrays.cross_entropy(logits, tokens)
    assert arrays._cross_entropy(logits, tokens.astype(np.float32), logits, np.full(1, 1 / 5, np.float32)) == loss
    np.testing.assert_array_equal(logits, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@given(n=st.integers(1, 40), c=sizes, vocabulary=st.integers(1, 30), seed=st.integers(0, 99))
def test_embedding_of_tokens(dtype, n, c, vocabulary, seed):
    weight, table, dz = (normal(seed + k, m, c, dtype=dtype) for k, m in enumerate((vocabulary, n, n)))
    tokens = np.random.default_rng(seed).integers(0, vocabulary, n)
    tokens[0], tokens[-1] = 0, vocabulary - 1
    z, check_z = guarded((n, c), dtype)
    arrays._embed_tokens(tokens.astype(dtype), weight, table, True, z)
    check_z()
    np.testing.assert_array_equal(z, weight[tokens] + table)
    np.testing.assert_array_equal(arrays.embed_tokens_forward(tokens, weight), weight[tokens])
    (dweight, check_weight), (dtable, check_table) = (guarded((m, c), dtype, 0.5) for m in (vocabulary, n))
    arrays._embed_tokens_backward(dz, tokens.astype(dtype), dweight, dtable)
    check_weight()
    check_table()
    expected = np.full_like(weight, 0.5)
    np.add.at(expected, tokens, dz)  # in the order of the positions, as the kernel: equal bits
    np.testing.assert_array_equal(dweight, expected)
    np.testing.assert_array_equal(dtable, dz + dtype(0.5))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("groups", [1, 5])
def test_adam(dtype, groups):
    """Ten steps against the algorithm as its paper prints it, in higher precision."""
    lr, beta1, beta2, eps = 1e-2, 0.9, 0.999, 1e-8
    p, first, second = normal(0, 43, dtype=dtype), np.zeros(43, dtype), np.zeros(43, dtype)
    exact = [array.astype(wider(dtype)) for array in (p, first, second)]
    for step in range(1, 11):
        gradients = normal(step, groups, 43, dtype=dtype)
        arrays.adam_step(p, first, second, gradients, step, lr, beta1, beta2, eps)
        g = gradients.astype(wider(dtype)).sum(0)
        exact[1] = beta1 * exact[1] + (1 - beta1) * g
        exact[2] = beta2 * exact[2] + (1 - beta2) * g**2
        m, v = exact[1] / (1 - beta1**step), exact[2] / (1 - beta2**step)
        exact[0] = exact[0] - lr * m / (np.sqrt(v) + eps)
    for ours, reference in zip((p, first, second), exact, strict=True):
        np.testing.assert_allclose(ours, reference, rtol=50 * np.finfo(dtype).eps, atol=50 * np.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [1, 7, 16, 63, 64, 65, 127, 129, 1000])
def test_the_largest_is_found_anywhere_and_nowhere_else(dtype, size):
    """Beside the array lie larger numbers."""
    around = np.full(3 * size + 256, 9.0, dtype)
    values = around[size : 2 * size]
    values[...] = np.random.default_rng(size).uniform(-1, 1, size)
    for place in {0, size // 2, size - 1}:
        for value in (-3.0, 4.0):
            values[place] = value
            assert table.largest_of(values) == abs(value)
        values[place] = np.nan
        assert np.isnan(table.largest_of(values))
        values[place] = 0.5
