"""`fastpe.torch.attention` beside PyTorch's own attention and its gradient checker; needs the extra `torch`."""

import doctest
import importlib
import os
import subprocess
import sys

import numpy as np
import pytest
from attention_problems import SLOTS, problem

import fastpe

torch = pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")

from fastpe.torch import attention  # noqa: E402 - only where PyTorch is


def tensors(arguments, grad=True):
    made = {name: torch.tensor(array) for name, array in arguments.items()}
    return {name: x.requires_grad_(grad and x.is_floating_point()) for name, x in made.items()}


def drawn(names=(), grad=True, **sizes):
    return tensors(problem(np.random.default_rng(1), names, **{"n": 4, "m": 5, "d": 4, "reach": 2, **sizes}), grad)


def test_reflections_are_those_of_matrices_written_out():
    """Outputs and gradients beside PyTorch's own of a dense formula; and its checker."""
    given = drawn(("reflectors", "reflect"), h=2, n=5, m=7)
    w, beta = given["reflectors"], given["reflect"]
    rows = []
    for i in range(5):
        row, scores = given["q"][:, :, i], []
        for j in range(i + 2, -1, -1):
            scores.append((row * given["k"][:, :, j]).sum(-1) / 2)
            row = row - (beta[:, j] * (row * w[:, j]).sum(-1))[..., None] * w[:, j]
        weights = torch.stack(scores[::-1], -1).softmax(-1)
        rows.append((weights[..., None] * given["v"][:, :, : i + 3]).sum(-2))
    expected, out = torch.stack(rows, -2), attention(**given, causal=True)
    torch.testing.assert_close(out, expected)
    dout = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(2))
    found, own = (torch.autograd.grad(x, list(given.values()), dout) for x in (out, expected))
    for name, ours, theirs in zip(given, found, own, strict=True):
        torch.testing.assert_close(ours, theirs, msg=name)

    beside = given | {"key_offset": torch.linspace(-1, 1, 14, dtype=torch.float64).reshape(2, 7).requires_grad_()}

    def function(*values):
        options = {"causal": True, "window": 4, "lengths": [5, 4], "dropout": 0.3, "dropout_seed": 3}
        return attention(**dict(zip(beside, values, strict=True)), **options)

    assert torch.autograd.gradcheck(function, list(beside.values()))
    with torch.no_grad():
        one = {**given, "q": given["q"][:, :, -1:]}
        torch.testing.assert_close(attention(**one, causal=True), expected[:, :, -1:])


def test_a_network_over_scores_is_that_of_pytorchs_own_operators():
    """Convolutions, leaky_relu and softmax, dense; outputs, gradients, and the checker."""
    given, rng = drawn(("bias",), h=2, n=6, m=6), np.random.default_rng(3)
    shapes = {"mlp_in": (3, 4, 3), "mlp_bias": (3,), "mlp_out": (2, 3, 3)}
    given |= {name: torch.tensor(rng.normal(size=shape), requires_grad=True) for name, shape in shapes.items()}
    seen, offset = torch.ones(6, 6).tril() > 0, np.clip(np.arange(6) - np.arange(6)[:, None], -2, 2) + 2
    content = given["q"] @ given["k"].transpose(-1, -2) / 2
    cells = given["bias"][:, torch.tensor(offset)].expand(content.shape)
    x = torch.where(seen, torch.cat([content, cells], 1), 0.0)
    pad, convolve = (0, 1), torch.nn.functional.conv2d
    units = torch.nn.functional.leaky_relu(convolve(x, given["mlp_in"][:, :, None], given["mlp_bias"], padding=pad))
    scores = content + cells + convolve(units, given["mlp_out"][:, :, None], padding=pad)
    expected = scores.masked_fill(~seen, -torch.inf).softmax(-1) @ given["v"]
    out = attention(**given, causal=True)
    torch.testing.assert_close(out, expected)
    dout = torch.randn(out.shape, dtype=out.dtype, generator=torch.Generator().manual_seed(2))
    found, own = (torch.autograd.grad(x, list(given.values()), dout) for x in (out, expected))
    for name, ours, theirs in zip(given, found, own, strict=True):
        torch.testing.assert_close(ours, theirs, msg=name)

    def function(*values):
        return attention(**dict(zip(given, values, strict=True)), causal=True, window=3, lengths=[5, 4])

    assert torch.autograd.gradcheck(function, list(given.values()))


