"""FIRE: a small network maps the distance, normalised by the query's position, to a bias.

    t_ij = ln(c x + 1) / (ln(c max(L, i) + 1) + eps),    x = i - j,    L = |multiplier| threshold
    S_ij = s q_i . k_j + b2_h + sum_k w2_kh max(w1_k t_ij + b1_k, 0)

Source: Li, You, Guruganesh et al. 2023, "Functional Interpolation for Relative Positions Improves Long Context
Transformers" (arXiv:2310.04418), section 3. The authors' code is not public. Initial values, eps and the use of |c x|
and |c max(L, i)| are taken from a port: mcleish7/arithmetic, cramming/architectures/embeddings.py, FIRE.

**Slot**: `scores` (H, N, N), which takes O(N^2) memory. It is needed because the divisor of t depends on the query, so
that the bias is not a function of j - i. **Learns**: `c` (1,), `multiplier` (1,), and the network's `w1` (K,), `b1`
(K,), `w2` (K, H), `b2` (H,), shared by all layers; the network's weights are initially uniform in +-1/sqrt(fan in).

**Options**
- `hidden`: K, the width of the network.
- `initial_c`: the initial value of c.
- `threshold`: L is the threshold times the multiplier, which starts at 1. Queries at positions below L share one
  divisor.
- `eps`: added to the divisor.
- `symmetric`: use x = |i - j|, for models without a causal mask. The paper has causal models only. In the port, |c x|
  is the same for x and -x, so the port also uses |i - j| for keys after the query. Without this option, the model must
  be causal.

Without `symmetric`, x is 0 for keys after the query, which the causal mask hides.

**Past the training length**: defined. The encoding is designed to interpolate: in a causal model t stays in [0, 1].

**Traps.** With `symmetric`, t exceeds 1 for keys that are farther from the query than max(L, i), which happens to early
queries of sequences longer than L. The bias is even in j - i only if both positions are below L. The arguments `start`
and `positions` change i, and thus the divisor. The paper divides by i; some texts divide by i + 1.

**Accuracy.** t is exact to a few units in the last place. The network is a piecewise linear function of t. For each
interval between two of its kinks, the sum over hidden units is computed once, as the slope and the level of a line.
Digits that cancel in this sum are lost, as they are in any order of summation.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Reported
from fastpe.encodings.slots import Spec
from fastpe.kernels.compile.decorators import entry, inlined, inner
from fastpe.kernels.fills.table import LARGE, finish, move_rows
from fastpe.kernels.simd import (
    at,
    fma,
    lanes,
    load,
    load_first,
    load_wide,
    pointer,
    splat,
    start_of,
    store_first,
    store_rounded,
    total,
)

Array = np.ndarray[Any, Any]

_BLOCK = 2**16  # pairs that are computed together
_NAMES = ("c", "multiplier", "w1", "b1", "w2", "b2")


def check(spec: Spec, *, symmetric: bool, **options: Any) -> None:
    """Require a causal model, unless `symmetric` is set."""
    if not (spec.causal or symmetric):
        raise ValueError("'fire' is published for causal models: set causal=True, or option symmetric=True")


def shapes(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """A value for every pair."""
    return {"scores": (*spec.batch, spec.heads, spec.length, spec.length)}


def parameters(spec: Spec, *, hidden: int, **options: Any) -> dict[str, tuple[int, ...]]:
    """`c`, `multiplier`, and the weights and biases of the network."""
    network = {"w1": (hidden,), "b1": (hidden,), "w2": (hidden, spec.heads), "b2": (spec.heads,)}
    return {"c": (1,), "multiplier": (1,), **network}


def init(spec: Spec, rng: Any, *, hidden: int, initial_c: float, **options: Any) -> dict[str, Any]:
    """`c` is `initial_c`, `multiplier` is 1; the network is uniform in +-1/sqrt(fan in), like PyTorch's linear maps."""
    drawn = 2.0 * rng.uniform(2 * hidden + hidden * spec.heads + spec.heads) - 1.0
    w1, b1, w2, b2 = np.split(drawn, [hidden, 2 * hidden, 2 * hidden + hidden * spec.heads])
    inner, outer = w2.reshape(hidden, spec.heads) / np.sqrt(hidden), b2 / np.sqrt(hidden)
    return {"c": np.array([initial_c]), "multiplier": np.ones(1), "w1": w1, "b1": b1, "w2": inner, "b2": outer}


