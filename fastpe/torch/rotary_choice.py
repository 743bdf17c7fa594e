"""What `rotated` changes: the rotary positions of a scheme, frequencies, and the heads that use them."""

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from fastpe import bands
from fastpe.bands import Band
from fastpe.base.validation import array, finite, nearest, shown
from fastpe.encodings.build import build
from fastpe.encodings.registry import get, list_encodings

Array = np.ndarray[Any, Any]
Scheme = Callable[..., tuple[Band, ...]]

BANDS: dict[str, Scheme] = {
    each.__name__: each
    for each in (
        bands.dual_chunk, bands.leaky_rerope, bands.lm_infinite, bands.rerope, bands.self_extend,
        bands.shifted, bands.streaming,
    )
}  # fmt: skip
_FIXED = ("dim", "heads", "pairs", "positions", "rotated", "dtype", "params", "seed", "reference", "out", "start")


class Group(NamedTuple):
    """Heads of a layer that are rotated in the same way.

    Attributes
    ----------
    heads : (H',) int array, or None
        None means all heads.
    scheme : callable
        Returns the bands for numbers of queries and keys.
    theta : (R/2,) float64
        Frequencies.
    factor : float
        The factor by which queries and keys are multiplied, in addition to their rotation (YaRN's temperature).
    """

    heads: Array | None
    scheme: Scheme
    theta: Array
    factor: float


class Rotary(NamedTuple):
    """A model's own rotation: frequencies in radians per position (R/2,), the factor on rotated channels, the base of
    the frequencies and the training length (None if the model does not state them)."""

    theta: Array
    factor: float
    base: float | None
    train_length: int | None


class Choice:
    """The checked arguments of `rotated`. Layers and heads are numbers, for error messages and shapes."""

    def __init__(self, scheme: Any, keep: Any, heads: Any, options: dict[str, Any], layers: int, count: int) -> None:
        self.bands: Scheme = own_positions
        self.frequencies: str | None = None
        self.options: dict[str, Any] = {}
        if scheme is None:
            if options:
                raise TypeError(f"rotated takes no option {next(iter(options))!r} without a scheme")
        elif isinstance(scheme, str) and scheme in BANDS:
            self.bands = _with_options(BANDS[scheme], options)
        elif isinstance(scheme, str) and _rotates(scheme):
            self.frequencies, self.options = scheme, options
            for name in options:
                if name in _FIXED:
                    raise TypeError(f"{name} is not an option of rotated: the model determines it")
        else:
            known = ", ".join(map(repr, BANDS))
            raise ValueError(
                f"scheme must be None, one of {known}, or a rotary encoding such as 'rope_yarn', not {shown(scheme)}"
            )
        self.keep = None if keep is None else finite("keep", array("keep", keep, "real numbers", "biuf"), np.float64)
        self.chosen = np.ones((layers, count), bool) if heads is None else _chosen(heads, layers, count)
        self.layers, self.count = layers, count

    def depends_on_length(self) -> bool:
        """Whether the frequencies depend on the number of tokens read so far."""
        return self.frequencies is not None and self.options.get("factor") is None

    def check(self, rotary: Rotary) -> None:
        """Raise an error if the choice does not suit a rotation of the model."""
        half = len(rotary.theta)
        if self.keep is not None:
            shape = (self.layers, self.count, half)
            try:
                np.broadcast_to(self.keep, shape)
            except ValueError:
                raise ValueError(
                    f"keep must have a shape that broadcasts to (layers, heads, R/2) = {shape}, not {self.keep.shape}"
                ) from None
        self._frequencies(rotary, 1)

    def groups(self, rotary: Rotary, layer: int, length: int) -> list[Group]:
        """Return the groups of heads of a layer. `length` is the number of tokens read so far."""
        changed, factor = self._frequencies(rotary, length)
        rows = np.broadcast_to(changed, (self.count, len(changed)))
        if self.keep is not None:
            rows = rows * np.broadcast_to(self.keep, (self.layers, *rows.shape))[layer]
        found: dict[tuple[bool, bytes], list[int]] = {}
        for head, chosen in enumerate(self.chosen[layer].tolist()):
            found.setdefault((chosen, rows[head].tobytes() if chosen else b""), []).append(head)
        return [
            Group(
                None if len(found) == 1 else np.array(heads),
                self.bands if chosen else own_positions,
                rows[heads[0]] if chosen else rotary.theta,
                factor if chosen else rotary.factor,
            )
            for (chosen, _), heads in found.items()
        ]

    def _frequencies(self, rotary: Rotary, length: int) -> tuple[Array, float]:
        """Return the frequencies (R/2,) of chosen heads before `keep`, and the factor on rotated channels."""
        if self.frequencies is None:
            return rotary.theta, rotary.factor
        given: dict[str, Any] = {"train_length": rotary.train_length, "base": rotary.base}
        request = {name: given[name] for name in ("train_length", *get(self.frequencies).options) if name in given}
        request |= self.options
        for name, value in request.items():
            if value is None and name in given:
                raise ValueError(f"rotated needs the option {name!r}, because the model's settings do not state it")
        width = 2 * len(rotary.theta)
        sizes: dict[str, Any] = {"dim": 2 * width, "heads": 2}  # two, so that an encoding whose heads differ is refused
        theta = bands.frequencies(self.frequencies, length, **sizes, **request)
        slots = build(self.frequencies, 1, **sizes, **request, positions=[length - 1.0])
        if len(theta) != len(rotary.theta) or slots.keys() - {"angles", "pairs", "scale"}:
            raise ValueError(f"scheme must be a rotary encoding of angles alone, not {self.frequencies!r}")
        return theta, math.sqrt(float(slots.get("scale", width**-0.5)) * math.sqrt(width))


