"""FoPE: each pair of channels rotates with a sum of frequencies; slow frequencies are left out.

    C_p,c = sum_t cos(p omega_t) Wc_htc,   S_p,c = sum_t sin(p omega_t) Ws_htc,   c < m;     C = S = 1 for m <= c < D/2
    (a, b) -> (a C - b S, b C + a S),   where channels c and c + D/2 are a pair

omega are the n frequencies of `rope`, base^(-2t/D), that make at least one turn in the training length, and
m = min(n, D/4).

Source: Hua et al. 2024, "Fourier Position Embedding: Enhancing Attention's Periodic Extension for Length
Generalization" (arXiv:2412.17739); TsinghuaC3I/Fourier-Position-Embedding, olmo/model.py, FourierEmbedding.

**Slots**: `rotors` (H, N, D/2, 2, 2), `pairs` (always `half`). **Learns**: nothing by default, because Wc and Ws are
drawn once; with the option `learned`, Wc as `cosines` and Ws as `sines`, (H, n, m) each. Each layer learns separate
matrices.

**Initial values.** In both matrices, the entries (i ceil(n/m), i) are 1 and the others are 0; then a normal random
number with standard deviation `gain` times sqrt(2 / (n + m)) is added to each entry.

**Options**
- `base`: the slowest frequency of `rope`, before any is dropped, is about 1/base.
- `gain`: scale of the random part. The authors use 0.3, 0.4 and 0.6, for models of 60 million to 1.2 billion
  parameters.
- `learned`: whether both matrices are learned. By default they are not, as in the authors' code.
- `draw`: seed of the random matrices, if they are not learned. They do not depend on the seed of a model, and all
  layers share them.

**Past the training length**: defined.

**Accuracy.** The error of an entry is at most (8 + 4 n) 2^-52 times the size of the matrices.

**Facts.** The map is not orthogonal: norms of queries and keys change, and a score depends on both positions, not only
on their offset.

**Traps.** For the pairs without a frequency (c >= m), the released code sets both C and S to 1. Such a pair (a, b)
becomes (a - b, a + b): it is rotated by 45 degrees and scaled by sqrt 2. Because both queries and keys are changed in
this way, the contribution of the pair to the score doubles. The paper describes these pairs as having frequency zero,
which would be C = 1 and S = 0. At least half of the pairs are of this kind. If no frequency makes a turn in the
training length, the fastest one is kept here.
"""

import math
from bisect import bisect_left
from decimal import Decimal
from functools import lru_cache
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.base.random import Stream
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts.angles import Array, exact_angles, fill_line, precise
from fastpe.encodings.parts.rotary import base_option, ladder, printed_ladder, rotated_width
from fastpe.encodings.slots import Spec
from fastpe.kernels.fills.trig import PI


def check(spec: Spec, **options: Any) -> None:
    """Require an even head width."""
    rotated_width(spec, None)


