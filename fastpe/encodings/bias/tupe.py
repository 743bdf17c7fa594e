"""TUPE: position vectors have their own query and key projections; their products are added to those of the contents.

    S_ij = (q_i . k_j + (P^_i U_Q + b_Q)_h . (P^_j U_K + b_K)_h) / sqrt(2 D) + table[bucket(j - i), h]
    P^ = norm_weight (P - mean P) / sqrt(var P + 1e-5) + norm_bias

Source: Ke, He and Liu 2021, "Rethinking Positional Encoding in Language Pre-training" (arXiv:2006.15595, ICLR 2021);
guolinke/TUPE, fairseq/modules/transformer_sentence_encoder.py. Without buckets this encoding is the authors' TUPE-A,
with buckets TUPE-R.

**Slots**: `scores` (H, N, N), which takes O(N^2) memory, and `scale`, which is 1/sqrt(2 D): the factor of the products
q_i . k_j.
**Learns**, shared by all layers: `position` P (rows, C), `norm_weight` and `norm_bias` (C,), `query` U_Q and `key` U_K
(C, C), `query_bias` and `key_bias` (C,), and `table` (buckets, H).

**Initial values.** N(0, 0.02^2) for `position`, `query`, `key` and `table`, zeros for the biases, ones for
`norm_weight`.

**Options**
- `class_token`: whether the first token is a class token, which it always is in the authors' code. P then has one
  additional row at the beginning, row 0. If the class token is the query, the position term for every key is the
  product of row 0's query and key. If the class token is the key of another query, the position term is the product of
  row 1's query and key. (Row 1 belongs to position 0, the class token, and has no other use.)
- `buckets`: the number of buckets of offsets, half of them for each side, as in a bidirectional `t5`; an even number,
  32 in the authors' code. Default: no buckets. With a class token there is one more bucket, for the class token as the
  key of other queries. If the class token is the query, all keys use the bucket of distance 0 on the right side, which
  no other pair uses.
- `max_distance`: all distances of at least `max_distance` share the last bucket of their side.
- `rows`: the number of positions that have vectors. Default: the training length; in `fastpe train`, 1024.

Positions, if given, are integers from 0 to rows - 1.

**Past the training length**: undefined, because there are no vectors. With more `rows`, vectors past the training
length exist, but they are untrained.

**Traps.** The products q_i . k_j change too: with TUPE they contribute 1/sqrt(2) times as much to the score as without
it. A causal model also has buckets for both sides, although it has no pairs with j > i.
"""

import math
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.bias.t5 import bucket, printed_bucket
from fastpe.encodings.encoding import BeyondTrainingLength, Encoding
from fastpe.encodings.parts.grids import whole_points
from fastpe.encodings.parts.offset_biases import pairwise
from fastpe.encodings.parts.offsets import STANDARD_DEVIATION, per_head, stream_of, whole_width
from fastpe.encodings.slots import Spec
from fastpe.kernels.arrays import column_sums, gemm, layer_norm_backward, layer_norm_forward
from fastpe.kernels.products.float_gemm import FROM

Array = np.ndarray[Any, Any]

_ROWS = 256  # queries whose scores are computed in a buffer before they are copied
_CLASS, _FIRST = 0, 1  # rows of P; the product of query and key of one such row is a term of the class token


def _scale(spec: Spec) -> float:
    return 1.0 / math.sqrt(2.0 * spec.head_dim)


def plain(spec: Spec, **options: Any) -> dict[str, Any]:
    """The scale 1/sqrt(2 D), because the score is a sum of two terms."""
    return {"scale": _scale(spec)}


def check(spec: Spec, *, rows: int | None, buckets: int | None, max_distance: int, **options: Any) -> None:
    """Require integer positions that have vectors, and buckets as in `t5`, the same number on either side."""
    _ = spec.head_dim
    if buckets is not None and buckets % 2:
        raise ValueError(f"option 'buckets' must be even, not {buckets}")
    if buckets is not None and max_distance <= buckets // 4:
        raise ValueError(
            f"option 'max_distance' must exceed {buckets // 4}, the number of exact buckets, but is {max_distance}"
        )
    points, count = whole_points("tupe", spec.points()), rows or spec.train_length
    if points.max() >= count:
        raise BeyondTrainingLength(
            f"'tupe' has no vector for position {points.max():.0f}, only for {count} positions: set option rows"
        )


def parameters(
    spec: Spec, *, rows: int | None, class_token: bool, buckets: int | None, **options: Any
) -> dict[str, tuple[int, ...]]:
    """The vectors, the weights of their normalisation and of two maps, and a number for every bucket."""
    c = spec.dim
    found: dict[str, tuple[int, ...]] = {"position": ((rows or spec.train_length) + class_token, c)}
    found |= {"norm_weight": (c,), "norm_bias": (c,)}
    found |= {"query": (c, c), "query_bias": (c,), "key": (c, c), "key_bias": (c,)}
    return found if buckets is None else {**found, "table": (buckets + class_token, spec.heads)}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """Weights drawn from N(0, 0.02^2), zeros for biases, and ones for `norm_weight`."""
    found = {name: np.zeros(shape) for name, shape in parameters(spec, **options).items()}
    found["norm_weight"] += 1.0
    for name in {"position", "query", "key", "table"} & set(found):
        found[name] += STANDARD_DEVIATION * stream_of(rng, name).normal(found[name].shape)
    return found


