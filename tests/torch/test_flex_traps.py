"""`flex_attention`: captured objects that change, indices that are out of range, and forms that look alike."""

import functools
import gc
import math
import operator
import types
import weakref

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")

from flex_mods import INF, causal, dense  # noqa: E402 - only where the peers are
from torch.nn.attention.flex_attention import and_masks  # noqa: E402

from fastpe.torch import create_block_mask, flex_attention, flex_report  # noqa: E402
from fastpe.torch.mods import tracing  # noqa: E402

SCALE = 1.0


def drawn(n=20, h=2, b=1):
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(b, h, n, 4, generator=generator) for _ in range(3))


def assert_right(score_mod=None, mask_mod=None, given=None, block_mask=None, atol=2e-6):
    given = drawn() if given is None else given
    b, h, n, _ = given[0].shape
    if mask_mod is not None and block_mask is None:
        block_mask = create_block_mask(mask_mod, b, h, n, given[1].shape[2], BLOCK_SIZE=8)
    found = flex_attention(*given, score_mod, block_mask)
    torch.testing.assert_close(found, dense(*given, score_mod, mask_mod)[0].float(), rtol=0, atol=atol)
    return found


def test_a_product_that_is_converted_is_not_the_product():
    t, u = (3.0 * each[0, 0, :, 0] for each in drawn()[:2])
    assert_right(lambda s, b, h, q, k: s + (t[q] * u[k]).int())
    assert_right(lambda s, b, h, q, k: s + (t[q] * u[k]).bool())


# ---------------------------------------------------------------------------------------------------------------------
# What may change between calls


def test_a_captured_tensor_may_change_in_place():
    t = torch.ones(2)

    def mod(s, b, h, q, k):
        return s * t[h]

    assert_right(mod)
    t[1] = 3.0
    assert_right(mod)
    t.numpy()[0] = -2.0  # PyTorch does not count this as a version
    assert_right(mod)


def test_a_variable_of_a_closure_may_be_bound_again():
    flag, factor = True, 0.5

    def mod(s, b, h, q, k):
        return s + factor * (q - k) if flag else s

    first = assert_right(mod)
    factor = 0.25
    second = assert_right(mod)
    flag = False
    assert not first.equal(second)
    assert_right(mod)


def test_a_global_and_a_default_may_change(monkeypatch):
    def mod(s, b, h, q, k, c=0.1):
        return s * SCALE + c * (q - k)

    assert_right(mod)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert_right(mod)
    mod.__defaults__ = (0.3,)
    assert_right(mod)


def test_a_function_that_a_mod_calls_may_be_bound_again():
    def inner(q, k):
        return q - k

    def mod(s, b, h, q, k):
        return s + inner(q, k)

    assert_right(mod)

    def inner(q, k):  # noqa: F811 - another function
        return k - q

    assert_right(mod)


def test_a_list_a_dict_and_an_attribute_may_change():
    numbers, named, own = [0.1], {"c": 0.1}, types.SimpleNamespace(c=0.1)

    def mod(s, b, h, q, k):
        return s + (torch.tensor([numbers[0], 0.5])[h] + named["c"] + own.c) * (q - k)

    assert_right(mod)
    numbers[0] = 0.2
    assert_right(mod)
    named["c"] = 0.3
    assert_right(mod)
    own.c = 0.4
    assert_right(mod)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
def test_a_number_that_python_reads_from_a_captured_tensor_may_change(dtype):
    t = torch.tensor(1, dtype=dtype)

    def by_item(s, b, h, q, k):
        return s * t.item()

    def by_condition(s, b, h, q, k):
        return s * float(t) if t > 1 else s

    def by_numpy(s, b, h, q, k):
        return s + float(t.float().numpy()) * (q - k)

    for mod in (by_item, by_condition, by_numpy):
        t.fill_(1)
        assert_right(mod)
        t.fill_(3)
        assert_right(mod)


def test_a_soft_cap_and_minus_infinity_in_captured_tensors_may_change():
    cap, hidden = torch.tensor(2.0), torch.tensor(-INF)

    def mod(s, b, h, q, k):
        return torch.where(q >= k, cap * torch.tanh(s / cap), hidden)

    assert_right(mod)
    cap.fill_(3.0)
    assert_right(mod)
    hidden.fill_(-1.0)
    assert_right(mod)


