"""The last call that was made again is asked first: what differs from it in anything is told from it."""

import pytest

torch = pytest.importorskip("torch")

import numpy as np  # noqa: E402 - what comes after needs torch

import fastpe.torch  # noqa: E402
from fastpe.torch import straight  # noqa: E402


@pytest.fixture(autouse=True)
def _nothing_kept(nothing_kept):
    straight._kept.clear()
    straight._last = (None, None)


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


def test_what_the_last_call_left_is_dropped_where_it_does_not_serve(qkv):
    q, k, v = qkv
    lengths = torch.tensor([70, 3])
    for _ in range(3):
        expected = fastpe.torch.attention(q, k, v, lengths=lengths)
    assert straight._last[1] is not None
    with pytest.raises(ValueError, match="lengths"):
        fastpe.torch.attention(q, k, v, lengths=torch.tensor([71, 3]))
    assert straight._last[1] is None
    assert torch.equal(fastpe.torch.attention(q, k, v, lengths=lengths), expected)
