"""Quantities of rotations of query and key."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from fastpe.encodings import build
from fastpe.theory import rotations
from fastpe.theory.pages.quantities import quantity
from fastpe.theory.pages.record import Record
from fastpe.theory.pages.subject import Subject
from fastpe.theory.value import Value, certified

Array = np.ndarray[Any, Any]

_PARTS = 8  # frequencies are measured in steps of 1/8 position, in which no channel makes more than half a turn


def records(subject: Subject) -> Iterator[Record]:
    """Yield the records of an encoding that rotates."""
    trained = subject.trained("angles")
    if trained is None or subject.turns():
        return
    for column in subject.columns:
        slots = subject.slots(column)
        if slots is None or "angles" not in slots:
            continue
        angles, growth = slots["angles"], slots.get("growth")
        found: dict[str, Value] = {"similarity": rotations.least_similarity(angles, growth)}
        if column > subject.train_length:
            unseen = rotations.unseen(trained, angles, causal=subject.causal)
            found |= {f"unseen.{key}": value for key, value in unseen.items()}
        if growth is not None:
            apart = growth - np.minimum.accumulate(growth, axis=0)
            high = float(np.exp(np.maximum(apart.max(), 0.0)))
            found["growth"] = certified("the largest factor between a query and a key that is not after it", high=high)
        for key, value in found.items():
            yield quantity(key).of(value, column)
    yield from _of_frequencies(subject, trained)


def _of_frequencies(subject: Subject, trained: Array) -> Iterator[Record]:
    omega = rotations.frequencies(trained) if trained.shape[1] > 1 else None
    if omega is None:
        return
    yield quantity("turned").of(rotations.turned(omega, subject.train_length))
    critical = [rotations.critical_channel(each, subject.train_length) for each in omega]
    if len(critical) == 1 and critical[0] is not None:
        yield quantity("critical").of(critical[0])
    growth = subject.trained("growth")
    decay = None if growth is None or len(growth) < 2 else growth[1] - growth[0]
    negative = rotations.first_negative_lag(omega, decay=decay)
    if negative is not None:
        yield quantity("negative_from").of(negative)
    speeds = _speeds(subject)
    if speeds is not None and speeds.any():
        yield quantity("alias_scale").of(rotations.aliasing(speeds)["from_scale"])


def _speeds(subject: Subject) -> Array | None:
    """Return the true frequencies, measured at fractions of a position.

    Angles at integer positions are not enough, because full turns from one position to the next cannot be seen in them.
    The result is None if the encoding takes no positions, or if the subject is a model, as its frequencies may be
    learned.
    """
    if subject.model is not None:
        return None
    places = np.arange(4.0) / _PARTS
    sizes: dict[str, Any] = {"dim": subject.dim, "heads": subject.heads, "train_length": subject.train_length}
    try:
        slots = build.build(
            subject.name, len(places), **sizes, causal=subject.causal, dtype="float64", positions=places,
            **subject.options,
        )  # fmt: skip
    except ValueError:
        return None
    return rotations.frequencies(slots["angles"], places.tolist())
