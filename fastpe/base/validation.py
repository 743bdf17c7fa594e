"""Checks of arguments: numbers, names and arrays. Every error names the argument and what was expected.

Importing this module imports neither NumPy nor Numba.
"""

from __future__ import annotations

import array as array_module
import difflib
import functools
import inspect
import math
import numbers
import operator
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from fastpe.base import memory

if TYPE_CHECKING:
    import numpy as np

Target = TypeVar("Target", bound=Callable[..., Any])
Class = TypeVar("Class", bound=type)

_MOST_NAMED = 12  # the largest number of names that an error lists
_FLAT = (
    str,
    bytes,
    bytearray,
    memoryview,
    array_module.array,
)  # sequences that are read in one step and hold no arrays
_MOST_ELEMENTS = 2**27  # limit for other sequences, which NumPy reads one by one: the largest number of positions
_FLOATS = {"float32", "f4", "f", "single", "float64", "f8", "d", "double", "float"}
_ANY = "biufcmMOSUV"  # kinds of NumPy dtypes
_SINGLE = {int, float, bool, str, type(None)}
_MASKED = (("numpy.ma", "MaskedArray"), ("torch.masked", "MaskedTensor"))
_CPU_DEVICES = (1, 3, 11, 13)  # of DLPack: plain memory, and host memory that CUDA or ROCm pins or manages


LARGEST = 2**63 - 1
"""The largest integer that int64 holds, and the default limit of every integer argument."""
FARTHEST = 2**40
"""The largest position of a query in attention; sums of a few such numbers do not overflow int64."""


def whole(name: str, value: Any, minimum: int | None = None, maximum: int = LARGEST) -> int:
    """Return an integer argument as a Python int.

    Every public function checks its integers here, or arrays of them with `integers`, before it uses them.

    Parameters
    ----------
    name : str
        The name of the argument, used in errors.
    value : object
        A Python int, a NumPy integer, an array or tensor without axes that holds an integer, or anything with
        ``__index__``. Booleans are not integers, and neither are floats such as 2.0.
    minimum, maximum : int
        The smallest and the largest value allowed. Without a minimum, the smallest value is that of int64.

    Raises
    ------
    TypeError
        If the value is not an integer.
    ValueError
        If it is out of range.

    Examples
    --------
    >>> whole("heads", 4, 1)
    4
    """
    if type(value) is not int:
        unmasked(name, value)
        value = _index(name, value)
    low = -LARGEST - 1 if minimum is None else minimum
    if not low <= value <= maximum:
        limit = f"at least {_limit(low)}" if value < low else f"at most {_limit(maximum)}"
        raise ValueError(f"{name} must be {limit}, not {shown(value)}")
    return int(value)


def seed(name: str, value: Any) -> int:
    """Return the seed of random numbers, an integer of 64 bits.

    >>> seed("seed", 7)
    7
    """
    return whole(name, value, 0, 2**64 - 1)


def _index(name: str, value: Any) -> int:
    """Return the value as a Python int of any size."""
    found = value
    try:
        if getattr(value, "ndim", 0) != 0:
            raise TypeError
        if hasattr(value, "item"):  # PyTorch's `__index__` accepts booleans, and fails above int64
            found = value.item()
        if isinstance(found, bool) or is_time(value):
            raise TypeError
        return operator.index(found)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(f"{name} must be an integer, not {shown(value)}") from None


def is_time(value: Any) -> bool:
    """Whether the value is a NumPy date or duration. (NumPy counts durations among its integers.)

    >>> import numpy as np
    >>> is_time(np.timedelta64(3, "ns")), is_time(3)
    (True, False)
    """
    return getattr(getattr(value, "dtype", None), "kind", "") in ("m", "M")


def _limit(number: int) -> str:
    """Return a limit in a readable form.

    >>> _limit(100), _limit(2**40), _limit(2**63 - 1), _limit(-(2**63))
    ('100', '2**40', '2**63 - 1', '-2**63')
    """
    if number < 0:
        return f"-{_limit(-number)}"
    for extra, text in ((0, ""), (1, " - 1")):
        power = (number + extra).bit_length() - 1
        if power > 12 and number + extra == 2**power:
            return f"2**{power}{text}"
    return str(number)


