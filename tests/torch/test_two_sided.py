"""`fastpe.torch.two_sided` beside `fastpe.columns.two_sided`, PyTorch's own operators and its gradient checker."""

import numpy as np
import pytest

import fastpe

torch = pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")

from fastpe.torch import two_sided  # noqa: E402 - only where PyTorch is

# what PyTorch itself warns of on its way
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
NAMES = ("q", "k", "v", "before", "after")


def drawn(n=5, d=4, dtype=torch.float64):
    """Arguments with gradients, keys of one head for two of queries; sums of gates in float64."""
    made = torch.Generator().manual_seed(0)
    rows = [torch.randn(2, heads, n, d, dtype=torch.float64, generator=made).to(dtype) for heads in (2, 1, 1)]
    logits = [torch.randn(size, dtype=torch.float64, generator=made) for size in ((2, n), (2, 1, n))]
    sums = [-torch.nn.functional.logsigmoid(x).cumsum(-1) for x in logits]
    return {name: x.requires_grad_() for name, x in zip(NAMES, (*rows, *sums), strict=True)}


def arrays(given):
    return {name: x.detach().numpy() for name, x in given.items()}


def pulled(function, given):
    """Output, lse, and gradients of both weighted."""
    out, lse = function(**given, return_lse=True)
    weights = [torch.linspace(-1, 1, x.numel()).reshape(x.shape).to(x.dtype) for x in (out, lse)]
    return (out, lse), torch.autograd.grad([out, lse], [*given.values()], weights), weights


def dense(q, k, v, before, after, *, return_lse):
    """Softmax of both directions, every score written out."""
    n = q.shape[-2]
    before, after = (x.expand(2, 2, n) for x in (before, after))
    past = torch.ones(n, n, dtype=torch.bool).tril()
    offsets = torch.where(past, before[..., None, :] - before[..., None], after[..., None] - after[..., None, :])
    scores = q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5 + offsets
    return scores.softmax(-1) @ v, scores.logsumexp(-1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_outputs_and_gradients_are_those_of_numpy(dtype):
    """Of half precision: in float32, or of bfloat16 products that are rounded as of arrays of that type."""
    given = drawn(70, 16, dtype)
    found, gradients, weights = pulled(two_sided, given)
    if dtype is torch.bfloat16:
        bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    own = {name: x.detach().float().numpy().astype(bfloat16) if x.dtype is torch.bfloat16 else x.detach().numpy()
           for name, x in given.items()}  # fmt: skip
    exact, pullback = fastpe.columns.two_sided_vjp(**own, return_lse=True)
    assert [x.dtype for x in found] == [dtype, torch.float64 if dtype is torch.float64 else torch.float32]
    for one, other in zip(found, exact, strict=True):
        np.testing.assert_array_equal(one.detach().double().numpy(), other.astype(np.float64))
    exact = pullback(tuple(x.float().numpy() if x.dtype is torch.bfloat16 else x.numpy() for x in weights))
    for name, gradient in zip(given, gradients, strict=True):
        np.testing.assert_array_equal(gradient.double().numpy(), exact[name].astype(np.float64), err_msg=name)


def test_outputs_and_gradients_are_those_of_a_dense_softmax():
    given = drawn()
    found, gradients, _ = pulled(two_sided, given)
    exact, wanted, _ = pulled(dense, given)
    for one, other in zip((*found, *gradients), (*exact, *wanted), strict=True):
        torch.testing.assert_close(one, other)


def test_gradients_are_those_of_pytorchs_checker():
    given = drawn() | {"bias": torch.randn(2, 3, dtype=torch.float64, requires_grad=True)}
    given["sinks"] = torch.tensor([0.3, -1.0], dtype=torch.float64, requires_grad=True)

    def function(*values):
        options = {"lengths": torch.tensor([5, 4]), "window": 4, "dropout": 0.3, "dropout_seed": 3}
        return two_sided(**dict(zip(given, values, strict=True)), **options, return_lse=True)

    assert torch.autograd.gradcheck(function, tuple(given.values()))


def test_only_what_is_asked_for_gets_a_gradient_and_arrays_are_constants():
    given = drawn()
    out = two_sided(**{**given, **{name: given[name].detach() for name in "qkv"}})
    assert all(x is not None for x in torch.autograd.grad(out.sum(), [given["before"], given["after"]]))
    columns = {name: given[name].detach().numpy() for name in ("before", "after")}
    torch.testing.assert_close(two_sided(**given | columns), out, rtol=0, atol=0)
    with torch.no_grad():
        assert two_sided(**given).equal(out)


def test_second_derivatives_are_errors():
    given = drawn()
    for outer in (torch.sum, lambda out: out.square().sum()):
        for name in ("q", "before"):
            (first,) = torch.autograd.grad(outer(two_sided(**given)), given[name], create_graph=True)
            with pytest.raises(RuntimeError, match=r"fastpe.torch has no second derivatives"):
                (first.square().sum() + given[name].sum()).backward()


def test_it_compiles_without_a_break_and_under_transforms():
    given = drawn()

    def loss(*values):
        return two_sided(*values, window=4, scale=0.3).square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=True)
    for function in (loss, compiled):
        found = torch.autograd.grad(function(*given.values()), [*given.values()])
        for one, other in zip(found, torch.func.grad(loss, tuple(range(5)))(*given.values()), strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=0)
    rest = [*given.values()][:4]
    both = torch.stack([given["after"], given["after"] * 2])
    mapped = torch.vmap(lambda after: two_sided(*rest, after))(both)
    torch.testing.assert_close(mapped, torch.stack([two_sided(*rest, after) for after in both]), rtol=0, atol=0)


@pytest.mark.parametrize(("wrong", "named"), [
    ({"before": torch.ones(2, 4)}, r"before must have the shape \(H or 1, N\)"), ({"after": None}, "after must"),
    ({"after": torch.ones(1, 5).to("meta")}, "after must be in CPU memory"), ({"causal": True}, "causal cannot"),
    ({"softcap": 1.0}, "softcap cannot"), ({"key_offset": torch.ones(1, 5)}, "key_offset cannot"),
    ({"before": torch.full((1, 5), torch.nan)}, "before must be finite"), ({"foo": 1}, "foo is not an argument"),
    ({"q": torch.ones(2, 2, 3, 4).double()}, "q must have as many rows as k, 5, not 3"), ({"q": 1}, "q must be a"),
    ({"wrt": ("q",)}, "wrt is not an argument"), ({"tolerance": 2}, "tolerance must"),
    ({"return_lse": 1}, "return_lse must be"),
])  # fmt: skip
def test_mistakes_are_refused_by_name(wrong, named):
    with pytest.raises((TypeError, ValueError), match=f"^{named}"):
        two_sided(**drawn() | wrong)
