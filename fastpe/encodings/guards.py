"""Checks at every call of a user-defined encoding, because kernels trust the shapes of the slots that it fills.

These checks take almost no time; `fastpe check` checks everything. Encodings of fastpe are not checked at every call,
because tests cover them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fastpe.base.own import told
from fastpe.base.validation import unmasked
from fastpe.encodings.combined import shapes_of
from fastpe.encodings.encoding import FUNCTIONS, BeyondTrainingLength, Encoding, Part
from fastpe.encodings.record import ALONE
from fastpe.encodings.slots import OF_OFFSETS, SLOTS, Spec, misfit

if TYPE_CHECKING:
    import numpy as np

_PAIRS = ("interleaved", "half")
_LOOKED_UP = {"index", "values"}


def guarded(own: Encoding, path: Path) -> Encoding:
    """Return the encoding with checked functions. An error names the file, the line and what is wrong."""
    given = {name: getattr(own, name) for name in (*FUNCTIONS, "ulp")}
    functions = {name: each for name, each in given.items() if callable(each) and each is not getattr(Encoding, name)}
    # errors of these types are passed on unchanged: the file's `check` may raise its own ValueErrors
    passed_on = {name: ValueError if name == "check" else BeyondTrainingLength for name in functions}
    careful: dict[str, Any] = {name: told(each, path, passed_on[name]) for name, each in functions.items()}
    safe = replace(own, **careful)
    border = _Border(safe, path.name)
    names = functions.keys() & {"reference", "fill", "pull", "init", "parameters", "axes", "moves", "resize", "ulp"}
    held: dict[str, Any] = {name: getattr(border, name) for name in names}
    return replace(safe, **held, shapes=border.shapes, plain=border.plain, check=border.check, remarks=border.remarks)


class _Border:
    """The functions of one encoding, with checks of their arguments and results."""

    def __init__(self, own: Encoding, file: str) -> None:
        self._own, self._file = own, file

    def check(self, spec: Spec, **options: Any) -> None:
        """Run the file's `check`, and reject given positions if the encoding fills a slot of `OF_OFFSETS`."""
        self._own.check(spec, **options)
        if spec.positions is not None and (slots := self._shapes(spec, options).keys() & OF_OFFSETS):
            raise ValueError(
                f"positions cannot be given: {self._file} fills {min(slots)!r}, which depends only on the offsets of "
                "consecutive positions"
            )

    def shapes(self, spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the slots, and check that kernels can take them."""
        found = self._shapes(spec, options)
        self._known("shapes", found, arrays=True)
        if ("index" in found) != ("values" in found):  # a kernel reads `values` at `index`
            raise self._error(f"shapes gives only slot {min(found.keys() & _LOOKED_UP)!r}: {ALONE}")
        for slot, shape in found.items():
            whole = isinstance(shape, tuple) and all(type(size) is int for size in shape)
            if not whole or misfit(slot, shape, spec, found):
                raise self._error(
                    f"shapes gives slot {slot!r} the shape {shape!r}, not one of {SLOTS[slot].axes} at length="
                    f"{spec.length}, dim={spec.dim}, heads={spec.heads}"
                )
        return found

    def _shapes(self, spec: Spec, options: dict[str, Any]) -> dict[str, tuple[int, ...]]:
        return shapes_of(Part("", self._own, options), spec)

    def plain(self, spec: Spec, **options: Any) -> dict[str, Any]:
        """Return the slots that are plain values, and check the values."""
        import numpy as np

        found = self._own.plain(spec, **options)
        self._known("plain", found, arrays=False)
        if missing := [slot for slot in self._own.slots if not SLOTS[slot].dtype and slot not in found]:
            raise self._error(f"plain gives no {missing[0]!r}, which ENCODING.slots names")
        for slot, value in found.items():
            if slot == "scale":
                scale = self._numbers("plain", slot, value)
                right = scale.dtype.kind != "b" and scale.shape in ((), (spec.heads,)) and np.isfinite(scale).all()
            else:
                right = isinstance(value, str) and value in _PAIRS if slot == "pairs" else isinstance(value, bool)
            if not right:
                raise self._error(f"plain gives slot {slot!r} the value {value!r}, not {SLOTS[slot].axes}")
        return found

    def axes(self, **options: Any) -> int:
        """Return the number of coordinates of a position."""
        count = self._own.axes(**options)
        if type(count) is not int or count < 1:
            raise self._error(f"axes must return an integer of at least 1, not {count!r}")
        return count

    def moves(self, **options: Any) -> bool:
        """Return whether a longer sequence changes the slots of earlier positions."""
        moved = self._own.moves(**options)
        if not isinstance(moved, bool):
            raise self._error(f"moves must return True or False, not {moved!r}")
        return moved

    def ulp(self, spec: Spec, **options: Any) -> np.ndarray:
        """Return the bound on the error of the fill that the file states."""
        assert callable(self._own.ulp)  # this method replaces only a callable `ulp`
        return self._finite("ulp", "error", self._own.ulp(spec, **options))

    def resize(self, params: Mapping[str, Any], **sizes: Any) -> dict[str, np.ndarray]:
        """Return the learned parameters for another size."""
        found = self._own.resize(_read_only(params), **sizes)  # type: ignore[misc] # wrapped only where there is one
        return {name: self._finite("resize", name, value) for name, value in self._dict("resize", found).items()}

    def parameters(self, spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
        """Return the shapes of the parameters."""
        found = self._dict("parameters", self._own.parameters(spec, **options))
        for name, shape in found.items():
            sizes = shape if isinstance(shape, tuple) else (None,)
            if not (isinstance(name, str) and name.isidentifier() and all(type(s) is int and s > 0 for s in sizes)):
                raise self._error(f"parameters must map names to tuples of sizes, not {name!r} to {shape!r}")
        return found

    def init(self, spec: Spec, rng: Any, **options: Any) -> dict[str, np.ndarray]:
        """Return the initial values, and check that they have the shapes that `parameters` states."""
        import numpy as np

        found = self._dict("init", self._own.init(spec, rng, **options))
        stated = self.parameters(spec, **options)
        if found.keys() != stated.keys():
            raise self._error(f"init must return {sorted(stated)}, as `parameters` does, not {sorted(found, key=str)}")
        drawn = {name: self._finite("init", name, value).astype(np.float64) for name, value in found.items()}
        for name, value in drawn.items():
            self._same(f"init gives {name!r}", value.shape, stated[name])
        return drawn

    def reference(self, spec: Spec, params: Mapping[str, Any], **options: Any) -> dict[str, np.ndarray]:
        """Return the slots of the NumPy formula, and check that they are complete and have the stated shapes."""
        found, expected = self._own.reference(spec, _read_only(params), **options), self._shapes(spec, options)
        self._known("reference", found, arrays=True)
        if found.keys() != expected.keys():
            raise self._error(f"reference must return the slots {sorted(expected)}, not {sorted(found)}")
        arrays = {slot: self._numbers("reference", slot, value) for slot, value in found.items()}
        for slot, array in arrays.items():
            self._same(f"reference gives slot {slot!r}", array.shape, expected[slot])
        _check_index(self._file, arrays)
        return arrays

    def fill(self, spec: Spec, params: Mapping[str, Any], out: Mapping[str, np.ndarray], **options: Any) -> None:
        """Run the file's `fill`, and check that it writes to the given arrays.

        The check finds arrays that are replaced, and arrays whose first or last entry is not written.
        """
        import numpy as np

        given = dict(out)
        ends = {slot: ((0,) * array.ndim, (-1,) * array.ndim) for slot, array in out.items()}
        for slot, places in ends.items():
            for place in places:
                out[slot][place] = np.nan if out[slot].dtype.kind == "f" else -1
        self._own.fill(spec, _read_only(params), given, **options)  # type: ignore[misc] # wrapped only where there is one
        self._in_place("fill", "out", given, out)
        for slot, places in ends.items():
            for place in places:
                value = out[slot][place]
                left = math.isnan(value) if out[slot].dtype.kind == "f" else value == -1
                # diverged parameters may give NaN, which training reports
                if left and all(np.isfinite(value).all() for value in params.values()):
                    raise self._error(
                        f"fill must write numbers to slot {slot!r}, of shape {out[slot].shape}, but its "
                        f"{'first' if place[0] == 0 else 'last'} entry is unwritten or NaN"
                    )
        _check_index(self._file, out)

    def pull(
        self, spec: Spec, params: Mapping[str, Any], dslots: Mapping[str, Any], dparams: Mapping[str, Any],
        **options: Any,
    ) -> None:  # fmt: skip
        """Run the file's `pull`, and check that it adds to the arrays of `dparams` in place."""
        given = dict(dparams)
        self._own.pull(spec, _read_only(params), _read_only(dslots), given, **options)  # type: ignore[misc] # likewise
        self._in_place("pull", "dparams", given, dparams)

    def remarks(self, spec: Spec, **options: Any) -> tuple[str, ...]:
        """Return the remarks of the file, and one that NumPy fills the slots if the file defines no `fill`."""
        found = self._own.remarks(spec, **options)
        if not isinstance(found, tuple) or not all(isinstance(text, str) for text in found):
            raise self._error(f"remarks must return a tuple of sentences, not {found!r}")
        if self._own.fill is None:
            found += (f"{self._file} defines no fill, so its NumPy formula is used, which may be slower",)
        return found

    # ------------------------------------------------------------------------------------------------------------------

    def _error(self, text: str) -> ValueError:
        return ValueError(f"{self._file}: {text}")

    def _dict(self, function: str, found: Any) -> dict[str, Any]:
        if not isinstance(found, dict):
            raise self._error(f"{function} must return a dict, not {type(found).__name__}")
        return found

    def _known(self, function: str, found: Any, arrays: bool) -> None:
        for slot in self._dict(function, found):
            if slot not in self._own.slots or bool(SLOTS[slot].dtype) != arrays:
                named = [each for each in self._own.slots if bool(SLOTS[each].dtype) == arrays]
                raise self._error(f"{function} gives slot {slot!r}, but ENCODING.slots allows only {', '.join(named)}")

    def _numbers(self, function: str, name: str, value: Any) -> np.ndarray:
        import numpy as np

        try:
            unmasked(name, value)
            array = np.asarray(value)
        except Exception as error:  # a ragged list, or an array on another device
            raise self._error(f"{function} must give {name!r} as an array: {_line(error)}") from error
        if array.dtype.kind not in "biuf":
            raise self._error(f"{function} gives {name!r} as {array.dtype}, not as real numbers")
        return array

    def _finite(self, function: str, name: str, value: Any) -> np.ndarray:
        import numpy as np

        array = self._numbers(function, name, value)
        if not np.isfinite(array).all():
            raise self._error(f"{function} gives {name!r} a value that is not finite")
        return array

    def _same(self, what: str, got: tuple[int, ...], expected: tuple[int, ...]) -> None:
        if got != expected:
            raise self._error(f"{what} the shape {got}, not {expected}")

    def _in_place(self, function: str, name: str, given: Mapping[str, Any], before: Mapping[str, Any]) -> None:
        import numpy as np

        if added := given.keys() - before.keys():
            raise self._error(f"{function} adds {min(added, key=str)!r} to {name}, which must keep {sorted(before)}")
        for key, array in before.items():
            if given.get(key) is not array:
                found = f"an array of shape {np.shape(given[key])}" if key in given else "nothing"
                raise self._error(
                    f"{function} replaces {name}[{key!r}], of shape {array.shape}, by {found}: write into the array, "
                    f"as in {name}[{key!r}][...] = values"
                )


def _read_only(given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return read-only views, so that the user's function cannot change arrays that are used again."""
    views = {name: value.view() for name, value in given.items()}
    for view in views.values():
        view.flags.writeable = False
    return views


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())


def _check_index(file: str, slots: Mapping[str, Any]) -> None:
    """Reject an index that has fractions or lies outside of `values`, where a kernel would read out of bounds."""
    import numpy as np

    if "index" not in slots:
        return
    index, count = np.asarray(slots["index"]), np.shape(slots["values"])[-1]
    if (broken := index != np.floor(index)).any():
        raise ValueError(f"{file}: slot 'index' must hold whole numbers, not {index[broken][0]}")
    if index.min() < 0 or index.max() >= count:
        raise ValueError(
            f"{file}: slot 'index' must lie in 0 .. {count - 1}, the entries of 'values', not in {index.min()} .. "
            f"{index.max()}"
        )
