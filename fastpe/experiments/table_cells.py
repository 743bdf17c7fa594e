"""The text in the cells of tables: results, effective lengths, comparisons."""

import math
from collections.abc import Mapping
from typing import Any

from fastpe.experiments.results import measure_of
from fastpe.experiments.study import Study

MIXED_MARK = " ‡"
"""Marks a cell with runs of several CPUs."""

_NEAR = 1e-3  # if the logarithm of a ratio is smaller, four digits do not distinguish the ratio from 1


def cell_text(cell: Mapping[str, Any]) -> str:
    """The text of a cell: the mean with its interval, and the numbers of runs that solved the length or failed."""
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
    return words + (MIXED_MARK if cell.get("mixed") else "")


def effective_text(each: Mapping[str, Any]) -> str:
    """The text of an effective length, with the interval of the median over seeds."""
    length, low, high = ("-" if each[key] is None else str(each[key]) for key in ("length", "low", "high"))
    return f"{length} [{low}, {high}]" if each["coverage"] else length


def effective_table(study: Study, summary: Mapping[str, Any]) -> tuple[tuple[str, ...], list[list[str]]]:
    """The head and the rows of the table of effective lengths, for the tasks that have scores."""
    found = {(each["task"], each["encoding"]): effective_text(each) for each in summary["effective"]}
    tasks = [task for task in study.tasks if measure_of(study, task).larger]
    rows = [[name, *(found[task, name] for task in tasks)] for name in study.encodings] if tasks else []
    return ("encoding", *tasks), rows


def effective_note(study: Study, summary: Mapping[str, Any]) -> str:
    """The explanation of effective lengths above their table."""
    said = f"The longest length up to which the mean score is at least {study.threshold:g}"
    coverage = max((each["coverage"] or 0.0 for each in summary["effective"]), default=0.0)
    if not coverage:
        return f"{said}."
    return (
        f"{said}. In brackets: the exact interval of the median over seeds (order statistics, coverage at least "
        f"{100 * coverage:.1f} %). -: the score is lower even at the shortest length."
    )


def _within(cell: Mapping[str, Any], low: float, high: float) -> tuple[float, float]:
    """The interval, clipped to [0, 1] if the metric is a share of answers."""
    return (max(0.0, low), min(1.0, high)) if "solved" in cell else (low, high)


COMPARISON_HEAD = (
    "task", "length", "encoding", "difference", "95 %", "p", "Holm", "within", "verdict", "could find", "needs",
)  # fmt: skip
"""The head of the table of comparisons."""


WITHIN_NOTE = (
    "p of two one-sided sign-flip tests that the difference lies within the margin, adjusted by Holm. These tests "
    "assume that differences are spread symmetrically about their mean, and cannot detect failures that no seed shows"
)
"""The explanation of the column "within", for a study with a margin."""


def comparison_row(each: Mapping[str, Any]) -> tuple[str, ...]:
    """The row of a comparison."""
    own = (each["task"], each["length"], each["encoding"])
    if each["verdict"] == "not compared":
        return (*own, "-", "-", "-", "-", "-", "not compared: a run failed", "-", "-")
    difference = each["difference"]
    ends = "-"
    if difference["low"] is not None:
        ends = f"[{difference_text(each, difference['low'])}, {difference_text(each, difference['high'])}]"
    could = "-" if each["could_find"] is None else difference_text(each, each["could_find"]).removeprefix("+")
    open_ = each["verdict"] == "not told apart"
    needed = f"{each['needed']} seeds" if open_ and each["needed"] is not None else "-"
    p, adjusted = f"{each['p']:.3g}", f"{each['adjusted']:.3g}"
    within = "-" if each["within"] is None else f"{each['within']:.3g}"
    return (*own, difference_text(each, difference["mean"]), ends, p, adjusted, within, each["verdict"], could, needed)


def difference_text(each: Mapping[str, Any], value: float) -> str:
    """The text of a difference, or of a ratio for errors. A ratio near 1 shows two digits of its distance from 1.

    >>> difference_text({"ratio": True}, 0.7), difference_text({"ratio": True}, -1.2e-5)
    ('x 2.014', 'x 0.999988')
    >>> difference_text({"ratio": False}, 0.25)
    '+0.25'
    """
    if not each["ratio"]:
        return f"{value:+.3g}"
    if not 0.0 < abs(value) < _NEAR:
        return f"x {math.exp(min(value, 700.0)):.4g}"
    places = min(12, 1 - math.floor(math.log10(abs(value))))
    return f"x {math.exp(value):.{places}f}"