@pytest.mark.parametrize(
    "names", [(), *((name,) for name in (*SLOTS, "counts")), SLOTS, ("polar", "angles")], ids="+".join
)
def test_gradients_are_those_of_pytorchs_checker(names):
    given = drawn(names, h=2, hk=1)
    real = {name: x for name, x in given.items() if x.requires_grad}
    fixed = {name: x for name, x in given.items() if not x.requires_grad}

    def function(*values):
        return attention(**dict(zip(real, values, strict=True)), **fixed, causal=True, window=3, lengths=[5, 4])

    assert set(real) >= {"q", "k", "v", *names}
    assert torch.autograd.gradcheck(function, tuple(real.values()))


@pytest.mark.full("takes seconds")
def test_bands_are_constants_and_theta_has_a_gradient():
    given = drawn(("bias", "key_bias"), n=6, m=6, d=4)
    own = fastpe.bands.self_extend(6, group=2, window=2)
    theta = torch.tensor([1.0, 0.1], dtype=torch.float64, requires_grad=True)
    real = {"theta": theta, **given}

    def function(*values):
        return attention(**dict(zip(real, values, strict=True)), bands=own, causal=True, return_lse=True)

    assert torch.autograd.gradcheck(function, tuple(real.values()))
    arrays = {name: x.detach().numpy() for name, x in real.items()}
    expected = fastpe.attention(**arrays, bands=own, causal=True)
    for each in (own, [tuple(map(torch.tensor, band)) for band in own]):
        np.testing.assert_array_equal(attention(**real, bands=each, causal=True).detach(), expected)
    compiled = torch.compile(function, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(*real.values())[0].detach().numpy(), expected, rtol=0, atol=0)
    with pytest.raises(TypeError, match=r"bands\[0\]"):
        attention(**real, bands=[1])
    with pytest.raises(ValueError, match="bands and theta"):
        attention(**given, bands=own)
    with pytest.raises(ValueError, match=r"bands\[0\].keys"):
        attention(**real, bands=fastpe.bands.rerope(6, 7, window=2))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("causal", [False, True])
def test_it_is_pytorchs_attention(dtype, causal):
    ours, theirs = (drawn(b=2, h=4, hk=2, n=70, m=70, d=16, dtype=dtype) for _ in range(2))
    out = attention(**ours, causal=causal)
    expected = torch.nn.functional.scaled_dot_product_attention(
        *(theirs[name] for name in "qkv"), is_causal=causal, enable_gqa=True
    )
    weights = torch.tensor(np.random.default_rng(2).standard_normal(out.shape).astype(dtype))
    for result in (out, expected):
        (result * weights).sum().backward()
    tolerance = 1e-5 if dtype == np.float32 else 1e-12
    torch.testing.assert_close(out, expected, rtol=0, atol=tolerance)
    for name in "qkv":
        torch.testing.assert_close(ours[name].grad, theirs[name].grad, rtol=0, atol=4 * tolerance)


def test_a_learned_bias_gets_the_gradient_of_a_dense_mask():
    ours, theirs = (drawn(("bias",), n=70, m=70, d=16, reach=69) for _ in range(2))
    attention(**ours).square().sum().backward()
    offsets = torch.arange(70) - torch.arange(70)[:, None] + 69
    bias = theirs.pop("bias")
    dense = torch.nn.functional.scaled_dot_product_attention(*theirs.values(), attn_mask=bias[:, offsets])
    dense.square().sum().backward()
    torch.testing.assert_close(ours["bias"].grad, bias.grad, rtol=0, atol=1e-11)


