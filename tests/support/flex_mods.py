"""Modifications for `flex_attention`, and dense attention with them in PyTorch."""

import functools
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch.nn.attention.flex_attention import and_masks, or_masks

from fastpe.benchmarks import memory
from fastpe.torch import create_block_mask, flex_attention
from fastpe.torch.mods.tracing import _Indexing

INF = math.inf


class Case(NamedTuple):
    """A score_mod and a mask_mod, each or None, the tensors that they capture, and how the call is computed."""

    score_mod: Callable | None
    mask_mod: Callable | None
    captured: list
    way: str = "slots"


def drawn(*shape, dtype, seed=7):
    """Normal numbers that require a gradient."""
    generator = torch.Generator().manual_seed(seed + sum(shape))
    return torch.randn(*shape, dtype=dtype, generator=generator).requires_grad_()


def causal(b, h, q, k):
    return q >= k


CASES = {}


def case(make):
    """Register a function of (B, H, N, M, dtype) that returns a `Case`."""
    CASES[make.__name__] = make
    return make


@case
def plain(b, h, n, m, dtype):
    return Case(None, None, [])


@case
def alibi(b, h, n, m, dtype):
    return Case(lambda s, b, i, q, k: s + (k - q) * torch.exp2(-((i + 1) * 8.0 / h)), causal, [])


@case
def alibi_in_both_directions(b, h, n, m, dtype):
    return Case(lambda s, b, i, q, k: s - (q - k).abs() * torch.exp2(-((i + 1) * 8.0 / h)), None, [])


@case
def soft_cap(b, h, n, m, dtype):
    return Case(lambda s, b, h, q, k: 2.0 * torch.tanh(s / 2.0), causal, [])


@case
def soft_cap_of_learned_bias_and_hidden_keys(b, h, n, m, dtype):
    t = drawn(h, n + m, dtype=dtype)
    return Case(lambda s, b, h, q, k: torch.where(q >= k, 3 * torch.tanh((s + t[h, q - k + m]) / 3), -INF), None, [t])


@case
def soft_cap_of_key_bias_and_of_head_bias(b, h, n, m, dtype):
    t, u = drawn(m, dtype=dtype), drawn(h, dtype=dtype)
    return Case(lambda s, b, h, q, k: torch.tanh(s + t[k] + u[h]), None, [t, u])


@case
def minus_infinity_inside_a_soft_cap_is_no_mask(b, h, n, m, dtype):
    return Case(lambda s, b, h, q, k: torch.tanh(s + torch.where(q >= k, 0.0, -INF)), None, [])


@case
def dense_bias_inside_a_soft_cap(b, h, n, m, dtype):
    t = drawn(n, m, dtype=dtype)
    return Case(lambda s, b, h, q, k: torch.tanh(s + t[q, k]), causal, [t], "chunks")


@case
def terms_after_a_soft_cap(b, h, n, m, dtype):
    t, u = drawn(n, dtype=dtype), drawn(m, dtype=dtype)
    return Case(lambda s, b, h, q, k: torch.tanh(s) + t[q] - u[k] + 0.1 * (k - q), causal, [t, u], "chunks")


@case
def offset_as_bias(b, h, n, m, dtype):
    return Case(lambda s, b, h, q, k: s + (q - k), None, [])


@case
def causal_in_the_score(b, h, n, m, dtype):
    return Case(lambda s, b, h, q, k: torch.where(q >= k, s + 1, -INF), None, [])


@case
def masked_fill(b, h, n, m, dtype):
    return Case(lambda s, b, h, q, k: s.masked_fill((k > q) | ((q - k) > 9), -INF), None, [])


@case
def window(b, h, n, m, dtype):
    return Case(None, and_masks(causal, lambda b, h, q, k: q - k <= 17), [])


@case
def prefix(b, h, n, m, dtype):
    return Case(None, or_masks(lambda b, h, q, k: k < 20, causal), [])


@case
def documents(b, h, n, m, dtype):
    doc = torch.arange(max(n, m)) // 13
    return Case(None, lambda b, h, q, k: (doc[q] == doc[k]) & (q >= k), [])


