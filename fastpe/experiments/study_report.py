"""The report of a study: sentences, Markdown, CSV, JSON and HTML as strings. Nothing is printed or written."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastpe.base.tables import markdown_table, markdown_text
from fastpe.base.version import VERSION
from fastpe.experiments import claims_report, study_page, tuning
from fastpe.experiments.comparison import ALPHA, MOST_SEEDS
from fastpe.experiments.results import as_csv, lengths_of, measure_of
from fastpe.experiments.sections import Section, as_markdown
from fastpe.experiments.study import RunKey, Study
from fastpe.experiments.table_cells import (
    COMPARISON_HEAD,
    MIXED_MARK,
    WITHIN_NOTE,
    cell_text,
    comparison_row,
    difference_text,
    effective_note,
    effective_table,
)
from fastpe.pictures import canvas, plots
from fastpe.training import config_file

Summary = Mapping[str, Any]

_NOTHING = 0.05


def files_of(
    study: Study, summary: Summary, rows: Sequence[Mapping[str, Any]], curves: Mapping[RunKey, Sequence[float]]
) -> dict[str, bytes]:
    """The contents of the report's files, by name."""
    facts = {
        "schema": 1, "fastpe": VERSION, "environment": config_file.environment(),
        "study": study.to_toml(), **summary,
    }  # fmt: skip
    if study.claims is not None:
        facts["claims"] = claims_report.facts(study, summary)
    table = as_csv(rows)
    said = claim_sections(study, summary)
    chosen = tuning.section(study, summary["choosing"]) if study.choose else None
    page = study_page.page(study, summary, verdict(study, summary), said, chosen, table, curves)
    kinds = ("svg", "pdf") if canvas.available() else ("svg",)
    drawn = {
        f"{_file(task)}.{kind}": plots.draw([study_page.plot(study, summary, task)], kind)
        for task in study.tasks
        for kind in kinds
    }
    choices = {"choices.csv": tuning.as_csv(summary["choosing"]).encode()} if study.choose else {}
    return {
        **drawn,
        **choices,
        "results.csv": table.encode(),
        "results.json": (json.dumps(facts, indent=1, allow_nan=False) + "\n").encode(),
        "results.md": (markdown(study, summary) + ("\n" + as_markdown(said) if said else "")).encode(),
        "report.html": page.encode(),
    }


def _sized(each: Mapping[str, Any]) -> str:
    """The name of an encoding and, in brackets, its difference from the baseline."""
    return f"{each['encoding']} ({difference_text(each, each['difference']['mean'])})"


def claim_sections(study: Study, summary: Summary) -> list[Section]:
    """Sections that compare the results with the claims of a paper; none if the study names no claims."""
    return [] if study.claims is None else claims_report.sections(study, summary)


def _nobody(study: Study, summary: Summary) -> list[str]:
    """A sentence that lists the tasks and lengths that no encoding solves, because there "equivalent" means little."""
    best: dict[tuple[str, str], float] = {}
    for cell in summary["cells"]:
        if "solved" in cell and cell["mean"] is not None:
            key = cell["task"], cell["length"]
            best[key] = max(best.get(key, 0.0), cell["mean"]["mean"])
    none = [f"{task} at {length}" for (task, length), mean in best.items() if mean < _NOTHING]
    return [f"No encoding gets {100 * _NOTHING:.0f} % of answers right: {', '.join(none)}."] if none else []


def _file(task: str) -> str:
    """The file name for the label of a task."""
    return "task-" + "".join(c if c.isalnum() or c in "-_" else "_" for c in task)


def verdict(study: Study, summary: Summary) -> list[str]:
    """The findings of a study in sentences; the first one is the summary."""
    every = summary["comparisons"]
    better = [each for each in every if each["verdict"] == "better"]
    worse = [each for each in every if each["verdict"] == "worse"]
    open_ = [each for each in every if each["verdict"] == "not told apart"]
    runs = len(study.encodings) * len(study.tasks) * study.count
    tasks = "1 task" if len(study.tasks) == 1 else f"{len(study.tasks)} tasks"
    alike = [each for each in every if each["verdict"] == "equivalent"]
    counts = f"{len(better)} are better, {len(worse)} worse, {len(alike)} equivalent, {len(open_)} not told apart"
    found = [
        f"{len(study.encodings)} encodings on {tasks}, {study.count} seeds: of {len(every)} comparisons with "
        f"{study.baseline} {counts}"
    ]
    if study.choose:
        found += tuning.verdict(summary["choosing"])
    if summary["same_bits"]:
        found.append(f"Some runs did not use their seeds: {'; '.join(summary['same_bits'][:3])}.")
    if len(summary["cpus"]) > 1:
        cpus = ", ".join(summary["cpus"])
        found.append(
            f"The runs were made on several CPUs, which may round differently: {cpus}. Cells with runs of several CPUs "
            f"are marked{MIXED_MARK}."
        )
    if summary["failed"]:
        found.append(f"{summary['failed']} of {runs} runs failed; all tables count them as failures.")
    for task in study.tasks:
        for length in lengths_of(study, task):
            here = [each for each in every if (each["task"], each["length"]) == (task, length)]
            ups, downs = ([_sized(e) for e in here if e["verdict"] == way] for way in ("better", "worse"))
            if ups or downs:
                parts = [f"{', '.join(names)} {way}" for names, way in ((ups, "better"), (downs, "worse")) if names]
                found.append(f"{task} at {length}: {'; '.join(parts)} than {study.baseline}.")
    found += _nobody(study, summary)
    if study.margin is not None:
        within, others = f"{study.margin:g}, of errors {100 * study.margin:g} %", max(1, len(study.encodings) - 1)
        found.append(
            f"Equivalent: the difference lies within {within}, by two one-sided sign-flip tests at 5 %, adjusted by "
            "Holm for the encodings at one length of one task. It may still differ significantly from 0."
        )
        if 2.0**-study.count > ALPHA / others:
            found.append(
                f"With {study.count} seeds and {_counted(others)} besides the baseline no equivalence can be shown, "
                "however small the differences: these tests need more seeds."
            )
    if open_:
        found.append(_untold(open_))
    configs = [study.config_of(task, encoding) for task in study.tasks for encoding in study.encodings]
    found += dict.fromkeys(f"{need}." for config in configs for need in config.met_needs())
    found.append(
        "These findings hold for these settings only. The tests are adjusted for the encodings at one length of one "
        f"task, but not for all {len(every)} comparisons together."
    )
    return found + too_few(study)


