"""The panels of every slot, as numbers with labels and units. Nothing is drawn here.

The panels depend on the slot, never on the name of an encoding.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fastpe.encodings.slots import Spec
from fastpe.pictures.axes import ADDED, DISTANCE, OFFSET, PAIR, POSITION
from fastpe.pictures.panels import Array, Axis, Curves, Map, View

Slots = Mapping[str, Any]

MOST_POSITIONS = 512  # of a map; if there are more, evenly spaced ones are shown
MOST_CURVES, MOST_MAPS = 8, 4
MASKED = 1e6  # a score this far below another is masked for any query and key, because its weight exp(-MASKED) is 0
STEPS = "steps"
"""A key that is added to the slots if positions have several axes. Its array (H or 1, 1 + axes, R/2) has the angles at
position 0 and at one step along each axis. The array is empty if the parts of a sum differ in their number of axes."""
_STILL = 1e-13  # radians; smaller differences of float64 angles are rounding errors


# ---------------------------------------------------------------------------------------------------------------------
# Axes


def _some(count: int, most: int = MOST_POSITIONS) -> Array:
    """Return all indices below `count`, or at most `most` evenly spaced ones."""
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(np.int64))


def _positions(spec: Spec, label: str = POSITION) -> Axis:
    return Axis(label, _some(spec.length), _ends(spec, spec.length, (1,)))


def _ends(spec: Spec, beyond: int, signs: Iterable[int]) -> tuple[float, ...]:
    """Return the ends of training, half a step before the training length; none unless `beyond` exceeds this length.

    signs: 1 for the end at positive coordinates, -1 for the end at negative ones.
    """
    return tuple(sign * (spec.train_length - 0.5) for sign in signs) if spec.train_length < beyond else ()


def _offsets(spec: Spec, reach: int) -> Axis:
    """Return the offsets from -reach to reach, or from -reach to 0 with a causal mask."""
    values = np.arange(-reach, 1 if spec.causal else reach + 1)
    return Axis(OFFSET, values, _ends(spec, reach + 1, (-1,) if spec.causal else (-1, 1)))


def _sample(array: Array, axes: int) -> Array:
    """Return the first sample, if slots differ between samples."""
    return np.asarray(array, np.float64).reshape(-1, *array.shape[-axes:])[0]


def _heads(count: int, most: int) -> dict[str, int]:
    return {f"head {h}": int(h) for h in _some(count, most)} if count > 1 else {"": 0}


def _comparable(maps: list[Map]) -> list[View]:
    """Put the maps of several heads on one scale."""
    lows, highs = zip(*(each.span for each in maps), strict=True)
    return [replace(each, extent=(min(lows), max(highs))) for each in maps]


def _attended(scores: Array, best: Array) -> Array:
    """Return the scores, with NaN for a score so far below the query's best score that its weight is 0."""
    return np.where(scores < best - MASKED, np.nan, scores)


def _named(title: str, head: str) -> str:
    return f"{title}, {head}" if head else title


# ---------------------------------------------------------------------------------------------------------------------
# Slots


def _table(slot: str, spec: Spec, slots: Slots) -> list[View]:
    where = _positions(spec)
    table = _sample(slots[slot], 2)
    chosen = table[where.values]
    products = chosen @ chosen.T
    sizes = np.sqrt(np.einsum("nc,nc->n", chosen, chosen))
    with np.errstate(divide="ignore", invalid="ignore"):
        cosines = np.clip(products / (sizes[:, None] * sizes), -1.0, 1.0)
    cosines[~np.isfinite(cosines)] = np.nan  # undefined for a row of zeros
    return [
        Map(slot, where, Axis("channel", np.arange(table.shape[1])), chosen, "value"),
        Map("dot products", where, where, products, "dot product"),
        Map("cosines", where, where, cosines, "cosine"),
    ]


def _taps(slot: str, spec: Spec, slots: Slots) -> list[View]:
    taps = np.asarray(slots[slot], np.float64)
    lines = {f"channel {c}": taps[:, c] for c in _some(taps.shape[1], MOST_CURVES)}
    tap, channel = Axis("tap", np.arange(len(taps))), Axis("channel", np.arange(taps.shape[1]))
    return [Curves("taps of some channels", tap, lines, "weight"), Map("taps", tap, channel, taps, "weight")]


