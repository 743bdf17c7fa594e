"""Quantities of the weights of a trained model: norms, Lipschitz constants, and position information in its layers."""

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
    """Yield the Lipschitz constants of the trained model from the norms of its weights."""
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
    """Estimate the information about the position in the layers of a run's model, on held-out sequences (I5).

    Parameters
    ----------
    run : str or pathlib.Path
        A run folder.
    lengths : sequence of int
        Lengths of the sequences.
    bins : int, optional
        If given, the information in the linear readout is also estimated from this number of bins. An error is raised
        if the bias of this estimate may exceed 0.05 nats.
    sequences : int
        Number of sequences. One third fits the readouts, one third calibrates them, and one third tests them.

    Returns
    -------
    dict of str to Record
        The records by name.

    Raises
    ------
    ValueError, OSError, fastpe.BeyondTrainingLength
        For the same reasons as `fastpe.theory.probes.probe_run`.
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
    """Return the quantity of the information about the position in a layer.

    >>> probe_quantity(1, "linear").label
    'position known after layer 1 (nats), by a linear readout, at least'
    """
    where = f"after layer {layer}" if layer else "before layer 1"
    label = f"position known {where} (nats), {_PROBES[kind]}"
    return Quantity("I5", f"probe.{layer}.{kind}", label, "whether a lack of position information limits the model")
