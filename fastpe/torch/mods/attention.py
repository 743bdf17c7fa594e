"""`flex_attention` and `flex_report`: checks of arguments, with PyTorch's types of errors, and the choice of a way."""

import contextlib
import math
import sys
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.nn.attention import flex_attention as pytorch
from torch.nn.attention.flex_attention import BlockMask

from fastpe.torch.mods import rows
from fastpe.torch.mods.block_mask import NO_TILES, Tiles
from fastpe.torch.mods.captured import Changeable, captured
from fastpe.torch.mods.form import NoForm
from fastpe.torch.mods.grids import Sizes
from fastpe.torch.mods.plan import Plan, plan
from fastpe.torch.mods.sight import Sight
from fastpe.torch.mods.tracing import Traced, trace

_BACKENDS = ("AUTO", "TRITON", "FLASH", "TRITON_DECODE")


@dataclass(frozen=True)
class FlexReport:
    """How `flex_attention` computes a call.

    Attributes
    ----------
    way : str
        "slots": in O(N) memory. "chunks": with slots, and arrays of a chunk of queries and all keys. "fallback":
        PyTorch computes all scores of a chunk.
    slots : tuple of str
        The slots and options of `fastpe.torch.attention` that are used.
    spans : bool
        Whether the keys that a query sees are given as a span.
    masks : bool
        Whether there is a mask of queries and keys.
    rows : int
        Number of queries in a chunk.
    reasons : tuple of str
        Why memory is not O(N).
    """

    way: str
    slots: tuple[str, ...]
    spans: bool
    masks: bool
    rows: int
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        words = {
            "slots": "fastpe's kernels, in O(N) memory",
            "chunks": f"fastpe's kernels, {self.rows} queries at a time",
            "fallback": f"PyTorch, {self.rows} queries at a time",
        }
        lines = [f"{self.way}: {words[self.way]}"]
        lines += [f"slots: {', '.join(self.slots)}"] * bool(self.slots)
        seen = "a span of keys for each query" * self.spans, "a mask of queries and keys" * self.masks
        lines += [f"hidden keys: {' and '.join(filter(None, seen))}"] * any(seen)
        return "\n".join([*lines, *(f"because: {each}" for each in self.reasons)])


@dataclass(frozen=True)
class _Call:
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    scale: float
    dtype: torch.dtype  # of the output
    sizes: Sizes

    @property
    def scores_dtype(self) -> torch.dtype:
        return torch.float64 if self.q.dtype == torch.float64 else torch.float32


@dataclass(frozen=True)
class _Way:
    """How a call is computed: by a plan, or by PyTorch if there is none."""

    plan: Plan | None
    traced: Traced | None
    sight: Sight
    reasons: tuple[str, ...]


