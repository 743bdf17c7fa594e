"""The report of a study as one HTML file that loads no other files. It can be printed, and read without colour."""

import csv
import html
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastpe.base.tables import csv_text
from fastpe.experiments import claims_report
from fastpe.experiments.comparison import VERDICTS
from fastpe.experiments.rank_diagram import rank_diagram
from fastpe.experiments.results import SOLVED, lengths_of, measure_of
from fastpe.experiments.sections import Section
from fastpe.experiments.study import RunKey, Study
from fastpe.experiments.table_cells import (
    COMPARISON_HEAD,
    MIXED_MARK,
    WITHIN_NOTE,
    cell_text,
    comparison_row,
    effective_note,
    effective_table,
)
from fastpe.pictures import axes, svg, web
from fastpe.training import config_file
from fastpe.training.lengths import ends

Summary = Mapping[str, Any]

_COLUMNS = ("task", "encoding", "seed", "length", "metric", "value", "updates", "seconds", "failed")
_REAL = ("value", "seconds")
_LINE = 60  # longer cells are broken into several lines
_ALIKE = 0.05  # a column whose numbers differ relatively by less than this is not shaded


def page(
    study: Study,
    summary: Summary,
    verdict: Sequence[str],
    claims: Sequence[Section],
    chosen: Section | None,
    values: str,
    curves: Mapping[RunKey, Sequence[float]],
) -> str:
    """The page of a study as HTML.

    Parameters
    ----------
    study : Study
    summary : dict
        The statistics, as `fastpe.experiments.results.summary` returns them.
    verdict : sequence of str
        The findings.
    claims : sequence of Section
        Sections on the claims of a paper.
    chosen : Section or None
        The section on tuning, if settings were chosen.
    values : str
        The table of all values as CSV. The page contains only the metrics that tasks are judged by.
    curves : dict of RunKey to sequence of float
        The training losses of each run, one for each epoch.
    """
    parts = [
        section("Findings", _list(verdict) + _how(study)),
        section("Encodings and tasks", _matrix(study, summary)),
        "" if chosen is None else section(chosen.title, claimed(chosen)),
        *(section(f"Task {task}", _task(study, summary, task)) for task in study.tasks),
        *(section(each.title, claimed(each)) for each in claims),
        section("Comparisons with the baseline", _comparisons(summary)),
        section("Effective lengths", _effective(study, summary)),
        section("Over all tasks", _overall(summary)),
        section("Loss in training", _losses(study, curves)),
        section("Training time", _costs(study, values)),
        section("All runs", _runs(values)),
        section("How to repeat the study", _repeat(study)),
    ]
    return document(f"{len(study.encodings)} encodings on {', '.join(study.tasks)}", parts)


def document(title: str, parts: Iterable[str]) -> str:
    """An HTML file that consists of the parts that `section` returns."""
    return web.document(title, "".join(parts), "fastpe.experiments", "page")


def section(title: str, content: str) -> str:
    """A part of a page under a heading, which is escaped; "" if there is no content."""
    return f"<section><h2>{html.escape(title)}</h2>\n{content}</section>\n" if content else ""


def _how(study: Study) -> str:
    """A paragraph on how the numbers of the page were computed."""
    least, base = 2.0 ** (1 - study.count), html.escape(study.baseline)
    stops = [task for task in study.tasks if study.config_of(task).stop_solved]
    told = [
        "With the same seed, all encodings have the same initial weights, data, order and test sequences, so run k is",
        f"compared with run k of {base}. p: from the sign-flip test, at least {least:.2g} with {study.count} seeds.",
        "Holm: p adjusted for the encodings at one length of one task; below 0.05 the verdict is better or worse.",
        "Intervals: 95 %, Student's t, not adjusted. Could find: the true difference that this number of seeds detects",
        "with a power of 80 %, by the t test at Holm's first step.",
        f"Solved: the number of runs with {100 * SOLVED:.0f} % of answers right, and the exact interval of their",
        "share. If only some runs solve a task, this says more than a mean.",
    ]
    if study.margin is not None:
        told.append(f"Within: {WITHIN_NOTE}.")
    told.append(_nothing_chosen(study))
    if stops:
        told.append(f"Runs of {html.escape(', '.join(stops))} stop early once all validation answers are right.")
    return f"<p>{' '.join(told)}</p>"