def shown(value: Any) -> str:
    """Return the text of a value for an error message: one line of limited length, however large the value is.

    >>> shown(2**20), shown(10**5000), len(shown("x" * 1000)) < 200
    ('1048576', 'an integer of 16610 bits', True)
    """
    if isinstance(value, int) and value.bit_length() > 512:
        return f"an integer of {value.bit_length()} bits"
    try:
        text = " ".join(repr(value).split())
    except Exception:  # a repr can run any code, and Python itself refuses to print huge integers
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= 160 else f"{text[:150]}..."


def truth(name: str, value: Any) -> bool:
    """Check that the value is a boolean of Python or NumPy, or in an array or tensor without axes; return it as a bool.

    >>> truth("causal", True)
    True
    """
    if isinstance(value, bool):
        return value
    unmasked(name, value)
    if not isinstance(value, bool) and not (_is_boolean(value) and value.shape == ()):
        raise TypeError(f"{name} must be True or False, not {shown(value)}")
    return bool(value)


def _is_boolean(value: Any) -> bool:
    """Whether the value is an array or a tensor of booleans."""
    return str(getattr(value, "dtype", "")) in ("bool", "torch.bool")


def choice(name: str, value: Any, choices: Sequence[str]) -> str:
    """Check that the value is one of the words in `choices`, and return it.

    >>> choice("norm", "none", ("none", "layernorm"))
    'none'
    """
    if not isinstance(value, str) or value not in choices:
        raise ValueError(f"{name} must be {' or '.join(choices)}, not {shown(value)}")
    return str(value)


def real(name: str, value: Any) -> float:
    """Check that the value is a finite real number, and return it as a float.

    >>> real("start", 4)
    4.0
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or is_time(value):
        raise TypeError(f"{name} must be a number, not {shown(value)}")
    try:
        number = float(value)
    except OverflowError:
        raise ValueError(f"{name} must be finite, but it is larger than any float64") from None
    if not math.isfinite(number):
        raise ValueError(f"{name} must be finite, not {number}")
    return number


def positive(name: str, value: Any, dtype: Any = "float64") -> float:
    """Check that the value is a finite number above 0, also when rounded to the dtype, and return it as a float.

    >>> positive("softcap", 1e300, "float32")
    Traceback (most recent call last):
        ...
    ValueError: softcap must be finite in float32, not 1e+300
    """
    number = real(name, value)
    if number <= 0 or (str(dtype) == "float32" and number <= 2.0**-150):
        raise ValueError(f"{name} must be above 0{'' if number <= 0 else ' in float32'}, not {number}")
    if number > _most(dtype):
        raise ValueError(f"{name} must be finite in float32, not {number}")
    return number


def soft_cap(name: str, value: Any, dtype: Any = "float32") -> float:
    """Check a soft cap, and return it as a float: it and its reciprocal must be finite and above 0 in the dtype.

    >>> soft_cap("softcap", 50)
    50.0
    """
    number = positive(name, value, dtype)
    if 1.0 / number > _most(dtype):
        raise ValueError(
            f"{name} must be at least {1.0 / _most(dtype):.3g}, for its reciprocal in {dtype}, not {number}"
        )
    return number


def _most(dtype: Any) -> float:
    """Return the largest finite number of float32 or float64."""
    return (2.0 - 2.0**-23) * 2.0**127 if str(dtype) == "float32" else sys.float_info.max


def at_least_zero(name: str, value: Any, below: float = math.inf) -> float:
    """Check that the value is a finite number of at least 0 and below a limit, and return it as a float."""
    if not 0 <= (number := real(name, value)) < below:
        limit = f"lie in [0, {below:g})" if below < math.inf else "be at least 0"
        raise ValueError(f"{name} must {limit}, not {number}")
    return abs(number)  # -0.0 is stored differently from 0.0


def room(what: str, size: int, verb: str = "needs") -> None:
    """Raise ValueError if `what`, which needs `size` bytes, does not fit into this machine's memory."""
    if size > (memory := _memory()):
        raise ValueError(f"{what} {verb} {size / 1e9:,.1f} GB, and this machine has {memory / 1e9:,.1f} GB of memory")


