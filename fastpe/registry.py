"""What one file of `fastpe/encodings/` defines, and how encodings and their options are found by name.

Importing this module imports neither NumPy nor Numba, so that a command line can list encodings in no time.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from fastpe.arguments import nearest
from fastpe.option import Option
from fastpe.slots import Spec


class BeyondTrainingLength(ValueError):
    """The encoding is undefined at this length or position; the message says why."""


def _nothing(spec: Spec, *rng: Any, **options: Any) -> Any:
    return {}


def _one(**options: Any) -> int:
    return 1


def _never(**options: Any) -> bool:
    return False


def _no_remarks(spec: Spec, **options: Any) -> tuple[str, ...]:
    return ()


def _accepts(spec: Spec, **options: Any) -> None:
    return None


@dataclass(frozen=True)
class Encoding:
    """A position encoding, as its own file of `fastpe/encodings/` defines it.

    Attributes
    ----------
    slots : the slots it may fill
    options : its options; the defaults are its authors'
    beyond : what happens past the training length: "defined", "clipped", "resized" or "undefined"
    moves : (**options) -> whether, past the training length, a longer sequence changes what earlier positions get (of a
        grid, its cells), so that keys cached before do not fit
    direction : whether a model without a causal mask can tell left from right by it: "yes", "no" (equal for both
        sides: only with a causal mask), or "causal" (made for causal models alone)
    source : where it was published
    ulp : error of a float64 fill in units of `eps * max|slot|`: a number, or a function (spec, **options) that returns
        one or an array that broadcasts against the slot; see `error_bound`
    reference : (spec, params, **options) -> {slot: float64 array}, the printed formula in NumPy
    fill : (spec, params, out, **options), writes arrays of any strides; its loops are compiled
    pull : (spec, params, dslots, dparams, **options), adds the parameters' gradients into dparams
    init : (spec, rng, **options) -> {parameter: float64 array}, the authors' initial values
    parameters : (spec, **options) -> {parameter: shape}; empty where nothing is learned
    shapes : (spec, **options) -> {slot: shape}, where they are not the usual ones or depend on the options
    plain : (spec, **options) -> {slot: value} of the slots that are no arrays: "scale", "pairs", "rectify"
    axes : (**options) -> how many coordinates a position has, where they are given
    check : (spec, **options), raises what is wrong with a request before any work
    remarks : (spec, **options) -> sentences a user should read about this request
    per_layer : the parameters that every layer owns a copy of
    paper : options that Li (2025) names, used by the command line's experiments
    """

    slots: tuple[str, ...]
    options: Mapping[str, Option]
    beyond: str
    direction: str
    source: str
    ulp: float | Callable[..., Any]
    reference: Callable[..., dict[str, Any]]
    fill: Callable[..., None]
    pull: Callable[..., None] | None = None
    init: Callable[..., dict[str, Any]] = _nothing
    parameters: Callable[..., dict[str, tuple[int, ...]]] = _nothing
    shapes: Callable[..., dict[str, tuple[int, ...]]] | None = None
    plain: Callable[..., dict[str, Any]] = _nothing
    axes: Callable[..., int] = _one
    moves: Callable[..., bool] = _never
    check: Callable[..., None] = _accepts
    remarks: Callable[..., tuple[str, ...]] = _no_remarks
    per_layer: tuple[str, ...] = ()
    paper: Mapping[str, Any] = field(default_factory=dict)


class Part(NamedTuple):
    """One term of a sum of encodings: its key, the encoding, and all its options, validated."""

    scheme: str
    encoding: Encoding
    options: dict[str, Any]


# ---------------------------------------------------------------------------------------------------------------------
# The registry


@cache
def list_encodings() -> tuple[str, ...]:
    """The keys of all encodings, sorted.

    >>> {"alibi", "learned", "legendre"} <= set(list_encodings())
    True
    """
    folder = Path(__file__).parent / "encodings"
    return tuple(sorted(path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")))


def _known(scheme: str) -> str:
    if not isinstance(scheme, str):
        raise TypeError(f"encoding must be a name, not {scheme!r}")
    if scheme not in list_encodings():
        raise ValueError(f"encoding {scheme!r} is unknown; {nearest(scheme, list_encodings())}")
    return scheme


def get(scheme: str) -> Encoding:
    """The encoding of this key. Raises ValueError, with the nearest names, where there is none."""
    encoding: Encoding = import_module(f"fastpe.encodings.{_known(scheme)}").ENCODING
    return encoding


def page(scheme: str) -> str:
    """The encoding's documentation page (its file's docstring), read without importing it."""
    path = Path(__file__).parent / "encodings" / f"{_known(scheme)}.py"
    return ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""


def split(name: str) -> tuple[str, ...]:
    """The keys that a name such as "wavelet+alibi" adds up."""
    if not isinstance(name, str):
        raise TypeError(f"encoding must be a name, not {name!r}")
    schemes = tuple(_known(scheme.strip()) for scheme in name.split("+"))
    if len(set(schemes)) < len(schemes):
        raise ValueError(f"encoding {name!r} names the same encoding twice")
    return schemes


def _option(schemes: Sequence[str], key: str) -> tuple[str, str]:
    """The scheme and option that a key ("scale", or "wavelet.scale" in a sum) stands for."""
    scheme, dot, option = key.partition(".")
    if not dot and len(schemes) == 1:
        scheme, option = schemes[0], key
    if scheme in schemes and option in get(scheme).options:
        return scheme, option
    alone = len(schemes) == 1
    keys = [one if alone else f"{each}.{one}" for each in schemes for one in get(each).options]
    raise ValueError(f"option {key!r} of encoding {'+'.join(schemes)!r} is unknown; {nearest(key, keys)}")


def parse(name: str, options: Mapping[str, Any] | None = None) -> tuple[Part, ...]:
    """Validate a name, which may be a sum, and its options; options that are not given have their defaults.

    >>> parse("alibi", {"alpha0": 0.1})[0].options["learned"]
    False
    """
    schemes = split(name)
    parts = tuple(Part(s, get(s), {k: o.default for k, o in get(s).options.items()}) for s in schemes)
    for key, value in (options or {}).items():
        scheme, option = _option(schemes, key)
        part = parts[schemes.index(scheme)]
        part.options[option] = part.encoding.options[option].validate(key, value)
    return parts


def parse_option(name: str, key: str, text: str) -> Any:
    """The typed value of an option that a command line gives as text.

    >>> parse_option("wavelet+alibi", "wavelet.scale", "2")
    2.0
    """
    scheme, option = _option(split(name), key)
    return get(scheme).options[option].parse(key, text)


def option_values(name: str, options: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """All options of a name, defaults included, keyed as `build` takes them: what a run should record.

    >>> option_values("nope+learned", {"learned.scale": 2})
    {'learned.beyond': 'error', 'learned.scale': 2.0}
    """
    parts = parse(name, options)
    return {
        key if len(parts) == 1 else f"{part.scheme}.{key}": list(value) if isinstance(value, tuple) else value
        for part in parts
        for key, value in part.options.items()
    }