def flex_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, score_mod: Callable[..., torch.Tensor] | None = None,
    block_mask: BlockMask | None = None, scale: float | None = None, enable_gqa: bool = False,
    return_lse: bool = False, kernel_options: Any = None, *, return_aux: Any = None, fallback: str = "chunks",
) -> Any:  # fmt: skip
    """PyTorch's `flex_attention
    <https://docs.pytorch.org/docs/stable/nn.attention.flex_attention.html>`_ on a CPU, with gradients.

    A score_mod or mask_mod is run once, on scalars, and its operations are read. Biases by offset, ALiBi, soft caps,
    factors, windows, documents and padding become slots of `attention`, in O(N) memory. Numbers of queries and keys are
    computed for a chunk of queries at a time. Whatever has no such form is computed by PyTorch, a chunk at a time.

    Parameters
    ----------
    query : (B, H, N, D) tensor, float64, float32, float16 or bfloat16, on the CPU
        Queries.
    key : (B, Hk, M, D) tensor of the same dtype
        Keys. With a `block_mask` for B samples, keys and values may have one sample.
    value : (B, Hk, M, Dv) tensor of the same dtype
        Values.
    score_mod : callable, optional
        Function of a score, and of the indices of sample, query head, query and key, all scalar tensors; it returns the
        score that is used. Tensors that it captures get gradients.
    block_mask : torch.nn.attention.flex_attention.BlockMask, optional
        Which keys are seen, from `create_block_mask` or PyTorch's function of that name.
    scale : float, optional
        Factor on the products of queries and keys, by default 1/sqrt(D).
    enable_gqa : bool
        Whether there may be fewer key heads than query heads.
    return_lse : bool
        Whether to also return the logarithm of the softmax denominator. Deprecated in PyTorch: use `return_aux`.
    kernel_options : dict, optional
        Options of PyTorch's kernels. They are ignored, but a `BACKEND` that needs a GPU is refused.
    return_aux : torch.nn.attention.flex_attention.AuxRequest, optional
        Which other results to return. `max_scores` is not available on a CPU.
    fallback : str
        "chunks", or "error": what has no form is refused.

    Returns
    -------
    out : (B, H, N, Dv) tensor
        In the dtype of `query`; under `torch.autocast`, in autocast's dtype. Zero for queries that see no key.
    aux : torch.nn.attention.flex_attention.AuxOutput
        Only with `return_aux`: `lse` is a (B, H, N) tensor, float32 if `query` has half precision.

    Raises
    ------
    ValueError
        If arguments do not fit together, if a mod cannot be traced, or if it gives NaN or infinity to a visible key.
    IndexError
        If a mod reads past the end of a tensor for a visible key.
    NotImplementedError
        For nested tensors, tensors without four axes, and `max_scores`.
    RuntimeError
        For a sliced BlockMask, and inside transforms of `torch.func`.

    Notes
    -----
    **Mods** are traced again if they capture another kind of object than tensors, numbers, strings and functions, or if
    these differ. What a captured tensor holds may always change. Values must not be read in Python (use `torch.where`
    instead of ``if``), tensors must not be written to, and no random numbers may be drawn. Only minus infinity hides a
    key: a query all of whose scores are -1e9 returns the mean of the values.

    **Memory.** `flex_report` says how a call is computed. What has no form takes about ten times as long, in as much
    memory as a chunk needs.

    **Derivatives.** A second derivative raises an error, except where PyTorch computes the scores. The mask_mod of a
    BlockMask must not capture tensors that require gradients, as in PyTorch.

    References
    ----------
    Dong et al. 2024, "Flex Attention: A Programming Model for Generating Optimized Attention Kernels"
    (arXiv:2412.05496).

    Examples
    --------
    >>> import torch
    >>> q = torch.randn(1, 2, 100, 16, requires_grad=True)
    >>> slopes = torch.tensor([0.5, 0.25], requires_grad=True)
    >>> causal = create_block_mask(lambda b, h, q, k: q >= k, None, None, 100, 100)
    >>> out = flex_attention(q, q, q, lambda score, b, h, q, k: score + slopes[h] * (k - q), causal)
    >>> out.sum().backward()
    >>> slopes.grad.shape
    torch.Size([2])
    """
    call = _checked(query, key, value, block_mask, scale, enable_gqa, return_lse, kernel_options, return_aux)
    if fallback not in ("chunks", "error"):
        raise ValueError(f"fallback must be 'chunks' or 'error', not {fallback!r}")
    with torch.autocast("cpu", enabled=False):
        way = _way(call, score_mod, block_mask)
        if way.plan is None and fallback == "error":
            raise ValueError(f"{_called(score_mod, 'score_mod')} has no form of slots: {way.reasons[0]}")
        out, lse = _attended(call, way)
    if return_aux is not None:
        return out, pytorch.AuxOutput(lse=lse if return_aux.lse else None, max_scores=None)
    return (out, lse) if return_lse else out


def flex_report(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, score_mod: Callable[..., torch.Tensor] | None = None,
    block_mask: BlockMask | None = None, scale: float | None = None, enable_gqa: bool = False, **options: Any,
) -> FlexReport:  # fmt: skip
    """Return how `flex_attention` computes a call with these arguments, without computing it.

    Parameters
    ----------
    query, key, value, score_mod, block_mask, scale, enable_gqa, **options
        As for `flex_attention`.

    Returns
    -------
    report : FlexReport
        The way, the slots, and the reasons why memory is not O(N). ``print(report)`` says it in words.

    Raises
    ------
    ValueError, IndexError, NotImplementedError, RuntimeError
        As for `flex_attention`.

    Examples
    --------
    >>> import torch
    >>> q = torch.zeros(1, 2, 100, 16)
    >>> print(flex_report(q, q, q, lambda score, b, h, q, k: torch.where(q >= k, score + (k - q), -torch.inf)))
    slots: fastpe's kernels, in O(N) memory
    slots: bias, scale
    hidden keys: a span of keys for each query
    """
    call = _checked(query, key, value, block_mask, scale, enable_gqa, False, options.get("kernel_options"), None)
    way = _way(call, score_mod, block_mask)
    if way.plan is None:
        return FlexReport("fallback", (), False, False, rows.of_bytes(call.sizes)[0].stop, way.reasons)
    own = way.plan
    parts = rows.chunks(own)
    used = {*own.slots, *(["softcap"] if own.softcap else []), *(["rectify"] if own.rectify else [])}
    used |= {"scores"} if own.scores else set()
    dense = bool(own.added or own.scores or own.sight.masks)
    one_by_one = len(parts) > 1 or not own.sight.is_known or any(own.scores + own.added)
    return FlexReport(
        "chunks" if dense and one_by_one else "slots", tuple(sorted(used)), own.sight.spans is not None,
        bool(own.added or own.sight.masks), parts[0].stop if parts else 0, way.reasons,
    )  # fmt: skip


