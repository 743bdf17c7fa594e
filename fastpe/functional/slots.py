"""Checks of the shapes of slots, and of the combinations of arguments of attention that are supported.

`kernels.attention.slots` has the table of slots, with their axes, dtype, layout in kernels, and gradient.
"""

import textwrap
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import zip_longest
from typing import Any

import numpy as np

from fastpe.base import validation
from fastpe.kernels.attention.slots import SLOTS
from fastpe.kernels.attention.terms.key_query_offsets import COLUMN_SLOTS

Array = np.ndarray[Any, Any]


NETWORK, REFLECTIONS = ("mlp_in", "mlp_bias", "mlp_out"), ("reflectors", "reflect")
TOGETHER = (
    (("index", "values"), ""), (REFLECTIONS, ""), (NETWORK, ""),
    (("bands", "theta"), ": bands holds the positions of queries and keys, and theta the radians per position"),
)  # fmt: skip
"""Arguments that must be given together, and the text that is added to the error."""

CAUSAL = {
    "growth": "its factors grow without bound for keys after the query",
    "counts": "keys after the query are not counted",
    "reflectors": "there are no reflections between a query and keys after it",
}
"""Arguments that need causal=True, and the reasons."""

_TWO_CHANNELS = "polar turns each channel into two"
_TURNS = "with bands, queries and keys are rotated by theta alone"
REFUSED: Mapping[str, Mapping[str, str]] = {
    "polar": dict.fromkeys(
        ("rotors", "growth", "rel_gain", "rel_key", "rel_query", "key_bias", "counts"), _TWO_CHANNELS
    ),
    "bands": {
        **dict.fromkeys(("rotors", "polar", "angles", "growth", "rel_gain"), _TURNS),
        "counts": "a query counts the keys of all bands together",
    },
    "reflectors": {
        "rel_gain": "reflections mix the channels that rel_gain scales",
        "growth": "reflections mix the channels that growth scales",
        "polar": "reflectors has D channels, but rows in polar form have 2 D",
        "bands": "reflections depend on the tokens between query and key, not on positions in a band",
        "theta": "theta needs bands, which cannot be given with reflectors",
    },
}  # fmt: skip
"""Arguments that cannot be given together because no formula is defined for them, and the reasons."""

REFERENCE_ONLY: Mapping[str, Mapping[str, str]] = {
    "reflectors": {
        "counts": "the backward pass of counts loops over blocks of keys, that of reflections over blocks of queries",
        **dict.fromkeys(
            NETWORK, "a network reads the scores of all heads at once, and reflections are computed head by head"
        ),
    },
    "mlp_in": {
        "rel_gain": "the backward pass of a network has one product per query and key, not one per channel",
        "growth": "the backward pass of a network uses queries and keys without the factors of growth",
        "counts": "the kernels count keys from near to far, and compute a network from far to near",
        "bands": "a network reads the scores of adjacent keys, and each band is a separate pass",
        "theta": "theta needs bands, which cannot be given with mlp_in",
    },
}  # fmt: skip
"""Arguments that have a formula together but no kernel, and the reasons. Only `fastpe.reference.attention` takes them
together."""

WITH_NETWORK = frozenset(
    ("rel_key", "rel_query", "rel_value", "key_bias", "gain", "bias", "values", "index", "scores", *COLUMN_SLOTS)
)
"""The slots that the kernels for a network over the scores support (`kernels.attention.dape`)."""

_PRINTED = {"H1": "H or 1", "T": "2K+1", "R": "R/2", "L": "max(N, M)", "L1": "max(N, M) or 1"}
_MOST_VALUES = 2**31 - 1  # the largest number of values that an int32 index can select from
_WIDTHS = {"Slot": 11, "Shape": 22, "Gradient": 8, "Meaning": 38, "Combinations": 25}
"""Columns of the table of slots, and their widths."""


def names_of(dtype: str) -> tuple[str, ...]:
    """Return the names of the slots with this dtype in the table."""
    return tuple(name for name, slot in SLOTS.items() if slot.dtype == dtype)