def shapes(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """A 2x2 map for each head, token and pair."""
    return {"rotors": (*spec.batch, spec.heads, spec.length, rotated_width(spec, None) // 2, 2, 2)}


def _sizes(spec: Spec, base: float) -> tuple[int, int]:
    """n and m. n is the number of frequencies that make a turn in the training length, but at least 1."""
    width = rotated_width(spec, None)

    def slow(t: int) -> bool:
        return Decimal(base) ** (Decimal(-2 * t) / width) * spec.train_length < 2 * PI

    with precise():  # by bisection, because the shapes of parameters must be cheap to compute for any width
        count = max(1, bisect_left(range(width // 2), True, key=slow))
    return count, min(count, max(1, spec.head_dim // 4))


def parameters(spec: Spec, *, base: float, learned: bool, **options: Any) -> dict[str, tuple[int, ...]]:
    """Both matrices, if they are learned."""
    shape = spec.heads, *_sizes(spec, base)
    return {"cosines": shape, "sines": shape} if learned else {}


def init(spec: Spec, rng: Any, *, base: float, gain: float, learned: bool, **options: Any) -> dict[str, Any]:
    """A strided identity plus Xavier-normal numbers."""
    if not learned:
        return {}
    return dict(zip(("cosines", "sines"), _initial(rng, spec.heads, *_sizes(spec, base), gain), strict=True))


def _initial(rng: Any, heads: int, count: int, kept: int, gain: float) -> Array:
    """Wc and Ws, (2, H, n, m)."""
    step = -(-count // kept)
    identity = np.zeros((count, kept))
    for i in range(-(-count // step)):
        identity[i * step, i] = 1.0
    drawn: Array = identity + gain * math.sqrt(2 / (count + kept)) * rng.normal((2, heads, count, kept))
    return drawn


@lru_cache(maxsize=16)
def _drawn(draw: int, heads: int, count: int, kept: int, gain: float) -> Array:
    matrices = _initial(Stream(draw, "fope"), heads, count, kept, gain)
    matrices.flags.writeable = False
    return matrices


def _matrices(spec: Spec, params: dict[str, Any], *, base: float, gain: float, draw: int, **options: Any) -> Array:
    if params:
        return np.stack([params["cosines"], params["sines"]]).astype(np.float64)
    return _drawn(draw, spec.heads, *_sizes(spec, base), gain)


def reference(spec: Spec, params: dict[str, Any], *, base: float, **options: Any) -> dict[str, Any]:
    """The released code's sums and maps, one pair after the other."""
    width, points = rotated_width(spec, None), spec.points()
    with precise():
        floor = 2 * PI / spec.train_length
        plain = printed_ladder(base, width)
        omega = [each for each in plain if each >= floor] or [plain[0]]
    angles = exact_angles(points, omega)
    weights = _matrices(spec, params, base=base, **options)
    rotors = np.empty((spec.heads, width // 2, *points.shape, 2, 2))
    for head in range(spec.heads):
        for c in range(width // 2):
            of_cosines: Any = 1.0
            of_sines: Any = 1.0
            if c < weights.shape[-1]:
                of_cosines = np.cos(angles) @ weights[0, head, :, c]
                of_sines = np.sin(angles) @ weights[1, head, :, c]
            rotors[head, c, ..., 0, 0] = rotors[head, c, ..., 1, 1] = of_cosines
            rotors[head, c, ..., 1, 0], rotors[head, c, ..., 0, 1] = of_sines, -of_sines
    return {"rotors": np.moveaxis(rotors, (0, 1), (-5, -3))}


def _waves(spec: Spec, base: float) -> tuple[Array, Array]:
    """Cosines and sines of the angles, (..., N, n)."""
    omega = ladder(base, rotated_width(spec, None))[: _sizes(spec, base)[0]]
    angles = np.empty((*spec.batch, 1, spec.length, len(omega)))
    fill_line(spec, omega, angles)
    return np.cos(angles[..., 0, :, :]), np.sin(angles[..., 0, :, :])


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, base: float, **options: Any) -> None:
    """Fill `rotors`."""
    rotors = out["rotors"]
    rotors[...] = np.array([[1.0, -1.0], [1.0, 1.0]])
    weights = _matrices(spec, params, base=base, **options)
    for i, (wave, own) in enumerate(zip(_waves(spec, base), weights, strict=True)):
        for head, matrix in enumerate(own):
            sums = np.einsum("...t,tc->...c", wave, matrix)
            both = rotors[..., head, :, : matrix.shape[1], :, :]
            both[..., i, 0] = sums
            both[..., 1 - i, 1] = sums if i == 0 else -sums


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, base: float,
    **options: Any,
) -> None:  # fmt: skip
    """dWc = sum over positions of the cosines times dC, dC = dR_11 + dR_22; dWs likewise, dS = dR_21 - dR_12."""
    for i, (wave, gradient) in enumerate(zip(_waves(spec, base), (dparams["cosines"], dparams["sines"]), strict=True)):
        rows = wave.reshape(-1, wave.shape[-1])
        for head in range(spec.heads):
            d = dslots["rotors"][..., head, :, : gradient.shape[-1], :, :].astype(np.float64)
            of_sums = d[..., i, 0] + (d[..., 1, 1] if i == 0 else -d[..., 0, 1])
            gradient[head] += np.einsum("pt,pc->tc", rows, of_sums.reshape(len(rows), -1))


ENCODING = Encoding(
    summary="rotary, each pair with a sum of frequencies",
    formula=r"""
        C_{p,c} &= \sum_t \cos(p\, \omega_t)\, W^{c}_{htc}, \quad S_{p,c} = \sum_t \sin(p\, \omega_t)\, W^{s}_{htc},
            \quad c < m \\
        C &= S = 1, \quad m \le c < D/2 \\
        (a, b) &\rightarrow (a C - b S,\ b C + a S),
            \quad \text{where channels } c \text{ and } c + D/2 \text{ are a pair}
    """,
    use_when="you study sums of frequencies in place of RoPE's single ones; scores are not relative",
    also_called=("Fourier position embedding",),
    not_to_be_confused={"fourier": "Fourier features of coordinates, added to the embeddings"},
    slots=("rotors", "pairs"),
    options={
        "base": base_option(),
        "gain": Option(0.3, "scale of the random part of the matrices", float, minimum=0.0, maximum=1e3),
        "learned": Option(False, "whether the matrices are learned", bool),
        "draw": Option(0, "seed of the random matrices, if they are not learned", int, minimum=0),
    },
    beyond="defined",
    direction="yes",
    use="proposed",
    source="Hua et al. 2024, arXiv:2412.17739, and released code",
    ulp=lambda spec, **options: 16.0 + 8.0 * spec.head_dim,
    plain=lambda spec, **options: {"pairs": "half"},
    per_layer=("cosines", "sines"),
)