def test_a_mod_is_traced_once_also_if_its_tensors_differ(monkeypatch):
    traced = []
    trace = tracing._trace
    monkeypatch.setattr(tracing, "_trace", lambda *given: traced.append(1) or trace(*given))

    def make(t, u):
        return lambda s, b, h, q, k: s + t[q] - u[k]

    t, u, w = (torch.randn(20) for _ in range(3))
    assert_right(make(t, u))
    assert_right(make(u, w))
    assert len(traced) == 1
    assert_right(make(t, t))  # one tensor in place of two: another expression
    assert_right(make(t.double(), u))
    assert len(traced) == 3


def test_functions_that_are_captured_twice_are_told_apart():
    def f(q, k):
        return 0.1 * (q - k)

    def g(q, k):
        return 0.3 * (k - q)

    def of(one, other, third):
        return lambda s, b, h, q, k: s + (one(q, k) + 2 * other(q, k) + 4 * third(q, k)) / 8

    assert_right(of(f, g, f))
    assert_right(of(f, g, g))


def test_methods_of_objects_may_return_something_else():
    d, names = {"c": 0.1}, iter([0.1, 0.2, 0.2, 0.3])
    get, drawn_next = d.get, functools.partial(next, names)

    def by_method(s, b, h, q, k):
        return s + get("c") * (q - k)

    assert_right(by_method)
    d["c"] = 0.2
    assert_right(by_method)
    found = []
    for _ in range(2):
        found.append(flex_attention(*drawn(), lambda s, b, h, q, k: s + drawn_next() * (q - k)))
    assert not found[0].equal(found[1])


def test_an_attribute_of_a_class_and_of_a_function_may_change():
    class Options:
        c = 0.1

    def by_class(s, b, h, q, k):
        return s + Options.c * (q - k)

    def by_function(s, b, h, q, k):
        return s + by_function.c * (q - k)

    by_function.c = 0.1
    for mod, owner in ((by_class, Options), (by_function, by_function)):
        assert_right(mod)
        owner.c = 0.2
        assert_right(mod)


def test_a_function_with_the_name_of_one_of_pytorch_may_change(monkeypatch):
    @functools.wraps(torch.nn.functional.silu)
    def scaled(x):
        return x * SCALE

    def mod(s, b, h, q, k):
        return scaled(s)

    assert_right(mod)
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    assert_right(mod)


def test_functions_of_pytorch_and_of_mathematics_are_traced_once(monkeypatch):
    traced = []
    trace = tracing._trace
    monkeypatch.setattr(tracing, "_trace", lambda *given: traced.append(1) or trace(*given))
    silu = torch.nn.functional.silu

    def mod(s, b, h, q, k):
        return silu(torch.add(s, math.sqrt(2.0))) + max(0.5, operator.mul(2, 3)) * torch.Tensor.abs(q - k)

    assert_right(mod)
    assert_right(mod)
    assert len(traced) == 1


def test_the_data_and_the_gradient_of_a_tensor_may_be_those_of_another_one():
    def make(t):
        return lambda s, b, h, q, k: s * t.data[h]

    def make_of_gradient(t):
        return lambda s, b, h, q, k: s * t.grad[h]

    t, u = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    assert_right(make(t))
    assert_right(make(u))
    for x in (t, u):
        x.requires_grad_().grad = x.detach() / 2
        assert_right(make_of_gradient(x))
    u.grad = torch.tensor([5.0, 6.0])
    assert_right(make_of_gradient(u))


def test_the_gradient_of_a_tensor_of_a_mask_mod_may_be_another_one():
    t = torch.zeros(20, requires_grad=True)
    t.grad = torch.ones(20)

    def mask(b, h, q, k):
        return (t.grad[k] > 0) & (q >= k)

    given = drawn()
    block = create_block_mask(mask, None, None, 20, 20, BLOCK_SIZE=32, separate_full_blocks=False)
    assert_right(None, mask, given, block)
    t.grad = (torch.arange(20) < 5).float()
    assert_right(None, mask, given, block)


def test_a_mask_mod_is_asked_again_if_its_tensors_change():
    doc = torch.arange(20) // 7

    def mask(b, h, q, k):
        return (doc[q] == doc[k]) & causal(b, h, q, k)

    given = drawn()
    block = create_block_mask(mask, None, None, 20, 20, BLOCK_SIZE=32)  # one tile, in which mask_mod is asked
    assert_right(None, mask, given, block)
    assert_right(None, mask, given, block)
    doc[10:] = 9
    assert_right(None, mask, given, block)


# ---------------------------------------------------------------------------------------------------------------------
# What is kept between calls


def test_the_tensors_of_a_call_are_not_kept():
    def square(s, b, h, q, k):
        return s * s

    given = drawn()
    flex_attention(*given, square)
    alive = [weakref.ref(x) for x in given]
    del given
    gc.collect()
    assert not any(each() is not None for each in alive)


