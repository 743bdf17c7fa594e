"""Sandwich: the product of two rows of the sinusoidal table, a function of their distance, as a bias.

    S_ij = s q_i . k_j + (1 / g_h) sum_{t=0}^{dbar/2 - 1} cos((j - i) 10000^(-2t/dbar))

Source: Chi, Fan, Rudnicky and Ramadge 2023, "Dissecting Transformer Length Extrapolation via the Lens of Receptive
Field Analysis" (arXiv:2212.10356), of which abstract and definitions were read, but no code of its authors: the
divisors g_h are **unverified**. A port, NVIDIA/NeMo, sandwich_relative_position_embedding.py, has the same ones; its
sum goes over t = 1 .. dbar/2, and it subtracts dbar/2 (which no softmax sees).

**Slot**: `bias` (H, 2N-1); `scores` (H, N, N) where positions are given. **Learns**: nothing.

**Options**
- `dbar`: terms of the product, twice as many as there are frequencies; the authors have 128.
- `divisors`: g_h, one for each head or one for all; 8(h+1)/H, h = 0 .. H-1, where not given.

**Past the training length**: defined; the bias falls like a logarithm of the distance, and wavers from about 10^4 on.

**Traps.** Without a causal mask it cannot tell left from right: it is even in j - i. At distance 0 it is dbar/2 and not
0, so beside another bias only its differences count. A sum over t = 1 .. dbar/2 instead is another bias.

**Accuracy.** Every cosine is exact to a unit in the last place at any distance, and so is their sum to a few of those
of dbar/2.
"""

from typing import Any

import numpy as np

from fastpe.encoding import Encoding, Option, Spec
from fastpe.encodings._biases import as_slots, blocks, pairwise, shapes
from fastpe.encodings._trig import frequencies
from fastpe.kernels._jit import entry
from fastpe.kernels.simd import at, lanes, load, pointer, splat, total
from fastpe.kernels.trig import sincos


def check(spec: Spec, *, dbar: int, divisors: tuple[float, ...] | None) -> None:
    """`dbar` is even, there is a divisor for every head, and no two positions are too far apart."""
    if dbar % 2:
        raise ValueError(f"option 'dbar' must be even, not {dbar}")
    if divisors is not None and (len(divisors) not in (1, spec.heads) or min(divisors, default=0) <= 0):
        raise ValueError(f"option 'divisors' must be one number > 0, or {spec.heads} for the heads, not {divisors}")
    if not dbar <= float(np.finfo(spec.dtype).max) * float(min(_divisors(spec, divisors))):
        raise ValueError(f"option 'divisors' must leave {spec.dtype} finite, not {divisors}")
    if spec.positions is not None and np.ptp(spec.positions, axis=-1).max() > 2**27:
        raise ValueError("positions must be at most 2**27 apart")


def _divisors(spec: Spec, divisors: tuple[float, ...] | None) -> np.ndarray:
    if divisors is None:
        return 8.0 * np.arange(1, spec.heads + 1) / spec.heads
    return np.broadcast_to(np.array(divisors), spec.heads)


def reference(spec: Spec, params: dict[str, Any], *, dbar: int, divisors: tuple[float, ...] | None) -> dict[str, Any]:
    """The printed sum, its angles in extended precision where the platform has it."""
    omega = np.longdouble(10000) ** (-np.arange(0, dbar, 2, dtype=np.longdouble) / dbar)
    cosines = sum(np.cos(pairwise(spec) * frequency) for frequency in omega)
    g = np.array(divisors if divisors else [8 * (h + 1) / spec.heads for h in range(spec.heads)])[:, None, None]
    return as_slots(spec, np.float64(cosines[..., None, :, :] / g) + np.zeros((spec.heads, 1, 1)))


@entry(label="Sandwich bias")
def _sums(distances: np.ndarray, omega: np.ndarray, count: int, found: np.ndarray) -> None:
    # lanes are frequencies; those that fill up a vector are 0, and their cosines 1
    width, high = lanes(pointer(omega)), pointer(omega)
    for i in range(distances.size):
        cosines = splat(0.0)
        for t in range(0, omega.shape[1], width):
            line = at(high, t)
            cosines = cosines + sincos(splat(distances[i]), load(line, 0), load(line, omega.shape[1]))[1]
        found[i] = total(cosines) - (omega.shape[1] - count)


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, dbar: int, divisors: tuple[float, ...] | None
) -> None:
    """Fill `bias`, or `scores` where positions are given."""
    for offsets, bias in blocks(spec, out):
        cosines = np.empty(offsets.size)
        _sums(np.abs(offsets).ravel(), frequencies(10000.0, dbar), dbar // 2, cosines)
        for h, divisor in enumerate(_divisors(spec, divisors)):
            bias[h] = cosines.reshape(offsets.shape) / divisor


ENCODING = Encoding(
    slots=("bias", "scores"),
    options={
        "dbar": Option(128, "twice the number of frequencies", int, minimum=2),
        "divisors": Option(
            None, "what each head's bias is divided by; 8(h+1)/H where not given", tuple, optional=True, item=float,
            samples=((0.5,),),
        ),
    },
    beyond="defined",
    direction="no",
    source="Chi, Fan, Rudnicky and Ramadge 2023, arXiv:2212.10356; its divisors are unverified",
    ulp=32.0,
    reference=reference,
    fill=fill,
    shapes=shapes,
    check=check,
)  # fmt: skip
