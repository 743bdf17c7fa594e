"""The report of a study: sentences, Markdown, CSV, JSON and HTML as strings. Nothing is printed or written."""

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastpe.base.tables import markdown_text
from fastpe.base.version import VERSION
from fastpe.experiments import claims_report, study_page, tuning
from fastpe.experiments.comparison import MOST_SEEDS, VERDICTS
from fastpe.experiments.results import as_csv, lengths_of
from fastpe.experiments.sections import Section, as_markdown
from fastpe.experiments.study import RunKey, Study
from fastpe.experiments.study_answer import answer, answer_of, limits, too_few
from fastpe.experiments.table_cells import MIXED_MARK, detectable_range, level, value_text
from fastpe.pictures import canvas, plots
from fastpe.training import config_file

Summary = Mapping[str, Any]


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
    told = warnings(study, summary), certainty(study, summary)
    page = study_page.page(study, summary, *told, said, chosen, table, curves)
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


def claim_sections(study: Study, summary: Summary) -> list[Section]:
    """Sections that compare the results with the claims of a paper; none if the study names no claims."""
    return [] if study.claims is None else claims_report.sections(study, summary)


def _file(task: str) -> str:
    """The file name for the label of a task."""
    return "task-" + "".join(c if c.isalnum() or c in "-_" else "_" for c in task)


def verdict(study: Study, summary: Summary) -> list[str]:
    """What a study found, in sentences. The first one is the answer."""
    each = [f"{task}: {answer_of(study, summary, task)}" for task in study.tasks] if len(study.tasks) > 1 else []
    return [answer(study, summary), *each, *warnings(study, summary), *certainty(study, summary)]


def warnings(study: Study, summary: Summary) -> list[str]:
    """What a reader must know before the results."""
    found = limits(study) if summary["comparisons"] else []
    if study.choose:
        found += tuning.verdict(summary["choosing"])
    if summary["same_bits"]:
        found.append(f"Some runs did not use their seeds: {'; '.join(summary['same_bits'][:3])}.")
    if len(summary["cpus"]) > 1:
        found.append(
            f"The runs were made on several CPUs, which may round differently: {', '.join(summary['cpus'])}. Cells "
            f"with runs of several CPUs are marked{MIXED_MARK}."
        )
    if summary["failed"]:
        runs = len(study.encodings) * len(study.tasks) * study.count
        found.append(f"{summary['failed']} of {runs} runs failed; all tables count them as failures.")
    configs = [study.config_of(task, encoding) for task in study.tasks for encoding in study.encodings]
    return found + list(dict.fromkeys(f"{need}." for config in configs for need in config.met_needs()))


def certainty(study: Study, summary: Summary) -> list[str]:
    """Sentences on how sure the comparisons with the baseline are."""
    every = summary["comparisons"]
    if not every:
        return []
    counts = {word: sum(each["verdict"] == word for each in every) for word in (*VERDICTS, "not compared")}
    said = ", ".join(f"{count} {word}" for word, count in counts.items() if count or word in VERDICTS)
    found = [f"Of {len(every)} comparisons with {study.baseline} over {study.count} seeds: {said}."]
    if open_ := [each for each in every if each["verdict"] == "inconclusive"]:
        found += _inconclusive(open_)
    if study.margin is not None:
        within = f"{100 * study.margin:g} points, or {100 * study.margin:g} % of an error"
        found.append(
            f"Equivalent: the difference lies within {within}, by two one-sided sign-flip tests at 5 %, adjusted by "
            "Holm for the encodings at one length of one task. It may still differ significantly from 0."
        )
    found.append(
        "These findings hold for these settings only. The tests are adjusted for the encodings at one length of one "
        f"task, but not for all {len(every)} comparisons together."
    )
    return found


def _inconclusive(open_: Sequence[Mapping[str, Any]]) -> list[str]:
    """Sentences on inconclusive comparisons: they do not show that the encodings are equal."""
    said = "Inconclusive does not mean equal"
    if smallest := detectable_range(open_):
        said += f": the smallest effect that could have been detected (80 % power) is {smallest}"
    needed = sorted(each["needed"] or math.inf for each in open_ if each["difference"]["mean"])
    found = [f"{said}."]
    if needed:
        middle = needed[len(needed) // 2]
        seeds = f"{middle:,} seeds or more" if math.isfinite(middle) else f"more than {MOST_SEEDS:,} seeds"
        found.append(f"To detect effects of the observed size, half of the inconclusive comparisons need {seeds}.")
    return found


def task_section(study: Study, summary: Summary, task: str) -> Section:
    """The results of a task as a table, in which each result is followed by its verdict."""
    judged = {(e["encoding"], e["length"]): e["verdict"] for e in summary["comparisons"] if e["task"] == task}
    cells = {(cell["encoding"], cell["length"]): cell for cell in summary["cells"] if cell["task"] == task}
    rows, few = [], too_few(study)
    for name in study.encodings:
        row = [name]
        for length in lengths_of(study, task):
            mean = level(cells[name, length])
            value = value_text(cells[name, length]["metric"], None if mean is None else mean["mean"])
            word = "" if few else judged.get((name, length), "baseline")
            row.append(f"{value:>7}  {word}".rstrip())
        rows.append(row)
    head = ("encoding", *(f"{length:>7}" for length in lengths_of(study, task)))
    return Section(task, (), head, rows)


def markdown(study: Study, summary: Summary) -> str:
    """The tables of a study in Markdown."""
    first, *others = [answer(study, summary), *warnings(study, summary)]
    parts = [f"# {markdown_text(study_page.title(study))}", f"**{markdown_text(first)}**", *map(markdown_text, others)]
    for task in study.tasks:
        own = task_section(study, summary, task)
        lines = [answer_of(study, summary, task)] if len(study.tasks) > 1 else []
        trimmed = [[" ".join(str(cell).split()) for cell in row] for row in own.rows]
        parts.append(as_markdown([own._replace(lines=lines, rows=trimmed, right=1)]).rstrip())
    if study.choose:
        parts.append(as_markdown([tuning.section(study, summary["choosing"])]).rstrip())
    sure = Section("How sure is this?", [*certainty(study, summary), *study_page.how(study)])
    tables = [sure, *study_page.tables(study, summary)]
    parts.append(as_markdown(tables).rstrip())
    parts += ["## The study", f"```toml\n{study.to_toml().rstrip()}\n```", ""]
    return "\n\n".join(parts)