def check_combination(given: Collection[str], causal: bool) -> None:
    """Raise ValueError for arguments that cannot be given together. `given` has the names of all given arguments.

    >>> check_combination({"index"}, False)
    Traceback (most recent call last):
    ...
    ValueError: index and values must be given together, not index alone
    """
    if not given:
        return
    for main, others in REFUSED.items():
        for name, why in others.items() if main in given else ():
            if name in given:
                raise ValueError(f"{name} cannot be given with {main}: {why}")
    for names, why in TOGETHER:
        own = [name for name in names if name in given]
        if own and len(own) < len(names):
            listed = f"{', '.join(names[:-1])} and {names[-1]}"
            raise ValueError(f"{listed} must be given together, not {' and '.join(own)} alone{why}")
    for name, why in CAUSAL.items():
        if name in given and not causal:
            raise ValueError(f"{name} needs causal=True: {why}")


def check_kernels(given: AbstractSet[str]) -> None:
    """Raise ValueError for arguments that have a formula together but no kernel.

    >>> check_kernels({"reflectors", "counts"})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ValueError: counts cannot be given with reflectors, except to fastpe.reference.attention: the backward pass of ...
    """
    if "mlp_in" in given:
        for name in given:
            if name in SLOTS and SLOTS[name].layout and name not in WITH_NETWORK | REFERENCE_ONLY["mlp_in"].keys():
                raise ValueError(_without_kernel(name, "mlp_in", "there is no kernel"))
    for main, others in REFERENCE_ONLY.items():
        for name, why in others.items() if main in given else ():
            if name in given:
                raise ValueError(_without_kernel(name, main, why))


def _without_kernel(name: str, main: str, why: str) -> str:
    return f"{name} cannot be given with {main}, except to fastpe.reference.attention: {why}"


def check_polar(name: str, layers: Sequence[Collection[str]]) -> None:
    """Raise ValueError for `polar` in some layers only, or together with slots that it excludes.

    Parameters
    ----------
    name : str
        Name of the encoding.
    layers : sequence of collections of str
        The names of the slots of each layer, or of each distinct layer.

    Raises
    ------
    ValueError
        If some layers have `polar` and others do not, or if a layer has `polar` and a slot that it excludes.

    Examples
    --------
    >>> check_polar("pope", [{"polar", "angles"}])
    """
    lifted = [own for own in layers if "polar" in own]
    if lifted and len(lifted) < len(layers):
        raise ValueError(f"{name!r} fills 'polar' in some layers only: all layers must have it, or none")
    for own in lifted:
        if apart := [slot for slot in REFUSED["polar"] if slot in own]:
            raise ValueError(f"{name!r} fills {apart[0]!r}, which cannot be combined with its 'polar'")


def documented() -> str:
    """Return the table of slots for the docstring of `fastpe.attention`, in reStructuredText."""
    rule = "  ".join("=" * width for width in _WIDTHS.values())
    lines = [rule, *_table_row(tuple(_WIDTHS)), rule]
    for name, slot in SLOTS.items():
        shape = ", ".join(_PRINTED.get(axis, axis) for axis in slot.axes) + "," * (len(slot.axes) == 1)
        meaning = slot.meaning[0].upper() + slot.meaning[1:] + "; read in float64" * (slot.dtype == "float64")
        gradient = "no" if slot.dtype == "int32" else "yes"
        lines += _table_row((name, f"({shape})", gradient, meaning, "; ".join(_combinations(name))))
    return "\n".join((*lines, rule))


def _table_row(cells: Sequence[str]) -> list[str]:
    """Return the lines of one row of the table of slots."""
    widths = tuple(_WIDTHS.values())
    wrapped = [textwrap.wrap(cell, width) for cell, width in zip(cells, widths, strict=True)]
    return [
        "  ".join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip()
        for parts in zip_longest(*wrapped, fillvalue="")
    ]


def _combinations(name: str) -> list[str]:
    """Return phrases on what a slot needs, what excludes it, and what only `fastpe.reference.attention` combines with
    it.
    """
    needed = ["causal=True"] * (name in CAUSAL)
    needed += partners(name)
    phrases = [f"needs {', '.join(needed)}"] * bool(needed) + ["no axis B"] * (not SLOTS[name].batched)
    for table, words in ((REFUSED, "not with"), (REFERENCE_ONLY, "reference only with")):
        apart = {main for main, others in table.items() if name in others} | set(table.get(name, ()))
        phrases += [f"{words} {', '.join(sorted(apart))}"] * bool(apart)
    return phrases