@contextlib.contextmanager
def flex() -> Iterator[None]:
    """Replace PyTorch's `flex_attention` by fastpe's inside a ``with`` block, in all modules that have imported it.

    Functions that were compiled before, as by ``torch.compile(flex_attention)``, keep PyTorch's: import the modules
    that compile it inside the block.

    Examples
    --------
    >>> import torch
    >>> from torch.nn.attention import flex_attention as pytorch
    >>> q = torch.ones(1, 1, 3, 4, requires_grad=True)
    >>> with flex():
    ...     pytorch.flex_attention(q, q, q).sum().backward()
    """
    original = pytorch.flex_attention
    if original is flex_attention:  # inside another block
        yield
        return
    _replace(original, flex_attention)
    try:
        yield
    finally:
        _replace(flex_attention, original)


def _replace(one: Any, other: Any) -> None:
    """Replace a function by another in all modules but those of fastpe."""
    for module in list(sys.modules.values()):
        for name, each in list(getattr(module, "__dict__", {}).items()):
            if each is one and not getattr(module, "__name__", "").startswith("fastpe."):
                setattr(module, name, other)


# ---------------------------------------------------------------------------------------------------------------------
# Checks


def _checked(
    q: Any, k: Any, v: Any, block_mask: Any, scale: Any, enable_gqa: Any, return_lse: Any, kernel_options: Any,
    return_aux: Any,
) -> _Call:  # fmt: skip
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
    if torch._C._are_functorch_transforms_active():
        raise RuntimeError("flex_attention does not support torch.func and torch.vmap: use fastpe.torch.attention")
    q, k, v = _of_one_dtype(q, k, v)
    _check_shapes(q, k, v, block_mask, enable_gqa)
    if block_mask is not None:
        _check_block_mask(block_mask, q, k)
    if return_lse and return_aux is not None:
        raise ValueError("return_lse and return_aux cannot be given together: use return_aux=AuxRequest(lse=True)")
    if return_aux is not None and return_aux.max_scores:
        raise NotImplementedError("max_scores is not available on a CPU")
    if return_lse:
        warnings.warn("return_lse is deprecated: use return_aux=AuxRequest(lse=True)", FutureWarning, stacklevel=3)
    backend = (kernel_options or {}).get("BACKEND", "AUTO")
    if backend not in _BACKENDS:
        raise ValueError(f"BACKEND must be one of {_BACKENDS}, not {backend!r}")
    if backend != "AUTO":
        raise ValueError(f"BACKEND {backend!r} needs a GPU")
    if scale is not None and (isinstance(scale, bool | str | torch.Tensor) or not math.isfinite(scale)):
        raise ValueError(f"scale must be a finite number, not {scale!r}")
    sizes = Sizes(*q.shape[:3], k.shape[2])
    return _Call(q, k, v, 1.0 / math.sqrt(q.shape[-1]) if scale is None else float(scale), q.dtype, sizes)


