"""Where nothing looks at operators they are called without PyTorch's dispatcher; where something does, it sees them."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")

from torch.autograd import forward_ad  # noqa: E402 - only where PyTorch is
from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from fastpe.torch import attention, call, score  # noqa: E402

OPERATOR = "fastpe::attention"


@pytest.fixture(params=[2, 6], ids=["few queries", "as many queries as keys"])
def given(request):
    torch.manual_seed(0)
    return [torch.randn(2, 3, rows, 4) for rows in (request.param, 6, 6)]


@pytest.fixture
def directly(monkeypatch, given):
    """How often the operator was passed by: few queries go to a function of their own."""
    calls, few = [], call.decode.attend
    cells = dict(zip(score.attend.__code__.co_freevars, score.attend.__closure__, strict=True))
    plain = cells["unseen"].cell_contents

    def counted(*arguments):
        calls.append(1)
        return plain(*arguments)

    def attend(*arguments, **options):
        found = few(*arguments, **options)
        calls.extend([1] * (found is not None))
        return found

    monkeypatch.setattr(call.decode, "attend", attend)
    cells["unseen"].cell_contents = counted
    yield calls
    cells["unseen"].cell_contents = plain


class Seen(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.names = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.names.append(function.name() if hasattr(function, "name") else "")
        return function(*args, **(kwargs or {}))


def test_both_ways_give_the_same(given, directly):
    unseen = attention(*given, causal=True, scale=0.3)
    assert len(directly) == 1
    given[0].requires_grad_()
    seen = attention(*given, causal=True, scale=0.3)
    assert len(directly) == 1
    assert seen.requires_grad
    torch.testing.assert_close(unseen, seen, rtol=0, atol=1e-6)
    with torch.no_grad():
        assert attention(*given, causal=True, scale=0.3).equal(unseen)
    with torch.inference_mode():
        assert attention(*given, causal=True, scale=0.3).equal(unseen)
    assert len(directly) == 3
    mask = torch.zeros(6, requires_grad=True)
    attention(given[0].detach(), *given[1:], mask=mask).sum().backward()
    assert mask.grad is not None
    assert len(directly) == 3


def test_modes_see_the_operator(given, directly):
    with Seen() as mode:
        attention(*given)
    assert OPERATOR in mode.names
    assert not directly
    with torch.autocast("cpu", torch.bfloat16):
        assert attention(*given).dtype is torch.bfloat16


def test_the_profiler_sees_the_operator(given, directly):
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        attention(*given)
    assert OPERATOR in {event.key for event in profile.key_averages()}
    assert not directly


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # what PyTorch itself warns of on its way
def test_transforms_and_dual_numbers_see_the_operator(given, directly):
    right = attention(*given)
    directly.clear()
    torch.testing.assert_close(torch.vmap(attention)(*given), right, rtol=0, atol=1e-6)
    with forward_ad.dual_level():
        dual = [forward_ad.make_dual(x, torch.ones_like(x)) for x in given]
        with pytest.raises(RuntimeError, match="no derivatives in forward mode"):
            attention(*dual)
    assert not directly


def test_a_subclass_sees_the_operator(given, directly):
    class Own(torch.Tensor):
        pass

    assert type(attention(*(x.as_subclass(Own) for x in given))) is Own
    assert not directly


def test_one_number_for_all_heads_is_as_good_as_one_for_each(given):
    plain = attention(*given, scale=0.3)
    for scale in (torch.tensor(0.3, dtype=torch.float64), torch.full((3,), 0.3)):
        torch.testing.assert_close(attention(*given, scale=scale), plain, rtol=0, atol=1e-6)
