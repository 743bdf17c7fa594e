"""The data for one comparison of a kernel with its formula."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Draw:
    """A source of random arrays of one dtype: a call with a shape returns normal numbers."""

    rng: np.random.Generator
    dtype: Any

    def __call__(self, *shape: int) -> Array:
        """Return normal numbers of this shape."""
        return self.rng.standard_normal(shape).astype(self.dtype)


class Case(NamedTuple):
    """The result of a kernel, its formula, the inputs of the formula, and the number of terms of the longest sum."""

    result: Any
    formula: Callable[..., Any]
    inputs: tuple[Array, ...]
    terms: int
