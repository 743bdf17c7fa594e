"""`flex_attention` with autocast, checkpointing, inference mode, the compiler and transformers; memory."""

import os
import subprocess
import sys
import threading

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")

from flex_mods import INF, causal, dense  # noqa: E402 - only where the peers are
from torch.nn.attention import flex_attention as pytorch  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from fastpe.torch import create_block_mask, flex, flex_attention, register_transformers  # noqa: E402

N = 40
SLOPES = torch.tensor([0.5, 0.25])


def drawn(n=N, grad=True, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(2, 2, n, 8, generator=generator).to(dtype).requires_grad_(grad) for _ in range(3)]


def alibi(s, b, h, q, k):
    return s + SLOPES[h] * (k - q)


BLOCK = create_block_mask(causal, None, None, N, N)


def test_autocast():
    given = drawn()
    for mod in (alibi, lambda s, b, h, q, k: torch.nn.functional.silu(s)):
        with torch.autocast("cpu", torch.bfloat16):
            out = flex_attention(*given, mod, BLOCK)
        assert out.dtype == torch.bfloat16
        right, _ = dense(*given, mod, causal)
        torch.testing.assert_close(out.double(), right, rtol=0, atol=0.03)
        out.sum().backward()
        assert given[0].grad.dtype == torch.float32


def test_checkpointing():
    given, t = drawn(), torch.randn(2, 2 * N, generator=torch.Generator().manual_seed(1)).requires_grad_()

    def attend(*given):
        return flex_attention(*given, lambda s, b, h, q, k: s + t[h, q - k + N], BLOCK)

    wanted = [*given, t]
    right = torch.autograd.grad(attend(*given).sum(), wanted)
    found = torch.autograd.grad(checkpoint(attend, *given, use_reentrant=False).sum(), wanted)
    for x, y in zip(found, right, strict=True):
        assert x.equal(y)


def test_what_is_kept_in_inference_mode_is_used_outside():
    def mod(s, b, h, q, k):
        return torch.where(q - k < 7, s - 0.5 * (q - k), -INF)

    block = create_block_mask(causal, None, None, N, N, BLOCK_SIZE=16)
    given = drawn()
    with torch.inference_mode():
        first = flex_attention(*given, mod, block)
    out = flex_attention(*given, mod, block)
    assert out.equal(first)
    out.sum().backward()
    with torch.no_grad():
        assert flex_attention(*given, mod, block).equal(first)


def test_pytorchs_functions_are_replaced_inside_a_block():
    q, k, v = drawn()
    original = pytorch.flex_attention
    with pytest.raises(NotImplementedError, match="does not support backward on CPU"):
        original(q, k, v)
    with flex(), flex():
        from torch.nn.attention.flex_attention import create_block_mask as create
        from torch.nn.attention.flex_attention import flex_attention as imported

        assert imported is flex_attention
        imported(q, k, v, alibi, create(causal, None, None, N, N, device="cpu")).sum().backward()
    assert pytorch.flex_attention is original
    assert q.grad is not None
    with pytest.raises(KeyError, match="x"), flex():
        raise KeyError("x")
    assert pytorch.flex_attention is original


def test_threads_may_trace_together():
    given, found = drawn(grad=False), {}

    def run(number):
        factor = number / 8
        found[number] = [flex_attention(*given, lambda s, b, h, q, k: s * factor + (q - k)) for _ in range(5)]

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for number in range(4):
        factor = number / 8
        right = dense(*given, lambda s, b, h, q, k, factor=factor: s * factor + (q - k), None)[0].float()
        for out in found[number]:
            torch.testing.assert_close(out, right, rtol=0, atol=1e-5)


# ---------------------------------------------------------------------------------------------------------------------
# The compiler

compiled = pytest.mark.filterwarnings("ignore")  # what PyTorch's compiler warns of on its way


@compiled
def test_the_compiler_calls_an_operator():
    given, t = drawn(), torch.randn(2, 2 * N, generator=torch.Generator().manual_seed(1)).requires_grad_()

    def attend(q, k, v, t, factor):
        doubled = t * 2

        def mod(s, b, h, q, k):
            return s * factor + doubled[h, q - k + N]

        out, aux = flex_attention(q * 1.5, k, v, mod, BLOCK, return_aux=pytorch.AuxRequest(lse=True))
        return out.sin() + aux.lse[..., None]

    torch.compiler.reset()
    run = torch.compile(attend, fullgraph=True, backend="aot_eager")
    for factor in (1.0, 0.5):
        found, right = run(*given, t, factor), attend(*given, t, factor)
        torch.testing.assert_close(found, right, rtol=0, atol=1e-6)
        wanted = [*given, t]
        pairs = zip(torch.autograd.grad(found.sum(), wanted), torch.autograd.grad(right.sum(), wanted), strict=True)
        for x, y in pairs:
            torch.testing.assert_close(x, y, rtol=0, atol=1e-5)


@compiled
def test_compiled_graphs_are_told_apart_by_their_constants():
    from fastpe.torch.mods import compiled as own

    q = drawn(grad=False)[0]

    def score(s, b, h, q, k, factor):
        return s if factor is None else s * factor

    def shown(b, h, q, k):
        return q >= k

    lists = [getattr(BLOCK, name) for name in own._LISTS]
    block = (*BLOCK.seq_lengths, *BLOCK.BLOCK_SIZE, *lists, shown)
    options = {"scale": None, "enable_gqa": False, "fallback": "chunks"}
    for factor in (None, True, 1.0, 2.0, 0.5):
        found, _ = own._Traced.__call__(own._traced, q, q, q, score, block, None, options, (factor,), ())
        mod = None if factor is None else lambda s, b, h, q, k, factor=factor: s * factor
        torch.testing.assert_close(found, flex_attention(q, q, q, mod, BLOCK), rtol=0, atol=1e-6)


