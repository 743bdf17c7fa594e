"""LieRE: blocks of channels are rotated by the matrix exponential of coordinates times learned generators.

    R(x) = exp( sum_k x_k (U_k - U_k^T) ),   U_k the strict upper triangle of W_k; query and key are multiplied by R(x)

Source: Ostmeier et al. 2024, "LieRE: Lie Rotational Positional Encodings" (arXiv:2406.10322); StanfordMIMI/LieRE,
models/rope_vit.py, LierePositionEncoder.

**Slot**: `rotors` (H, N, D/b, b, b). **Learns**: `generators` W (n, H, D/b, b, b); each layer learns separate values. b
and n are options, see below. The lower triangles are not used.

**Initial values.** W is uniform in [0, 2 pi).

**Options**
- `block`: b, the number of channels of a block; the authors try values up to D. By default the largest divisor of D
  that is at most 8. With b = 2 this is mixed RoPE (`rope_mixed`).
- `coordinates`: n, the number of coordinates of a position.
- `grid`: the sides of the sequence's grid, if n > 1. Default: the n factors of the number of cells that are closest to
  each other.
- `train_grid`: the sides of the training grid, if n > 1.
- `class_token`: whether the first token is a class token, which has no cell and is not rotated.

Coordinates are x_k = p_k / (m_k - 1). If n = 1, m_k is the training length without the class token. If n > 1, m_k is
the side of the training grid along axis k. In a sequence or grid of this size, coordinates run from 0 to 1, both
included, as in the released code. At other sizes the released code spaces its coordinates slightly differently. If
positions are given, they are the p_k and may be real numbers.

**Past the training length**: defined; x then exceeds 1.

**Accuracy.** A rounding error of a generator is multiplied by x. The error of the entries of R(x) is therefore about b
2^-53 (1 + |x|) times the size of the generator.

**Facts.** With one coordinate a score depends on the offset only. With several coordinates, generators do not commute,
and R(x)^T R(y) differs from R(y - x). The same offset then gives different scores in different parts of a grid.

**Traps.** The released code also subtracts 1/2 from every entry of U, including the zeros; this cancels in U - U^T.
"""

import math
from typing import Any

import numpy as np

from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts import generators as parts
from fastpe.encodings.parts.generators import Array, Grid
from fastpe.encodings.parts.rotary import CLASS_TOKEN
from fastpe.encodings.slots import Spec


def check(
    spec: Spec, *, block: int | None, coordinates: int, grid: Grid, train_grid: Grid, class_token: bool,
) -> None:  # fmt: skip
    """Require a block size that divides the head width, and a grid with one cell for each token."""
    parts.block_of(spec, block)
    if class_token and spec.positions is None and min(spec.length, spec.train_length) < 2:
        raise ValueError(
            f"length and train_length must be at least 2 with a class token, not {spec.length} and {spec.train_length}"
        )
    parts.trained_sides(
        spec, coordinates=coordinates, grid=grid, train_grid=train_grid, extra=_extra(spec, class_token)
    )


