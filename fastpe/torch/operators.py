"""Operators of PyTorch's dispatcher whose gradients are operators, too. PyTorch's compiler and exporter support both.

An operator takes a list of tensors, and options. Its gradient operator takes the gradients of the outputs, the outputs,
a list that says for which tensors gradients are wanted, and then the arguments of the operator.
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad

from fastpe.kernels.simd import bits_of

HALVES = (torch.float16, torch.bfloat16)


def array(tensor: torch.Tensor, name: str = "a tensor") -> np.ndarray[Any, Any]:
    """Return an array that shares the tensor's memory, or a copy for a conjugate or negative view.

    The dtype may be bfloat16 only if `has_arrays` is true for it. `name` is used in errors.
    """
    own = tensor.detach().resolve_conj().resolve_neg()
    if own.numel() and not _has_memory(own):  # NumPy would read arbitrary numbers
        raise ValueError(
            f"{name} must have memory; its storage has been freed, or it is a zero tensor or a functional tensor"
        )
    return _as_array(own)


def own_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    """As `array`, but in half the time. Raise RuntimeError or TypeError if the tensor cannot be viewed as an array."""
    if not _has_memory(tensor):
        raise RuntimeError("a tensor without memory")
    return _as_array(tensor.detach() if tensor.requires_grad else tensor)


def _has_memory(tensor: torch.Tensor) -> bool:
    return tensor.data_ptr() != 0 and tensor.untyped_storage().nbytes() != 0


def _as_array(tensor: torch.Tensor) -> np.ndarray[Any, Any]:
    if tensor.dtype is torch.bfloat16:
        bits: np.ndarray[Any, Any] = tensor.view(torch.int16).numpy().view(_bfloat16())
        return bits
    found: np.ndarray[Any, Any] = tensor.numpy()
    return found


def tensor(found: np.ndarray[Any, Any], dtype: torch.dtype) -> torch.Tensor:
    """Return an array as a tensor of this dtype. Half-precision arrays may hold the bits of numbers as integers."""
    if dtype in HALVES:
        return torch.from_numpy(bits_of(found)).view(dtype)
    return torch.from_numpy(found)


def is_dense_on_cpu(x: torch.Tensor) -> bool:
    """Whether the tensor is dense and on the CPU."""
    return x.is_cpu and x.layout is torch.strided and not x.is_nested


def has_arrays(dtype: torch.dtype) -> bool:
    """Whether NumPy has arrays of this dtype."""
    return dtype is not torch.bfloat16 or _bfloat16() is not None


@cache
def _bfloat16() -> np.dtype[Any] | None:
    try:
        from ml_dtypes import bfloat16
    except ImportError:
        return None
    return np.dtype(bfloat16)


# Long: two autograd Functions and the registered rules all close over the operators
def differentiable(
    operator: Any, gradients: Any, of: str, *, keeps: bool, unseen: Callable[..., Any] | None = None, folds: Any = None
) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Return the operator with its derivative: a function of (options, *tensors) that returns all outputs.

    Compiled or exported operators use the derivative that is registered with them. `torch.func` and dual numbers do not
    use registered derivatives, so outside the compiler an autograd Function provides the derivative.

    Parameters
    ----------
    operator : custom operator
        (tensors, *options) -> outputs.
    gradients : custom operator
        (douts, outputs, wanted, tensors, *options) -> a gradient for each tensor that is wanted.
    of : str
        Name of the differentiated function, used in errors.
    keeps : bool
        Whether `gradients` needs the outputs.
    unseen : callable, optional
        A function equivalent to the operator, which is called directly if nothing observes operators. This saves the
        Python code of PyTorch's dispatcher, which takes as long as one query over thousands of keys.
    folds : module, optional
        A module with functions `outputs` and `gradients` like those of `mapped`, which replace the calls of a
        `torch.vmap` by one call.
    """

    def second(ctx: Any, *_: Any) -> Any:
        # without this, PyTorch would treat gradients as constants
        raise RuntimeError(f"fastpe.torch has no second derivatives: the gradient of {of} cannot be differentiated")

    def forward_mode(ctx: Any, *_: Any) -> Any:
        raise RuntimeError(f"fastpe.torch has no derivatives in forward mode: {of} supports only gradients")

    def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        tensors, *ctx.options = inputs
        kept = tuple(output) if keeps else ()
        ctx.kept = len(kept)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*kept, *tensors)  # PyTorch raises an error if one of these is modified

    def pulled(ctx: Any, douts: Any, wants: Any, pull: Callable[..., Any]) -> list[Any]:
        saved = ctx.saved_tensors
        kept, tensors = saved[: ctx.kept], saved[ctx.kept :]
        found = iter(pull(list(douts), list(kept), list(map(bool, wants)), list(tensors), *ctx.options))
        return [next(found) if wanted else None for wanted in wants]

    def backward(ctx: Any, *douts: Any) -> tuple[Any, ...]:
        flat = douts[0] if len(douts) == 1 and isinstance(douts[0], list | tuple) else douts
        return pulled(ctx, flat, ctx.needs_input_grad[0], gradients), *[None] * len(ctx.options)

    class Derivative(torch.autograd.Function):
        @staticmethod
        def forward(rest: tuple[Any, ...], *flat: Any) -> tuple[torch.Tensor, ...]:
            (counts, wants), options = rest
            lists = _split(flat, counts)
            return tuple(gradients(lists[0], lists[1], wants, lists[2], *options))

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            pass

        @staticmethod
        def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
            ((counts, wants), options), flat = inputs[0], inputs[1:]
            (douts, kept, tensors), dims = _split(flat, counts), _split(in_dims[1:], counts)
            every = *dims[:2], None, dims[2], *[None] * len(options)
            found, axes = _mapped_gradients(pull, folds)(info, every, douts, kept, wants, tensors, *options)
            # PyTorch would treat a list as a constant: second derivatives would be 0, not an error
            return tuple(found), tuple(axes)

    def pull(douts: Any, kept: Any, wants: Any, tensors: Any, *options: Any) -> tuple[torch.Tensor, ...]:
        rest = ((len(douts), len(kept), len(tensors)), wants), options
        found: tuple[torch.Tensor, ...] = Derivative.apply(rest, *douts, *kept, *tensors)
        return found

    class Function(torch.autograd.Function):
        @staticmethod
        def forward(options: tuple[Any, ...], *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tuple(operator(tensors, *options))

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            keep(ctx, (inputs[1:], *inputs[0]), output)

        @staticmethod
        def backward(ctx: Any, *douts: Any) -> tuple[Any, ...]:
            return None, *pulled(ctx, douts, ctx.needs_input_grad[1:], pull)

        @staticmethod
        def vmap(info: Any, in_dims: Any, *inputs: Any) -> Any:
            options, *tensors = inputs
            return _mapped(done, folds)(info, (in_dims[1:], *[None] * len(options)), tensors, *options)

    def done(tensors: Any, *options: Any) -> tuple[torch.Tensor, ...]:
        found: tuple[torch.Tensor, ...] = Function.apply(options, *tensors)
        return found

    Function.jvp = Derivative.jvp = staticmethod(forward_mode)
    Derivative.backward = staticmethod(second)
    operator.register_autograd(backward, setup_context=keep)
    gradients.register_autograd(second)
    operator.register_vmap(_mapped(operator, folds))
    gradients.register_vmap(_mapped_gradients(gradients, folds))

    def run(options: tuple[Any, ...], *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        if torch.compiler.is_compiling():
            return tuple(operator(tensors, *options))
        if unseen is not None and not is_seen(tensors):
            return tuple(unseen(tensors, *options))
        return done(tensors, *options)

    return run


def is_seen(tensors: Iterable[torch.Tensor]) -> bool:
    """Whether autograd, a tensor subclass, or anything in `operators_are_seen` observes operators on these tensors."""
    by_gradients = torch.is_grad_enabled()
    for x in tensors:
        if (by_gradients and x.requires_grad) or (type(x) is not torch.Tensor and type(x) is not torch.nn.Parameter):
            return True
    return operators_are_seen()


def operators_are_seen() -> bool:
    """Whether a transform, a mode, a tracer or the profiler observes operators on any tensors."""
    return bool(
        transforms_are_active()
        or _dispatch_modes()
        or _function_modes()
        or forward_ad._current_level >= 0
        or _tracing_state()
        or _profiler_is_enabled()
    )


transforms_are_active, _tracing_state = torch._C._are_functorch_transforms_active, torch._C._get_tracing_state
_dispatch_modes, _function_modes = torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack
_profiler_is_enabled = torch.autograd._profiler_enabled


def _split(flat: tuple[Any, ...], counts: tuple[int, ...]) -> list[list[Any]]:
    ends = np.cumsum(counts)
    return [list(flat[end - count : end]) for end, count in zip(ends, counts, strict=True)]


def _mapped(call: Callable[..., Any], folds: Any) -> Callable[..., Any]:
    """Return the rule of `torch.vmap` for call(tensors, *options)."""

    def rule(info: Any, in_dims: Any, tensors: Any, *options: Any) -> tuple[Any, Any]:
        found = None
        if folds is not None:
            dims = _each(in_dims[0], tensors)
            found = folds.outputs(lambda own: call(own, *options), options[0], tensors, dims, info.batch_size)
        if found is None:
            return _one_by_one(call)(info, in_dims, tensors, *options)
        return found, (0,) * len(found)

    return rule


def _mapped_gradients(call: Callable[..., Any], folds: Any) -> Callable[..., Any]:
    """Return the rule of `torch.vmap` for call(douts, outputs, wanted, tensors, *options)."""

    def rule(
        info: Any, in_dims: Any, douts: Any, outputs: Any, wanted: Any, tensors: Any, *options: Any
    ) -> tuple[Any, Any]:
        found = None
        if folds is not None:
            lists = douts, outputs, tensors
            dims = [_each(dim, own) for dim, own in zip((*in_dims[:2], in_dims[3]), lists, strict=True)]

            def run(douts: Any, outputs: Any, tensors: Any) -> Any:
                return call(douts, outputs, wanted, tensors, *options)

            found = folds.gradients(run, options[0], lists, dims, wanted, info.batch_size)
        if found is None:
            return _one_by_one(call)(info, in_dims, douts, outputs, wanted, tensors, *options)
        return found, [0] * len(found)

    return rule


def _each(dim: Any, own: Any) -> list[Any]:
    """Return the mapped axis of each item of a list, or None for items without one."""
    return [None] * len(own) if dim is None else list(dim)


def _one_by_one(operator: Any) -> Callable[..., Any]:
    """Return the rule of `torch.vmap` that computes samples one by one."""

    def sample(value: Any, dim: Any, number: int) -> Any:
        if dim is None:
            return value
        if isinstance(value, list | tuple):
            return [sample(*pair, number) for pair in zip(value, dim, strict=True)]
        return value.select(dim, number)

    def rule(info: Any, in_dims: Any, *inputs: Any) -> tuple[Any, Any]:
        each = [
            operator(*(sample(*pair, number) for pair in zip(inputs, in_dims, strict=True)))
            for number in range(info.batch_size)
        ]
        stacked = [torch.stack(parts) for parts in zip(*each, strict=True)]
        kind = type(each[0])
        return kind(stacked), kind([0] * len(stacked))

    return rule
