"""The text in the cells of tables: results, effective lengths, comparisons. Numbers have three significant digits."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastpe.experiments.results import measure_of
from fastpe.experiments.sections import Cell
from fastpe.experiments.study import Study
from fastpe.pictures.axes import number

Summary = Mapping[str, Any]

MIXED_MARK = " ‡"
"""Marks a cell with runs of several CPUs."""

TIMES = "\N{MULTIPLICATION SIGN} "
"""Stands before a ratio of errors."""

_NEAR = 1e-3  # if the logarithm of a ratio is smaller, three digits do not distinguish the ratio from 1


def value_text(metric: str, value: float | None) -> str:
    """A result as text: a share of exact answers in percent, an error or a loss as a number.

    >>> value_text("exact", 0.6912), value_text("mse", 0.6912), value_text("mse", None)
    ('69.1 %', '0.691', '-')
    """
    if value is None:
        return "-"
    return f"{_digits(100 * value)} %" if metric == "exact" else _digits(value)


def _digits(value: float) -> str:
    """A number with three significant digits, also if the last ones are 0.

    >>> _digits(2.7), _digits(100.0), _digits(0.0), _digits(12345.6)
    ('2.70', '100', '0', '12,346')
    """
    text = number(value)
    return f"{value:#.3g}".rstrip(".") if 1e-3 <= abs(value) < 1000 else text


def level(cell: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The mean of a cell, which is geometric for errors; None if all runs failed."""
    found: Mapping[str, Any] | None = cell.get("geometric") or cell["mean"]
    return found


def result_cell(cell: Mapping[str, Any]) -> Cell:
    """The mean with its interval, and the numbers of runs that solved the length or failed."""
    mean, metric = level(cell), cell["metric"]
    interval, notes = "", []
    if mean is not None and mean["low"] is not None and mean["sd"]:
        low, high = mean["low"], mean["high"]
        low, high = (max(0.0, low), min(1.0, high)) if metric == "exact" else (low, high)
        interval = f"[{value_text(metric, low).removesuffix(' %')}, {value_text(metric, high).removesuffix(' %')}]"
    if "solved" in cell and cell["solved"]["count"]:
        notes.append(f"solved {cell['solved']['count']} of {cell['solved']['of']}")
    if cell["failed"]:
        notes.append(f"{cell['failed']} failed")
    note = ", ".join(notes) + (MIXED_MARK if cell.get("mixed") else "")
    return Cell(value_text(metric, None if mean is None else mean["mean"]), interval, note.strip())


def results_table(study: Study, summary: Summary, task: str) -> tuple[tuple[str, ...], list[tuple[str | Cell, ...]]]:
    """The head and the rows of the table of a task's results: a row for each encoding, a column for each length."""
    lengths = list(dict.fromkeys(cell["length"] for cell in summary["cells"] if cell["task"] == task))
    known = {(cell["encoding"], cell["length"]): cell for cell in summary["cells"] if cell["task"] == task}
    rows: list[tuple[str | Cell, ...]] = []
    for name in study.encodings:
        rows.append((name, *(result_cell(known[name, length]) for length in lengths)))
    return ("encoding", *lengths), rows


def effective_text(each: Mapping[str, Any]) -> Cell:
    """An effective length, with the interval of the median over seeds."""
    length, low, high = ("none" if each[key] is None else str(each[key]) for key in ("length", "low", "high"))
    return Cell(length, f"[{low}, {high}]" if each["coverage"] else "")


def effective_table(study: Study, summary: Summary) -> tuple[tuple[str, ...], list[tuple[str | Cell, ...]]]:
    """The head and the rows of the table of effective lengths, for the tasks that have scores."""
    found = {(each["task"], each["encoding"]): effective_text(each) for each in summary["effective"]}
    tasks = [task for task in study.tasks if measure_of(study, task).larger]
    rows: list[tuple[str | Cell, ...]] = []
    for name in study.encodings if tasks else ():
        rows.append((name, *(found[task, name] for task in tasks)))
    return ("encoding", *tasks), rows


def effective_note(study: Study, summary: Summary) -> str:
    """The explanation of effective lengths above their table."""
    said = f"The longest length up to which the mean score is at least {100 * study.threshold:g} %"
    coverage = max((each["coverage"] or 0.0 for each in summary["effective"]), default=0.0)
    if not coverage:
        return f"{said}."
    return (
        f"{said}. In brackets: the exact interval of the median over seeds (order statistics, coverage at least "
        f"{100 * coverage:.1f} %). none: the score is lower even at the shortest length."
    )


OVERALL_HEAD = ("encoding", "interquartile mean", "better than the baseline", "mean rank")


def overall_rows(found: Mapping[str, Any]) -> list[tuple[str | Cell, ...]]:
    """The rows of the table of statistics over all tasks, the best encoding first."""
    rows: list[tuple[str | Cell, ...]] = []
    for name in sorted(found["ranks"], key=lambda name: -found["interquartile_mean"][name]["mean"]):
        mean, chance = found["interquartile_mean"][name], found["improvement"].get(name)
        ends = "" if mean["low"] is None else f"[{number(100 * mean['low'])}, {number(100 * mean['high'])}]"
        better = "-" if chance is None else value_text("exact", chance)
        rows.append((name, Cell(value_text("exact", mean["mean"]), ends), better, number(found["ranks"][name])))
    return rows


