"""`flex_attention`, `flex_report` and `flex`: the public functions."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.attention import flex_attention as pytorch
from torch.nn.attention.flex_attention import BlockMask

from fastpe.torch.mods import rows
from fastpe.torch.mods.block_mask import create_block_mask
from fastpe.torch.mods.checks import check_options, checked
from fastpe.torch.mods.ways import attended, way_of

compiled: Any = None
"""The operator under `torch.compile`. It uses private names of PyTorch, as there are no public ones for functions among
the arguments of an operator. Where a version of PyTorch lacks them, a compiled function calls `flex_attention` outside
of its graph, and ``fullgraph=True`` raises PyTorch's error."""
with contextlib.suppress(ImportError, AttributeError):
    from fastpe.torch.mods import compiled


@dataclass(frozen=True)
class FlexReport:
    """How `flex_attention` computes a call.

    Attributes
    ----------
    way : str
        "slots": one call of `fastpe.torch.attention`, in O(N) memory unless there is a mask of queries and keys or the
        slot "index". "chunks": a call for each chunk of queries, with arrays of the chunk and all keys. "fallback":
        PyTorch computes all scores of one chunk after the other.
    slots : tuple of str
        The slots and options of `fastpe.torch.attention` that are used; "mask" if numbers for each query and key are
        added.
    spans : bool
        Whether `spans`, an interval of keys for each query, determines which keys are seen.
    masks : bool
        Whether a mask with an entry for each query and key hides keys.
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
        whole = self.masks or "index" in self.slots
        words = {
            "slots": f"fastpe's kernels, {'with arrays of all queries and keys' if whole else 'in O(N) memory'}",
            "chunks": f"fastpe's kernels, {self.rows} queries at a time",
            "fallback": f"PyTorch, {self.rows} queries at a time",
        }
        lines = [f"{self.way}: {words[self.way]}"]
        lines += [f"slots: {', '.join(self.slots)}"] * bool(self.slots)
        seen = "a span of keys for each query" * self.spans, "a mask of queries and keys" * self.masks
        lines += [f"hidden keys: {' and '.join(filter(None, seen))}"] * any(seen)
        return "\n".join([*lines, *(f"because: {each}" for each in self.reasons)])


def flex_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, score_mod: Callable[..., torch.Tensor] | None = None,
    block_mask: BlockMask | None = None, scale: float | None = None, enable_gqa: bool = False,
    return_lse: bool = False, kernel_options: Any = None, *, return_aux: Any = None, fallback: str = "chunks",
) -> Any:  # fmt: skip
    """PyTorch's `flex_attention
    <https://docs.pytorch.org/docs/stable/nn.attention.flex_attention.html>`_ on a CPU, with gradients.

    fastpe calls a score_mod or mask_mod once with scalars to find its operations. Biases by offset, ALiBi, soft caps,
    factors, windows, documents and padding become slots of `attention`, in O(N) memory. If a score_mod adds a number
    for each pair of a query and a key, these numbers are computed for one chunk of queries at a time. Other functions
    of the score are computed by PyTorch, for one chunk of queries at a time.

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
        Options of PyTorch's kernels. They are ignored, except that a `BACKEND` that needs a GPU raises an error.
    return_aux : torch.nn.attention.flex_attention.AuxRequest, optional
        Which other results to return. `max_scores` is not available on a CPU.
    fallback : str
        "chunks": PyTorch computes functions that cannot become slots. "error": such functions raise an error.

    Returns
    -------
    out : (B, H, N, Dv) tensor
        In the dtype of `query`; under `torch.autocast`, in autocast's dtype. Zero for queries that see no key.
    aux : torch.nn.attention.flex_attention.AuxOutput
        Only with `return_aux`: `lse` is a (B, H, N) tensor, float32 if `query` has half precision.

    Raises
    ------
    TypeError
        If an argument has the wrong type.
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
    **Mods** (a score_mod or mask_mod) may capture tensors, numbers, strings, functions, and modules and classes of
    PyTorch. A mod is traced again if one of these objects is replaced by a different one, and in every call if it
    captures any other kind of object. The values of a captured tensor may always change. A mod must not read values in
    Python (use `torch.where` instead of ``if``), write to tensors, or draw random numbers. Only minus infinity hides a
    key: a query all of whose scores are -1e9 returns the mean of the values.

    **Memory.** `flex_report` tells how a call is computed. Functions that PyTorch computes take about ten times as
    long, with as much memory as a chunk needs.

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
    check_options(return_lse, kernel_options, return_aux, fallback)
    if torch.compiler.is_compiling() and compiled is not None:
        out, lse = compiled.attend(query, key, value, score_mod, block_mask, scale, enable_gqa, fallback)
    else:
        out, lse = _outside_graphs(query, key, value, score_mod, block_mask, scale, enable_gqa, fallback)
    if return_aux is not None:
        return out, pytorch.AuxOutput(lse=lse if return_aux.lse else None, max_scores=None)
    return (out, lse) if return_lse else out