@case
def documents_of_each_sample_in_the_score(b, h, n, m, dtype):
    doc = torch.stack([torch.arange(max(n, m)) // (11 + 9 * each) for each in range(b)])
    return Case(lambda s, b, h, q, k: torch.where(doc[b, q] == doc[b, k], s, -INF), None, [])


@case
def padding_on_the_left(b, h, n, m, dtype):
    first = torch.arange(b) * 5
    return Case(None, lambda b, h, q, k: (k >= first[b]) & (q >= k), [])


@case
def keys_with_gaps(b, h, n, m, dtype):
    return Case(lambda s, b, h, q, k: torch.where(k % 3 != 0, s, -INF), None, [])


@case
def queries_that_see_nothing(b, h, n, m, dtype):
    t = torch.where(torch.arange(n) % 4 == 0, -INF, 0.0)
    return Case(lambda s, b, h, q, k: s + t[q], causal, [])


@case
def heads_that_see_nothing(b, h, n, m, dtype):
    t = torch.where(torch.arange(h) == 1, -INF, 0.5)
    return Case(lambda s, b, h, q, k: s + t[h], causal, [])


@case
def heads_with_other_windows(b, h, n, m, dtype):
    return Case(None, lambda b, h, q, k: (q - k).abs() <= 3 * h, [])


@case
def squares(b, h, n, m, dtype):
    w = 6

    def mask(b, h, q, k):
        x, y = (q // w).clamp(1, 4), (q % w).clamp(1, w - 2)
        return ((x - k // w).abs() <= 1) & ((y - k % w).abs() <= 1)

    return Case(None, mask, [])


@case
def dilated(b, h, n, m, dtype):
    return Case(None, lambda b, h, q, k: ((q - k).abs() <= 12) & ((q - k) % 3 == 0), [])


@case
def learned_by_offset(b, h, n, m, dtype):
    t = drawn(n + m, dtype=dtype)
    return Case(lambda s, b, h, q, k: s + t[(q - k) + m], None, [t])


@case
def t5(b, h, n, m, dtype):
    t = drawn(32, h, dtype=dtype)

    def mod(s, b, h, q, k):
        d = (q - k).clamp(min=0)
        far = 16 + (torch.log(d.float().clamp(min=1) / 16) / math.log(128 / 16) * 16).to(torch.int64)
        return s + t[torch.where(d < 16, d, far.clamp(max=31)), h]

    return Case(mod, causal, [t])


@case
def factor_of_head(b, h, n, m, dtype):
    t = drawn(h, dtype=dtype)
    return Case(lambda s, b, h, q, k: s * t[h], None, [t])


@case
def quotient_of_head(b, h, n, m, dtype):
    t = drawn(h, dtype=dtype)
    return Case(lambda s, b, h, q, k: (s + 0.01 * (q - k)) / (1 + t[h] ** 2), causal, [t])


@case
def bias_of_head(b, h, n, m, dtype):
    t = drawn(h, dtype=dtype)
    return Case(lambda s, b, h, q, k: s + t[h], causal, [t])


@case
def slope_of_sample_and_head(b, h, n, m, dtype):
    t = drawn(b, h, dtype=dtype)
    return Case(lambda s, b, h, q, k: s - t[b, h].exp() * (q - k).abs(), None, [t])


@case
def bias_of_key(b, h, n, m, dtype):
    t = drawn(b, h, m, dtype=dtype)
    return Case(lambda s, b, h, q, k: s + t[b, h, k], causal, [t])


@case
def forget_gate(b, h, n, m, dtype):
    t = drawn(b, h, max(n, m), dtype=dtype)
    c = torch.nn.functional.logsigmoid(t).cumsum(-1)
    return Case(lambda s, b, h, q, k: s + (c[b, h, q] - c[b, h, k]), causal, [t])


@case
def factor_of_query(b, h, n, m, dtype):
    t = drawn(n, dtype=dtype)
    return Case(lambda s, b, h, q, k: s * (t[q] ** 2 + 0.5), causal, [t])


@case
def factor_of_query_and_key(b, h, n, m, dtype):
    t, u = drawn(n, dtype=dtype), drawn(m, dtype=dtype)
    return Case(lambda s, b, h, q, k: s * (t[q] * u[k]), causal, [t, u])


@case
def factor_by_offset(b, h, n, m, dtype):
    t = drawn(h, dtype=dtype)
    return Case(lambda s, b, h, q, k: s * torch.exp(-t[h].abs() * (q - k).abs()), None, [t])


@case
def holes_as_numbers(b, h, n, m, dtype):
    t = torch.where(torch.arange(n + m) >= m, 0.0, -INF)
    return Case(lambda s, b, h, q, k: s + t[q - k + m], None, [])


@case
def where_with_the_score_in_both(b, h, n, m, dtype):
    t = drawn(h, dtype=dtype)
    return Case(lambda s, b, h, q, k: torch.where(q - k > 5, s + t[h], s - 0.1 * (q - k)), None, [t])


@case
def relu(b, h, n, m, dtype):
    return Case(lambda s, b, h, q, k: 2 * torch.relu(s) + 0.1 * k, causal, [])


@case
def partial_of_a_module(b, h, n, m, dtype):
    class Mod(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(drawn(h, dtype=dtype).detach())

        def forward(self, s, b, h, q, k, c=1.0):
            return s + c * self.w[h] * (k - q)

    module = Mod()
    return Case(functools.partial(module, c=0.1), causal, [module.w])


@case
def dense_bias(b, h, n, m, dtype):
    t = drawn(b, h, n, m, dtype=dtype)
    return Case(lambda s, b, h, q, k: s + t[b, h, q, k], None, [t], "chunks")


@case
def dense_bias_of_swapped_axes(b, h, n, m, dtype):
    t = drawn(m, h, n, 2, dtype=dtype)
    return Case(lambda s, b, h, q, k: s + t[k, h, q, 1], causal, [t], "chunks")


@case
def dense_bias_indexed_in_steps(b, h, n, m, dtype):
    t = drawn(b, 1, n, m + 2, dtype=dtype)
    return Case(lambda s, b, h, q, k: s + t[b][0][q][k], causal, [t], "chunks")


@case
def dense_holes(b, h, n, m, dtype):
    t = torch.where(torch.arange(n * m).reshape(n, m) % 5 == 0, -INF, 1.0)
    return Case(lambda s, b, h, q, k: s + t[q, k] * 1.0, causal, [], "chunks")


@case
def dense_bools(b, h, n, m, dtype):
    t = torch.arange(n * m).reshape(n, m) % 5 != 0
    return Case(lambda s, b, h, q, k: torch.where(t[q, k], s, -INF), None, [])


@case
def learned_by_a_function_of_both(b, h, n, m, dtype):
    t = drawn(n + m, h, dtype=dtype)
    return Case(lambda s, b, h, q, k: s + t[q + k, h], causal, [t])


@case
def function_of_both(b, h, n, m, dtype):
    t = drawn(n, dtype=dtype)
    return Case(lambda s, b, h, q, k: s + torch.sin(t[q] * k), causal, [t], "chunks")


@case
def product_of_both(b, h, n, m, dtype):
    t, u = drawn(n, dtype=dtype), drawn(h, m, dtype=dtype)
    return Case(lambda s, b, h, q, k: torch.tanh(s * (1 + t[q] ** 2) - u[h, k] * t[q]), causal, [t, u])


@case
def products_of_vectors(b, h, n, m, dtype):
    t, u, w = drawn(b, h, n, 3, dtype=dtype), drawn(b, 1, m, 3, dtype=dtype), drawn(h, dtype=dtype)

    def mod(s, b, i, q, k):
        first = torch.dot(t[b, i, q], u[b, i // h, k])
        return s * w[i] + w[i] * (first + u[b, 0, k, 1] * (t[0, i, q, :] * u[b, 0, k]).sum(-1))

    return Case(mod, causal, [t, u, w])


@case
def squared(b, h, n, m, dtype):
    return Case(lambda s, b, h, q, k: s * s, causal, [], "fallback")


@case
def silu(b, h, n, m, dtype):
    t = drawn(h, dtype=dtype)
    return Case(lambda s, b, h, q, k: torch.nn.functional.silu(s + t[h]), None, [t], "fallback")


@case
def large_negative_number_is_no_mask(b, h, n, m, dtype):
    return Case(lambda s, b, h, q, k: torch.where((q >= k) & (q > 3), s, -1e9), None, [], "fallback")


@case
def score_in_a_condition(b, h, n, m, dtype):
    return Case(lambda s, b, h, q, k: torch.where(s <= b + 1, s, -INF), causal, [], "fallback")


@case
def hidden_score_times_what_may_be_negative(b, h, n, m, dtype):
    t = drawn(h, dtype=dtype).detach().exp()
    return Case(lambda s, b, h, q, k: torch.where(q >= k, s, -INF) * t[h], None, [], "fallback")


@case
def tanh_of_tanh(b, h, n, m, dtype):
    return Case(lambda s, b, h, q, k: torch.tanh(torch.tanh(s)), causal, [], "fallback")


@case
def product_of_both_times_a_function_of_the_offset(b, h, n, m, dtype):
    t, u = drawn(n, dtype=dtype), drawn(m, dtype=dtype)
    return Case(lambda s, b, h, q, k: s + t[q] * u[k] * (q - k), causal, [t, u], "chunks")


@case
def factor_of_the_pair(b, h, n, m, dtype):
    t = drawn(n, m, dtype=dtype)
    return Case(lambda s, b, h, q, k: s * t[q, k], causal, [t], "fallback")


@case
def score_without_its_gradient(b, h, n, m, dtype):
    return Case(lambda s, b, h, q, k: s.detach() + 0.5 * s, causal, [], "fallback")


def dense(q, k, v, score_mod, mask_mod, scale=None):
    """Output and lse of attention in float64, with all scores in memory."""
    group = q.shape[1] // k.shape[1]
    q, k, v = q.double(), k.double().repeat_interleave(group, 1), v.double().repeat_interleave(group, 1)
    scores = (q @ k.transpose(-1, -2)) * (q.shape[-1] ** -0.5 if scale is None else scale)
    indices = [torch.arange(size) for size in scores.shape]
    with _Indexing():
        if score_mod is not None:
            scores = _over_all(score_mod, scores)(scores, *indices).double()
        if mask_mod is not None:
            scores = torch.where(_over_all(mask_mod)(*indices), scores, -INF)
    blind = (scores == -INF).all(-1, keepdim=True)
    scores = scores.masked_fill(blind, 0.0)
    return scores.softmax(-1).masked_fill(blind, 0.0) @ v, scores.logsumexp(-1).masked_fill(blind[..., 0], -INF)


def _over_all(mod, *scores):
    for axis in range(4):
        mod = torch.vmap(mod, in_dims=(*[0] * len(scores), *(0 if own == 3 - axis else None for own in range(4))))
    return mod


def inputs(b, h, key_heads, n, m, dtype, width=8):
    """Queries, keys, values, and gradients of output and lse."""
    generator = torch.Generator().manual_seed(1)
    shapes = (b, h, n, width), (b, key_heads, m, width), (b, key_heads, m, width + 2), (b, h, n, width + 2), (b, h, n)
    drawn = [torch.randn(*shape, dtype=torch.float64, generator=generator).to(dtype) for shape in shapes]
    return [x.requires_grad_() for x in drawn[:3]], drawn[3:]


def peak_memory(name, heads=8, n=4096):
    """MiB by which memory grows in a call and its backward pass, or None on systems that do not say."""
    t = torch.randn(heads, 2 * n, requires_grad=True)
    pairs = torch.randn(n, n, requires_grad=True) if name == "pairs" else None
    doc = torch.arange(n) // 700
    mod, mask = {
        "alibi": (lambda s, b, h, q, k: s + (k - q) * torch.exp2(-(h + 1.0)), causal),
        "learned": (lambda s, b, h, q, k: s + t[h, q - k + n], causal),
        "soft cap": (lambda s, b, h, q, k: torch.where(q >= k, 30 * torch.tanh(s / 30), -INF), None),
        "documents": (None, lambda b, h, q, k: (doc[q] == doc[k]) & (q >= k)),
        "dilated": (None, lambda b, h, q, k: (q >= k) & ((q - k) % 4 == 0)),
        "pairs": (lambda s, b, h, q, k: s + pairs[q, k], causal),
        "silu": (lambda s, b, h, q, k: torch.nn.functional.silu(s), causal),
    }[name]
    given = [torch.randn(1, heads, n, 64, requires_grad=True) for _ in range(3)]

    def run(length):
        block = mask and create_block_mask(mask, None, None, length, length)
        flex_attention(*(x[:, :, :length] for x in given), mod, block).sum().backward()

    run(128)  # compiles
    try:
        return memory.peak_growth(lambda: run(n))[1] / 2**20
    except memory.Unknown:
        return None
