"""The shortest way from tensors to kernels: the same bits as the long one, taken only where nobody sees operators."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("ml_dtypes")

import numpy as np  # noqa: E402 - what comes after needs torch
from ways_of_tensors import the_long_way  # noqa: E402

import fastpe.torch  # noqa: E402
from fastpe.bands import Band  # noqa: E402
from fastpe.functional import again  # noqa: E402
from fastpe.torch import call, straight  # noqa: E402

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16]


pytestmark = pytest.mark.usefixtures("no_tensors_kept")


def qkv(dtype=torch.float32, n=1, m=70):
    made = torch.Generator().manual_seed(3)
    return [torch.randn(2, heads, rows, 16, generator=made).to(dtype) for heads, rows in ((4, n), (2, m), (2, m))]


def only_straight(*arguments, kept=True, **given):
    """kept: whether a record of such a call must be there."""
    with pytest.MonkeyPatch.context() as patch:
        if kept:
            patch.setattr(straight, "_attend_and_keep", None)
        patch.setattr(call, "attend", None)
        return fastpe.torch.attention(*arguments, **given)


@pytest.mark.parametrize("given", [{}, {"causal": True}, {"window": 5}, {"softcap": 2.0}, {"scale": 0.3}], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_same_bits(dtype, given):
    for n in (1, 4):
        for turned in (False, True):
            q, k, v = qkv(dtype, n)
            if turned:
                q, k = q.transpose(1, 2).contiguous().transpose(1, 2), torch.cat([k, k], dim=2)[:, :, :70]
            expected = the_long_way(q, k, v, **given)
            for _ in range(2):
                fastpe.torch.attention(q, k, v, **given)
            others = [x.clone(memory_format=torch.preserve_format) for x in (q, v)]
            found = only_straight(others[0], k, others[1], **given)
            assert found.dtype == dtype
            assert torch.equal(found, expected)
    assert len(straight._kept) == 4


SLOTS = {
    "bias": {"bias": torch.linspace(-1, 1, 4 * 21).reshape(4, 21), "causal": True},
    "bools": {"mask": torch.arange(2 * 70).reshape(2, 1, 1, 70) % 3 > 0},
    "numbers": {"mask": torch.linspace(-2, 2, 70)},
    "spans": {"spans": torch.tensor([[[3, 66]], [[0, 50]]])},
    "lengths and starts": {"lengths": torch.tensor([50, 9]), "query_start": torch.tensor([60, 5]), "causal": True},
    "sinks": {"sinks": torch.tensor([0.1, -2.0, 3.0, 0.0]), "scale": 0.3},
    "scales": {"scale": torch.tensor([0.1, -2.0, 3.0, 0.0])},
}


@pytest.mark.parametrize("name", SLOTS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_same_bits_with_slots(dtype, name):
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    given = {key: x.to(wide) if torch.is_tensor(x) and x.is_floating_point() else x for key, x in SLOTS[name].items()}
    others = {key: x.clone() if torch.is_tensor(x) else x for key, x in given.items()}
    q, k, v = qkv(dtype)
    expected = the_long_way(q, k, v, **given)
    for _ in range(2):
        fastpe.torch.attention(q, k, v, **given)
    found = only_straight(q.clone(), k, v, **others)
    assert found.dtype == dtype
    assert torch.equal(found, expected)
    name, changed = next((key, x) for key, x in others.items() if torch.is_tensor(x))
    changed[..., :1] = changed[..., :1] - 1 if changed.dtype != torch.bool else ~changed[..., :1]
    assert torch.equal(only_straight(q, k, v, **others), the_long_way(q, k, v, **others))
    assert not torch.equal(only_straight(q, k, v, **others), expected)


OTHERS = {
    "gain": {"gain": torch.linspace(0.5, 2, 4 * 21).reshape(4, 21), "rectify": True},
    "vectors": {"rel_key": torch.linspace(-1, 1, 33 * 16).reshape(1, 33, 16), "tolerance": 0.0},
    "columns": {"key_offset": torch.linspace(-3, 0, 2 * 4 * 70).reshape(2, 4, 70), "lengths": torch.tensor([70, 9])},
    "rotations": {"angles": torch.linspace(0, 9, 70 * 8, dtype=torch.float64).reshape(1, 70, 8), "pairs": "half"},
    "reflections": {
        "reflectors": torch.linspace(-0.3, 0.3, 4 * 70 * 16).reshape(4, 70, 16), "causal": True,
        "reflect": torch.linspace(0, 1, 4 * 70).reshape(4, 70), "bias": torch.linspace(-1, 1, 4 * 21).reshape(4, 21),
    },
    "reflections that are masked": {
        "reflectors": torch.linspace(-0.3, 0.3, 70 * 16).reshape(1, 70, 16), "causal": True,
        "reflect": torch.linspace(0, 1, 70)[None], "mask": torch.arange(70) > 9,
    },
    "a network": {
        "mlp_in": torch.linspace(-1, 1, 5 * 8 * 3).reshape(5, 8, 3), "mlp_bias": torch.linspace(-1, 1, 5),
        "mlp_out": torch.linspace(-1, 1, 4 * 5 * 3).reshape(4, 5, 3), "lengths": torch.tensor([70, 9]),
    },
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_same_bits_with_any_slots(dtype, name):
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    given = {key: x.to(wide) if getattr(x, "dtype", None) is torch.float32 else x for key, x in OTHERS[name].items()}
    q, k, v = qkv(dtype)
    expected = the_long_way(q, k, v, **given)
    for _ in range(2):
        fastpe.torch.attention(q, k, v, **given)
    others = {key: x.clone() if torch.is_tensor(x) else x for key, x in given.items()}
    found = only_straight(q, k, v, **others)
    assert found.dtype == dtype
    assert torch.equal(found, expected)
    changed = next(x for x in others.values() if torch.is_tensor(x)).view(-1)
    changed[: len(changed) // 3] -= 1
    found = only_straight(q, k, v, **others)
    assert torch.equal(found, the_long_way(q, k, v, **others))
    assert not torch.equal(found, expected)


def near_and_far(m=70):
    """Two bands: the last keys, counted from the query, and the others, which all stand at one place."""
    places, spans = torch.tensor([m - 1.0]), torch.tensor([[m - 9, m]])
    near = Band(places, torch.arange(float(m)), spans)
    return near, Band(places, torch.full((m,), 20.0), torch.tensor([[0, m - 9]]))


BESIDE = {
    "lse": {"return_lse": True, "causal": True},
    "lse and slots": {"return_lse": True, "gain": torch.linspace(-1, 1, 44).reshape(4, 11), "softcap": 2.0},
    "lse and dropout": {"return_lse": True, "dropout": 0.4, "dropout_seed": 5},
    "bands": {"bands": near_and_far(), "theta": torch.rand(8), "causal": True},
    "bands and lse": {
        "bands": near_and_far(), "theta": torch.rand(8), "bias": torch.rand(4, 9), "return_lse": True,
        "dropout": 0.2, "dropout_seed": 1,
    },
}  # fmt: skip


@pytest.mark.parametrize("name", BESIDE)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bands_and_lse_go_straight_to_arrays(dtype, name):
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    given = {key: x.to(wide) if getattr(x, "dtype", None) is torch.float32 else x for key, x in BESIDE[name].items()}
    q, k, v = qkv(dtype)
    expected = the_long_way(q, k, v, **given)
    for _ in range(3):
        found = only_straight(q, k, v, kept=False, **given)
        pairs = zip(found, expected, strict=True) if given.get("return_lse") else [(found, expected)]
        for one, other in pairs:
            assert one.dtype == other.dtype
            assert torch.equal(one, other)


def test_bands_that_have_gradients_or_are_not_of_tensors_are_taken_as_ever():
    q, k, v = qkv()
    near, far = near_and_far()
    theta = torch.rand(8, requires_grad=True)
    fastpe.torch.attention(q, k, v, bands=(near, far), theta=theta).sum().backward()
    assert theta.grad is not None
    given = {"theta": theta.detach(), "causal": True}
    arrays = tuple(Band(*(x.numpy() for x in each)) for each in (near, far))
    expected = fastpe.torch.attention(q, k, v, bands=(near, far), **given)
    assert torch.equal(fastpe.torch.attention(q, k, v, bands=arrays, **given), expected)
    for _ in range(2):
        with pytest.raises(ValueError, match="bands"):
            fastpe.torch.attention(q, k, v, bands=(near, near), **given)
    with pytest.raises(TypeError, match="return_lse"):
        fastpe.torch.attention(q, k, v, return_lse=1)


def test_any_slots_that_have_gradients_or_are_no_arrays_take_the_long_way():
    q, k, v = qkv()
    gain = torch.ones(4, 21, requires_grad=True)
    fastpe.torch.attention(q, k, v, gain=gain).sum().backward()
    assert gain.grad is not None
    lengths = torch.tensor([1, 1]), torch.tensor([70, 70])
    found = fastpe.torch.attention(q, k, v, gain=gain.detach(), lengths=lengths)
    torch.testing.assert_close(found, fastpe.torch.attention(q, k, v))
    with pytest.raises(ValueError, match="gain must be finite"):
        fastpe.torch.attention(q, k, v, gain=gain.detach() + float("nan"))
    with pytest.raises(TypeError, match="gian"):
        fastpe.torch.attention(q, k, v, gian=gain.detach())


@pytest.mark.parametrize("given", [{}, {"bias": torch.linspace(-1, 1, 36).reshape(4, 9), "scale": 0.3}], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_same_weights_are_dropped(dtype, given):
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    given = {key: x.to(wide) if torch.is_tensor(x) else x for key, x in given.items()} | {"dropout": 0.4}
    q, k, v = qkv(dtype)
    for _ in range(2):
        fastpe.torch.attention(q, k, v, dropout_seed=3, **given)
    for seed in (3, 2**62 + 5, 0):
        expected = the_long_way(q, k, v, dropout_seed=seed, **given)
        assert torch.equal(only_straight(q, k, v, dropout_seed=seed, **given), expected)
        assert torch.equal(the_long_way(q, k, v, dropout_seed=torch.tensor(seed), **given), expected)
    drawn = []
    for run in (only_straight, the_long_way, fastpe.torch.attention):
        torch.manual_seed(4)
        drawn.append([run(q, k, v, **given), run(q, k, v, **given), torch.rand(1)])
    assert not torch.equal(*drawn[0][:2])
    for each in drawn[1:]:
        assert all(map(torch.equal, each, drawn[0]))


@pytest.mark.parametrize(
    ("dropout", "seed", "words"),
    [(1.0, 3, "dropout must lie in"), (-0.5, None, "dropout must"), (0.5, 0.5, "dropout_seed must be an integer"),
     (0.5, -1, "dropout_seed must be at least 0"), (0.5, True, "dropout_seed must be"), ("0.5", 1, "dropout must be")],
)  # fmt: skip
def test_errors_of_dropout_are_those_of_ever(dropout, seed, words):
    q, k, v = qkv()
    for _ in range(3):
        fastpe.torch.attention(q, k, v, dropout=0.5, dropout_seed=1)
    for _ in range(2):
        with pytest.raises((TypeError, ValueError), match=words):
            fastpe.torch.attention(q, k, v, dropout=dropout, dropout_seed=seed)


def test_slots_with_gradients_and_of_other_kinds_take_the_long_way():
    q, k, v = qkv()
    bias = torch.zeros(4, 21, requires_grad=True)
    for _ in range(3):
        fastpe.torch.attention(q, k, v, bias=bias.detach())
    fastpe.torch.attention(q, k, v, bias=bias).sum().backward()
    assert bias.grad is not None
    found = fastpe.torch.attention(q, k, v, bias=np.zeros((4, 21), np.float32), lengths=[70, 70])
    torch.testing.assert_close(found, fastpe.torch.attention(q, k, v))
    with pytest.raises(ValueError, match="bias must be finite"):
        fastpe.torch.attention(q, k, v, bias=bias.detach() + float("nan"))


def test_a_gradient_a_mode_a_transform_and_autocast_are_seen(monkeypatch):
    q, k, v = qkv()
    for _ in range(3):
        fastpe.torch.attention(q, k, v)
    monkeypatch.setattr(again.Again, "run_at", None)
    q.requires_grad_()
    fastpe.torch.attention(q, k, v).sum().backward()
    assert q.grad is not None
    q = q.detach()
    torch.func.vmap(lambda each: fastpe.torch.attention(each[None], k[:1], v[:1]))(q)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert fastpe.torch.attention(q, k, v).dtype == torch.bfloat16
    with pytest.raises(TypeError):
        fastpe.torch.attention(q, k, v)  # where nobody does, it is called


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("n", [1, 5, 70])
def test_halves_with_a_mask_go_in_as_they_lie(dtype, n):
    """What autograd has is made of float32 tensors."""
    q, k, v = qkv(dtype, n)
    mask = torch.rand(2, 1, n, 70) < 0.7
    found, lse = fastpe.torch.attention(q, k, v, mask=mask, return_lse=True)
    out, sums = fastpe.torch.attention(q.requires_grad_(), k, v, mask=mask, return_lse=True)
    assert found.dtype == dtype
    assert lse.dtype == torch.float32
    assert torch.equal(found, out)
    assert torch.equal(lse, sums)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")  # said where one is made
def test_other_tensors_are_refused_as_ever():
    q, k, v = qkv()
    for _ in range(3):
        fastpe.torch.attention(q, k, v)
    for wrong, words in (
        ((q, k[:, :, 1:], v), "v must have"), ((q, k.double(), v), "k must have the dtype"),
        ((q.int(), k.int(), v.int()), "q must"), ((q, k.to_sparse(), v), "dense"), ((q, k[:1, :1, :0], v), "must"),
    ):  # fmt: skip
        with pytest.raises((TypeError, ValueError), match=words):
            fastpe.torch.attention(*wrong)
    nested = torch.nested.nested_tensor([x[0] for x in (k, k)], layout=torch.strided)
    for wrong, name in (((nested, k, v), "q"), ((q, nested, v), "k")):
        with pytest.raises(TypeError, match=f"{name} must be a dense tensor, not a nested one"):
            fastpe.torch.attention(*wrong)
    with pytest.raises(TypeError, match="causal must be"):
        fastpe.torch.attention(q, k, v, causal=0)
    with pytest.raises(TypeError, match="key_lengths"):
        fastpe.torch.attention(q, k, v, key_lengths=torch.tensor([3, 70]))


def test_a_cache_that_grows_and_one_for_all_samples():
    q, k, v = qkv(m=80)
    for m in (64, 65, 80):
        for _ in range(3):
            found = fastpe.torch.attention(q, k[:, :, :m], v[:, :, :m])
            assert torch.equal(found, the_long_way(q, k[:, :, :m], v[:, :, :m]))
    for _ in range(3):
        assert torch.equal(fastpe.torch.attention(q, k[:1], v[:1])[1], fastpe.torch.attention(q[1:], k[:1], v[:1])[0])


@pytest.mark.parametrize("threads", [1, 2])
def test_threads_are_pytorchs(monkeypatch, threads):
    lanes, run, before = [], again.run_again, torch.get_num_threads()
    monkeypatch.setattr(again, "run_again", lambda number, *rest: lanes.append(number) or run(number, *rest))
    monkeypatch.setattr(again, "lanes_for", lambda work, tasks, most, awake: min(2, most))
    q, k, v = qkv(m=4000)
    expected = the_long_way(q, k, v)
    fastpe.torch.attention(q, k, v), fastpe.torch.attention(q, k, v)
    try:
        torch.set_num_threads(threads)
        lanes.clear()
        assert torch.equal(only_straight(q, k, v), expected)
    finally:
        torch.set_num_threads(before)
    assert lanes == [threads]


def test_without_ml_dtypes(monkeypatch):
    q, k, v = qkv(torch.bfloat16)
    expected = fastpe.torch.attention(q, k, v)
    straight._forget()
    for module in (straight, call):
        monkeypatch.setattr(module, "has_arrays", lambda dtype: dtype != torch.bfloat16)
    assert torch.equal(fastpe.torch.attention(q, k, v), expected)


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(straight, "_MOST", 3)
    q, k, v = qkv()
    for window in range(1, 9):
        for _ in range(3):
            found = fastpe.torch.attention(q, k, v, window=window)
            assert np.isfinite(found.numpy()).all()
        assert 0 < len(straight._kept) <= 3
