"""Tracing: a mod is run once, on scalars, and its operations become an expression."""

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from threading import Lock, RLock
from typing import Any

import torch
from torch.fx import Node
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode  # PyTorch has it only here
from torch.utils._pytree import tree_leaves

from fastpe.torch.mods import expression
from fastpe.torch.mods.captured import Changeable, captured
from fastpe.torch.mods.expression import INDICES, Expr, aten

_MOST_KEPT = 256
_READS = {  # what they return is a constant of the expression, so a mod that calls them is traced in each call
    torch.Tensor.numpy, torch.Tensor.tolist, torch.Tensor.data_ptr, torch.Tensor.__array__,
    *(getattr(torch.Tensor, name).__get__ for name in ("data", "grad")),
}  # fmt: skip


@dataclass(frozen=True)
class Traced:
    """A mod: its result as an expression, and the captured tensors of this call, in the order of their numbers.

    `memo` is shared by all calls of mods with the same key, and is None for a mod that is traced in each call.
    """

    name: str
    result: Expr
    tensors: Sequence[torch.Tensor]
    memo: dict[Hashable, Any] | None

    @property
    def is_constant(self) -> bool:
        """Whether the mod captures no tensors of the caller and has been traced for good."""
        return self.memo is not None and self.memo["captures"] == 0


@dataclass
class _Kept:
    result: Expr
    places: list[int | None]  # the place of a captured tensor in the list of `captured`, or None for a constant
    constants: list[torch.Tensor]
    memo: dict[Hashable, Any] = field(default_factory=dict)


_none = torch.empty(0)
_kept: OrderedDict[Hashable, _Kept] = OrderedDict()
_lock, _tracing = Lock(), RLock()  # PyTorch's tracer is for one thread at a time


def called(mod: Any, argument: str) -> str:
    """Return how errors name a mod."""
    if not callable(mod):
        raise TypeError(f"{argument} must be callable, not {type(mod).__name__}")
    name = getattr(mod, "__name__", type(mod).__name__)
    return f"{argument} {name!r}"


def trace(mod: Callable[..., Any], dtype: torch.dtype | None, name: str) -> Traced:
    """Return a score_mod, whose score has this dtype, or a mask_mod if `dtype` is None. `name` is used in errors.

    Raises
    ------
    ValueError
        If the mod reads values of its arguments in Python, draws random numbers, writes to a tensor, or does not return
        a scalar tensor.
    """
    try:
        key, own = captured(mod)
        key = (key, dtype)
        hash(key)
    except (Changeable, TypeError):  # TypeError: a value that has no hash
        key, own = None, []
    with _lock:
        kept = _kept.get(key) if key is not None else None
    if kept is None:
        with _tracing:
            result, tensors, reads_values = _trace(mod, dtype, name)
        if key is None or reads_values:
            return Traced(name, result, tensors, None)
        numbers = {id(x): place for place, x in enumerate(own)}
        places = [numbers.get(id(x)) for x in tensors]
        kept = _Kept(result, places, [x if at is None else _none for at, x in zip(places, tensors, strict=True)])
        kept.memo["captures"] = len(own)
        with _lock:
            _kept[key] = kept
            while len(_kept) > _MOST_KEPT:
                _kept.popitem(last=False)
    tensors = [x if at is None else own[at] for at, x in zip(kept.places, kept.constants, strict=True)]
    return Traced(name, kept.result, tensors, kept.memo)


def _trace(mod: Callable[..., Any], dtype: torch.dtype | None, name: str) -> tuple[Expr, list[torch.Tensor], bool]:
    """Return the result, the captured tensors, and whether the mod reads values of tensors, which become constants."""
    watch, indexing = _Watch(name), _Indexing()

    def scalar(*given: torch.Tensor) -> torch.Tensor:
        watch.of_arguments += given
        with indexing, watch:
            found = mod(*given)
        if not isinstance(found, torch.Tensor) or found.ndim:
            what = f"a tensor of shape {tuple(found.shape)}" if isinstance(found, torch.Tensor) else repr(type(found))
            raise ValueError(f"{name} must return a scalar tensor, not {what}")
        if dtype is None and found.dtype != torch.bool:
            raise ValueError(f"{name} must return a bool tensor, not {found.dtype}")
        return found

    letters = ["s", *INDICES] if dtype is not None else [*INDICES]
    kinds = [dtype or torch.int64, *[torch.int64] * 4][-len(letters) :]
    with torch.autocast("cpu", enabled=False), torch.inference_mode(False):
        graph = make_fx(scalar)(*(torch.zeros((), dtype=kind) for kind in kinds))
    return *_read(graph, dict(zip(letters, kinds, strict=True))), watch.reads_values or indexing.reads_values


