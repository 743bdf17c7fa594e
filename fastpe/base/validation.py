"""What callers hand in, checked: numbers, names and arrays. Every error names the argument and what was expected.

Importing this module imports neither NumPy nor Numba.
"""

from __future__ import annotations

import difflib
import functools
import inspect
import math
import numbers
import operator
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fastpe.base import memory

if TYPE_CHECKING:
    import numpy as np

Target = TypeVar("Target", bound=Callable[..., Any])

_MOST_NAMED = 12  # names that an error lists
_FLAT = (str, bytes, bytearray, memoryview, range)  # sequences that can hold no array
_FLOATS = {"float32", "f4", "f", "single", "float64", "f8", "d", "double", "float"}
_SINGLE = {int, float, bool, str, type(None)}
_MASKED = (("numpy.ma", "MaskedArray"), ("torch.masked", "MaskedTensor"))
_CPU_DEVICES = (1, 3, 11, 13)  # of DLPack: plain memory, and what CUDA or ROCm pins or manages for the host


def whole(name: str, value: Any, minimum: int | None = None) -> int:
    """The value as an int.

    >>> whole("heads", 4, 1)
    4
    """
    unmasked(name, value)
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an integer, not {value!r}") from None
    if minimum is not None and number < minimum:
        raise ValueError(f"{name} must be at least {minimum}, not {number}")
    return number


def truth(name: str, value: Any) -> bool:
    """The value, which must be True or False, Python's or NumPy's.

    >>> truth("causal", True)
    True
    """
    unmasked(name, value)
    of_numpy = str(getattr(value, "dtype", "")) == "bool" and value.shape == ()
    if not isinstance(value, bool) and not of_numpy:
        raise TypeError(f"{name} must be True or False, not {value!r}")
    return bool(value)


def choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """The value, one of a few words.

    >>> choice("norm", "none", ("none", "layernorm"))
    'none'
    """
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be {' or '.join(choices)}, not {value!r}")
    return str(value)


def real(name: str, value: Any) -> float:
    """The value, a finite real number, as a float.

    >>> real("start", 4)
    4.0
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise TypeError(f"{name} must be a number, not {value!r}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name} must be finite, but it is larger than any float64") from None
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, not {number}")
    return number


def positive(name: str, value: Any, dtype: Any = "float64") -> float:
    """The value, a finite number above 0, in a dtype too, as a float."""
    number = real(name, value)
    if number <= 0 or (str(dtype) == "float32" and number <= 2.0**-150):
        raise ValueError(f"{name} must be above 0{'' if number <= 0 else ' in float32'}, not {number}")
    return number


def at_least_zero(name: str, value: Any, below: float = math.inf) -> float:
    """The value, a finite number of at least 0, and below a limit, as a float."""
    if not 0 <= (number := real(name, value)) < below:
        limit = f"lie in [0, {below:g})" if below < math.inf else "be at least 0"
        raise ValueError(f"{name} must {limit}, not {number}")
    return abs(number)  # -0.0 is stored otherwise than 0.0


def room(what: str, size: int, verb: str = "needs") -> None:
    """Raise if `size` bytes for `what` are more than this machine has, before anybody asks the system for them."""
    if size > (memory := _memory()):
        raise ValueError(f"{what} {verb} {size / 1e9:,.1f} GB, and this machine has {memory / 1e9:,.1f} GB of memory")


def _memory() -> int:
    """Bytes of memory of this machine, or all that can be addressed where the system does not tell."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return sys.maxsize


def nearest(name: str, known: Iterable[str], listed: str = "", also: Iterable[str] = ()) -> str:
    """A clause for an error message that offers the names closest to `name`.

    If none is close, it names all of them, or where there are more than 12, what lists them: `listed`. Names in `also`
    are offered too, but not listed.

    >>> nearest("wavlet", ["alibi", "wavelet"]), nearest("x", ["alibi", "wavelet"])
    ("did you mean 'wavelet'?", 'known: alibi, wavelet')
    >>> nearest("0", map(str, range(100, 200)), "help() lists them")
    'help() lists them'
    """
    known = sorted(known) if isinstance(known, set | frozenset) else list(known)
    close = difflib.get_close_matches(name, [*known, *also], n=3, cutoff=0.5)
    if close:
        alike = {each: difflib.SequenceMatcher(a=each, b=name).ratio() for each in close}
        return f"did you mean {' or '.join(repr(each) for each in close if alike[each] > max(alike.values()) - 0.15)}?"
    if len(known) > _MOST_NAMED:
        return listed or f"known: {', '.join(known[:_MOST_NAMED])}, ..."
    return f"known: {', '.join(known)}" if known else "none is known"