def _angles(slot: str, spec: Spec, slots: Slots) -> list[View]:
    angles = _sample(slots[slot], 3)
    where, pairs = _positions(spec), Axis(PAIR, np.arange(angles.shape[2]))
    heads = _heads(len(angles), MOST_CURVES)
    chosen = angles[0][where.values]
    both = np.concatenate([np.cos(chosen), np.sin(chosen)], axis=1)
    first = next(iter(heads))
    views: list[View] = []
    if spec.length > 1:
        views += _waves(pairs, heads, angles, spec, slots.get(STEPS))
        views.append(_decay(spec, {head: angles[h] for head, h in heads.items()}, slots.get("growth")))
    views.append(Map(_named("cosine of the angle", first), where, pairs, np.cos(chosen), "cosine"))
    alike = both @ both.T / max(angles.shape[2], 1)
    views.append(Map(_named("mean cosine of angle differences", first), where, where, alike, "cosine"))
    return views


def _waves(pairs: Axis, heads: Mapping[str, int], angles: Array, spec: Spec, steps: Array | None) -> list[View]:
    """Return wavelengths along the sequence, or along each wave if positions have several coordinates."""
    if steps is None:
        waves = {head: wavelengths(turns(angles[h])) for head, h in heads.items()}
        return [Curves("wavelength", pairs, waves, "positions", log=True, level=float(spec.train_length))]
    if not len(steps):
        return []
    along = _reduced(steps[:, 1:] - steps[:, :1])
    waves = {head: wavelengths(np.sqrt(np.square(along[h]).sum(axis=0))) for head, h in heads.items()}
    return [Curves("wavelength", pairs, waves, "cells" if steps.shape[1] == 3 else "steps", log=True)]


def turns(angles: Array) -> Array:
    """Return the radians per position of every pair of channels, (R/2,): the median of the pair's nonzero steps.

    angles: (N, R/2).
    """
    steps = np.abs(_reduced(np.diff(angles, axis=0)))
    moved = [step[step > _STILL] for step in steps.T]
    return np.array([float(np.median(each)) if each.size else 0.0 for each in moved])


def wavelengths(turns: Array) -> Array:
    """Return the number of steps in a full turn, from the radians per step; infinite for a pair that does not turn."""
    moving = turns > _STILL
    return np.where(moving, 2 * np.pi / np.where(moving, turns, 1.0), np.inf)


def _reduced(angles: Array) -> Array:
    """Return the angles reduced to [-pi, pi)."""
    return np.remainder(angles + np.pi, 2 * np.pi) - np.pi


def _decay(spec: Spec, angles: Mapping[str, Array], growth: Array | None) -> Curves:
    """Return the mean product of a query and a key whose channels are all 1, over the distance from position 0."""
    lines = {}
    for head, each in angles.items():
        cosines = np.cos(each - each[0])
        lines[head or "rotation"] = cosines.mean(axis=1)
        if growth is not None:
            logarithms = _sample(growth, 2)
            count = min(cosines.shape[1], logarithms.shape[1])
            with np.errstate(over="ignore"):
                grown = cosines[:, :count] * np.exp(logarithms - logarithms[0])[:, :count]
            lines[_named("with growth", head)] = np.where(np.isfinite(grown), grown, np.nan).mean(axis=1)
    distance = Axis(DISTANCE, np.arange(spec.length), _ends(spec, spec.length, (1,)))
    return Curves("decay: mean cosine of angle differences", distance, lines, "mean cosine")


def _rotors(slot: str, spec: Spec, slots: Slots) -> list[View]:
    maps = _sample(slots[slot], 5)
    heads, block = _heads(len(maps), 2), maps.shape[-1]
    if block == 1 and maps.shape[1] == 1:
        channels = Axis("channel of the head", np.arange(maps.shape[2]))
        factors = {head or slot: maps[h, 0, :, 0, 0] for head, h in heads.items()}
        return [Curves("factors of channels of query and key", channels, factors, "factor")]
    if maps.shape[1] < spec.length:
        made, of = (Axis(f"channel {each} block 0", np.arange(block)) for each in ("made in", "of"))
        return _comparable(
            [Map(_named("map of block 0", head), made, of, maps[h, 0, 0], "factor") for head, h in heads.items()]
        )
    where, entries = _positions(spec), Axis("entry of block 0, by rows", np.arange(block * block))
    shown = [
        Map(_named("maps of block 0", head), where, entries, maps[h, where.values, 0].reshape(-1, block**2), "factor")
        for head, h in heads.items()
    ]
    alike = np.einsum("hnrij,hrij->hn", maps, maps[:, 0]) / (maps.shape[2] * block)
    distance = Axis(DISTANCE, np.arange(spec.length), _ends(spec, spec.length, (1,)))
    lines = {head or slot: alike[h] for head, h in _heads(len(maps), MOST_CURVES).items()}
    return [
        *_comparable(shown),
        Curves("decay: mean product of a random vector with itself", distance, lines, "product"),
    ]