def test_memory_is_shared_and_strides_are_read():
    packed = torch.randn(3, 2, 9, 4, 8, dtype=torch.float64, requires_grad=True)  # (3, B, N, H, D)
    q, k, v = packed.transpose(2, 3)
    out = attention(q, k, v)
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v)
    torch.testing.assert_close(out, expected, rtol=0, atol=1e-13)
    (found,) = torch.autograd.grad(out.sin().sum(), packed)
    (wanted,) = torch.autograd.grad(expected.sin().sum(), packed)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-12)


def test_repeated_keys_and_broadcast_gradients():
    given = drawn(h=4, hk=1)
    out = attention(given["q"], given["k"].expand(2, 4, 5, 4), given["v"].expand(2, 4, 5, 4))
    torch.testing.assert_close(out, attention(**given), rtol=0, atol=1e-14)
    out.sum().backward()  # dout has strides of zero
    assert given["k"].grad.shape == given["k"].shape


def test_a_graph_may_be_used_twice():
    given = drawn(("bias",))
    loss = attention(**given).square().sum()
    loss.backward(retain_graph=True)
    once = given["bias"].grad.clone()
    loss.backward()
    torch.testing.assert_close(given["bias"].grad, 2 * once)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_without_gradients():
    given = drawn(("bias",))
    with torch.no_grad():
        out = attention(**given)
    assert not out.requires_grad
    assert not attention(**drawn(("bias",), grad=False)).requires_grad
    torch.testing.assert_close(attention(**given).detach(), out)


def test_only_what_is_asked_for_gets_a_gradient():
    given = drawn(("bias", "rel_key"), grad=False)
    given["bias"].requires_grad_()
    attention(**given).sum().backward()
    assert [name for name, x in given.items() if x.grad is not None] == ["bias"]


def test_gradients_keep_the_dtype_of_their_tensor():
    given = drawn(("angles", "scale"), dtype=np.float32)
    given = {name: x.detach().float().requires_grad_() for name, x in given.items()}
    attention(**given).sum().backward()
    assert {x.grad.dtype for x in given.values()} == {torch.float32}


def test_arrays_of_numpy_are_constants():
    given = drawn(n=6, m=6, dtype=np.float32)
    bias = fastpe.build("alibi", 6, heads=2)["bias"]
    torch.testing.assert_close(attention(**given, bias=bias), attention(**given, bias=torch.tensor(bias)))


def test_what_is_written_to_before_the_backward_pass_is_noticed():
    for name in ("q", "bias", "out"):
        given = drawn(("bias",))
        moved = {key: x.clone() for key, x in given.items()}
        moved["out"] = attention(**moved)
        with torch.no_grad():
            moved[name].mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            moved["out"].sum().backward()


class OnCuda(torch.Tensor):
    """A tensor that says it lies on a GPU."""

    device = torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda x: x.half(), "must have the dtype of q, "),
        (lambda x: x.bfloat16(), "must have the dtype of q, "),
        (lambda x: x.to("meta"), "must be in CPU memory, not on the device meta"),
        (lambda x: x.as_subclass(OnCuda), "must be in CPU memory, not on the device cuda:0"),
        (lambda x: x.to_sparse(), "must be a dense tensor, not one of torch.sparse_coo"),
        (lambda x: x.float(), "must have the dtype of q, "),
    ],
)
@pytest.mark.parametrize("name", ["q", "v", "bias"])
def test_tensors_that_are_refused(name, change, words):
    given = drawn(("bias",), grad=False)
    given[name] = change(given[name])
    with pytest.raises(TypeError) as caught:
        attention(**given)
    assert words in str(caught.value)
    assert str(caught.value).startswith("k must" if name == "q" and "dtype of q" in words else f"{name} must")


