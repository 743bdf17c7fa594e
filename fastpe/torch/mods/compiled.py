"""`flex_attention` under `torch.compile`: an operator that PyTorch's compiler does not look into.

This module uses private names of PyTorch; `attention` works without it.

PyTorch's compiler turns mods into graphs whose captured tensors are inputs, for its own `flex_attention`. The same code
of the compiler is used here. The graphs are kept under a random name, which is an argument of the operator.
"""

import uuid
from collections.abc import Hashable, Sequence
from typing import Any, NamedTuple

import torch
from torch._dynamo.variables import higher_order_ops as compiler
from torch._ops import HigherOrderOperator
from torch.nn.attention.flex_attention import BlockMask, _create_empty_block_mask, _identity
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from fastpe.torch.mods import checks, ways
from fastpe.torch.mods.captured import Lifted
from fastpe.torch.operators import differentiable


class _Graphs(NamedTuple):
    """The graphs of score_mod and mask_mod, and how their inputs are joined to a list."""

    score: Any
    mask: Any
    spec: TreeSpec
    leaves: tuple[Any, ...]  # constants; `_TENSOR` or `_NUMBER` for the next one of a list


_LISTS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")
_TENSOR, _NUMBER = object(), object()
# Inside an operator, autograd and torch.vmap are off. With these they work as they do here.
_OUTSIDE = torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set()
_keys = torch._C._ForceDispatchKeyGuard
_variables = compiler._hop_name_to_variable_class
_kept: dict[str, _Graphs] = {}
_names: dict[Hashable, str] = {}


def attend(
    q: Any, k: Any, v: Any, score_mod: Any, block_mask: Any, scale: Any, enable_gqa: bool, fallback: str
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return output and lse, in code that the compiler reads. Arguments are checked when the operator runs."""
    q, k, v = checks.lowered(q, k, v)
    score_mod = _identity if score_mod is None else score_mod
    block_mask = _create_empty_block_mask(q, k) if block_mask is None else block_mask
    options = {"scale": scale, "enable_gqa": enable_gqa, "fallback": fallback}
    lists = [getattr(block_mask, name) for name in _LISTS]
    block = (*block_mask.seq_lengths, *block_mask.BLOCK_SIZE, *lists, block_mask.mask_mod)
    found: tuple[torch.Tensor, torch.Tensor] = _traced(q, k, v, score_mod, block, scale, options)
    return found


class _Traced(HigherOrderOperator):
    def __init__(self) -> None:
        super().__init__("fastpe_flex_attention")

    def __call__(
        self, q: Any, k: Any, v: Any, score: Any, block_mask: Any, scale: Any, options: Any, of_score: Any = (),
        of_mask: Any = (),
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """Call the operator with the graphs that the compiler made."""
        leaves, spec = tree_flatten((block_mask[:-1], tuple(of_score), tuple(of_mask)))
        kinds = tuple(map(_kind, leaves))
        tensors, numbers = (
            [x for x, kind in zip(leaves, kinds, strict=True) if kind is own] for own in (_TENSOR, _NUMBER)
        )
        constants = tuple((type(x), repr(x)) for x in kinds)  # not x itself: 1.0 equals True
        key = score, block_mask[-1], spec, constants
        if key not in _names:
            name = uuid.uuid4().hex  # not a number: compiled code that is stored may be loaded elsewhere
            _kept[name] = _Graphs(score, block_mask[-1], spec, kinds)
            _names[key] = name  # last, for other threads
        return tuple(
            _operator(
                [q, k, v, *tensors], numbers, _names[key], options["scale"], options["enable_gqa"], options["fallback"]
            )
        )


def _kind(x: Any) -> Any:
    """Return `_TENSOR`, `_NUMBER`, or a constant."""
    if isinstance(x, torch.Tensor):
        return _TENSOR
    return _NUMBER if isinstance(x, int | torch.SymInt) and not isinstance(x, bool) else x


_traced = _Traced()
_variables["fastpe_flex_attention"] = compiler.FlexAttentionHigherOrderVariable  # else the compiler refuses the call


def _run(
    tensors: Sequence[torch.Tensor], numbers: Sequence[int], name: str, scale: float | None, enable_gqa: bool,
    fallback: str,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    graphs = _kept[name]
    (q, k, v), rest, counts = tensors[:3], iter(tensors[3:]), iter(numbers)
    leaves = [next(rest) if x is _TENSOR else next(counts) if x is _NUMBER else x for x in graphs.leaves]
    block, of_score, of_mask = tree_unflatten(leaves, graphs.spec)
    score_mod = Lifted(graphs.score, of_score)
    mask = BlockMask.from_kv_blocks(
        *block[4:], seq_lengths=block[:2], BLOCK_SIZE=block[2:4], mask_mod=Lifted(graphs.mask, of_mask),
    )  # fmt: skip
    call = checks.checked(q, k, v, mask, scale, enable_gqa)
    return ways.attended(call, score_mod, mask, fallback)


@torch.library.custom_op("fastpe::flex_attention", mutates_args=())
def _operator(
    tensors: Sequence[torch.Tensor], numbers: Sequence[int], name: str, scale: float | None, enable_gqa: bool,
    fallback: str,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    with _keys(*_OUTSIDE), torch.no_grad():
        out, lse = _run([x.detach() for x in tensors], numbers, name, scale, enable_gqa, fallback)
    return out.contiguous(), lse.contiguous()


@torch.library.custom_op("fastpe::flex_attention_backward", mutates_args=())
def _gradients(
    douts: Sequence[torch.Tensor | None], outputs: Sequence[torch.Tensor], wanted: Sequence[bool],
    tensors: Sequence[torch.Tensor], numbers: Sequence[int], name: str, scale: float | None, enable_gqa: bool,
    fallback: str,
) -> list[torch.Tensor]:  # fmt: skip
    with _keys(*_OUTSIDE), torch.enable_grad():
        own = [x.detach().requires_grad_(wants) for x, wants in zip(tensors, wanted, strict=True)]
        found = _run(own, numbers, name, scale, enable_gqa, fallback)
        pairs = [(x, dx) for x, dx in zip(found, douts, strict=True) if dx is not None and x.requires_grad]
        leaves = [x for x, wants in zip(own, wanted, strict=True) if wants]
        gradients: Sequence[torch.Tensor | None] = [None] * len(leaves)
        if pairs:
            outs, back = zip(*pairs, strict=True)
            gradients = torch.autograd.grad(outs, leaves, back, allow_unused=True)
    return [torch.zeros_like(x) if dx is None else dx.contiguous() for x, dx in zip(leaves, gradients, strict=True)]


@_operator.register_fake
def _outlines(tensors: Sequence[torch.Tensor], *rest: Any) -> tuple[torch.Tensor, torch.Tensor]:
    q, _, v = tensors[:3]
    return q.new_empty((*q.shape[:-1], v.shape[-1])), q.new_empty(q.shape[:-1], dtype=checks.scores_dtype(q))


@_gradients.register_fake
def _gradient_outlines(
    douts: Any, outputs: Any, wanted: Sequence[bool], tensors: Sequence[torch.Tensor], *rest: Any
) -> list[torch.Tensor]:
    return [x.new_empty(x.shape) for x, wants in zip(tensors, wanted, strict=True) if wants]


differentiable(_operator, _gradients, "flex_attention", keeps=False)
