"""Factors on answers that are numbers, and the error of always answering 0."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fastpe.base.validation import whole
from fastpe.tasks.task import Chosen

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

SCALES = ("one", "train", "root_train", "position", "length")


def factors(length: int, scale: str = "one", train_length: int = 50) -> Array:
    """Return the factors on the targets of a sequence, (length,). (Li 2025 does not say whether targets are scaled.)

    ``one``: 1; ``train``: 1 / train_length; ``root_train``: 1 / sqrt(train_length); ``position``: 1 / sqrt(i) at
    position i = 1, 2, ..., which makes every variance of a running sum 1; ``length``: 1 / length.

    Examples
    --------
    >>> factors(4, "position").tolist()[::3]
    [1.0, 0.5]
    """
    import numpy as np

    if scale == "position":
        return 1.0 / np.sqrt(np.arange(1.0, whole("length", length, 1) + 1.0))
    known = {"one": 1.0, "train": 1.0 / train_length, "root_train": train_length**-0.5, "length": 1.0 / length}
    if scale not in known:
        raise ValueError(f"target scale must be {', '.join(SCALES)}, not {scale!r}")
    return np.full(whole("length", length, 1), known[scale])


def zero_error(chosen: Chosen, length: int, multiplied: Array | None = None) -> float:
    """Return the expected mean squared error of always answering 0: the mean square of the targets.

    Parameters
    ----------
    chosen : Chosen
        A task of numbers.
    length : int
    multiplied : (length,), optional
        Factors on the targets.

    Examples
    --------
    >>> from fastpe.tasks.registry import choose
    >>> [zero_error(choose("running_sum"), length) for length in (50, 100, 200)]
    [25.5, 50.5, 100.5]
    """
    import numpy as np

    squares = chosen.squares(whole("length", length, 1))
    return float(np.mean(squares if multiplied is None else squares * multiplied**2))
