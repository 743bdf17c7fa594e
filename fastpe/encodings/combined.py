"""Sums of encodings, such as "wavelet+alibi", treated as one encoding: parameters, slots and gradients.

A single encoding is a sum of one term. All functions take the validated parts that `registry.parse` returns.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fastpe.base import validation
from fastpe.base.validation import room
from fastpe.encodings import combined_slots
from fastpe.encodings.encoding import BeyondTrainingLength, Part
from fastpe.encodings.slots import SLOTS, Spec

if TYPE_CHECKING:
    import numpy as np

_SPARE_BITS = 32
_LARGE = 2**18  # arrays with at least this many elements do not fit in a fast cache


def allocate(parts: Sequence[Part], spec: Spec) -> dict[str, np.ndarray]:
    """Return a zero array, aligned to cache lines, for every slot that the parts fill together.

    Raises
    ------
    ValueError
        If the parts cannot share a slot, or an array does not fit in memory.
    """
    from fastpe.kernels.simd import aligned_zeros

    return {slot: aligned_zeros(array.shape, array.dtype) for slot, array in outlines(parts, spec).items()}


def outlines(parts: Sequence[Part], spec: Spec) -> dict[str, np.ndarray]:
    """Return the same slots as `allocate`, but as views of a single zero each, which take almost no memory."""
    import numpy as np

    out: dict[str, np.ndarray] = {}
    for slot, shape in slot_shapes(parts, spec).items():
        dtype = _dtype(slot, shape, spec)
        _check_room(f"slot {slot!r}", parts, shape, dtype, spec)
        out[slot] = np.broadcast_to(np.zeros((), dtype), shape)
    return out


def _dtype(slot: str, shape: tuple[int, ...], spec: Spec) -> np.dtype:
    """Return the dtype of a slot. `rotors` of blocks of one channel are always float64, like `angles`."""
    import numpy as np

    if slot == "rotors" and shape[-1] == 1:
        return np.dtype(np.float64)
    return np.dtype(spec.dtype if SLOTS[slot].dtype == "same" else SLOTS[slot].dtype)


def plain(parts: Sequence[Part], spec: Spec) -> dict[str, Any]:
    """The values of the slots that are not arrays.

    Raises
    ------
    ValueError
        If two parts set a slot to different values.
    """
    import numpy as np

    found: dict[str, Any] = {}
    for part in parts:
        for slot, value in part.encoding.plain(spec, **part.options).items():
            if slot in found and not np.array_equal(found[slot], value):
                raise ValueError(f"{_name(parts)!r} sets {slot!r} to both {found[slot]!r} and {value!r}")
            found[slot] = value
    return found


def axes(parts: Sequence[Part], *, given: bool) -> int:
    """The number of coordinates of the parts' positions.

    Raises
    ------
    ValueError
        If positions are given, and parts take different numbers of coordinates.
    """
    counts = {part.scheme: part.encoding.axes(**part.options) for part in parts}
    if given and len(set(counts.values())) > 1:
        each = ", ".join(f"{scheme!r} {count}" for scheme, count in counts.items())
        raise ValueError(f"positions cannot be given: encodings take different numbers of coordinates: {each}")
    return next(iter(counts.values()))


def check(parts: Sequence[Part], spec: Spec) -> None:
    """Raise an error if an encoding does not support this spec with its options."""
    for part in parts:
        part.encoding.check(spec, **part.options)


def check_parameters(parts: Sequence[Part], spec: Spec) -> None:
    """Raise ValueError if a parameter does not fit in memory."""
    import numpy as np

    for name, shape in parameter_shapes(parts, spec).items():
        _check_room(f"parameter {name!r}", parts, shape, np.dtype(np.float64), spec)  # drawn as float64


def typed(parts: Sequence[Part], name: str, value: np.ndarray, spec: Spec) -> np.ndarray:
    """Return a parameter's initial value in the spec's dtype. Raises ValueError if the value overflows."""
    import numpy as np

    with np.errstate(over="ignore"):
        cast = value.astype(spec.dtype)
    if not math.isfinite(largest(cast)):
        given = ", ".join(numbers(parts))
        raise ValueError(f"the initial {name!r} of {_name(parts)!r} is not finite in {spec.dtype}: see {given}")
    return cast


def _check_room(what: str, parts: Sequence[Part], shape: tuple[int, ...], dtype: np.dtype, spec: Spec) -> None:
    sizes = [f"length={spec.length}", f"dim={spec.dim}", f"heads={spec.heads}", f"train_length={spec.train_length}"]
    room(f"{what} of {_name(parts)!r} with {', '.join(sizes + numbers(parts))}", math.prod(shape) * dtype.itemsize)


def numbers(parts: Sequence[Part]) -> list[str]:
    """Describe the numerical options that differ from their defaults, for error messages."""
    return [
        f"option {key(parts, part, name)}={f'{value:g}' if isinstance(value, float) else value}"
        for part in parts
        for name, value in part.options.items()
        if type(value) in (int, float, tuple) and value != part.encoding.options[name].default
    ]


def _name(parts: Sequence[Part]) -> str:
    return "+".join(part.scheme for part in parts)


def shapes_of(part: Part, spec: Spec) -> dict[str, tuple[int, ...]]:
    """The shape of every slot that one encoding fills."""
    if part.encoding.shapes is not None:
        return part.encoding.shapes(spec, **part.options)
    usual = {slot: SLOTS[slot].shape for slot in part.encoding.slots}
    return {slot: shape(spec) for slot, shape in usual.items() if shape is not None}


def slot_shapes(parts: Sequence[Part], spec: Spec) -> dict[str, tuple[int, ...]]:
    """The shape of every slot that the parts fill together.

    Raises
    ------
    ValueError
        If two parts cannot share a slot.
    """
    shapes: dict[str, list[tuple[int, ...]]] = {}
    for part in parts:
        for slot, shape in shapes_of(part, spec).items():
            shapes.setdefault(slot, []).append(shape)
    found = {}
    for slot, each in shapes.items():
        if len(each) > 1 and SLOTS[slot].combine == "alone":
            raise ValueError(f"two encodings of {_name(parts)!r} both fill slot {slot!r}, which cannot be shared")
        common = combined_slots.common_shape(slot, each)
        if common is None:
            raise ValueError(f"slot {slot!r} has different shapes in {_name(parts)!r}: {', '.join(map(str, each))}")
        found[slot] = common
    return found


def _own(parts: Sequence[Part], part: Part, params: Mapping[str, Any], spec: Spec) -> dict[str, Any]:
    """Return the parameters of one part, by their plain names, from the parameters of the sum."""
    if len(parts) == 1:
        return dict(params)
    return {name: params[key(parts, part, name)] for name in part.encoding.parameters(spec, **part.options)}


def key(parts: Sequence[Part], part: Part, parameter: str) -> str:
    """A parameter's key: its plain name, or "scheme.parameter" in a sum."""
    return parameter if len(parts) == 1 else f"{part.scheme}.{parameter}"