@torch.compiler.disable
def _outside_graphs(
    query: Any, key: Any, value: Any, score_mod: Any, block_mask: Any, scale: Any, enable_gqa: Any, fallback: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return output and lse."""
    return attended(checked(query, key, value, block_mask, scale, enable_gqa), score_mod, block_mask, fallback)


def flex_report(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, score_mod: Callable[..., torch.Tensor] | None = None,
    block_mask: BlockMask | None = None, scale: float | None = None, enable_gqa: bool = False,
    return_lse: bool = False, kernel_options: Any = None, *, return_aux: Any = None, fallback: str = "chunks",
) -> FlexReport:  # fmt: skip
    """Return how `flex_attention` computes a call with these arguments, without computing it.

    Parameters
    ----------
    query, key, value, score_mod, block_mask, scale, enable_gqa
        As for `flex_attention`.
    return_lse, kernel_options, return_aux, fallback
        As for `flex_attention`. They are checked, and change nothing in the report.

    Returns
    -------
    report : FlexReport
        The way, the slots, and the reasons why memory is not O(N). ``print(report)`` says it in words.

    Raises
    ------
    TypeError, ValueError, IndexError, NotImplementedError, RuntimeError
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
    check_options(return_lse, kernel_options, return_aux, fallback)
    call = checked(query, key, value, block_mask, scale, enable_gqa)
    way = way_of(call, score_mod, block_mask)
    if way.plan is None:
        return FlexReport("fallback", (), False, False, rows.fallback_chunks(call.sizes)[0].stop, way.reasons)
    own = way.plan
    options = {"softcap": own.softcap, "rectify": own.rectify, "scores": own.scores, "mask": own.added}
    used = {*own.slots, *(name for name, value in options.items() if value)}
    in_chunks = own.added or own.scores or not own.sight.is_known
    parts = rows.chunks(own)
    return FlexReport(
        "chunks" if in_chunks else "slots", tuple(sorted(used)), own.sight.spans is not None, bool(own.sight.masks),
        parts[0].stop if parts else 0, way.reasons,
    )  # fmt: skip


@contextlib.contextmanager
def flex() -> Iterator[None]:
    """Replace PyTorch's `flex_attention` and `create_block_mask` by fastpe's functions inside a ``with`` block.

    The functions are replaced in all modules that have imported them, for all threads. A module that is imported inside
    the block keeps fastpe's functions.

    A function that was compiled before the block, for example by ``torch.compile(flex_attention)``, still calls
    PyTorch's `flex_attention`. If a module compiles `flex_attention` on import, import that module inside the block.

    Examples
    --------
    >>> import torch
    >>> from torch.nn.attention import flex_attention as pytorch
    >>> q = torch.ones(1, 1, 3, 4, requires_grad=True)
    >>> with flex():
    ...     pytorch.flex_attention(q, q, q).sum().backward()
    """
    pairs = (pytorch.flex_attention, flex_attention), (pytorch.create_block_mask, create_block_mask)
    places = [place for original, own in pairs for place in replace(original, own)]
    try:
        yield
    finally:
        for module, name, original in places:
            setattr(module, name, original)


def replace(one: Any, other: Any) -> list[tuple[Any, str, Any]]:
    """Replace a function by another in all modules. Return the modules, the names there, and the function."""
    if one is other:
        return []
    places = [
        (module, name, one)
        for module in list(sys.modules.values())
        for name, each in list(getattr(module, "__dict__", {}).items())
        if each is one
    ]
    for module, name, _ in places:
        setattr(module, name, other)
    return places
