"""`torch.vmap` of attention: samples become those of one call, with the numbers of each alone, and gradients."""

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")

from fastpe.torch import attention, mapped, operators  # noqa: E402 - only where PyTorch is

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::UserWarning")
COUNT = 3
SLOTS = [
    ("bias", (4, 13)), ("gain", (4, 13)), ("rel_key", (4, 5, 8)), ("rel_value", (1, 5, 3)), ("rel_gain", (4, 5, 8)),
    ("key_bias", (4, 8)), ("scores", (4, 6, 7)), ("key_offset", (1, 7)), ("key_slope", (4, 7)), ("query_slope", (1, 6)),
    ("row_scale", (4, 6)), ("rel_query", (1, 5, 8)), ("angles", (1, 7, 4)), ("rotors", (1, 7, 4, 2, 2)),
    ("polar", (4, 8)), ("growth", (7, 4)), ("reflectors", (1, 7, 8)), ("counts", (1, 5, 8)),
    ("mask", (4, 6, 7)), ("mask", (1, 1, 7)),
]  # fmt: skip
CAUSAL = ("counts", "growth", "reflectors")


@pytest.fixture
def alone(monkeypatch):
    """How often samples went one after the other."""
    counted, one_by_one = [], operators._one_by_one

    def counting(call):
        def rule(*given):
            counted.append(call)
            return one_by_one(call)(*given)

        return rule

    monkeypatch.setattr(operators, "_one_by_one", counting)
    return counted


def normal(*shape):
    return torch.randn(*shape, dtype=torch.float64)


def rows(*lead, heads=4):
    torch.manual_seed(len(lead))
    return normal(*lead, heads, 6, 8), normal(*lead, 2, 7, 8), normal(*lead, 2, 7, 3)


def samples(given, dims):
    return [[x if dim is None else x.select(dim, i) for x, dim in zip(given, dims, strict=True)] for i in range(COUNT)]


