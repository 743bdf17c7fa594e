"""The last call that was made again is asked first: what differs from it in anything is told from it."""

import resource
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import numba  # noqa: E402 - what comes after needs torch
import numpy as np  # noqa: E402

import fastpe.torch  # noqa: E402
from fastpe.functional import again  # noqa: E402
from fastpe.torch import straight  # noqa: E402

pytestmark = pytest.mark.usefixtures("no_tensors_kept")


@pytest.fixture
def qkv():
    made = torch.Generator().manual_seed(3)
    return [torch.randn(2, heads, rows, 16, generator=made) for heads, rows in ((4, 1), (2, 70), (2, 70))]


def the_long_way(*arguments, **given):
    with pytest.MonkeyPatch.context() as patch:
        for each in ("attend", "attend_with"):
            patch.setattr(straight, each, lambda *_: None)
        return fastpe.torch.attention(*arguments, **given)


def test_calls_that_differ_in_one_thing_are_told_apart(qkv):
    q, k, v = qkv
    turned = k.transpose(1, 2).contiguous().transpose(1, 2)
    mask = torch.linspace(-2, 2, 70)
    calls = [
        ((q, k, v), {}), ((q, turned, v), {}), ((q, k, v[..., :8]), {}), ((q, k, v), {"causal": True}),
        ((q, k, v), {"scale": 0.3}), ((q, k, v), {"scale": 1.0}), ((q, k, v), {"softcap": 1.0}),
        ((q, k, v), {"window": 1}), ((q, k, v), {"mask": mask}), ((q, k, v), {"mask": mask[None]}),
        ((q, k, v), {"mask": mask > 0}), ((q, k, v), {"sinks": mask[:4]}),
    ]  # fmt: skip
    expected = [the_long_way(*rows, **given) for rows, given in calls]
    for order in (range(len(calls)), np.random.default_rng(1).permutation(len(calls) * 4) % len(calls)):
        for number in order:
            rows, given = calls[number]
            for _ in range(3):
                assert torch.equal(fastpe.torch.attention(*rows, **given), expected[number])


def test_what_the_last_call_left_may_not_serve(qkv):
    q, k, v = qkv
    lengths = torch.tensor([70, 3])
    for _ in range(3):
        expected = fastpe.torch.attention(q, k, v, lengths=lengths)
    assert len(straight._last) == 1
    with pytest.raises(ValueError, match="lengths"):
        fastpe.torch.attention(q, k, v, lengths=torch.tensor([71, 3]))
    assert torch.equal(fastpe.torch.attention(q, k, v, lengths=lengths), expected)


def test_the_last_of_calls_with_the_same_options_is_the_one_that_was_made_last(qkv):
    q, k, v = qkv
    sizes = 70, 64, 70, 33
    expected = {m: the_long_way(q, k[:, :, :m], v[:, :, :m]) for m in sizes}
    for m in 3 * sizes:
        assert torch.equal(fastpe.torch.attention(q, k[:, :, :m], v[:, :, :m]), expected[m])
    assert len(straight._last) == 1
    (kept,) = straight._last.values()
    assert kept.call.keys == sizes[-1]


def test_other_tensors_in_the_places_of_those_before(qkv):
    q, k, v = qkv
    bias = torch.linspace(-1, 1, 4 * 9).reshape(4, 9)
    for _ in range(3):
        fastpe.torch.attention(q, k, v, bias=bias)
    negative = torch.complex(torch.zeros(4, 9), -bias).conj().imag
    assert negative.is_neg()
    for own in (torch.nn.Parameter(bias, requires_grad=False), negative, bias.T.contiguous().T):
        torch.testing.assert_close(fastpe.torch.attention(q, k, v, bias=own), the_long_way(q, k, v, bias=bias))
    assert fastpe.torch.attention(q, k, v, bias=bias.clone().requires_grad_()).requires_grad
    assert fastpe.torch.attention(q.clone().requires_grad_(), k, v, bias=bias).requires_grad
    with pytest.raises(TypeError, match="k must lie in the CPU's memory"):
        fastpe.torch.attention(q, k.to("meta"), v, bias=bias)
    for own in (bias, bias.T.contiguous().T):  # the other is copied before anybody sees where it lies
        for _ in range(3):
            found = fastpe.torch.attention(q, k, v, bias=own)
        assert torch.equal(found, the_long_way(q, k, v, bias=own))
        with pytest.raises(TypeError, match="bias must be a dense tensor"):
            fastpe.torch.attention(q, k, v, bias=own.to_sparse())
        with pytest.raises(TypeError, match="bias must lie in the CPU's memory"):
            fastpe.torch.attention(q, k, v, bias=own.to("meta"))


