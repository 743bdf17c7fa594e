"""Conversion of learned parameters to another length, grid or window."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from fastpe.encodings.registry import get, list_encodings, resolve

if TYPE_CHECKING:
    import numpy as np


def resize(name: str, params: Mapping[str, Any], **sizes: Any) -> dict[str, np.ndarray]:
    """Convert learned parameters to another length, grid or window, by the method of the encoding's authors.

    Parameters
    ----------
    name : str
        Key of an encoding that has such a method: `learned` (linear interpolation), `learned_2d` (bilinear),
        `factorised_st` (nearest neighbour), `swin_bias` (bicubic), `beit_bias` (a spline through unevenly spaced
        points).
    params : dict
        Parameter name -> array, as returned by `fastpe.init` or learned by a model.
    **sizes
        `length` for `learned`; `grid`, `new_grid` and `class_token` for `learned_2d` and `factorised_st`; `window` and
        `new_window` for `swin_bias` and `beit_bias`.

    Returns
    -------
    dict
        Parameter name -> array, in the dtype of the array in `params`.

    Raises
    ------
    ValueError, TypeError
        If the encoding has no such method, or an argument is invalid; the message says which.

    Examples
    --------
    >>> import numpy as np
    >>> resize("learned", {"table": np.array([[0.0], [1.0], [4.0]])}, length=5)["table"].ravel().tolist()
    [0.0, 0.5, 1.0, 2.5, 4.0]
    """
    rule = get(resolve(name)).resize
    if rule is None:
        able = ", ".join(key for key in list_encodings() if get(key).resize is not None)
        raise ValueError(f"encoding {name!r} cannot be resized; encodings that can: {able}")
    try:
        inspect.signature(rule).bind(params, **sizes)
    except TypeError as error:
        known = ", ".join(list(inspect.signature(rule).parameters)[1:])
        raise TypeError(f"resize of {name!r} takes {known}: {error}") from None
    return rule(params, **sizes)
