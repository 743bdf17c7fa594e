"""The option `on` of all encodings: use the encoding on some heads only.

The encoding is built for a model of that many heads and of the same head width, and its slots get neutral values for
the other heads: angle 0, bias 0, factor 1. So `alibi` on the first two of four heads has the slopes of two heads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from fastpe.base.option import Option
from fastpe.base.validation import shown
from fastpe.encodings import combined
from fastpe.encodings.encoding import Encoding, Part
from fastpe.encodings.slots import SLOTS, Spec, neutral

ON = Option(None, "heads that use the encoding: first:N, last:N, or numbers such as 0,2; none: all", str, optional=True)
"""The option."""
_SHARED = ("index",)


class _OnHeads:
    """The functions of an encoding with the option `on`."""

    def __init__(self, encoding: Encoding) -> None:
        self.encoding = encoding

    def _inside(self, spec: Spec, options: dict[str, Any]) -> dict[str, tuple[int, ...]]:
        """The shapes of the slots of the smaller model."""
        return combined.shapes_of(Part("", self.encoding, options), spec)

    def shapes(self, spec: Spec, *, on: str, **options: Any) -> dict[str, tuple[int, ...]]:
        """The shapes of the slots, with all heads."""
        found = {}
        for slot, shape in self._inside(_smaller(spec, on), options).items():
            axis = _axis(slot, len(shape))
            found[slot] = shape if axis is None else (*shape[:axis], spec.heads, *shape[axis + 1 :])
        return found

    def check(self, spec: Spec, *, on: str, **options: Any) -> None:
        """Raise an error if a slot cannot be neutral for a head."""
        small = _smaller(spec, on)
        self.encoding.check(small, **options)
        names = [slot for slot, shape in self._inside(small, options).items() if _axis(slot, len(shape)) is None]
        names = [slot for slot in names if slot not in _SHARED]
        names += ["rectify"] if "rectify" in self.encoding.plain(small, **options) else []
        if names or self.encoding.gate is not None:
            what = f"slot {names[0]!r} has no heads" if names else "a layer computes its values"
            raise ValueError(f"option 'on' must not be set for this encoding, because {what}; it is {on!r}")

    def _filled(self, spec: Spec, on: str, small: dict[str, Any], out: dict[str, Any]) -> None:
        """Write the slots of the smaller model, and neutral values for the other heads."""
        for slot, array in small.items():
            axis = _axis(slot, array.ndim)
            if axis is None:
                out[slot][...] = array
            else:
                out[slot][...] = neutral(slot, out[slot].shape, out[slot].dtype)
                out[slot][(*(slice(None),) * axis, list(_chosen(spec, on)))] = array

    def reference(self, spec: Spec, params: dict[str, Any], *, on: str, **options: Any) -> dict[str, Any]:
        """The slots by the formula."""
        import numpy as np

        small = _smaller(spec, on)
        inside = self._inside(small, options)
        found = {
            slot: np.broadcast_to(value, inside[slot])
            for slot, value in self.encoding.reference(small, params, **options).items()
        }
        out = {slot: np.empty(shape) for slot, shape in self.shapes(spec, on=on, **options).items()}
        self._filled(spec, on, found, out)
        return out

    def fill(self, spec: Spec, params: dict[str, Any], out: dict[str, Any], *, on: str, **options: Any) -> None:
        """Fill the slots."""
        import numpy as np

        small = _smaller(spec, on)
        found = {slot: np.zeros(shape, out[slot].dtype) for slot, shape in self._inside(small, options).items()}
        if self.encoding.fill is None:
            found = {
                slot: found[slot] + value for slot, value in self.encoding.reference(small, params, **options).items()
            }
        else:
            self.encoding.fill(small, params, found, **options)
        self._filled(spec, on, found, out)

    def pull(
        self, spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, on: str,
        **options: Any,
    ) -> None:  # fmt: skip
        """Add the gradients of the parameters."""
        small, own = _smaller(spec, on), {}
        inside = self._inside(small, options)
        for slot, gradient in dslots.items():
            axis = _axis(slot, gradient.ndim)
            own[slot] = gradient if axis is None else gradient.take(_chosen(spec, on), axis)
            if axis is not None and inside[slot][axis] == 1:
                own[slot] = own[slot].sum(axis=axis, keepdims=True)
        assert self.encoding.pull is not None  # otherwise this function is not used
        self.encoding.pull(small, params, own, dparams, **options)

    def plain(self, spec: Spec, *, on: str, **options: Any) -> dict[str, Any]:
        """Values that are not arrays; `scale` becomes one number for each head."""
        import numpy as np

        found = dict(self.encoding.plain(_smaller(spec, on), **options))
        if "scale" in found:
            scale = np.full(spec.heads, spec.head_dim**-0.5)
            scale[list(_chosen(spec, on))] = found["scale"]
            found["scale"] = scale
        return found

    def column(self, spec: Spec, *, on: str, **options: Any) -> tuple[float, ...] | None:
        """The slopes, which are 0 for other heads."""
        slopes = self.encoding.column(_smaller(spec, on), **options)
        if slopes is None:
            return None
        own = dict(zip(_chosen(spec, on), slopes, strict=True))
        return tuple(own.get(head, 0.0) for head in range(spec.heads))

    def ulp(self, spec: Spec, *, on: str, **options: Any) -> Any:
        """The largest bound of the error of the smaller model."""
        import numpy as np

        return (
            np.max(self.encoding.ulp(_smaller(spec, on), **options))
            if callable(self.encoding.ulp)
            else self.encoding.ulp
        )


def on_heads(encoding: Encoding) -> Encoding:
    """Return the encoding with the option `on`, whose value must not be None.

    >>> from fastpe.encodings.registry import get
    >>> from fastpe.encodings.slots import make_spec
    >>> on_heads(get("rope")).shapes(make_spec(3, dim=16, heads=4), on="last:1")
    {'angles': (4, 3, 2)}
    """

    def inner(name: str) -> Callable[..., Any]:
        """The function of this name, called for the model of the chosen heads."""
        call = getattr(encoding, name)
        return lambda spec, *given, on, **options: call(_smaller(spec, on), *given, **options)

    own = _OnHeads(encoding)
    return replace(
        encoding,
        options={**encoding.options, "on": ON},
        shapes=own.shapes,
        check=own.check,
        reference=own.reference,
        fill=own.fill,
        pull=None if encoding.pull is None else own.pull,
        plain=own.plain,
        column=own.column,
        ulp=own.ulp,
        parameters=inner("parameters"),
        init=inner("init"),
        remarks=inner("remarks"),
        axes=lambda *, on, **options: encoding.axes(**options),
        moves=lambda *, on, **options: encoding.moves(**options),
    )


def _axis(slot: str, count: int) -> int | None:
    """The axis of heads of an array of this slot with `count` axes; None if it has none."""
    names = SLOTS[slot].axes.strip("()").split(", ")
    return count - len(names) if names[0].startswith("H") else None


def _smaller(spec: Spec, on: str) -> Spec:
    """The sizes of a model that has the chosen heads only."""
    count = len(_chosen(spec, on))
    return replace(spec, heads=count, dim=count * spec.head_dim)


def _chosen(spec: Spec, on: str) -> tuple[int, ...]:
    """The numbers of the heads.

    >>> from fastpe.encodings.slots import make_spec
    >>> _chosen(make_spec(3, heads=4), "last:2"), _chosen(make_spec(3, heads=4), "0,3")
    ((2, 3), (0, 3))
    """
    way, colon, count = on.partition(":")
    numbers = [count] if colon else on.split(",")
    if all(number.isascii() and number.isdigit() and len(number) < 9 for number in numbers):
        found = tuple(map(int, numbers))
        if way == "first" and colon and 0 < found[0] <= spec.heads:
            return tuple(range(found[0]))
        if way == "last" and colon and 0 < found[0] <= spec.heads:
            return tuple(range(spec.heads - found[0], spec.heads))
        if not colon and sorted(set(found)) == list(found) and found[-1] < spec.heads:
            return found
    raise ValueError(
        f"option 'on' must be first:N or last:N with N from 1 to {spec.heads}, or ascending numbers of heads from 0 to "
        f"{spec.heads - 1} such as 0,2, not {shown(on)}"
    )