class _Indexing(TorchFunctionMode):
    """Record ``table[i]``, for scalar tensors i, as `aten.index`: Python would read the value of i.

    ``table[i][j]`` becomes ``table[i, j]``.
    """

    def __init__(self) -> None:
        super().__init__()
        self.reads_values = False
        self._parts: dict[int, tuple[torch.Tensor, torch.Tensor, list[Any]]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.reads_values |= func in _READS
        if func is not torch.Tensor.__getitem__:
            return func(*args, **(kwargs or {}))
        table, given = args
        at = list(given) if isinstance(given, tuple) else [given]
        while at and _is_all(at[-1]):
            at.pop()
        if not at or not all(_is_all(x) or _is_scalar(x) for x in at):
            return func(*args)
        if id(table) in self._parts:
            _, table, first = self._parts[id(table)]
            rest = iter(at)
            at = [next(rest, slice(None)) if _is_all(x) else x for x in first] + list(rest)
        if not any(isinstance(x, torch.Tensor) for x in at):
            found = func(*args)
        else:
            found = aten.index(table, [None if _is_all(x) else torch.as_tensor(x) for x in at])
        self._parts[id(found)] = found, table, at
        return found


def _is_all(x: Any) -> bool:
    return isinstance(x, slice) and x == slice(None)


def _is_scalar(x: Any) -> bool:
    if isinstance(x, torch.Tensor):
        return x.ndim == 0 and not x.dtype.is_floating_point and x.dtype != torch.bool
    return isinstance(x, int) and not isinstance(x, bool)


class _Watch(TorchDispatchMode):
    """Refuse operations that an expression cannot repeat, and note if Python reads values of captured tensors."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name, self.reads_values = name, False
        self.of_arguments: list[torch.Tensor] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        depends = any(x is own for x in tree_leaves((args, kwargs)) for own in self.of_arguments)
        if func._schema.is_mutable:
            raise ValueError(f"{self.name} must not write to tensors, as {func} does")
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise ValueError(f"{self.name} must not draw random numbers, as {func} does")
        if func is not aten._local_scalar_dense.default:
            found = func(*args, **(kwargs or {}))
            if depends:
                self.of_arguments += [x for x in tree_leaves(found) if isinstance(x, torch.Tensor)]
            return found
        if depends:
            raise ValueError(
                f"{self.name} must not read the values of its arguments in Python, as `if`, int() and .item() do: use "
                "torch.where"
            )
        self.reads_values = True
        value = args[0].tolist()  # `func` would be refused by the tracer
        while isinstance(value, list):
            (value,) = value
        return value


def _read(graph: torch.fx.GraphModule, kinds: dict[str, torch.dtype]) -> tuple[Expr, list[torch.Tensor]]:
    """Return the output of a graph whose inputs are the letters of `kinds`, and the captured tensors."""
    graph.graph.eliminate_dead_code()
    letters = iter(kinds.items())
    known: dict[Node, Expr] = {}
    tensors: list[torch.Tensor] = []
    for node in graph.graph.nodes:
        if node.op == "placeholder":
            known[node] = expression.letter(*next(letters))
        elif node.op == "get_attr":
            own = getattr(graph, node.target)
            known[node] = expression.captured(len(tensors), own)
            tensors.append(own)
        elif node.op == "call_function":
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), known.__getitem__)
            value = node.meta.get("val")
            dtype = value.dtype if isinstance(value, torch.Tensor) else None
            known[node] = expression.apply(node.target, *args, result=dtype, **kwargs)
        else:
            return known[node.args[0]], tensors
    raise AssertionError("a graph has an output")