def test_one_plan_of_a_mod_is_kept():
    def mod(s, b, h, q, k):
        return s - 0.5 * (q - k)

    for n in (5, 6, 7, 6):
        assert_right(mod, given=drawn(n))
    traced = tracing.trace(mod, torch.float32, "mod")
    assert [key for key in traced.memo if key not in ("captures", "form")] == ["plan"]


def test_each_call_raises_an_error_of_its_own():
    def mod(s, b, h, q, k):
        return s + torch.log(q - k - 1.0)

    errors = []
    for _ in range(2):
        with pytest.raises(ValueError, match="must give finite numbers") as caught:
            flex_attention(*drawn(), mod)
        errors.append(caught.value)
    assert errors[0] is not errors[1]


def test_the_tensors_of_a_mask_are_known_by_more_than_their_ids():
    block = create_block_mask(causal, None, None, 20, 20, BLOCK_SIZE=16)
    given = drawn()
    flex_attention(*given, block_mask=block)
    alive = weakref.ref(block.kv_indices)
    block.kv_indices = block.kv_indices.clone()
    gc.collect()
    assert alive() is not None
    flex_attention(*given, block_mask=block)
    assert alive() is None


def test_shared_parts_are_read_once():
    t = torch.ones(())

    def mod(s, b, h, q, k):
        x = torch.ones(())
        for _ in range(40):
            x = x * 0.5 + x * 0.5
        return s * x * t

    assert_right(mod)


# ---------------------------------------------------------------------------------------------------------------------
# Indices


@pytest.mark.parametrize("table", [lambda t, q, k: t[q], lambda t, q, k: t[k], lambda t, q, k: t[q - k + 6],
                                   lambda t, q, k: t[q + k], lambda t, q, k: t[q] * t[k]])  # fmt: skip
def test_an_index_past_the_end_for_a_key_that_is_seen_is_an_error(table):
    t = torch.zeros(7)
    given = drawn()
    for mod in (lambda s, b, h, q, k: s + table(t, q, k), lambda s, b, h, q, k: s * s + table(t, q, k)):
        with pytest.raises(IndexError, match=r"score_mod .* reads past the end of a tensor, for a key that a query"):
            flex_attention(*given, mod)
    with pytest.raises(IndexError, match="past the end"):
        flex_attention(*given, lambda s, b, h, q, k: torch.where(table(t, q, k) == 0, s, -INF))
    with pytest.raises(IndexError, match="past the end"):
        create_block_mask(lambda b, h, q, k: table(t, q, k) == 0, None, None, 20, 20)


def test_an_index_past_the_end_is_no_error_where_no_key_is_seen():
    t = torch.randn(20)

    def offset(s, b, h, q, k):
        return s + t[q - k]  # a negative index reads from the end

    assert_right(offset, causal)
    short = t[:5]
    near = and_masks(causal, lambda b, h, q, k: q - k < 5)
    assert_right(lambda s, b, h, q, k: s + short[(q - k).clamp(min=0, max=4)], near)
    block = create_block_mask(near, None, None, 20, 20, BLOCK_SIZE=8)
    given = drawn()
    right = dense(*given, lambda s, b, h, q, k: s + short[(q - k).clamp(0, 4)], near)[0].float()
    for mod in (
        lambda s, b, h, q, k: s + short[q - k],
        lambda s, b, h, q, k: s + short[q - k] * (1 + 0 * torch.sin(q * k)),
    ):
        torch.testing.assert_close(flex_attention(*given, mod, block), right, rtol=0, atol=2e-6)


def test_a_condition_may_read_past_the_end_where_another_one_hides_the_key():
    t = torch.tensor([True, False, True, True])

    def mask(b, h, q, k):
        return (k < 4) & t[k]

    def score(s, b, h, q, k):
        return torch.where((k < 4) & t[k] & (q >= k), s, -INF)

    given = drawn()
    right = dense(*given, None, lambda b, h, q, k: (k < 4) & t[k.clamp(max=3)])[0].float()
    block = create_block_mask(mask, None, None, 20, 20)
    torch.testing.assert_close(flex_attention(*given, block_mask=block), right, rtol=0, atol=2e-6)
    right = dense(*given, None, lambda b, h, q, k: (k < 4) & t[k.clamp(max=3)] & (q >= k))[0].float()
    torch.testing.assert_close(flex_attention(*given, score), right, rtol=0, atol=2e-6)


