"""What a mod captures: the tensors, and a key that is equal for two mods that compute the same from their tensors."""

import functools
import types
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

_BY_VALUE = (int, float, complex, bool, str, bytes, type(None), type(...), torch.dtype, torch.device)
_STABLE = ("torch", "math", "operator", "_operator", "builtins")


@dataclass(frozen=True)
class Lifted:
    """A mod that the compiler has turned into a graph, whose last inputs are the captured tensors."""

    graph: Callable[..., torch.Tensor]
    inputs: tuple[Any, ...]

    def __call__(self, *given: torch.Tensor) -> torch.Tensor:
        """Return the value of the graph."""
        return self.graph(*given, *self.inputs)


class Changeable(Exception):
    """A mod captures an object whose content cannot be compared."""


def captured(mod: Callable[..., Any]) -> tuple[Hashable, list[torch.Tensor]]:
    """Return a key of the mod, and the tensors that it captures.

    Two mods with equal keys run the same code with the same numbers and strings, on tensors with the same shapes and
    dtypes. Their tensors, in the order of the lists, may differ.

    Raises
    ------
    Changeable
        If the mod captures anything else than tensors, numbers, strings, functions, and modules and classes of PyTorch
        and of Python's mathematics.
    """
    tensors: list[torch.Tensor] = []
    numbers: dict[int, int] = {}
    key = tuple(_key(mod, tensors, numbers, {}))
    return (torch.get_default_dtype(), *key), tensors


def _key(value: Any, tensors: list[torch.Tensor], numbers: dict[int, int], met: dict[int, int]) -> Iterator[Hashable]:
    kind = type(value)
    if kind is torch.Tensor or kind is torch.nn.Parameter:
        if id(value) not in numbers:
            numbers[id(value)] = len(tensors)
            tensors.append(value)
        yield numbers[id(value)], kind, value.shape, value.stride(), value.dtype, value.device, value.requires_grad
    elif kind in _BY_VALUE:
        yield kind, repr(value) if kind is float else value  # repr: 0.0 and -0.0 differ, and NaN equals itself
    elif _is_stable(value):
        yield value
    elif kind is types.FunctionType:
        if id(value) in met:
            yield "again", met[id(value)]
            return
        met[id(value)] = len(met)
        yield value.__code__
        names, own = (tuple(each.items()) for each in (value.__kwdefaults__ or {}, vars(value)))
        for each in (value.__defaults__ or (), names, own, _contents(value), _globals(value)):
            yield from _key(each, tensors, numbers, met)
    elif kind is Lifted:
        yield value.graph
        yield from _key(value.inputs, tensors, numbers, met)
    elif kind is functools.partial:
        yield functools.partial
        for each in (value.func, value.args, tuple(value.keywords.items()), tuple(vars(value).items())):
            yield from _key(each, tensors, numbers, met)
    elif kind is tuple:
        yield tuple, len(value)
        for each in value:
            yield from _key(each, tensors, numbers, met)
    else:
        raise Changeable(kind.__name__)


def _is_stable(value: Any) -> bool:
    """Whether a value is a module, a class, or a function without captures, of PyTorch or of Python's mathematics."""
    if isinstance(value, types.ModuleType):
        name = value.__name__
    elif isinstance(value, type):
        name = value.__module__
    elif isinstance(value, types.BuiltinFunctionType):  # also methods of objects, such as those of a dict
        if value.__self__ is None:  # functions of PyTorch
            return getattr(torch, value.__name__, None) is value
        return isinstance(value.__self__, types.ModuleType | type) and _is_stable(value.__self__)
    elif isinstance(value, types.FunctionType) and value.__closure__ is None:
        name = value.__globals__.get("__name__", "")  # not __module__, which functools.wraps copies
    else:
        return False
    return str(name).partition(".")[0] in _STABLE


def _contents(function: types.FunctionType) -> tuple[Any, ...]:
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # a variable that is not assigned yet
            raise Changeable("an empty cell") from None
    return tuple(found)


def _globals(function: types.FunctionType) -> tuple[tuple[str, Any], ...]:
    own = function.__globals__
    return tuple((name, own[name]) for name in _names(function.__code__) if name in own)


@functools.lru_cache(1024)
def _names(code: types.CodeType) -> tuple[str, ...]:
    """Return the names of globals and attributes in a function and in those inside it."""
    inner = (each for each in code.co_consts if isinstance(each, types.CodeType))
    return tuple(sorted(set(code.co_names).union(*map(_names, inner))))