def _growth(slot: str, spec: Spec, slots: Slots) -> list[View]:
    growth = _sample(slots[slot], 2)
    with np.errstate(over="ignore"):
        factors = np.exp(growth - growth[0])
    factors[~np.isfinite(factors)] = np.nan
    lines = {f"pair {p}": factors[:, p] for p in _some(growth.shape[1], MOST_CURVES)}
    distance = Axis("distance of key behind query (positions)", np.arange(spec.length), _ends(spec, spec.length, (1,)))
    where, pairs = _positions(spec), Axis(PAIR, np.arange(growth.shape[1]))
    return [
        Curves("factor on a product of query and key", distance, lines, "factor"),
        Map("natural logarithm of the factor", where, pairs, growth[where.values], "logarithm"),
    ]


def _over_offsets(slot: str, spec: Spec, slots: Slots) -> list[View]:
    rows = np.asarray(slots[slot], np.float64)
    x, last = _offsets(spec, spec.length - 1), rows.shape[1] // 2
    places = np.clip(x.values, -last, last) + last
    heads = _heads(len(rows), MOST_CURVES)
    if slot == "gain":
        return [Curves(slot, x, {head or slot: rows[h, places] for head, h in heads.items()}, "factor of the score")]
    # scores are compared with that of offset 0, which all queries see
    lines = {head or slot: _attended(rows[h, places], rows[h, last]) for head, h in heads.items()}
    masked = any(np.isnan(line).any() for line in lines.values())
    return [Curves(slot, x, lines, ADDED, masked=masked)]


def _row_scale(slot: str, spec: Spec, slots: Slots) -> list[View]:
    factors, where = _sample(slots[slot], 2), _positions(spec, "position of the query")
    lines = {head or slot: factors[h, where.values] for head, h in _heads(len(factors), MOST_CURVES).items()}
    return [Curves("factors of queries", where, lines, "factor on products with keys")]


def _vectors(slot: str, spec: Spec, slots: Slots) -> list[View]:
    vectors = np.asarray(slots[slot], np.float64)
    last = vectors.shape[1] // 2
    x = _offsets(spec, last)
    vectors = vectors[:, x.values + last]
    channels = Axis("channel of the head", np.arange(vectors.shape[2]))
    some = _some(len(x.values))
    shown = Axis(x.label, x.values[some], x.ends)
    gains = slot == "rel_gain"
    clipped = f" (clipped at {last})" if last < spec.length - 1 else ""
    maps = [
        Map(_named(slot, head) + clipped, shown, channels, vectors[h][some], "factor" if gains else "value")
        for head, h in _heads(len(vectors), 2).items()
    ]
    sizes = vectors.mean(axis=2) if gains else np.sqrt(np.square(vectors).sum(axis=2))
    lines = {head or slot: sizes[h] for head, h in _heads(len(vectors), MOST_CURVES).items()}
    size = "mean" if gains else "norm"
    return [*_comparable(maps), Curves(f"{size} of {slot}{clipped}", x, lines, size)]


def _counts(slot: str, spec: Spec, slots: Slots) -> list[View]:
    vectors = np.asarray(slots[slot], np.float64)
    some, channels = _some(vectors.shape[1]), Axis("channel of the head", np.arange(vectors.shape[2]))
    maps = [
        Map(_named(slot, head), Axis("counted keys", some), channels, vectors[h][some], "value")
        for head, h in _heads(len(vectors), 2).items()
    ]
    sizes = np.sqrt(np.square(vectors).sum(axis=2))
    lines = {head or slot: sizes[h] for head, h in _heads(len(vectors), MOST_CURVES).items()}
    return [
        *_comparable(maps),
        Curves(f"norm of {slot}", Axis("counted keys", np.arange(vectors.shape[1])), lines, "norm"),
    ]


