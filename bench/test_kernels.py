"""The kernels of the training step with its shapes, for one sequence on one thread, compared with NumPy and PyTorch.

A call repeats a product several times. Only `fastpe bench gemm` subtracts the cost of calling a peer from Python.
"""

import numpy as np
import pytest

import fastpe
from fastpe.benchmarks import jobs
from fastpe.benchmarks.models import CASES, products
from fastpe.kernels import arrays

N, C = 50, 64
RANDOM = np.random.default_rng(0)
PRODUCTS = {f"{model}-{each.name}": each for model in ("paper", "lm") for each in products(CASES[model].config)}


def matrix(*shape):
    return RANDOM.standard_normal(shape, np.float32)


def numpy_attention(q, k, v):
    scores = q @ k.T / np.float32(np.sqrt(C))
    weights = np.exp(scores - scores.max(1, keepdims=True))
    return (weights / weights.sum(1, keepdims=True)) @ v


@pytest.mark.parametrize("name", PRODUCTS)
@pytest.mark.parametrize("library", ["fastpe", "torch", "numpy"])
@pytest.mark.benchmark(group="gemm")
def test_gemm(measure, name, library):
    product = PRODUCTS[name]
    try:
        job = jobs.product(library, product)
    except jobs.Absent as why:
        pytest.skip(f"{library}: {why}")
    measure(job.call, flop=product.flop * job.repeats)


@pytest.mark.parametrize("library", ["fastpe", "numpy"])
@pytest.mark.benchmark(group="attention")
def test_attention_forward(measure, library):
    q, k, v = matrix(N, C), matrix(N, C), matrix(N, C)
    one_head = q[None], k[None], v[None]
    np.testing.assert_allclose(fastpe.attention(*one_head)[0], numpy_attention(q, k, v), atol=1e-5)
    call = {"fastpe": lambda: fastpe.attention(*one_head), "numpy": lambda: numpy_attention(q, k, v)}[library]
    measure(call, flop=4 * N * N * C, bytes_moved=16 * N * C)


@pytest.mark.parametrize("library", ["fastpe", "numpy"])
@pytest.mark.benchmark(group="exp")
def test_exp(measure, library):
    x = -np.abs(matrix(100_000))
    np.testing.assert_allclose(arrays.exp(x), np.exp(x), rtol=1e-6)
    measure({"fastpe": lambda: arrays.exp(x), "numpy": lambda: np.exp(x)}[library], bytes_moved=8 * x.size)
