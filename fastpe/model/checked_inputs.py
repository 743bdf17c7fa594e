"""Checks a model's inputs, and converts them to the arrays that kernels take. Their memory is reused in later calls."""

import math
from typing import Any, NamedTuple

import numpy as np

from fastpe.base import validation

Array = np.ndarray[Any, Any]


class Batch(NamedTuple):
    """A batch as kernels take it.

    Parameters
    ----------
    x, y : (B, N)
        Inputs and targets; 0 beyond the end of a sequence.
    shares : (B N,), or (1,) if all are equal
        The weight of each target in the mean loss; 0 beyond the end of a sequence.
    lengths : (B,), or (1,) if all are equal
        Lengths of the sequences.
    """

    x: Array
    y: Array
    shares: Array
    lengths: Array


class CheckedInputs:
    """Converts the input arrays of one model. Callers hold the model's lock while they use the returned arrays.

    Kernels use tokens as indices, and the weights tell them which targets are tokens. So tokens and weights are copied
    before they are checked: no other thread can change the copies. Floating inputs are not copied if kernels can read
    them.

    Parameters
    ----------
    vocabulary : int or None
        Number of tokens; None if the model takes real numbers.
    dtype : dtype
        The model's dtype.
    """

    def __init__(self, vocabulary: int | None, dtype: np.dtype[Any]) -> None:
        self._vocabulary, self._dtype = vocabulary, dtype
        self._kept: dict[str, Array] = {}

    def inputs(self, x: Any, lengths: Any = None) -> tuple[Array, Array]:
        """Return x and the lengths, checked and converted; both are valid until the next call.

        The returned x is (B, N) or (N,), in the model's dtype, and 0 beyond the end of a sequence. The returned lengths
        are (B,) or (1,).

        Raises
        ------
        TypeError, ValueError
            If x holds anything but finite numbers (or tokens, if the model takes tokens), if its shape is wrong, or if
            lengths are invalid.
        """
        array = self._array("x", x)
        if lengths is None:
            return self._proved("x", array, self._converted("x", array)), np.full(1, array.shape[-1])
        checked, own = self._lengths(lengths, array), self._converted("x", array, copied=True)
        np.atleast_2d(own)[~self._within(checked, array)] = 0
        return self._proved("x", array, own), checked

    def batch(self, x: Any, y: Any, weights: Any = None, lengths: Any = None) -> Batch:
        """Return inputs, targets and weights, which are valid until the next call and must not be modified.

        Raises
        ------
        TypeError, ValueError
            If `inputs` raises an error for x and the lengths, if the shapes of x, y and weights differ, or if weights
            are negative, not finite, or all 0.
        """
        x, checked = self.inputs(x, lengths)
        x = np.atleast_2d(x)
        validation.unmasked("y", y, "its values, and weights that are 0 where a target does not count")
        targets = self._array("y", y)
        if np.atleast_2d(targets).shape != x.shape:
            raise ValueError(f"y must have the shape of x, {x.shape}, not {np.atleast_2d(targets).shape}")
        ragged = None if lengths is None else self._within(checked, x)
        some = weights is not None or ragged is not None
        own, shares = self._converted("y", targets, copied=some), np.full(1, 1 / x.size, self._dtype)
        if some:
            shares = self._shares(weights, targets, ragged)
            np.copyto(own, 0, where=np.equal(shares, 0, out=self._room("ignored", shares.shape, np.dtype(bool))))
        return Batch(x, np.atleast_2d(self._proved("y", targets, own)), shares.reshape(-1), checked)

    def _lengths(self, lengths: Any, x: Array) -> Array:
        rows, most = np.atleast_2d(x).shape
        array = validation.integers("lengths", lengths, 1, most)
        if array.shape != (rows,):
            raise ValueError(f"lengths must have the shape ({rows},), one for each sequence, not {array.shape}")
        return array

    def _within(self, lengths: Array, x: Array) -> Array:
        """Return an array (B, N) of bool: whether each position is within its sequence."""
        shape = np.atleast_2d(x).shape
        return np.less(np.arange(shape[1]), lengths[:, None], out=self._room("within", shape, np.dtype(bool)))

    def _holds(self) -> str:
        return "real numbers" if self._vocabulary is None else f"tokens, which are integers in [0, {self._vocabulary})"

    def _array(self, name: str, value: Any) -> Array:
        """Return the value as an array of a supported shape and kind."""
        array = validation.array(name, value, self._holds()) if self._vocabulary is None else self._tokens(name, value)
        if array.ndim not in (1, 2) or 0 in array.shape:
            raise ValueError(
                f"{name} must have the shape (sequences, length) or (length,), neither of them 0, not {array.shape}"
            )
        return array

    def _tokens(self, name: str, value: Any) -> Array:
        """Return integers. Beyond the end of a sequence, and where a target has weight 0, they need not be tokens."""
        assert self._vocabulary is not None
        try:
            return validation.integer_array(name, value, self._holds())
        except ValueError:  # integers beyond int64 are not tokens: this raises an error that gives the range of tokens
            return validation.integers(name, value, 0, self._vocabulary - 1)

    def _proved(self, name: str, given: Array, own: Array) -> Array:
        """Check that `own`, the array that kernels get, holds only finite numbers, or tokens; return it."""
        if self._vocabulary is None:
            return validation.finite(name, own, self._dtype)
        if own.min() < 0 or own.max() >= self._vocabulary:
            wrong = np.argwhere((own < 0) | (own >= self._vocabulary))[0]
            place = tuple(int(i) for i in wrong)
            hint = "; give targets that do not count the weight 0, as in weights=y != -100"
            raise ValueError(
                f"{name} must hold {self._holds()}, but {name}{list(place)} is {given[place]}"
                f"{hint if name == 'y' and given[place] < 0 else ''}"
            )
        return own

    def _shares(self, weights: Any, y: Array, within: Array | None) -> Array:
        """Return each weight divided by the sum of all weights, in y's shape. It is 0 beyond the ends of sequences."""
        holds = "finite numbers of at least 0, or booleans"
        given = within if weights is None else weights
        array = validation.array("weights", given, holds, kinds="biuf")
        if np.atleast_2d(array).shape != np.atleast_2d(y).shape:
            raise ValueError(f"weights must have the shape of y, {y.shape}, not {array.shape}")
        if weights is not None and within is not None:
            array = np.where(within.reshape(array.shape), array, 0)
        with np.errstate(over="ignore", invalid="ignore"):
            total, least = float(array.sum(dtype=np.float64)), array.min()
        if not (math.isfinite(total) and least >= 0):
            if (wrong := np.argwhere(~(np.isfinite(array) & (array >= 0)))).size:
                place = tuple(int(i) for i in wrong[0])
                raise ValueError(f"weights must hold {holds}, but weights{list(place)} is {array[place]}")
            raise ValueError("weights must have a finite sum, by which they are divided")
        if total == 0:
            raise ValueError("weights must not all be 0: the loss is a mean over the targets that count")
        shares = self._room("weights", y.shape, self._dtype)
        return np.divide(array.reshape(y.shape), total, out=shares, dtype=np.float64, casting="unsafe")

    def _room(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        """Return the array that is reused under this name. If its shape is not the given one, it is allocated again."""
        kept = self._kept.get(name)
        if kept is None or kept.shape != shape:
            kept = self._kept[name] = np.empty(shape, dtype)
        return kept

    def _converted(self, name: str, array: Array, copied: bool = False) -> Array:
        """Return the array itself if kernels can read it and no copy is requested. Otherwise return a copy in reused
        memory.
        """
        # carray: contiguous, aligned and writeable; kernels would be compiled again for any other array type
        if not copied and array.dtype == self._dtype and array.flags.carray:
            return array
        kept = self._room(name, array.shape, self._dtype)
        with np.errstate(over="ignore"):  # infinities are checked by the caller
            np.copyto(kept, array, casting="unsafe")
        return kept
