"""The claims of Li (2025) in the report of a study: tables, verdicts, and reference points of the plots."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from fastpe.encodings.registry import get, option_values
from fastpe.experiments.claims import (
    Verdict,
    cells_at,
    judge,
    judged,
    mean_of,
    pairs_of,
    ratio_of,
    reference_points,
    told_apart,
)
from fastpe.experiments.sections import Section
from fastpe.experiments.study import Study
from fastpe.experiments.table5_facts import LEFT_OPEN, LENGTHS, PAPER, READINGS, SOURCE
from fastpe.pictures.svg import Reference
from fastpe.training import config_file

Summary = Mapping[str, Any]

SMALL = "These runs are shorter than the paper's: they only demonstrate the study, and no claim of the paper is judged."


def facts(study: Study, summary: Summary) -> dict[str, Any]:
    """JSON values: ``source``, ``paper``, ``reference`` points, and ``verdicts`` (none if runs are not judged)."""
    points = [
        {"reading": reading, "length": length, **reference_points(study, reading, length)}
        for reading in READINGS
        for length in LENGTHS
    ]
    paper = {name: {str(length): error for length, error in own.items()} for name, own in PAPER.items()}
    verdicts = judge(study, summary) if judged(study) else []
    return {"source": SOURCE, "paper": paper, "reference": points, "verdicts": verdicts}


def sections(study: Study, summary: Summary) -> list[Section]:
    """The sections of a study's report that compare its results with the paper."""
    found = [_rows(study, summary, reading) for reading in READINGS]
    found.append(_reference(study))
    if judged(study):
        verdicts = judge(study, summary)
        found += [_verdicts(verdicts, reading) for reading in READINGS]
        found.append(_count(verdicts))
    else:
        found.append(Section(f"{SOURCE}: not judged", [SMALL]))
    return [*found, _pairs(summary), _settings(study)]


def references(study: Study, task: str) -> list[Reference]:
    """The paper's errors, the error of answering zero, and the reversal bound, for the plot of a reading."""
    if task not in READINGS:
        return []
    points = {length: reference_points(study, task, length) for length in LENGTHS}
    found = [Reference(f"{name}, the paper's", list(own.items()), name) for name, own in PAPER.items()]
    found.append(Reference("answering zero", [(n, points[n]["zero_predictor"]) for n in LENGTHS]))
    if task == "bidirectional":
        found.append(Reference("reversal bound", [(n, points[n]["reversal_bound"]) for n in LENGTHS]))
    return found


def _rows(study: Study, summary: Summary, reading: str) -> Section:
    head = ("length", "encoding", "mean squared error", "95 %", "mean", "paper", "of answering zero")
    rows = []
    for length in LENGTHS:
        zero = reference_points(study, reading, length)["zero_predictor"]
        for name, cell in cells_at(summary, reading, length).items():
            mean, paper = mean_of(cell), PAPER.get(name, {}).get(length)
            own = ("-", "-", "-") if mean is None else _own(cell, mean)
            share = "-" if mean is None else f"{mean['mean'] / zero:.3g}"
            rows.append((str(length), name, *own, "-" if paper is None else f"{paper:g}", share))
    said = (
        f"Geometric means over {study.count} seeds with 95 % intervals (Student's t of logarithms), and plain means. "
        "The paper gives one number for each, without a seed or a spread."
    )
    return Section(f"{SOURCE}, {reading}", [said], head, rows, right=2)


def _own(cell: Mapping[str, Any], mean: Mapping[str, Any]) -> tuple[str, str, str]:
    ends = "-" if mean["low"] is None else f"[{mean['low']:.3g}, {mean['high']:.3g}]"
    return f"{mean['mean']:.3g}", ends, f"{cell['mean']['mean']:.3g}"


def _reference(study: Study) -> Section:
    rows = []
    for length in LENGTHS:
        point = reference_points(study, READINGS[0], length)
        rows.append((str(length), f"{point['zero_predictor']:.3g}", f"{point['reversal_bound']:.3g}"))
    lines = [
        "Zero predictor: the error of always answering 0, which is (N + 1) / 2 for plain targets.",
        "Reversal bound: the least expected error of a bidirectional model whose bias is symmetric (alibi), or that "
        "has no position signal (nope). Such a model must give the same answer for a prefix sum and for the suffix sum "
        "of the reversed sequence. The bound is (N - 1) / 4 for plain targets; no training can go below it. So a "
        "bidirectional ALiBi cannot reach the paper's 0.0023 at length 50. The bound does not apply to causal models.",
        "If the paper's targets were divided by 50, its sinusoidal error at 200 (0.0423) would be worse than answering "
        "zero (0.0402).",
    ]
    return Section(
        "What the errors must be compared with", lines, ("length", "zero predictor", "reversal bound"), rows, 0
    )


def _verdicts(verdicts: Sequence[Verdict], reading: str) -> Section:
    rows = [(one["claim"], one["verdict"].upper(), one["reason"]) for one in verdicts if one["reading"] == reading]
    return Section(f"The paper's claims, {reading}", (), ("claim", "verdict", "reason"), rows)


def _count(verdicts: Sequence[Verdict]) -> Section:
    lines = []
    for reading in READINGS:
        own = [one["verdict"] for one in verdicts if one["reading"] == reading]
        words = ", ".join(f"{verdict} {own.count(verdict)}" for verdict in dict.fromkeys(own))
        lines.append(f"Of {len(own)} claims, {reading}: {words}.")
    return Section("Summary of the verdicts", lines)


def _pairs(summary: Summary) -> Section:
    rows = []
    for reading in READINGS:
        for length in LENGTHS:
            pairs = pairs_of(cells_at(summary, reading, length))
            for first, second in itertools.combinations(PAPER, 2):
                pair = pairs[first, second]
                smaller = first if pair and pair.difference.mean < 0 else second
                told = ratio_of(pair) if pair else "a run failed"
                verdict = smaller if told_apart(pair) else "inconclusive"
                rows.append((reading, str(length), f"{first} / {second}", told, verdict))
    said = (
        "Ratios of errors on the same seeds, and p values of the sign-flip test, adjusted by Holm for the six pairs at "
        "a length."
    )
    return Section(
        "The paper's four encodings, pair by pair", [said], ("reading", "length", "pair", "ratio", "smaller"), rows
    )


def _settings(study: Study) -> Section:
    """The section on settings that the paper leaves open, with their values in this study."""
    config = study.config_of(READINGS[0], "wavelet")
    rows = [("mask", "none (bidirectional) and causal", "both are run")]
    rows += [(name, _plain(getattr(config, name)), may_be) for name, may_be in LEFT_OPEN.items()]
    for label in study.encodings:
        own = study.config_of(READINGS[0], label)
        for name, value in option_values(own.encoding, own.options).items():
            rows.append((f"{label}.{name}", _plain(value), get(own.encoding).options[name].expected()))
    rows += [(name, value, "not offered") for name, value in config_file.PROTOCOL.items()]
    head = ("setting", "value", "possible values")
    return Section(
        "What the paper leaves open", ["`fastpe reproduce table5 --vary` changes these settings."], head, rows
    )


def _plain(value: object) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
