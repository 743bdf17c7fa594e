"""ALiBi: a penalty on the score that grows linearly with the distance of query and key.

    S_ij = s q_i . k_j - slope_h |j - i|

Source: Press, Smith and Lewis 2021, "Train Short, Test Long: Attention with Linear Biases Enables Input Length
Extrapolation" (arXiv:2108.12409), section 3; their list of slopes is in the released code. Li (2025), section 5.3 and
eq. (9), uses one slope alpha = 0.1 / N_train for its one head.

**Slot**: `bias` (H, 2N-1), row j - i + N - 1. Where positions are given, the distance is no function of j - i any
more: then `scores` (H, N, N), a value for every pair, is filled instead.
**Learns**: nothing, or with `learned` the `slope` (H,).

**Slopes.** For H a power of two, 2^(-8(h+1)/H), h = 0 .. H-1. For any other H, those of the power of two below it,
and then every other one of the slopes of twice as many heads, from the first, until there are H.

**Options**
- `slope`: one slope for all heads instead of the list.
- `alpha0`: one slope alpha0 / N_train for all heads, Li's form. Not together with `slope`.
- `learned`: the slopes, however chosen, are only initial values.

**Causal and symmetric.** Both are the formula above: a causal model masks the keys with j > i, so that -slope (i - j)
of the paper is what is left. The released code adds slope * j instead, which is the same after the softmax of a
causal row, but wrong in a bidirectional model. The bias is not multiplied by 1/sqrt(D).

**Past the training length**: defined; the penalty goes on growing.

**Traps.** Without a causal mask the bias is even in j - i: such a model commutes with reversing its input and cannot
tell left from right. With one, and without a start token, equal tokens still give equal outputs. Li's slope 0.1/50 =
0.002 is nearly no bias at all.
"""

import math
from typing import Any

import numpy as np

from fastpe.encoding import Encoding, Option, Spec
from fastpe.encodings._rows import row_blocks
from fastpe.kernels._jit import entry
from fastpe.kernels.simd import absolute, at, counting, lanes, load_first, pointer, splat, store_rounded
from fastpe.kernels.table import LARGE, finish, move_rows


def slopes(heads: int) -> np.ndarray:
    """The authors' slopes, (H,) float64, for any number of heads.

    With H rounded up to a power of two n: of the n slopes those at odd places, then those at even places, cut at H. The
    authors' recursion gives the same list.

    >>> slopes(6).tolist()
    [0.25, 0.0625, 0.015625, 0.00390625, 0.5, 0.125]
    """
    n = 1 << (heads - 1).bit_length()
    full = np.array([2.0 ** (-8.0 * (h + 1) / n) for h in range(n)])
    return full if n == heads else np.concatenate([full[1::2], full[0::2]])[:heads]


def _chosen(spec: Spec, slope: float | None, alpha0: float | None) -> np.ndarray:
    if slope is not None:
        return np.full(spec.heads, slope)
    if alpha0 is not None:
        return np.full(spec.heads, alpha0 / spec.train_length)
    return slopes(spec.heads)


def check(spec: Spec, *, slope: float | None, alpha0: float | None, learned: bool) -> None:
    """At most one of `slope` and `alpha0`."""
    if slope is not None and alpha0 is not None:
        raise ValueError(f"options 'slope' ({slope:g}) and 'alpha0' ({alpha0:g}) exclude each other: give one of them")


def shapes(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """A row over offsets, or a square for every sample where positions are given."""
    if spec.positions is None:
        return {"bias": (spec.heads, 2 * spec.length - 1)}
    return {"scores": (*spec.batch, spec.heads, spec.length, spec.length)}


def parameters(spec: Spec, *, learned: bool, **options: Any) -> dict[str, tuple[int, ...]]:
    """The slopes, where they are learned."""
    return {"slope": (spec.heads,)} if learned else {}


def init(spec: Spec, rng: Any, *, slope: float | None, alpha0: float | None, learned: bool) -> dict[str, Any]:
    """The chosen slopes."""
    return {"slope": _chosen(spec, slope, alpha0)} if learned else {}


def reference(
    spec: Spec, params: dict[str, Any], *, slope: float | None, alpha0: float | None, learned: bool
) -> dict[str, Any]:
    """-slope |j - i| (Press et al. 2021, section 3), with the slopes of the authors' recursion."""
    if learned:
        chosen = params["slope"]
    elif alpha0 is not None:
        chosen = np.array([alpha0 / spec.train_length] * spec.heads)
    else:
        chosen = np.array(_authors_slopes(spec.heads) if slope is None else [slope] * spec.heads)
    points = spec.points()
    distance = np.abs(points[..., None, :] - points[..., :, None])
    scores = -chosen[:, None, None] * distance[..., None, :, :]
    if spec.positions is not None:
        return {"scores": scores}
    return {"bias": np.concatenate([scores[:, -1, :-1], scores[:, 0, :]], axis=1)}


def _authors_slopes(heads: int) -> list[float]:
    exponent = math.log2(heads)
    if exponent.is_integer():
        start = 2.0 ** -(2.0 ** -(exponent - 3))
        return [start * start**h for h in range(heads)]
    below = 2 ** math.floor(exponent)
    return _authors_slopes(below) + _authors_slopes(2 * below)[0::2][: heads - below]


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, slope: float | None, alpha0: float | None, learned: bool
) -> None:
    """Fill `bias`, or `scores` where positions are given."""
    chosen = params["slope"].astype(np.float64) if learned else _chosen(spec, slope, alpha0)
    if spec.positions is None:
        bias = out["bias"]
        for rows, first, row_step, step in row_blocks(bias):
            _fill_offsets(chosen[rows], first, row_step, step, spec.length, bias.nbytes >= LARGE)
        return
    points, scores, n = spec.points().reshape(-1, spec.length), out["scores"], spec.length
    heads = spec.heads
    for rows, first, row_step, step in row_blocks(scores):
        row = np.arange(rows.start, rows.stop)
        sample, head, query = row // (heads * n), row // n % heads, row % n
        _fill_pairs(points, sample, query, chosen[head], first, row_step, step, scores.nbytes >= LARGE)


