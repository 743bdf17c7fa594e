"""The results of a study: the table of all values, and their statistics by cell and over all tasks.

A cell is one encoding on one task at one length, over all seeds.
"""

import itertools
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from fastpe.base.tables import csv_text
from fastpe.experiments import aggregate
from fastpe.experiments.comparison import Comparison, compare_paired
from fastpe.experiments.statistics import estimate, geometric, median_interval, share
from fastpe.experiments.study import RunKey, Study
from fastpe.tasks.registry import TASKS
from fastpe.training.forms import SUMMARY
from fastpe.training.forms import summary as summary_of
from fastpe.training.lengths import ends

SOLVED = 0.95
"""A run solves a length if at least this share of its answers is entirely right."""

COLUMNS = (
    "task", "encoding", "seed", "length", "metric", "value", "updates", "seconds", "identity", "cpu", "failed",
)  # fmt: skip

Outcomes = Mapping[RunKey, Mapping[str, Any]]


@dataclass(frozen=True)
class Measure:
    """The metric that a task is judged by, and whether larger is better. Otherwise the metric is a positive error."""

    metric: str
    larger: bool

    @property
    def is_error(self) -> bool:
        return not self.larger


def measure_of(study: Study, task: str) -> Measure:
    """The metric that a task of a study is judged by."""
    kind = TASKS.get(study.tasks[task]["task"]).kind
    metric = summary_of(study.config_of(task)) if kind == "text" else SUMMARY[kind]  # settings of a text take longer
    return Measure(metric, larger=metric == "exact")


def lengths_of(study: Study, task: str) -> list[str]:
    """The test lengths of a task, as results name them."""
    return [str(length) for length in study.config_of(task).test_lengths]


def rows(study: Study, outcomes: Outcomes, facts: Mapping[RunKey, Mapping[str, str]]) -> list[dict[str, Any]]:
    """The table of all values: one row for each run, length and metric. A run that failed has one row.

    Parameters
    ----------
    facts : dict
        ``identity`` and ``cpu`` of every run, and ``chosen`` if settings are chosen.
    """
    found = []
    for key in study.run_keys():
        outcome, own = outcomes[key], {**key._asdict(), **facts.get(key, {})}
        if "failed" in outcome:
            found.append({**own, "failed": outcome["failed"]})
            continue
        own |= {"updates": outcome["train"]["steps"], "seconds": outcome["train"]["seconds"]}
        for length, metrics in outcome["test"].items():
            for metric, value in metrics.items():
                if metric not in ("sequences", "tokens", "reason", "note"):
                    reason = metrics.get("reason", "") if value is None else ""
                    found.append({**own, "length": length, "metric": metric, "value": value, "failed": reason})
    return found