def named_arguments(target: Target) -> Target:
    """A function or a class whose TypeError for an unknown keyword argument offers the nearest name.

    The signature stays the same. From Python 3.13 on, Python itself does so for functions that are written in Python.

    >>> @named_arguments
    ... def trained(*, epochs=1): ...
    >>> trained(epoch=3)
    Traceback (most recent call last):
        ...
    TypeError: trained has no argument 'epoch'; did you mean 'epochs'?
    """
    if not isinstance(target, type):
        return _named_arguments(target, target.__name__)
    target.__init__ = _named_arguments(target.__init__, target.__name__)  # type: ignore[misc] # as dataclass does
    return target


def _named_arguments(call: Any, name: str) -> Any:
    known = [each for each in inspect.signature(call).parameters if each != "self"]

    @functools.wraps(call)
    def checked(*args: Any, **keywords: Any) -> Any:
        for keyword in keywords:
            if keyword not in known:
                near = nearest(keyword, known, f"help({name}) lists them")
                raise TypeError(f"{name} has no argument {keyword!r}; {near}")
        return call(*args, **keywords)

    return checked


def path(name: str, value: Any) -> Path:
    """The path of a file or folder."""
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        raise TypeError(f"{name} must be a path, as a str or pathlib.Path, not {value!r}")
    return Path(value)


def instance(name: str, value: Any, kind: type, example: str) -> None:
    """Raise unless the value is of this class; `example` shows how one is made."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, as in {example}, not {value!r}")


def floating(dtype: Any) -> np.dtype:
    """The dtype, which must be float32 or float64 in the machine's byte order."""
    import numpy as np

    try:
        # NumPy takes None for float64, and warns of some names of types that are refused here anyway
        unknown = dtype is None or (isinstance(dtype, str) and dtype.lstrip("<>=|") not in _FLOATS)
        given = None if unknown else np.dtype(dtype)
    except TypeError:
        given = None
    if given is None or given not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise TypeError(f"dtype must be float32 or float64, not {dtype!r}")
    return given


# ---------------------------------------------------------------------------------------------------------------------
# Arrays


def unmasked(name: str, value: Any, instead: str = "its values, as numpy.ma.filled gives them") -> None:
    """Raise TypeError for a masked array, or a list that holds one: NumPy reads what the mask hides, in silence.

    >>> unmasked("x", [1.0, 2.0])
    """
    # nobody has one who has not imported it
    found = (getattr(sys.modules.get(module), kind, None) for module, kind in _MASKED)
    if type(value) not in _SINGLE and (kinds := tuple(filter(None, found))) and _holds(value, kinds):
        raise TypeError(f"{name} must not be a masked array, nor hold one: hand in {instead}")


def _holds(value: Any, kinds: tuple[type, ...]) -> bool:
    """Whether a value is of these classes, or an element of it, at any depth of nested sequences."""
    left, seen = [value], dict[int, Any]()
    while left:
        each = left.pop()
        if isinstance(each, kinds):
            return True
        if isinstance(each, Sequence) and not isinstance(each, _FLAT) and id(each) not in seen:
            seen[id(each)] = each  # a list may hold itself; what is kept here lends its number to nobody else
            if within := tuple(one for one in set(map(type, each)) if issubclass(one, (*kinds, Sequence))):
                left.extend(one for one in each if isinstance(one, within))
    return False


def array(name: str, value: Any, holds: str = "real numbers", kinds: str = "iuf") -> np.ndarray:
    """Real numbers as a plain array, which shares its memory with `value` where that is possible.

    It is always an object of its own: neither methods of a subclass nor a shape that somebody sets anew reach it.

    Parameters
    ----------
    name : str
        The argument's, for errors.
    value : object
        Anything with ``__array__``, the buffer protocol or ``__dlpack__`` on the CPU, or nested sequences of numbers.
    holds : str
        What is expected of its elements, for errors.
    kinds : str
        The kinds of NumPy's dtypes that will do.

    Raises
    ------
    TypeError
        If it is no such thing, is masked, lies on another device, or does not hold real numbers.

    Examples
    --------
    >>> array("x", memoryview(b"ab")).tolist()
    [97, 98]
    """
    import numpy as np

    if type(value) is not np.ndarray:
        unmasked(name, value)
    if isinstance(value, np.ndarray):
        found = value
    else:
        _check_device(name, value)
        only_dlpack = hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
        try:
            found = np.from_dlpack(value) if only_dlpack else np.asanyarray(value)
        except (TypeError, ValueError, RuntimeError, BufferError) as error:
            raise TypeError(f"{name} must be an array or a sequence of {holds}: {error}") from error
        unmasked(name, found)  # what `__array__` gave
    plain = np.ndarray.view(found, np.ndarray)
    if plain.dtype.kind not in kinds:
        raise TypeError(f"{name} must hold {holds}, not {plain.dtype}")
    return plain


