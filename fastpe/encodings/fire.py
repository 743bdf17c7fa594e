"""FIRE: a small network of the distance, divided by how far the query can look back, as a bias.

    t_ij = ln(c x + 1) / (ln(c max(L, i) + 1) + eps),    x = i - j,    L = |multiplier| threshold
    S_ij = s q_i . k_j + b2_h + sum_k w2_kh max(w1_k t_ij + b1_k, 0)

Source: Li, You, Guruganesh et al. 2023, "Functional Interpolation for Relative Positions Improves Long Context
Transformers" (arXiv:2310.04418), section 3. The authors' code is not public: initial values, eps and the absolute
values of c x and c max(L, i) are those of a port, mcleish7/arithmetic, cramming/architectures/embeddings.py, FIRE.

**Slot**: `scores` (H, N, N), O(N^2) numbers: the divisor depends on the query, so the bias is no function of j - i.
**Learns**: `c` (1,), `multiplier` (1,), and the network's `w1` (K,), `b1` (K,), `w2` (K, H), `b2` (H,), shared by all
layers; the network starts uniform in +-1/sqrt(fan in).

**Options**
- `hidden`: K, the width of the network.
- `initial_c`: where c starts.
- `threshold`: what the multiplier, which starts at 1, multiplies: positions below L share one divisor.
- `eps`: added to the divisor.
- `symmetric`: x = |i - j|, for models without a causal mask. This is what the port's absolute values make of it; the
  paper has causal models only, and so nothing else is accepted without this option.

Keys after the query count as x = 0: a causal model masks them.

**Past the training length**: defined, and meant to interpolate: for a causal model t stays in [0, 1].

**Traps.** With `symmetric` the divisor of an early query is smaller than its distance to far keys: t exceeds 1 past L.
The bias is even in j - i only there where both queries are below L. `start` and given positions move i, and thus the
divisor. The paper divides by i, some texts by i + 1.

**Accuracy.** t is right to some units in the last place. The network is piecewise linear in t, and is evaluated as
such: between two kinks all terms are summed once. What that sum cancels is lost, as in any order of summation.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from fastpe.encoding import Encoding, Option, Spec

Array = np.ndarray[Any, Any]

_BLOCK = 2**16  # pairs that are computed at once
_NAMES = ("c", "multiplier", "w1", "b1", "w2", "b2")


def check(spec: Spec, *, symmetric: bool, **options: Any) -> None:
    """Causal, unless `symmetric` says what else x is."""
    if not (spec.causal or symmetric):
        raise ValueError("'fire' is published for causal models: set causal=True, or option symmetric=True")


def shapes(spec: Spec, **options: Any) -> dict[str, tuple[int, ...]]:
    """A value for every pair."""
    return {"scores": (*spec.batch, spec.heads, spec.length, spec.length)}


def parameters(spec: Spec, *, hidden: int, **options: Any) -> dict[str, tuple[int, ...]]:
    """The map's two numbers and the network."""
    network = {"w1": (hidden,), "b1": (hidden,), "w2": (hidden, spec.heads), "b2": (spec.heads,)}
    return {"c": (1,), "multiplier": (1,), **network}


def init(spec: Spec, rng: Any, *, hidden: int, initial_c: float, **options: Any) -> dict[str, Any]:
    """c and 1 as given, the network uniform in +-1/sqrt(fan in), as PyTorch's linear maps."""
    drawn = 2.0 * rng.uniform(2 * hidden + hidden * spec.heads + spec.heads) - 1.0
    w1, b1, w2, b2 = np.split(drawn, [hidden, 2 * hidden, 2 * hidden + hidden * spec.heads])
    inner, outer = w2.reshape(hidden, spec.heads) / np.sqrt(hidden), b2 / np.sqrt(hidden)
    return {"c": np.array([initial_c]), "multiplier": np.ones(1), "w1": w1, "b1": b1, "w2": inner, "b2": outer}


def reference(
    spec: Spec, params: dict[str, Any], *, hidden: int, initial_c: float, threshold: float, eps: float, symmetric: bool
) -> dict[str, Any]:
    """The formula above, a hidden unit at a time."""
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
    """The network between its kinks: at t it is slope[p] t + level[p], p being the number of kinks below t."""

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
    # einsum, unlike @, adds in the same order whatever the number of threads
    return _Pieces(
        kinks, active, np.einsum("pk,k,kh->ph", active, w1, w2), np.einsum("pk,k,kh->ph", active, b1, w2) + b2
    )


