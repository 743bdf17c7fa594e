"""Sandwich: a bias that depends on |j - i|, proportional to the dot product of rows i and j of the sinusoidal table.

    S_ij = s q_i . k_j + (1 / g_h) sum_{t=0}^{dbar/2 - 1} cos((j - i) 10000^(-2t/dbar))

Source: Chi, Fan, Rudnicky and Ramadge 2023, "Dissecting Transformer Length Extrapolation via the Lens of Receptive
Field Analysis" (arXiv:2212.10356). This page follows the paper's abstract and definitions. The authors' code was not
read, so the divisors g_h are **unverified**. A port, sandwich_relative_position_embedding.py in NVIDIA/NeMo, uses the
same divisors. The port differs in two ways. It sums over t = 1 .. dbar/2, which changes the bias (see Traps), and it
subtracts dbar/2, which does not change the softmax.

**Slot**: `bias` (H, 2N-1), or `scores` (H, N, N) if positions are given. **Learns**: nothing.

**Options**
- `dbar`: the width of the sinusoidal table, which is twice the number of frequencies. It must be even and at most 10^6;
  the authors use 128. Filling `bias` takes `N * dbar/2` additions; `scores` at fractional positions take `N^2 * dbar/2`
  cosines.
- `divisors`: g_h, one number for each head or one for all heads. Default: 8(h+1)/H, h = 0 .. H-1.

**Past the training length**: defined; the bias falls logarithmically with the distance. At distances above about 10^4
it oscillates.

**Traps.** The bias is even in j - i: without a causal mask the model cannot tell left from right. At distance 0 the sum
is dbar/2, not 0; this does not matter, because the softmax depends only on differences. Summing over t = 1 .. dbar/2
instead gives a different bias.

**Accuracy.** If no positions are given, sines and cosines are evaluated for some distances only, and angle addition
formulas give the cosines of the other distances. If integer positions are given, sines and cosines are evaluated for
each position, and angle addition formulas give the cosines of the differences. At fractional positions, every cosine is
evaluated. The error of an evaluated sine or cosine is at most a unit in the last place. At any distance, the error of
the sum is at most a few units in the last place of dbar/2, its largest value.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Reported
from fastpe.encodings.parts.distance_runs import fill_values
from fastpe.encodings.parts.frequencies import exact_product, frequencies
from fastpe.encodings.parts.offset_biases import as_slots, pairwise, shapes
from fastpe.encodings.parts.offsets import blocks, waves
from fastpe.encodings.slots import Spec
from fastpe.kernels.arrays import gemm
from fastpe.kernels.compile.decorators import entry
from fastpe.kernels.fills.trig import sincos
from fastpe.kernels.simd import at, lanes, load, pointer, splat, total


def check(spec: Spec, *, dbar: int, divisors: tuple[float, ...] | None) -> None:
    """Require an even `dbar`, one divisor or a divisor for every head, and positions that are not too far apart."""
    if dbar % 2:
        raise ValueError(f"option 'dbar' must be even, not {dbar}")
    if divisors is not None and (len(divisors) not in (1, spec.heads) or min(divisors, default=0) <= 0):
        raise ValueError(f"option 'divisors' must have 1 or heads={spec.heads} numbers > 0, not {divisors}")
    if not dbar <= float(np.finfo(spec.dtype).max) * float(min(_divisors(spec, divisors))):
        raise ValueError(f"option 'divisors' must be so large that biases are finite in {spec.dtype}, not {divisors}")
    if spec.positions is not None and np.ptp(spec.positions, axis=-1).max() > 2**27:
        raise ValueError("positions must be at most 2**27 apart")


def _divisors(spec: Spec, divisors: tuple[float, ...] | None) -> np.ndarray:
    if divisors is None:
        return 8.0 * np.arange(1, spec.heads + 1) / spec.heads
    return np.broadcast_to(np.array(divisors), spec.heads)


def reference(spec: Spec, params: dict[str, Any], *, dbar: int, divisors: tuple[float, ...] | None) -> dict[str, Any]:
    """The printed sum. Each frequency and angle is the sum of two numbers: cos(a + rest) = cos a - rest sin a."""
    offsets = pairwise(spec)[..., None]
    cosines = np.zeros(offsets.shape[:-1])
    for some in blocks(dbar // 2, offsets.size):
        high, low = frequencies(10000.0, dbar)[:, some]
        angles, rest = exact_product(offsets, high)
        cosines += (np.cos(angles) - (rest + offsets * low) * np.sin(angles)).sum(axis=-1)
    g = np.array(divisors if divisors else [8 * (h + 1) / spec.heads for h in range(spec.heads)])[:, None, None]
    return as_slots(spec, np.float64(cosines[..., None, :, :] / g) + np.zeros((spec.heads, 1, 1)))


def _waves(points: np.ndarray, dbar: int) -> tuple[np.ndarray, np.ndarray]:
    return waves(points, 10000.0, dbar, dbar // 2)


def _sums(length: int, dbar: int, room: int) -> Iterator[tuple[int, np.ndarray]]:
    """Yield `first` and the sums of cosines of distances first, first + 1, ...

    `room` is the approximate size in bytes of the tables of sines and cosines; larger tables give more sums at a time.
    """
    root, most = (length.bit_length() - 1) // 2, room // (32 * dbar)
    half = 1 << max(2, min(root - 1, 8, max(5, most.bit_length() - 1)))
    sine, cosine = (np.ascontiguousarray(each.T) for each in _waves(np.arange(half + 1.0), dbar))
    anchors = 16 if half < 64 else 32
    for first in range(0, length, 2 * half * anchors):
        count = min(anchors, -(-(length - first) // (2 * half)))
        found = _around(first + half + 2.0 * half * np.arange(count), sine, cosine, dbar)
        yield first, found.reshape(1, -1)[:, : length - first]


def _around(anchors: np.ndarray, sine: np.ndarray, cosine: np.ndarray, dbar: int) -> np.ndarray:
    """The sums for distances a - half .. a + half - 1 around each anchor a, (anchors, 2 half).

    `sine` and `cosine` (dbar/2, half + 1) hold the sines and cosines of distances 0 .. half. Two matrix products give
    the terms of cos((a ± k) w) = cos(a w) cos(k w) -+ sin(a w) sin(k w) for all a and k.
    """
    sine_a, cosine_a = _waves(anchors, dbar)
    even, odd, half = gemm(cosine_a, cosine), gemm(sine_a, sine), sine.shape[1] - 1
    found = np.empty((len(anchors), 2 * half))
    np.add(even[:, half:0:-1], odd[:, half:0:-1], out=found[:, :half])
    np.subtract(even[:, :half], odd[:, :half], out=found[:, half:])
    return found


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, dbar: int, divisors: tuple[float, ...] | None
) -> None:
    """Fill `bias`, or `scores` if positions are given."""
    factors = 1.0 / _divisors(spec, divisors)
    if spec.positions is None:
        for first, sums in _sums(spec.length, dbar, out["bias"].nbytes // 8):
            fill_values(out["bias"], first, sums, factors)
        return
    whole = (spec.positions == np.floor(spec.positions)).all()
    for sample in np.ndindex(*spec.batch):
        points = spec.positions[sample]
        sine, cosine = _waves(points if whole else points[:0], dbar)
        for some in blocks(spec.length, spec.length):
            if whole:
                sums = gemm(cosine[some], np.ascontiguousarray(cosine.T))
                sums += gemm(sine[some], np.ascontiguousarray(sine.T))
            else:
                sums = np.empty((len(points[some]), spec.length))
                _sums_of(np.abs(points - points[some, None]), frequencies(10000.0, dbar), dbar // 2, sums)
            for h, factor in enumerate(factors):
                np.multiply(factor, sums, out=out["scores"][(*sample, h, some)], casting="same_kind")


@entry(label="Sandwich bias")
def _sums_of(distances: np.ndarray, omega: np.ndarray, count: int, found: np.ndarray) -> None:
    # distances may be fractional; lanes are frequencies; padding lanes have frequency 0, so their cosine is 1
    width, high = lanes(pointer(omega)), pointer(omega)
    for i in range(distances.shape[0]):
        for j in range(distances.shape[1]):
            cosines = splat(0.0)
            for t in range(0, omega.shape[1], width):
                line = at(high, t)
                cosines = cosines + sincos(splat(distances[i, j]), load(line, 0), load(line, omega.shape[1]))[1]
            found[i, j] = total(cosines) - (omega.shape[1] - count)


ENCODING = Encoding(
    summary="a sum of cosines of the distance, as a bias",
    formula=r"""
        S_{ij} = s\, q_i \cdot k_j + \frac{1}{g_h} \sum_{t=0}^{\overline{d}/2 - 1} \cos\left((j - i)\,
            10000^{-2t/\overline{d}}\right)
    """,
    use_when="a fixed bias should fall with the logarithm of the distance, or you reproduce Chi et al. 2023",
    use="proposed",
    slots=("bias", "scores"),
    options={
        "dbar": Option(128, "twice the number of frequencies", int, minimum=2, maximum=1e6),
        "divisors": Option(
            None, "divisor of each head's bias; default 8(h+1)/H", tuple, optional=True, item=float,
            samples=((0.5,),),
        ),
    },
    beyond="defined",
    direction="no",
    source="Chi, Fan, Rudnicky and Ramadge 2023, arXiv:2212.10356; its divisors are unverified",
    reported=Reported(
        "holds",
        "Its authors report that it uses text from farther away than the training length.",
        "Chi, Fan, Rudnicky and Ramadge 2023, arXiv:2212.10356, abstract",
    ),
    ulp=32.0,
    shapes=shapes,
)  # fmt: skip
