"""One layer of a Hugging Face model as calls of `fastpe.torch.attention`, and functions that observe these calls."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch

from fastpe.torch.call import attention


class Part(NamedTuple):
    """Some heads of a layer, and the call of attention that computes them.

    Attributes
    ----------
    heads : (H',) int64 tensor, or None
        The numbers of these heads; None means all heads.
    q : (B, H', N, D) tensor
        Their queries.
    k : (B, Hk, M, D) tensor
        Their keys; if `heads` is given, one for each head.
    given : dict
        All other arguments of `fastpe.torch.attention`, except values.
    """

    heads: torch.Tensor | None
    q: torch.Tensor
    k: torch.Tensor
    given: dict[str, Any]


Observer = Callable[[torch.nn.Module, Sequence[Part]], None]
_observers: list[Observer] = []


@contextmanager
def observed(observer: Observer) -> Iterator[None]:
    """Call a function with the layer and its parts before the layer computes attention, in all models that use fastpe's
    attention."""
    _observers.append(observer)
    try:
        yield
    finally:
        _observers.remove(observer)


def attend(module: torch.nn.Module, parts: Sequence[Part], v: torch.Tensor) -> torch.Tensor:
    """Return the outputs (B, H, N, Dv) of a layer whose heads are computed in parts."""
    for observer in tuple(_observers):
        observer(module, parts)
    if parts[0].heads is None:
        return attention(parts[0].q, parts[0].k, v, **parts[0].given)
    group = sum(len(part.q[0]) for part in parts) // v.shape[1]
    outs = [attention(part.q, part.k, v[:, part.heads // group], **part.given) for part in parts]
    order = torch.cat([part.heads for part in parts])
    return torch.cat(outs, dim=1)[:, order.argsort()]


def of_heads(heads: torch.Tensor, q: torch.Tensor, k: torch.Tensor, given: dict[str, Any]) -> Part:
    """Return the part of some heads. `given` has the arguments for all heads of the layer."""
    own = dict(given)
    if own.get("sinks") is not None:
        own["sinks"] = own["sinks"][heads]
    if own.get("mask") is not None and own["mask"].ndim > 3 and own["mask"].shape[1] > 1:
        own["mask"] = own["mask"][:, heads]
    return Part(heads, q[:, heads], k[:, heads // (q.shape[1] // k.shape[1])], own)
