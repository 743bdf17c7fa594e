"""`torch.vmap` of attention: the mapped axis becomes samples of one call.

The mapped axis and the axis B of queries, keys, values and slots are folded into one axis. If something cannot be
folded, the functions return None, and samples are computed one by one (`operators`). These cannot be folded:

- sinks, networks or a scale that are mapped, or whose gradients are wanted for each sample;
- bands;
- dropout, because its seed applies to a whole call;
- shared queries, keys or values that are too large to be copied for each sample.
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch

from fastpe.functional.slots import SLOTS

Tensors = Sequence[torch.Tensor]
Dims = Sequence[int | None]
_ROWS = ("q", "k", "v")
_OF_SAMPLES = ("query_lengths", "key_lengths", "query_start")  # attention does not broadcast their axis B
_AXES = {name: len(slot.axes) for name, slot in SLOTS.items() if slot.batched}
_AXES |= {"mask": 3, "spans": 2} | dict.fromkeys(_OF_SAMPLES, 0)  # number of axes after B
_SHARED = ("scale", *(name for name, slot in SLOTS.items() if not slot.batched))  # cannot be folded if mapped
_MOST_COPIED = 2**26  # the largest number of elements of shared queries, keys and values that are copied


class _Sizes(NamedTuple):
    mapped: int
    samples: int  # B of each mapped element


def outputs(run: Callable[[Tensors], Tensors], names: str, tensors: Tensors, dims: Dims, count: int) -> Any:
    """Return the outputs of one call of `run` for all mapped elements, stacked along a first axis. Return None if one
    call is not possible.

    `names` has the names of the tensors in one string, beginning with q, k and v. `dims` has the mapped axis of each
    tensor, or None for tensors that all mapped elements share.
    """
    _, folded = _folded(names, tensors, dims, [False] * len(tensors), count)
    if folded is None:
        return None
    try:
        out, lse = run(folded)
    except (TypeError, ValueError):  # computing samples one by one raises the error with the right sizes
        return None
    shape = _shape(tensors[0], dims[0])
    v_width = _shape(tensors[2], dims[2])[-1]
    return out.reshape(count, *shape[:-1], v_width), lse.reshape(count, *shape[:-1])


def gradients(
    run: Callable[..., Tensors], names: str, lists: Sequence[Sequence[Any]], dims: Sequence[Dims],
    wanted: Sequence[bool], count: int,
) -> list[torch.Tensor] | None:  # fmt: skip
    """As `outputs`, but for the gradients of the tensors in `wanted`.

    `lists` has three lists: the gradients of output and lse, each of which may be None; output and lse; the tensors.
    """
    sizes, folded = _folded(names, lists[2], dims[2], wanted, count)
    if folded is None:
        return None
    douts, found = (
        [_rows(x, dim, tail, count) for x, dim, tail in zip(own, of, (2, 1), strict=True)]
        for own, of in zip(lists[:2], dims[:2], strict=True)
    )
    pulled = iter(run(douts, found, folded))
    return [
        _unfolded(next(pulled), name, _shape(x, dim), sizes)
        for name, x, dim, wants in zip(names.split(), lists[2], dims[2], wanted, strict=True) if wants
    ]  # fmt: skip


def _shape(x: torch.Tensor, dim: int | None) -> tuple[int, ...]:
    """Return the shape of one mapped element."""
    shape = list(x.shape)
    if dim is not None:
        del shape[dim]
    return tuple(shape)


def _first(x: torch.Tensor, dim: int | None, count: int) -> torch.Tensor:
    """Return the tensor with the mapped axis first."""
    return x.expand(count, *x.shape) if dim is None else x.movedim(dim, 0)


def _rows(x: torch.Tensor | None, dim: int | None, tail: int, count: int) -> torch.Tensor | None:
    """Return rows (`tail` = 2) or one number for each row (`tail` = 1) of all samples: (samples, heads, ...), with the
    last `tail` axes unchanged."""
    if x is None:
        return None
    own = _first(x, dim, count)
    lead, rest = own.shape[1:-tail], own.shape[-tail:]
    samples = lead[0] if len(lead) == 2 else 1
    return own.reshape(count * samples, lead[-1] if lead else 1, *rest)


def _folded(
    names: str, tensors: Tensors, dims: Dims, wanted: Sequence[bool], count: int
) -> tuple[_Sizes, list[Any] | None]:
    shapes = [_shape(x, dim) for x, dim in zip(tensors[:3], dims[:3], strict=True)]
    ranks, leads = {len(shape) for shape in shapes}, {shape[:-3] for shape in shapes}
    copied = sum(x.numel() for x, dim in zip(tensors[:3], dims[:3], strict=True) if dim is None)
    if len(leads) > 1 or not ranks < {2, 3, 4} or count * copied > _MOST_COPIED:
        return _Sizes(count, 1), None
    sizes = _Sizes(count, next(iter(leads))[0] if ranks == {4} else 1)
    folded: list[Any] = []
    for name, x, dim, wants in zip(names.split(), tensors, dims, wanted, strict=True):
        own = _rows(x, dim, 2, count) if name in _ROWS else _slot(name, x, dim, wants, sizes)
        if own is None:
            return sizes, None
        folded.append(own)
    return sizes, folded


def _slot(name: str, x: torch.Tensor, dim: int | None, wants: bool, sizes: _Sizes) -> torch.Tensor | None:
    """Return a slot with an axis for all samples, or unchanged if all samples share it. Return None if the slot cannot
    be folded."""
    alike = dim is None and not wants
    if name not in _AXES:
        return x if alike and name in _SHARED else None
    axes, shape = _AXES[name], _shape(x, dim)
    missing = axes + 1 - len(shape)
    own = 1 if missing else shape[0]
    if missing < 0 or own not in (1, sizes.samples):
        return None
    if alike and own == 1 and name not in _OF_SAMPLES:
        return x
    led = _first(x, dim, sizes.mapped).reshape(sizes.mapped, *[1] * missing, *shape)
    return led.expand(sizes.mapped, sizes.samples, *led.shape[2:]).flatten(0, 1)


def _unfolded(gradient: torch.Tensor, name: str, shape: tuple[int, ...], sizes: _Sizes) -> torch.Tensor:
    """Return the gradients of a slot, one for each mapped element, in which the slot has this shape. Each is summed
    over the samples of the element that share the slot."""
    if name not in _ROWS:
        gradient = gradient.unflatten(0, sizes)
        if len(shape) <= _AXES[name] or shape[0] == 1:
            gradient = gradient.sum(1)
    return gradient.reshape(sizes.mapped, *shape)