def assert_as_alone(function, given, dims):
    """Outputs bit for bit; gradients of every sample by itself, and of all of them together."""
    each = samples(given, dims)
    found = torch.vmap(function, in_dims=tuple(dims))(*given)
    torch.testing.assert_close(found, torch.stack([function(*own) for own in each]), rtol=0, atol=0)
    weight = torch.randn_like(found[0])
    every = tuple(range(len(given)))
    gradient = torch.func.grad(lambda *x: (function(*x) * weight).sum(), argnums=every)
    parts = zip(*(gradient(*own) for own in each), strict=True)
    for own, right in zip(torch.vmap(gradient, in_dims=tuple(dims))(*given), parts, strict=True):
        torch.testing.assert_close(own, torch.stack(right), rtol=1e-13, atol=1e-13)
    leaves = [x.clone().requires_grad_() for x in given]
    whole = torch.vmap(function, in_dims=tuple(dims))(*leaves)
    single = torch.stack([function(*own) for own in samples(leaves, dims)])
    pairs = [torch.autograd.grad((out * weight).sum(), leaves) for out in (whole, single)]
    for own, right in zip(*pairs, strict=True):
        torch.testing.assert_close(own, right, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("rank", [2, 3, 4])
def test_rows_of_any_rank_mapped_over_or_not(alone, rank):
    q, k, v = rows(COUNT, 2)
    if rank < 4:
        q, k, v = (x[:, 0] for x in (q, k, v))
    if rank < 3:
        q, k, v = (x[:, 0] for x in (q, k, v))
    elsewhere = q.movedim(0, -1), k[1], v.movedim(0, 1)
    for given, dims in (
        ((q, k, v), (0, 0, 0)), ((q, k[0], v[0]), (0, None, None)), (elsewhere, (-1, None, 1)),
    ):  # fmt: skip
        assert_as_alone(lambda q, k, v: attention(q, k, v, causal=True, window=4, scale=0.4), given, dims)
    assert not alone


@pytest.mark.parametrize(("name", "shape"), SLOTS)
@pytest.mark.parametrize("lead", [(), (1,), (2,)])
def test_slots_with_samples_and_without(alone, name, shape, lead):
    q, k, v = rows(COUNT, 2)
    slots = 0.3 * normal(COUNT, *lead, *shape)
    beside = {"reflect": torch.rand(1, 7, dtype=torch.float64)} if name == "reflectors" else {}

    def function(q, k, v, x):
        return attention(q, k, v, causal=name in CAUSAL, **{name: x}, **beside)

    assert_as_alone(function, (q, k, v, slots), (0, 0, 0, 0))
    assert_as_alone(function, (q[0], k[0], v[0], slots.movedim(0, -1)), (None, None, None, -1))
    assert_as_alone(function, (q, k[0], v, slots[0]), (0, None, 0, None))
    assert not alone


def test_lengths_starts_and_spans(alone):
    q, k, v = rows(COUNT, 2)
    numbers = torch.tensor([[1, 7], [3, 4], [7, 2]])
    spans = torch.stack([torch.zeros(6), torch.arange(1, 7)], -1).long()
    for name, more in (("lengths", {}), ("query_start", {"causal": True})):

        def function(q, k, v, x, name=name, more=more):
            return attention(q, k, v, **{name: x}, **more)

        each = samples((q, k, v, numbers), (0, 0, 0, 0))
        found = torch.vmap(function)(q, k, v, numbers)
        torch.testing.assert_close(found, torch.stack([function(*own) for own in each]), rtol=0, atol=0)
        assert_as_alone(lambda q, k, v, f=function: f(q, k, v, numbers[0]), (q, k, v), (0, 0, 0))
    for own in (spans[None], torch.stack([spans, spans + 1])):
        assert_as_alone(lambda q, k, v, x=own: attention(q, k, v, spans=x), (q, k, v), (0, 0, 0))
    assert_as_alone(lambda q, k, v: attention(q, k, v, return_lse=True)[1], (q, k, v), (0, 0, 0))
    assert not alone


def test_samples_with_their_own_sinks_or_too_many_copies_go_one_by_one(alone, monkeypatch):
    q, k, v = rows(COUNT, 2)
    assert_as_alone(lambda q, k, v, x: attention(q, k, v, sinks=x), (q, k, v, normal(COUNT, 4)), (0, 0, 0, 0))
    before = len(alone)
    assert before
    constant = normal(4)
    assert_as_alone(lambda q, k, v: attention(q, k, v, sinks=constant, softcap=2.0), (q, k, v), (0, 0, 0))
    network = {"mlp_in": normal(5, 8, 3), "mlp_bias": normal(5), "mlp_out": normal(4, 5, 3)}
    each = samples((q, k, v), (0, 0, 0))
    for given in (network, {"sinks": constant, "scale": constant.exp()}):

        def function(*x, given=given):
            return attention(*x, **given)

        found = torch.vmap(function)(q, k, v)
        torch.testing.assert_close(found, torch.stack([function(*own) for own in each]), rtol=0, atol=0)
    assert len(alone) == before
    monkeypatch.setattr(mapped, "_MOST_COPIED", COUNT * k[0].numel() - 1)
    assert_as_alone(attention, (q, k[0], v), (0, None, 0))
    assert len(alone) > before


@pytest.mark.parametrize("shared", [False, True])
def test_second_derivatives_are_errors_wherever_samples_are_mapped(shared):
    """With a scale that wants gradients samples go one after the other."""
    q, scale = normal(COUNT, 2, 4, 6, 8), torch.tensor(0.3, dtype=torch.float64)
    mapped_over = (0, None)

    def loss(x, scale):
        return attention(x, x, x, scale=scale if shared else 0.3).square().sum()

    first = torch.func.grad(loss, argnums=(0, 1) if shared else 0)

    def of_first(x, scale):
        return sum(own.sum() for own in (first(x, scale) if shared else [first(x, scale)]))

    def of_mapped(x, scale):
        found = torch.vmap(first, in_dims=mapped_over)(x, scale)
        return sum(own.sum() for own in (found if shared else [found]))

    leaf = q.clone().requires_grad_()
    for second in (
        lambda: torch.vmap(torch.func.grad(of_first), in_dims=mapped_over)(q, scale),
        lambda: torch.func.grad(of_mapped)(q, scale),
        lambda: torch.autograd.grad(of_mapped(leaf, scale), leaf),
        lambda: torch.vmap(torch.func.jacrev(of_first), in_dims=mapped_over)(q, scale),
    ):
        with pytest.raises(RuntimeError, match=r"fastpe\.torch has no second derivatives"):
            second()


def test_errors_are_those_of_a_sample():
    q, k, v = rows(COUNT, 2)
    wrong = normal(3, 13)
    with pytest.raises(
        ValueError, match=r"bias must have the shape \(H, 2K\+1\), optionally after an axis B, with B = 2, H = 4"
    ):
        torch.vmap(lambda q, k, v: attention(q, k, v, bias=wrong))(q, k, v)


def test_nested_empty_and_by_the_operator_itself(alone):
    q, k, v = rows(COUNT, 2)
    right = torch.stack([attention(*own) for own in zip(q, k, v, strict=True)])
    twice = torch.vmap(torch.vmap(attention))(*(x.expand(2, *x.shape) for x in (q, k, v)))
    torch.testing.assert_close(twice, torch.stack([right, right]), rtol=0, atol=0)
    assert torch.vmap(attention)(q[:0], k[:0], v[:0]).shape == (0, 2, 4, 6, 3)
    options = "q k v", False, None, None, 0.0, None, "interleaved", False, False
    found, lse = torch.vmap(lambda q, k, v: torch.ops.fastpe.attention([q, k, v], *options))(q, k, v)
    torch.testing.assert_close(found, right, rtol=0, atol=0)
    back = torch.ops.fastpe.attention_backward

    def pulled(dout, out, lse, q, k, v):
        return tuple(back([dout, None], [out, lse], [True, False, True], [q, k, v], *options))

    got = torch.vmap(pulled)(right, found, lse, q, k, v)
    each = [pulled(*own) for own in zip(right, found, lse, q, k, v, strict=True)]
    for own, parts in zip(got, zip(*each, strict=True), strict=True):
        torch.testing.assert_close(own, torch.stack(parts), rtol=1e-13, atol=1e-13)
    assert not alone
