"""What a model is given, checked and as its kernels take it; the memory that this needs is kept from call to call."""

import math
from typing import Any, NamedTuple

import numpy as np

from fastpe.base import validation

Array = np.ndarray[Any, Any]


class Batch(NamedTuple):
    """Inputs and targets (B, N), and what the targets have of the loss, which is a mean: (B N,), or (1,) for all."""

    x: Array
    y: Array
    shares: Array


class CheckedInputs:
    """Converts the arrays that one model is given; whoever uses it holds the model's lock while its arrays are in use.

    Kernels index with tokens, and trust weights to say which of them are any: both are copied, then checked, so that
    nobody else can change them. Numbers may stay where they lie.

    Parameters
    ----------
    vocabulary : int or None
        Number of tokens, where the model takes tokens.
    dtype : dtype
        The model's.
    """

    def __init__(self, vocabulary: int | None, dtype: np.dtype[Any]) -> None:
        self._vocabulary, self._dtype = vocabulary, dtype
        self._kept: dict[str, Array] = {}

    def checked(self, name: str, value: Any) -> Array:
        """An argument (B, N) or (N,) in the model's dtype, valid until the next of that name; not to be written to.

        Raises
        ------
        TypeError, ValueError
            If it does not hold finite numbers, or tokens, or has another shape.
        """
        array = self._array(name, value)
        return self._proved(name, array, self._converted(name, array))

    def batch(self, x: Any, y: Any, weights: Any = None) -> Batch:
        """Inputs, targets and their shares, valid until the next call; none is to be written to.

        Raises
        ------
        TypeError, ValueError
            As `checked` does, or if shapes differ, or weights are no finite numbers of at least 0, or all are 0.
        """
        x = np.atleast_2d(self.checked("x", x))
        validation.unmasked("y", y, "its values, and weights, 0 where a target does not count")
        targets = np.atleast_2d(self._array("y", y))
        if targets.shape != x.shape:
            raise ValueError(f"y must have the shape of x, {x.shape}, not {targets.shape}")
        if weights is None:
            shares = np.full(1, 1 / targets.size, self._dtype)
            return Batch(x, self._proved("y", targets, self._converted("y", targets)), shares)
        shares = self._shares(weights, x.shape)
        ignored = np.equal(shares, 0, out=self._room("ignored", x.shape, np.dtype(bool)))
        own = self._converted("y", targets, copied=True)
        np.copyto(own, 0, where=ignored)
        return Batch(x, self._proved("y", targets, own), shares.reshape(-1))

    def _holds(self) -> str:
        return "real numbers" if self._vocabulary is None else f"tokens, which are integers in [0, {self._vocabulary})"

    def _array(self, name: str, value: Any) -> Array:
        """An array of a shape and a kind that will do."""
        array = validation.array(name, value, self._holds())
        if array.ndim not in (1, 2) or 0 in array.shape:
            raise ValueError(
                f"{name} must have the shape (sequences, length) or (length,), none of them 0, not {array.shape}"
            )
        if self._vocabulary is not None and array.dtype.kind not in "iu":
            raise TypeError(f"{name} must hold {self._holds()}, not {array.dtype}")
        return array

    def _proved(self, name: str, given: Array, own: Array) -> Array:
        """`own`, what kernels get, if it holds nothing but finite numbers, or tokens."""
        if self._vocabulary is None:
            return validation.finite(name, own, self._dtype)
        if own.min() < 0 or own.max() >= self._vocabulary:
            place = tuple(int(i) for i in np.argwhere((own < 0) | (own >= self._vocabulary))[0])
            hint = "; a target that does not count has weights 0, as in weights=y != -100"
            raise ValueError(
                f"{name} must hold {self._holds()}, but {name}{list(place)} is {given[place]}"
                f"{hint if name == 'y' and own[place] < 0 else ''}"
            )
        return own

    def _shares(self, weights: Any, shape: tuple[int, ...]) -> Array:
        """Each weight over the sum of all: what its target has of the mean."""
        holds = "finite numbers of at least 0, or booleans"
        array = np.atleast_2d(validation.array("weights", weights, holds, kinds="biuf"))
        if array.shape != shape:
            raise ValueError(f"weights must have the shape of y, {shape}, not {array.shape}")
        with np.errstate(over="ignore", invalid="ignore"):
            total, least = float(array.sum(dtype=np.float64)), array.min()
        if not (math.isfinite(total) and least >= 0):
            if (wrong := np.argwhere(~(np.isfinite(array) & (array >= 0)))).size:
                place = tuple(int(i) for i in wrong[0])
                raise ValueError(f"weights must hold {holds}, but weights{list(place)} is {array[place]}")
            raise ValueError("weights must have a finite sum, by which they are divided")
        if total == 0:
            raise ValueError("weights must not all be 0: the loss is a mean over the targets that count")
        shares = self._room("weights", shape, self._dtype)
        return np.divide(array, total, out=shares, dtype=np.float64, casting="unsafe")

    def _room(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """The memory kept for that name."""
        kept = self._kept.get(name)
        if kept is None or kept.shape != shape:
            kept = self._kept[name] = np.empty(shape, dtype)
        return kept

    def _converted(self, name: str, array: Array, copied: bool = False) -> Array:
        """The array itself where kernels can take it and it need be no copy, else its elements in memory of our own."""
        # carray: contiguous, aligned and writeable; anything else is another type, compiled anew
        if not copied and array.dtype == self._dtype and array.flags.carray:
            return array
        kept = self._room(name, array.shape, self._dtype)
        with np.errstate(over="ignore"):  # infinities are found by who looks for them
            np.copyto(kept, array, casting="unsafe")
        return kept
