"""The argument `bands` of attention: the class `Band`, checks, and the angles of queries and keys."""

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np

from fastpe.base import validation

Array = np.ndarray[Any, Any]


class Band(NamedTuple):
    """Rotary positions of queries and keys, and for each query the range of keys for which they are used.

    Query i is rotated by the angles queries[i] theta, and key j by the angles keys[j] theta; `fastpe.attention` takes
    the frequencies theta as a slot. The rotary offset of query and key is therefore queries[i] - keys[j], whatever
    their positions in the sequence are.

    Attributes
    ----------
    queries : (N,) or (B or 1, N) floats
        Rotary positions of the queries; they need not be integers.
    keys : (M,) or (B or 1, M) floats
        Rotary positions of the keys.
    spans : (N, 2) or (B or 1, N, 2) int
        For each query, the index of the first key in the band, and the index after the last key in it.

    Examples
    --------
    >>> near = Band(np.arange(3.0), np.arange(3.0), np.array([[0, 1], [0, 2], [1, 3]]))
    >>> near.spans.tolist()
    [[0, 1], [0, 2], [1, 3]]
    """

    queries: Array
    keys: Array
    spans: Array


def look_back(bands: Sequence[Band]) -> Array:
    """Return the rotary offset queries[i] - keys[j] of every query and key, as a dense array for inspection.

    Parameters
    ----------
    bands : tuple of Band
        Bands whose spans have a leading axis B or 1, as the functions of `fastpe.bands` return them.

    Returns
    -------
    (B or 1, N, M) float64
        NaN for a query and a key that are in no band together.

    Examples
    --------
    >>> import fastpe
    >>> look_back(fastpe.bands.rerope(3, window=1))[0].tolist()
    [[0.0, nan, nan], [1.0, 0.0, nan], [1.0, 1.0, 0.0]]
    """
    found: Any = np.nan
    for queries, keys, spans in bands:
        numbers, first, last = np.arange(len(keys)), spans[..., :1], spans[..., 1:]
        found = np.where((first <= numbers) & (numbers < last), queries[..., None] - keys, found)
    return np.asarray(found)


def check_bands(given: Mapping[str, Any], sizes: Mapping[str, int]) -> tuple[Band, ...]:
    """Return the checked bands of a call, with a leading axis B or 1 in their arrays. Without bands, return an empty
    tuple.
    """
    value = given.get("bands")
    if value is None:
        return ()
    bands = tuple(_checked(number, each, sizes) for number, each in enumerate(_listed(value)))
    for (one, first), (other, second) in combinations(enumerate(bands), 2):
        low, high = (
            pick(first.spans[..., end], second.spans[..., end])
            for pick, end in ((np.maximum, 0), (np.minimum, 1))
        )  # fmt: skip
        if np.any(low < high):
            sample, query = np.argwhere(low < high)[0].tolist()
            raise ValueError(
                f"bands must have no key in common, but bands[{one}] and bands[{other}] both have key "
                f"{low[sample, query]} of query {query}"
            )
    return bands


def angles_of(band: Band, theta: Array, keys: slice) -> tuple[Array, Array | None]:
    """Return the angles of queries and of the keys in a range, (B or 1, 1, N, R) each. In place of the angles of keys,
    return None if all keys have the rotary position 0."""
    of_queries, of_keys = (places[:, None, :, None] * theta for places in (band.queries, band.keys[:, keys]))
    return of_queries, of_keys if band.keys.any() else None


def keys_met(spans: Array) -> slice:
    """Return the range from the first to the last key that any query sees."""
    seen = spans[spans[..., 0] < spans[..., 1]]
    return slice(int(seen[:, 0].min()), int(seen[:, 1].max())) if len(seen) else slice(0, 0)


def flat(value: Any) -> dict[str, Any]:
    """Return the arrays of bands by name, for adapters that can pass only arrays.

    >>> list(flat([Band(1, 2, 3)]))
    ['bands[0].queries', 'bands[0].keys', 'bands[0].spans']
    """
    return {
        _name(number, field): array
        for number, each in enumerate(_listed(value))
        for field, array in zip(Band._fields, each, strict=True)
    }


def joined(given: Mapping[str, Any]) -> dict[str, Any]:
    """Undo `flat`: put arrays with its names back into bands. Other arguments of attention are unchanged.

    >>> joined({"q": 0, "bands[0].queries": 1, "bands[0].keys": 2, "bands[0].spans": 3})
    {'q': 0, 'bands': (Band(queries=1, keys=2, spans=3),)}
    """
    count = sum(name.endswith("].queries") for name in given)
    bands = tuple(Band(*(given[_name(number, field)] for field in Band._fields)) for number in range(count))
    rest = {name: array for name, array in given.items() if not name.startswith("bands[")}
    return rest | ({"bands": bands} if bands else {})


def _listed(value: Any) -> Sequence[Sequence[Any]]:
    if not isinstance(value, tuple | list) or not value or isinstance(value, Band):
        raise TypeError(f"bands must be a tuple of at least one fastpe.bands.Band, not {validation.shown(value)}")
    for number, each in enumerate(value):
        if not isinstance(each, tuple | list) or len(each) != len(Band._fields):
            raise TypeError(f"bands[{number}] must be a fastpe.bands.Band, not {validation.shown(each)}")
    return value


def _name(number: int, field: str) -> str:
    return f"bands[{number}].{field}"


def _checked(number: int, value: Sequence[Any], sizes: Mapping[str, int]) -> Band:
    queries, keys, spans = (_name(number, field) for field in Band._fields)
    own_spans = validation.integers(spans, value[2], 0, sizes["M"], clipped=True)
    return Band(
        _places(queries, value[0], "N", sizes),
        _places(keys, value[1], "M", sizes),
        _led(spans, own_spans, ("N", "2"), sizes),
    )


def _places(name: str, value: Any, axis: str, sizes: Mapping[str, int]) -> Array:
    led = _led(name, validation.array(name, value), (axis,), sizes)
    return validation.finite(name, led, np.float64).reshape(led.shape)


def _led(name: str, array: Array, tail: tuple[str, ...], sizes: Mapping[str, int]) -> Array:
    """Return the array with a leading axis B or 1, after checking its shape."""
    own = tuple({**sizes, "2": 2}[axis] for axis in tail)
    led = array if array.ndim > len(own) else array[None]
    if led.shape[1:] != own or led.shape[0] not in (1, sizes["B"]):
        printed = ", ".join(tail)
        known = f"({printed}) = {own}, optionally after an axis B = {sizes['B']} or 1"
        raise ValueError(f"{name} must have the shape {known}, not {array.shape}")
    return led