def partners(name: str) -> tuple[str, ...]:
    """Return the arguments that must be given together with this one.

    >>> partners("index")
    ('values',)
    """
    return tuple(each for names, _ in TOGETHER if name in names for each in names if each != name)


def shape_of(name: str, sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of a slot's array without the batch axis. `sizes` has the size of each axis, including "H1",
    "L1" and "b".

    >>> shape_of("rel_key", {"H1": 1, "T": 9, "D": 4})
    (1, 9, 4)
    """
    computed = {"2H": 2 * sizes.get("H", 0), "D/b": sizes.get("D", 0) // sizes.get("b", 1)}
    return tuple({**computed, **sizes}[axis] for axis in SLOTS[name].axes)


def sample(
    name: str, sizes: Mapping[str, int], rng: np.random.Generator, samples: int | None = None, dtype: Any = np.float64
) -> Array:
    """Return a random array for a slot, for tests and benchmarks. Its magnitude is about that in trained models.

    Parameters
    ----------
    name : str
        The slot.
    sizes : dict
        As for `shape_of`.
    rng : numpy.random.Generator
        The random generator.
    samples : int, optional
        Size of a leading axis B; by default there is none.
    dtype : dtype
        The dtype of the array, except for `index`, which has integers, and `angles`, `growth` and `theta`, which have
        float64.

    Returns
    -------
    array
        The shape is that of `shape_of`, with `samples` as the first size if given.
    """
    shape = (*(() if samples is None else (samples,)), *shape_of(name, sizes))
    if name == "index":
        return rng.integers(0, sizes["V"], shape)
    array = rng.standard_normal(shape)
    if name in _SHRUNK:
        array /= _SHRUNK[name]
    if name in ("gain", "rel_gain", "row_scale"):
        array = 1 + 0.3 * array
    if name in ("key_slope", "query_slope"):
        array *= 2 / sizes["L"]  # times an offset of about L, it is as large as other terms
    if name == "rotors":  # products with rotors of this size have the magnitude of the rows
        array /= np.sqrt(shape[-1])
    if name == "reflectors":  # reflections along unit vectors keep norms bounded
        array /= np.linalg.norm(array, axis=-1, keepdims=True)
    if name == "reflect":
        array = 2 / (1 + np.exp(-array))
    if name == "growth":
        falling = -0.02 * np.arange(shape[-2])[:, None]
        array = falling * rng.uniform(0.5, 1, (*shape[:-2], 1, shape[-1]))
    return np.asarray(array, np.float64 if name in ("angles", "growth", "theta") else dtype)


_SHRUNK = {"counts": 4, "mlp_in": 2, "mlp_bias": 2, "mlp_out": 2}  # slots that affect a score several times


def samples(
    names: Collection[str], rng: np.random.Generator, *, b: int, h: int, n: int, m: int, d: int, dv: int | None = None,
    dtype: Any = np.float64, reach: int = 4, most: int = 7, w: int = 3, taps: int = 1, led: bool = False,
    shared: bool = False,
) -> dict[str, Array]:  # fmt: skip
    """Return random arrays of several slots with matching shapes, each drawn as by `sample`.

    Parameters
    ----------
    names : collection of str
        The slots. With `values`, `index` is added.
    rng : numpy.random.Generator
        The random generator.
    b, h, n, m, d, dv : int
        Numbers of samples, heads, queries, keys, channels of queries, and channels of values; by default dv is d.
    dtype : dtype
        As for `sample`.
    reach : int
        K, for arrays with one entry for each offset from -K to K.
    most : int
        P - 1, the largest number of counted keys that has a vector in `counts`.
    w, taps : int
        Numbers of units and of taps of the network over scores.
    led : bool
        Whether arrays have a leading axis B if their slot allows it.
    shared : bool
        Whether arrays have size 1 along the axis H if their slot allows it.

    Returns
    -------
    dict

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> found = samples(["bias", "values"], rng, b=1, h=2, n=3, m=5, d=4)
    >>> {name: array.shape for name, array in found.items()}
    {'bias': (2, 9), 'values': (2, 7), 'index': (3, 5)}
    """
    blocks = [size for size in (1, 2, 3, 4, 8) if d % size == 0 and (size == 1 or size < d)]
    sizes = {
        "H": h, "H1": 1 if shared else h, "N": n, "M": m, "D": d, "Dv": d if dv is None else dv, "L": max(n, m),
        "L1": max(n, m), "T": 2 * reach + 1, "R": d if "polar" in names else max(1, d // 2), "V": 7, "P": most + 1,
        "W": w, "b": max(blocks),
    }  # fmt: skip
    network = {**sizes, "T": taps}
    names = [*(name for name in names if name != "index"), *(["index"] if {"index", "values"} & set(names) else [])]
    return {
        name: sample(
            name, network if name in NETWORK else sizes, rng, b if led and SLOTS[name].batched else None, dtype
        )
        for name in names
    }


def with_batch(name: str, array: Array, sizes: Mapping[str, int], given: Collection[str], *, longer: bool) -> Array:
    """Return the slot with a leading axis B or 1, after checking its shape.

    `given` has the names of all slots: with `polar`, `angles` has D columns. If `longer` is true, axes over positions
    may be longer than max(N, M).
    """
    axes, batched = SLOTS[name].axes, SLOTS[name].batched
    if name == "angles" and "polar" in given:
        axes = (*axes[:-1], "D")
    led = array if array.ndim == len(axes) + 1 and batched else array[None]
    square = axes[-2:] == ("N", "M") and len(set(led.shape[-2:])) == 1 and _fits("L", led.shape[-1], sizes, longer)
    fits = led.ndim == len(axes) + 1 and led.shape[0] in (1, sizes["B"])
    fits = fits and all(
        _fits(axis, size, sizes, longer) or (square and axis in "NM")
        for axis, size in zip(axes, led.shape[1:], strict=True)
    )
    if name == "rotors" and fits:
        fits = led.shape[-3] * led.shape[-2] == sizes["D"] and led.shape[-2] == led.shape[-1]
    if not fits:
        printed = ", ".join(_PRINTED.get(axis, axis) for axis in axes) + "," * (len(axes) == 1)
        known = ", ".join(f"{axis} = {size}" for axis, size in sizes.items() if axis not in ("L", "Dv") or axis in axes)
        after = ", optionally after an axis B," if batched else ""
        raise ValueError(f"{name} must have the shape ({printed}){after} with {known}, not {array.shape}")
    return led


def _fits(axis: str, size: int, sizes: Mapping[str, int], longer: bool) -> bool:
    if axis == "H1":
        return size in (1, sizes["H"])
    if axis == "T":
        return size % 2 == 1
    if axis == "R":
        return 1 <= size <= sizes["D"] // 2
    if axis == "L1":
        return size == 1 or _fits("L", size, sizes, longer)
    if axis in ("D/b", "b"):
        return size >= 1 and sizes["D"] % size == 0
    if axis == "L" and longer:
        return size >= sizes["L"]
    if axis == "2H":
        return size == 2 * sizes["H"]
    return size >= 1 if axis in ("V", "P", "W") else size == sizes[axis]


def check_index(index: Any, values: Array | None) -> Array:
    """Check `index`, and return it as int32. It selects an entry of `values` for each pair of query and key."""
    # an empty `values` is no error here: a later check raises an error about its shape
    count = _MOST_VALUES if values is None or 0 in (values.ndim, *values.shape[-1:]) else values.shape[-1]
    if count > _MOST_VALUES:
        raise ValueError(f"values must have at most {_MOST_VALUES} entries for index to choose from, not {count}")
    return validation.integers("index", index, 0, count - 1, dtype=np.int32)


def check_shapes(slots: Mapping[str, Array]) -> None:
    """Raise ValueError if the shapes of several slots do not match. The arrays have a leading axis B or 1."""
    counts = [slots[name].shape[-1] for name in ("angles", "growth") if name in slots]
    if len(set(counts)) > 1:
        raise ValueError(f"growth must have as many pairs as angles, {counts[0]}, not {counts[1]}")
    if "mlp_in" in slots:
        (width, _, taps), offsets, readout = (slots[name].shape[1:] for name in NETWORK)
        if offsets != (width,):
            raise ValueError(f"mlp_bias must have the shape (W,) = ({width},) of mlp_in's first axis, not {offsets}")
        if readout[1:] != (width, taps):
            raise ValueError(
                f"mlp_out must have the shape (H, W, T) with W = {width} and T = {taps} as in mlp_in, not {readout}"
            )