def reference(
    spec: Spec, params: dict[str, Any], *, hidden: int, initial_c: float, threshold: float, eps: float, symmetric: bool
) -> dict[str, Any]:
    """The formula above, computed one hidden unit at a time."""
    points, c = spec.points(), params["c"][0]
    back = points[..., :, None] - points[..., None, :]
    x = np.abs(back) if symmetric else np.maximum(back, 0)
    farthest = np.maximum(abs(params["multiplier"][0] * threshold), points)[..., :, None]
    t = np.log(np.abs(c * x) + 1) / (np.log(np.abs(c * farthest) + 1) + eps)
    scores = np.zeros((*spec.batch, spec.heads, spec.length, spec.length)) + params["b2"][:, None, None]
    for w1, b1, w2 in zip(params["w1"], params["b1"], params["w2"], strict=True):
        scores += w2[:, None, None] * np.maximum(w1 * t + b1, 0)[..., None, :, :]
    return {"scores": scores}


class _Pieces(NamedTuple):
    """The network as lines between its kinks: slope[p] * t + level[p], where p is the number of kinks below t.

    `active[p]` says which hidden units are not 0 on piece p.
    """

    kinks: Array  # (P - 1,)
    active: Array  # (P, K)
    slope: Array  # (P, H)
    level: Array  # (P, H)


def _pieces(w1: Array, b1: Array, w2: Array, b2: Array) -> _Pieces:
    bent = w1 != 0.0
    own = np.divide(-b1, w1, out=np.zeros_like(w1), where=bent)
    kinks = np.unique(own[bent])
    rank, piece = np.searchsorted(kinks, own), np.arange(kinks.size + 1)[:, None]
    active = np.where(bent, np.where(w1 > 0.0, piece > rank, piece <= rank), b1 > 0.0).astype(np.float64)
    # einsum, unlike @, adds in the same order with any number of threads
    return _Pieces(
        kinks, active, np.einsum("pk,k,kh->ph", active, w1, w2), np.einsum("pk,k,kh->ph", active, b1, w2) + b2
    )


class _Map(NamedTuple):
    """For some queries, the map of the distance x to t::

        t = n / d,    n = ln(|c| x + 1),    d = ln(|c| m + 1) + eps,    m = max(L, i)

    Without given positions n is a function of j - i. All queries then share one array, in which the row of the first
    query begins at `start`, and each later row begins one element earlier.
    """

    n: Array  # (rows, N), or (1, 2N-1)
    start: int
    slope: Array  # derivative of n with respect to |c|, in the shape of n
    m: Array  # (rows,)
    d: Array  # (rows,)


