"""ComRoPE: learned, commuting rotations of blocks of channels, so scores depend on offsets only.

    R_j(x) = exp(s_j(x) (B_j - B_j^T)),   block j of a query or key is multiplied by R_j of its position
    ld:  s_j(x) = sum_k a_jk x_k          ap:  s_j(x) = x_(j mod n)

Source: Yu et al. 2025, "ComRoPE: Scalable and Robust Rotary Position Embedding Parameterized by Trainable Commuting
Angle Matrices", CVPR 2025; Longin-Yu/ComRoPE, model.py, ComRoPELDAttention and ComRoPEAPAttention.

**Slot**: `rotors` (H, N, D/b, b, b). **Learns**: `generators` B (H, D/b, b, b) and, with the variant `ld`,
`multipliers` a (D/b, n), which all heads share. Each layer learns separate values.

**Initial values.** The generators B are drawn from N(0, std^2), and the multipliers a from N(0, 1).

**Options**
- `variant`: `ld` (linearly dependent): the generators of all axes are multiples of one matrix, so each block has one
  generator and a factor for each axis. `ap` (axial partition): each block rotates with one axis only.
- `block`: b, the number of channels of a block. Default: the largest divisor of the head width that is at most 8.
- `coordinates`: n, the number of coordinates of a position.
- `grid`: sides of the grid, if n > 1.
- `train_grid`: sides of the training grid, if n > 1.
- `std`: standard deviation of the initial generators.

Coordinates are x_k = (p_k + 1/2) / m_k. If n = 1, m_k is the training length. If n > 1, m_k is the side of the training
grid along axis k. If positions are given, they are the p_k and may be real numbers.

**Past the training length**: defined; x then exceeds 1.

**Accuracy.** An error of 2^-53 in a generator changes the rotation by this error times x: the error of an entry of R_j
is about b 2^-53 (1 + |x|) times the size of the generator.

**Facts.** R_j(x)^T R_j(y) = R_j(y - x), because the matrices of one block are powers of one rotation. With b = 2 this
is a rotary encoding with learned frequencies.

**Traps.** The generator is B - B^T with a full matrix B, not with its upper triangle. With `ap`, blocks are assigned to
the axes in turn: block j to axis j mod n.
"""

from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts import generators as parts
from fastpe.encodings.parts.generators import Array, Grid
from fastpe.encodings.slots import Spec


def check(spec: Spec, *, block: int | None, coordinates: int, grid: Grid, train_grid: Grid, **options: Any) -> None:
    """Require a block size that divides the head width, and a grid with one cell for each token."""
    parts.block_of(spec, block)
    parts.trained_sides(spec, coordinates=coordinates, grid=grid, train_grid=train_grid)


