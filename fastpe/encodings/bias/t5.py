"""T5's relative position bias: a learned number for each bucket of offsets; buckets widen with the distance.

    S_ij = q_i . k_j + table[bucket(j - i), h]

    causal:         n = max(i - j, 0),  b = buckets
    bidirectional:  n = |j - i|,        b = buckets / 2,   and b more for j > i
    bucket = n                                                              n < b/2
           = min(b/2 + floor(ln(n / (b/2)) / ln(max_distance / (b/2)) b/2), b - 1)     otherwise

Source: Raffel et al. 2020, "Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer"
(arXiv:1910.10683), section 2.1; the buckets: tensorflow/mesh, mesh_tensorflow/transformer/transformer_layers.py,
_relative_position_bucket.

**Slots**: `bias` (H, 2N-1), or `scores` (H, N, N) if positions are given. Positions must be integers. The slot `scale`
is 1, because the published model does not divide by sqrt(D). **Learns**: `table` (buckets, H), shared by all layers,
initially drawn from N(0, 1/C), as in the Hugging Face implementation.

**Options**
- `buckets`: the number of buckets; a bidirectional model uses half of them for each side.
- `max_distance`: all distances of at least `max_distance` share the last bucket.
- `scaled`: whether the product of query and key is divided by sqrt(D), unlike in the published model.

A causal model uses the causal buckets, as T5's decoder does; other models use the bidirectional buckets, as T5's
encoder does.

**Past the training length**: clipped: all distances of at least `max_distance` share the last bucket. The last bucket
begins before `max_distance`: with the default options, at distance 113 (causal) or 91 (bidirectional).

**Traps.** With 32 buckets a bidirectional model has 16 per side, and only 8 of these hold a single distance. The
bidirectional buckets include one for distance 0 on the side j > i; it is never used and keeps its initial value. A
bucket whose distances do not occur in training stays untrained, so the last bucket helps on longer texts only if
training reaches it.

**Accuracy.** Values are copied without rounding. The first distance of each bucket is computed with integers, because a
rounded quotient of logarithms may give the wrong bucket. Let M be `max_distance`. The first e = b/2 buckets have a
single distance each; m = b - e buckets remain. Bucket e + k, for k = 0 .. m - 1, begins at the smallest n with n^m e^k
>= e^m M^k.
"""

from functools import lru_cache
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Reported
from fastpe.encodings.parts.distance_runs import Runs, fill_runs, moments
from fastpe.encodings.parts.offset_biases import as_slots, blocks, check_integers, pairwise, shapes
from fastpe.encodings.slots import Spec


def check(spec: Spec, *, buckets: int, max_distance: int, scaled: bool) -> None:
    """Require two or more buckets per side, a `max_distance` beyond the exact buckets, and integer positions."""
    check_integers(spec, "t5")
    side = buckets if spec.causal else buckets // 2
    if side < 2:
        least = 2 if spec.causal else 4
        raise ValueError(f"option 'buckets' must be at least {least} with causal={spec.causal}, not {buckets}")
    if max_distance <= side // 2:
        raise ValueError(
            f"option 'max_distance' must exceed {side // 2}, the number of exact buckets, but is {max_distance}"
        )


@lru_cache(maxsize=16)
def _ends(side: int, max_distance: int) -> np.ndarray:
    """The first distance of each bucket of one side, without the first bucket."""
    exact = side // 2
    wide = side - exact
    ends = list(range(1, exact + 1))
    for k in range(1, wide):
        low, high = ends[-1], max_distance
        while low < high:
            middle = (low + high) // 2
            if middle**wide * exact**k >= exact**wide * max_distance**k:
                high = middle
            else:
                low = middle + 1
        ends.append(low)
    return np.array(ends, np.float64)


def bucket(offsets: np.ndarray, causal: bool, buckets: int, max_distance: int) -> np.ndarray:
    """The bucket of every offset j - i, int64.

    >>> bucket(np.array([-128.0, -16, -1, 0, 1, 128]), False, 32, 128).tolist()
    [15, 10, 1, 0, 17, 31]
    """
    if causal:
        return np.searchsorted(_ends(buckets, max_distance), -offsets, side="right")
    side = buckets // 2
    return np.searchsorted(_ends(side, max_distance), np.abs(offsets), side="right") + side * (offsets > 0)


def printed_bucket(offset: np.ndarray, causal: bool, buckets: int, max_distance: int) -> np.ndarray:
    """`bucket` by the printed logarithms, for references; rounding to 12 decimals keeps whole quotients whole."""
    n, side = np.maximum(-offset, 0) if causal else np.abs(offset), buckets if causal else buckets // 2
    exact = side // 2
    wide = np.log(np.maximum(n, exact) / exact) / np.log(max_distance / exact) * (side - exact)
    found = np.where(n < exact, n, np.minimum(exact + np.floor(wide.round(12)), side - 1))
    return (found + (0 if causal else side * (offset > 0))).astype(int)


_NONE = np.zeros((1, 1, 1))


