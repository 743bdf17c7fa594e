"""Curves of the quantities of `fastpe.theory` for every slot. The module `views` shows the slots themselves.

A curve is shown only if it is defined. For example, curves over the distance need positions on a line.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fastpe.encodings import combined
from fastpe.encodings.encoding import Part
from fastpe.encodings.slots import Spec
from fastpe.pictures.axes import DISTANCE, LENGTH, PAIR, POSITION
from fastpe.pictures.panels import Array, Axis, Curves, View
from fastpe.pictures.views import MOST_CURVES
from fastpe.theory.biases import drifts, effects, last_row
from fastpe.theory.drift import drift
from fastpe.theory.information import Centred, information_curve
from fastpe.theory.kernel import kernel_by_lag, spectrum
from fastpe.theory.reach import reach_over_length
from fastpe.theory.rotations import frequencies, similarity, turns, unseen_chords
from fastpe.theory.tables import windows

BIASES = ("bias", "index", "scores")
"""Slots that are added up and added to the score."""
_LENGTHS = 40  # number of lengths of a curve, in addition to powers of two
_MOST_ROWS = 4096  # largest number of rows of a window whose information is computed
_NOISES = 32.0 ** np.linspace(-1.0, 1.0, 41)  # times the root mean square of the trained rows' entries


@dataclass(frozen=True)
class _Subject:
    """The data for curves.

    `slots` and `trained` hold the slots at the shown length and at the training length. `filled` returns the slots at
    any length. `on_a_line` says whether positions are on a line.
    """

    spec: Spec
    slots: Mapping[str, Any]
    trained: Mapping[str, Any]
    filled: Callable[[int], Mapping[str, Any]]
    on_a_line: bool

    @property
    def longer(self) -> bool:
        """Return whether positions beyond the training length are shown."""
        return self.spec.length > self.spec.train_length


def theory_views(
    parts: Sequence[Part], spec: Spec, slots: Mapping[str, Any], filled: Callable[[int], Mapping[str, Any]]
) -> dict[str, list[View]]:
    """Return the theory curves for the slots of an encoding or a sum.

    Parameters
    ----------
    parts : sequence of Part
    spec : Spec
        The sizes for which `slots` were filled.
    slots : dict
        The slots that `fastpe.build` returns.
    filled : function
        Maps a length to the slots at this length.

    Returns
    -------
    dict
        Slot -> its curves. Biases in several slots are added up, and their curves belong to the first of these slots.

    Raises
    ------
    ValueError
        If no slot has curves.
    """
    elsewhere = [part for part in parts if "edges" in part.options or part.encoding.axes(**part.options) > 1]
    scattered = {slot for part in elsewhere for slot in combined.shapes_of(part, spec)}
    trained = slots if spec.length == spec.train_length else filled(spec.train_length)
    found: dict[str, list[View]] = {}
    # whether rotations also depend on the content
    turned = any(part.encoding.gate is not None and part.encoding.gate.turns for part in parts)
    biases = [slot for slot in BIASES if slot in slots]
    for slot in ("table", "qk_table", "angles", *biases[:1]):
        if slot in slots and not (slot == "angles" and turned):
            among = set(biases) if slot in biases else {slot}
            subject = _Subject(spec, slots, trained, filled, not among & scattered)
            found[slot] = _CURVES[slot](slot, subject)
    if not any(found.values()):
        name = "+".join(part.scheme for part in parts)
        raise ValueError(
            f"theory has no curve for {name!r}, which fills no table, no angles and no bias of positions on a line"
        )
    return {slot: views for slot, views in found.items() if views}


def _end(subject: _Subject) -> tuple[float, ...]:
    return (subject.spec.train_length - 0.5,) if subject.longer else ()


def _first(array: Any, axes: int) -> Array:
    """Return the first sample, if slots differ between samples."""
    return np.asarray(array, np.float64).reshape(-1, *np.shape(array)[-axes:])[0]


# ---------------------------------------------------------------------------------------------------------------------
# Tables


def _table(slot: str, subject: _Subject) -> list[View]:
    n, length = subject.spec.train_length, subject.spec.length
    table, trained = _first(subject.slots[slot], 2), _first(subject.trained[slot], 2)
    views: list[View] = []
    if subject.longer:
        where = Axis(POSITION, np.arange(length), _end(subject))
        far = drift(np.concatenate([trained, table]), n)
        views.append(Curves("drift from the nearest trained row", where, {"distance": far}, "distance"))
    groups = {f"first {n}": trained, f"all {length}": table} if subject.longer else {"": table}
    spectra = _padded({name: _spectrum(rows) for name, rows in groups.items()})
    if most := max(map(len, spectra.values())):
        number = Axis("singular value", np.arange(1, most + 1))
        views.append(Curves("spectrum", number, spectra, "size", log=True))
    if subject.on_a_line and length > 1:
        lags = _padded({name: kernel_by_lag(rows) for name, rows in groups.items()})
        where = Axis(DISTANCE, np.arange(length), _end(subject))
        views.append(Curves("kernel: mean product of two rows", where, lags, "dot product"))
    return views + _information(table, length, n)


def _spectrum(rows: Array) -> Array:
    """Return the singular values, without values that are only rounding errors of 0."""
    values = spectrum(rows)
    return values[values > values[0] * max(rows.shape) * 2.0**-52]


def _padded(lines: Mapping[str, Array]) -> dict[str, Array]:
    """Pad lines to the length of the longest with missing values."""
    most = max(map(len, lines.values()))
    return {name: np.pad(line, (0, most - len(line)), constant_values=np.nan) for name, line in lines.items()}


def _information(table: Array, length: int, train_length: int) -> list[View]:
    """Return the bounds of the information in each window of positions."""
    size = math.sqrt(Centred(table, (0, min(length, train_length))).power / table.shape[1])
    if not size:
        return []
    noises = np.array([float(f"{each:.3g}") for each in size * _NOISES])
    lines: dict[str, Array] = {}
    bands: dict[str, tuple[str, str]] = {}
    for start, stop in windows(length, train_length):
        stop = min(stop, start + _MOST_ROWS)
        if stop - start < 2:
            continue
        name = f"{start}-{stop - 1}"
        curve = information_curve(table, noises, window=(start, stop))
        bands[name] = (f"{name} at least", f"{name} at most")
        lines |= dict(zip(bands[name], (curve.lower, curve.upper), strict=True))
    if not lines:
        return []
    noise = Axis("noise (standard deviation)", noises)
    return [Curves("information about the position", noise, lines, "nats", log_x=True, bands=bands)]


# ---------------------------------------------------------------------------------------------------------------------
# Rotations


def _angles(slot: str, subject: _Subject) -> list[View]:
    angles, trained = _first(subject.slots[slot], 3), _first(subject.trained[slot], 3)
    n, length = subject.spec.train_length, subject.spec.length
    pairs = Axis(PAIR, np.arange(angles.shape[2]))
    views: list[View] = []
    if subject.on_a_line and n > 1 and (omega := frequencies(trained)) is not None:
        lines = _by_head(turns(omega, n))
        views.append(Curves("turns within training", pairs, lines, "turns", log=True))
    if subject.longer:
        causal = subject.spec.causal
        ends = sorted({min(2 * n, length), length})
        tested = {end: _first(subject.filled(end)[slot], 3) for end in ends}
        chords = {f"to {end}": unseen_chords(trained, each, causal=causal).max(axis=0) for end, each in tested.items()}
        views.append(Curves("unseen angles", pairs, chords, "largest chord"))
    if subject.on_a_line and length > 1:
        growth = subject.slots.get("growth")
        if growth is None or np.shape(growth)[-1] == angles.shape[2]:
            lag = Axis(DISTANCE, np.arange(length), _end(subject))
            lines = _by_head(similarity(angles, None if growth is None else _first(growth, 2)))
            views.append(Curves("equal query and key", lag, lines, "score over lag 0"))
    return views


def _by_head(values: Array, alone: str = "") -> dict[str, Array]:
    """Return a line for each head, or for some of many heads. A single head has the name `alone`."""
    count = len(values)
    if count == 1:
        return {alone: values[0]}
    some = np.unique(np.linspace(0, count - 1, min(count, MOST_CURVES)).round().astype(np.int64))
    return {f"head {h}": values[h] for h in some}


# ---------------------------------------------------------------------------------------------------------------------
# Biases


def _bias(slot: str, subject: _Subject) -> list[View]:
    n, length, causal = subject.spec.train_length, subject.spec.length, subject.spec.causal
    if not subject.on_a_line:
        return []
    lengths = _lengths(length, n)
    built = {each: subject.filled(int(each)) for each in lengths.tolist()}
    by_length = {each: last_row(slots, each) for each, slots in built.items()}
    reach = reach_over_length(lambda each: by_length[each], lengths.tolist(), n)
    where = Axis(LENGTH, lengths, _end(subject))
    keys = {**_by_head(reach["perplexity"], "bias"), "no bias": lengths.astype(np.float64)}
    effect = np.array([[head.value for head in effects(slots, each, causal=causal)] for each, slots in built.items()])
    views: list[View] = [
        Curves("keys used at equal content", where, keys, "keys (perplexity)", level=float(n)),
        Curves("99 % of the weight within", where, _by_head(reach["window"]), "keys", level=float(n)),
        Curves("effect on a row, at most", where, _by_head(effect.T), "total variation"),
    ]
    if subject.longer:
        beyond = lengths[lengths >= n]
        moved = [[head.value for head in drifts(by_length[n], by_length[each])] for each in beyond.tolist()]
        lines = {**_by_head(np.array(moved).T, "bias"), "no bias": 1.0 - n / beyond}
        shorter = (len(lengths) - len(beyond), 0)
        lines = {name: np.pad(line, shorter, constant_values=np.nan) for name, line in lines.items()}
        views.append(Curves("moved by a longer text", where, lines, "total variation"))
    return views


def _lengths(length: int, train_length: int) -> Array:
    """Return some lengths up to `length`: equal steps, powers of two, and the training length."""
    even = np.linspace(1, length, min(length, _LENGTHS)).round().astype(np.int64)
    powers = 2 ** np.arange(length.bit_length())
    return np.unique(np.concatenate([even, powers, [min(length, train_length)]]))


_CURVES: Mapping[str, Callable[[str, _Subject], list[View]]] = {
    "table": _table,
    "qk_table": _table,
    "angles": _angles,
    **dict.fromkeys(BIASES, _bias),
}
"""The function that makes the curves of each slot."""