def parameter_shapes(parts: Sequence[Part], spec: Spec) -> dict[str, tuple[int, ...]]:
    """The shape of every parameter of the parts."""
    return {
        key(parts, part, name): shape
        for part in parts
        for name, shape in part.encoding.parameters(spec, **part.options).items()
    }


def fill(
    parts: Sequence[Part], spec: Spec, params: Mapping[str, Any], out: dict[str, Any], reference: bool = False,
    finite: bool = True, sizes: Collection[float] | None = None, checked: bool = False,
) -> None:  # fmt: skip
    """Write the sum of the parts to `out`, whose arrays have the shapes and dtypes of `allocate`, and any strides.

    finite: whether to raise an error for values that overflow the dtype.
    sizes: the largest absolute value of each parameter, if known.
    checked: True if the same parts were filled for the same spec before; checks are then skipped.
    """
    import numpy as np

    if not checked:
        check(parts, spec)
        plain(parts, spec)
    with np.errstate(over="ignore", invalid="ignore"):  # overflow is detected below
        _fill(parts, spec, params, out, reference)
    if finite and _may_overflow(parts, spec, map(largest, params.values()) if sizes is None else sizes, out):
        _check_finite(parts, spec, out)


def _fill(parts: Sequence[Part], spec: Spec, params: Mapping[str, Any], out: dict[str, Any], reference: bool) -> None:
    import numpy as np

    filled: set[str] = set()
    for part in parts:
        mine = {
            slot: np.empty(shape, out[slot].dtype) if slot in filled or shape != out[slot].shape else out[slot]
            for slot, shape in shapes_of(part, spec).items()
        }
        _fill_part(part, spec, _own(parts, part, params, spec), mine, reference)
        for slot, array in mine.items():
            if array is out[slot]:
                continue
            wide = combined_slots.widened(slot, array, out[slot].shape)
            if slot in filled:
                combine = np.multiply if SLOTS[slot].combine == "multiply" else np.add
                combine(out[slot], wide, out=out[slot])
            else:
                out[slot][...] = wide
        filled |= set(mine)


def _fill_part(part: Part, spec: Spec, own: dict[str, Any], out: dict[str, Any], reference: bool) -> None:
    import numpy as np

    if part.encoding.fill is not None and not reference:
        part.encoding.fill(spec, own, out, **part.options)
        return
    spec = replace(spec, dtype=np.dtype(np.float64))
    own = {name: value.astype(np.float64, copy=False) for name, value in own.items()}
    for slot, value in part.encoding.reference(spec, own, **part.options).items():
        out[slot][...] = value


