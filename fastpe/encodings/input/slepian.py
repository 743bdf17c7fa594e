"""Slepian sequences: band-limited sequences, concentrated at the training positions, added to the embeddings.

    PE[p, k] = sqrt(N) v_k(p),   lambda_k v_k(p) = sum_{m=0}^{N-1} sin(2 pi W (p - m)) / (pi (p - m))  v_k(m)
    k = 0 .. K - 1,   W = time_bandwidth / N,   sum_{m=0}^{N-1} v_k(m)^2 = 1,   1 > lambda_0 > lambda_1 > ...

N is the training length. K, the number of sequences used, is 2 time_bandwidth, rounded down, but at most C. (About 2
time_bandwidth independent sequences with frequencies up to W fit into N positions.) The columns k >= K are zero.

Source: Slepian 1978, "Prolate Spheroidal Wave Functions, Fourier Analysis, and Uncertainty V: The Discrete Case", Bell
System Technical Journal 57; its use as an encoding is our own construction.

**Slot**: `table` (N, C). **Learns**: nothing.

**Options**
- `time_bandwidth`: N W, the training length times the largest frequency, which is in turns per position; from 1/2 to
  N/2. Default: the smaller of C/2 and N/4. W is then at most 1/4, a period of four positions.
- `scale`: multiplies the table.

Positions may be real numbers: the formula above also defines v_k between integers.

**Past the training length**: defined by the same formula, before and after the training positions. No other
continuation of the sequences is free of frequencies above W. The sum of squares of column k over all positions outside
the training length is its sum of squares inside times (1/lambda_k - 1), so the column tends to zero. For k < K,
lambda_k is more than 1/2, so every column has a smaller sum of squares outside than inside. Most lambda_k are close to
1; the columns of these k are nearly zero at all positions p >= N.

**Facts.** At the training positions, the columns are orthogonal and have a mean square of 1. With respect to the middle
of these positions, v_k is symmetric if k is even, and antisymmetric if k is odd. Signs are as in SciPy's `dpss`: for
even k, the sum of v_k(p) over p is positive; for odd k, the sum of (N - 1 - 2p) v_k(p) is positive. With time_bandwidth
= N/2 all frequencies are allowed. Then K is N, but at most C, and integer positions outside the training length get
zeros.

**Traps.** The columns k >= K stay zero: by default, with C = 64 and N = 50, only 25 columns are filled. By default, if
N is even and C is at least N/2, all rows inside the training length have the norm sqrt(N/2), which is 5 for N = 50.
Outside, the norm is 2.46 at position 50, 0.46 at 60 and 0.06 at 199.

**Accuracy.** The v_k at the training positions are computed as eigenvectors of a tridiagonal matrix. It has the same
eigenvectors as the formula, but its eigenvalues are well separated. The dot products of two v_k are correct to 2N
2^-52, as measured up to N = 4096. The phases of the formula's sines are exact at any position.

**Speed.** The v_k at the training positions are computed once and cached. Rows within the training length are copied;
each row outside costs N K operations. N may be at most 2^18, where computing the v_k takes seconds.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from scipy import linalg

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts.frequencies import exact_product
from fastpe.encodings.parts.tridiagonal import largest_eigenvalues, largest_eigenvectors
from fastpe.encodings.slots import Spec
from fastpe.kernels.arrays import gemm

Array = np.ndarray[Any, Any]

_BLOCK = 2**19  # sines that are computed together
_LONGEST = 2**18  # at this training length the eigenvectors take seconds


def check(spec: Spec, *, time_bandwidth: float | None, scale: float) -> None:
    """Require W <= 1/2, and a training length whose eigenvectors can be computed."""
    if spec.train_length > _LONGEST:
        raise ValueError(f"'slepian' needs a training length of at most {_LONGEST}, not {spec.train_length}")
    if time_bandwidth is not None and time_bandwidth > max(0.5, spec.train_length / 2):
        raise ValueError(
            f"option 'time_bandwidth' must be at most half of the training length {spec.train_length}, "
            f"not {time_bandwidth:g}"
        )


def _product(spec: Spec, time_bandwidth: float | None) -> float:
    if time_bandwidth is not None:
        return time_bandwidth
    return max(0.5, min(spec.dim, spec.train_length / 2) / 2)


def _count(spec: Spec, product: float) -> int:
    return min(spec.dim, int(2 * product))


def _tridiagonal(length: int, bandwidth: float) -> tuple[Array, Array]:
    """The diagonal (N,) and the off-diagonal (N-1,) of the matrix that commutes with the kernel."""
    place = np.arange(float(length))
    return ((length - 1 - 2 * place) / 2) ** 2 * np.cos(2 * np.pi * bandwidth), (place * (length - place) / 2)[1:]


def _signed(vectors: Array) -> Array:
    """Eigenvectors (N, K), largest eigenvalue first, with the signs described above."""
    moment = np.arange(len(vectors) - 1.0, -len(vectors), -2.0)
    vectors[:, 0::2] *= np.where(vectors[:, 0::2].sum(axis=0) < 0, -1.0, 1.0)
    vectors[:, 1::2] *= np.where(moment @ vectors[:, 1::2] < 0, -1.0, 1.0)
    return vectors


def reference(spec: Spec, params: dict[str, Any], *, time_bandwidth: float | None, scale: float) -> dict[str, Any]:
    """The formula, with the eigenvectors of LAPACK."""
    n, product = spec.train_length, _product(spec, time_bandwidth)
    width, count, places = product / n, _count(spec, product), np.arange(float(n))
    diagonal, beside = _tridiagonal(n, width)
    ends = (n - count, n - 1)
    ascending = linalg.eigh_tridiagonal(diagonal, beside, select="i", select_range=ends, lapack_driver="stebz")[1]
    vectors = _signed(ascending[:, ::-1].copy())
    concentration = (vectors * linalg.matmul_toeplitz(_kernel(np.zeros(()), n, width), vectors)).sum(axis=0)
    table = np.zeros((*spec.batch, spec.length, spec.dim))
    table[..., :count] = (_kernel(spec.points(), n, width) @ vectors) / concentration
    known = np.isin(spec.points(), places)  # the sum gives the same rows, with less accurate small entries
    table[known, :count] = vectors[spec.points()[known].astype(np.int64)]
    return {"table": scale * np.sqrt(n) * table}


def _kernel(points: Array, length: int, width: float) -> Array:
    """sin(2 pi W t) / (pi t) for t from 0, 1, ..., N-1 to each point, (..., N)."""
    t = points[..., None] - np.arange(float(length))
    half_turns, lost = exact_product(t, 2 * width)
    whole = np.rint(half_turns)
    sine = np.sin(np.pi * ((half_turns - whole) + lost)) * (1 - 2 * (whole % 2))
    return np.divide(sine, np.pi * t, out=np.full(t.shape, 2 * width), where=t != 0)


@lru_cache(maxsize=1)
def _sequences(length: int, product: float, count: int) -> tuple[Array, Array]:
    """sqrt(N) v_k at the training positions, (N, K), and lambda_k, (K,)."""
    vectors = np.ascontiguousarray(largest_eigenvectors(*_tridiagonal(length, product / length), count))
    vectors = _signed(vectors)
    highest = np.abs(vectors).argmax(axis=0)
    concentration = np.array(
        [
            (_kernel(place, length, product / length) * vector).sum() / vector[place]
            for place, vector in zip(highest, vectors.T, strict=True)
        ]
    )
    vectors *= np.sqrt(length)
    for kept in (vectors, concentration):
        kept.flags.writeable = False
    return vectors, concentration


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, time_bandwidth: float | None, scale: float
) -> None:
    """Fill `table`: rows of training positions are copied, and other rows are sums over these."""
    product = _product(spec, time_bandwidth)
    count, length = _count(spec, product), spec.train_length
    vectors, concentration = _sequences(length, product, count)
    points, rows = spec.points(), max(1, _BLOCK // max(length, spec.dim))
    out["table"][..., count:] = 0.0
    for sample in np.ndindex(*spec.batch):
        for start in range(0, spec.length, rows):
            some = points[sample][start : start + rows]
            block = out["table"][sample][start : start + rows, :count]
            known = (some >= 0) & (some < length) & (some == np.floor(some))
            block[known] = scale * vectors[some[known].astype(np.int64)]
            if not known.all():
                sums = gemm(_kernel(some[~known], length, product / length), vectors)
                block[~known] = scale * sums / concentration


def _error(spec: Spec, *, time_bandwidth: float | None, scale: float) -> float:
    """The error of a vector is the rounding of the matrix divided by the gap to the next eigenvalue."""
    product = _product(spec, time_bandwidth)
    diagonal, beside = _tridiagonal(spec.train_length, product / spec.train_length)
    values = largest_eigenvalues(diagonal, beside, min(_count(spec, product) + 1, spec.train_length))
    gap = -np.diff(values).max(initial=-np.inf)
    largest_entry = np.abs(diagonal).max() + 2.0 * np.abs(beside).max(initial=0.0)
    out = {"table": np.empty((*spec.batch, spec.length, spec.dim))}
    fill(spec, {}, out, time_bandwidth=time_bandwidth, scale=1.0)
    largest = float(np.abs(out["table"]).max())
    vector = (4.0 + largest_entry / gap) * np.sqrt(2 * product)
    return float(16.0 * vector * max(1.0, np.sqrt(spec.train_length) / max(largest, 1e-300)))


ENCODING = Encoding(
    summary="band-limited sequences on the training positions",
    formula=r"""
        \mathrm{PE}[p, k] &= \sqrt{N}\, v_k(p), \quad k = 0, \dots, K - 1 \\
        \lambda_k v_k(p) &= \sum_{m=0}^{N-1} \frac{\sin(2 \pi W (p - m))}{\pi (p - m)}\, v_k(m) \\
        W &= \mathrm{time\_bandwidth} / N, \quad \sum_{m=0}^{N-1} v_k(m)^2 = 1, \quad 1 > \lambda_0 > \lambda_1 > \dots
    """,
    use_when="you study band-limited features of the position that are orthogonal within the training length",
    also_called=("discrete prolate spheroidal sequences", "DPSS"),
    use="study",
    slots=("table",),
    options={
        "time_bandwidth": Option(
            None, "length times largest frequency", float, minimum=0.5, optional=True, samples=(0.5, 2.5)
        ),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="defined",
    direction="yes",
    source="own construction, after Slepian 1978, Bell Syst. Tech. J. 57",
    ulp=_error,
)