def test_where_pytorch_does_not_say_where_tensors_lie_the_way_is_longer(qkv, monkeypatch):
    q, k, v = qkv
    calls = {}, {"causal": True}, {"bias": torch.linspace(-1, 1, 4 * 9).reshape(4, 9)}
    expected = [fastpe.torch.attention(q, k, v, **given) for given in calls]
    monkeypatch.setattr(straight, "_reader", 0)
    monkeypatch.setattr(straight, "_made_again", None)
    for _ in range(3):
        for given, own in zip(calls, expected, strict=True):
            assert torch.equal(fastpe.torch.attention(q, k, v, **given), own)


@pytest.mark.parametrize("heads", [1, 3, 8, 13])
def test_little_work_is_the_same_on_any_number_of_threads(heads):
    """So little that a lane claims all of its share at once; and more, of which it claims some at a time."""
    before = torch.get_num_threads()
    numba.set_num_threads(numba.config.NUMBA_NUM_THREADS)  # which `nothing_kept` sets back
    made = torch.Generator().manual_seed(heads)
    for keys in (40, 64, 200, 500):
        q, k, v = (torch.randn(1, heads, rows, 64, generator=made) for rows in (1, keys, keys))
        offsets = torch.randn(heads, keys, generator=made)
        for given in ({}, {"key_offset": offsets}, {"mask": offsets[:, None]}):
            expected = the_long_way(q, k, v, **given)
            try:
                for threads in (1, 2, 3, 2):
                    torch.set_num_threads(threads)
                    for _ in range(3):
                        assert torch.equal(fastpe.torch.attention(q, k, v, **given), expected)
            finally:
                torch.set_num_threads(before)


def test_a_seed_is_drawn_once_whatever_was_called_before(qkv):
    """Of few queries and of many, where records are kept and where there are none."""
    q, k, v = qkv
    many = torch.cat([q] * 9, dim=2)
    drawn = []
    for _ in range(3):
        torch.manual_seed(5)
        for rows in (q, many, q):
            fastpe.torch.attention(rows, k, v, dropout=0.5)
        drawn.append(int(torch.randint(2**62, ())))
        fastpe.torch.attention(q, k, v, dropout=0.5)
    assert len(set(drawn)) == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
def test_an_output_is_a_tensor_like_any_other(qkv, dtype):
    q, k, v = (x.to(dtype) for x in qkv)
    v = v[..., :8]
    expected = the_long_way(q, k, v)
    for _ in range(4):
        out = fastpe.torch.attention(q, k, v)
    (kept,) = straight._last.values()
    assert kept.call.direct[again.OF_TENSORS] is not None
    assert (type(out), out.dtype, out.shape, out.is_contiguous()) == (torch.Tensor, dtype, (2, 4, 1, 8), True)
    assert (out.is_leaf, out.requires_grad, out.is_inference()) == (True, False, False)
    other = fastpe.torch.attention(q, k, v)
    other.zero_()
    del q, k, v, qkv, kept
    straight._forget()
    assert torch.equal(out, expected)
    assert out.requires_grad_().sum().backward() is None
    assert torch.equal(out.grad, torch.ones_like(out))


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="a system that tells otherwise what a process has")
def test_the_memory_of_outputs_is_given_back():
    def pages():
        return int(Path("/proc/self/statm").read_text().split()[1])

    q, k, v = torch.ones(1, 8, 1, 16), torch.ones(1, 8, 4, 16), torch.ones(1, 8, 4, 2**16)
    for _ in range(8):
        fastpe.torch.attention(q, k, v)
    before = pages()
    for _ in range(400):  # of two megabytes each
        fastpe.torch.attention(q, k, v)
    assert (pages() - before) * resource.getpagesize() < 2**27