def _nothing_chosen(study: Study) -> str:
    """A sentence that says which settings were chosen, and how."""
    if not study.choose:
        return "No setting was chosen by these results. The page shows all runs, equally many of every encoding."
    names = html.escape(", ".join(study.choose))
    return (
        f"Chosen by validation on other seeds, from {len(study.candidates)} candidates for every task and encoding: "
        f"{names}, see below. No other setting was chosen, and none was chosen by these results."
    )


def _list(lines: Iterable[str]) -> str:
    first, *rest = (html.escape(line) for line in lines)
    return f'<p class="verdict">{first}.</p>\n<ul>{"".join(f"<li>{line}</li>" for line in rest)}</ul>\n'


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table. A click (or Enter) on the header of a column sorts it."""
    heads = "".join(f'<th><button type="button">{html.escape(cell)}</button></th>' for cell in head)
    body = "".join(f"<tr>{''.join(map(_td, row))}</tr>" for row in rows)
    return _wide(f'<table class="sortable"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table>')


def _td(cell: str) -> str:
    """A cell; verdicts have a colour."""
    kind = f' class="{cell.replace(" ", "-")}"' if cell in VERDICTS else ' class="said"' if len(cell) > _LINE else ""
    return f"<td{kind}>{html.escape(cell)}</td>"


def _wide(content: str) -> str:
    """The content in a box that scrolls sideways on a narrow page."""
    return f'<div class="wide">{content}</div>\n'


def _matrix(study: Study, summary: Summary) -> str:
    """The means at the longest length, shaded from the worst to the best of each task."""
    rows = []
    for encoding in study.encodings:
        cells = [f"<th>{html.escape(encoding)}</th>"]
        for task in study.tasks:
            measure, length = measure_of(study, task), lengths_of(study, task)[-1]
            known = [c for c in summary["cells"] if (c["task"], c["length"]) == (task, length)]
            own = next(cell for cell in known if cell["encoding"] == encoding)
            levels = [level for cell in known if (level := _level(cell)) is not None]
            share = _share(_level(own), levels, measure.larger)
            mark = ("" if own["failed"] == 0 else f" ({own['failed']} failed)") + (
                MIXED_MARK if own.get("mixed") else ""
            )
            number = "-" if _level(own) is None else f"{_level(own):.3g}"
            cells.append(f'<td style="--s:{share:.2f}">{number}{mark}</td>')
        rows.append(f"<tr>{''.join(cells)}</tr>")
    heads = ""
    for task in study.tasks:
        under = f"{measure_of(study, task).metric} at {lengths_of(study, task)[-1]}"
        heads += f"<th>{html.escape(task)}<br><small>{under}</small></th>"
    said = (
        "<p>Means over seeds at the longest length (geometric means for errors). Darker is better in each column.</p>"
    )
    top = f"<thead><tr><th></th>{heads}</tr></thead>"
    return said + _wide(f'<table class="matrix">{top}<tbody>{"".join(rows)}</tbody></table>')


def _level(cell: Mapping[str, Any]) -> float | None:
    found = cell.get("geometric") or cell["mean"]
    return None if found is None else float(found["mean"])


def _share(value: float | None, levels: Sequence[float], larger: bool) -> float:
    """The position of a value between the worst (0) and the best (1) of its column."""
    if value is None or not levels or max(levels) - min(levels) <= _ALIKE * max(map(abs, levels)):
        return 0.0
    turn = (lambda x: x) if larger else (lambda x: -math.log(max(x, 1e-300)))
    low, high = sorted((turn(min(levels)), turn(max(levels))))
    return (turn(value) - low) / (high - low)


def plot(study: Study, summary: Summary, task: str) -> svg.Plot:
    """The curves of a task over length, with the errors that a paper claims."""
    measure, lengths = measure_of(study, task), lengths_of(study, task)
    known = {(c["encoding"], c["length"]): c for c in summary["cells"] if c["task"] == task}
    places = [ends(int(n) if n.isdigit() else n)[1] for n in lengths]
    lines = []
    for encoding in study.encodings:
        cells = [known[encoding, length] for length in lengths]
        seeds = [
            [(x, value) for x, value in zip(places, own, strict=True) if value is not None]
            for own in zip(*(cell["values"] for cell in cells), strict=True)
        ]
        means = [(x, cell.get("geometric") or cell["mean"]) for x, cell in zip(places, cells, strict=True)]
        band = [(x, m["low"], m["high"]) for x, m in means if m and m["low"] is not None]
        lines.append(svg.Line(encoding, [(x, m["mean"]) for x, m in means if m], seeds, band))
    length = study.config_of(task).train_length
    top = None if measure.is_error else 1.0
    told = claims_report.references(study, task) if study.claims is not None else []
    return svg.Plot(
        lines, axes.LENGTH, axes.OF_METRIC[measure.metric], title=task, log_y=measure.is_error, marked=length, top=top,
        percent=not measure.is_error, references=told,
    )  # fmt: skip


def _task(study: Study, summary: Summary, task: str) -> str:
    measure, lengths = measure_of(study, task), lengths_of(study, task)
    known = {(c["encoding"], c["length"]): c for c in summary["cells"] if c["task"] == task}
    rows = [[name, *(cell_text(known[name, length]) for length in lengths)] for name in study.encodings]
    better = "smaller" if measure.is_error else "larger"
    said = _described(study, task)
    said += (
        f"<p>{measure.metric}; {better} is better. Thin lines are seeds, the band is the 95 % interval of the mean, "
    )
    said += "and the dashed line marks the training length.</p>"
    drawn = plot(study, summary, task)
    return said + svg.inline(drawn) + _hollow(drawn) + table(("encoding", *lengths), rows)


def _hollow(drawn: svg.Plot) -> str:
    """A sentence that explains the hollow marks of a plot; "" if there are none."""
    black = " and ".join(each.name for each in drawn.references if each.like is None)
    said = f"Hollow marks are the paper's errors, in the colours of the encodings. In black: {html.escape(black)}."
    return f"<p>{said}</p>" if drawn.references else ""


def _described(study: Study, task: str) -> str:
    """A paragraph with the task's name and summary, and the share of answers that guessing gets right."""
    config = study.config_of(task)
    chosen, parts = config.chosen, []
    for length in config.test_lengths if chosen.task.kind in ("answer", "labels") else ():
        guess = chosen.chance(int(chosen.lengths.within(*ends(length))[-1]))
        if guess is not None and guess.exact is not None:
            parts.append(f"{guess.exact:.2g} at {length}")
    chance = f" By chance, whole answers: {', '.join(parts)}." if parts else ""
    return f"<p>{html.escape(chosen.name)}: {html.escape(chosen.task.summary)}.{chance}</p>"