def _memory() -> int:
    """Return the size of this machine's memory in bytes, or of the address space if the system does not tell it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return sys.maxsize


def nearest(name: str, known: Iterable[str], listed: str = "", also: Iterable[str] = ()) -> str:
    """Return a clause for an error message that offers the names closest to `name`.

    The shortest name that ends with `name` as a whole word is closest, then names that are spelled alike. If no name is
    close, the clause lists all names. If there are more than 12 names, the clause is `listed` instead, a text that says
    where to find the names. Names in `also` are offered if they are close, but not listed.

    >>> nearest("wavlet", ["alibi", "wavelet"]), nearest("x", ["alibi", "wavelet"])
    ("did you mean 'wavelet'?", 'known: alibi, wavelet')
    >>> nearest("length", ["lengths", "train_length", "encoding_length"])
    "did you mean 'train_length'?"
    >>> nearest("scale", ["wavelet.per_scale", "wavelet.scale"])
    "did you mean 'wavelet.scale'?"
    >>> nearest("x", map(str, range(100, 200)), "help() lists them")
    'help() lists them'
    """
    known = sorted(known) if isinstance(known, set | frozenset) else list(known)
    if holding := [each for each in known if name == re.split("[._]", each)[-1]]:
        return f"did you mean {min(holding, key=len)!r}?"
    close = difflib.get_close_matches(name, [*known, *also], n=3, cutoff=0.5)
    if close:
        alike = {each: difflib.SequenceMatcher(a=each, b=name).ratio() for each in close}
        return f"did you mean {' or '.join(repr(each) for each in close if alike[each] > max(alike.values()) - 0.15)}?"
    if len(known) > _MOST_NAMED:
        return listed or f"known: {', '.join(known[:_MOST_NAMED])}, ..."
    return f"known: {', '.join(known)}" if known else "none is known"


def named_arguments(target: Target) -> Target:
    """Make a function or a class offer the nearest name in its TypeError for an unknown keyword argument.

    The signature stays the same. From Python 3.13 on, Python itself offers the nearest name for functions written in
    Python.

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


def named_methods(target: Class) -> Class:
    """Make Python's errors about arguments of inherited public methods name this class, not its base classes.

    Python takes the name in such an error from the method. So the base classes must have no other public subclass.

    >>> class Base:
    ...     def run(self, *, epochs=1): ...
    >>> @named_methods
    ... class Public(Base): ...
    >>> Public().run(epoch=3)
    Traceback (most recent call last):
        ...
    TypeError: Public.run() got an unexpected keyword argument 'epoch'
    """
    for name, method in inspect.getmembers(target, inspect.isfunction):
        if name == "__call__" or not name.startswith("_"):
            method.__qualname__, method.__module__ = f"{target.__qualname__}.{name}", target.__module__
    return target


def path(name: str, value: Any) -> Path:
    """Check that the value is a path, and return it."""
    if not isinstance(value, str | os.PathLike) or not isinstance(os.fspath(value), str):
        raise TypeError(f"{name} must be a path, as a str or pathlib.Path, not {shown(value)}")
    return Path(value)