def overall_note(found: Mapping[str, Any]) -> str:
    """The explanation of the statistics over all tasks."""
    apart = found["critical_difference"]
    return (
        f"Scores at the longest length of {', '.join(found['tasks'])}; the chance level is not subtracted. Intervals "
        "describe the spread over seeds, not over tasks. Better than the baseline: the probability that a run beats a "
        "run of the baseline, where a tie counts half."
    ) + ("" if apart is None else f" Mean ranks that differ by {apart:.2f} differ significantly (Nemenyi).")


WITHIN_NOTE = (
    "p of two one-sided sign-flip tests that the difference lies within the margin, adjusted by Holm. These tests "
    "assume that differences are spread symmetrically about their mean, and cannot detect failures that no seed shows"
)
"""The explanation of the column "p (equivalent)", for a study with a margin."""


def comparison_table(study: Study, summary: Summary) -> tuple[tuple[str, ...], list[tuple[str | Cell, ...]]]:
    """The head and the rows of the table of comparisons with the baseline."""
    margin = () if study.margin is None else ("p (equivalent)",)
    head = ("task", "test length", "encoding", "difference", "p", *margin, "verdict", "detectable", "seeds needed")
    return head, [_comparison_row(each, bool(margin)) for each in summary["comparisons"]]


def _comparison_row(each: Mapping[str, Any], margin: bool) -> tuple[str | Cell, ...]:
    own = (each["task"], each["length"], each["encoding"])
    if each["verdict"] == "not compared":
        return (*own, "-", "-", *(["-"] if margin else []), "not compared: a run failed", "-", "-")
    difference = each["difference"]
    ends = ""
    if difference["low"] is not None:
        low, high = (_bare(difference_text(each, difference[end])) for end in ("low", "high"))
        ends = f"[{low}, {high}]"
    needed = f"{each['needed']:,}" if each["verdict"] == "inconclusive" and each["needed"] is not None else "-"
    within = ["-" if each["within"] is None else number(each["within"])] if margin else []
    return (
        *own, Cell(difference_text(each, difference["mean"]), ends), number(each["adjusted"]), *within, each["verdict"],
        detectable_text(each), needed,
    )  # fmt: skip


def _bare(text: str) -> str:
    return text.removeprefix(TIMES).removesuffix(" points")


def detectable_text(each: Mapping[str, Any]) -> str:
    """The smallest difference that the seeds of a comparison detect with a power of 80 %.

    >>> detectable_text({"could_find": 0.123, "ratio": False}), detectable_text({"could_find": 0.3, "ratio": True})
    ('12.3 points', 'a factor of 1.35')
    """
    if each.get("could_find") is None:
        return "-"
    if each["ratio"]:
        return f"a factor of {_bare(difference_text(each, each['could_find']))}"
    return f"{number(100 * each['could_find'])} points"


def detectable_range(comparisons: Sequence[Mapping[str, Any]]) -> str:
    """The smallest and the largest detectable difference of several comparisons, "" if there is none.

    Comparisons whose differences are equal on all seeds are left out: their spread, 0, says nothing.
    """
    parts = []
    for ratio in (False, True):
        known = [one for one in comparisons if one["ratio"] == ratio and one.get("could_find")]
        known.sort(key=lambda one: one["could_find"])
        if known:
            low, high = detectable_text(known[0]), detectable_text(known[-1])
            low, high = low.removesuffix(" points" if low != high else ""), high.removeprefix("a factor of ")
            parts.append(low if low.endswith(high) else f"{low} to {high}")
    return " and ".join(parts)


def verdict_text(each: Mapping[str, Any]) -> str:
    """The verdict of a comparison; with the smallest detectable effect if the comparison is inconclusive.

    >>> verdict_text({"verdict": "inconclusive", "could_find": None, "ratio": False})
    'inconclusive: too few seeds'
    """
    if each["verdict"] != "inconclusive":
        return str(each["verdict"])
    if each["could_find"] is None:
        return "inconclusive: too few seeds"
    if not each["could_find"]:
        return "inconclusive: equal on all seeds"
    return f"inconclusive: an effect of {detectable_text(each)} could have been detected"


def difference_text(each: Mapping[str, Any], value: float) -> str:
    """The text of a difference in percentage points, or of a ratio of errors.

    A ratio near 1 shows two digits of its distance from 1.

    >>> difference_text({"ratio": True}, 0.7), difference_text({"ratio": True}, -1.2e-5)
    ('× 2.01', '× 0.999988')
    >>> difference_text({"ratio": False}, 0.25)
    '+25 points'
    """
    if not each["ratio"]:
        return f"{100 * value:+.3g} points" if value else "0 points"
    if not 0.0 < abs(value) < _NEAR:
        return f"{TIMES}{number(math.exp(min(value, 700.0)))}"
    places = min(12, 1 - math.floor(math.log10(abs(value))))
    return f"{TIMES}{math.exp(value):.{places}f}"