@pytest.mark.filterwarnings("ignore:The PyTorch API of MaskedTensors:UserWarning")
def test_masked_tensors_and_arrays_are_refused_by_name():
    given = drawn(("bias",), grad=False) | {"lengths": torch.tensor([5, 4])}
    hidden = {name: torch.masked.masked_tensor(x, torch.zeros_like(x, dtype=torch.bool)) for name, x in given.items()}
    wrong = [*hidden.items(), ("bias", np.ma.array(given["bias"].numpy())), ("lengths", np.ma.array([5, 4]))]
    for name, x in [*wrong, ("lengths", (None, hidden["lengths"]))]:
        with pytest.raises(TypeError, match=rf"^{name}.* must not be a masked array, nor contain one: pass its values"):
            attention(**{**given, name: x})
    with pytest.raises(TypeError, match=r"^out\['table'\] must not be a masked array"):
        fastpe.build("sinusoidal", 5, dim=4, out={"table": hidden["q"][0]})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("tracked", [False, True])
def test_tensors_of_too_few_axes_are_refused_by_name(dtype, tracked):
    whole, flat = torch.zeros(1, 2, 3, 4, dtype=dtype), torch.zeros(4, dtype=dtype, requires_grad=tracked)
    for place, name in enumerate("qkv"):
        for few in (flat, flat.sum()):
            rows = [few if number == place else whole for number in range(3)]
            with pytest.raises(ValueError, match=f"^{name} must have the shape "):
                attention(*rows)


def test_arguments_that_are_refused():
    given = drawn(grad=False)
    with pytest.raises(TypeError, match=r"q must be a torch.Tensor, not ndarray"):
        attention(**{**given, "q": given["q"].numpy()})
    with pytest.raises(TypeError, match=r"wrt is not an argument of fastpe.torch.attention"):
        attention(**given, wrt=None)
    with pytest.raises(TypeError, match="slope is not an argument"):
        attention(**given, slope=given["q"])
    with pytest.raises(ValueError, match="bias must have the shape"):
        attention(**given, bias=torch.zeros(2, 4, dtype=torch.float64))


def test_the_examples_run():
    names = "call", "encoding", "mods.attention", "mods.block_mask"
    for module in (fastpe.torch, *(importlib.import_module(f"fastpe.torch.{name}") for name in names)):
        failed, attempted = doctest.testmod(module)
        assert attempted >= (1 if "mods" in module.__name__ else 3)
        assert failed == 0


def test_gradients_with_offsets_of_keys_of_any_size_are_those_of_fastpe():
    """An lse in float32 is too coarse for them: it is as large as the offsets."""
    arguments = problem(np.random.default_rng(3), n=90, m=300, d=8, dtype=np.float32)
    arguments["key_offset"] = 2.0**20 + np.cumsum(np.full((2, 300), 0.05), axis=-1)
    given = tensors(arguments)
    out = attention(**given, causal=True)
    expected, pullback = fastpe.attention_vjp(**arguments, causal=True)
    np.testing.assert_array_equal(out.detach(), expected)
    out.backward(torch.tensor(expected))
    for name, gradient in pullback(expected).items():
        np.testing.assert_array_equal(given[name].grad, gradient, err_msg=name)


LIMITED = """
import torch
torch.set_num_threads(1)
import fastpe, fastpe.torch
from fastpe.kernels.threads import team as threads
def refused(*_):
    raise AssertionError("threads were started")
start, threads.start_threads = threads.start_threads, refused
q = torch.zeros(1, 4, 1000, 16, requires_grad=True)
fastpe.torch.attention(q, q, q, causal=True).sum().backward()
few = torch.zeros(1, 64, 1, 16)
fastpe.torch.attention(few, *[torch.zeros(1, 64, 1000, 16)] * 2)
threads.start_threads = start
torch.set_num_threads(2)
fastpe.torch.attention(q, q, q, causal=True)
assert threads._threads_started
print(torch.get_num_threads())
"""


@pytest.mark.full("starts processes")
def test_pytorchs_number_of_threads_counts_and_stays():
    environment = {**os.environ, "NUMBA_NUM_THREADS": "3"}
    done = subprocess.run([sys.executable, "-c", LIMITED], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["2"]
