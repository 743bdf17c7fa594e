"""Float32 attention beside float64: no worse than NumPy in float32, nor than PyTorch's own kernel, where that is there.

The law of `fastpe.doctor.allowed_error` bounds the largest error; here the typical error is held to that of others, on
inputs on which sums in an unlucky order, or an inexact exponential, would show.
"""

import importlib.util
import math

import numpy as np
import pytest
from attention_problems import assert_agrees

import fastpe
from fastpe.reference._attention import attention_vjp_in

TORCH = importlib.util.find_spec("torch") is not None
NAMES = ("out", "q", "k", "v", "bias")
CASES = ("random", "large scores", "long rows", "long causal rows", "alibi", "learned")


def inputs(case):
    """Arguments of attention, the gradient of its output, and which gradients are wanted."""
    rng, n, heads = np.random.default_rng(7), 2048 if case.startswith("long") else 320, 1
    if case not in ("long rows", "long causal rows"):
        heads = 4
    q, k, v, dout = rng.standard_normal((4, 1, heads, n, 64), np.float32)
    arguments = {"q": q, "k": k, "v": v}
    if case == "large scores":  # a normal times 25: the softmax sees little but the largest
        arguments["q"] = 25 * q
    slopes = 2.0 ** -(2.0 * np.arange(1, heads + 1))
    if case == "alibi":
        arguments["bias"] = (-slopes[:, None] * np.abs(np.arange(1 - n, n))).astype(np.float32)
    if case == "learned":
        arguments["bias"] = rng.standard_normal((heads, 2 * n - 1), np.float32)
    return arguments, dout, case in ("long causal rows", "alibi")


def results(vjp, arguments, dout, causal):
    out, pullback = vjp(**arguments, causal=causal)
    return {"out": out, **pullback(dout)}


def sdpa(arguments, dout, causal):
    """PyTorch's own kernel; its way through a mask whose gradient is wanted is another, so a bias is not learned."""
    import torch

    q, k, v = leaves = [torch.tensor(arguments[name], requires_grad=True) for name in "qkv"]
    mask = None
    if "bias" in arguments:
        offsets = np.arange(q.shape[2])[None, :] - np.arange(q.shape[2])[:, None]
        mask = arguments["bias"][:, offsets + q.shape[2] - 1]
        mask = torch.tensor(np.where((offsets > 0) & causal, np.float32(-np.inf), mask))[None]
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, mask, is_causal=causal and mask is None)
    found = torch.autograd.grad(out, leaves, torch.tensor(dout))
    return {"out": out.detach().numpy(), **dict(zip("qkv", (x.numpy() for x in found), strict=True))}


def largest(found, exact):
    return float(np.abs(found - exact).max())


def typical(found, exact):
    return math.sqrt(np.mean((found - exact) ** 2))


@pytest.mark.parametrize("case", CASES)
@pytest.mark.full("takes seconds")
def test_errors_are_no_larger_than_numpys(case):
    arguments, dout, causal = inputs(case)
    assert_agrees(arguments, causal=causal, condition=25.0 if case == "large scores" else 1.0)
    exact = results(fastpe.reference.attention_vjp, arguments, dout, causal)
    ours = results(fastpe.attention_vjp, arguments, dout, causal)
    numpys = results(lambda **given: attention_vjp_in(np.float32, **given), arguments, dout, causal)
    for name, right in exact.items():
        assert ours[name].dtype == np.float32
        assert typical(ours[name], right) <= 2 * typical(numpys[name], right), name


@pytest.mark.skipif(not TORCH, reason="PyTorch is not installed")
@pytest.mark.parametrize("case", CASES)
def test_errors_are_at_most_twice_those_of_pytorchs_kernel(case):
    arguments, dout, causal = inputs(case)
    exact = results(fastpe.reference.attention_vjp, arguments, dout, causal)
    ours = results(fastpe.attention_vjp, arguments, dout, causal)
    theirs = sdpa(arguments, dout, causal)
    for name, found in theirs.items():
        for measure in (largest, typical):
            assert measure(ours[name], exact[name]) <= 2 * measure(found, exact[name]), (name, measure.__name__)