def parameters(
    spec: Spec, *, variant: str, block: int | None, coordinates: int, **options: Any
) -> dict[str, tuple[int, ...]]:
    """Generators, and with `ld` the multipliers of the axes."""
    b = parts.block_of(spec, block)
    generators: dict[str, tuple[int, ...]] = {"generators": (spec.heads, spec.head_dim // b, b, b)}
    return generators | ({"multipliers": (spec.head_dim // b, coordinates)} if variant == "ld" else {})


def init(spec: Spec, rng: Any, *, std: float, **options: Any) -> dict[str, Any]:
    """N(0, std^2), and N(0, 1)."""
    sizes = {"generators": std, "multipliers": 1.0}
    return {name: sizes[name] * rng.normal(shape) for name, shape in parameters(spec, **options).items()}


def _places(spec: Spec, *, coordinates: int, grid: Grid, train_grid: Grid, **options: Any) -> Array:
    """x, (..., N, n)."""
    sides = parts.trained_sides(spec, coordinates=coordinates, grid=grid, train_grid=train_grid)
    return (parts.cells(spec, coordinates=coordinates, grid=grid) + 0.5) / np.array(sides, np.float64)


def _weights(spec: Spec, params: dict[str, Any], *, block: int | None, coordinates: int) -> Array:
    """The factor of each axis in each block, (D/b, n)."""
    if "multipliers" in params:
        return np.asarray(params["multipliers"], np.float64)
    blocks = np.arange(spec.head_dim // parts.block_of(spec, block))
    return np.eye(coordinates)[blocks % coordinates]


def _turns(spec: Spec, params: dict[str, Any], *, block: int | None, coordinates: int, **options: Any) -> Array:
    """s, (..., N, D/b), summed over the axes in a fixed order."""
    weights = _weights(spec, params, block=block, coordinates=coordinates)
    return (_places(spec, coordinates=coordinates, **options)[..., None, :] * weights).sum(axis=-1)


def _skew(generators: Any) -> Array:
    b = np.asarray(generators, np.float64)
    return b - np.swapaxes(b, -1, -2)


def reference(spec: Spec, params: dict[str, Any], **options: Any) -> dict[str, Any]:
    """exp(s (B - B^T)) of each block, by its series."""
    s = _turns(spec, params, **options)[..., None, :, :]
    return {"rotors": parts.exact_exponentials(s[..., None, None] * _skew(params["generators"])[:, None])}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], **options: Any) -> None:
    """Fill `rotors`; all positions share one spectral decomposition."""
    s = _turns(spec, params, **options)
    for head, skew in enumerate(_skew(params["generators"])):
        out["rotors"][..., head, :, :, :, :] = parts.exponentials(parts.spectrum(skew), s)


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], **options: Any
) -> None:  # fmt: skip
    """dB = G - G^T with G the sum over positions of s times the adjoint derivative of exp, applied to dR; ds = sum of
    dR times R (B - B^T)."""
    s, blocks = _turns(spec, params, **options), dparams["generators"].shape[1]
    rows = s.reshape(-1, blocks)
    of_turns = np.zeros(rows.shape)
    for head, skew in enumerate(_skew(params["generators"])):
        dr = dslots["rotors"][..., head, :, :, :, :].astype(np.float64).reshape(-1, *skew.shape)
        own = parts.spectrum(skew)
        found, further = parts.derivative_back(own, rows, dr)
        gradient = parts.out_of_basis(own, found.sum(axis=0))
        dparams["generators"][head] += gradient - np.swapaxes(gradient, -1, -2)
        of_turns += further
    if "multipliers" in dparams:
        options.pop("block")
        x = np.broadcast_to(_places(spec, **options), (*s.shape[:-1], options["coordinates"])).reshape(len(rows), -1)
        dparams["multipliers"] += (of_turns[:, :, None] * x[:, None, :]).sum(axis=0)


ENCODING = Encoding(
    summary="learned rotations of blocks that commute",
    formula=r"""
        R_j(x) &= \exp\left(s_j(x) (B_j - B_j^{\top})\right) \\
        &\text{block } j \text{ of query and key is multiplied by } R_j \text{ of their position} \\
        s_j(x) &= \sum_k a_{jk} x_k \quad \text{variant } \mathrm{ld} \\
        s_j(x) &= x_{j \bmod n} \quad \text{variant } \mathrm{ap}
    """,
    use_when="rotations are learned, for one or more coordinates, and scores must depend on offsets only",
    not_to_be_confused={
        "liere": "its generators do not commute, so scores depend on more than offsets",
        "string": "one learned orthogonal map, then pairs with learned frequencies",
    },
    slots=("rotors",),
    options={
        "variant": Option(
            "ld", "ld: generators of the axes are linearly dependent; ap: one axis per block", str, ("ld", "ap")
        ),
        "block": parts.BLOCK,
        "coordinates": parts.COORDINATES,
        "grid": parts.GRID,
        "train_grid": parts.TRAIN_GRID,
        "std": Option(1.0, "standard deviation of the initial generators", float, minimum=0.0, maximum=1e3),
    },
    beyond="defined",
    direction="yes",
    use="images",
    source="Yu et al. 2025, CVPR, and released code",
    ulp=lambda spec, *, std, **options: (
        64.0 + 64.0 * spec.head_dim * (1.0 + std) * (1.0 + spec.farthest / spec.train_length * 8.0)
    ),
    shapes=parts.shapes,
    axes=lambda *, coordinates, **options: coordinates,
    per_layer=("generators", "multipliers"),
)
