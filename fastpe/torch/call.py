"""`fastpe.attention` and `fastpe.columns.two_sided` for tensors."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from fastpe.base import validation
from fastpe.base.validation import FARTHEST, LARGEST, at_least_zero, shown, soft_cap, truth, unmasked, whole
from fastpe.functional import decode
from fastpe.functional.arguments import check_slots, is_pair
from fastpe.functional.attention import checked_tolerance
from fastpe.functional.bands import flat
from fastpe.functional.two_sided import refuse
from fastpe.kernels.attention.tile import FEW
from fastpe.kernels.threads.team import at_most
from fastpe.torch.operators import HALVES, has_arrays, is_dense_on_cpu, is_seen, own_array, tensor
from fastpe.torch.score import attend

_is_compiling = torch.compiler.is_compiling


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    window: int | None = None,
    lengths: Any = None,
    mask: Any = None,
    spans: Any = None,
    query_start: Any = None,
    softcap: float | None = None,
    sinks: Any = None,
    dropout: float = 0.0,
    dropout_seed: Any = None,
    bands: Any = None,
    tolerance: float | None = None,
    return_lse: bool = False,
    **slots: Any,
) -> Any:
    """`fastpe.attention` for tensors, differentiable with respect to all floating tensors that require gradients.

    This function is an operator of PyTorch's dispatcher, and works with `torch.compile`, `torch.export`,
    `torch.func.grad`, `torch.func.vjp`, `torch.vmap` (one call computes all mapped samples where possible) and
    checkpointing. The number of threads is `torch.get_num_threads()`, or that of `numba.set_num_threads` if this is
    smaller. As in `fastpe.attention`, NaN and infinity affect only the queries that see the affected key. See
    `fastpe.attention` for the table of slots.

    Parameters
    ----------
    q : (B, H, N, D), (H, N, D) or (N, D) tensor, float64, float32, float16 or bfloat16, on the CPU
        Queries. Tensors whose last axis is contiguous are read without a copy. Half precision is computed as in
        `fastpe.attention`: in float32, or with products of bfloat16 numbers.
    k : (B, Hk, M, D), or with as few axes as q, tensor of q's dtype
        Keys.
    v : (B, Hk, M, Dv) tensor of q's dtype
        Values. If q, k or v has no axis B, or B = 1, all samples share it. Under `torch.autocast`, the dtypes of q, k
        and v may differ.
    dropout_seed : int or tensor of one integer, optional
        As for `fastpe.attention`. If `dropout` is given without a seed, the seed is drawn from PyTorch's generator.
    causal, window, lengths, mask, spans, query_start, softcap, sinks, dropout, bands, tolerance, return_lse
        As for `fastpe.attention`.
    **slots
        As for `fastpe.attention`: tensors, or NumPy arrays, which are constants. Half precision is converted to
        float32.

    Returns
    -------
    out : (B, H, N, Dv) tensor
        In q's dtype; under `torch.autocast`, in autocast's dtype. It can be differentiated once. A second derivative
        raises an error, even where PyTorch would otherwise treat the first derivative as a constant.
    lse : (B, H, N) tensor
        Only if `return_lse`. It is differentiable, and float32 if q has half precision.

    Raises
    ------
    TypeError, ValueError
        As for `fastpe.attention`; also for tensors that are on another device or not dense.
    RuntimeError
        If a second derivative, or a derivative in forward mode, is requested.

    References
    ----------
    Vaswani et al. 2017, eq. (1); Dao 2023, FlashAttention-2 (arXiv:2307.08691), algorithm 2.

    Examples
    --------
    >>> import torch
    >>> q = torch.zeros(1, 2, 4)
    >>> attention(q, q, q + 1).sum()
    tensor(8.)
    """
    if "wrt" in slots:
        raise TypeError("wrt is not an argument of fastpe.torch.attention, but of fastpe.attention_vjp")
    if slots:
        check_slots(slots)
    given = {"mask": mask, "spans": spans, "query_start": query_start, "sinks": sinks, "dropout_seed": dropout_seed}
    if tolerance is bands is dropout_seed is None and dropout == 0.0 and slots.keys() <= decode.SLOTS:
        sight = {"lengths": lengths, "mask": mask, "spans": spans, "query_start": query_start}
        few = _decode(q, k, v, causal, window, return_lse, {**sight, "softcap": softcap, "sinks": sinks, **slots})
        if few is not None:
            return few
    given |= slots if bands is None else slots | flat(bands)
    found = _attended(q, k, v, causal, window, lengths, softcap, dropout, tolerance, given)
    return found if truth("return_lse", return_lse) else found[0]


def _decode(q: Any, k: Any, v: Any, causal: Any, window: Any, return_lse: Any, given: Mapping[str, Any]) -> Any:
    """Return the result of `attention` from `functional.decode`, or None if the call must go through the operator.

    The operator is needed for more queries and for other arguments than `functional.decode` supports, or if autograd, a
    transform, a mode or the compiler observes the call.
    """
    if _is_compiling() or not isinstance(q, torch.Tensor) or q.ndim != 4 or q.shape[2] > decode.MOST_QUERIES:
        return None
    others = {name: x for name, x in given.items() if isinstance(x, torch.Tensor)}
    if is_seen((q, k, v, *others.values())) or torch.is_autocast_enabled("cpu") or not has_arrays(q.dtype):
        return None
    try:
        own_q, own_k, own_v = own_array(q), own_array(k), own_array(v)
        arrays = {name: own_array(x.float() if x.dtype in HALVES else x) for name, x in others.items()}
    except (TypeError, RuntimeError):  # PyTorch raises these for tensors on other devices and with other layouts
        return None
    with at_most(torch.get_num_threads()):
        found = decode.attend(own_q, own_k, own_v, causal, window, return_lse, **{**given, **arrays})
    if found is None:
        return None
    return (tensor(found[0], q.dtype), torch.from_numpy(found[1])) if return_lse else tensor(found, q.dtype)


def two_sided(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, before: Any, after: Any, *, window: int | None = None,
    lengths: Any = None, tolerance: float | None = None, return_lse: bool = False, **options: Any,
) -> Any:  # fmt: skip
    """`fastpe.columns.two_sided` for tensors, as an operator like `attention`.

    Parameters
    ----------
    q, k, v : (B, H, N, D), (B, Hk, N, D), (B, Hk, N, Dv) tensors, or with fewer axes
        As for `attention`, with as many queries as keys.
    before, after : (H or 1, N) tensors, optionally after an axis B
        Running sums that reduce the weights of keys before the query and of keys after it, preferably in float64. If x
        are the logits of forget gates, the running sums are ``-logsigmoid(x.double()).cumsum(-1)``. NumPy arrays are
        constants.
    window, lengths, tolerance, return_lse, **options
        As for `fastpe.columns.two_sided`, with tensors in place of arrays.

    Returns
    -------
    out : (B, H, N, Dv) tensor
        As for `attention`: it can be differentiated once.
    lse : (B, H, N) tensor
        Only if `return_lse`. It is differentiable, and float32 if q has half precision.

    Raises
    ------
    TypeError, ValueError, RuntimeError
        As `attention` does; also for arguments that `fastpe.columns.two_sided` does not support.

    References
    ----------
    Lin et al. 2025, "Forgetting Transformer: Softmax Attention with a Forget Gate" (ICLR), in both directions.

    Examples
    --------
    >>> import torch
    >>> q, halves = torch.zeros(1, 3, 4), torch.full((1, 3), 0.5).log().neg().cumsum(-1)
    >>> two_sided(q, q, torch.eye(3)[None], halves, halves)[0, 1]
    tensor([0.2500, 0.5000, 0.2500])
    """
    if "wrt" in options:
        raise TypeError("wrt is not an argument of fastpe.torch.two_sided, but of fastpe.columns.two_sided_vjp")
    refuse(options)
    check_slots(options)
    columns = {name: _tensor(name, value) for name, value in (("before", before), ("after", after))}
    dropout = options.pop("dropout", 0.0)
    found = _attended(q, k, v, False, window, lengths, None, dropout, tolerance, columns | options)
    return found if truth("return_lse", return_lse) else found[0]


def _attended(
    q: Any, k: Any, v: Any, causal: Any, window: Any, lengths: Any, softcap: Any, dropout: Any, tolerance: Any,
    rest: Mapping[str, Any],
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """Return the output and lse of the operator. `rest` has slots, visibility arguments, and the seed of dropout."""
    given = {"q": q, "k": k, "v": v, **rest}
    for name in ("q", "k", "v"):
        if not isinstance(given[name], torch.Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, not {type(given[name]).__name__}")
    pairs, rectify, seed = (given.pop(name, None) for name in ("pairs", "rectify", "dropout_seed"))
    if is_pair(lengths, q.ndim > 3):
        given["query_lengths"], given["key_lengths"] = lengths
    else:
        given["key_lengths"] = lengths
    options = _options(causal, window, softcap, dropout, tolerance, pairs, rectify)
    if dropout:
        given["dropout_seed"] = torch.randint(2**62, ()) if seed is None else _checked_seed(seed)
    most = {} if _is_compiling() else _largest(given)
    tensors = {
        name: _tensor(_NAMES_IN_ERRORS.get(name, name), value, most.get(name, LARGEST))
        for name, value in given.items()
        if value is not None
    }
    dtype = _common_dtype(tensors)
    tensors |= _as_many_samples(tensors)
    kinds = {tensors[name].dtype for name in ("q", "k", "v")}
    rounds, kept = kinds == {torch.bfloat16}, ("q", "k", "v") if _reads_halves_directly(kinds, tensors) else ()
    single = [x.float() if x.dtype in HALVES and name not in kept else x for name, x in tensors.items()]
    out, lse = attend((" ".join(tensors), *options, rounds), *single)
    return out.to(dtype), lse


def _checked_seed(seed: Any) -> Any:
    """Return the seed of dropout: a checked integer, or a tensor, which is checked when the operator runs."""
    if _is_compiling() or isinstance(seed, torch.Tensor):
        return seed
    return np.uint64(validation.seed("dropout_seed", seed))  # NumPy could choose a dtype that PyTorch does not have


_NAMES_IN_ERRORS = {"query_lengths": "lengths of queries", "key_lengths": "lengths of keys"}
_INTEGERS = ("spans", "query_start", "index", *_NAMES_IN_ERRORS.values())


def _largest(given: Mapping[str, Any]) -> dict[str, int]:
    """Return upper limits of integer arguments. Errors about shapes are left to `fastpe.attention`."""
    n, m = (given[name].shape[-2] if given[name].ndim > 1 else LARGEST for name in ("q", "k"))
    values = getattr(given.get("values"), "shape", ())
    return {
        "query_start": FARTHEST, "query_lengths": n, "key_lengths": m,
        "index": values[-1] - 1 if values and values[-1] else LARGEST,
    }  # fmt: skip


def _reads_halves_directly(kinds: set[torch.dtype], tensors: dict[str, torch.Tensor]) -> bool:
    """Whether kernels read q, k and v of half precision directly. They do not if autograd observes the call, because
    gradients are computed in float32.

    With many queries, kernels read only bfloat16 directly, because products round to bfloat16 anyway. float16 is first
    converted to float32 by PyTorch, which is faster than the conversion here, because PyTorch uses all threads.
    """
    q = tensors["q"]
    if _is_compiling() or len(kinds) > 1 or (torch.float16 in kinds and q.ndim > 1 and q.shape[-2] > FEW):
        return False
    if is_seen(tuple(tensors.values())):
        return False
    return all(kind in HALVES and has_arrays(kind) for kind in kinds)


def _options(
    causal: bool, window: Any, softcap: Any, dropout: Any, tolerance: Any, pairs: Any, rectify: Any
) -> tuple[Any, ...]:
    """Return the options of the operator after the names, in types that it supports. In compiled code they are not
    checked here, but when the operator runs."""
    if not _is_compiling():
        causal, rectify = truth("causal", causal), rectify is not None and truth("rectify", rectify)
        window = None if window is None else whole("window", window, 1)
        softcap = None if softcap is None else soft_cap("softcap", softcap)
        dropout = at_least_zero("dropout", dropout, below=1.0)
        tolerance = None if tolerance is None else checked_tolerance(tolerance, np.dtype(np.float64))
        if pairs is not None and not isinstance(pairs, str):
            raise TypeError(f"pairs must be 'interleaved' or 'half', not {shown(pairs)}")
    return causal, window, softcap, dropout, tolerance, pairs or "interleaved", bool(rectify)


def _tensor(name: str, value: Any, most: int = LARGEST) -> torch.Tensor:
    """Return a value as a tensor on the CPU. Values that are not tensors are converted, sharing memory if possible.

    Converted tensors need no gradient. `most` is the largest allowed integer.
    """
    compiling = _is_compiling()
    if not compiling and type(value) is torch.Tensor and is_dense_on_cpu(value):
        return value
    if not isinstance(value, torch.Tensor):
        if compiling:
            return torch.as_tensor(value, dtype=torch.float64 if isinstance(value, float) else None)
        # NumPy would not make an integer array of a list of large integers
        if name in _INTEGERS or name.endswith(".spans"):
            found = validation.integers(name, value, 0, most, clipped=name.endswith("spans"))
        else:
            found = validation.array(name, value, "numbers", "biuf")
        if not found.flags.writeable or not found.dtype.isnative or min(found.strides, default=0) < 0:
            # PyTorch supports neither read-only memory nor other byte orders nor negative strides
            found = np.array(found, found.dtype.newbyteorder("="))
        try:
            return torch.from_numpy(found)
        except TypeError as error:
            raise TypeError(f"{name} must have a dtype that PyTorch supports, not {found.dtype}") from error
    if not compiling:
        unmasked(name, value, "its values, as to_tensor gives them")
    if value.device.type != "cpu":
        raise TypeError(f"{name} must be in CPU memory, not on the device {value.device}")
    if value.is_nested:
        raise TypeError(f"{name} must be a dense tensor, not a nested one")
    if value.layout != torch.strided:
        raise TypeError(f"{name} must be a dense tensor, not one of {value.layout}")
    return value


def _as_many_samples(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return q, k and v with the same number of samples. Return an empty dict if there is nothing to change, or if
    their shapes are wrong."""
    own = {name: tensors[name] for name in ("q", "k", "v")}
    leads = {x.shape[:-3] for x in own.values()}
    if len(leads) == 1 or any(x.ndim not in (3, 4) for x in own.values()):
        return {}
    sizes = {lead[0] for lead in leads if lead} - {1} or {1}
    if len(sizes) > 1:
        return {}  # `fastpe.attention` raises the error
    return {name: x.expand(*sizes, *x.shape[-3:]) for name, x in own.items()}


def _common_dtype(tensors: dict[str, torch.Tensor]) -> torch.dtype:
    """Return the dtype of the output, after checking that q, k and v have one dtype."""
    dtype = tensors["q"].dtype
    lowered = torch.is_autocast_enabled("cpu") and dtype != torch.float64
    for name in ("k", "v"):
        own = tensors[name].dtype
        if own != dtype and not (lowered and own in (torch.float32, *HALVES)):
            raise TypeError(f"{name} must have the dtype of q, {dtype}, not {own}")
    return torch.get_autocast_dtype("cpu") if lowered else dtype
