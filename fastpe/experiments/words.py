"""A cell of a study, and a comparison, as the words of a table."""

import math
from collections.abc import Mapping
from typing import Any

from fastpe.experiments.results import measure_of
from fastpe.experiments.study import Study

MIXED = " ‡"
"""The mark of a cell whose runs are of several CPUs."""

_NEAR = 1e-3  # logarithms of ratios that four digits cannot tell from 1


def told(cell: Mapping[str, Any]) -> str:
    """A cell in a table: the mean with its interval, how many solved it, how many failed."""
    mean = cell.get("geometric") or cell["mean"]
    words = "-"
    if mean is not None:
        words = f"{mean['mean']:.3g}"
        if mean["low"] is not None and mean["sd"]:
            low, high = _within(cell, mean["low"], mean["high"])
            words += f" [{low:.3g}, {high:.3g}]"
    if "solved" in cell:
        solved = cell["solved"]
        percents = f"{100 * solved['low']:.0f} to {100 * solved['high']:.0f} %"
        words += f", solved {solved['count']} of {solved['of']} ({percents})"
    words += f", {cell['failed']} failed" if cell["failed"] else ""
    return words + (MIXED if cell.get("mixed") else "")


def reached(each: Mapping[str, Any]) -> str:
    """An effective length, and where the median of the seeds' own lies."""
    length, low, high = ("-" if each[key] is None else str(each[key]) for key in ("length", "low", "high"))
    return f"{length} [{low}, {high}]" if each["coverage"] else length


def effective_table(study: Study, summary: Mapping[str, Any]) -> tuple[tuple[str, ...], list[list[str]]]:
    """The effective lengths of all encodings on the tasks that have scores: a head and rows."""
    found = {(each["task"], each["encoding"]): reached(each) for each in summary["effective"]}
    tasks = [task for task in study.tasks if measure_of(study, task).larger]
    rows = [[name, *(found[task, name] for task in tasks)] for name in study.encodings] if tasks else []
    return ("encoding", *tasks), rows


def about_reached(study: Study, summary: Mapping[str, Any]) -> str:
    """What these are."""
    said = f"The longest length up to which the mean score is at least {study.threshold:g}"
    coverage = max((each["coverage"] or 0.0 for each in summary["effective"]), default=0.0)
    if not coverage:
        return f"{said}."
    return (
        f"{said}. In brackets, of the seeds' own such lengths, the exact interval of the median (order statistics, "
        f"coverage at least {100 * coverage:.1f} %). -: below it at the shortest length already."
    )


def _within(cell: Mapping[str, Any], low: float, high: float) -> tuple[float, float]:
    """The interval of a share of answers, which can be no other than one of [0, 1]."""
    return (max(0.0, low), min(1.0, high)) if "solved" in cell else (low, high)


COMPARED = ("task", "length", "encoding", "difference", "95 %", "p", "Holm", "within", "verdict", "could find", "needs")
"""What these cells are."""


WITHIN = (
    "p of two one-sided sign-flip tests that the difference lies within the margin, adjusted by Holm like the other; "
    "they suppose as much spread above the mean as below, and know nothing of failures so rare that no seed shows one"
)
"""What the cell of that name is, where there is a margin."""


def comparison_cells(each: Mapping[str, Any]) -> tuple[str, ...]:
    """A comparison as the cells of a row."""
    own = (each["task"], each["length"], each["encoding"])
    if each["verdict"] == "not compared":
        return (*own, "-", "-", "-", "-", "-", "not compared: a run failed", "-", "-")
    difference = each["difference"]
    ends = "-"
    if difference["low"] is not None:
        ends = f"[{turned(each, difference['low'])}, {turned(each, difference['high'])}]"
    could = "-" if each["could_find"] is None else turned(each, each["could_find"]).removeprefix("+")
    open_ = each["verdict"] == "not told apart"
    needed = f"{each['needed']} seeds" if open_ and each["needed"] is not None else "-"
    p, adjusted = f"{each['p']:.3g}", f"{each['adjusted']:.3g}"
    within = "-" if each["within"] is None else f"{each['within']:.3g}"
    return (*own, turned(each, difference["mean"]), ends, p, adjusted, within, each["verdict"], could, needed)


def turned(each: Mapping[str, Any], value: float) -> str:
    """A difference, or of errors the ratio whose logarithm it is: near 1 with two digits of what it is off by.

    >>> turned({"ratio": True}, 0.7), turned({"ratio": True}, -1.2e-5), turned({"ratio": False}, 0.25)
    ('x 2.014', 'x 0.999988', '+0.25')
    """
    if not each["ratio"]:
        return f"{value:+.3g}"
    if not 0.0 < abs(value) < _NEAR:
        return f"x {math.exp(min(value, 700.0)):.4g}"
    places = min(12, 1 - math.floor(math.log10(abs(value))))
    return f"x {math.exp(value):.{places}f}"
