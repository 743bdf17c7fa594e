"""One query and a cache with each slot of attention: fastpe's arguments, and what a PyTorch user writes instead.

That is `scaled_dot_product_attention` if a mask or different queries or keys express the slot, otherwise plain
operations. PyTorch's side computes everything that follows from positions and parameters alone beforehand: rows by
offset, cosines and sines. fastpe computes it in every call. PyTorch is optional (`pip install -e '.[peers]'` from a
clone of fastpe).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fastpe import attention_scores
from fastpe.benchmarks.attention_cases import Problem

REACH, BUCKETS, VECTORS, RATE, CAP = 16, 32, 64, 0.1, 5.0
"""Offsets on either side, number of `values`, number of count vectors, dropout rate, soft cap."""

Call = Callable[[Any, Any, Any], Any]
"""A function of queries, keys and values that returns the output."""


class Case(NamedTuple):
    """The arguments of `fastpe.torch.attention` besides q, k and v; the same in PyTorch; and the function to check
    instead if the latter is random."""

    given: Mapping[str, Any]
    peer: Call
    checked: Call | None = None


@dataclass
class Cache:
    """Sizes of a problem, and its random inputs. The query has the position of the last key."""

    keys: int
    heads: int = 8
    width: int = 64
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(3))

    def __post_init__(self) -> None:
        import torch

        self.torch = torch
        self.attend = torch.nn.functional.scaled_dot_product_attention
        self.scale = self.width**-0.5
        self.offsets = torch.arange(1.0 - self.keys, 1.0)

    def normal(self, *shape: int) -> Any:
        """A normal float32 tensor."""
        return self.torch.from_numpy(self.rng.standard_normal(shape, np.float32))

    def angles(self, *shape: int) -> Any:
        """A float64 tensor of angles within one turn."""
        return self.torch.from_numpy(self.rng.uniform(-math.pi, math.pi, shape))

    def scores(self, q: Any, k: Any) -> Any:
        """Scaled products by plain operations."""
        return (q @ k.mT).mul_(self.scale)

    def with_rows(self, made: Callable[[], Any]) -> Call:
        """Attention with a mask that is computed in every call: one row of keys for each head."""
        return lambda q, k, v: self.attend(q, k, v, attn_mask=made()[None, :, None])


def call(way: str, slot: str, cache: Cache) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """The function to time, and the function to check.

    Parameters
    ----------
    way : str
        ``fastpe``, ``peer``, or ``sdpa``: PyTorch's function with a dense mask of floats, for any slot.
    slot : str
        A key of `CASES`.
    cache : Cache
    """
    q, k, v = _qkv(cache.keys, cache.heads, cache.width)
    if way == "sdpa":
        mask = cache.normal(1, cache.heads, 1, cache.keys)
        return (lambda: cache.attend(q, k, v, attn_mask=mask),) * 2
    case = CASES[slot](cache)
    if way == "peer":
        return lambda: case.peer(q, k, v), lambda: (case.checked or case.peer)(q, k, v)
    from fastpe.torch import attention

    return (lambda: attention(q, k, v, **case.given),) * 2


@lru_cache(maxsize=4)
def _qkv(keys: int, heads: int, width: int) -> tuple[Any, Any, Any]:
    """The query, keys and values, equal for all slots."""
    import torch

    q, k, v, _ = map(torch.from_numpy, Problem(keys, heads=heads, width=width).inputs())
    return q[:, :, -1:].contiguous(), k, v


# ---------------------------------------------------------------------------------------------------------------------
# Visible keys


def _mask(x: Cache) -> Case:
    mask = x.normal(1, x.heads, 1, x.keys)
    return Case({"mask": mask}, lambda q, k, v: x.attend(q, k, v, attn_mask=mask))


def _mask_of_bool(x: Cache) -> Case:
    mask = x.normal(1, 1, 1, x.keys) < 1
    return Case({"mask": mask}, lambda q, k, v: x.attend(q, k, v, attn_mask=mask))


def _spans(x: Cache) -> Case:
    spans = x.torch.tensor([[[x.keys // 2, x.keys]]])

    def peer(q: Any, k: Any, v: Any) -> Any:
        first, last = spans[0, 0].tolist()
        return x.attend(q, k[:, :, first:last], v[:, :, first:last])

    return Case({"spans": spans}, peer)


def _first(x: Cache, keys: Any, q: Any, k: Any, v: Any) -> Any:
    """Attention to the first keys."""
    count = int(keys)
    return x.attend(q, k[:, :, :count], v[:, :, :count])


def _lengths(x: Cache) -> Case:
    lengths = x.torch.tensor([x.keys - x.keys // 4])
    return Case({"lengths": lengths}, lambda q, k, v: _first(x, lengths, q, k, v))


def _query_start(x: Cache) -> Case:
    start = x.torch.tensor([x.keys - x.keys // 4])
    return Case({"query_start": start, "causal": True}, lambda q, k, v: _first(x, int(start) + 1, q, k, v))


def _window(x: Cache) -> Case:
    window = x.keys // 4
    return Case({"window": window}, lambda q, k, v: x.attend(q, k[:, :, -window:], v[:, :, -window:]))


def _dropout(x: Cache) -> Case:
    given: dict[str, Any] = {"dropout": RATE, "dropout_seed": 5}
    drop = x.torch.nn.functional.dropout

    def checked(q: Any, k: Any, v: Any) -> Any:
        return x.torch.from_numpy(attention_scores(q.numpy(), k.numpy(), stage="dropped", **given)) @ v

    return Case(given, lambda q, k, v: drop(x.scores(q, k).softmax(-1), RATE) @ v, checked)


# ---------------------------------------------------------------------------------------------------------------------
# Factors and terms of a head or a key


def _softcap(x: Cache) -> Case:
    return Case({"softcap": CAP}, lambda q, k, v: (q @ k.mT).mul_(x.scale / CAP).tanh_().mul_(CAP).softmax(-1) @ v)


def _sinks(x: Cache) -> Case:
    sinks = x.normal(x.heads)

    def peer(q: Any, k: Any, v: Any) -> Any:
        return x.torch.cat([x.scores(q, k), sinks[None, :, None, None]], -1).softmax(-1)[..., :-1] @ v

    return Case({"sinks": sinks}, peer)


def _scale(x: Cache) -> Case:
    return Case({"scale": 0.1}, lambda q, k, v: x.attend(q, k, v, scale=0.1))


def _scale_of_heads(x: Cache) -> Case:
    scale = x.scale * x.normal(x.heads).exp()
    return Case({"scale": scale}, lambda q, k, v: x.attend(q * scale[:, None, None], k, v, scale=1.0))


def _row_scale(x: Cache) -> Case:
    factors = x.normal(x.heads, 1).exp()
    return Case({"row_scale": factors}, lambda q, k, v: x.attend(q * factors[:, :, None], k, v))


def _bias(x: Cache) -> Case:
    bias = x.normal(x.heads, 2 * x.keys - 1)
    return Case({"bias": bias}, x.with_rows(lambda: bias[:, : x.keys]))


def _values(x: Cache) -> Case:
    values, index = x.normal(x.heads, BUCKETS), x.torch.from_numpy(x.rng.integers(0, BUCKETS, (1, x.keys)))
    return Case({"values": values, "index": index}, x.with_rows(lambda: values[:, index[0]]))


def _scores(x: Cache) -> Case:
    scores = x.normal(x.heads, 1, x.keys)
    return Case({"scores": scores}, x.with_rows(lambda: scores[:, 0]))


def _key_offset(x: Cache) -> Case:
    offsets = x.normal(x.heads, x.keys)
    return Case({"key_offset": offsets.double()}, x.with_rows(lambda: offsets))


def _key_slope(x: Cache) -> Case:
    slopes = 0.01 * x.normal(x.heads, x.keys)
    return Case({"key_slope": slopes}, x.with_rows(lambda: x.offsets * slopes))


def _query_slope(x: Cache) -> Case:
    slopes = 0.01 * x.normal(x.heads, 1)
    return Case({"query_slope": slopes}, x.with_rows(lambda: x.offsets * slopes))


def _gain(x: Cache) -> Case:
    gain = x.normal(x.heads, 2 * x.keys - 1)
    return Case({"gain": gain}, lambda q, k, v: x.scores(q, k).mul_(gain[:, None, : x.keys]).softmax(-1) @ v)


def _rectify(x: Cache) -> Case:
    return Case({"rectify": True}, lambda q, k, v: x.scores(q, k).relu_().softmax(-1) @ v)


def _counts(x: Cache) -> Case:
    counts = 0.3 * x.normal(1, VECTORS, x.width)

    def peer(q: Any, k: Any, v: Any) -> Any:
        scores = x.scores(q, k)
        places = scores.sigmoid().flip(-1).cumsum(-1).flip(-1).clamp_(max=VECTORS - 1)
        low, terms = places.floor(), q @ counts.mT
        first, second = (terms.gather(-1, each.long()) for each in (low, places.ceil()))
        return scores.add_(x.torch.lerp(first, second, places.sub_(low))).softmax(-1) @ v

    return Case({"counts": counts, "causal": True}, peer)


# ---------------------------------------------------------------------------------------------------------------------
# Vectors by offset: all keys farther than some read one vector


def _key_bias(x: Cache) -> Case:
    bias = x.normal(x.heads, x.width)
    return Case({"key_bias": bias}, lambda q, k, v: x.attend(q + bias[:, None], k, v))


def _rel_key(x: Cache) -> Case:
    rows, places = x.normal(1, 2 * REACH + 1, x.width), x.offsets.long().clamp(min=-REACH) + REACH
    return Case({"rel_key": rows}, lambda q, k, v: x.attend(q, k, v, attn_mask=(q * x.scale @ rows.mT)[..., places]))


def _last_and_others(x: Cache) -> tuple[Any, Any, Any]:
    """The vectors, that of the farthest keys, and the differences of the others before the query from it."""
    rows = x.normal(1, 2 * REACH + 1, x.width)
    return rows, rows[:, :1], rows[:, 1 : REACH + 1] - rows[:, :1]


def _nearest(x: Cache, far: Callable[[Any], Any], near: Callable[[Any], Any]) -> Call:
    """Attention with the queries `far(q)`; scores with the nearest keys have the product with `near(q)` added."""
    pad = x.torch.nn.functional.pad

    def peer(q: Any, k: Any, v: Any) -> Any:
        more = (k[:, :, -REACH:] * near(q * x.scale)).sum(-1)
        return x.attend(far(q), k, v, attn_mask=pad(more, (x.keys - REACH, 0))[:, :, None])

    return peer


def _rel_query(x: Cache) -> Case:
    rows, last, others = _last_and_others(x)
    return Case({"rel_query": rows}, _nearest(x, lambda q: q + last, lambda q: x.scale * others))


def _rel_gain(x: Cache) -> Case:
    rows, last, others = _last_and_others(x)
    return Case({"rel_gain": rows}, _nearest(x, lambda q: q * last, lambda q: q * others))


def _rel_value(x: Cache) -> Case:
    rows = x.normal(1, 2 * REACH + 1, x.width)
    of_keys = rows[:, x.offsets.long().clamp(min=-REACH) + REACH]

    def peer(q: Any, k: Any, v: Any) -> Any:
        weights = x.scores(q, k).softmax(-1)
        return (weights @ v).add_(weights @ of_keys)

    return Case({"rel_value": rows}, peer)


# ---------------------------------------------------------------------------------------------------------------------
# Rotations, maps and factors of channels


def _angles(x: Cache) -> Case:
    angles = x.angles(1, x.keys, x.width // 2)
    turns = x.torch.polar(x.torch.ones_like(angles), angles).to(x.torch.complex64)

    def turned(rows: Any, by: Any) -> Any:
        pairs = x.torch.view_as_complex(rows.unflatten(-1, (-1, 2)))
        return x.torch.view_as_real(pairs * by).flatten(-2)

    return Case({"angles": angles}, lambda q, k, v: x.attend(turned(q, turns[:, -1:]), turned(k, turns), v))


def _rotors(x: Cache) -> Case:
    maps = x.normal(1, x.keys, x.width // 2, 2, 2)
    first, second = maps[..., 0].contiguous(), maps[..., 1].contiguous()

    def mapped(rows: Any, of_first: Any, of_second: Any) -> Any:
        pairs = rows.unflatten(-1, (-1, 2))
        return x.torch.addcmul(pairs[..., :1] * of_first, pairs[..., 1:], of_second).flatten(-2)

    def peer(q: Any, k: Any, v: Any) -> Any:
        return x.attend(mapped(q, first[:, -1:], second[:, -1:]), mapped(k, first, second), v)

    return Case({"rotors": maps}, peer)


def _polar(x: Cache) -> Case:
    phases, angles = x.angles(x.heads, x.width), x.angles(1, x.keys, x.width)
    cosines, softplus = (angles - angles[:, -1:] + phases[:, None]).cos().float(), x.torch.nn.functional.softplus

    def peer(q: Any, k: Any, v: Any) -> Any:
        return x.scores(softplus(q), softplus(k).mul_(cosines)).softmax(-1) @ v

    return Case({"polar": phases.float(), "angles": angles}, peer)


def _growth(x: Cache) -> Case:
    growth = x.torch.from_numpy(0.1 * x.rng.standard_normal((x.keys, x.width // 2)))
    factors = (growth[-1:] - growth).exp().float().repeat_interleave(2, -1)
    return Case({"growth": growth, "causal": True}, lambda q, k, v: x.attend(q, k * factors, v))


CASES: Mapping[str, Callable[[Cache], Case]] = {
    "none": lambda x: Case({}, x.attend), "causal": lambda x: Case({"causal": True}, x.attend),
    "mask of bool": _mask_of_bool, "mask of floats": _mask, "spans": _spans,
    "lengths": _lengths, "query_start": _query_start, "window": _window, "softcap": _softcap, "sinks": _sinks,
    "scale": _scale, "scale of each head": _scale_of_heads, "row_scale": _row_scale, "bias": _bias,
    "values, index": _values, "scores": _scores, "key_offset": _key_offset, "key_slope": _key_slope,
    "query_slope": _query_slope, "gain": _gain, "rectify": _rectify, "rel_key": _rel_key, "rel_query": _rel_query,
    "key_bias": _key_bias, "rel_gain": _rel_gain, "rel_value": _rel_value, "counts": _counts, "angles": _angles,
    "rotors": _rotors, "polar, angles": _polar, "growth": _growth, "dropout": _dropout,
}  # fmt: skip
"""All cases, by slot."""
