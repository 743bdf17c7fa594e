"""Factors of queries: numbers of the models' own programs and of the papers, as encodings; what they count."""

import numpy as np
import pytest
from fixture_attention import results

import fastpe
from fastpe import temperatures

LLAMA = {"every": 2, "rule": "llama4"}

# encoding, options, causal, S[3,1], P[2,0], O[2,0], O[3,3] of the shared attention problem
FIXTURE = [
    ("temperature", LLAMA, -0.745219614, 0.151535964, 0.369789134, 0.691964985),
    ("ssmax", {}, -0.400257528, 0.243475474, 0.327964034, 0.690702401),
]


@pytest.mark.parametrize(("name", "options", *"spox"), FIXTURE)
def test_the_shared_attention_problem(name, options, s, p, o, x):
    slots = fastpe.build(name, 4, dim=4, causal=True, dtype=np.float64, **options)
    _, *found = results(slots, causal=True)
    np.testing.assert_allclose(found, [s, p, o, x], rtol=0, atol=1e-9)


def factors(name, length, **request):
    return fastpe.build(name, length, dim=8, heads=2, dtype=np.float64, **request)["row_scale"]


def test_factors_equal_those_of_released_models():
    places = [0, 8190, 8191, 16382, 16383, 131071, 1048575]
    expected = [1, 1, 1.069314718, 1.069314718, 1.109861229, 1.283321334, 1.485981240]
    found = factors("temperature", 7, positions=places, causal=True)
    np.testing.assert_allclose(found, [expected], atol=1e-9)
    expected = [1, 1, 1.069314718, 1.160943791, 1.277258872]
    places = [0, 16383, 16384, 65536, 262143]
    found = factors("temperature", 5, positions=places, causal=True, rule="ministral", every=16384)
    np.testing.assert_allclose(found, [expected], atol=1e-9)
    expected = [1, 1, 1, 1, 1.160964047, 1.292481250, 1.403677461, 1.5]
    np.testing.assert_allclose(factors("log_n", 8, train_length=4, causal=True), [expected], atol=1e-9)


def test_factors_equal_those_of_fastpe_temperatures():
    places = np.array([[0, 3, 9, 200], [5, 6, 7, 8]])
    ask = {"positions": places, "causal": True, "train_length": 6}
    same = [
        (factors("log_n", 4, **ask), temperatures.log_n(places, 6, dtype="float64")),
        (factors("temperature", 4, every=3, strength=0.5, **ask),
         temperatures.llama4(places, strength=0.5, every=3, dtype="float64")),
        (factors("temperature", 4, every=3, rule="ministral", **ask),
         temperatures.ministral(places, 3, dtype="float64")),
        (factors("temperature", 4, every=3, rule="beam", **ask), temperatures.beam(places, 3, dtype="float64")),
        (factors("temperature", 4, every=3, rule="inkling2", **ask),
         temperatures.inkling2(places, 3, dtype="float64")),
        (factors("ssmax", 4, params={"scale": np.array([0.4, 2.0])}, **ask), temperatures.ssmax([0.4, 2.0], places)),
        (factors("ssmax", 4, params={"scale": np.array([0.4, 2.0]), "bias": np.array([1.0, -2.0])}, bias=True, **ask),
         temperatures.ssmax([0.4, 2.0], places, [1.0, -2.0])),
    ]  # fmt: skip
    for found, expected in same:
        np.testing.assert_allclose(found, expected, rtol=1e-15)


def test_without_a_mask_all_keys_count():
    np.testing.assert_allclose(factors("log_n", 16, train_length=4), np.full((1, 16), 2.0))
    np.testing.assert_allclose(factors("ssmax", 16, initial=0.5), np.full((2, 16), np.log(4.0)))
    rows = factors("temperature", 4, every=2)  # a position is one, mask or not
    np.testing.assert_array_equal(rows, factors("temperature", 4, every=2, causal=True))


def test_scalable_softmax_with_a_bias_starts_without_effect():
    np.testing.assert_array_equal(factors("ssmax", 9, bias=True, causal=True), np.ones((2, 9)))
    np.testing.assert_allclose(factors("ssmax", 9, causal=True)[1], 0.43 * np.log(np.arange(1.0, 10)), rtol=1e-15)


def test_factors_of_a_sum_multiply_and_each_has_its_gradient():
    ask = {"dim": 8, "heads": 2, "train_length": 2, "causal": True, "dtype": np.float64}
    slots = fastpe.build("ssmax+log_n+rope", 5, **ask)
    product = factors("ssmax", 5, causal=True) * factors("log_n", 5, train_length=2, causal=True)
    np.testing.assert_allclose(slots["row_scale"], product, rtol=1e-15)
    gradients = {"row_scale": np.ones((2, 5)), "angles": np.zeros_like(slots["angles"])}
    found = fastpe.pull("ssmax+log_n+rope", 5, gradients, params={"ssmax.scale": np.ones(2)}, **ask)["ssmax.scale"]
    counts = np.arange(1.0, 6.0)
    expected = np.sum(np.log(counts) * np.maximum(np.log(counts) / np.log(2), 1))
    np.testing.assert_allclose(found, [expected, expected], rtol=1e-14)
