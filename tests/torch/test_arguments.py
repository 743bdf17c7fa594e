"""What tensors may be beside slots: masks, spans, sinks, dropout, half precision; and PyTorch's own samples."""

import numpy as np
import pytest

import fastpe

torch = pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")

from fastpe.torch import attention  # noqa: E402 - only where PyTorch is


@pytest.fixture
def draw():
    return torch.Generator().manual_seed(0)


def qkv(draw, n=4, m=5, d=4, width=3, dtype=torch.float64):
    sizes = (2, 2, n, d), (2, 1, m, d), (2, 1, m, width)
    return [torch.randn(size, dtype=torch.float64, generator=draw).to(dtype).requires_grad_() for size in sizes]


def float_mask(draw):
    mask = torch.randn(2, 1, 4, 5, dtype=torch.float64, generator=draw)
    return mask.masked_fill(torch.rand(mask.shape, generator=draw) < 0.3, -torch.inf)


OPTIONS = {
    "mask of bool": lambda draw: {"mask": torch.rand(2, 2, 4, 5, generator=draw) < 0.7},
    "spans": lambda draw: {"spans": torch.tensor([[[0, 3], [1, 4], [2, 2], [0, 5]]])},
    "query_start": lambda draw: {"query_start": torch.tensor([0, 3]), "causal": True},
    "softcap": lambda draw: {"softcap": 1.5},
    "dropout": lambda draw: {"dropout": 0.4, "dropout_seed": 3},
    "lengths": lambda draw: {"lengths": (torch.tensor([2, 4]), torch.tensor([5, 1]))},
    "rectify": lambda draw: {"rectify": True},
    "tolerance": lambda draw: {"tolerance": 0.0, "window": 2},
}
LEARNED = {
    "sinks": lambda draw: torch.randn(2, dtype=torch.float64, generator=draw),
    "mask": lambda draw: torch.randn(2, 1, 4, 5, dtype=torch.float64, generator=draw),
    "scale": lambda draw: torch.tensor(0.3, dtype=torch.float64),
}


@pytest.mark.parametrize("name", [*OPTIONS, *LEARNED])
def test_gradients_of_out_and_lse_are_those_of_pytorchs_checker(name, draw):
    given = qkv(draw)
    options = OPTIONS[name](draw) if name in OPTIONS else {}
    learned = {name: LEARNED[name](draw).requires_grad_()} if name in LEARNED else {}

    def function(q, k, v, *values):
        out, lse = attention(q, k, v, return_lse=True, **options, **dict(zip(learned, values, strict=True)))
        return out, torch.where(lse.isinf(), 0.0, lse)

    assert torch.autograd.gradcheck(function, (*given, *learned.values()))


@pytest.mark.parametrize("name", OPTIONS)
def test_options_are_those_of_fastpe(name, draw):
    given, options = qkv(draw), OPTIONS[name](draw)
    arrays = {key: [x.numpy() for x in value] if isinstance(value, tuple) else value.numpy()
              if isinstance(value, torch.Tensor) else value for key, value in options.items()}  # fmt: skip
    arrays = {key: tuple(value) if isinstance(value, list) else value for key, value in arrays.items()}
    right = fastpe.attention(*(x.detach().numpy() for x in given), **arrays)
    np.testing.assert_array_equal(attention(*given, **options).detach(), right)
    np.testing.assert_array_equal(attention(*given, **arrays).detach(), right)  # arrays are constants


def test_a_mask_of_floats_is_pytorchs(draw):
    given, mask = qkv(draw, width=4), float_mask(draw)
    mask[..., 0] = 0.0
    right = torch.nn.functional.scaled_dot_product_attention(*given, attn_mask=mask, enable_gqa=True)
    torch.testing.assert_close(attention(*given, mask=mask), right)


def test_no_axes_of_heads_or_batch(draw):
    q = torch.randn(5, 4, generator=draw)
    out, lse = attention(q, q, q, causal=True, return_lse=True)
    assert (out.shape, lse.shape) == ((5, 4), (5,))
    torch.testing.assert_close(out, attention(*[q[None]] * 3, causal=True)[0])


def test_seeds_of_dropout_come_from_pytorchs_generator(draw):
    q = torch.randn(1, 2, 9, 4, generator=draw)
    drawn = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        drawn.append(attention(q, q, q, dropout=0.5))
    assert drawn[0].equal(drawn[1])
    assert not drawn[0].equal(drawn[2])
    state = torch.get_rng_state()
    attention(q, q, q)
    attention(q, q, q, dropout=0.5, dropout_seed=torch.tensor(4))
    assert torch.get_rng_state().equal(state)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype, draw):
    half = qkv(draw, dtype=dtype)
    bias = torch.randn(2, 3, generator=draw).to(dtype).requires_grad_()
    single = [x.detach().float().requires_grad_() for x in (*half, bias)]
    out, lse = attention(*half, bias=bias, causal=True, return_lse=True)
    right = attention(*single[:3], bias=single[3], causal=True)
    assert (out.dtype, lse.dtype) == (dtype, torch.float32)
    torch.testing.assert_close(out, right.to(dtype), rtol=0, atol=0)
    weights = torch.randn(out.shape, generator=draw).to(dtype)
    (out * weights).sum().backward()
    (right * weights.float()).sum().backward()
    for x, exact in zip((*half, bias), single, strict=True):
        torch.testing.assert_close(x.grad, exact.grad.to(dtype), rtol=0, atol=0)


