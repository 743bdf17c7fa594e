"""Quantities of the weights of a trained model: norms, Lipschitz constants, and the position in its layers."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastpe.theory import biases, model_lipschitz
from fastpe.theory.pages.quantities import quantity
from fastpe.theory.pages.record import Quantity, Record
from fastpe.theory.pages.subject import Subject
from fastpe.theory.probes import probe_run
from fastpe.theory.value import Value


def records(subject: Subject) -> Iterator[Record]:
    """Yield the constants of the trained model from the norms of its weights."""
    if subject.model is None:
        return
    norms = model_lipschitz.spectral_norms(subject.model)
    largest = max(norms, key=lambda name: norms[name].value)
    yield quantity("run.spectral").of(_with(norms[largest], matrix=largest))
    for column in subject.columns:
        slots = subject.slots(column)
        if slots is None:
            continue
        try:
            bounds = model_lipschitz.model_bounds(subject.model, column)
        except ValueError as error:
            subject.remarks.append(f"Lipschitz constants: {error}")
            return
        yield quantity("run.lipschitz").of(bounds.whole, column)
        colmax = biases.worst(biases.column_maxima(slots, column, causal=subject.causal)).value
        bounds = model_lipschitz.model_bounds(subject.model, column, colmax=colmax)
        yield quantity("run.frobenius").of(bounds.whole, column)


def _with(value: Value, **inputs: Any) -> Value:
    return replace(value, inputs={**value.inputs, **inputs})


def probe_records(
    run: str | Path, lengths: Sequence[int], *, bins: int | None = None, sequences: int = 1200
) -> dict[str, Record]:
    """Estimate what the layers of a run's model know about the position, on held-out sequences (I5).

    Parameters
    ----------
    run : str or pathlib.Path
        A run folder.
    lengths : sequence of int
    bins : int, optional
        Also the plug-in estimate of what the linear read-out in so many bins knows; refused where its bias may be
        above 0.05 nats.
    sequences : int
        In three parts: read-outs are fitted to one, calibrated by another, tested on the third.

    Returns
    -------
    dict of str to Record

    Raises
    ------
    ValueError, OSError, fastpe.BeyondTrainingLength
        As `fastpe.theory.probes.probe_run` does.
    """
    found: dict[str, Record] = {}
    for length in lengths:
        for each in probe_run(run, length, sequences=sequences, bins=bins):
            values = {"linear": each.linear, "classifier": each.classifier, "upper": each.upper, "binned": each.binned}
            for kind, value in values.items():
                if value is not None:
                    record = probe_quantity(each.layer, kind).of(value, length)
                    found[record.name] = record
    return found


_PROBES = {
    "linear": "by a linear readout, at least", "classifier": "by a classifier, at least", "upper": "at most",
    "binned": "in bins of the linear readout",
}  # fmt: skip


def probe_quantity(layer: int, kind: str) -> Quantity:
    """Return the quantity for what a layer knows about the position.

    >>> probe_quantity(1, "linear").label
    'position known after layer 1 (nats), by a linear readout, at least'
    """
    where = f"after layer {layer}" if layer else "before layer 1"
    label = f"position known {where} (nats), {_PROBES[kind]}"
    return Quantity("I5", f"probe.{layer}.{kind}", label, "whether position is what limits a model")
