"""What a model is given, checked and as its kernels take it; the memory that this needs is kept from call to call."""

import math
from typing import Any, NamedTuple

import numpy as np

from fastpe.base import validation

Array = np.ndarray[Any, Any]


class Batch(NamedTuple):
    """Inputs and targets (B, N); what the targets have of the loss, which is a mean: (B N,), or (1,) for all.

    lengths (B,), or (1,) for all: what lies past the end of a sequence is 0, and has no share.
    """

    x: Array
    y: Array
    shares: Array
    lengths: Array


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

    def inputs(self, x: Any, lengths: Any = None) -> tuple[Array, Array]:
        """x (B, N) or (N,) in the model's dtype, 0 past the lengths, and these; valid until the next call.

        Raises
        ------
        TypeError, ValueError
            If x does not hold finite numbers, or tokens, or has another shape, or lengths are no lengths of its rows.
        """
        array = self._array("x", x)
        if lengths is None:
            return self._proved("x", array, self._converted("x", array)), np.full(1, array.shape[-1])
        checked, own = self._lengths(lengths, array), self._converted("x", array, copied=True)
        np.atleast_2d(own)[~self._within(checked, array)] = 0
        return self._proved("x", array, own), checked

    def batch(self, x: Any, y: Any, weights: Any = None, lengths: Any = None) -> Batch:
        """Inputs, targets and their shares, valid until the next call; none is to be written to.

        Raises
        ------
        TypeError, ValueError
            As `inputs` does, or if shapes differ, or weights are no finite numbers of at least 0, or all are 0.
        """
        x, checked = self.inputs(x, lengths)
        x = np.atleast_2d(x)
        validation.unmasked("y", y, "its values, and weights, 0 where a target does not count")
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
        """Which places belong to their sequences, (B, N) bool."""
        shape = np.atleast_2d(x).shape
        return np.less(np.arange(shape[1]), lengths[:, None], out=self._room("within", shape, np.dtype(bool)))

    def _holds(self) -> str:
        return "real numbers" if self._vocabulary is None else f"tokens, which are integers in [0, {self._vocabulary})"

    def _array(self, name: str, value: Any) -> Array:
        """An array of a shape and a kind that will do."""
        array = validation.array(name, value, self._holds()) if self._vocabulary is None else self._tokens(name, value)
        if array.ndim not in (1, 2) or 0 in array.shape:
            raise ValueError(
                f"{name} must have the shape (sequences, length) or (length,), none of them 0, not {array.shape}"
            )
        return array

    def _tokens(self, name: str, value: Any) -> Array:
        """Integers, of which some may be no tokens: those past the end of a sequence, or targets that do not count."""
        assert self._vocabulary is not None
        try:
            return validation.integer_array(name, value, self._holds())
        except ValueError:  # one that int64 does not hold is none of these: the error gives the range of tokens
            return validation.integers(name, value, 0, self._vocabulary - 1)

    def _proved(self, name: str, given: Array, own: Array) -> Array:
        """`own`, what kernels get, if it holds nothing but finite numbers, or tokens."""
        if self._vocabulary is None:
            return validation.finite(name, own, self._dtype)
        if own.min() < 0 or own.max() >= self._vocabulary:
            wrong = np.argwhere((own < 0) | (own >= self._vocabulary))[0]
            place = tuple(int(i) for i in wrong)
            hint = "; a target that does not count has weights 0, as in weights=y != -100"
            raise ValueError(
                f"{name} must hold {self._holds()}, but {name}{list(place)} is {given[place]}"
                f"{hint if name == 'y' and given[place] < 0 else ''}"
            )
        return own

    def _shares(self, weights: Any, y: Array, within: Array | None) -> Array:
        """Each weight over the sum of all: what its target has of the mean, in y's shape; past the ends none."""
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