def test_negative_indices_read_from_the_end():
    t = torch.randn(20, 2)
    assert_right(lambda s, b, h, q, k: s + t[-1 - k, h])
    assert_right(lambda s, b, h, q, k: s + t[(q * 7 - k * 3) % 20 - 20, -1])


# ---------------------------------------------------------------------------------------------------------------------
# Forms that look alike


def test_only_equal_and_opposite_factors_of_query_and_key_make_an_offset():
    t = torch.randn(100)
    ways = {
        (lambda s, b, h, q, k: s + t[q - k + 30]): ("bias",),
        (lambda s, b, h, q, k: s + t[3 - 2 * (k - q) + 50]): ("bias",),
        (lambda s, b, h, q, k: s + t[2 * q - k + 20]): ("index", "values"),
        (lambda s, b, h, q, k: s + t[q // 3 - k // 3 + 20]): ("index", "values"),
        (lambda s, b, h, q, k: s + t[(q - k) // 3 + 20]): ("bias",),
        (lambda s, b, h, q, k: s + t[(q - k) % 5]): ("bias",),
        (lambda s, b, h, q, k: s + t[q.to(torch.uint8) * 200 % 7 - k + 50]): ("index", "values"),
    }
    for mod, slots in ways.items():
        assert_right(mod, atol=1e-5)
        assert flex_report(*drawn(), mod).slots == tuple(sorted((*slots, "scale")))


def test_indices_in_half_precision_are_not_exact():
    given = drawn(300)

    def mod(s, b, h, q, k):
        return s + 0.1 * (q.to(torch.bfloat16) - k.to(torch.bfloat16)).float()

    found, right = flex_attention(*given, mod), dense(*given, mod, None)[0].float()
    torch.testing.assert_close(found, right, rtol=0, atol=1e-4)


def test_dtypes_are_promoted_as_by_pytorch():
    """Slopes in float32 times integers are float32, also for a score in float64."""
    given = tuple(x.double() for x in drawn())
    slopes = torch.tensor([0.1, 0.3])

    def mod(s, b, h, q, k):
        return s + slopes[h] / 3 * (q - k) + torch.tensor(1, dtype=torch.int8) / 3

    found, right = flex_attention(*given, mod), dense(*given, mod, None)[0]
    torch.testing.assert_close(found, right, rtol=0, atol=1e-14)
    torch.testing.assert_close(
        flex_attention(*given, lambda s, b, h, q, k: s / slopes[h]),
        dense(*given, lambda s, b, h, q, k: s / slopes[h], None)[0],
        rtol=0, atol=1e-13,
    )  # fmt: skip


def test_a_finite_number_is_no_mask():
    given = drawn()

    def mod(s, b, h, q, k):
        return torch.where(k > q, s, -1e9)

    found = assert_right(mod)
    torch.testing.assert_close(found[:, :, -1], given[2].mean(2))
    assert flex_report(*given, mod).way == "fallback"
    assert flex_report(*given, lambda s, b, h, q, k: torch.where(k > q, s, -INF)).way == "slots"


def test_lse_contains_what_the_softmax_does_not_feel():
    given = drawn()
    t = torch.randn(20)

    def mod(s, b, h, q, k):
        return s + t[q] + 2.0 + h

    def number(s, b, h, q, k):
        return s + torch.where(q >= k, 3.0, -INF)

    for each in (mod, number):
        with pytest.warns(FutureWarning, match="return_aux"):
            found = flex_attention(*given, each, return_lse=True)
        for x, y in zip(found, dense(*given, each, None), strict=True):
            torch.testing.assert_close(x, y.float(), rtol=0, atol=1e-5)


def test_numbers_that_are_not_finite_are_errors_only_for_keys_that_are_seen():
    def log(s, b, h, q, k):
        return s + torch.log(1.0 + q - k)  # NaN and infinity after the query

    assert_right(log, causal)
    given = drawn()
    with pytest.raises(ValueError, match=r"score_mod 'log' must give finite numbers or -inf .* not NaN"):
        flex_attention(*given, log)
    t = torch.full((20, 20), torch.nan).triu(1)
    assert_right(lambda s, b, h, q, k: s + t[q, k], causal)
    with pytest.raises(ValueError, match=r"finite"):
        flex_attention(*given, lambda s, b, h, q, k: s + t[q, k])
    assert_right(lambda s, b, h, q, k: s / (q - k + 0.0), lambda b, h, q, k: q > k)


def test_division_by_zero_gives_what_pytorch_gives():
    found = flex_attention(*drawn(), lambda s, b, h, q, k: s / 0)
    assert found.isnan().all()
