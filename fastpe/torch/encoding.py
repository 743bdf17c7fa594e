"""Encodings as PyTorch modules."""

import json
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import torch

from fastpe.base import validation
from fastpe.base.validation import real, whole
from fastpe.encodings import build, combined
from fastpe.encodings.slots import SLOTS
from fastpe.torch.operators import array, differentiable

_AT_THE_INPUT = ("table", "qk_table", "taps")  # may have half precision: they do not enter scores
_HALVES = (torch.float16, torch.bfloat16)


class Encoding(torch.nn.Module):
    """An encoding, or a sum of encodings, as a module whose parameters are the parameters of the encoding.

    Pass the output of the module to `fastpe.torch.attention`::

        out = attention(q, k, v, causal=True, **encoding(n))

    "table", "qk_table" and "taps" are not arguments of attention. Remove them first, and add the table to the
    embeddings: ``x = x + slots.pop("table")``.

    Parameters
    ----------
    name : str
        Key of an encoding (`fastpe.list_encodings`), or several joined by "+".
    dim, heads, train_length, causal
        As for `fastpe.build`.
    seed : int
        Seed of the initial values, which are those of `fastpe.init`.
    dtype : torch.float32 or torch.float64, optional
        Dtype of parameters and slots; by default PyTorch's default dtype. The module's `to` changes it. With parameters
        in half precision, slots are computed in float32, and the slots that `attention` takes stay float32.
    **options
        Options of the encoding. In a sum, pass them as ``**{"wavelet.scale": 2.0}``.

    Raises
    ------
    TypeError, ValueError
        As `fastpe.init` does; also for encodings whose slots depend on a layer's input, such as "fox".

    Examples
    --------
    >>> encoding = Encoding("t5", dim=8, heads=2, train_length=16)
    >>> {name: tuple(value.shape) for name, value in encoding.state_dict().items()}
    {'table': (32, 2)}
    >>> slots = encoding(5)
    >>> slots["bias"].sum().backward()
    >>> encoding.table.grad.sum()
    tensor(18.)
    """

    def __init__(
        self, name: str, *, dim: int, heads: int, train_length: int, causal: bool = False, seed: int = 0,
        dtype: torch.dtype | None = None, **options: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        kind = _kind(torch.get_default_dtype() if dtype is None else dtype)
        sizes = {"dim": dim, "heads": heads, "train_length": train_length, "causal": causal}
        parts, spec = build.requested(name, train_length, sizes | options, ("seed",))
        for part in parts:
            if part.encoding.gate is not None:
                raise ValueError(
                    f"name must be of encodings that fill slots, not {part.scheme!r}, whose gates depend on a layer's "
                    "input: use fastpe.columns, fastpe.angles or fastpe.reference for it"
                )
        self._name = name
        self._request: Mapping[str, Any] = {
            "dim": spec.dim, "heads": spec.heads, "train_length": spec.train_length, "causal": spec.causal,
            **{combined.key(parts, part, each): value for part in parts for each, value in part.options.items()},
        }  # fmt: skip
        values = build.init(name, **self._request, dtype=kind, seed=seed)
        self._keys = tuple(values)
        for key, value in values.items():
            *above, own = key.split(".")
            module: torch.nn.Module = self
            for step in above:  # in a sum, "wavelet.scale" is a parameter of a submodule
                if step not in dict(module.named_children()):
                    module.add_module(step, torch.nn.Module())
                module = module.get_submodule(step)
            module.register_parameter(own, torch.nn.Parameter(torch.from_numpy(value)))
        self.register_buffer("_like", torch.zeros(1, dtype=getattr(torch, kind)), persistent=False)

    def forward(self, length: int, positions: Any = None, *, start: float = 0.0) -> dict[str, Any]:
        """Compute the slots.

        Parameters
        ----------
        length, start
            As for `fastpe.build`.
        positions : (N,) or (B, N) tensor or array, optional
            As for `fastpe.build`; they have no gradient.

        Returns
        -------
        dict
            Slot name -> tensor, or a plain value for "pairs" and "rectify".

        Raises
        ------
        TypeError, ValueError
            As `fastpe.build` does; also for parameters that are not in CPU memory.
        """
        like = self.get_buffer("_like")
        if like.device.type != "cpu":
            raise TypeError(f"an encoding must be in CPU memory, not on the device {like.device}")
        half = like.dtype in _HALVES
        own = [attrgetter(key)(self) for key in self._keys]
        if not torch.compiler.is_compiling():
            length, start = whole("length", length, 1), real("start", start)
            if not (positions is None or isinstance(positions, torch.Tensor)):
                positions = validation.array("positions", positions)
        tensors = [like, *own] if positions is None else [like, *own, torch.as_tensor(positions)]
        if half:
            tensors = [x.float() if x.dtype in _HALVES else x for x in tensors]
        described = _described(self._name, int(length), float(start), **self._request)
        names, plain = _names(described)
        values = _slots((described, len(own)), *tensors)
        found = {
            name: value.to(like.dtype) if half and name in _AT_THE_INPUT else value
            for name, value in zip(names, values, strict=True)
        }
        return found | dict(plain)

    def extra_repr(self) -> str:
        """The text in the module's repr."""
        return ", ".join([repr(self._name), *(f"{name}={value!r}" for name, value in self._request.items())])


def _kind(dtype: torch.dtype) -> str:
    if dtype not in (torch.float32, torch.float64):
        raise TypeError(f"dtype must be torch.float32 or torch.float64, not {dtype}")
    return str(dtype).removeprefix("torch.")


# ---------------------------------------------------------------------------------------------------------------------
# The operator. It takes these tensors: one whose dtype is the wanted dtype, and whose values are not read; the
# parameters; and the positions, if given.


@torch.compiler.assume_constant_result
def _described(name: str, length: int, start: float, **request: Any) -> str:
    """Return a request as text, because operators cannot take dicts."""
    return json.dumps({"name": name, "length": length, "start": start, **request})


@torch.compiler.assume_constant_result
def _names(described: str) -> tuple[tuple[str, ...], tuple[tuple[str, Any], ...]]:
    """Return the names of the slots that are arrays, and the names and values of the other slots."""
    request = json.loads(described)
    parts, spec = build.requested(request.pop("name"), request.pop("length"), request)
    return tuple(combined.slot_shapes(parts, spec)), tuple(combined.plain(parts, spec).items())


def _read(
    described: str, count: int, tensors: Sequence[torch.Tensor]
) -> tuple[str, int, dict[str, Any], dict[str, np.ndarray[Any, Any]]]:
    """Return the name, length, keyword arguments and parameters of a request."""
    request = json.loads(described)
    name, length = request.pop("name"), request.pop("length")
    request["dtype"] = _kind(tensors[0].dtype)
    if len(tensors) > 1 + count:
        request["positions"] = array(tensors[-1])
    parts, spec = build.requested(name, length, request)
    keys = combined.parameter_shapes(parts, spec)
    return name, length, request, dict(zip(keys, map(array, tensors[1 : 1 + count]), strict=True))


@torch.library.custom_op("fastpe::slots", mutates_args=())
def _fill(tensors: Sequence[torch.Tensor], described: str, count: int) -> list[torch.Tensor]:
    name, length, request, params = _read(described, count, tensors)
    slots = build.build(name, length, **request, params=params)
    return [torch.from_numpy(value) for slot, value in slots.items() if SLOTS[slot].dtype]


@torch.library.custom_op("fastpe::slots_backward", mutates_args=())
def _pull(
    dslots: Sequence[torch.Tensor | None], outputs: Sequence[torch.Tensor], wanted: Sequence[bool],
    tensors: Sequence[torch.Tensor], described: str, count: int,
) -> list[torch.Tensor]:  # fmt: skip
    name, length, request, params = _read(described, count, tensors)
    parts, spec = build.requested(name, length, request)
    outlines = combined.outlines(parts, spec)
    given = {
        slot: np.zeros(like.shape, like.dtype) if dslot is None else array(dslot)
        for (slot, like), dslot in zip(outlines.items(), dslots, strict=True)
        if like.dtype.kind == "f"
    }
    found = [*build.pull(name, length, given, **request, params=params).values()]
    return [torch.from_numpy(found[place - 1]) for place, wants in enumerate(wanted) if wants]


@_fill.register_fake
def _slot_outlines(tensors: Sequence[torch.Tensor], described: str, count: int) -> list[torch.Tensor]:
    request = json.loads(described)
    request["dtype"] = _kind(tensors[0].dtype)
    if len(tensors) > 1 + count:
        request["positions"] = np.zeros(tuple(map(int, tensors[-1].shape)))
    parts, spec = build.requested(request.pop("name"), request.pop("length"), request)
    outlines = combined.outlines(parts, spec).values()
    return [tensors[0].new_empty(each.shape, dtype=getattr(torch, str(each.dtype))) for each in outlines]


@_pull.register_fake
def _parameter_outlines(
    dslots: Any, outputs: Any, wanted: Sequence[bool], tensors: Sequence[torch.Tensor], *rest: Any
) -> list[torch.Tensor]:
    return [tensor.new_empty(tensor.shape) for tensor, wants in zip(tensors, wanted, strict=True) if wants]


_slots = differentiable(_fill, _pull, "slots", keeps=False)
