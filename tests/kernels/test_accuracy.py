"""Rounding errors of products and of the residual connection, where a row has one entry that is far larger."""

import numpy as np
import pytest

from fastpe import ModelConfig, Transformer
from fastpe.kernels import arrays
from fastpe.kernels.products.float_gemm import (
    FROM,
    LOWER_A,
    ONTO,
    OVERWRITE,
    PLUS,
    RELU,
    TERMS,
    UPPER_A,
    WHERE_POSITIVE,
)

UNIT = 2.0**-24
T = int(TERMS)
LARGE = 24000.0


def drawn(*shapes):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape, dtype=np.float32) for shape in shapes]


def rms(x):
    return float(np.sqrt(np.square(x).mean()))


def test_long_sums_are_made_of_short_ones():
    a, b = drawn((48, 12 * T), (12 * T, 48))
    exact = a.astype(np.float64) @ b
    # the error of one running sum is about 0.4 sqrt(n / 2) units, 16 here, and that of sums in pieces a third of it
    assert rms(arrays.gemm(a, b) - exact) < 9 * UNIT * rms(exact)


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("depth", [5, T, T + 1, 3 * T + 7])
@pytest.mark.parametrize("mode", [OVERWRITE, FROM, ONTO, FROM | PLUS, ONTO | PLUS, ONTO | RELU, ONTO | WHERE_POSITIVE])
def test_every_mode_of_sums_of_any_length(mode, depth):
    a, b, d, e = (x.astype(np.float64) for x in drawn((13, depth), (depth, 37), (13, 37), (13, 37)))
    right = a @ b + d * bool(mode & (FROM | ONTO)) + e * bool(mode & PLUS)
    right = np.maximum(right, 0) if mode & RELU else np.where(e > 0, right, 0) if mode & WHERE_POSITIVE else right
    np.testing.assert_allclose(arrays.gemm(a, b, int(mode), d, e), right, rtol=0, atol=1e-12)


@pytest.mark.parametrize("part", [LOWER_A, UPPER_A])
def test_pieces_do_not_depend_on_the_block_of_a_row(part):
    n = 2 * T + 30
    a, b = drawn((n, n), (n, 40))
    a = np.tril(a) if part == LOWER_A else np.triu(a)
    np.testing.assert_array_equal(arrays.gemm(a, b, int(part)), arrays.gemm(a, b))
    np.testing.assert_array_equal(arrays.gemm(a, b)[:1], arrays.gemm(a[:1], b))


def test_a_large_start_of_a_long_sum_is_added_to_its_first_piece():
    a, b, d = drawn((12, 4 * T), (4 * T, 32), (12, 32))
    d[:, 3] = LARGE
    exact = a.astype(np.float64) @ b + d
    for mode in (FROM, ONTO):  # each of four pieces is rounded once at the size of the start
        assert rms((arrays.gemm(a, b, int(mode), d) - exact)[:, 3]) < 2 * UNIT * LARGE


def test_norms_of_rows_with_a_large_entry():
    (x,) = drawn((16, 576))
    x[:, 7] = LARGE
    gain = np.ones(576, np.float32)
    exact = x / np.sqrt(np.square(x.astype(np.float64)).mean(-1, keepdims=True) + 1e-5)
    assert np.abs(arrays.rms_norm_forward(x, gain)[0] / exact - 1).max() < 8 * UNIT


@pytest.mark.parametrize("bias", [False, True])
def test_the_stream_keeps_what_a_layer_adds_to_a_large_value(bias):
    """The maps of a layer, with norms, see a stream of one huge channel, which the head's gain takes away again."""
    config = ModelConfig(
        "nope", width=64, heads=2, layers=1, hidden=128, causal=True, activation="swiglu", norm="rmsnorm", bias=bias,
        vocabulary=16, train_length=8,
    )  # fmt: skip
    model, exact = Transformer(config), Transformer(ModelConfig(**{**vars(config), "dtype": "float64"}))
    rng = np.random.default_rng(0)
    for name, x in model.parameters.items():
        x[...] = rng.standard_normal(x.shape) if "embed" in name else x
    model.parameters["embed.weight"][:, 7] = LARGE
    # logits are the stream itself: one entry of the head, the large channel
    model.parameters["head.weight"][...] = 0
    model.parameters["head.weight"][7] = 1
    exact.parameters = {name: x.astype(np.float64) for name, x in model.parameters.items()}
    tokens = np.arange(16).reshape(2, 8)
    # two additions at this size, half a unit each at the most
    assert np.abs(model(tokens) - exact(tokens)).max() <= 2.1 * UNIT * 32768