@lru_cache(maxsize=16)
def _runs(length: int, causal: bool, buckets: int, max_distance: int) -> tuple[Runs, np.ndarray, np.ndarray]:
    """Runs of distances that share a bucket, and the bucket of each run before the query and after the query."""
    side = buckets if causal else buckets // 2
    ends = _ends(side, max_distance)
    begin = np.concatenate([[0], ends[ends < length], [length]]).astype(np.int64)
    behind = np.arange(len(begin) - 1)
    runs = Runs(begin, np.zeros(len(behind)), np.zeros(len(behind), np.int64))
    return runs, behind, behind * 0 if causal else side + behind


def parameters(spec: Spec, *, buckets: int, **options: Any) -> dict[str, tuple[int, ...]]:
    """A number for every bucket and every head."""
    return {"table": (buckets, spec.heads)}


def init(spec: Spec, rng: Any, *, buckets: int, **options: Any) -> dict[str, Any]:
    """A table drawn from N(0, 1/C)."""
    return {"table": rng.normal((buckets, spec.heads)) / np.sqrt(spec.dim)}


def plain(spec: Spec, *, scaled: bool, **options: Any) -> dict[str, Any]:
    """`scale` is 1, as published, unless the option `scaled` is set."""
    return {} if scaled else {"scale": 1.0}


def reference(spec: Spec, params: dict[str, Any], *, buckets: int, max_distance: int, scaled: bool) -> dict[str, Any]:
    """The released code's function of the offset."""
    found = printed_bucket(pairwise(spec), spec.causal, buckets, max_distance)
    return as_slots(spec, np.moveaxis(params["table"][found], -1, -3))


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, buckets: int, max_distance: int, scaled: bool
) -> None:
    """Fill `bias`, or `scores` if positions are given."""
    table = np.ascontiguousarray(params["table"].T, np.float64)
    if spec.positions is None:
        runs, behind, ahead = _runs(spec.length, spec.causal, buckets, max_distance)
        fill_runs(out["bias"], runs, np.stack([table[:, behind], table[:, ahead]]), _NONE, _NONE, _NONE[0])
        return
    for offsets, scores in blocks(spec, out):
        found = bucket(offsets, spec.causal, buckets, max_distance)
        for h in range(spec.heads):
            scores[h] = table[h][found]


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, buckets: int,
    max_distance: int, scaled: bool,
) -> None:  # fmt: skip
    """Add the gradient of every offset to that of its bucket."""
    total = np.zeros((buckets, spec.heads))
    if spec.positions is None:
        runs, *sides = _runs(spec.length, spec.causal, buckets, max_distance)
        for side, sums in zip(sides, moments(dslots["bias"], runs, _NONE, 0, sides=2)[..., 0], strict=True):
            np.add.at(total, side, sums.T)
    else:
        for offsets, dscores in blocks(spec, dslots):
            found = bucket(offsets, spec.causal, buckets, max_distance).ravel()
            for h in range(spec.heads):
                total[:, h] += np.bincount(found, dscores[h].ravel(), buckets)
    dparams["table"] += total


ENCODING = Encoding(
    summary="learned bias for each bucket of distances",
    formula=r"""
        S_{ij} &= q_i \cdot k_j + \mathrm{table}[\mathrm{bucket}(j - i),\ h] \\
        n &= \max(i - j, 0), \quad b = \mathrm{buckets} \quad \text{causal} \\
        n &= \left| j - i \right|, \quad b = \mathrm{buckets} / 2, \quad \text{and } b \text{ more for } j > i
            \quad \text{bidirectional} \\
        \mathrm{bucket} &= \begin{cases}
        n & n < b/2 \\
        \min\left(\frac{b}{2} + \left\lfloor \frac{\ln(n / (b/2))}{\ln(\mathrm{max\_distance} / (b/2))} \frac{b}{2}
            \right\rfloor,\ b - 1\right) & \text{otherwise}
        \end{cases}
    """,
    use_when="distances need a learned bias within the training length, as in T5; it reads little beyond that",
    also_called=("T5 bias", "bucketed relative bias", "T5 RPE"),
    not_to_be_confused={
        "gated relative position bias": "WavLM's: the bias times a factor of the query's token",
        "prophetnet's buckets": "a value for each bucket that the query's token determines",
    },
    use="earlier",
    slots=("bias", "scores", "scale"),
    options={
        "buckets": Option(32, "number of buckets", int, minimum=2),
        "max_distance": Option(128, "distances of at least this value share the last bucket", int, minimum=2),
        "scaled": Option(False, "whether scores are divided by sqrt(D), unlike in the published model", bool),
    },
    beyond="clipped",
    direction="yes",
    source="Raffel et al. 2020, arXiv:1910.10683, section 2.1",
    reported=Reported(
        "partly",
        "Trained on 1024 tokens: perplexity falls from 18.80 to 18.30 at 1824, then rises to 20.47 at 5024, "
        "33.35 at 12024.",
        "Press, Smith and Lewis 2021, arXiv:2108.12409, section 2.2 and table 3",
    ),
    ulp=1.0,
    shapes=shapes,
)
