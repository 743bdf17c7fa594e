"""Tuning: choose the settings of each encoding on each task by validation alone, and report the choices."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastpe.base.tables import csv_text
from fastpe.experiments.results import Measure, measure_of
from fastpe.experiments.sections import Section
from fastpe.experiments.statistics import geometric
from fastpe.experiments.study import RunKey, Study, Trial, candidate_name
from fastpe.training.config import TrainConfig

_IN_VALIDATION = {"exact": "exact", "mse": "loss", "bits_per_byte": "bits_per_byte", "loss": "loss"}
"""For each metric that tasks are judged by: its name in the ``validation`` part of a result."""


@dataclass(frozen=True)
class Choice:
    """The candidate that was chosen for one task and encoding.

    Attributes
    ----------
    task, encoding : str
    values : list of list of float or None
        For each candidate, the validation score or error of each tuning seed; None for a run that failed.
    reasons : list of list of str
        For each of these runs, the reason why it failed; empty if it did not fail.
    chosen : int or None
        The number of the candidate; None if every run failed.
    """

    task: str
    encoding: str
    values: list[list[float | None]]
    reasons: list[list[str]]
    chosen: int | None

    @property
    def reason(self) -> str:
        """The reason why no candidate was chosen."""
        runs = [why for own in self.reasons for why in own]
        return f"no candidate can be chosen: all {len(runs)} tuning runs failed, the first with: {runs[0]}"


Choices = Mapping[tuple[str, str], Choice]


def choose(study: Study, outcomes: Mapping[Trial, Mapping[str, Any]]) -> dict[tuple[str, str], Choice]:
    """Choose the best candidate for every task and encoding that has tuning runs; the first of equally good ones."""
    found: dict[tuple[str, str], dict[int, list[tuple[float | None, str]]]] = {}
    for trial, outcome in outcomes.items():
        of_pair = found.setdefault((trial.task, trial.encoding), {})
        of_pair.setdefault(trial.candidate, []).append(_value(measure_of(study, trial.task), outcome))
    choices = {}
    for (task, encoding), of_pair in found.items():
        values, reasons = ([[run[part] for run in of_pair[k]] for k in sorted(of_pair)] for part in (0, 1))
        best = best_of(values, measure_of(study, task))  # type: ignore[arg-type] # mypy sees one type for both parts
        choices[task, encoding] = Choice(task, encoding, values, reasons, best)  # type: ignore[arg-type]
    return choices


def _value(measure: Measure, outcome: Mapping[str, Any]) -> tuple[float | None, str]:
    """The value of a tuning run and an empty text, or None and the reason why there is no value."""
    if "failed" in outcome:
        return None, str(outcome["failed"])
    found = outcome["validation"]
    value = found[_IN_VALIDATION[measure.metric]]
    return (value, "") if value is not None else (None, found.get("reason", "the loss in validation is not finite"))


def level(values: Sequence[float | None], measure: Measure) -> float | None:
    """The mean over the seeds of a candidate; None if all runs failed.

    For scores, it is the arithmetic mean, with 0 for a run that failed. For errors, it is the geometric mean of the
    runs that did not fail.

    >>> level([0.5, None], Measure("exact", True)), level([0.25, 4.0, None], Measure("mse", False))
    (0.25, 1.0)
    """
    there = [value for value in values if value is not None]
    if not there:
        return None
    if measure.larger:
        return math.fsum(there) / len(values)
    return 0.0 if min(there) == 0 else geometric(there).mean


def best_of(values: Sequence[Sequence[float | None]], measure: Measure) -> int | None:
    """The number of the best candidate, the first of equally good ones; None if every run of every candidate failed.

    For scores, the best candidate is the one with the largest mean; among equal means, the one with the fewest failed
    runs. For errors, it is the one with the fewest failed runs, because a failed run has no error to average; among
    candidates with equally many failed runs, the one with the smallest mean.

    >>> best_of([[None, None], [0.0, 0.0], [0.0, 0.0]], Measure("exact", True))
    1
    >>> best_of([[0.1, None], [9.0, 9.0]], Measure("mse", False))
    1
    """

    def rank(own: Sequence[float | None]) -> tuple[float, float]:
        failed, mean = float(sum(value is None for value in own)), level(own, measure)
        if measure.larger:
            return -(mean or 0.0), failed
        return failed, math.inf if mean is None else mean

    ranks = [rank(own) for own in values]
    best = ranks.index(min(ranks))
    return None if all(value is None for value in values[best]) else best


def configs(study: Study, keys: Sequence[RunKey], choices: Choices) -> dict[RunKey, TrainConfig]:
    """The settings of runs with the chosen candidates. Runs for which no candidate was chosen are left out."""
    if not study.choose:
        return {key: study.config(key) for key in keys}
    every = study.candidates
    chosen = {pair: choice.chosen for pair, choice in choices.items()}
    return {
        key: study.config(key, every[best])
        for key in keys
        if (best := chosen.get((key.task, key.encoding))) is not None
    }


# ---------------------------------------------------------------------------------------------------------------------
# Text and tables


def offered(study: Study) -> str:
    """The number of candidates, the values that they combine, and the tuning seeds, in one line."""
    of = "; ".join(f"{name} = {', '.join(map(str, values))}" for name, values in study.choose.items())
    seeds = ", ".join(map(str, study.tuning_seeds))
    return f"{len(study.candidates)} candidates for every encoding on every task, {of}, on seeds {seeds}"


def in_words(study: Study, choice: Choice) -> str:
    """A choice as one line of text."""
    whose = f"{choice.encoding} on {choice.task}"
    if choice.chosen is None:
        return f"{whose}: {choice.reason}"
    measure = measure_of(study, choice.task)
    score = level(choice.values[choice.chosen], measure)
    name = candidate_name(study.candidates[choice.chosen])
    return f"{whose}: {name} is chosen, {measure.metric} {score:.4g} in validation"


def facts(study: Study, choices: Choices) -> dict[str, Any]:
    """All choices, with the values of all candidates, as JSON values."""
    every, told = study.candidates, []
    for choice in choices.values():
        measure = measure_of(study, choice.task)
        tried = [
            {"settings": settings, "score": level(values, measure), "values": values, "failed": reasons}
            for settings, values, reasons in zip(every, choice.values, choice.reasons, strict=True)
        ]
        own = {"chosen": None, "reason": choice.reason} if choice.chosen is None else {"chosen": every[choice.chosen]}
        of = {"task": choice.task, "encoding": choice.encoding, "metric": measure.metric}
        told.append({**of, **own, "candidates": tried})
    seeds = list(study.tuning_seeds)
    failed = sum(bool(why) for choice in choices.values() for own in choice.reasons for why in own)
    return {"grid": dict(study.choose), "tried": len(every), "seeds": seeds, "failed": failed, "choices": told}


def verdict(found: Mapping[str, Any]) -> list[str]:
    """Sentences on the tuning, for the findings of a study."""
    names, seeds = ", ".join(found["grid"]), ", ".join(map(str, found["seeds"]))
    said = [
        f"Chosen by validation for every task and encoding: {names}, from {found['tried']} candidates for each, on "
        f"seeds {seeds}, whose results are not reported. Tests were not used."
    ]
    if found["failed"]:
        said.append(f"{found['failed']} tuning runs failed; they rank below all others.")
    nothing = [f"{each['encoding']} on {each['task']}" for each in found["choices"] if each["chosen"] is None]
    return said + (
        [f"No candidate could be chosen for {', '.join(nothing)}: these runs count as failed."] if nothing else []
    )


def section(study: Study, found: Mapping[str, Any]) -> Section:
    """The section with the table of choices, the scores of all candidates, and the method."""
    judged = {task: measure_of(study, task) for task in study.tasks}
    by = "; ".join(
        f"{task} by {measure.metric}, {'larger' if measure.larger else 'smaller'} is better"
        for task, measure in judged.items()
    )
    lines = [
        f"{offered(study)}. All combinations were trained.",
        f"The candidate with the best mean over these seeds was chosen ({by}; for errors the geometric mean). "
        "Validation sequences have the training lengths and come from a random stream that neither training nor tests "
        "use. For a text, they are the last part of the training text of the other runs. The results of these seeds "
        "are not reported. Tuning runs were not tested, so neither the tests nor any longer length influenced the "
        "choice.",
        "A run that failed counts as a score of 0. For errors, candidates with fewer failed runs are better. Among "
        "equally good candidates, the first is chosen.",
    ]
    rows = []
    for each in found["choices"]:
        chosen = "none: all runs failed" if each["chosen"] is None else candidate_name(each["chosen"])
        rows.append((each["task"], each["encoding"], chosen, *map(_score, each["candidates"])))
    head = ("task", "encoding", "chosen", *map(candidate_name, study.candidates))
    return Section("Chosen settings", lines, head, rows)


def _score(tried: Mapping[str, Any]) -> str:
    failed = sum(map(bool, tried["failed"]))
    words = "-" if tried["score"] is None else f"{tried['score']:.4g}"
    return words + (f", {failed} failed" if failed else "")


def as_csv(found: Mapping[str, Any]) -> str:
    """All tuning runs as CSV, with numbers in full precision."""
    rows = [
        (each["task"], each["encoding"], *tried["settings"].values(), seed, each["metric"], value, why, chosen)
        for each in found["choices"]
        for tried in each["candidates"]
        for chosen in ("yes" if tried["settings"] == each["chosen"] else "no",)
        for seed, value, why in zip(found["seeds"], tried["values"], tried["failed"], strict=True)
    ]
    return csv_text(("task", "encoding", *found["grid"], "seed", "metric", "value", "failed", "chosen"), rows)