def claimed(said: Section) -> str:
    """The text and table of a section, such as a paper's claims, as HTML."""
    lines = "".join(f"<p>{html.escape(line)}</p>" for line in said.lines)
    return lines + (table(said.head, said.rows) if said.rows else "")


def _comparisons(summary: Summary) -> str:
    said = "<p>Values after an x are ratios of errors (smaller is better); all others are differences of scores.</p>"
    said += '<p><label>Show only rows that contain <input type="search" class="filter"></label></p>'
    return said + table(COMPARISON_HEAD, (comparison_row(each) for each in summary["comparisons"]))


def _effective(study: Study, summary: Summary) -> str:
    head, rows = effective_table(study, summary)
    return f"<p>{html.escape(effective_note(study, summary))}</p>{table(head, rows)}" if rows else ""


def _overall(summary: Summary) -> str:
    found = summary["overall"]
    if found is None:
        return ""
    lines = [
        svg.Line(name, list(zip(found["thresholds"], shares, strict=True)), [], [])
        for name, shares in found["profile"].items()
    ]
    rows = []
    for name, mean in found["interquartile_mean"].items():
        interval = "-" if mean["low"] is None else f"{mean['low']:.3f} to {mean['high']:.3f}"
        better = found["improvement"].get(name)
        rows.append([name, f"{mean['mean']:.3f}", interval, "-" if better is None else f"{better:.2f}",
                     f"{found['ranks'][name]:.2f}"])  # fmt: skip
    apart = found["critical_difference"]
    tasks = html.escape(", ".join(found["tasks"]))
    said = (
        f"<p>Scores at the longest length of {tasks}; the chance level is not subtracted. The curves show the share of "
    )
    said += (
        "runs whose score is above a threshold. Intervals describe the spread over seeds, not over tasks. Better than "
    )
    said += "the baseline: the probability that a run beats a run of the baseline, where a tie counts half.</p>"
    if apart is not None:
        said += (
            f"<p>Mean ranks that differ by {apart:.2f} differ significantly (Nemenyi). Bars join ranks that do not.</p>"
        )
        said += rank_diagram(found["ranks"], apart)
    head = ("encoding", "interquartile mean", "95 %", "better than the baseline", "mean rank")
    return said + svg.inline(svg.Plot(lines, "score", "share of runs above", log_x=False, top=1.0)) + table(head, rows)


