"""Quantities of tables that are added to the embeddings or to the inputs of query and key, and of taps."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fastpe.theory import capacity, drift, kernel, precision, tables
from fastpe.theory.information import fano, position_information
from fastpe.theory.pages.quantities import PLACES, quantity
from fastpe.theory.pages.record import Record
from fastpe.theory.pages.subject import Subject
from fastpe.theory.precision_information import precision_information
from fastpe.theory.value import Value, certified, exact

Array = np.ndarray[Any, Any]

_POSITIONS = 4096  # number of rows that are rounded
_DRAWN = 2**33  # largest number of multiplications of random noise with all rows


def records(subject: Subject) -> Iterator[Record]:
    """Yield the records of all tables of an encoding and of its taps."""
    for slot in PLACES:
        if slot in subject.filled():
            yield from _of_windows(subject, slot)
            yield from _of_training(subject, slot)
            yield from _of_rounding(subject, slot)
    taps = subject.trained("taps")
    if taps is not None:
        taps = np.asarray(taps, np.float64)
        reach = exact(float(len(taps)), "number of taps in a row", taps=len(taps))
        yield quantity("reach", "taps").of(reach)
        factor = 1.0 + float(np.abs(taps).max(axis=1).sum())
        yield quantity("factor", "taps").of(certified("1 + sum of the largest absolute taps (P5)", high=factor))


def _of_windows(subject: Subject, slot: str) -> Iterator[Record]:
    n, trained = subject.train_length, subject.trained(slot)
    for column in subject.columns:
        slots = subject.slots(column)
        if slots is None or slot not in slots:
            continue
        table, window = slots[slot], subject.window(column)
        found: dict[str, Value | None] = {
            f"norm.{end}": value for end, value in tables.norms(table, window).items() if end != "rms"
        }
        found["nearest"] = tables.separation(table, window)
        found["noise"] = tables.tolerated_noise(table, window)
        found |= _information(table, window)
        if window[0] >= n:
            # on a grid or a graph, all rows change with the length
            joined = np.concatenate([trained, table[slice(*window)]])
            new = (n, n + window[1] - window[0])
            covering = drift.covering(joined, n, new)
            found["drift"], found["drift.relative"] = covering["radius"], covering["relative"]
            found["outside"] = drift.untrained_share(joined, n, new)
        for key, value in found.items():
            if value is not None:
                yield quantity(key, slot).of(value, column)


def _information(table: Array, window: tuple[int, int]) -> dict[str, Value | None]:
    rows = window[1] - window[0]
    draws = max(64, min(1024, _DRAWN // (rows * table.shape[1])))
    shape = position_information(table, window=window, draws=draws)
    raw = position_information(table, sigma=1.0, window=window, draws=draws)
    mistaken = fano(shape.upper, rows) if rows > 1 else None
    return {
        "information": shape.estimate, "information.lower": shape.lower, "information.upper": shape.upper,
        "information.raw": raw.estimate, "mistaken": mistaken if mistaken and mistaken.value else None,
    }  # fmt: skip


def _of_training(subject: Subject, slot: str) -> Iterator[Record]:
    table = subject.trained(slot)
    ranks = kernel.ranks(table)
    found: dict[str, Value | None] = {f"rank.{name}": value for name, value in ranks.items() if name != "condition"}
    found |= {
        "condition": ranks["condition"], "coherence": tables.coherence(table), "toeplitz": kernel.toeplitz_share(table),
        "readout": capacity.readout_complexity(table), "readout.bounds": capacity.readout_bounds(table),
        "collision": tables.collision_radius(table),
    }  # fmt: skip
    for key, value in found.items():
        if value is not None:
            yield quantity(key, slot).of(value)


def _of_rounding(subject: Subject, slot: str) -> Iterator[Record]:
    table = _many(subject, slot)
    alive = np.flatnonzero(np.abs(table).max(axis=1) > 0)
    last = int(alive[-1]) + 1 if len(alive) else 0
    if last < len(table):
        why = f"the position from which on all rows are 0; {len(table)} rows were tried"
        yield quantity("zero_from", slot).of(exact(float(last), why, rows=len(table)))
    for dtype in ("float32", "bfloat16"):
        horizon = precision.horizon(table, dtype)
        for key, value in (("equal_from", horizon["first"]), ("distinct", horizon["distinct"])):
            if value is not None:
                yield quantity(f"{key}.{dtype}", slot).of(value)
        yield quantity(f"rounded.{dtype}", slot).of(precision_information(table, dtype))


def _many(subject: Subject, slot: str) -> Array:
    """Return the rows that are rounded: at least 4,096, or fewer if the table ends before.

    If rows depend on the length, they are the rows at the longest length of the page.
    """
    tested = [slots[slot] for column in subject.columns if (slots := subject.slots(column)) and slot in slots]
    longest, trained = tested[-1], subject.trained(slot)
    shared = min(len(longest), len(trained))
    if len(longest) >= _POSITIONS or not np.array_equal(longest[:shared], trained[:shared]):
        return np.asarray(longest)
    remarks = len(subject.remarks)
    slots = subject.slots(_POSITIONS)
    del subject.remarks[remarks:]  # remarks on this length are not wanted, because the page does not have it
    return np.asarray(longest if slots is None else slots[slot])
