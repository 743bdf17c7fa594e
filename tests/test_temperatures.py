"""`fastpe.temperatures`: numbers of the models' own programs, and of the papers; positions of every kind."""

import numpy as np
import pytest
from fixture_attention import K, Q, V, results

import fastpe
from fastpe.temperatures import beam, inkling2, llama4, log_n, ministral, miniwin, ssmax, ssmax_vjp


def test_factors_are_those_of_the_models():
    places = [0, 8190, 8191, 16382, 16383, 131071, 1048575]
    expected = [1, 1, 1.069314718, 1.069314718, 1.109861229, 1.283321334, 1.485981240]
    np.testing.assert_allclose(llama4(places, dtype="float64"), [expected], atol=1e-9)
    expected = [1, 1, 1.069314718, 1.160943791, 1.277258872]
    np.testing.assert_allclose(ministral([0, 16383, 16384, 65536, 262143], dtype="float64"), [expected], atol=1e-9)
    expected = [1, 1, 1, 1, 1.160964047, 1.292481250, 1.403677461, 1.5]
    np.testing.assert_allclose(log_n(8, 4, dtype="float64"), [expected], atol=1e-9)
    expected = [[1.0000488174, 1.0717734625, 1.5180683844]]
    np.testing.assert_allclose(beam([0, 2047, 131071], dtype="float64"), expected, rtol=0, atol=5.1e-11)
    expected = [[1, 1.0000007812, 1.2055725015]]
    np.testing.assert_allclose(inkling2([127999, 128000, 999999], dtype="float64"), expected, rtol=0, atol=5.1e-11)
    found = [miniwin(64, 16), miniwin(4096, 16)]
    np.testing.assert_allclose(found, [1.5466631356, 2.9371825544], rtol=0, atol=5.1e-11)
    np.testing.assert_allclose(ministral([8192], 8192, strength=0.2, dtype="float64"), [[1 + 0.2 * np.log(2)]])


def test_attention_with_them():
    """Llama 4's steps every two positions, and Scalable-Softmax, on four tokens."""
    _, *found = results({"row_scale": llama4(4, every=2, dtype="float64")}, causal=True)
    np.testing.assert_allclose(found, [-0.745219614, 0.151535964, 0.369789134, 0.691964985], atol=1e-9)
    _, *found = results({"row_scale": ssmax(np.array([0.43]), 4)}, causal=True)
    np.testing.assert_allclose(found, [-0.400257528, 0.243475474, 0.327964034, 0.690702401], atol=1e-9)
    flat = dict.fromkeys("qkv", Q[None])
    out = fastpe.attention(**flat, causal=True, row_scale=llama4(4, every=2, dtype="float64"))
    np.testing.assert_allclose([out[0, 2, 0], out[0, 3, 3]], [0.429670271, -0.733541747], atol=1e-9)


def test_scalable_softmax_keeps_its_peak():
    scores = np.array([-2.0] * 9 + [3.0])
    powers = np.exp(ssmax([0.43], [9])[0, 0] * scores)
    assert abs(powers[-1] / powers.sum() - 0.940101330) < 1e-9


def test_the_gradient_of_scalable_softmax_through_attention():
    four, step = {name: x[None, None] for name, x in (("q", Q), ("k", K), ("v", V))}, 1e-6
    factor, pullback = ssmax_vjp(np.array([0.43]), 4)
    found = pullback(fastpe.attention_vjp(**four, causal=True, row_scale=factor)[1](four["v"])["row_scale"])["scale"]
    ends = [
        np.sum(four["v"] * fastpe.attention(**four, causal=True, row_scale=ssmax(np.array([0.43 + sign * step]), 4)))
        for sign in (1, -1)
    ]
    np.testing.assert_allclose(found, [(ends[0] - ends[1]) / (2 * step)], rtol=1e-7)


@pytest.mark.parametrize("function", [log_n, ministral, llama4, lambda places, every, **_: ssmax([0.1, 0.2], places)])
def test_positions_may_be_a_number_a_row_or_of_each_sample(function):
    whole = function(9, 4) if function is not llama4 else llama4(9, every=4)
    some = function([[0, 3], [8, 5]], 4) if function is not llama4 else llama4([[0, 3], [8, 5]], every=4)
    assert some.shape == (2, len(whole), 2)
    np.testing.assert_array_equal(some[1], whole[:, [8, 5]])
    np.testing.assert_array_equal(
        function(np.arange(9), 4) if function is not llama4 else llama4(range(9), every=4), whole
    )


def test_scalable_softmax_with_a_bias():
    scale, bias, d = np.array([0.0, 0.3]), np.array([1.0, -2.0]), np.arange(6.0).reshape(2, 3)
    factor, pullback = ssmax_vjp(scale, 3, bias)
    np.testing.assert_allclose(factor, [[1, 1, 1], 0.3 * np.log([1, 2, 3]) - 2], rtol=1e-15)
    found = pullback(d)
    np.testing.assert_allclose(found["scale"], d @ np.log([1, 2, 3]), rtol=1e-15)
    np.testing.assert_array_equal(found["bias"], d.sum(axis=1))


def test_dtypes():
    for function in (lambda dtype: log_n(3, 2, dtype=dtype), lambda dtype: llama4(3, dtype=dtype),
                     lambda dtype: ministral(3, dtype=dtype), lambda dtype: ssmax(np.ones(1, dtype), 3)):  # fmt: skip
        for dtype in ("float32", "float64"):
            assert function(dtype).dtype == dtype


WRONG = {
    "positions must hold integers": lambda: log_n([0.5], 4),
    r"positions must lie in \[0, ": lambda: llama4([-1]),
    "positions must be at least 1": lambda: llama4(0),
    r"positions must have the shape \(N,\)": lambda: ssmax([1.0], [[[1]]]),
    "train_length must be at least 2": lambda: log_n(3, 1),
    "train_length must be an integer": lambda: ministral(3, 2.5),
    "every": lambda: llama4(3, every=0),
    "strength": lambda: llama4(3, strength="a"),
    "dtype": lambda: log_n(3, 2, dtype="float16"),
    r"scale must have the shape \(H,\)": lambda: ssmax(0.4, 3),
    r"bias must have the shape of scale, \(1,\), not \(2,\)": lambda: ssmax([0.4], 3, [1.0, 2.0]),
    "keys must be at least 1": lambda: miniwin(0),
    "offset must be at least 1, not 0": lambda: miniwin(3, 0),
}


@pytest.mark.parametrize("text", WRONG)
def test_what_is_wrong_is_one_clear_error(text):
    with pytest.raises((TypeError, ValueError), match=f"^{text}"):
        WRONG[text]()