def instance(name: str, value: Any, kind: type, example: str) -> None:
    """Raise TypeError unless the value is of this class; `example` shows how to make one."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be a {kind.__name__}, as in {example}, not {shown(value)}")


def floating(dtype: Any) -> np.dtype:
    """Check that the dtype is float32 or float64 in native byte order, and return it."""
    import numpy as np

    try:
        # NumPy treats None as float64, and warns about some names of dtypes that are errors here anyway
        unknown = dtype is None or (isinstance(dtype, str) and dtype.lstrip("<>=|") not in _FLOATS)
        given = None if unknown else np.dtype(dtype)
    except (TypeError, ValueError):  # e.g. for an integer that Python does not print
        given = None
    if given is None or given not in (np.dtype(np.float32), np.dtype(np.float64)):
        raise TypeError(f"dtype must be float32 or float64, not {shown(dtype)}")
    return given


# ---------------------------------------------------------------------------------------------------------------------
# Arrays


def unmasked(name: str, value: Any, instead: str = "its values, as numpy.ma.filled gives them") -> None:
    """Raise TypeError for a masked array, or a list that holds one: NumPy would silently read the masked values.

    >>> unmasked("x", [1.0, 2.0])
    """
    # masked arrays exist only if their module has been imported
    found = (getattr(sys.modules.get(module), kind, None) for module, kind in _MASKED)
    if type(value) not in _SINGLE and (kinds := tuple(filter(None, found))) and _holds(value, kinds):
        raise TypeError(f"{name} must not be a masked array, nor contain one: pass {instead}")


def _holds(value: Any, kinds: tuple[type, ...]) -> bool:
    """Whether a value, or an element at any depth of its nested sequences, is of one of these classes."""
    return isinstance(value, kinds) or any(issubclass(kind, kinds) for _, own in _nested(value) for kind in own)


def _nested(value: Any) -> Iterator[tuple[Sequence[Any], set[type]]]:
    """Yield a sequence and all sequences in it, at any depth, except sequences of the types `_FLAT`. Each is yielded
    together with the set of the types of its elements."""
    left, seen = [value], dict[int, Any]()
    while left:
        each = left.pop()
        if isinstance(each, Sequence) and not isinstance(each, _FLAT) and id(each) not in seen:
            seen[id(each)] = each  # a list may contain itself; keeping the object keeps its id unique
            kinds = set() if isinstance(each, range) or count(each) > _MOST_ELEMENTS else set(map(type, each))
            yield each, kinds
            if within := tuple(kind for kind in kinds if issubclass(kind, Sequence)):
                left.extend(one for one in each if isinstance(one, within))


def count(value: Any) -> int:
    """Return the number of elements of a collection without reading them, or 0 if it has no length.

    >>> count(range(10**12)), count(iter("abc")), count(range(10**30)) == sys.maxsize
    (1000000000000, 0, True)
    """
    try:
        return len(value)
    except TypeError:
        return 0
    except OverflowError:
        return sys.maxsize


def _check_counts(name: str, value: Any) -> None:
    """Raise ValueError for ranges and similar sequences that NumPy would read for hours."""
    for each, _ in _nested(value):
        if count(each) > _MOST_ELEMENTS:
            raise ValueError(f"{name} must have at most {_limit(_MOST_ELEMENTS)} elements, not {count(each)}")


def array(name: str, value: Any, holds: str = "real numbers", kinds: str = "iuf") -> np.ndarray:
    """Return an argument that holds real numbers as a plain array, which shares memory with `value` if possible.

    The result is always a new array object. Methods of a subclass, or later changes of the shape of `value`, do not
    affect it.

    Parameters
    ----------
    name : str
        The name of the argument, used in errors.
    value : object
        An object with ``__array__``, the buffer protocol or ``__dlpack__`` on the CPU, or nested sequences of numbers.
    holds : str
        What its elements should be, used in errors.
    kinds : str
        The allowed kinds of NumPy dtypes.

    Raises
    ------
    TypeError
        If the value is none of these, is masked, is on another device, or does not hold real numbers.

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
        _check_counts(name, value)
        only_dlpack = hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
        try:
            found = np.from_dlpack(value) if only_dlpack else np.asanyarray(value)
        except (TypeError, ValueError, RuntimeError, BufferError) as error:
            raise TypeError(f"{name} must be an array or a sequence of {holds}: {error}") from error
        unmasked(name, found)  # the result of `__array__`
    plain = np.ndarray.view(found, np.ndarray)
    if plain.dtype.kind not in kinds:
        raise TypeError(f"{name} must hold {holds}, not {plain.dtype}")
    return plain