def pull(spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], **options: Any) -> None:
    """dslope_h = -sum of dbias times distance."""
    if spec.positions is None:
        _pull_offsets(dslots["bias"], dparams["slope"])
    else:
        n = spec.length
        _pull_pairs(spec.points().reshape(-1, n), dslots["scores"].reshape(-1, spec.heads, n, n), dparams["slope"])


_PIECE = 4096  # elements of a row that are computed before they are moved


@entry(label="ALiBi bias")
def _fill_offsets(slope: np.ndarray, first: np.ndarray, row_step: int, step: int, length: int, large: bool) -> None:
    table, piece = pointer(first), np.empty(_PIECE, first.dtype)
    width = lanes(splat(0.0))
    for h in range(slope.shape[0]):
        steep = splat(-slope[h])
        for start in range(0, 2 * length - 1, _PIECE):
            count = min(_PIECE, 2 * length - 1 - start)
            offset = counting(float(start - length + 1))
            for j in range(0, count, width):
                store_rounded(pointer(piece), j, steep * absolute(offset), count - j)
                offset = offset + splat(float(width))
            move_rows(pointer(piece), 1, count, at(table, h * row_step + start * step), count, step, large)
    finish(large)


@entry(label="ALiBi scores")
def _fill_pairs(
    points: np.ndarray, sample: np.ndarray, query: np.ndarray, slope: np.ndarray, first: np.ndarray, row_step: int,
    step: int, large: bool,
) -> None:  # fmt: skip
    table, piece, length = pointer(first), np.empty(_PIECE, first.dtype), points.shape[1]
    width = lanes(splat(0.0))
    for row in range(slope.shape[0]):
        steep, keys = splat(-slope[row]), points[sample[row]]
        origin = splat(keys[query[row]])
        for start in range(0, length, _PIECE):
            count = min(_PIECE, length - start)
            key = at(pointer(keys), start)
            for j in range(0, count, width):
                distance = absolute(load_first(key, j, count - j) - origin)
                store_rounded(pointer(piece), j, steep * distance, count - j)
            move_rows(pointer(piece), 1, count, at(table, row * row_step + start * step), count, step, large)
    finish(large)


@entry(label="gradient of ALiBi slopes")
def _pull_offsets(dbias: np.ndarray, dslope: np.ndarray) -> None:
    reach = dbias.shape[1] // 2
    for h in range(dbias.shape[0]):
        total = 0.0
        for row in range(dbias.shape[1]):
            total += float(dbias[h, row]) * abs(row - reach)
        dslope[h] -= total


@entry(label="gradient of ALiBi slopes")
def _pull_pairs(points: np.ndarray, dscores: np.ndarray, dslope: np.ndarray) -> None:
    samples, heads, n, _ = dscores.shape
    for h in range(heads):
        total = 0.0
        for b in range(samples):
            for i in range(n):
                for j in range(n):
                    total += float(dscores[b, h, i, j]) * abs(points[b, j] - points[b, i])
        dslope[h] -= total


ENCODING = Encoding(
    slots=("bias", "scores"),
    options={
        "slope": Option(None, "one slope for all heads, instead of the list", float, minimum=0.0, optional=True),
        "alpha0": Option(None, "one slope alpha0 / train_length for all heads", float, minimum=0.0, optional=True),
        "learned": Option(False, "whether the slopes are learned", bool),
    },
    beyond="defined",
    direction="no",
    source="Press, Smith and Lewis 2021, arXiv:2108.12409",
    ulp=lambda spec, **options: 2.0 + 2.0 * spec.heads,  # the authors' slopes are repeated products
    reference=reference,
    fill=fill,
    pull=pull,
    init=init,
    parameters=parameters,
    shapes=shapes,
    check=check,
    paper={"alpha0": 0.1},
)
