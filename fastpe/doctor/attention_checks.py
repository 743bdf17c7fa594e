"""Comparisons of attention with its reference: for each slot, for options, and for few queries."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from fastpe.doctor.case import Array, Case, Draw
from fastpe.functional.attention import attention, attention_vjp
from fastpe.functional.bands import Band
from fastpe.functional.slots import CAUSAL, SLOTS, partners, samples
from fastpe.reference._attention import attention_vjp_in

_HEADS = 2
_FEW = 3  # queries; a call with so few takes the short path
_APART = 1e-5  # larger than the rounding errors of counts in float32


def few_queries(draw: Draw, n: int, d: int) -> Iterator[Case]:
    """Compare the path for few queries, with all its arguments at once."""
    given = _arguments(draw, ("bias", "key_offset", "sinks"), _FEW, n, d)
    mask = np.abs(draw(_FEW, n)) < 1
    for causal in (False, True):
        yield _forward(draw, given, n * d, causal=causal, softcap=2.0, mask=mask, lengths=np.array([n - 2]))


def forward(draw: Draw, n: int, d: int) -> Iterator[Case]:
    """Compare outputs without slots, and with a bias."""
    yield _forward(draw, _arguments(draw, (), n, n, d), n * d)
    given = _arguments(draw, ("bias",), n, n, d)
    for causal in (False, True):
        yield _forward(draw, given, n * d, causal=causal)


def backward(draw: Draw, n: int, d: int) -> Iterator[Case]:
    """Compare outputs and gradients with a bias."""
    given = _arguments(draw, ("bias",), n, n, d)
    for causal in (False, True):
        yield _both(draw, given, n * d, causal=causal)


def with_options(draw: Draw, n: int, d: int) -> Iterator[Case]:
    """Compare attention with a mask with holes, spans, a soft cap, sinks and dropout at once."""
    spans = np.stack([np.maximum(np.arange(n) - 20, 0), np.full(n, n)], axis=-1)[None]
    mask = (np.abs(draw(n, n)) < 1.0) | np.eye(n, dtype=bool)
    options: dict[str, Any] = {"mask": mask, "spans": spans, "softcap": 2.0, "dropout": 0.25, "dropout_seed": 3}
    yield _both(draw, _arguments(draw, ("bias", "sinks"), n, n, d), n * d, **options)


def with_slot(name: str, draw: Draw, n: int, d: int) -> Iterator[Case]:
    """Compare attention with one slot and the arguments that it requires, causal if necessary.

    The slot is tried with one array for each head, and with one array for all heads.
    """
    names = [name, *(each for each in partners(name) if each in SLOTS)]
    options: dict[str, Any] = {"causal": not CAUSAL.keys().isdisjoint(names)}
    if "bands" in partners(name):
        options["bands"] = _bands(n)
    shared = (False, True) if any("H1" in SLOTS[each].axes for each in names) else (False,)
    for one_for_all in shared:
        given = _arguments(draw, names, n, n, d, shared=one_for_all)
        while name == "counts" and distance_to_whole_counts(given) < _APART:
            given = _arguments(draw, names, n, n, d, shared=one_for_all)
        yield _both(draw, given, n * d, **options)


CHECKS: dict[str, Callable[[Draw, int, int], Iterator[Case]]] = {
    "attention": forward,
    "attention_vjp": backward,
    "attention of few queries": few_queries,
    "attention with mask, spans, softcap, sinks and dropout": with_options,
    **{f"attention with {name}": partial(with_slot, name) for name in SLOTS},
}
"""The checks by name. There is one for each slot in the table of slots."""


def _arguments(draw: Draw, names: Sequence[str], n: int, m: int, d: int, shared: bool = False) -> dict[str, Any]:
    sizes: dict[str, Any] = {"b": 1, "h": _HEADS, "n": n, "m": m, "d": d, "dv": d + 3, "most": n // 4, "taps": 3}
    rows = {"q": draw(1, _HEADS, n, d), "k": draw(1, 1, m, d), "v": draw(1, 1, m, d + 3)}
    return rows | samples(names, draw.rng, **sizes, dtype=draw.dtype, shared=shared)


def _forward(draw: Draw, given: dict[str, Any], terms: int, **options: Any) -> Case:
    def formula(computed: Array) -> Any:
        return attention_vjp_in(computed.dtype, **given, **options)[0].astype(computed.dtype)

    return Case(attention(**given, **options), formula, (given["q"],), terms)


def _both(draw: Draw, given: dict[str, Any], terms: int, **options: Any) -> Case:
    out, pullback = attention_vjp(**given, **options)
    dout = draw(*out.shape)
    gradients = pullback(dout)

    def formula(computed: Array) -> tuple[Array, ...]:
        exact, pullback = attention_vjp_in(computed.dtype, **given, **options)
        found = pullback(dout)
        return tuple(array.astype(computed.dtype) for array in (exact, *(found[name] for name in gradients)))

    return Case((out, *gradients.values()), formula, (given["q"],), terms)


def _bands(n: int) -> tuple[Band, Band]:
    """Return two bands with different positions: the query's key and the two before it, and all keys before these."""
    numbers = np.arange(n)
    edges = np.stack([np.zeros(n, int), np.maximum(numbers - 2, 0), numbers + 1], axis=-1)
    near, far = edges[:, 1:], edges[:, :2]
    return Band(numbers.astype(float), numbers.astype(float), near), Band(numbers / 4 + 1, numbers / 4, far)


def distance_to_whole_counts(arguments: Mapping[str, Any]) -> float:
    """Return the least distance of a count of keys from a whole number.

    At whole numbers the slope jumps, so rounding would decide which slope is used. `arguments` are those of a causal
    call of attention; q, k and the scale are used.
    """
    q, k = (arguments[name].astype(np.float64) for name in "qk")
    k = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
    scale = np.broadcast_to(arguments.get("scale", q.shape[-1] ** -0.5), q.shape[1])[:, None, None]
    seen = np.arange(k.shape[-2]) <= np.arange(q.shape[-2])[:, None] + k.shape[-2] - q.shape[-2]
    gates = np.where(seen, 1 / (1 + np.exp(-scale * (q @ k.swapaxes(-1, -2)))), 0)
    counts = np.cumsum(gates[..., ::-1], axis=-1)[..., ::-1][..., seen]
    return float(np.abs(counts - np.round(counts)).min(initial=1.0))