def _of_channels(slot: str, spec: Spec, slots: Slots) -> list[View]:
    values = np.asarray(slots[slot], np.float64)
    head, channel = (
        Axis(label, np.arange(n)) for label, n in zip(("head", "channel of the head"), values.shape, strict=True)
    )
    if slot == "polar":
        return [Map("phases of keys", head, channel, values, "radians")]
    return [Map(slot, head, channel, values, "value")]


def _network(slot: str, spec: Spec, slots: Slots) -> list[View]:
    values = np.asarray(slots[slot], np.float64)
    if slot == "mlp_bias":
        return [Curves(slot, Axis("unit", np.arange(len(values))), {slot: values}, "value")]
    labels = ("unit", "scores of all heads, then biases") if slot == "mlp_in" else ("head", "unit")
    rows, columns = (Axis(label, np.arange(n)) for label, n in zip(labels, values.shape, strict=False))
    taps = values.shape[2]
    titles = [f"{slot}, key {tap - taps // 2:+d}" for tap in range(taps)] if taps > 1 else [slot]
    return _comparable([Map(title, rows, columns, values[..., tap], "value") for tap, title in enumerate(titles)])


def _scores(slot: str, spec: Spec, slots: Slots) -> list[View]:
    return _comparable(_squares(slot, spec, _sample(slots[slot], 3)))


def _index(slot: str, spec: Spec, slots: Slots) -> list[View]:
    index, values = slots["index"], np.asarray(slots["values"], np.float64)
    index = index.reshape(-1, *index.shape[-2:])[0]
    queries, keys, buckets = _pairs(spec, index)
    maps = _squares("values", spec, values[:, index])
    hidden = np.all([np.isnan(each.values) for each in maps], axis=0)
    return [*_comparable(maps), Map("index", queries, keys, np.where(hidden, np.nan, buckets), "bucket")]


def _pairs(spec: Spec, values: Array) -> tuple[Axis, Axis, Array]:
    """Return the axes of an array (..., N, M) of values for pairs of query and key, and the values to show."""
    queries, keys = (
        Axis(label, _some(n), _ends(spec, n, (1,)))
        for label, n in zip(("query", "key"), values.shape[-2:], strict=True)
    )
    seen = np.asarray(values[..., queries.values[:, None], keys.values], np.float64)
    if spec.causal:
        seen = np.where(keys.values > queries.values[:, None], np.nan, seen)
    return queries, keys, seen


def _squares(title: str, spec: Spec, scores: Array) -> list[Map]:
    queries, keys, seen = _pairs(spec, scores)
    heads = {"every head": 0} if len(scores) > 1 and (scores == scores[0]).all() else _heads(len(scores), MOST_MAPS)
    maps = []
    for head, h in heads.items():
        dispatch = _attended(seen[h], np.fmax.reduce(seen[h], axis=1, keepdims=True))
        masked = bool((np.isnan(dispatch) & ~np.isnan(seen[h])).any())
        maps.append(Map(_named(title, head), queries, keys, dispatch, ADDED, masked=masked))
    return maps


def _nothing(slot: str, spec: Spec, slots: Slots) -> list[View]:
    return []


VIEWS: Mapping[str, Callable[[str, Spec, Slots], list[View]]] = {
    "table": _table,
    "qk_table": _table,
    "taps": _taps,
    "rotors": _rotors,
    "polar": _of_channels,
    "angles": _angles,
    "growth": _growth,
    "row_scale": _row_scale,
    "rel_gain": _vectors,
    "rel_key": _vectors,
    "rel_query": _vectors,
    "key_bias": _of_channels,
    "rectify": _nothing,
    "gain": _over_offsets,
    "bias": _over_offsets,
    "index": _index,
    "values": _nothing,  # shown by `index`
    "scores": _scores,
    "counts": _counts,
    "mlp_in": _network,
    "mlp_bias": _network,
    "mlp_out": _network,
    "rel_value": _vectors,
    "scale": _nothing,
    "pairs": _nothing,
}
"""The function that makes the panels of each slot. Plain values have no panels; they are listed as facts."""
