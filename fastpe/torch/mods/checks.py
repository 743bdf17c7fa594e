"""Checks of the arguments of `flex_attention`, with PyTorch's types of errors."""

import math
import warnings
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import flex_attention as pytorch
from torch.nn.attention.flex_attention import BlockMask

from fastpe.base.validation import choice, real
from fastpe.torch import operators
from fastpe.torch.mods.block_mask import NO_TILES
from fastpe.torch.mods.grids import Sizes

_of_slices = getattr(pytorch, "_sliced_mask_mod_error", None)  # private; if it is missing, the mod raises an error
_BACKENDS = ("AUTO", "TRITON", "FLASH", "TRITON_DECODE")


@dataclass(frozen=True)
class Call:
    """Checked arguments."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    scale: float
    sizes: Sizes


def scores_dtype(q: torch.Tensor) -> torch.dtype:
    """Return the dtype of scores."""
    return torch.float64 if q.dtype == torch.float64 else torch.float32


def check_options(return_lse: Any, kernel_options: Any, return_aux: Any, fallback: Any) -> None:
    """Check the options of a public function that do not change how attention is computed."""
    choice("fallback", fallback, ("chunks", "error"))
    if return_aux is not None and not isinstance(return_aux, pytorch.AuxRequest):
        raise TypeError(f"return_aux must be an AuxRequest, not {type(return_aux).__name__}")
    if return_lse and return_aux is not None:
        raise ValueError("return_lse and return_aux cannot be given together: use return_aux=AuxRequest(lse=True)")
    if return_aux is not None and return_aux.max_scores:
        raise NotImplementedError("max_scores is not available on a CPU")
    if return_lse and not torch.compiler.is_compiling():  # the compiler cannot trace a warning
        warnings.warn("return_lse is deprecated: use return_aux=AuxRequest(lse=True)", FutureWarning, stacklevel=3)
    if kernel_options is not None and not isinstance(kernel_options, dict):
        raise TypeError(f"kernel_options must be a dict, not {type(kernel_options).__name__}")
    backend = (kernel_options or {}).get("BACKEND", "AUTO")
    if backend not in _BACKENDS:
        raise ValueError(f"BACKEND must be one of {_BACKENDS}, not {backend!r}")
    if backend != "AUTO":
        raise ValueError(f"BACKEND {backend!r} needs a GPU")


def checked(q: Any, k: Any, v: Any, block_mask: Any, scale: Any, enable_gqa: Any) -> Call:
    """Return the checked arguments, without options."""
    if operators.transforms_are_active():
        raise RuntimeError("flex_attention does not support torch.func and torch.vmap: use fastpe.torch.attention")
    given = {"query": q, "key": k, "value": v}
    for name, x in given.items():
        if not isinstance(x, torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, not {type(x).__name__}")
        if x.is_nested:
            raise NotImplementedError(f"{name} must be a dense tensor, not a nested one")
        if x.ndim != 4:
            raise NotImplementedError(f"NYI: {name} must be a 4D tensor, not one with {x.ndim} axes")
        if x.device.type != "cpu":
            raise ValueError(f"{name} must be in CPU memory, not on the device {x.device}")
    q, k, v = _of_one_dtype(q, k, v)
    _check_shapes(q, k, v, block_mask, enable_gqa)
    if block_mask is not None:
        _check_block_mask(block_mask, q, k)
    scale = 1.0 / math.sqrt(q.shape[-1]) if scale is None else real("scale", scale)
    sizes = Sizes(q.shape[0], q.shape[1], q.shape[2], k.shape[2])
    return Call(q, k, v, scale, sizes)


def _of_one_dtype(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return query, key and value in the dtype of the output."""
    q, k, v = lowered(q, k, v)
    for name, x in (("query", q), ("key", k), ("value", v)):
        if x.dtype not in (torch.float64, torch.float32, torch.float16, torch.bfloat16) or x.dtype != q.dtype:
            expected = "floats" if x is q else f"the dtype of query, {q.dtype}"
            raise ValueError(f"{name} must have {expected}, not {x.dtype}")
    return q, k, v


def lowered(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return query, key and value in the dtype of autocast."""
    if not torch.is_autocast_enabled("cpu") or tensors[0].dtype == torch.float64:
        return tensors
    return tuple(x.to(torch.get_autocast_dtype("cpu")) if x.is_floating_point() else x for x in tensors)


def _check_shapes(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, block_mask: Any, enable_gqa: Any) -> None:
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(f"query and key must have one width, not {q.shape[-1]} and {k.shape[-1]}")
    if k.shape[:3] != v.shape[:3]:
        raise ValueError(f"key and value must have equal first axes, not {tuple(k.shape)} and {tuple(v.shape)}")
    heads, key_heads = q.shape[1], k.shape[1]
    if not enable_gqa and heads != key_heads:
        raise ValueError(f"query has {heads} heads and key {key_heads}: try enable_gqa=True")
    if not key_heads or heads % key_heads:
        raise ValueError(f"the heads of query, {heads}, must be a multiple of those of key, {key_heads}")
    if q.shape[0] != k.shape[0]:
        own = None if block_mask is None else block_mask.kv_num_blocks.shape[0]
        if own != q.shape[0] or k.shape[0] != 1:
            raise ValueError(
                f"query has {q.shape[0]} samples and key {k.shape[0]}: they must be equal, or key must have 1 and "
                "block_mask as many as query"
            )


def _check_block_mask(block_mask: Any, q: torch.Tensor, k: torch.Tensor) -> None:
    if not isinstance(block_mask, BlockMask):
        raise TypeError(f"block_mask must be a BlockMask, not {type(block_mask).__name__}")
    if block_mask.mask_mod is _of_slices:
        raise RuntimeError("Cannot use mask_mod from a sliced BlockMask: set it to the mask_mod of the whole BlockMask")
    if block_mask.kv_num_blocks.device.type != "cpu":
        raise RuntimeError(f"block_mask must be on the device of query, cpu, not {block_mask.kv_num_blocks.device}")
    if block_mask.BLOCK_SIZE == (NO_TILES, NO_TILES):
        return
    own, sizes = tuple(block_mask.shape[-2:]), (q.shape[2], k.shape[2])
    if own != sizes:
        larger = own[0] >= sizes[0] and own[1] >= sizes[1]
        raise ValueError(
            f"block_mask is for {own[0]} queries and {own[1]} keys, not for {sizes[0]} and {sizes[1]}: create a new one"
            + (f", or crop it with block_mask._adjust{sizes}" if larger else "")
        )
    for at, name, size in ((0, "samples", q.shape[0]), (1, "heads", q.shape[1])):
        if block_mask.kv_num_blocks.shape[at] not in (1, size):
            raise ValueError(f"block_mask is for {block_mask.kv_num_blocks.shape[at]} {name}, not for {size}")