def integers(
    name: str, value: Any, minimum: int | None = None, maximum: int = LARGEST, *, clipped: bool = False,
    dtype: Any = "int64", holds: str = "integers",
) -> np.ndarray:  # fmt: skip
    """Return an argument that holds integers as a new array, checked in its own dtype before it is cast.

    Parameters
    ----------
    name : str
        The name of the argument, used in errors.
    value : object
        What `array` accepts, if the elements have an integer dtype; also sequences of Python ints of any size. Booleans
        and floats are errors, also among integers in a list.
    minimum, maximum : int
        As for `whole`.
    clipped : bool
        Whether values out of range are replaced by the nearest limit instead of raising an error.
    dtype : dtype
        Dtype of the new array: int64, or int32 if the limits fit.
    holds : str
        As for `array`.

    Raises
    ------
    TypeError
        If the value does not hold integers.
    ValueError
        If a value is out of range; the message gives the first such value and its index.

    Examples
    --------
    >>> import numpy as np
    >>> integers("spans", np.array([0, 2**64 - 1], np.uint64), 0, 9, clipped=True).tolist()
    [0, 9]
    """
    import numpy as np

    low = -LARGEST - 1 if minimum is None else minimum
    found = array(name, value, holds, _ANY)
    if isinstance(value, Sequence) and _holds_booleans(value):
        raise TypeError(f"{name} must hold {holds}, not bool")
    if found.dtype.kind not in "iu":
        found = _python_ints(name, value, found, low, maximum, clipped=clipped, holds=holds)
    # copied before it is checked, so that the caller cannot change it afterwards
    own = found.astype(dtype) if np.can_cast(found.dtype, dtype) else found.copy()
    if clipped:
        wide, limits = np.iinfo(own.dtype), np.iinfo(dtype)
        own = np.asarray(np.clip(own, max(wide.min, limits.min), min(wide.max, limits.max)), dtype)
        return np.clip(own, low, maximum, out=own)
    if own.size and not (low <= int(own.min()) and int(own.max()) <= maximum):
        raise _first_out_of_range(name, own, low, maximum)
    return own.astype(dtype, copy=False)


def integer_array(name: str, value: Any, holds: str = "integers") -> np.ndarray:
    """Return an argument that holds integers as an array, without a copy if possible. `integers` reads sequences.

    >>> integer_array("ids", [7, 7, 3]).tolist()
    [7, 7, 3]
    """
    if isinstance(value, Sequence):
        return integers(name, value, holds=holds)
    found = array(name, value, holds, _ANY)
    if found.dtype.kind == "O":
        return integers(name, found, holds=holds)
    if found.dtype.kind not in "iu":
        raise TypeError(f"{name} must hold {holds}, not {found.dtype}")
    return found


def _holds_booleans(value: Sequence[Any]) -> bool:
    """Whether nested sequences contain booleans or arrays of booleans, which NumPy would convert to integers."""
    import numpy as np

    for each, kinds in _nested(value):
        if not kinds.isdisjoint((bool, np.bool_)):
            return True
        with_dtype = tuple(kind for kind in kinds if hasattr(kind, "dtype") and not issubclass(kind, np.generic))
        if with_dtype and any(_is_boolean(one) for one in each if isinstance(one, with_dtype)):
            return True
    return False


def _first_out_of_range(name: str, array: np.ndarray, low: int, high: int) -> ValueError:
    wrong = array < low
    wrong |= array > high
    index = int(wrong.argmax())
    return _out_of_range(name, int(array.reshape(-1)[index]), low, high, _place(array.shape, index))


def _out_of_range(name: str, number: int, low: int, high: int, place: str) -> ValueError:
    return ValueError(f"{name} must lie in [{_limit(low)}, {_limit(high)}], not {shown(number)}{place}")


