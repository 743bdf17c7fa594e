"""Quantities of vectors by offset, for query, key or value, and of gains of the score."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fastpe.theory import drift, tables
from fastpe.theory.pages.quantities import VECTORS, quantity
from fastpe.theory.pages.record import Record
from fastpe.theory.pages.subject import Subject
from fastpe.theory.value import Value, exact

Array = np.ndarray[Any, Any]


def records(subject: Subject) -> Iterator[Record]:
    """Yield the records of the vectors and gains of an encoding. With several heads, the values are the worst ones."""
    for slot in VECTORS:
        if slot in subject.filled():
            yield from _of_slot(subject, slot)
    key_bias = subject.trained("key_bias")
    if key_bias is not None:
        norms = np.linalg.norm(np.asarray(key_bias, np.float64), axis=-1)
        value = exact(float(norms.max()), "the largest norm over all heads", head=int(norms.argmax()))
        yield quantity("norm", "key_bias").of(value)


def _of_slot(subject: Subject, slot: str) -> Iterator[Record]:
    n = subject.train_length
    clipped = [np.asarray(subject.trained(slot)).shape[-1 if slot == "gain" else -2] // 2]
    for column in subject.columns:
        slots = subject.slots(column)
        if slots is None or slot not in slots:
            continue
        heads = [_by_distance(each, column, subject.causal) for each in _vectors(slot, slots[slot])]
        norms = [tables.norms(each) for each in heads]
        found: dict[str, Value | None] = {
            "norm.least": min((each["least"] for each in norms), key=lambda value: value.value),
            "norm.most": max((each["most"] for each in norms), key=lambda value: value.value),
        }
        reach = _reach(slot, slots[slot])
        clipped.append(reach)
        if column == n:
            apart = [each for each in map(tables.separation, _within_reach(heads, reach, n, subject.causal)) if each]
            found["nearest"] = min(apart, key=lambda value: value.value) if apart else None
        if column > n:
            found["drift"] = max(
                (_drift(each, column, n, subject.causal) for each in heads), key=lambda value: value.value
            )
        for key, value in found.items():
            if value is not None:
                yield quantity(key, slot).of(value, column)
    longest = max(column for column in subject.columns if subject.slots(column) is not None)
    if clipped[-1] < longest - 1:
        why = "the largest offset that has its own vector"
        yield quantity("clipped", slot).of(exact(float(clipped[-1]), why, length=longest))


def _vectors(slot: str, given: Any) -> Array:
    """Return the vectors of a slot, (heads, 2K + 1, D) in float64. Gains have D = 1."""
    found = np.asarray(given, np.float64)
    return found[..., None] if slot == "gain" else found


def _reach(slot: str, given: Any) -> int:
    return int(_vectors(slot, given).shape[1] // 2)


def _by_distance(rows: Array, length: int, causal: bool) -> Array:
    """Return the vectors of all offsets in a text of this length, in the order of the keys."""
    far = len(rows) // 2
    offsets = np.arange(1 - length, 1 if causal else length)
    found: Array = rows[offsets.clip(-far, far) + far]
    return found


def _within_reach(heads: list[Array], reach: int, length: int, causal: bool) -> list[Array]:
    """Return the vectors of the offsets up to `reach` in size. Larger offsets have no vectors of their own."""
    least = max(0, length - 1 - reach)
    return [each[least:] if causal else each[least : len(each) - least] for each in heads]


def _drift(rows: Array, length: int, train_length: int, causal: bool) -> Value:
    """Return the largest distance of a vector of a longer text from the nearest vector of the training length."""
    own = slice(length - train_length, None if causal else length + train_length - 1)
    trained = rows[own]
    joined = np.concatenate([trained, rows])
    radius = drift.covering(joined, len(trained), (len(trained), len(joined)))["radius"]
    assert radius is not None
    return radius
