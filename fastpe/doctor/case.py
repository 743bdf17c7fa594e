"""One comparison of a kernel with its formula."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

Array = np.ndarray[Any, Any]
Draw = Callable[..., Array]


class Case(NamedTuple):
    """What a kernel gave, the formula of the same, its inputs, and the terms of its longest sum."""

    result: Any
    formula: Callable[..., Any]
    inputs: tuple[Array, ...]
    terms: int