def _of_one_dtype(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return query, key and value in the dtype of the output."""
    if torch.is_autocast_enabled("cpu") and q.dtype != torch.float64:
        dtype = torch.get_autocast_dtype("cpu")
        return tuple(x.to(dtype) if x.is_floating_point() else x for x in (q, k, v))
    for name, x in (("query", q), ("key", k), ("value", v)):
        if x.dtype not in (torch.float64, torch.float32, torch.float16, torch.bfloat16) or x.dtype != q.dtype:
            expected = "floats" if x is q else f"the dtype of query, {q.dtype}"
            raise ValueError(f"{name} must have {expected}, not {x.dtype}")
    return q, k, v


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
    if block_mask.mask_mod is pytorch._sliced_mask_mod_error:
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


# ---------------------------------------------------------------------------------------------------------------------
# The way


def _attended(call: _Call, way: _Way) -> tuple[torch.Tensor, torch.Tensor]:
    q, k, v = call.q, call.k, call.v
    if k.shape[0] != q.shape[0]:
        k, v = (x.expand(q.shape[0], -1, -1, -1) for x in (k, v))
    if way.plan is not None:
        out, lse = rows.by_slots(way.plan, q, k, v)
    else:
        assert way.traced is not None
        out, lse = rows.by_pytorch(way.traced, way.sight, q, k, v, call.scale)
    return out.to(call.dtype), lse


def _way(call: _Call, score_mod: Any, block_mask: Any) -> _Way:
    sight = _sight(block_mask, call.sizes)
    if score_mod is None:
        scale = torch.tensor(call.scale, dtype=call.scores_dtype)
        own = Plan(call.sizes, sight, {"scale": scale}, reasons=_masks_of(sight))
        sight.check()
        return _Way(own, None, sight, tuple(own.reasons))
    traced = trace(score_mod, call.scores_dtype, _called(score_mod, "score_mod"))
    try:
        own = _plan(call, traced)
    except NoForm as error:
        return _Way(None, traced, sight, (str(error),))
    both = own.sight.joined(sight)
    both.check()
    own = replace(own, sight=both, reasons=own.reasons + _masks_of(both))
    return _Way(own, traced, both, tuple(own.reasons))


def _plan(call: _Call, traced: Traced) -> Plan:
    """Return the plan of a score_mod alone. That of a mod without captured tensors is kept."""
    key = (call.sizes, call.k.shape[1], call.scale, call.scores_dtype)
    if not traced.is_constant:
        own = plan(traced, Sight(call.sizes), call.scores_dtype, call.k.shape[1], call.scale)
        own.sight.simplify()
        return own
    assert traced.memo is not None
    if key not in traced.memo:
        with torch.inference_mode(False), torch.no_grad():
            own = plan(traced, Sight(call.sizes), call.scores_dtype, call.k.shape[1], call.scale)
            own.sight.simplify()
        traced.memo[key] = own
    found: Plan = traced.memo[key]
    return found


def _masks_of(sight: Sight) -> list[str]:
    return ["the keys that a query sees are no span, or differ between heads"] * bool(sight.masks)


_sights: weakref.WeakKeyDictionary[BlockMask, tuple[Any, Sight]] = weakref.WeakKeyDictionary()


def _sight(block_mask: BlockMask | None, sizes: Sizes) -> Sight:
    """Return which keys a BlockMask shows. It is kept with the mask until one of its tensors changes."""
    found = Sight(sizes)
    if block_mask is None or block_mask.BLOCK_SIZE == (NO_TILES, NO_TILES):
        return found
    name = _called(block_mask.mask_mod, "mask_mod")
    try:
        key, tensors = captured(block_mask.mask_mod)
    except Changeable:
        key, tensors = None, []
    lists = (block_mask.kv_num_blocks, block_mask.kv_indices, block_mask.full_kv_num_blocks, block_mask.full_kv_indices)
    read = [x for x in (*lists, *tensors) if x is not None]
    if any(x.is_inference() for x in read):  # they have no versions
        key = None
    state = (sizes, key, block_mask.BLOCK_SIZE, [(id(x), x.data_ptr(), x._version) for x in read] if key else None)
    if key is not None and block_mask in _sights and _sights[block_mask][0] == state:
        return _sights[block_mask][1]
    with torch.inference_mode(False), torch.no_grad():
        traced = trace(block_mask.mask_mod, None, name)
        if any(x.requires_grad for x in traced.tensors):
            raise ValueError(f"{name} must not capture tensors that require gradients")
        found.masks = [Tiles(block_mask, traced, sizes)]
        found.simplify()
    if key is not None:
        _sights[block_mask] = state, found
    return found


def _called(mod: Any, argument: str) -> str:
    """Return how errors name a mod."""
    if not callable(mod):
        raise TypeError(f"{argument} must be callable, not {type(mod).__name__}")
    name = getattr(mod, "__name__", type(mod).__name__)
    return f"{argument} {name!r}"