def _maps(
    spec: Spec, slots: dict[str, Array], c: float, least: float, eps: float, symmetric: bool
) -> Iterator[tuple[_Map, Array]]:
    """Yield the map of some queries, and the part (H, rows, N) of the slot, or of its gradient, for these queries."""
    length, rows, every = spec.length, max(1, _BLOCK // spec.length), spec.points()

    def logarithms(back: Array) -> tuple[Array, Array]:
        x = np.abs(back) if symmetric else np.maximum(back, 0.0)
        return np.log1p(c * x), x / (c * x + 1.0)

    shared = logarithms(np.arange(length - 1.0, -length, -1.0)[None]) if spec.positions is None else None
    for sample in np.ndindex(*spec.batch):
        points = every[sample]
        for first in range(0, length, rows):
            some = slice(first, first + rows)
            n, slope = shared or logarithms(points[some, None] - points)
            start, m = 0 if shared is None else length - 1 - first, np.maximum(points[some], least)
            yield _Map(n, start, slope, m, np.log1p(c * m) + eps), slots["scores"][(*sample, slice(None), some)]


def _place(scores: Array) -> tuple[Any, ...]:
    """The first element of (H, rows, N), and the strides between heads, rows and keys, in elements."""
    return start_of(scores), *(stride // scores.itemsize for stride in scores.strides)


@inlined
def _row(shared, start, keys, i):  # type: ignore[no-untyped-def] # a kernel's types are Numba's
    """The row of query i in `shared`, which is n or its derivative, `_Map.slope`."""
    return at(pointer(shared), start - i if shared.shape[1] > keys else i * keys)


@inner
def _pieces_of_row(n, d, kinks, keys, t, begin, piece):  # type: ignore[no-untyped-def]
    """Write t = n / d for one query, and find its runs: adjacent keys on the same piece.

    For each run, `begin` gets its first key and `piece` its piece. Returns the number of runs.
    """
    divisor, width = splat(d), lanes(splat(0.0))
    for j in range(0, keys, width):
        store_first(pointer(t), j, load_first(n, j, keys - j) / divisor, keys - j)
    runs, lower, upper = 0, np.inf, -np.inf
    for j in range(keys):
        if not lower < t[j] <= upper:
            found = np.searchsorted(kinks, t[j])
            lower = kinks[found - 1] if found > 0 else -np.inf
            upper = kinks[found] if found < kinks.size else np.inf
            begin[runs], piece[runs] = j, found
            runs += 1
    begin[runs] = keys
    return runs


@entry(label="FIRE's scores")
def _fill(
    n: Array, start: int, d: Array, kinks: Array, slope: Array, level: Array, keys: int, first: Array, head_step: int,
    row_step: int, step: int, large: bool,
) -> None:  # fmt: skip
    width = lanes(splat(0.0))
    t, line = np.zeros(keys + width), np.empty(keys + width, first.dtype)  # vectors may go past the end of a run
    begin, piece = np.empty(keys + 1, np.int64), np.empty(keys + 1, np.int64)
    for i in range(d.size):
        runs = _pieces_of_row(_row(n, start, keys, i), d[i], kinks, keys, t, begin, piece)
        for h in range(slope.shape[1]):
            for run in range(runs):
                slopes, levels = splat(slope[piece[run], h]), splat(level[piece[run], h])
                for j in range(begin[run], begin[run + 1], width):
                    store_rounded(pointer(line), j, fma(load(pointer(t), j), slopes, levels), width)
            target = at(pointer(first), h * head_step + i * row_step)
            move_rows(pointer(line), 1, keys, target, keys, step, large)
    finish(large)


@entry(label="gradient of FIRE's scores")
def _pull(
    n: Array, start: int, along: Array, d: Array, kinks: Array, slope: Array, keys: int, sums: Array, moments: Array,
    dmap: Array, first: Array, head_step: int, row_step: int,
) -> None:  # fmt: skip
    """Sum what the gradients of the parameters need.

    For each piece and head, add the sum of dscores to `sums`, and that of dscores * t to `moments`. For each query,
    write the sums of dt * `along` and of dt * t to `dmap`.
    """
    width = lanes(splat(0.0))
    t, dt = np.zeros(keys + width), np.zeros(keys + width)
    begin, piece = np.empty(keys + 1, np.int64), np.empty(keys + 1, np.int64)
    for i in range(d.size):
        runs = _pieces_of_row(_row(n, start, keys, i), d[i], kinks, keys, t, begin, piece)
        dt[:] = 0.0
        for h in range(slope.shape[1]):
            gradient = at(pointer(first), h * head_step + i * row_step)
            for run in range(runs):
                slopes, ones, inputs = splat(slope[piece[run], h]), splat(0.0), splat(0.0)
                for j in range(begin[run], begin[run + 1], width):
                    left = begin[run + 1] - j
                    w = load_wide(gradient, j, left)
                    ones, inputs = ones + w, fma(w, load(pointer(t), j), inputs)
                    store_first(pointer(dt), j, fma(w, slopes, load(pointer(dt), j)), left)
                sums[piece[run], h] += total(ones)
                moments[piece[run], h] += total(inputs)
        by_c, by_t, derivative = splat(0.0), splat(0.0), _row(along, start, keys, i)
        for j in range(0, keys, width):
            w = load_first(pointer(dt), j, keys - j)
            by_c, by_t = fma(w, load_first(derivative, j, keys - j), by_c), fma(w, load(pointer(t), j), by_t)
        dmap[0, i], dmap[1, i] = total(by_c), total(by_t)


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, threshold: float, eps: float, symmetric: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Fill `scores`."""
    c, multiplier, *network = (params[name].astype(np.float64) for name in _NAMES)
    pieces, large = _pieces(*network), out["scores"].nbytes >= LARGE
    for own, scores in _maps(spec, out, abs(float(c[0])), abs(float(multiplier[0]) * threshold), eps, symmetric):
        _fill(
            own.n, own.start, own.d, pieces.kinks, pieces.slope, pieces.level, spec.length, *_place(scores), large
        )  # fmt: skip


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, threshold: float,
    eps: float, symmetric: bool, **options: Any,
) -> None:  # fmt: skip
    """Compute the network's gradients from the sums of dscores and of dscores * t on each piece.

    The gradients of `c` and `multiplier` follow from the quotient rule for t = n / d.
    """
    c, multiplier, *network = (params[name].astype(np.float64) for name in _NAMES)
    size, least = abs(float(c[0])), abs(float(multiplier[0]) * threshold)
    pieces = _pieces(*network)
    sums, moments = np.zeros_like(pieces.slope), np.zeros_like(pieces.slope)
    dc = dleast = 0.0
    contiguous = {"scores": np.ascontiguousarray(dslots["scores"])}
    for own, dscores in _maps(spec, contiguous, size, least, eps, symmetric):
        dmap = np.empty((2, len(own.d)))
        _pull(
            own.n, own.start, own.slope, own.d, pieces.kinks, pieces.slope, spec.length, sums, moments, dmap,
            *_place(dscores)[:3],
        )  # fmt: skip
        inverse = 1.0 / (size * own.m + 1.0)
        dc += ((dmap[0] - dmap[1] * own.m * inverse) / own.d).sum()
        dleast -= (np.where(own.m == least, dmap[1], 0.0) * size * inverse / own.d).sum()
    dparams["c"] += np.sign(c) * dc
    dparams["multiplier"] += np.sign(multiplier) * threshold * dleast
    w1, b1, w2, _ = network
    inputs, ones = (np.einsum("pk,ph->kh", pieces.active, each) for each in (moments, sums))
    dparams["w2"] += w1[:, None] * inputs + b1[:, None] * ones
    dparams["w1"] += (w2 * inputs).sum(axis=1)
    dparams["b1"] += (w2 * ones).sum(axis=1)
    dparams["b2"] += sums.sum(axis=0)


ENCODING = Encoding(
    summary="bias from a small network of normalised distance",
    formula=r"""
        t_{ij} &= \frac{\ln(c x + 1)}{\ln(c \max(L, i) + 1) + \mathrm{eps}}, \quad x = i - j,
            \quad L = \left| \mathrm{multiplier} \right|\, \mathrm{threshold} \\
        S_{ij} &= s\, q_i \cdot k_j + b_{2,h} + \sum_k w_{2,kh} \max(w_{1,k}\, t_{ij} + b_{1,k},\ 0)
    """,
    use_when="a causal model should learn its bias, for texts up to about twice the training length",
    also_called=("functional interpolation for relative positions",),
    use="proposed",
    slots=("scores",),
    options={
        "hidden": Option(32, "width of the network", int, minimum=1),
        "initial_c": Option(0.1, "initial value of c", float, above=0.0),
        "threshold": Option(512.0, "positions below this times the multiplier share a divisor", float, above=0.0),
        "eps": Option(1e-6, "added to the divisor", float, above=0.0),
        "symmetric": Option(False, "x = |i - j|, for models without a causal mask", bool),
    },
    beyond="defined",
    direction="causal",
    source="Li et al. 2023, arXiv:2310.04418, section 3",
    reported=Reported(
        "partly",
        "Its authors: better on longer texts than T5, ALiBi and KERPLE. Others: perplexity 17.1 at the training length "
        "of 1024 tokens, but 102 at 4096.",
        "Li et al. 2023, arXiv:2310.04418, abstract; Veisi et al. 2025, arXiv:2503.08067, table 1",
    ),
    ulp=64.0,
)
