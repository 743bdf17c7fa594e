"""Attention and two-sided attention as PyTorch operators.

Operator schemas have no dictionaries, so tensors are passed as a list, and their names as one string.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from fastpe.functional import by_name
from fastpe.functional.bands import joined
from fastpe.kernels.threads.team import at_most
from fastpe.torch import mapped
from fastpe.torch.operators import HALVES, array, differentiable, tensor


def _arguments(
    tensors: Sequence[torch.Tensor], names: str, causal: bool, window: int | None, softcap: float | None,
    dropout: float, tolerance: float | None, pairs: str, rectify: bool,
) -> dict[str, Any]:  # fmt: skip
    """Return the arguments of attention, by name."""
    given: dict[str, Any] = {name: array(tensor, name) for name, tensor in zip(names.split(), tensors, strict=True)}
    lengths = given.pop("key_lengths", None)
    if "query_lengths" in given:
        lengths = given.pop("query_lengths"), lengths
    if "dropout_seed" in given:
        given["dropout_seed"] = given["dropout_seed"].reshape(-1).tolist()
        if len(given["dropout_seed"]) != 1:
            raise ValueError(f"dropout_seed must be one integer, not {len(given['dropout_seed'])}")
        given["dropout_seed"] = given["dropout_seed"][0]
    given = joined(given) | {
        "causal": causal,
        "window": window,
        "lengths": lengths,
        "softcap": softcap,
        "dropout": dropout,
    }
    return given | {"tolerance": tolerance, "pairs": pairs, "rectify": rectify}


def _attended(
    tensors: Sequence[torch.Tensor], names: str, causal: bool, window: int | None, softcap: float | None,
    dropout: float, tolerance: float | None, pairs: str, rectify: bool, rounds: bool,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Return outputs and logarithms of denominators.

    The tensors begin with q, k and v. `rounds`: whether these hold bfloat16 values, so that products may use bfloat16
    operands.
    """
    given = _arguments(tensors, names, causal, window, softcap, dropout, tolerance, pairs, rectify)
    dtype = tensors[0].dtype
    with at_most(torch.get_num_threads()):
        out, lse = by_name.outputs(given, rounds=rounds and dtype not in HALVES)
    return tensor(out, dtype), torch.from_numpy(lse)


_attend = torch.library.custom_op("fastpe::attention", _attended, mutates_args=())


@torch.library.custom_op("fastpe::attention_backward", mutates_args=())
def _attend_backward(
    douts: Sequence[torch.Tensor | None], outputs: Sequence[torch.Tensor], wanted: Sequence[bool],
    tensors: Sequence[torch.Tensor], names: str, causal: bool, window: int | None, softcap: float | None,
    dropout: float, tolerance: float | None, pairs: str, rectify: bool, rounds: bool,
) -> list[torch.Tensor]:  # fmt: skip
    given = _arguments(tensors, names, causal, window, softcap, dropout, tolerance, pairs, rectify)
    out, lse = map(array, outputs)
    dout, dlse = (None if dout is None else array(dout) for dout in douts)
    back = np.zeros_like(out) if dout is None else dout, dlse
    wrt = tuple(name for name, wants in zip(names.split(), wanted, strict=True) if wants)
    with at_most(torch.get_num_threads()):
        found = by_name.gradients(out, lse, back, given, wrt=wrt, rounds=rounds)
    return [torch.from_numpy(found[name]) for name in wrt]


@_attend.register_fake
def _outlines(tensors: Sequence[torch.Tensor], *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:
    q, _, v = tensors[:3]
    return q.new_empty((*q.shape[:-1], *v.shape[-1:])), q.new_empty(q.shape[:-1])


@_attend_backward.register_fake
def _gradient_outlines(
    douts: Any, outputs: Any, wanted: Sequence[bool], tensors: Sequence[torch.Tensor], *rest: Any
) -> list[torch.Tensor]:
    return [tensor.new_empty(tensor.shape) for tensor, wants in zip(tensors, wanted, strict=True) if wants]


attend = differentiable(_attend, _attend_backward, "attention", keeps=True, unseen=_attended, folds=mapped)
"""The function (options, *tensors) -> (out, lse), where options are the arguments of the operator after the tensors."""