def test_autocast():
    linear, x = torch.nn.Linear(4, 4), torch.randn(2, 3, 6, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        out = attention(linear(x), x, linear(x), causal=True)  # of two dtypes, as after a rotation in float32
        out.sum().backward()
        assert attention(*[x.double()] * 3).dtype == torch.float64
    assert out.dtype == torch.bfloat16
    assert linear.weight.grad.dtype == torch.float32
    with pytest.raises(TypeError, match=r"k must have the dtype of q, torch.bfloat16, not torch.float32"):
        attention(x.bfloat16(), x, x)


def test_bad_options_are_refused_by_name(draw):
    given = qkv(draw)
    for wrong, words in (
        ({"dropout": 1.0}, "dropout must lie in"), ({"window": 0}, "window must be at least 1"),
        ({"softcap": -1.0}, "softcap must be above 0"), ({"causal": 1}, "causal must be"),
        ({"pairs": 3}, "pairs must be 'interleaved' or 'half', not 3"), ({"tolerance": 2}, "tolerance must lie in"),
        ({"dropout": 0.5, "dropout_seed": 0.5}, "dropout_seed must be an integer"),
        ({"mask": torch.zeros(3, 3)}, "mask must have a shape"), ({"sinks": torch.zeros(3)}, "sinks must have"),
        ({"table": torch.zeros(4, 8)}, "table is added to the embeddings"),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError), match=words):
            attention(*given, **wrong)


# what PyTorch draws for its own tests of scaled_dot_product_attention
def samples(dtype):
    internal = pytest.importorskip("torch.testing._internal.common_methods_invocations", reason="they need expecttest")
    (info,) = (each for each in internal.op_db if each.name == "nn.functional.scaled_dot_product_attention")
    return list(info.sample_inputs("cpu", dtype, requires_grad=True))


@pytest.mark.full("takes seconds")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pytorchs_own_samples(dtype):
    """All of them as they are. Entries reach to 9, so that a weight may be nearly 1: its gradient is then the small
    difference of large numbers. In float64 what is compared with is as far from the truth as ours."""
    taken, roundings = samples(dtype), 64 if dtype == torch.float32 else 128
    assert len(taken) > 10
    for sample in taken:
        q, k, v, options = sample.input, *sample.args, dict(sample.kwargs)
        mask, rate, causal = options.get("attn_mask"), options.get("dropout_p", 0.0), options.get("is_causal", False)
        assert not options.keys() - {"attn_mask", "is_causal", "dropout_p", "enable_gqa", "scale"}
        start = 0 if causal else None  # PyTorch counts the positions of both queries and keys from 0

        def ours(q, k, v, mask, options=options, rate=rate, causal=causal, start=start):
            scale = options.get("scale")
            return attention(q, k, v, mask=mask, causal=causal, query_start=start, scale=scale, dropout=rate)

        def theirs(q, k, v, mask, options=options):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, **{**options, "attn_mask": mask})

        given = [q, k, v, mask]
        out, right = ours(*given), theirs(*given)
        assert (out.shape, out.dtype) == (right.shape, right.dtype)
        if rate:
            continue
        leaves = [x for x in given if x is not None and x.requires_grad]
        wide = [x if x is None else x.detach().double().requires_grad_(x.requires_grad) for x in given]
        exact = theirs(*wide)
        weights = torch.randn(right.shape, generator=torch.Generator().manual_seed(1))
        wide_leaves = [x for x in wide if x is not None and x.requires_grad]
        exact_all = [exact, *torch.autograd.grad(exact, wide_leaves, weights.double())]
        found_all, right_all = ([x, *torch.autograd.grad(x, leaves, weights.to(dtype))] for x in (out, right))
        for found, known, true in zip(found_all, right_all, exact_all, strict=True):
            errors = [(x.double() - true).abs().max() for x in (found, known)]
            assert errors[0] <= 2 * errors[1] + roundings * torch.finfo(dtype).eps * max(2.0, true.abs().max())


@pytest.mark.filterwarnings("ignore")
def test_pytorchs_own_samples_of_dropout_by_their_distribution():
    """Means over 400 draws, one for each sample of a batch, beside those of PyTorch's own dropout."""
    taken = [sample for sample in samples(torch.float64) if sample.kwargs.get("dropout_p")]
    assert len(taken) > 2
    draws = 400
    for sample in taken:
        options = dict(sample.kwargs)
        mask, causal, rate = options.pop("attn_mask", None), options.get("is_causal", False), options["dropout_p"]
        given = [sample.input, *sample.args, mask]
        lead = torch.broadcast_shapes(*(x.shape[:-3] for x in given if x is not None))
        q, k, v, mask = (
            x if x is None or x.ndim < 3 else x.detach().expand(draws, *lead, *x.shape[-3:]).flatten(0, -4)
            for x in given
        )
        torch.manual_seed(4)
        right = torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, **options)
        found = attention(q, k, v, mask=mask, causal=causal, query_start=0 if causal else None, dropout=rate,
                          scale=options.get("scale"))  # fmt: skip
        (mean, variance), (right_mean, right_variance) = (
            (x.mean(0), x.var(0)) for x in (x.unflatten(0, (draws, -1)) for x in (found, right))
        )
        off = (mean - right_mean) / ((variance + right_variance) / draws).sqrt().clamp(min=1e-9)
        assert off.abs().max() < 6.5
        assert off.square().mean() < 3  # of few rows, whose columns are nearly the same
        assert 0.9 < variance.mean() / right_variance.mean() < 1.1


def test_samples_of_which_some_serve_all(draw):
    q, k, v = qkv(draw)
    for own in ((q[0], k, v), (q[:1], k, v), (q, k[:1], v[0]), (q[:1], k[0], v[0])):
        whole = [x.expand(max(y.shape[0] if y.ndim > 3 else 1 for y in own), *x.shape[-3:]) for x in own]
        torch.testing.assert_close(attention(*own), attention(*whole), rtol=0, atol=0)
    with pytest.raises(ValueError, match="k must have the shape"):
        attention(q, k.repeat(2, 1, 1, 1)[:3], v)