class _Map(NamedTuple):
    """Some queries' t, and what it is made of: n / d with n = ln(|c| x + 1), d = ln(|c| m + 1) + eps."""

    x: Array  # (rows, N)
    m: Array  # (rows, 1)
    n: Array
    d: Array
    t: Array


def _maps(
    spec: Spec, slots: dict[str, Array], c: float, least: float, eps: float, symmetric: bool
) -> Iterator[tuple[_Map, Array]]:
    """The map of some queries, and their part (H, rows, N) of the slot or of its gradient."""
    rows = max(1, _BLOCK // spec.length)
    every = spec.points()
    for sample in np.ndindex(*spec.batch):
        points = every[sample]
        for first in range(0, spec.length, rows):
            some = slice(first, first + rows)
            back = points[some, None] - points
            x = np.abs(back) if symmetric else np.maximum(back, 0.0)
            m = np.maximum(points[some, None], least)
            n, d = np.log1p(abs(c) * x), np.log1p(abs(c) * m) + eps
            yield _Map(x, m, n, d, n / d), slots["scores"][(*sample, slice(None), some)]


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, threshold: float, eps: float, symmetric: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Fill `scores`."""
    c, multiplier, *network = (params[name].astype(np.float64) for name in _NAMES)
    pieces = _pieces(*network)
    for at, scores in _maps(spec, out, float(c[0]), abs(float(multiplier[0]) * threshold), eps, symmetric):
        piece = np.searchsorted(pieces.kinks, at.t)
        for h in range(spec.heads):
            scores[h] = pieces.slope[piece, h] * at.t + pieces.level[piece, h]


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, threshold: float,
    eps: float, symmetric: bool, **options: Any,
) -> None:  # fmt: skip
    """The network's gradient from sums of dscores and of dscores t on each piece, the map's by its quotient rule."""
    c, multiplier, *network = (params[name].astype(np.float64) for name in _NAMES)
    size, least = abs(float(c[0])), abs(float(multiplier[0]) * threshold)
    pieces = _pieces(*network)
    sums, moments = np.zeros_like(pieces.slope), np.zeros_like(pieces.slope)
    dc = dleast = 0.0
    for at, dscores in _maps(spec, dslots, size, least, eps, symmetric):
        piece, dt = np.searchsorted(pieces.kinks, at.t), np.zeros_like(at.t)
        for h, each in enumerate(dscores.astype(np.float64)):
            sums[:, h] += np.bincount(piece.ravel(), each.ravel(), len(sums))
            moments[:, h] += np.bincount(piece.ravel(), (each * at.t).ravel(), len(sums))
            dt += each * pieces.slope[piece, h]
        inverse = 1.0 / (size * at.m + 1.0)
        dc += (dt * (at.x / (size * at.x + 1.0) - at.t * at.m * inverse) / at.d).sum()
        dleast -= (np.where(at.m == least, dt, 0.0) * at.t * size * inverse / at.d).sum()
    dparams["c"] += np.sign(c) * dc
    dparams["multiplier"] += np.sign(multiplier) * threshold * dleast
    w1, b1, w2, _ = network
    inputs, ones = (np.einsum("pk,ph->kh", pieces.active, each) for each in (moments, sums))
    dparams["w2"] += w1[:, None] * inputs + b1[:, None] * ones
    dparams["w1"] += (w2 * inputs).sum(axis=1)
    dparams["b1"] += (w2 * ones).sum(axis=1)
    dparams["b2"] += sums.sum(axis=0)


ENCODING = Encoding(
    slots=("scores",),
    options={
        "hidden": Option(32, "width of the network", int, minimum=1),
        "initial_c": Option(0.1, "where c starts", float, above=0.0),
        "threshold": Option(512.0, "positions below this times the multiplier share a divisor", float, above=0.0),
        "eps": Option(1e-6, "added to the divisor", float, above=0.0),
        "symmetric": Option(False, "x = |i - j|, for models without a causal mask", bool),
    },
    beyond="defined",
    direction="causal",
    source="Li et al. 2023, arXiv:2310.04418, section 3",
    ulp=64.0,
    reference=reference,
    fill=fill,
    pull=pull,
    init=init,
    parameters=parameters,
    shapes=shapes,
    check=check,
)
