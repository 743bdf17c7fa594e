"""What PyTorch does with operators: compiled, exported, transformed, checkpointed; second derivatives are errors."""

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")

from torch.utils.checkpoint import checkpoint  # noqa: E402 - only where PyTorch is

from fastpe.torch import Encoding, attention  # noqa: E402

SECOND = "fastpe.torch has no second derivatives"
# what PyTorch itself warns of on its way
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")


@pytest.fixture
def given():
    torch.manual_seed(0)
    made = {name: torch.randn(2, 3, 6, 4, dtype=torch.float64, requires_grad=True) for name in "qkv"}
    return made | {"bias": torch.randn(3, 5, dtype=torch.float64, requires_grad=True)}


def masked(q, k, v, bias):
    return attention(q, k, v, causal=True, bias=bias, window=4, lengths=[5, 6], softcap=3.0)


def loss(*given):
    return masked(*given).square().sum()


def gradients(function, given):
    return torch.autograd.grad(function(*given.values()), [*given.values()])


@pytest.mark.full("takes seconds")
def test_second_derivatives_are_errors_also_where_the_gradient_would_pass_for_a_constant(given):
    q = given["q"]
    for outer in (torch.sum, lambda out: out.square().sum()):  # the first hands back ones, which need no gradient
        (dq,) = torch.autograd.grad(outer(masked(*given.values())), q, create_graph=True)
        with pytest.raises(RuntimeError, match=SECOND):
            (dq.square().sum() + q.sum()).backward()
    (dbias,) = torch.autograd.grad(masked(*(x.detach() for x in [*given.values()][:3]), given["bias"]).sum(),
                                   given["bias"], create_graph=True)  # fmt: skip
    with pytest.raises(RuntimeError, match=SECOND):
        dbias.sum().backward()
    with pytest.raises(RuntimeError, match=SECOND):
        torch.autograd.gradgradcheck(masked, tuple(given.values()))
    with pytest.raises(RuntimeError, match=SECOND):
        torch.func.grad(lambda x: torch.func.grad(lambda y: loss(y, *[*given.values()][1:]))(x).sum())(q)


def test_second_derivatives_of_encodings_are_errors():
    encoding = Encoding("kerple_log", dim=8, heads=2, train_length=9, dtype=torch.float64)
    (first,) = torch.autograd.grad(encoding(5)["bias"].sum(), encoding.r1, create_graph=True)
    with pytest.raises(RuntimeError, match="the gradient of slots cannot be differentiated"):
        (first.sum() + encoding.r1.sum()).backward()


def test_forward_mode_is_refused(given):
    q, *rest = given.values()
    with pytest.raises(RuntimeError, match="no derivatives in forward mode"):
        torch.func.jvp(lambda q: masked(q, *rest), (q,), (q,))


def test_gradients_made_with_create_graph_are_right(given):
    """Gradients may be made with create_graph and used once."""
    with_graph = torch.autograd.grad(loss(*given.values()), [*given.values()], create_graph=True)
    for found, right in zip(with_graph, gradients(loss, given), strict=True):
        torch.testing.assert_close(found.detach(), right, rtol=0, atol=0)


def test_transforms_of_functions(given):
    rest = [*given.values()][:3]
    bias = given["bias"]
    right = gradients(loss, given)[-1]
    torch.testing.assert_close(torch.func.grad(lambda x: loss(*rest, x))(bias), right)
    out, pull = torch.func.vjp(lambda x: masked(*rest, x), bias)
    torch.testing.assert_close(pull(2 * out)[0], right)
    both = torch.stack([bias, bias + 1])
    mapped = torch.vmap(lambda x: masked(*rest, x))(both)
    torch.testing.assert_close(mapped, torch.stack([masked(*rest, x) for x in both]), rtol=0, atol=0)
    each = torch.vmap(torch.func.grad(lambda x: loss(*rest, x)))(both)
    torch.testing.assert_close(each[0], right)
    assert torch.func.jacrev(lambda x: masked(*rest, x))(bias).shape == (2, 3, 6, 4, 3, 5)
    last = torch.vmap(lambda q: masked(q, *rest[1:], bias), in_dims=-1, out_dims=-1)(
        rest[0][..., None].repeat(1, 1, 1, 1, 2)
    )
    torch.testing.assert_close(last[..., 1], masked(*rest, bias), rtol=0, atol=0)