def _counted(encodings: int) -> str:
    return "1 encoding" if encodings == 1 else f"{encodings} encodings"


def too_few(study: Study) -> list[str]:
    """A sentence that there are too few seeds for any difference to be significant; no sentence if there are enough.

    >>> too_few(Study(["alibi", "nope"], ["reverse"], seeds=6))
    []
    >>> len(too_few(Study(["alibi", "rope", "nope"], ["reverse"], seeds=6)))
    1
    """
    others = len(study.encodings) - 1
    if 2.0 ** (1 - study.count) <= ALPHA / max(1, others):
        return []
    return [
        f"With {study.count} seeds and {_counted(others)} besides the baseline no difference can be significant, "
        "however large: the sign-flip test needs more seeds."
    ]


def _untold(open_: Sequence[Mapping[str, Any]]) -> str:
    """A sentence on comparisons without a significant difference: they do not show that the encodings are equal."""
    needed = sorted(each["needed"] or math.inf for each in open_ if each["difference"]["mean"])
    said = f"{len(open_)} comparisons are not told apart, which does not show that there is no difference"
    none = len(open_) - len(needed)
    parts = [f"{none} have equal means"] if none else []
    if needed:
        middle = needed[len(needed) // 2]
        seeds = f"at least {middle} seeds" if math.isfinite(middle) else f"more than {MOST_SEEDS:,} seeds"
        parts.append(f"half of the {'other ' if none else ''}observed differences would need {seeds}")
    return f"{said}: {', and '.join(parts)}."


def markdown(study: Study, summary: Summary) -> str:
    """The tables of a study in Markdown."""
    first, *others = verdict(study, summary)
    parts = ["# Study", "", markdown_text(f"{first}."), *map(markdown_text, others), ""]
    for task in study.tasks:
        measure, lengths = measure_of(study, task), lengths_of(study, task)
        what = "geometric mean" if measure.is_error else "mean"
        parts += [
            f"## {markdown_text(task)}",
            "",
            f"{measure.metric}, {what} over {study.count} seeds, 95 % interval, runs solved",
            "",
        ]
        cells = {(cell["encoding"], cell["length"]): cell for cell in summary["cells"] if cell["task"] == task}
        rows = [[name, *(cell_text(cells[name, length]) for length in lengths)] for name in study.encodings]
        parts += [markdown_table(("encoding", *lengths), rows), ""]
    if study.choose:
        parts += [as_markdown([tuning.section(study, summary["choosing"])])]
    parts += ["## Comparisons with the baseline", "", *_comparisons(study, summary), ""]
    head, rows = effective_table(study, summary)
    if rows:
        parts += [as_markdown([Section("Effective lengths", [effective_note(study, summary)], head, rows)])]
    if summary["overall"] is not None:
        parts += ["## Over all tasks", "", *_overall(summary["overall"]), ""]
    parts += ["## The study", "", "```toml", study.to_toml().rstrip(), "```", ""]
    return "\n".join(parts)


def _comparisons(study: Study, summary: Summary) -> list[str]:
    said = (
        f"Differences from {study.baseline}, or ratios for errors. Holm: p adjusted for the encodings at one length of "
        "one task. Could find: the difference that these seeds detect with a power of 80 %. Needs: the number of seeds "
        "that would detect the observed difference."
    )
    if study.margin is not None:
        said += f" Within: {WITHIN_NOTE}."
    return [
        markdown_text(said),
        "",
        markdown_table(COMPARISON_HEAD, map(comparison_row, summary["comparisons"])),
    ]


def _overall(found: Mapping[str, Any]) -> list[str]:
    head = ("encoding", "interquartile mean", "95 %", "better than the baseline", "mean rank")
    rows = []
    for name in sorted(found["ranks"], key=lambda name: -found["interquartile_mean"][name]["mean"]):
        mean = found["interquartile_mean"][name]
        ends = "-" if mean["low"] is None else f"[{mean['low']:.3f}, {mean['high']:.3f}]"
        chance = found["improvement"].get(name)
        better = "-" if chance is None else f"{chance:.2f}"
        rows.append((name, f"{mean['mean']:.3f}", ends, better, f"{found['ranks'][name]:.2f}"))
    said = f"Scores at the longest length of {', '.join(found['tasks'])}. Better than the baseline: the probability "
    said += "that a run beats a run of the baseline. "
    apart = found["critical_difference"]
    said += "" if apart is None else f"Mean ranks that differ by {apart:.2f} differ significantly (Nemenyi)."
    return [markdown_text(said), "", markdown_table(head, rows)]