def reference(
    spec: Spec, params: dict[str, Any], *, class_token: bool, buckets: int | None, max_distance: int, **options: Any
) -> dict[str, Any]:  # fmt: skip
    """The formula above, and the entries that the released code overwrites."""
    p = params["position"]
    hat = (p - p.mean(axis=1)[:, None]) / np.sqrt(p.var(axis=1)[:, None] + 1e-5)
    hat = hat * params["norm_weight"] + params["norm_bias"]
    place = spec.points().astype(int) + class_token
    q, k = (hat @ params[name] + params[f"{name}_bias"] for name in ("query", "key"))
    q, k = (each.reshape(-1, spec.heads, spec.head_dim) for each in (q, k))
    scores = np.einsum("...ihd,...jhd->...hij", q[place], k[place]) / np.sqrt(2 * spec.head_dim)
    if class_token:
        of_class = np.einsum("rhd,rhd->rh", q[:2], k[:2]) / np.sqrt(2 * spec.head_dim)
        scores[..., :, 0] = of_class[1][:, None]
        scores[..., 0, :] = of_class[0][:, None]
    if buckets is not None:
        found = printed_bucket(pairwise(spec), False, buckets, max_distance)
        found = np.broadcast_to(found, (*spec.batch, spec.length, spec.length)).copy()
        if class_token:
            found[..., :, 0] = buckets
            found[..., 0, :] = buckets // 2
        scores = scores + np.moveaxis(params["table"][found], -1, -3)
    return {"scores": scores}


# ---------------------------------------------------------------------------------------------------------------------
# Compiled products


class _Vectors(NamedTuple):
    """The rows of P that occur, normalised and mapped."""

    used: Array  # indices of these rows in P, (R,)
    where: Array  # the index in `used` of each token's row, (..., N)
    position: Array  # (R, C)
    stats: Array  # statistics of the normalisation
    hat: Array  # P^, (R, C)
    query: Array  # (H, R, D), divided by sqrt(2 D)
    key: Array  # (H, R, D)


def _vectors(spec: Spec, params: dict[str, Any], class_token: bool) -> _Vectors:
    consecutive = spec.positions is None
    used, where = _run(spec.length, spec.start, class_token) if consecutive else _rows(spec.points(), class_token)
    wide = {name: np.asarray(each, np.float64) for name, each in params.items() if name != "position"}
    position = params["position"][used].astype(np.float64)
    hat, stats = layer_norm_forward(position, wide["norm_weight"], wide["norm_bias"])
    query, key = (
        np.ascontiguousarray(per_head(gemm(hat, wide[name], FROM, wide[f"{name}_bias"][None]), spec.heads))
        for name in ("query", "key")
    )
    return _Vectors(used, where, position, stats, hat, _scale(spec) * query, key)


def _rows(points: Array, class_token: bool) -> tuple[Array, Array]:
    """The rows of P that occur, and for each token the index of its row among them."""
    place = points.astype(np.int64) + class_token
    used = np.union1d(place, np.arange(2 * class_token))
    return used, np.searchsorted(used, place)


@lru_cache(maxsize=8)
def _run(length: int, start: float, class_token: bool) -> tuple[Array, Array]:
    """`_rows` for consecutive positions from `start` on, cached."""
    found = _rows(np.arange(length) + start, class_token)
    for each in found:
        each.flags.writeable = False
    return found


def _buckets(spec: Spec, sample: tuple[int, ...], some: slice, buckets: int, max_distance: int) -> Array:
    """The buckets of some queries and every key, (queries, N)."""
    points = spec.points()[sample]
    return bucket(points - points[some, None], False, buckets, max_distance)


