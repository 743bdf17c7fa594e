"""The kernels of the step on its own shapes, one sequence, one thread, beside NumPy (BLAS on its own threads)."""

import numpy as np
import pytest

from fastpe.kernels import arrays

N, C, F = 50, 64, 128
RANDOM = np.random.default_rng(0)
SHAPES = {"qkv": (N, 3 * C, C), "out": (N, C, C), "in": (N, F, C), "ff": (N, C, F), "dweight": (C, 3 * C, N)}


def matrix(*shape):
    return RANDOM.standard_normal(shape, np.float32)


def numpy_attention(q, k, v):
    scores = q @ k.T / np.float32(np.sqrt(C))
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return (weights / weights.sum(1, keepdims=True)) @ v


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("library", ["fastpe", "numpy"])
@pytest.mark.benchmark(group="gemm")
def test_gemm(measure, shape, library):
    m, n, depth = SHAPES[shape]
    a, b = matrix(m, depth), matrix(depth, n)
    np.testing.assert_allclose(arrays.gemm(a, b), a @ b, atol=1e-3)
    call = {"fastpe": lambda: arrays.gemm(a, b), "numpy": lambda: a @ b}[library]
    measure(call, flop=2 * m * n * depth, bytes_moved=4 * (m * n + m * depth + n * depth))


@pytest.mark.parametrize("library", ["fastpe", "numpy"])
@pytest.mark.benchmark(group="attention")
def test_attention_forward(measure, library):
    q, k, v = matrix(N, C), matrix(N, C), matrix(N, C)
    np.testing.assert_allclose(arrays.attention_forward(q, k, v)[0], numpy_attention(q, k, v), atol=1e-5)
    call = {"fastpe": lambda: arrays.attention_forward(q, k, v), "numpy": lambda: numpy_attention(q, k, v)}[library]
    measure(call, flop=4 * N * N * C, bytes_moved=16 * N * C)


@pytest.mark.parametrize("library", ["fastpe", "numpy"])
@pytest.mark.benchmark(group="exp")
def test_exp(measure, library):
    x = -np.abs(matrix(100_000))
    np.testing.assert_allclose(arrays.exp(x), np.exp(x), rtol=1e-6)
    measure({"fastpe": lambda: arrays.exp(x), "numpy": lambda: np.exp(x)}[library], bytes_moved=8 * x.size)