def test_vmap_of_dropout_is_that_of_pytorch():
    q = torch.randn(2, 1, 3, 4)
    with pytest.raises(RuntimeError, match="randomness"):
        torch.vmap(lambda q: attention(q, q, q, dropout=0.5))(q)
    own = torch.vmap(lambda q: attention(q, q, q, dropout=0.5), randomness="different")(torch.ones(64, 1, 3, 4))
    assert len({tuple(each.flatten().tolist()) for each in own}) > 4
    same = torch.vmap(lambda q: attention(q, q, q, dropout=0.5), randomness="same")(torch.ones(8, 1, 3, 4))
    assert (same == same[0]).all()


def test_it_compiles_without_a_break(given):
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager", dynamic=True)
    torch.testing.assert_close(compiled(*given.values()), loss(*given.values()), rtol=0, atol=0)
    for found, right in zip(gradients(compiled, given), gradients(loss, given), strict=True):
        torch.testing.assert_close(found, right, rtol=0, atol=0)


@pytest.mark.full("takes seconds")
def test_encodings_halves_constants_and_dropout_compile():
    encoding = Encoding("t5+rope", dim=8, heads=2, train_length=16)

    def run(q, dropout=0.0):
        constant = np.ones((2, 3), np.float32)
        slots = encoding(q.shape[2])
        slots["bias"] = slots["bias"] * 2
        return attention(q, q, q, causal=True, key_bias=torch.ones(2, 4), gain=constant, dropout=dropout, **slots)

    q = torch.randn(1, 2, 9, 4)
    compiled = torch.compile(run, fullgraph=True, backend="aot_eager")
    for each in (q, q.bfloat16()):
        torch.testing.assert_close(compiled(each), run(each), rtol=0, atol=0)
    (found,) = torch.autograd.grad(compiled(q).sum(), encoding.parameters())
    (right,) = torch.autograd.grad(run(q).sum(), encoding.parameters())
    torch.testing.assert_close(found, right)
    assert compiled(q, 0.5).ne(compiled(q, 0.5)).any()


@pytest.mark.full("starts processes")
def test_inductor():
    q = torch.randn(2, 2, 9, 4, requires_grad=True)
    function = torch.compile(lambda q: attention(q.sin(), q, q, causal=True).sum(), fullgraph=True)
    (found,) = torch.autograd.grad(function(q), q)
    (right,) = torch.autograd.grad(attention(q.sin(), q, q, causal=True).sum(), q)
    torch.testing.assert_close(found, right)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.encoding = Encoding("alibi", dim=8, heads=2, train_length=16)

    def forward(self, q, k, v):
        return attention(q, k, v, causal=True, scale=0.3, lengths=(None, torch.tensor([5])), **self.encoding(9))


@pytest.mark.parametrize("strict", [False, True])
def test_it_is_exported(strict):
    q = torch.randn(1, 2, 9, 4, requires_grad=True)
    exported = torch.export.export(Model(), (q, q, q), strict=strict).module()
    torch.testing.assert_close(exported(q, q, q), Model()(q, q, q), rtol=0, atol=0)
    (found,) = torch.autograd.grad(exported(q, q, q).sum(), q)
    (right,) = torch.autograd.grad(Model()(q, q, q).sum(), q)
    torch.testing.assert_close(found, right, rtol=0, atol=0)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_keep_the_dropped_weights(given, reentrant):
    def dropping(*given):
        return attention(*given[:3], bias=given[3], dropout=0.5).square().sum()

    torch.manual_seed(3)
    right = gradients(dropping, given)
    torch.manual_seed(3)
    total = checkpoint(dropping, *given.values(), use_reentrant=reentrant)
    total.backward()
    for x, gradient in zip(given.values(), right, strict=True):
        torch.testing.assert_close(x.grad, gradient, rtol=0, atol=0)


def test_pytorchs_own_check_of_operators(given):
    operator = torch.ops.fastpe.attention.default
    options = "q k v bias", True, 4, 3.0, 0.0, None, "interleaved", False, False
    torch.library.opcheck(operator, ([*given.values()], *options))
    torch.library.opcheck(operator, ([x.detach().float() for x in given.values()], *options))
