"""Rotation of pairs of channels in plain NumPy; public as `fastpe.reference.rotate`."""

from collections.abc import Callable
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
Pairs = tuple[Any, Any]  # the first channels of all pairs, and the second channels


def channels(count: int, pairs: str) -> Pairs:
    """Return the first and the second channels of `count` pairs."""
    numbers = np.arange(count)
    return (2 * numbers, 2 * numbers + 1) if pairs == "interleaved" else (numbers, numbers + count)


def turn(x: Array, cos: Array, sin: Array, pairs: Pairs) -> Array:
    """Rotate pairs: (a, b) -> (a cos - b sin, a sin + b cos). With the opposite sign of `sin`, this is the adjoint."""
    first, second = pairs
    turned = x.copy()
    turned[..., first] = x[..., first] * cos - x[..., second] * sin
    turned[..., second] = x[..., first] * sin + x[..., second] * cos
    return turned


def crossed(x: Array, dx: Array, pairs: Pairs) -> Array:
    """Return the gradient of the angles, where x is the rotated array and dx its gradient."""
    first, second = pairs
    return np.asarray(dx[..., second] * x[..., first] - dx[..., first] * x[..., second])


def rotate(x: Any, angles: Any = None, *, pairs: str = "interleaved", cos_sin: Any = None) -> Array:
    """Rotate pairs of channels, as `fastpe.rotate` does, in the dtype of x.

    Parameters
    ----------
    x, angles, pairs, cos_sin
        As for `fastpe.rotate`. They are not checked.

    Returns
    -------
    (..., N, D)
        In x's dtype.

    References
    ----------
    Su et al. 2021, RoFormer (arXiv:2104.09864), eq. (34).

    Examples
    --------
    >>> rotate(np.array([[1.0, 2.0, 3.0]]), np.full((1, 1), np.pi / 2)).round(12).tolist()
    [[-2.0, 1.0, 3.0]]
    """
    return rotate_vjp(x, angles, pairs=pairs, cos_sin=cos_sin)[0]


def rotate_vjp(
    x: Any, angles: Any = None, *, pairs: str = "interleaved", cos_sin: Any = None
) -> tuple[Array, Callable[[Any], dict[str, Any]]]:
    """Return the output of `rotate`, and its pullback, a function that computes gradients.

    Parameters
    ----------
    x, angles, pairs, cos_sin
        As for `rotate`.

    Returns
    -------
    y : (..., N, D)
        The return value of `rotate`.
    pullback : callable
        ``pullback(dy)`` returns a dict of the gradients of x and of `angles` or `cos_sin`.

    Examples
    --------
    >>> y, pullback = rotate_vjp(np.array([[1.0, 2.0]]), np.zeros((1, 1)))
    >>> pullback(np.array([[0.0, 1.0]]))["angles"].tolist()
    [[1.0]]
    """
    x = np.asarray(x)
    given = (np.cos(angles), np.sin(angles)) if cos_sin is None else cos_sin
    cos, sin = (np.asarray(each).astype(x.dtype) for each in given)
    both = channels(cos.shape[-1], pairs)
    y = turn(x, cos, sin, both)

    def pullback(dy: Any) -> dict[str, Any]:
        dy = np.asarray(dy)
        dx = turn(dy, cos, -sin, both)
        if cos_sin is None:
            return {"x": dx, "angles": _summed(crossed(y, dy, both), np.shape(angles))}
        along = dy[..., both[0]] * x[..., both[0]] + dy[..., both[1]] * x[..., both[1]]
        return {"x": dx, "cos_sin": (_summed(along, cos.shape), _summed(crossed(x, dy, both), sin.shape))}

    return y, pullback


def _summed(whole: Array, shape: tuple[int, ...]) -> Array:
    """Return the sum over the axes along which an array of this shape was repeated."""
    whole = whole.sum(axis=tuple(range(whole.ndim - len(shape))))
    return np.asarray(whole.sum(axis=tuple(i for i, size in enumerate(shape) if size == 1), keepdims=True))