def _losses(study: Study, curves: Mapping[RunKey, Sequence[float]]) -> str:
    """Plots of the mean training loss over seeds by epoch."""
    parts = []
    for task in study.tasks:
        lines = []
        for encoding in study.encodings:
            own = [curve for key, curve in curves.items() if (key.task, key.encoding) == (task, encoding) and curve]
            shortest = min(map(len, own), default=0)
            means = [(k + 1, sum(curve[k] for curve in own) / len(own)) for k in range(shortest)]
            lines.append(svg.Line(encoding, [(x, y) for x, y in means if y > 0], [], []))
        parts.append(
            f"<h3>{html.escape(task)}</h3>"
            + svg.inline(svg.Plot(lines, "epoch", "training loss", log_x=False, log_y=True))
        )
    return "".join(parts)


def _costs(study: Study, text: str) -> str:
    """The table of the mean training times over seeds, in seconds."""
    seconds: dict[tuple[str, str], dict[str, float]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        if row["seconds"]:
            seconds.setdefault((row["task"], row["encoding"]), {})[row["seed"]] = float(row["seconds"])
    rows = []
    for encoding in study.encodings:
        own = [list(seconds.get((task, encoding), {}).values()) for task in study.tasks]
        rows.append([encoding, *(f"{sum(each) / len(each):.2f}" if each else "-" for each in own)])
    return "<p>Seconds of training on one thread, means over seeds.</p>" + table(("encoding", *study.tasks), rows)


def _runs(text: str) -> str:
    """The table of the metrics that tasks are judged by, and the script that shows it."""
    buttons = (("show", "Show the table"), ("download", "Download the table (CSV)"))
    shown = " ".join(f'<button type="button" id="{key}">{words}</button>' for key, words in buttons)
    raw = html.escape(_short(text))
    script = web.script("fastpe.experiments", "runs")
    return f'<p>{shown}</p><div id="raw"></div><script type="text/csv" id="csv">{raw}</script>\n{script}'


def _short(text: str) -> str:
    """The CSV rows of failed runs and of the metrics that tasks are judged by, without identity and CPU."""
    rows = (row for row in csv.DictReader(io.StringIO(text)) if row["metric"] in ("exact", "mse", "bits_per_byte", ""))
    return csv_text(
        _COLUMNS,
        ([f"{float(row[key]):.6g}" if key in _REAL and row[key] else row[key] for key in _COLUMNS] for row in rows),
    )


def _repeat(study: Study) -> str:
    found = config_file.environment()
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    cpu = f"{found['cpu']['name']}, {found['cpu']['system']}, {' '.join(found['cpu']['vectors'])}"
    return (
        f"<p>{html.escape(versions)}; {html.escape(cpu)}. Save this as study.toml:</p>"
        f"<pre>{html.escape(study.to_toml())}</pre><pre>fastpe compare --study study.toml --out FOLDER</pre>\n"
    )
