"""`flex_attention` and dense attention in float64: output, lse and all gradients, for each kind of modification."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")

from flex_mods import CASES, INF, causal, dense, inputs  # noqa: E402 - only where the peers are
from torch.nn.attention import flex_attention as pytorch  # noqa: E402

from fastpe.torch import create_block_mask, flex_attention, flex_report  # noqa: E402
from fastpe.torch.mods import grids, rows  # noqa: E402


def results(attend, given, back, captured):
    """Output, lse where a key is seen, and gradients of inputs and captured tensors."""
    out, lse = attend(*given)
    lse = torch.where(lse > -INF, lse, 0.0)
    loss = (out * back[0]).sum() + (lse * back[1]).sum()
    gradients = torch.autograd.grad(loss, [*given, *captured], allow_unused=True, retain_graph=True)
    zeros = [torch.zeros_like(x) for x in (*given, *captured)]
    return [out, lse, *(zero if x is None else x for x, zero in zip(gradients, zeros, strict=True))]


def compare(name, dtype, n, m, b=2, h=4, key_heads=2):
    case = CASES[name](b, h, n, m, dtype)
    given, back = inputs(b, h, key_heads, n, m, dtype)
    mask = case.mask_mod and create_block_mask(case.mask_mod, b, h, n, m, BLOCK_SIZE=16)

    def ours(q, k, v):
        out, aux = flex_attention(
            q, k, v, case.score_mod, mask, enable_gqa=True, return_aux=pytorch.AuxRequest(lse=True)
        )
        return out, aux.lse

    found = results(ours, given, back, case.captured)
    right = results(lambda q, k, v: dense(q, k, v, case.score_mod, case.mask_mod), given, back, case.captured)
    tolerance = 1e-11 if dtype == torch.float64 else 2e-5
    for place, (x, y) in enumerate(zip(found, right, strict=True)):
        assert x.dtype == dtype
        assert (x - y).abs().max() <= tolerance * (1 + y.abs().max()), place
    report = flex_report(*given, case.score_mod, mask, enable_gqa=True)
    assert report.way == case.way, str(report)
    return report


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(name, dtype):
    compare(name, dtype, 36, 36)


@pytest.mark.full("as many cases again")
@pytest.mark.parametrize("sizes", [(36, 50), (41, 36)])
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_with_other_numbers_of_queries_and_keys(name, sizes):
    compare(name, torch.float64, *sizes)


@pytest.mark.parametrize("name", ["dense_bias_indexed_in_steps", "dilated", "function_of_both", "silu", "dense_holes"])
def test_chunks_of_queries(name, monkeypatch):
    monkeypatch.setattr(rows, "_CHUNK_BYTES", 2 * 4 * 36 * 4 * 16)
    monkeypatch.setattr(rows, "_FALLBACK_BYTES", 2 * 4 * 36 * 4 * 16)
    monkeypatch.setattr(grids, "MOST_CELLS", 2 * 4 * 36 * 16)
    monkeypatch.setattr("fastpe.torch.mods.sight._MOST_KEPT", 0)
    case = CASES[name](2, 4, 36, 36, torch.float32)
    given, _ = inputs(2, 4, 2, 36, 36, torch.float32)
    mask = case.mask_mod and create_block_mask(case.mask_mod, 2, 4, 36, 36, BLOCK_SIZE=16)
    report = flex_report(*given, case.score_mod, mask, enable_gqa=True)
    assert report.rows == 16
    assert report.way != "slots"
    found = flex_attention(*given, case.score_mod, mask, enable_gqa=True)
    right, _ = dense(*given, case.score_mod, case.mask_mod)
    torch.testing.assert_close(found, right.float(), rtol=0, atol=1e-5)
    wanted = [*given, *case.captured]
    for x, y in zip(torch.autograd.grad(found.sum(), wanted), torch.autograd.grad(right.sum(), wanted), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=2e-5)


@pytest.mark.parametrize("name", ["alibi", "soft_cap", "learned_by_offset", "dense_bias", "silu", "dilated"])
def test_outputs_are_those_of_pytorch(name, monkeypatch):
    monkeypatch.setattr(pytorch, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    case = CASES[name](2, 4, 36, 36, torch.float32)
    given = [x.detach() for x in inputs(2, 4, 2, 36, 36, torch.float32)[0]]
    mask = case.mask_mod and pytorch.create_block_mask(case.mask_mod, 2, 4, 36, 36, "cpu", BLOCK_SIZE=16)
    with torch.no_grad():
        found = flex_attention(*given, case.score_mod, mask, enable_gqa=True, scale=0.3)
        right = pytorch.flex_attention(*given, case.score_mod, mask, enable_gqa=True, scale=0.3)
    torch.testing.assert_close(found, right, rtol=0, atol=5e-6)


@pytest.mark.full("compares with differences, in float64")
@pytest.mark.parametrize("name", ["soft_cap_of_learned_bias_and_hidden_keys", "t5", "forget_gate", "factor_by_offset"])
def test_gradients_are_those_of_differences(name):
    case = CASES[name](1, 2, 12, 12, torch.float64)
    given, _ = inputs(1, 2, 1, 12, 12, torch.float64, width=3)
    mask = case.mask_mod and create_block_mask(case.mask_mod, None, None, 12, 12, BLOCK_SIZE=8)

    mod = case.score_mod
    if name == "forget_gate":
        t = case.captured[0]

        def mod(s, b, h, q, k):
            c = torch.nn.functional.logsigmoid(t).cumsum(-1)
            return s + (c[b, h, q] - c[b, h, k])

    def attend(*_):
        return flex_attention(*given, mod, mask, enable_gqa=True)

    assert torch.autograd.gradcheck(attend, (*given, *case.captured), fast_mode=True)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_is_computed_in_float32(dtype):
    given, back = inputs(1, 2, 1, 40, 40, torch.float32)
    given = [x.detach().to(dtype).requires_grad_() for x in given]
    t = torch.randn(40, generator=torch.Generator().manual_seed(3)).requires_grad_()

    def mod(s, b, h, q, k):
        return s * (1 + t[k]) + 0.1 * (k - q)

    mask = create_block_mask(causal, None, None, 40, 40)
    request = pytorch.AuxRequest(lse=True)
    out, aux = flex_attention(*given, mod, mask, enable_gqa=True, return_aux=request)
    assert (out.dtype, aux.lse.dtype) == (dtype, torch.float32)
    right, lse = dense(*given, mod, causal)
    torch.testing.assert_close(out, right.to(dtype), rtol=0, atol=2e-2)
    torch.testing.assert_close(aux.lse, lse.float(), rtol=0, atol=2e-2)
    found = torch.autograd.grad((out * back[0]).sum(), [*given, t])
    for x, y in zip(found, torch.autograd.grad((right * back[0]).sum(), [*given, t]), strict=True):
        torch.testing.assert_close(x.float(), y.float(), rtol=0.05, atol=0.05)


@pytest.mark.parametrize("sizes", [(1, 7), (7, 1)])
def test_few_queries_and_keys(sizes):
    q, k = torch.randn(2, 2, sizes[0], 4), torch.randn(2, 2, sizes[1], 4)
    mod = CASES["alibi"](2, 2, *sizes, torch.float32).score_mod
    torch.testing.assert_close(flex_attention(q, k, k, mod), dense(q, k, k, mod, None)[0].float())
    assert flex_attention(q[:, :, :0], k, k, mod).shape == (2, 2, 0, 4)