@compiled
def test_compiled_gradients_of_what_the_result_does_not_depend_on():
    q, t = torch.ones(1, 2, 0, 8), torch.ones(2, requires_grad=True)
    torch.compiler.reset()
    run = torch.compile(lambda q, t: flex_attention(q, q, q, lambda s, b, h, q, k: s + t[h]).sum() + t.sum(),
                        fullgraph=True, backend="aot_eager")  # fmt: skip
    assert torch.autograd.grad(run(q, t), t)[0].tolist() == [1.0, 1.0]


@pytest.mark.filterwarnings("ignore")  # of the compiler, which looks at gradients between its graphs
def test_without_the_private_names_of_pytorch_the_compiler_leaves_the_call_out(monkeypatch):
    monkeypatch.setattr("fastpe.torch.mods.attention.compiled", None)
    given = drawn()
    torch.compiler.reset()
    run = torch.compile(lambda *given: flex_attention(*given, alibi, BLOCK).sin(), backend="eager")
    found, right = run(*given), flex_attention(*given, alibi, BLOCK).sin()
    torch.testing.assert_close(found, right, rtol=0, atol=1e-6)
    for x, y in zip(torch.autograd.grad(found.sum(), given), torch.autograd.grad(right.sum(), given), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-5)
    with pytest.raises(Exception, match=r"torch\.compiler\.disable"):
        torch.compile(lambda *given: flex_attention(*given, alibi), fullgraph=True, backend="eager")(*given)


@compiled
@pytest.mark.full("compiles ten graphs")
def test_the_compiler_takes_the_function_itself_and_other_mods_and_masks():
    given = drawn(grad=False)
    torch.compiler.reset()
    run = torch.compile(flex_attention, fullgraph=True, backend="aot_eager")
    doc = torch.arange(N) // 13
    documents = create_block_mask(lambda b, h, q, k: doc[q] == doc[k], None, None, N, N, BLOCK_SIZE=16)
    for mod in (None, alibi, lambda s, b, h, q, k: torch.tanh(s)):
        torch.compiler.reset()  # it compiles a function for at most 8 kinds of arguments
        for block in (None, BLOCK, documents):
            torch.testing.assert_close(run(*given, mod, block), flex_attention(*given, mod, block))
    with torch.autocast("cpu", torch.bfloat16):
        assert run(*given, alibi).equal(flex_attention(*given, alibi))
    with pytest.raises(Exception, match="has no form of slots"):
        run(*given, lambda s, b, h, q, k: s * s, fallback="error")


@compiled
@pytest.mark.full("compiles C++")
def test_the_compiler_inductor():
    given = drawn()
    torch.compiler.reset()
    run = torch.compile(lambda *given: flex_attention(*given, alibi, BLOCK).sin(), fullgraph=True)
    found, right = run(*given), flex_attention(*given, alibi, BLOCK).sin()
    for x, y in zip(torch.autograd.grad(found.sum(), given), torch.autograd.grad(right.sum(), given), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-5)


# ---------------------------------------------------------------------------------------------------------------------
# transformers


@pytest.mark.filterwarnings("ignore")  # what transformers and PyTorch warn of on their way
@pytest.mark.parametrize("padding", ["", "left", "right"])
@pytest.mark.parametrize("name", ["llama", "llama of 6 heads", "mistral", "gemma2"])
def test_models_of_transformers_are_trained(name, padding):
    transformers = pytest.importorskip("transformers", minversion="5", reason="a peer: pip install -e '.[peers]'")
    settings = {
        "vocab_size": 30, "hidden_size": 24, "intermediate_size": 32, "num_hidden_layers": 2, "head_dim": 4,
        "num_attention_heads": 6 if "6" in name else 4, "num_key_value_heads": 2, "pad_token_id": None,
    }  # fmt: skip
    more = {"mistral": {"sliding_window": 5}, "gemma2": {"sliding_window": 5, "attn_logit_softcapping": 0.5}}
    kind = {"llama": "Llama", "mistral": "Mistral", "gemma2": "Gemma2"}[name.split()[0]]
    config = getattr(transformers, f"{kind}Config")(**settings, **more.get(name, {}))
    register_transformers(flex=True)
    torch.manual_seed(0)
    model = getattr(transformers, f"{kind}ForCausalLM")(config)
    words = torch.randint(0, 30, (2, 12))
    shown = torch.ones_like(words)
    if padding:
        shown[1, :4] = 0
        shown = shown if padding == "left" else shown.flip(1)
    labels = words.masked_fill(shown == 0, -100)
    labels[:, 1:][shown[:, :-1] == 0] = -100  # queries of padding see nothing: eager attention returns a mean there
    found = []
    for way in ("eager", "flex_attention"):
        model.set_attn_implementation(way)
        model.zero_grad()
        loss = model(words, attention_mask=shown, labels=labels).loss
        loss.backward()
        found.append([loss.detach(), *(x.grad.clone() for x in model.parameters())])
    for x, y in zip(*found, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-5)


# ---------------------------------------------------------------------------------------------------------------------
# Memory and time


@pytest.mark.full("4,096 queries and keys: up to a minute")
@pytest.mark.parametrize(
    ("name", "most"),
    [("alibi", 130), ("learned", 130), ("soft cap", 130), ("documents", 130), ("dilated", 450), ("pairs", 450),
     ("silu", 1024)],
)  # fmt: skip
def test_peak_memory(name, most):
    """In a new process, because memory that earlier tests have freed may count or not."""
    program = f"import flex_mods; print(flex_mods.peak_memory({name!r}))"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    if done.stdout == "None\n":
        pytest.skip("no peak of memory on this system")
    assert float(done.stdout) <= most
