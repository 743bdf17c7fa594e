"""Quantities of biases on scores, and of `nope`: how far attention reaches if all contents are equal."""

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from fastpe.encodings import combined
from fastpe.theory import biases, reach
from fastpe.theory.attention_information import attention_information, offset_information
from fastpe.theory.decay import FALLING, head_parameters
from fastpe.theory.pages.quantities import CONTENTS, TOLERANCES, quantity
from fastpe.theory.pages.record import Record
from fastpe.theory.pages.subject import Slots, Subject
from fastpe.theory.softmax import weights
from fastpe.theory.value import Value

Array = np.ndarray[Any, Any]

_ADDED = {"bias", "scores", "index"}
_BLOCK = 2**21  # number of scores in memory at once
_MOST_PAIRS = 2**28  # largest number of weights (heads * queries * keys) for which all are computed


def records(subject: Subject) -> Iterator[Record]:
    """Yield the records of an encoding that adds to scores, or of one that has no slots."""
    if subject.gated():
        subject.remarks.append(
            "the reach of attention and the Lipschitz constants depend on gates, so on the content, and are left out"
        )
        return
    if not _ADDED & subject.filled() and subject.filled():
        return
    for column in subject.columns:
        slots = subject.slots(column)
        if slots is not None:
            for key, value in _at(subject, slots, column).items():
                if value is not None:
                    yield quantity(key).of(value, column)
    yield from _of_distances(subject)
    yield from _without_end(subject)


def _at(subject: Subject, slots: Slots, length: int) -> dict[str, Value | None]:
    causal, n = subject.causal, subject.train_length
    row, offsets = _row(slots, length, causal)
    found: dict[str, Value | None] = {}
    heads = reach.reaches(row, train_length=n, distances=np.abs(offsets))
    for key, each in (("perplexity", [head.perplexity for head in heads]), ("within", [head.window for head in heads])):
        found[f"{key}.least"], found[f"{key}.most"] = _least(each), biases.worst(each)
    found["beyond"] = biases.worst([head.beyond for head in heads if head.beyond is not None])
    if length > n:
        short = subject.slots(n)
        before = _row(short if short is not None else {}, n, causal)
        found["bias_drift"] = biases.worst(biases.drifts(before[0], row, offsets=(before[1], offsets)))
    found["bias_size"] = biases.worst(biases.largest_sizes(slots, length, causal=causal))
    found["effect"] = biases.worst(biases.effects(slots, length, causal=causal))
    found["columns"] = biases.worst(biases.column_maxima(slots, length, causal=causal))
    if len(row) * length**2 <= _MOST_PAIRS:
        each_head = [attention_information(_attended(slots, length, causal, head)) for head in range(len(row))]
        found["attended"] = biases.worst(each_head)
    return found


def _row(slots: Slots, length: int, causal: bool) -> tuple[Array, Array]:
    """Return the biases of one query and the offsets of its keys.

    The query is the last one if the model is causal, else the middle one.
    """
    query = length - 1 if causal else (length - 1) // 2
    row = biases.rows(slots, length, query, query + 1)[:, 0]
    keys = np.arange(query + 1 if causal else length)
    return row[:, keys], keys - query


def _attended(slots: Slots, length: int, causal: bool, head: int) -> Iterator[Array]:
    step = max(1, _BLOCK // length)
    for first in range(0, length, step):
        stop = min(first + step, length)
        scores = biases.rows(slots, length, first, stop)[head]
        if causal:
            scores[np.arange(length) > np.arange(first, stop)[:, None]] = -np.inf
        yield weights(scores)


def _of_distances(subject: Subject) -> Iterator[Record]:
    """Yield the information in one score about the distance, at the training length."""
    slots, n = subject.slots(subject.train_length), subject.train_length
    if slots and "bias" in slots and not {"scores", "index"} & set(slots) and n > 1:
        found = [offset_information(row) for row in biases.last_row(slots, n)]
        yield quantity("distance").of(biases.worst(found))


def _without_end(subject: Subject) -> Iterator[Record]:
    """Yield the limits and certified windows for an endless text."""
    heads = _parameters(subject)
    if heads is None:
        return
    both = not subject.causal
    limits = [reach.limit(subject_scheme(subject), both_sides=both, **each) for each in heads]
    known = [each for each in limits if each is not None]
    if len(known) == len(heads):
        yield quantity("limit.perplexity.least").of(_least([each.perplexity for each in known]))
        yield quantity("limit.perplexity.most").of(biases.worst([each.perplexity for each in known]))
        yield quantity("limit.within.most").of(biases.worst([each.window for each in known]))
    for name, tolerance in TOLERANCES.items():
        for content in CONTENTS:
            windows = [
                reach.endless_window(subject_scheme(subject), tolerance, content, both_sides=both, **each)
                for each in heads
            ]
            sure = [each for each in windows if each is not None]
            if len(sure) == len(heads) and all(math.isfinite(each.value) for each in sure):
                yield quantity(f"window.{name}.{content:g}").of(biases.worst(sure))


def subject_scheme(subject: Subject) -> str:
    """Return the keys of the encodings of the first layer, joined by "+"."""
    return "+".join(part.scheme for part in subject.parts)


def _parameters(subject: Subject) -> list[dict[str, Any]] | None:
    """Return the arguments of `reach.limit` for each head, or None if the limit is not known."""
    adding = [part for part in subject.parts if _ADDED & set(part.encoding.slots)]
    falling = [part for part in adding if part.scheme in FALLING]
    slots = subject.slots(max(2, subject.train_length)) if subject.model is None else None
    if falling and len(adding) > 1:
        return None
    if not falling:
        return [{}]
    (part,) = falling
    slots = slots or subject.slots(max(2, subject.train_length)) or {}
    if not subject.causal and not _even(slots):
        return None
    found: list[dict[str, Any]] = [*head_parameters(part.scheme, slots, _learned(subject, part.scheme))]
    schedule = part.options.get("schedule")
    return [{**each, "schedule": schedule} for each in found] if part.scheme == "alibi" else found


def _learned(subject: Subject, scheme: str) -> dict[str, Array]:
    """Return the parameters of one encoding: those of the first layer of the model, or the initial ones."""
    if subject.model is None:
        from fastpe.encodings.build import init

        sizes = {"dim": subject.dim, "heads": subject.heads, "train_length": subject.train_length}
        found = init(subject.name, **sizes, causal=subject.causal, dtype="float64", **subject.options)
        return {name.rpartition(".")[2]: each for name, each in found.items() if _owner(subject, name) == scheme}
    copies = subject.model.copies()
    fronts = (f"encoding.{scheme}.", f"layers.0.encoding.{scheme}.")
    return {
        name.rpartition(".")[2]: np.asarray(each, np.float64)
        for name, each in copies.items()
        if name.startswith(fronts)
    }


def _owner(subject: Subject, name: str) -> str:
    if len(subject.parts) == 1:
        return subject.parts[0].scheme
    return next(
        part.scheme for part in subject.parts if name == combined.key(subject.parts, part, name.split(".", 1)[1])
    )


def _even(slots: Slots) -> bool:
    bias = slots.get("bias")
    return bias is None or bool(np.array_equal(bias, bias[:, ::-1]))


def _least(values: Sequence[Value]) -> Value:
    return min(values, key=lambda each: each.value)