def _place(shape: tuple[int, ...], index: int) -> str:
    """Return the position of an element as text for an error message. `index` is its index in C order."""
    places: list[int] = []
    for size in reversed(shape):
        index, place = divmod(index, size)
        places.insert(0, place)
    return f" at index {places if len(places) > 1 else places[0]}" if places else ""


def _python_ints(
    name: str, value: Any, found: np.ndarray, low: int, high: int, *, clipped: bool, holds: str
) -> np.ndarray:
    """Return Python ints as an int64 array. `found` is what NumPy makes of them if they fit no integer dtype."""
    import numpy as np

    if found.dtype.kind not in "Of" or (found.dtype.kind != "O" and not isinstance(value, Sequence)):
        raise TypeError(f"{name} must hold {holds}, not {found.dtype}")
    given = found if found.dtype.kind == "O" else np.array(value, object)  # NumPy converts [2**63, -1] to float64
    numbers = given.reshape(-1).tolist()
    for index, number in enumerate(numbers):
        try:
            numbers[index] = number = _index(name, number)
        except TypeError:
            kind = f"{shown(number)}{_place(given.shape, index)}" if found.dtype.kind == "O" else found.dtype
            raise TypeError(f"{name} must hold {holds}, not {kind}") from None
        if clipped:
            numbers[index] = min(max(number, low), high)
        elif not low <= number <= high:
            raise _out_of_range(name, number, low, high, _place(given.shape, index))
    return np.array(numbers, np.int64).reshape(given.shape)


def _check_device(name: str, value: Any) -> None:
    if not hasattr(value, "__dlpack_device__"):
        return
    try:
        kind, number = value.__dlpack_device__()
    except (ValueError, TypeError, RuntimeError, BufferError) as error:  # a device that DLPack does not support
        raise TypeError(f"{name} must be in CPU memory: {error}") from error
    if int(kind) not in _CPU_DEVICES:
        raise TypeError(f"{name} must be in CPU memory, not on device {number} of DLPack's type {int(kind)}")


def largest(value: np.ndarray) -> float:
    """Return the largest absolute value of an array, which is NaN or infinity if any value is.

    No temporary arrays are made, so that a training step allocates no memory.
    """
    return max(float(value.max(initial=0.0)), -float(value.min(initial=0.0)))


def finite(name: str, value: np.ndarray, dtype: Any) -> np.ndarray:
    """Return `value` as a C-contiguous array of this dtype, after checking that all its values are finite."""
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
    """Return `given` as finite C-contiguous arrays with these names and shapes. `some`: whether names may be missing.

    The dict `sizes` receives the largest absolute value of each array, from `measure`, so that large arrays need not be
    read again.
    """
    if not isinstance(given, Mapping):
        raise TypeError(f"{what} must be a dict of arrays, not {type(given).__name__}")
    given = dict(given)
    wrong = sorted(set(given) - set(shapes)) or ([] if some else sorted(set(shapes) - set(given)))
    if wrong:
        raise ValueError(f"{what} must have the keys {sorted(shapes)}, not {sorted(given)}: check {wrong[0]!r}")
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
    """Return views of the arrays in `out`, after checking that they are writeable and match those in `fresh`.

    No output may share memory with another output, or with an array in `inputs`, whose keys are their names in errors.
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
                f"{name} must not have two elements in the same memory, but its shape is {view.shape} and its strides "
                f"are {view.strides} bytes"
            )
        views[slot] = view
    memory.keep_apart(
        {f"out[{slot!r}]": view for slot, view in views.items()},
        {name: array(name, value) for name, value in inputs.items()},
    )
    return views


def _shared(name: str, value: Any) -> np.ndarray | None:
    """Return a plain array that shares an object's memory, or None. ``__array__`` is not used: it may return a copy."""
    import numpy as np

    unmasked(name, value)
    if isinstance(value, np.ndarray):
        return np.ndarray.view(value, np.ndarray)
    _check_device(name, value)
    try:
        return np.from_dlpack(value) if hasattr(value, "__dlpack__") else np.asarray(memoryview(value))
    except (TypeError, ValueError, RuntimeError, BufferError):
        return None