def _check_device(name: str, value: Any) -> None:
    if not hasattr(value, "__dlpack_device__"):
        return
    try:
        kind, number = value.__dlpack_device__()
    except (ValueError, TypeError, RuntimeError, BufferError) as error:  # a device that DLPack does not know
        raise TypeError(f"{name} must lie in the CPU's memory: {error}") from error
    if int(kind) not in _CPU_DEVICES:
        raise TypeError(f"{name} must lie in the CPU's memory, not on device {number} of DLPack's type {int(kind)}")


def largest(value: np.ndarray) -> float:
    """The largest absolute value of an array; NaN or infinity if one is not finite.

    No array of booleans or absolute values is made: a training step allocates nothing.
    """
    return max(float(value.max(initial=0.0)), -float(value.min(initial=0.0)))


def finite(name: str, value: np.ndarray, dtype: Any) -> np.ndarray:
    """`value`, C-contiguous in `dtype`, where all of it is finite."""
    return _measured(name, value, dtype, largest)[0]


def _measured(
    name: str, value: np.ndarray, dtype: Any, measure: Callable[[np.ndarray], float]
) -> tuple[np.ndarray, float]:
    import numpy as np

    with np.errstate(over="ignore"):
        cast = np.ascontiguousarray(value, dtype=dtype)
    size = measure(cast)
    if not math.isfinite(size):
        count = np.count_nonzero(~np.isfinite(cast))
        raise ValueError(f"{name} must be finite in {cast.dtype}, but {count} of its {cast.size} values are not")
    return cast, size


def arrays(
    what: str,
    given: Any,
    shapes: Mapping[str, tuple[int, ...]],
    dtype: Any,
    some: bool = False,
    measure: Callable[[np.ndarray], float] = largest,
    sizes: dict[str, float] | None = None,
) -> dict[str, np.ndarray]:
    """`given` as finite C-contiguous arrays of these names and shapes; `some` allows names to be absent.

    `sizes` is filled with the largest absolute value of each as `measure` finds it, so that nobody need look at large
    arrays again.
    """
    if not isinstance(given, Mapping):
        raise TypeError(f"{what} must be a dict of arrays, not {type(given).__name__}")
    given = dict(given)
    wrong = sorted(set(given) - set(shapes)) or ([] if some else sorted(set(shapes) - set(given)))
    if wrong:
        raise ValueError(f"{what} must have the keys {sorted(shapes)}, not {sorted(given)}: see {wrong[0]!r}")
    checked = {}
    for key, value in given.items():
        name = f"{what}[{key!r}]"
        found = array(name, value)
        if found.shape != shapes[key]:
            raise ValueError(f"{name} must have shape {shapes[key]}, not {found.shape}")
        checked[key], size = _measured(name, found, dtype, measure)
        if sizes is not None:
            sizes[key] = size
    return checked


def outputs(out: Any, fresh: Mapping[str, np.ndarray], inputs: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Writeable arrays that share the memory of those in `out`, which must be like `fresh`.

    None may share memory with another one, or with one of the arrays in `inputs`, which are there by the names that
    errors give them.
    """
    expected = f"out must be a dict with the keys {sorted(fresh)}"
    if not isinstance(out, dict):
        raise TypeError(f"{expected}, not {type(out).__name__}")
    if set(out) != set(fresh):
        raise ValueError(f"{expected}, not {list(out)}")
    views = {}
    for slot, wanted in fresh.items():
        name = f"out[{slot!r}]"
        view = _shared(name, out[slot])
        if view is None or view.shape != wanted.shape or view.dtype != wanted.dtype:
            got = type(out[slot]).__name__ if view is None else f"{view.dtype} {view.shape}"
            raise ValueError(f"{name} must be an array, {wanted.dtype} {wanted.shape}, not {got}")
        if not view.flags.writeable:
            raise ValueError(f"{name} must be writeable")
        if memory.overlaps_itself(view):
            raise ValueError(
                f"{name} must have no two elements in the same memory, but its shape is {view.shape} and its strides "
                f"are {view.strides} bytes"
            )
        views[slot] = view
    memory.keep_apart(
        {f"out[{slot!r}]": view for slot, view in views.items()},
        {name: array(name, value) for name, value in inputs.items()},
    )
    return views


def _shared(name: str, value: Any) -> np.ndarray | None:
    """The memory of an object as a plain array; what ``__array__`` returns may be a copy, so it is not taken."""
    import numpy as np

    unmasked(name, value)
    if isinstance(value, np.ndarray):
        return np.ndarray.view(value, np.ndarray)
    _check_device(name, value)
    try:
        return np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(memoryview(value))
    except (TypeError, ValueError, RuntimeError, BufferError):
        return None