def parameters(spec: Spec, *, block: int | None, coordinates: int, **options: Any) -> dict[str, tuple[int, ...]]:
    """Generators for each axis."""
    b = parts.block_of(spec, block)
    return {"generators": (coordinates, spec.heads, spec.head_dim // b, b, b)}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """Uniform in [0, 2 pi)."""
    return {"generators": 2 * math.pi * rng.uniform(parameters(spec, **options)["generators"])}


def _extra(spec: Spec, class_token: bool) -> int:
    return int(class_token and spec.positions is None)


def _places(
    spec: Spec, *, coordinates: int, grid: Grid, train_grid: Grid, class_token: bool, **options: Any
) -> Array:  # fmt: skip
    """x, (..., N, n); 0 for a class token."""
    extra = _extra(spec, class_token)
    sides = parts.trained_sides(spec, coordinates=coordinates, grid=grid, train_grid=train_grid, extra=extra)
    x = parts.cells(spec, coordinates=coordinates, grid=grid, extra=extra) / np.maximum(np.array(sides) - 1.0, 1.0)
    return np.concatenate([np.zeros((extra, coordinates)), x]) if extra else x


def _skew(generators: Any) -> Array:
    upper = np.triu(np.asarray(generators, np.float64), 1)
    return upper - np.swapaxes(upper, -1, -2)


def _combined(x: Array, skew: Array) -> Array:
    """The sum over axes of x_k times the generator of axis k, (..., N, D/b, b, b)."""
    return (x[..., None, None, None] * skew).sum(axis=-4)


def reference(spec: Spec, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    """The exponential of each token's generator, by its series."""
    x, skew = _places(spec, **options), _skew(params["generators"])
    heads = [_combined(x, skew[:, head]) for head in range(spec.heads)]
    return {"rotors": parts.exact_exponentials(np.stack(heads, axis=-5))}


def _spectra(x: Array, skew: Array) -> tuple[parts.Spectrum, Array]:
    """Spectral decompositions and factors as for `exponentials`: for one axis, one decomposition with a factor for each
    token; for several axes, a decomposition for each token."""
    if len(skew) == 1:
        return parts.spectrum(skew[0]), x
    return parts.spectrum(_combined(x, skew)), np.ones((1, 1))


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Fill `rotors`."""
    x, skew = _places(spec, **options), _skew(params["generators"])
    for head in range(spec.heads):
        out["rotors"][..., head, :, :, :, :] = parts.exponentials(*_spectra(x, skew[:, head]))


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], **options: Any
) -> None:  # fmt: skip
    """dW_k = upper triangle of G - G^T, G = sum over positions of x_k times the adjoint derivative of exp."""
    skew = _skew(params["generators"])
    axes, shape = len(skew), skew.shape[2:]
    x = np.broadcast_to(_places(spec, **options), (*spec.batch, spec.length, axes)).reshape(-1, axes)
    for head in range(spec.heads):
        dr = dslots["rotors"][..., head, :, :, :, :].astype(np.float64).reshape(-1, *shape)
        own, s = _spectra(x, skew[:, head])
        found, _ = parts.derivative_back(own, s, dr)
        if axes == 1:
            gradient = parts.out_of_basis(own, found.sum(axis=0))[None]
        else:
            of_tokens = parts.out_of_basis(own, found)
            gradient = np.stack([(place[:, None, None, None] * of_tokens).sum(axis=0) for place in x.T])
        dparams["generators"][:, head] += np.triu(gradient - np.swapaxes(gradient, -1, -2), 1)


ENCODING = Encoding(
    summary="learned rotations of blocks of channels",
    formula=r"""
        R(x) &= \exp\left(\sum_k x_k (U_k - U_k^{\top})\right), \quad U_k \text{ the strict upper triangle of } W_k \\
        &\text{query and key are multiplied by } R(x)
    """,
    use_when="inputs have two or three coordinates, and rotations in many planes are learned; scores are not relative",
    also_called=("Lie rotational position encoding",),
    not_to_be_confused={"comrope": "its generators commute, so scores depend on offsets only"},
    slots=("rotors",),
    options={
        "block": parts.BLOCK,
        "coordinates": parts.COORDINATES,
        "grid": parts.GRID,
        "train_grid": parts.TRAIN_GRID,
        "class_token": CLASS_TOKEN,
    },
    beyond="defined",
    direction="yes",
    use="images",
    source="Ostmeier et al. 2024, arXiv:2406.10322, and released code",
    ulp=lambda spec, **options: 64.0 + 512.0 * spec.head_dim * (1.0 + spec.farthest / max(spec.train_length - 1, 1)),
    shapes=parts.shapes,
    axes=lambda *, coordinates, **options: coordinates,
    per_layer=("generators",),
)
