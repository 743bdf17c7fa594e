"""Hugging Face models and PyTorch's attention with masks, biases and caches, with and without fastpe's adapter.

PyTorch and transformers are optional (`pip install -e '.[peers]'` from a clone of fastpe); the functions that
use them import them.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from fastpe import spans
from fastpe.benchmarks.attention_cases import FORWARD, Problem
from fastpe.benchmarks.attention_peers import torch_calls

DOCUMENT, WINDOW = 512, 4096
"""Number of tokens of each packed document, and the window of Mistral."""
_WORDS, _WIDTH, _HEADS, _LAYERS = 128, 256, 4, 2
_TOKENS = 256  # number of tokens by which a cache grows before it is cut back
_PLACES = 509
"""Number of entries of each result that are compared. It is prime, so that no block of rows or columns is missed."""
_TOLERANCE = 5e-5  # of float32 results, relative to the largest entry; observed: 3e-6

Call = Callable[[], Sequence[Any]]

_TEXT = {
    "vocab_size": _WORDS, "hidden_size": _WIDTH, "intermediate_size": 2 * _WIDTH, "num_hidden_layers": _LAYERS,
    "num_attention_heads": _HEADS, "num_key_value_heads": _HEADS // 2, "max_position_embeddings": 2**15,
    "initializer_range": _WIDTH**-0.5, "pad_token_id": 0,
}  # fmt: skip
MODELS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "bloom": ("BloomForCausalLM", {
        "vocab_size": _WORDS, "hidden_size": _WIDTH, "n_layer": _LAYERS, "n_head": _HEADS,
        "initializer_range": _WIDTH**-0.5,
    }),
    "llama": ("LlamaForCausalLM", _TEXT),
    "mistral": ("MistralForCausalLM", {**_TEXT, "sliding_window": WINDOW}),
    "t5": ("T5EncoderModel", {
        "vocab_size": _WORDS, "d_model": _WIDTH, "d_kv": _WIDTH // _HEADS, "d_ff": 2 * _WIDTH, "num_layers": _LAYERS,
        "num_heads": _HEADS, "dropout_rate": 0.0,
    }),
}  # fmt: skip
"""Hugging Face models by name: class and settings. The weights are random."""


def call(kind: str, length: int, way: str, part: str, threads: int) -> Call:
    """The function to be timed. It returns the output and, for ``forward and backward``, the gradients.

    Parameters
    ----------
    kind : str
        For attention alone: ``alibi`` or ``packed`` (packed documents). For `flex_attention`: ``flex alibi`` or ``flex
        learned`` (a bias by offset). For models: a key of `MODELS`, ``llama packed``
        (packed documents, which the model recognises by their positions), or ``llama decode`` (one more token).
    length : int
        Number of tokens, or for ``llama decode`` the number of tokens in the cache.
    way : str
        ``fastpe``, or a peer: ``eager`` or ``sdpa`` for models, ``sdpa`` or ``flex`` for attention alone; ``dense`` and
        ``slots`` (`fastpe.torch.attention`) are other peers of `flex_attention`.
    part : str
        ``forward`` or ``forward and backward``.
    threads : int
        Number of PyTorch's threads.
    """
    import torch

    torch.set_num_threads(threads)
    model, _, more = kind.partition(" ")
    if model in MODELS:
        return _decoded(length, way) if more == "decode" else _of_model(model, length, way, part, packed=bool(more))
    if model == "flex":
        return _timed(_by_mod(more, length, way), length, part)
    if kind == "alibi":
        problem = Problem(length, term="alibi")
        calls = torch_calls(problem, threads, way)
        run, results = calls.part(part, problem.inputs()[3]), _joined if part != FORWARD else _alone
        return lambda: results(run())
    return _packed(length, way, part)


# ---------------------------------------------------------------------------------------------------------------------
# Attention alone


def _alone(out: Any) -> Sequence[Any]:
    return [out]


def _joined(found: tuple[Any, Mapping[str, Any]]) -> Sequence[Any]:
    out, gradients = found
    return [out, *gradients.values()]


def _packed(length: int, way: str, part: str) -> Call:
    """Causal attention within packed documents."""
    return _timed(_attention(way, _documents(length, way)), length, part)


def _timed(attend: Callable[..., Any], length: int, part: str) -> Call:
    """Attention on the inputs of a `Problem`, with the gradients of queries, keys and values."""
    import torch

    q, k, v, dout = map(torch.from_numpy, Problem(length).inputs())
    if part == FORWARD:

        def forward() -> Sequence[Any]:
            with torch.no_grad():
                return [attend(q, k, v)]

        return forward
    leaves = [x.requires_grad_() for x in (q, k, v)]

    def both() -> Sequence[Any]:
        out = attend(*leaves)
        return [out.detach(), *torch.autograd.grad(out, leaves, dout)]

    return both


def _attention(way: str, sight: Mapping[str, Any]) -> Callable[..., Any]:
    import functools

    import torch

    if way == "flex":
        from torch.nn.attention.flex_attention import flex_attention

        return functools.partial(torch.compile(flex_attention), **sight)
    if way == "sdpa":
        return functools.partial(torch.nn.functional.scaled_dot_product_attention, **sight)
    from fastpe.torch import attention

    return functools.partial(attention, **sight)


def _documents(length: int, way: str) -> Mapping[str, Any]:
    """The arguments that hide the keys of other documents; they are made before the timing."""
    import torch

    if way == "fastpe":
        edges = np.append(np.arange(0, length, DOCUMENT), length)
        seen = spans.intersect(spans.causal(length), spans.documents(cu_seqlens=edges))
        return {"spans": torch.from_numpy(seen)}
    if way == "sdpa":
        place = torch.arange(length)
        return {"attn_mask": (place[:, None] // DOCUMENT == place // DOCUMENT) & (place[:, None] >= place)}
    from torch.nn.attention.flex_attention import create_block_mask

    def seen_by(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (i // DOCUMENT == j // DOCUMENT) & (i >= j)

    return {"block_mask": create_block_mask(seen_by, None, None, length, length, device="cpu")}


def _by_mod(term: str, length: int, way: str) -> Callable[..., Any]:
    """Causal attention with a bias by offset, which `flex_attention` gets as a score_mod."""
    import functools

    import torch

    import fastpe.torch as ours

    heads = Problem(length).heads
    offsets = torch.arange(1 - length, length)
    slopes = torch.exp2(-8.0 * (torch.arange(heads) + 1) / heads)
    learned = torch.randn(heads, 2 * length - 1, generator=torch.Generator().manual_seed(2))
    table = slopes[:, None] * offsets if term == "alibi" else learned

    def score_mod(score: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return score + (slopes[h] * (j - i) if term == "alibi" else learned[h, j - i + length - 1])

    if way == "slots":
        return functools.partial(ours.attention, causal=True, bias=table)
    if way in ("sdpa", "dense"):
        place = torch.arange(length)
        later = place > place[:, None]
        bias = table[:, place - place[:, None] + length - 1].masked_fill(later, -torch.inf)
        if way == "sdpa":
            return functools.partial(torch.nn.functional.scaled_dot_product_attention, attn_mask=bias)
        return lambda q, k, v: (q @ k.mT * q.shape[-1] ** -0.5 + bias).softmax(-1) @ v
    block = ours.create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length)
    if way == "fastpe":
        return functools.partial(ours.flex_attention, score_mod=score_mod, block_mask=block)
    from torch.nn.attention.flex_attention import flex_attention

    return functools.partial(torch.compile(flex_attention), score_mod=score_mod, block_mask=block)


# ---------------------------------------------------------------------------------------------------------------------
# Models


def model_of(name: str, way: str) -> Any:
    """A Hugging Face model with fixed weights, with fastpe's attention or one of transformers' own."""
    import torch
    import transformers

    from fastpe.torch import patch, register_transformers

    kind, settings = MODELS[name]
    made = getattr(transformers, kind)
    patched = way == "fastpe" and name == "bloom"
    register_transformers()
    torch.manual_seed(0)
    model = made._from_config(made.config_class(**settings), attn_implementation="eager" if patched else way).eval()
    return patch(model) if patched else model


def _words(length: int) -> Any:
    import torch

    return torch.randint(1, _WORDS, (1, length), generator=torch.Generator().manual_seed(1))


def _of_model(name: str, length: int, way: str, part: str, packed: bool) -> Call:
    import torch

    model = model_of(name, way)
    given = {"input_ids": _words(length)}
    if packed:
        given["position_ids"] = (torch.arange(length) % DOCUMENT)[None]
    options = {} if name == "t5" else {"use_cache": False}

    def output() -> Any:
        return model(**given, **options)[0]

    if part == FORWARD:

        def forward() -> Sequence[Any]:
            with torch.no_grad():
                return [output()]

        return forward
    leaves = list(model.train().parameters())

    def both() -> Sequence[Any]:
        out = output()
        return [out.detach(), *torch.autograd.grad(out.square().mean(), leaves)]

    return both


def _decoded(length: int, way: str) -> Call:
    """One more token for Llama with a cache. The cache grows by a token per call, and is cut back after `_TOKENS`."""
    import torch
    from transformers import DynamicCache

    model, words = model_of("llama", way), _words(length + 1)
    cache = DynamicCache(config=model.config)

    def one() -> Sequence[Any]:
        with torch.no_grad():
            out = model(input_ids=words[:, -1:], past_key_values=cache, use_cache=True)[0]
        if cache.get_seq_length() == length + _TOKENS:
            cache.crop(-_TOKENS)
        return [out]

    with torch.no_grad():
        model(input_ids=words[:, :-1], past_key_values=cache, use_cache=True)
    return one


# ---------------------------------------------------------------------------------------------------------------------
# Comparison of results


def sampled(results: Sequence[Any]) -> list[dict[str, Any]]:
    """The largest entry and some entries of every result (an array or tensor), as plain numbers."""
    found = []
    for flat in (np.asarray(result).reshape(-1) for result in results):
        places = np.unique(np.linspace(0, len(flat) - 1, _PLACES).astype(np.int64))
        found.append({"largest": float(np.abs(flat).max()), "entries": flat[places].astype(np.float64).tolist()})
    return found


def disagreement(
    found: Sequence[Mapping[str, Any]], right: Sequence[Mapping[str, Any]], tolerance: float = _TOLERANCE
) -> str | None:
    """A message that names the first result of `sampled` that differs, with its error; None if all agree."""
    if len(found) != len(right):
        return f"{len(found)} results, but should be {len(right)}"
    for number, error in enumerate(_errors(found, right)):
        if not error <= tolerance:
            return f"result {number} is off by {error:.2g} of the largest entry, bound {tolerance:.2g}"
    return None


def _errors(found: Sequence[Mapping[str, Any]], right: Sequence[Mapping[str, Any]]) -> Iterator[float]:
    # errors of gradients are relative to the largest entry of all, because some gradients are almost zero
    largest = max(each["largest"] for each in right[1:]) if right[1:] else 0.0
    for number, (one, other) in enumerate(zip(found, right, strict=True)):
        off = np.abs(np.subtract(one["entries"], other["entries"])).max()
        yield float(off / (largest if number else other["largest"]))