def columns(table: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """The columns of the table; "chosen" is the last one in a study that chooses settings."""
    return (*COLUMNS, *(("chosen",) if any("chosen" in row for row in table) else ()))


def as_csv(table: Sequence[Mapping[str, Any]]) -> str:
    """The table as CSV, with numbers in full precision."""
    names = columns(table)
    return csv_text(names, ([row.get(name) for name in names] for row in table))


def values(study: Study, outcomes: Outcomes, task: str, encoding: str, length: str) -> list[float | None]:
    """The values of the task's metric, one for each seed; None if the run failed or the length has no finite value."""
    metric = measure_of(study, task).metric
    found: list[float | None] = []
    for seed in study.each_seed:
        outcome = outcomes[RunKey(task, encoding, seed)]
        test = outcome.get("test", {}).get(length, {}) if "failed" not in outcome else {}
        value = test.get(metric)
        found.append(None if value is None or not math.isfinite(value) else float(value))
    return found


def same_bits(outcomes: Outcomes) -> list[str]:
    """Sentences on pairs of seeds with bitwise equal results for one encoding and task: these runs ignored the seed."""
    found, seen = [], dict[tuple[str, str, str], int]()
    for key, outcome in outcomes.items():
        if "failed" in outcome or outcome["train"]["loss"] is None:
            continue
        bits = f"{outcome['train']['loss']!r} {[sorted(each.items()) for each in outcome['test'].values()]!r}"
        first = seen.setdefault((key.task, key.encoding, bits), key.seed)
        if first != key.seed:
            found.append(f"{key.encoding} on {key.task}: seeds {first} and {key.seed} gave bitwise equal results")
    return found


def summary(study: Study, outcomes: Outcomes) -> dict[str, Any]:
    """Statistics of a study as JSON values: cells, comparisons, effective lengths, and statistics over tasks."""
    cells, comparisons, effective = [], [], []
    for task in study.tasks:
        measure, lengths = measure_of(study, task), lengths_of(study, task)
        known = {
            (encoding, length): values(study, outcomes, task, encoding, length)
            for encoding, length in itertools.product(study.encodings, lengths)
        }
        cells += [_cell(task, encoding, length, own, measure) for (encoding, length), own in known.items()]
        for length in lengths:
            comparisons += _compared(study, task, length, {e: known[e, length] for e in study.encodings}, measure)
        for encoding in study.encodings:
            own = {ends(_length(n))[1]: known[encoding, n] for n in lengths}
            effective.append({"task": task, "encoding": encoding, **_effective(study.threshold, measure, own)})
    return {
        "cells": cells,
        "comparisons": comparisons,
        "effective": effective,
        "overall": overall(study, outcomes),
        "same_bits": same_bits(outcomes),
        "failed": sum("failed" in outcome for outcome in outcomes.values()),
    }


def _length(text: str) -> int | str:
    return int(text) if text.isdigit() else text


def score(measure: Measure, value: float | None, chance: float = 1.0) -> float:
    """A score in [0, 1]: for an error max(0, 1 - error / chance), else the value itself; 0 for a failed run (None)."""
    if value is None:
        return 0.0
    return value if measure.larger else max(0.0, 1.0 - value / chance)


def _effective(threshold: float, measure: Measure, known: Mapping[int, Sequence[float | None]]) -> dict[str, Any]:
    """The effective length of the mean score, the effective lengths of the seeds, and the interval of their median.

    If the metric is an error, there are none.

    Parameters
    ----------
    threshold : float
        The score that must be reached up to the effective length.
    measure : Measure
    known : dict of int to sequence of float or None
        By length: the values of all seeds.
    """
    if measure.is_error:
        return {"length": None, "seeds": [], "low": None, "high": None, "coverage": None}
    scores = {length: [score(measure, value) for value in own] for length, own in known.items()}
    mean = {length: statistics.fmean(own) for length, own in scores.items()}
    count = len(next(iter(scores.values())))
    seeds = [aggregate.effective_length({n: own[k] for n, own in scores.items()}, threshold) for k in range(count)]
    spread = median_interval([each or 0 for each in seeds])
    return {
        "length": aggregate.effective_length(mean, threshold), "seeds": seeds, "low": spread.low or None,
        "high": spread.high or None, "coverage": spread.coverage,
    }  # fmt: skip


def _cell(task: str, encoding: str, length: str, own: Sequence[float | None], measure: Measure) -> dict[str, Any]:
    there = [value for value in own if value is not None]
    found: dict[str, Any] = {"task": task, "encoding": encoding, "length": length, "metric": measure.metric}
    found |= {"values": list(own), "failed": len(own) - len(there), "mean": None, "median": None}
    if there:
        found |= {"mean": asdict(estimate(there)), "median": statistics.median(there)}
    if measure.is_error and there and min(there) > 0:
        found["geometric"] = asdict(geometric(there))
    if not measure.is_error:
        found["solved"] = asdict(share(sum(value is not None and value >= SOLVED for value in own), len(own)))
    return found


def _compared(
    study: Study, task: str, length: str, known: Mapping[str, Sequence[float | None]], measure: Measure
) -> list[dict[str, Any]]:
    """Compare all encodings with the baseline at one length of one task. Holm's adjustment is over these comparisons.

    Errors are compared by their logarithms, so that differences are ratios. For scores, a run that failed counts as 0.
    For errors, an encoding with a failed run is not compared.
    """
    base, others = known[study.baseline], [name for name in study.encodings if name != study.baseline]
    usable = [name for name in others if not measure.is_error or _positive(known[name], base)]
    turn = math.log if measure.is_error else float
    pairs = [([turn(value or 0.0) for value in known[name]], [turn(value or 0.0) for value in base]) for name in usable]
    margin = None if study.margin is None else math.log1p(study.margin) if measure.is_error else study.margin
    judged = dict(zip(usable, compare_paired(pairs, larger_is_better=measure.larger, margin=margin), strict=True))
    return [
        {
            "task": task,
            "length": length,
            "encoding": name,
            "baseline": study.baseline,
            **_told(judged.get(name), measure),
        }
        for name in others
    ]


def _positive(*several: Sequence[float | None]) -> bool:
    return all(value is not None and value > 0 for own in several for value in own)


def _told(found: Comparison | None, measure: Measure) -> dict[str, Any]:
    if found is None:
        return {"verdict": "not compared", "ratio": measure.is_error}
    return {**asdict(found), "ratio": measure.is_error}


def overall(study: Study, outcomes: Outcomes) -> dict[str, Any] | None:
    """Statistics over all tasks that have scores, at the longest length of each; None if there is no such task."""
    tasks = [task for task in study.tasks if measure_of(study, task).larger]
    if not tasks:
        return None
    longest = {task: lengths_of(study, task)[-1] for task in tasks}
    scores = {
        encoding: np.array(
            [[score(measure_of(study, task), value)
              for value in values(study, outcomes, task, encoding, longest[task])] for task in tasks]
        )
        for encoding in study.encodings
    }  # fmt: skip
    thresholds = np.linspace(0.0, 1.0, 41)
    names = list(scores)
    return {
        "tasks": tasks,
        "interquartile_mean": {name: asdict(aggregate.aggregate(own)) for name, own in scores.items()},
        "profile": {name: aggregate.profile(own, thresholds).tolist() for name, own in scores.items()},
        "thresholds": thresholds.tolist(),
        "improvement": {
            name: aggregate.improvement(own, scores[study.baseline]) for name, own in scores.items()
            if name != study.baseline
        },
        "ranks": dict(zip(names, aggregate.ranks(list(scores.values())).tolist(), strict=True)),
        "critical_difference": aggregate.critical_difference(len(names), len(tasks)),
    }  # fmt: skip
