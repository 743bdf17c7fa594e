"""Quantities of models with an encoding: tasks they cannot solve, Lipschitz constants, and costs."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from fastpe.model.config import ModelConfig
from fastpe.tasks.registry import TASKS, list_tasks
from fastpe.theory import biases, gaps
from fastpe.theory.layers import FeedForward, Head, Layer
from fastpe.theory.lipschitz import stack_bounds
from fastpe.theory.model_lipschitz import largest_map, least_radius
from fastpe.theory.orbits import NUMBERS, OTHERS
from fastpe.theory.pages.quantities import quantity
from fastpe.theory.pages.record import Quantity, Record
from fastpe.theory.pages.subject import Slots, Subject
from fastpe.theory.softmax import score_gap
from fastpe.theory.symmetry import PROPERTIES, Symmetry, symmetry
from fastpe.theory.tasks import limit
from fastpe.theory.value import certified, exact

Array = np.ndarray[Any, Any]

SAMPLES = 10_000  # number of training samples in the protocol of Li (2025), for `occam`
_OWN_WIDTH = 256  # largest width at which symmetries are tested; wider models have the same symmetries
_CONTENT = 1.0  # norm of the tokens, before the encoding adds to them
_SYMMETRIC = 16  # number of positions at which symmetries are tested


def records(subject: Subject) -> Iterator[Record]:
    """Yield the records that every encoding has."""
    for column in subject.columns:
        slots = subject.slots(column)
        if slots is not None:
            yield from _steepness(subject, slots, column)
    found = _symmetry(subject)
    if found is not None:
        for name in PROPERTIES:
            yield quantity(f"symmetry.{name}").of(getattr(found, name).spread)
        for column in subject.columns:
            if subject.slots(column) is not None:
                yield from _impossible(found, column, column == subject.train_length)
    yield from _cost(subject)
    for column in subject.columns:
        if column > 1 and subject.slots(column) is not None:
            yield quantity("temperature").of(score_gap(column, 0.9), column)


def _symmetry(subject: Subject) -> Symmetry | None:
    sizes = {"dim": subject.dim, "heads": subject.heads} if subject.dim <= _OWN_WIDTH else {}
    try:
        return symmetry(subject.name, length=_SYMMETRIC, causal=subject.causal, **sizes, **subject.options)
    except ValueError as error:
        subject.remarks.append(f"the symmetries are not computed: {error}")
        return None


def _impossible(found: Symmetry, length: int, estimates: bool) -> Iterator[Record]:
    """Yield the least errors on tasks of numbers and, for models that ignore order, the largest accuracies."""
    for task in dict.fromkeys((*NUMBERS, *list_tasks())):
        if (task in OTHERS and not estimates) or not (numbers := task in NUMBERS or _is_of_numbers(task)):
            if not found.perm.holds or task in OTHERS:
                continue
            numbers = False
        for metric in ("mse", "mse_constant") if numbers else ("exact", "token"):
            try:
                least = limit(task, found, length, metric=metric)
            except ValueError:
                break  # the task has no such length
            if least.value is not None:
                yield impossible(task, metric).of(least.value, length)


def _is_of_numbers(task: str) -> bool:
    return TASKS.get(task).kind == "numbers"


def impossible(task: str, metric: str) -> Quantity:
    """Return the quantity for the best result on a task that a symmetry allows.

    >>> impossible("running_sum", "mse").label
    'least error on running_sum'
    """
    what = {
        "mse": f"least error on {task}", "mse_constant": f"least error on {task}, constant inputs",
        "exact": f"largest share of exact answers on {task}", "token": f"largest share of right tokens on {task}",
    }[metric]  # fmt: skip
    key = f"task.{task}" + {"mse": "", "mse_constant": ".constant"}.get(metric, f".{metric}")
    return Quantity("Q16", key, what, "whether to train for the task at all: a larger model does not help")


def _steepness(subject: Subject, slots: Slots, length: int) -> Iterator[Record]:
    """Yield the Lipschitz constants of two layers whose maps have spectral norm 1."""
    if subject.dim % subject.heads:
        return
    taps = 1.0 + float(np.abs(slots["taps"]).max(axis=1).sum()) if "taps" in slots else 1.0
    radius = taps * _CONTENT + _largest(slots, "table")
    value = exact(
        radius, "content of norm 1 plus the largest norm of a row of the table", length=length, content=_CONTENT
    )
    yield quantity("token_norm").of(value, length)
    if subject.gated():
        return
    heads = tuple(_unit_head(slots, head, subject.dim // subject.heads) for head in range(subject.heads))
    layers = (Layer(heads, 1.0, FeedForward(1.0, 1.0)),) * 2
    why = "two layers, all maps of spectral norm 1, no biases of maps (P5)"
    facts = {"length": length, "layers": 2, "radius": radius}
    bound = stack_bounds(layers, radius).product
    yield quantity("lipschitz").of(certified(why, high=bound.value, **facts), length)
    colmax = biases.worst(biases.column_maxima(slots, length, causal=subject.causal)).value
    bound = stack_bounds(layers, radius, colmax=colmax, length=length).product
    yield quantity("lipschitz.frobenius").of(certified(why, high=bound.value, colmax=colmax, **facts), length)


def _unit_head(slots: Slots, head: int, width: int) -> Head:
    """Return a head whose maps have spectral norm 1, with the slots of the encoding."""
    scale = abs(float(np.broadcast_to(slots.get("scale", width**-0.5), (head + 1,))[head]))
    if "gain" in slots:
        scale *= float(np.abs(slots["gain"][head]).max())
    factor = 1.0
    for slot in {"row_scale", "rel_gain"} & slots.keys():
        factor *= float(np.abs(slots[slot][min(head, len(slots[slot]) - 1)]).max())
    factor *= largest_map(slots, head)
    if "growth" in slots:
        growth = slots["growth"]
        factor *= math.exp(max(0.0, float((growth - np.minimum.accumulate(growth, axis=0)).max())))
    every_key = float(np.linalg.norm(slots["key_bias"][head])) if "key_bias" in slots else 0.0
    least = least_radius(slots, width)
    return Head(
        scale * factor, 1.0, scale * (_largest(slots, "rel_key", head) + factor * least),
        scale * (_largest(slots, "rel_query", head) + every_key + factor * least), scale * factor * least * least,
        _largest(slots, "qk_table"),
        _largest(slots, "rel_value", head),
    )  # fmt: skip


def _largest(slots: Slots, slot: str, head: int | None = None) -> float:
    """Return the largest norm of a row of a slot, or 0 if the encoding does not fill it."""
    if slot not in slots:
        return 0.0
    rows = slots[slot] if head is None else slots[slot][min(head, len(slots[slot]) - 1)]
    return float(np.linalg.norm(rows, axis=-1).max())


def _cost(subject: Subject) -> Iterator[Record]:
    try:
        config = ModelConfig(
            subject.name, subject.options, width=subject.dim, heads=subject.heads, hidden=2 * subject.dim,
            causal=subject.causal, train_length=subject.train_length,
        ) if subject.model is None else subject.model.config  # fmt: skip
        counts = gaps.parameter_counts(config)
    except ValueError as error:
        subject.remarks.append(f"the parameters are not counted, because no model can be built: {error}")
        return
    yield quantity("parameters").of(counts["slot"])
    yield quantity("occam").of(gaps.occam_gap(int(counts["model"].value), SAMPLES))