def _may_overflow(parts: Sequence[Part], spec: Spec, sizes: Iterable[float], out: Mapping[str, np.ndarray]) -> bool:
    """Whether a value may overflow its dtype. If no value may, large arrays need not be checked.

    Assumes that a value is at most 2^32 times the product of max(|x|, 1/|x|) over all numbers x that determine it:
    options, positions, the training length and parameters. Values of `legendre` with its linear map may be larger, so
    `legendre` itself checks that they are finite.
    """
    import numpy as np

    if any(part.encoding.file for part in parts):  # a user's encoding, about which nothing is known
        return True
    numbers = [float(value) for part in parts for value in part.options.values() if isinstance(value, int | float)]
    numbers += [spec.farthest, float(spec.train_length), *sizes]
    if not all(map(math.isfinite, numbers)):
        return True
    bits = _SPARE_BITS + sum(abs(math.log2(abs(number))) for number in numbers if number)
    return any(bits >= np.finfo(array.dtype).maxexp for array in out.values() if array.dtype.kind == "f")


def largest(value: np.ndarray) -> float:
    """Return the largest absolute value, like `validation.largest`; large arrays are read in one compiled pass."""
    if value.size < _LARGE or not value.flags.c_contiguous:
        return validation.largest(value)
    from fastpe.kernels.fills.table import largest_of

    return float(largest_of(value.reshape(-1)))


def _check_finite(parts: Sequence[Part], spec: Spec, out: Mapping[str, np.ndarray]) -> None:
    import numpy as np

    for slot, array in out.items():
        if array.dtype.kind != "f" or (math.isfinite(array.max(initial=0.0)) and math.isfinite(array.min(initial=0.0))):
            continue
        if files := [part.encoding.file for part in parts if part.encoding.file and slot in part.encoding.slots]:
            place = tuple(map(int, np.argwhere(~np.isfinite(array))[0]))
            raise ValueError(
                f"{files[0]}: slot {slot!r} must be finite in {array.dtype}, not {array[place]} at {place}"
            )
        raise BeyondTrainingLength(
            f"slot {slot!r} of {_name(parts)!r} is not finite in {array.dtype}, whose largest value is "
            f"{np.finfo(array.dtype).max:.1e}: see {', '.join(numbers(parts)) or 'its parameters'} at positions up to "
            f"{spec.farthest:g}"
        )


def add_gradients(
    parts: Sequence[Part],
    spec: Spec,
    params: Mapping[str, Any],
    dslots: Mapping[str, np.ndarray],
    dparams: Mapping[str, np.ndarray],
) -> None:
    """Add the parameters' gradients to `dparams`, given the slots' gradients (C-contiguous, in `spec.dtype`)."""
    import numpy as np

    with np.errstate(over="ignore", invalid="ignore"):  # gradients of a diverging model may not be finite
        for part in parts:
            own = _own(parts, part, params, spec)
            if not own or part.encoding.pull is None:
                continue
            mine = {}
            for slot, shape in shapes_of(part, spec).items():
                if SLOTS[slot].dtype == "int32":  # an index has no gradient
                    continue
                if slot not in dslots:
                    raise ValueError(f"dslots must hold the gradient of {slot!r}, which {part.scheme!r} fills")
                gradient = _times_others(parts, part, slot, spec, params, dslots[slot])
                mine[slot] = combined_slots.narrowed(slot, gradient, shape)
            part.encoding.pull(spec, own, mine, _own(parts, part, dparams, spec), **part.options)


def check_gradients(parts: Sequence[Part], spec: Spec) -> None:
    """Raise ValueError if a part has parameters but no `pull`."""
    for part in parts:
        learned = part.encoding.parameters(spec, **part.options)
        if learned and part.encoding.pull is None and part.encoding.gate is None:
            raise ValueError(
                f"{part.scheme!r} learns {', '.join(map(repr, learned))}, but {part.encoding.file} does not define "
                "pull(spec, params, dslots, dparams, **options), without which it cannot be trained"
            )


def _times_others(
    parts: Sequence[Part], part: Part, slot: str, spec: Spec, params: Mapping[str, Any], gradient: np.ndarray
) -> np.ndarray:
    """Return the gradient of a part's own slot, given the gradient of the combined slot.

    For slots that multiply, it is the product of the given gradient and the slots of all other parts.
    """
    import numpy as np

    if SLOTS[slot].combine != "multiply":
        return gradient
    for other in parts:
        shapes = shapes_of(other, spec)
        if other is not part and slot in shapes:
            factor = {each: np.empty(shape, _dtype(each, shape, spec)) for each, shape in shapes.items()}
            _fill_part(other, spec, _own(parts, other, params, spec), factor, reference=False)
            gradient = gradient * combined_slots.widened(slot, factor[slot], gradient.shape)
    return gradient


def remarks(parts: Sequence[Part], spec: Spec) -> tuple[str, ...]:
    """Return the remarks of the parts for the user: on padded channels, clipped positions and so on."""
    return tuple(f"{part.scheme}: {text}" for part in parts for text in part.encoding.remarks(spec, **part.options))