def _entries_of_class(params: dict[str, Any], buckets: int | None) -> tuple[Any, Any]:
    """The learned numbers of the buckets of the class token's row and column, (H,), or 0."""
    return (0.0, 0.0) if buckets is None else (params["table"][buckets // 2], params["table"][buckets])


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, class_token: bool, buckets: int | None,
    max_distance: int, **options: Any,
) -> None:  # fmt: skip
    """Fill `scores`, a block of queries at a time."""
    own, scores = _vectors(spec, params, class_token), out["scores"]
    for sample in np.ndindex(*spec.batch):
        at = own.where[sample]
        keys = np.ascontiguousarray(own.key[:, at].swapaxes(1, 2))
        for first in range(0, spec.length, _ROWS):
            some = slice(first, first + _ROWS)
            found = None if buckets is None else _buckets(spec, sample, some, buckets, max_distance)
            for h in range(spec.heads):
                block = gemm(own.query[h, at[some]], keys[h])
                scores[(*sample, h, some)] = block if found is None else block + params["table"][found, h]
    if class_token:
        of_class = (own.query[:, :2] * own.key[:, :2]).sum(axis=-1)
        row, column = _entries_of_class(params, buckets)
        scores[..., :, 0] = (of_class[:, _FIRST] + column)[:, None]
        scores[..., 0, :] = (of_class[:, _CLASS] + row)[:, None]


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, class_token: bool,
    buckets: int | None, max_distance: int, **options: Any,
) -> None:  # fmt: skip
    """dquery = dscores key / sqrt(2 D), dkey = dscores^T query / sqrt(2 D); then maps and normalisation, backwards."""
    own, dscores = _vectors(spec, params, class_token), dslots["scores"]
    dquery, dkey = np.zeros(own.query.shape), np.zeros(own.key.shape)
    dtable = np.zeros(params["table"].shape if buckets is not None else (2, spec.heads))
    of_class = np.zeros((2, spec.heads))
    for sample in np.ndindex(*spec.batch):
        at = own.where[sample]
        for first in range(0, spec.length, _ROWS):
            some = slice(first, first + _ROWS)
            found = None if buckets is None else _buckets(spec, sample, some, buckets, max_distance)
            for h in range(spec.heads):
                change = dscores[(*sample, h, some)].astype(np.float64)
                if class_token:
                    of_class[:, h] += _taken(change, first == 0)
                _add_rows(spec, dquery[h], at[some], gemm(change, own.key[h, at]))
                _add_rows(spec, dkey[h], at, gemm(change.T, own.query[h, at[some]]))
                if found is not None:
                    dtable[:, h] += np.bincount(found.ravel(), change.ravel(), len(dtable))
    if class_token:
        dquery[:, :2] += of_class.T[..., None] * own.key[:, :2]
        dkey[:, :2] += of_class.T[..., None] * own.query[:, :2]
    if buckets is not None:
        if class_token:
            dtable[[buckets // 2, buckets]] += of_class
        dparams["table"] += dtable
    _pull_vectors(spec, params, own, _scale(spec) * dquery, dkey, dparams)


def _add_rows(spec: Spec, target: Array, at: Array, change: Array) -> None:
    if spec.positions is None:  # no two tokens share a row; np.add.at would be many times slower
        target[at] += change
    else:
        np.add.at(target, at, change)


def _taken(change: Array, has_class: bool) -> tuple[float, float]:
    """Return the sums of the class token's row (0 if it is not among these rows) and column, and set both to zero."""
    row = 0.0
    if has_class:
        row, change[0] = change[0].sum(), 0.0
    column = change[:, 0].sum()
    change[:, 0] = 0.0
    return row, column


def _pull_vectors(
    spec: Spec, params: dict[str, Any], own: _Vectors, dquery: Array, dkey: Array, dparams: dict[str, Any]
) -> None:  # fmt: skip
    dhat = np.zeros(own.hat.shape)
    for name, gradient in {"query": dquery, "key": dkey}.items():
        wide = whole_width(gradient)
        dparams[name] += gemm(own.hat.T, wide)
        dparams[f"{name}_bias"] += column_sums(wide)
        dhat += gemm(wide, np.ascontiguousarray(params[name].T, np.float64))
    weight = params["norm_weight"].astype(np.float64)
    dposition, dweight, dbias = layer_norm_backward(dhat, own.position, weight, own.stats)
    dparams["norm_weight"] += dweight
    dparams["norm_bias"] += dbias
    dparams["position"][own.used] += dposition


ENCODING = Encoding(
    summary="products of positions, added to those of contents",
    formula=r"""
        S_{ij} &= \frac{q_i \cdot k_j + (\hat{P}_i U_Q + b_Q)_h \cdot (\hat{P}_j U_K + b_K)_h}{\sqrt{2 D}} +
            \mathrm{table}[\mathrm{bucket}(j - i),\ h] \\
        \hat{P} &= \mathrm{norm\_weight}\, \frac{P - \mathrm{mean}\, P}{\sqrt{\mathrm{var}\, P + 10^{-5}}} +
            \mathrm{norm\_bias}
    """,
    use_when="an encoder of fixed length, as in BERT, should keep positions apart from contents",
    also_called=("TUPE-A", "TUPE-R", "untied position encoding"),
    not_to_be_confused={"deberta": "it multiplies contents by positions, and has no products of two positions"},
    use="proposed",
    slots=("scores", "scale"),
    options={
        "class_token": Option(False, "whether the first token is a class token, with separate terms", bool),
        "buckets": Option(None, "number of offset buckets, even; none: no such term", int, minimum=4, optional=True),
        "max_distance": Option(128, "distances of at least this value share the last bucket", int, minimum=2),
        "rows": Option(None, "number of positions; none: the training length", int, minimum=1, optional=True),
    },
    beyond="undefined",
    direction="yes",
    source="Ke, He and Liu 2021, arXiv:2006.15595, and released code",
    ulp=lambda spec, **options: 64.0 + 8.0 * spec.dim,  # for a product of two sums of C products that do not cancel
    plain=plain,
    tested={"rows": 1024},
)
