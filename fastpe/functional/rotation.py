"""Rotation of pairs of channels by angles, or by given cosines and sines, with gradients: `rotate` and `rotate_vjp`.

Attention also uses this module to rotate queries and keys.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastpe.functional.arguments import any_real, check_pairs, in_float32, wanted
from fastpe.functional.layouts import contiguous, plain_rows, summed_to
from fastpe.kernels import simd
from fastpe.kernels.rows import rotate as kernel
from fastpe.kernels.threads.team import run_team, workers_for

Array = np.ndarray[Any, Any]

_OF_A_SINE = 16  # estimated cost of a sine, in multiplications

# x may hold NaN and infinity; they pass to the results without a warning
without_warnings = np.errstate(over="ignore", invalid="ignore", divide="ignore")


def rotate(x: Any, angles: Any = None, *, pairs: str = "interleaved", cos_sin: Any = None) -> Array:
    """Rotate pairs of channels: (a, b) becomes (a cos - b sin, a sin + b cos).

    Parameters
    ----------
    x : (..., N, D) float64, float32, float16 or bfloat16
        Queries, keys, or any other rows. With float16 and bfloat16 (from `ml_dtypes`), the computation is in float32.
    angles : (N, R) or (..., N, R) floats, optional
        Angles in radians; R is at most D / 2. The axes before N broadcast to those of x. Sine and cosine are computed
        in float64. Channels from 2 R to D - 1 are unchanged.
    pairs : "interleaved" or "half"
        The channels of pair c: 2 c and 2 c + 1 if "interleaved" (Su et al.), c and c + R if "half" (GPT-NeoX, Llama).
    cos_sin : tuple of two arrays of floats, each shaped as `angles`, optional
        Cosines and sines, in place of `angles`. Other numbers are also allowed: YaRN, for example, scales cosines and
        sines.

    Returns
    -------
    (..., N, D)
        In x's dtype.

    Raises
    ------
    TypeError, ValueError
        If an argument has the wrong type, shape or values, or if not exactly one of `angles` and `cos_sin` is given.

    References
    ----------
    Su et al. 2021, RoFormer (arXiv:2104.09864), eq. (34).

    Examples
    --------
    >>> import fastpe
    >>> quarter = np.full((1, 1), np.pi / 2)
    >>> fastpe.rotate(np.array([[1.0, 2.0, 3.0]]), quarter).round(12).tolist()
    [[-2.0, 1.0, 3.0]]
    """
    return _finished(_checked(x, angles, cos_sin, pairs, ()))


def rotate_vjp(
    x: Any, angles: Any = None, *, pairs: str = "interleaved", cos_sin: Any = None, wrt: tuple[str, ...] | None = None
) -> tuple[Array, Callable[[Any], dict[str, Any]]]:
    """Return the output of `rotate`, and its pullback, which returns a dict of gradients.

    Parameters
    ----------
    x, angles, pairs, cos_sin
        As for `rotate`. `pullback` reads these arrays again, so do not change them before you call it.
    wrt : tuple of str, optional
        The arguments whose gradients are computed. By default x, and `angles` or `cos_sin`, whichever is given.

    Returns
    -------
    y : (..., N, D)
        The return value of `rotate`.
    pullback : callable
        ``pullback(dy)`` takes the gradient with respect to y, and returns a dict: argument name -> gradient, in the
        shape and dtype of the argument. The gradient for `cos_sin` is a tuple of two arrays.

    Raises
    ------
    TypeError, ValueError
        As for `rotate`; also if `wrt` is not a tuple of names, or if it names an argument that is not given.

    Examples
    --------
    >>> import fastpe
    >>> y, pullback = fastpe.rotate_vjp(np.array([[1.0, 2.0]]), np.zeros((1, 1)))
    >>> {name: gradient.tolist() for name, gradient in pullback(np.array([[0.0, 1.0]])).items()}
    {'x': [[0.0, 1.0]], 'angles': [[1.0]]}
    """
    call = _checked(x, angles, cos_sin, pairs, wrt)
    y = _finished(call)

    @without_warnings
    def pullback(dy: Any) -> dict[str, Any]:
        given = in_float32(any_real("dy", dy))
        if given.shape != call.shape:
            raise ValueError(f"dy must have the shape of x, {call.shape}, not {given.shape}")
        return _gradients(call, given.astype(call.x.dtype, copy=False).reshape(call.x.shape))

    return y, pullback


# ---------------------------------------------------------------------------------------------------------------------
# Used by attention, too


@dataclass(frozen=True)
class Rotations:
    """Angles, or cosines and sines: (B or 1, H or 1, N, R), float64, contiguous."""

    angles: Array  # or cosines
    sines: Array | None = None


def rotate_rows(x: Array, rotations: Rotations, sign: float, pairs: str, y: Array) -> Array:
    """Rotate the pairs of x (B, H, N, D) by `sign` times the angles, into y, which may be a contiguous x. Return y."""
    led, per_head, n, count = rotations.angles.shape
    tasks = -(-math.prod(x.shape[:2]) // kernel.HEADS_OF_A_TASK) * -(-n // kernel.ROWS_OF_A_TASK)
    workers = workers_for(_OF_A_SINE * rotations.angles.size + x.size, tasks)
    strides = tuple(stride // x.itemsize for stride in x.strides[:3])
    own = (per_head * n * count if led > 1 else 0, n * count if per_head > 1 else 0)
    factors = simd.aligned_zeros((workers, kernel.scratch_size(count)), x.dtype)
    sines = None if rotations.sines is None else rotations.sines.reshape(-1)
    run_team(
        workers, kernel.rotate, x, strides, rotations.angles.reshape(-1), sines, sign, own, factors, y, x.shape, count,
        pairs == "half",
    )  # fmt: skip
    return y


def rotated(x: Array, angles: Array, pairs: str, y: Array, sign: float) -> Array:
    """Rotate the pairs of x by `sign` times the angles. Write the result to y, which may be x, and return it."""
    piece = y if y.flags.c_contiguous else np.empty(y.shape, y.dtype)
    if x.size:
        rotate_rows(x, Rotations(contiguous(angles, np.float64)), sign, pairs, piece)
    if piece is not y:
        y[...] = piece
    return y


def channels_of_pairs(count: int, pairs: str) -> tuple[slice, slice]:
    """Return the first channels and the second channels of `count` pairs."""
    if pairs == "half":
        return slice(0, count), slice(count, 2 * count)
    return slice(0, 2 * count, 2), slice(1, 2 * count, 2)


def angle_gradient(x: Array, dx: Array, count: int, pairs: str) -> Array:
    """Return the gradient of the angle of each pair, x_1 dx_2 - x_2 dx_1, in float64. x is the array after the
    rotation, and dx its gradient."""
    (first, second), x = channels_of_pairs(count, pairs), x.astype(np.float64)
    return np.asarray(dx[..., second] * x[..., first] - dx[..., first] * x[..., second])


# ---------------------------------------------------------------------------------------------------------------------
# One call


@dataclass(frozen=True)
class _Call:
    """Checked arguments of a rotation.

    `x` is (B, H, N, D), with half precision converted to float32. `shape` and `dtype` are those of the argument x.
    """

    x: Array
    rotations: Rotations
    pairs: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    given: dict[str, Array]  # angles, or cosines and sines, by their names in error messages
    gradients: dict[str, tuple[int, ...]]  # names and shapes of the arguments to compute gradients for


def _checked(x: Any, angles: Any, cos_sin: Any, pairs: Any, wrt: tuple[str, ...] | None) -> _Call:
    own = any_real("x", x)
    if own.ndim < 2 or own.shape[-1] < 2:
        raise ValueError(f"x must have the shape (..., N, D), D at least 2, not {own.shape}")
    if (angles is None) == (cos_sin is None):
        raise ValueError("rotate needs exactly one of angles and cos_sin")
    given = {"angles": any_real("angles", angles)} if cos_sin is None else _pair(cos_sin)
    for name, array in given.items():
        _check_shape(name, array, own.shape)
        if not (array.size == 0 or (np.isfinite(array.min()) and np.isfinite(array.max()))):
            raise ValueError(f"{name} must be finite")
    shapes = {each.shape for each in given.values()}
    if len(shapes) > 1:
        raise ValueError(f"cos_sin must hold two arrays of one shape, not of {' and '.join(map(str, sorted(shapes)))}")
    rows = own.shape[-2:]
    outer, heads = own.shape[:-3], own.shape[-3:-2] or (1,)
    four = in_float32(own).reshape(-1 if own.size else 0, *heads, *rows)
    rotations = Rotations(*(_four(array, outer) for array in given.values()))
    kind = "angles" if cos_sin is None else "cos_sin"
    return _Call(
        four,
        rotations,
        check_pairs(pairs),
        own.shape,
        own.dtype,
        given,
        wanted(wrt, {"x": own.shape, kind: shapes.pop()}),
    )


def _pair(cos_sin: Any) -> dict[str, Array]:
    if not isinstance(cos_sin, tuple | list) or len(cos_sin) != 2:
        raise TypeError(f"cos_sin must be a tuple of two arrays, not {type(cos_sin).__name__}")
    return {name: any_real(name, value) for name, value in zip(("cos_sin[0]", "cos_sin[1]"), cos_sin, strict=True)}


def _check_shape(name: str, array: Array, shape: tuple[int, ...]) -> None:
    (*lead, n, d), own = shape, array.shape
    fits = 2 <= len(own) <= len(shape) and own[-2] == n and 1 <= own[-1] <= d // 2
    led = (1,) * (len(shape) - len(own)) + own[:-2]
    if not fits or any(size not in (1, most) for size, most in zip(led, lead, strict=True)):
        raise ValueError(
            f"{name} must have the shape (N, R), optionally after axes of x or size 1, with N = {n} and R from 1 to "
            f"{d // 2} for x {shape}, not {own}"
        )


def _four(array: Array, outer: tuple[int, ...]) -> Array:
    """Return an array (B or 1, H or 1, N, R) in float64: all axes before the heads are merged into one."""
    whole = array.reshape((1,) * (len(outer) + 3 - array.ndim) + array.shape)
    if len(outer) > 1 and set(whole.shape[: len(outer)]) != {1}:
        whole = np.broadcast_to(whole, (*outer, *whole.shape[len(outer) :]))
    return contiguous(whole.reshape(-1 if whole.size else 0, *whole.shape[-3:]), np.float64)


def _rotated(call: _Call, x: Array, sign: float) -> Array:
    y = np.empty(x.shape, x.dtype)
    return rotate_rows(plain_rows(x), call.rotations, sign, call.pairs, y) if x.size else y


def _finished(call: _Call) -> Array:
    return _rotated(call, call.x, 1.0).reshape(call.shape).astype(call.dtype, copy=False)


def _gradients(call: _Call, dy: Array) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if "x" in call.gradients:
        found["x"] = _rotated(call, dy, -1.0).reshape(call.shape).astype(call.dtype, copy=False)
    count = call.rotations.angles.shape[-1]
    if "angles" in call.gradients:
        found["angles"] = _folded(call, "angles", angle_gradient(_rotated(call, call.x, 1.0), dy, count, call.pairs))
    if "cos_sin" in call.gradients:
        (first, second), x = channels_of_pairs(count, call.pairs), call.x.astype(np.float64)
        along = dy[..., first] * x[..., first] + dy[..., second] * x[..., second]
        parts = along, angle_gradient(x, dy, count, call.pairs)
        found["cos_sin"] = tuple(_folded(call, name, part) for name, part in zip(call.given, parts, strict=True))
    return {name: found[name] for name in call.gradients}


def _folded(call: _Call, name: str, whole: Array) -> Array:
    """Return a gradient (B, H, N, R) in the shape of its argument, summed over the axes that were broadcast."""
    own = call.given[name]
    padded = (1,) * (len(call.shape) - own.ndim) + own.shape
    return (
        summed_to(whole.reshape(*call.shape[:-1], own.shape[-1]), padded)
        .reshape(own.shape)
        .astype(own.dtype, copy=False)
    )
