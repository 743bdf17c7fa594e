"""`fastpe.attention` for PyTorch: an autograd Function over the tensors' own memory. Needs the extra `torch`.

>>> import torch
>>> q = k = v = torch.ones(1, 3, 4, requires_grad=True)
>>> bias = torch.zeros(1, 5, requires_grad=True)
>>> attention(q, k, v, causal=True, bias=bias).sum().backward()
>>> tuple(bias.grad.shape)
(1, 5)
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastpe.base.validation import unmasked
from fastpe.functional.attention import attention_vjp

try:
    import torch
except ImportError as error:
    raise ImportError("fastpe.torch needs PyTorch: pip install -e '.[torch]' from a clone of fastpe") from error


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    window: int | None = None,
    lengths: Any = None,
    tolerance: float | None = None,
    **slots: Any,
) -> torch.Tensor:
    """`fastpe.attention` of tensors, differentiable in every floating tensor that requires a gradient.

    Parameters
    ----------
    q : (B, H, N, D) or (H, N, D) tensor, float32 or float64, on the CPU
        Queries; read in place, as all tensors are whose last axis is contiguous.
    k, v : (B, Hk, M, D), or without B, tensors of q's dtype
        Keys and values.
    causal, window, lengths, tolerance
        As for `fastpe.attention`.
    **slots
        As for `fastpe.attention`: tensors, or NumPy arrays, which are constants.

    Returns
    -------
    out : (B, H, N, D) tensor
        Its gradient can be taken once (there is no second derivative).

    Raises
    ------
    TypeError, ValueError
        As for `fastpe.attention`; also for tensors that lie on another device, are not dense, or are of half precision.

    References
    ----------
    Vaswani et al. 2017, eq. (1); Dao 2023, FlashAttention-2 (arXiv:2307.08691), algorithm 2.

    Examples
    --------
    >>> q = torch.zeros(1, 2, 4)
    >>> attention(q, q, q + 1).sum()
    tensor(8.)
    """
    given = {"q": q, "k": k, "v": v, **slots}
    for name in ("q", "k", "v"):
        if not isinstance(given[name], torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, not {type(given[name]).__name__}")
    for name in ("return_lse", "wrt"):
        if name in given:
            raise TypeError(f"{name} is not an argument of fastpe.torch.attention, but of fastpe.attention")
    tensors = {name: value for name, value in given.items() if isinstance(value, torch.Tensor)}
    for name, tensor in tensors.items():
        _check(name, tensor)
    options = {name: value for name, value in given.items() if name not in tensors}
    options |= {"causal": causal, "window": window, "lengths": lengths, "tolerance": tolerance}
    return _Attention.apply(options, tuple(tensors), *tensors.values())


def _check(name: str, tensor: torch.Tensor) -> None:
    unmasked(name, tensor, "its values, as to_tensor gives them")
    if tensor.device.type != "cpu":
        raise TypeError(f"{name} must lie in the CPU's memory, not on the device {tensor.device}")
    if tensor.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor, not one of {tensor.layout}")
    if tensor.dtype in (torch.float16, torch.bfloat16):
        raise TypeError(f"{name} must be of torch.float32 or torch.float64, not {tensor.dtype}")


def _array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """The tensor's own memory."""
    array: np.ndarray[Any, Any] = tensor.detach().resolve_conj().resolve_neg().numpy()
    return array


class _Attention(torch.autograd.Function):
    """One call, its tensors by name."""

    @staticmethod
    def forward(ctx: Any, options: Mapping[str, Any], names: tuple[str, ...], *tensors: torch.Tensor) -> torch.Tensor:
        arguments = {**options, **{name: _array(tensor) for name, tensor in zip(names, tensors, strict=True)}}
        wanted = tuple(name for name, wants in zip(names, ctx.needs_input_grad[2:], strict=True) if wants)
        result, ctx.pullback = attention_vjp(**arguments, wrt=wanted)
        out = torch.from_numpy(result)
        ctx.names = names
        ctx.save_for_backward(out, *tensors)  # the pullback reads their memory: PyTorch notices if it is written to
        return out

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, dout: torch.Tensor) -> tuple[Any, ...]:
        _ = ctx.saved_tensors  # raises where one was written to
        gradients = ctx.pullback(_array(dout))
        found = (torch.from_numpy(gradients[name]) if name in gradients else None for name in ctx.names)
        return None, None, *found