def own_positions(queries: int, keys: int) -> tuple[Band, ...]:
    """Return one band in which every query sees every key at its own position.

    >>> own_positions(1, 3)[0].queries.tolist()
    [[2.0]]
    """
    places = np.arange(float(keys))
    return (Band(places[None, keys - queries :], places, np.full((1, queries, 2), (0, keys))),)


def _rotates(name: str) -> bool:
    """Whether a name is that of an encoding that only rotates, by angles."""
    slots = set(get(name).slots) if name in list_encodings() else set()
    return "angles" in slots and slots <= {"angles", "rotors", "pairs", "scale"}


def shifted(scheme: Scheme, queries: int, keys: int, shift: int) -> tuple[Band, ...]:
    """Return the bands of a scheme for keys at the positions shift, shift + 1, .... Keys at negative positions are
    padding, which must be hidden by other means.

    >>> shifted(own_positions, 2, 3, shift=-1)[0].keys.tolist()
    [0.0, 0.0, 1.0]
    """
    if shift >= 0:
        made = scheme(queries, keys + shift)
        return tuple(
            Band(of_queries, of_keys[..., shift:], np.clip(spans - shift, 0, keys))
            for of_queries, of_keys, spans in made
        )
    real, padding = keys + shift, -shift
    read = min(queries, real)
    front = ((0, 0), (queries - read, 0))
    return tuple(
        Band(
            np.pad(of_queries, front),
            np.pad(of_keys, (padding, 0)),
            np.pad(spans + padding, (*front, (0, 0))),
        )
        for of_queries, of_keys, spans in scheme(read, real)
    )


def stacked(scheme: Scheme, queries: int, keys: int, shifts: Array) -> tuple[Band, ...]:
    """Return the bands of samples whose keys have different shifts."""
    if (shifts == shifts[0]).all():
        return shifted(scheme, queries, keys, int(shifts[0]))
    samples = [shifted(scheme, queries, keys, shift) for shift in shifts.tolist()]
    return tuple(
        Band(
            np.concatenate([each.queries for each in same]),
            np.stack([each.keys for each in same]),
            np.concatenate([each.spans for each in same]),
        )
        for same in zip(*samples, strict=True)
    )


def _with_options(scheme: Scheme, options: dict[str, Any]) -> Scheme:
    """Return a scheme of `fastpe.bands` with its options, which are checked."""
    known = set(inspect.signature(scheme).parameters) - {"queries", "keys", "offset", "causal"}
    for name in options:
        if name not in known:
            raise TypeError(f"{scheme.__name__} has no option {name!r}; {nearest(name, sorted(known))}")
    scheme(1, 1, **options)
    return lambda queries, keys: scheme(queries, keys, **options)


def _chosen(heads: Any, layers: int, count: int) -> Array:
    found = array("heads", heads, "booleans", "b")
    try:
        return np.broadcast_to(found, (layers, count))
    except ValueError:
        raise ValueError(
            f"heads must have a shape that broadcasts to (layers, heads) = ({layers}, {count}), not {found.shape}"
        ) from None
