"""Rotations of blocks of channels as exponentials of skew-symmetric matrices, and their gradients.

A real skew-symmetric A is V diag(-i w) V^H with real w and unitary V, so exp(s A) = V diag(exp(-i s w)) V^H. Its
derivative in a direction E is V (F * (V^H E V)) V^H with the divided differences of exp,

    F_jk = (exp(-i s w_j) - exp(-i s w_k)) / (-i s (w_j - w_k)) = exp(-i s (w_j + w_k)/2) sinc(s (w_j - w_k)/2)

(Daleckii and Krein; Higham 2008, "Functions of Matrices", theorem 3.11), written without differences that cancel.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.parts.grids import chosen_sides, learned_grid
from fastpe.encodings.parts.grids import coordinates as coordinates_of
from fastpe.encodings.slots import Spec

Array = np.ndarray[Any, Any]
Grid = tuple[int, ...] | None

_MOST_COORDINATES = 16
_USUAL = 8  # default number of channels of a block
_SMALL = 2.0**-5  # largest norm of the argument of the Taylor series
_TERMS = 16

BLOCK = Option(
    None, "channels of a block; none: the largest divisor of a head's width up to 8", int, minimum=1, optional=True
)
COORDINATES = Option(1, "number of coordinates of a position", int, minimum=1)
GRID = Option(None, "sides of the grid; none: the closest factors", tuple, optional=True)
TRAIN_GRID = Option(None, "sides of the training grid; none: from the training length", tuple, optional=True)


# ---------------------------------------------------------------------------------------------------------------------
# Sizes


def block_of(spec: Spec, block: int | None) -> int:
    """b, the number of channels of a block.

    Raises
    ------
    ValueError
        If `block` does not divide the width of a head.
    """
    if block is None:
        return max(size for size in range(1, _USUAL + 1) if spec.head_dim % size == 0)
    if spec.head_dim % block:
        raise ValueError(f"option 'block' must divide a head's width {spec.head_dim}, not {block}")
    return block


def shapes(spec: Spec, *, block: int | None, **options: Any) -> dict[str, tuple[int, ...]]:
    """A map for every head, token and block."""
    b = block_of(spec, block)
    return {"rotors": (*spec.batch, spec.heads, spec.length, spec.head_dim // b, b, b)}


def check_places(spec: Spec, *, coordinates: int, grid: Grid, extra: int = 0) -> None:
    """Check the number of coordinates, and that the grid has one cell for each token after the first `extra`."""
    if coordinates > _MOST_COORDINATES:
        raise ValueError(f"option 'coordinates' must be at most {_MOST_COORDINATES}, not {coordinates}")
    if coordinates == 1 and grid is not None:
        raise ValueError(f"option 'grid' must be none with one coordinate, not {grid}")
    if coordinates > 1 and spec.positions is None:
        chosen_sides(spec, grid, coordinates, extra=extra)


def trained_sides(
    spec: Spec, *, coordinates: int, grid: Grid, train_grid: Grid, extra: int = 0
) -> tuple[int, ...]:  # fmt: skip
    """The sides by which coordinates are divided: the training length, or the sides of the training grid."""
    check_places(spec, coordinates=coordinates, grid=grid, extra=extra)
    if coordinates == 1:
        if train_grid is not None:
            raise ValueError(f"option 'train_grid' must be none with one coordinate, not {train_grid}")
        return (spec.train_length - extra,)
    return learned_grid(spec, grid, train_grid, coordinates, extra=extra)


def cells(spec: Spec, *, coordinates: int, grid: Grid, extra: int = 0) -> Array:
    """The coordinates of every token after the first `extra`, before the division by `trained_sides`, (..., N, n)."""
    if coordinates == 1:
        return spec.points()[..., : spec.length - extra, None]
    return coordinates_of(spec, grid, coordinates, extra=extra)


# ---------------------------------------------------------------------------------------------------------------------
# Exponentials


class Spectrum(NamedTuple):
    """The spectrum of skew-symmetric matrices (..., b, b)."""

    frequencies: Array  # w, (..., b)
    vectors: Array  # V, (..., b, b)


def spectrum(skew: Array) -> Spectrum:
    """Frequencies and vectors of skew-symmetric matrices."""
    frequencies, vectors = np.linalg.eigh(1j * skew)
    return Spectrum(frequencies, vectors)


def exponentials(of: Spectrum, s: Array) -> Array:
    """exp(s A); the shape of s broadcasts with the axes of A before the last two."""
    phases = np.exp(-1j * (s[..., None] * of.frequencies))
    return _real(_times(of.vectors * phases[..., None, :], _adjoint(of.vectors)))


def derivative_back(of: Spectrum, s: Array, dr: Array) -> tuple[Array, Array]:
    """The pullback of exp(s A): from its gradient `dr`, return the gradients of A, in the basis V, and of s.

    The gradient of A is s times the adjoint derivative of exp at s A. For the gradient of s, only the diagonal of
    V^H dr V is needed, because exp(s A) A = V diag(-i w exp(-i s w)) V^H.
    """
    turns = s[..., None] * of.frequencies
    half = np.exp(0.5j * turns)
    columns = np.concatenate([of.vectors.real, of.vectors.imag], axis=-1)
    real, imaginary = np.split(_times(dr, columns), 2, axis=-1)  # dr V, computed with real matrices
    inner = np.swapaxes(_times(np.swapaxes(real + 1j * imaginary, -1, -2), of.vectors.conj()), -1, -2)
    diagonal = np.diagonal(inner, axis1=-2, axis2=-1)
    of_turns: Array = (-1j * of.frequencies * half.conj() ** 2 * diagonal.conj()).real.sum(axis=-1)
    outer = (s[..., None] * half)[..., :, None] * half[..., None, :]
    outer *= _sinc((turns[..., :, None] - turns[..., None, :]) / 2)
    return outer * inner, of_turns


def _sinc(x: Array) -> Array:
    """sin(x) / x"""
    found = np.ones(x.shape)
    return np.divide(np.sin(x), x, out=found, where=x != 0)


def _times(x: Array, y: Array) -> Array:
    """x @ y for stacks of matrices (..., b, b); all x that share a y are multiplied in one product."""
    if x.ndim != 4 or y.ndim != 3:
        return x @ y
    n, blocks, b, _ = x.shape
    flat = x.swapaxes(0, 1).reshape(blocks, n * b, b) @ y
    return flat.reshape(blocks, n, b, -1).swapaxes(0, 1)


def out_of_basis(of: Spectrum, x: Array) -> Array:
    """V x V^H, which is real."""
    return _real(of.vectors @ x @ _adjoint(of.vectors))


def _adjoint(x: Array) -> Array:
    return np.swapaxes(x.conj(), -1, -2)


def _real(x: Array) -> Array:
    return np.ascontiguousarray(x.real)


def exact_exponentials(skew: Array) -> Array:
    """For references: exp of matrices (..., b, b) by Taylor's series and repeated squaring, in extended precision."""
    a = skew.astype(np.longdouble)
    size = float(np.abs(a).sum(axis=-1).max(initial=0.0))
    halvings = max(0, math.ceil(math.log2(size / _SMALL))) if size else 0
    a = a / np.longdouble(2) ** halvings
    unit = np.broadcast_to(np.eye(a.shape[-1], dtype=np.longdouble), a.shape)
    found = unit
    for k in range(_TERMS, 0, -1):
        found = unit + a @ found / k
    for _ in range(halvings):
        found = found @ found
    return found.astype(np.float64)
