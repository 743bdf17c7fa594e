"""The report of a study as one HTML file that loads no other files. It can be printed, and read without colour."""

import base64
import csv
import io
import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from markupsafe import Markup

from fastpe.base.tables import csv_cell, csv_text
from fastpe.experiments import claims_report, study_answer
from fastpe.experiments.results import SOLVED, measure_of
from fastpe.experiments.sections import Section
from fastpe.experiments.study import RunKey, Study
from fastpe.experiments.table_cells import (
    MIXED_MARK,
    OVERALL_HEAD,
    TIMES,
    WITHIN_NOTE,
    Cell,
    comparison_table,
    difference_text,
    effective_note,
    effective_table,
    level,
    overall_note,
    overall_rows,
    results_table,
    value_text,
    verdict_text,
)
from fastpe.pictures import axes, svg, web
from fastpe.pictures.colours import Colour
from fastpe.training import config_file
from fastpe.training.lengths import ends

Summary = Mapping[str, Any]

_COLUMNS = ("task", "encoding", "seed", "length", "metric", "value", "updates", "seconds", "failed")
_REAL = ("value", "seconds")
_WIDE, _PAIR, _NARROW = (1200, 420), (640, 320), (360, 300)  # sizes of a single panel, of one of several, on a phone
_TENFOLD = math.log(10.0)  # a ratio of errors with the strongest colour
_GOOD = ("better", "TRUE", "TRUE IF", "HOLDS")
_BAD = ("worse", "FALSE", "DOES NOT HOLD", "IMPOSSIBLE")
_CHANCE = 1e-3  # smaller shares of answers that guessing gets right are not shown
_NOT_LISTED = {
    "encoding", "options", "task", "seed", "digest", "alphabet", "text_places", "tokenizer", "tokenizer_content",
}  # fmt: skip
_MARKS = {"better": "▲", "worse": "▼", "equivalent": "="}


def page(
    study: Study,
    summary: Summary,
    warnings: Sequence[str],
    notes: Sequence[str],
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
    warnings : sequence of str
        What a reader must know before the results, such as runs that failed.
    notes : sequence of str
        Sentences on how sure the results are.
    claims : sequence of Section
        Sections on the claims of a paper.
    chosen : Section or None
        The section on tuning, if settings were chosen.
    values : str
        The table of all values as CSV. The page contains only the metrics that tasks are judged by.
    curves : dict of RunKey to sequence of float
        The training losses of each run, one for each epoch.
    """
    plots = [plot(study, summary, task) for task in study.tasks]
    size = _WIDE if len(plots) == 1 else _PAIR
    panels = [
        {
            "task": task, "answer": study_answer.answer_of(study, summary, task), "about": _described(study, task),
            "wide": _element(drawn, size), "narrow": _element(_means(drawn), _NARROW), "hollow": _hollow(drawn),
        }
        for task, drawn in zip(study.tasks, plots, strict=True)
    ]  # fmt: skip
    return web.render(
        "fastpe.experiments/page.html",
        title=title(study),
        answer=study_answer.answer(study, summary),
        facts=_facts(study),
        warnings=warnings,
        study=study,
        panels=panels,
        legend=[
            (name, Markup(_swatch(*plots[0].styles[name]))) for name in study.encodings
        ],  # SVG, whose texts are escaped
        matrix=_matrix(study, summary),
        claims=claims,
        chosen=chosen,
        notes=[*notes, *how(study)],
        tables=tables(study, summary),
        losses=[(each.title, _element(each, _PAIR)) for each in _losses(study, curves)],
        costs=_costs(study, values),
        settings=_settings(study),
        environment=_environment(),
        csv=base64.b64encode(_short(study, values).encode()).decode(),
        kind=kind,
    )


def notebook(study: Study, summary: Summary) -> str:
    """The answer of a study and the means of all encodings on all tasks, as HTML for a notebook."""
    return web.render(
        "fastpe.experiments/notebook.html",
        answer=study_answer.answer(study, summary),
        study=study,
        matrix=_matrix(study, summary),
    )


def sections_page(name: str, sections: Sequence[Section], about: Sequence[str] = ()) -> str:
    """A page of sections, with a title and paragraphs above them."""
    return web.render("fastpe.experiments/sections.html", title=name, about=about, sections=sections, kind=kind)


def title(study: Study) -> str:
    """The title of a study.

    >>> title(Study(["alibi", "nope"], ["reverse"]))
    'alibi and nope compared on reverse'
    """
    if study.claims is not None:
        return f"Table 5 of Li (2025) reproduced with {study.count} seeds"
    encodings, tasks = (study_answer.listed(list(names), what) for names, what in
                        ((study.encodings, "encodings"), (study.tasks, "tasks")))  # fmt: skip
    return f"{encodings} {'compared ' if len(study.encodings) > 1 else ''}on {tasks}"


def kind(cell: str | Cell) -> str:
    """The class of a cell: a verdict has a colour, numbers are aligned to the right, and sentences are broken.

    >>> kind("worse"), kind("0.12"), kind(Cell("0.12", "[0.1, 0.14]")), kind("rope")
    ('bad', 'number', 'number', '')
    """
    text = cell.value if isinstance(cell, Cell) else cell
    if text in _GOOD or text in _BAD:
        return "good" if text in _GOOD else "bad"
    if text[:1].isdigit() or text[:1] in "+-" + TIMES or isinstance(cell, Cell):
        return "number" if len(text) < 30 else "said"
    return "said" if len(text) > 40 else ""


def plot(study: Study, summary: Summary, task: str) -> svg.Plot:
    """The curves of a task over length, with the errors that a paper claims.

    The value of a range of lengths is drawn over the whole range. The baseline is grey, whichever encoding it is.
    """
    measure, lengths = measure_of(study, task), [*itertools.chain(*study_answer.split(study, task))]
    known = {(c["encoding"], c["length"]): c for c in summary["cells"] if c["task"] == task}
    spans = [ends(int(n) if n.isdigit() else n) for n in lengths]
    keys = Counter(entry["encoding"] for entry in study.encodings.values())
    lines = []
    for encoding, entry in study.encodings.items():
        cells = [known[encoding, length] for length in lengths]
        at = [(x, cell) for span, cell in zip(spans, cells, strict=True) for x in dict.fromkeys(span)]
        runs = range(study.count)
        seeds = [[(x, cell["values"][k]) for x, cell in at if cell["values"][k] is not None] for k in runs]
        means = [(x, mean) for x, cell in at if (mean := level(cell)) is not None]
        band = [(x, mean["low"], mean["high"]) for x, mean in means if mean["low"] is not None]
        colour = entry["encoding"] if keys[entry["encoding"]] == 1 else encoding
        colour = "nope" if encoding == study.baseline else colour
        lines.append(svg.Line(encoding, [(x, mean["mean"]) for x, mean in means], seeds, band, colour))
    values = [y for line in lines for _, y in line.mean if y > 0]
    log_y = measure.metric == "mse" or (measure.is_error and bool(values) and max(values) > 4 * min(values))
    ranges = any(first < last for first, last in spans)
    return svg.Plot(
        lines, axes.LENGTH, axes.OF_METRIC[measure.metric], title=task, log_y=log_y,
        log_x=not ranges and spans[-1][1] >= 8 * spans[0][0],
        marked=study.config_of(task).train_length, top=None if measure.is_error else 1.0,
        floor=None if measure.is_error else 0.0, percent=not measure.is_error,
        marks=sorted({spans[0][0], *(last for _, last in spans)}) if ranges else (),
        references=claims_report.references(study, task) if study.claims is not None else [],
    )  # fmt: skip


def _element(plot: svg.Plot, size: tuple[int, int]) -> Markup:
    return Markup(svg.element(plot, *size))  # SVG, whose texts are escaped


def _means(plot: svg.Plot) -> svg.Plot:
    """The plot without single runs and intervals."""
    return replace(plot, lines=[replace(line, seeds=(), band=()) for line in plot.lines])


def _swatch(colour: Colour, dashes: str) -> Markup:
    return Markup(f'<svg width="26" height="8" aria-hidden="true">{svg.stroke(colour, dashes, 26)}</svg>')


def _facts(study: Study) -> list[str]:
    """A few words each on the size of the study."""
    counted = ((len(study.encodings), "encoding"), (len(study.tasks), "task"), (study.count, "seed"))
    facts = [f"{count} {word}{'s' if count > 1 else ''}" for count, word in counted]
    return [*facts, f"baseline {study.baseline}"] if len(study.encodings) > 1 else facts


def _described(study: Study, task: str) -> str:
    """A sentence with the task's name and summary, and the share of answers that guessing gets right."""
    config = study.config_of(task)
    chosen, parts = config.chosen, defaultdict[str, list[str]](list)
    for length in config.test_lengths if chosen.task.kind in ("answer", "labels") else ():
        longest = int(chosen.lengths.within(*ends(length))[-1])
        guesses = {"By chance": chosen.chance(longest)}
        guesses |= {f"By the shortcut, {name}": level for name, level in chosen.shortcuts(longest).items()}
        for name, guess in guesses.items():
            if guess is not None and guess.exact is not None and guess.exact >= _CHANCE:
                parts[name].append(f"{value_text('exact', guess.exact)} at {length}")
    levels = "".join(f" {name}: {', '.join(found)}." for name, found in parts.items())
    return f"{chosen.name}: {chosen.task.summary}.{levels}"


def _hollow(drawn: svg.Plot) -> str:
    """A sentence that explains the hollow marks of a plot; "" if there are none."""
    black = " and ".join(each.name for each in drawn.references if each.like is None)
    said = f"Hollow marks are the paper's errors, in the colours of the encodings. Without colour: {black}."
    return said if drawn.references else ""


def _matrix(study: Study, summary: Summary) -> dict[str, Any]:
    """The means of all encodings on all tasks, coloured by their difference from the baseline."""
    judged = {(each["task"], each["encoding"], each["length"]): each for each in summary["comparisons"]}
    cells = {(cell["task"], cell["encoding"], cell["length"]): cell for cell in summary["cells"]}
    heads = []
    for task in study.tasks:
        within, beyond = study_answer.split(study, task)
        heads.append((task, axes.OF_METRIC[measure_of(study, task).metric], [*within, *beyond], len(within)))
    rows = []
    for encoding in sorted(study.encodings, key=lambda name: name != study.baseline):
        row = []
        for task, _, lengths, trained in heads:
            for place, length in enumerate(lengths):
                cell, each = cells[task, encoding, length], judged.get((task, encoding, length))
                row.append(_coloured(cell, each) | {"first": not place, "beyond": place >= trained})
        rows.append((encoding, row))
    return {"heads": heads, "rows": rows, "mixed": any(cell.get("mixed") for cell in summary["cells"])}


def _coloured(cell: Mapping[str, Any], each: Mapping[str, Any] | None) -> dict[str, Any]:
    """A cell of the matrix: its text, its mark, what it says in words, and the strength of its colour in percent."""
    mean = level(cell)
    text = value_text(cell["metric"], None if mean is None else mean["mean"]).removesuffix(" %")
    text += (f" ({cell['failed']} failed)" if cell["failed"] else "") + (MIXED_MARK if cell.get("mixed") else "")
    if each is None or each["verdict"] not in _MARKS:
        return {"text": text, "mark": "", "said": "" if each is None else verdict_text(each), "class": "", "share": 0}
    difference = each["difference"]["mean"]
    share = round(100 * min(1.0, abs(difference) / (_TENFOLD if each["ratio"] else 1.0)))
    said = f"{each['verdict']}: {difference_text(each, difference)}"
    return {"text": text, "mark": _MARKS[each["verdict"]], "said": said, "class": kind(each["verdict"]), "share": share}


def how(study: Study) -> list[str]:
    """Sentences on how the numbers of the page were computed."""
    least, base = 2.0 ** (1 - study.count), study.baseline
    told = [
        f"With the same seed, all encodings have the same initial weights, data, order and test sequences, so each run "
        f"is compared with the run of {base} with the same seed.",
        f"p: the sign-flip test (at least {axes.number(least)} with {study.count} seeds), adjusted by Holm for the "
        "encodings at one length of one task. Below 0.05, the verdict is better or worse.",
        "Brackets: 95 % intervals (Student's t, not adjusted).",
        "Detectable: the smallest true difference that this number of seeds detects with 80 % power (t test at Holm's "
        "first step). Seeds needed: the number of seeds that would detect the observed difference.",
        f"Solved: the number of runs with at least {100 * SOLVED:.0f} % exact answers.",
        f"Errors are compared by their ratio ({TIMES.strip()}), and averaged by their geometric mean.",
    ]
    if study.margin is not None:
        told.append(f"p (equivalent): {WITHIN_NOTE}.")
    told.append(_nothing_chosen(study))
    if stops := [task for task in study.tasks if study.config_of(task).stop_solved]:
        told.append(f"Runs of {', '.join(stops)} stop early once all validation answers are right.")
    return told


def _nothing_chosen(study: Study) -> str:
    """A sentence that says which settings were chosen, and how."""
    if not study.choose:
        return "No setting was chosen by these results. The page shows all runs, equally many of every encoding."
    return (
        f"Chosen by validation on other seeds, from {len(study.candidates)} candidates for every task and encoding: "
        f"{', '.join(study.choose)}. No other setting was chosen, and none was chosen by these results."
    )


def tables(study: Study, summary: Summary) -> list[Section]:
    """The tables of statistics."""
    found = [
        Section(f"Results on {task}", [f"{axes.OF_METRIC[measure_of(study, task).metric]}, means over {study.count} "
                                       "seeds, 95 % intervals."], *results_table(study, summary, task))
        for task in study.tasks
    ]  # fmt: skip
    if summary["comparisons"]:
        found.append(Section("Comparisons with the baseline", (), *comparison_table(study, summary)))
    head, rows = effective_table(study, summary)
    if rows:
        found.append(Section("Longest length solved", [effective_note(study, summary)], head, rows))
    if summary["overall"] is not None and len(study.tasks) > 1:
        overall = summary["overall"]
        found.append(Section("Over all tasks", [overall_note(overall)], OVERALL_HEAD, overall_rows(overall)))
    return found


def _losses(study: Study, curves: Mapping[RunKey, Sequence[float]]) -> list[svg.Plot]:
    """Plots of the mean training loss over seeds by epoch."""
    found = []
    for task in study.tasks:
        lines = []
        for encoding, entry in study.encodings.items():
            own = [curve for key, curve in curves.items() if (key.task, key.encoding) == (task, encoding) and curve]
            shortest = min(map(len, own), default=0)
            means = [(k + 1, sum(curve[k] for curve in own) / len(own)) for k in range(shortest)]
            colour = "nope" if encoding == study.baseline else entry["encoding"]
            lines.append(svg.Line(encoding, [(x, y) for x, y in means if y > 0], encoding=colour))
        found.append(svg.Plot(lines, "epoch", "training loss", title=task, log_x=False, log_y=True))
    return [each for each in found if each.points]


def _costs(study: Study, text: str) -> Section:
    """The table of the mean training times over seeds, in seconds."""
    seconds: dict[tuple[str, str], dict[str, float]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        if row["seconds"]:
            seconds.setdefault((row["task"], row["encoding"]), {})[row["seed"]] = float(row["seconds"])
    rows = []
    for encoding in study.encodings:
        own = [list(seconds.get((task, encoding), {}).values()) for task in study.tasks]
        rows.append([encoding, *(axes.number(sum(each) / len(each)) if each else "-" for each in own)])
    said = "Seconds of training on one thread, means over seeds."
    return Section("Run time", [said], ("encoding", *study.tasks), rows)


def _settings(study: Study) -> Section:
    """The settings that differ from the defaults of `TrainConfig`, for all runs, for a task or for an encoding."""
    configs = {pair: study.config_of(*pair) for pair in itertools.product(study.tasks, study.encodings)}
    rows = []
    for field in fields(next(iter(configs.values()))):
        if field.name in _NOT_LISTED:
            continue
        values = {pair: getattr(config, field.name) for pair, config in configs.items()}
        changed = {pair: value for pair, value in values.items() if value not in (field.default, {}, None)}
        by_task = {task: {_plain(value) for (own, _), value in values.items() if own == task} for task in study.tasks}
        if len({_plain(value) for value in values.values()}) == 1:
            rows += [(field.name, _plain(next(iter(changed.values()))), "all runs")] if changed else []
        elif all(len(each) == 1 for each in by_task.values()):
            rows += [(field.name, each.pop(), task) for task, each in by_task.items()]
        else:
            rows += [(field.name, _plain(value), f"{name} on {task}") for (task, name), value in changed.items()]
    for encoding, entry in study.encodings.items():
        rows += [(name, _plain(value), encoding) for name, value in entry.get("options", {}).items()]
    said = "Only settings that differ from the defaults of fastpe.TrainConfig are listed."
    return Section(
        "Settings", [f"Preset: {study.preset}. {said}" if study.preset else said], ("setting", "value", "of"), rows
    )


def _plain(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={_plain(each)}" for name, each in value.items())
    if isinstance(value, tuple | list):
        return ", ".join(map(_plain, value))
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def _environment() -> str:
    found = config_file.environment()
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return f"{versions}; {found['cpu']['name']}, {found['cpu']['system']}, {' '.join(found['cpu']['vectors'])}."


def _short(study: Study, text: str) -> str:
    """The CSV rows of failed runs and of the metrics that tasks are judged by, without identity and CPU."""
    judged = {csv_cell(task): measure_of(study, task).metric for task in study.tasks}
    rows = (row for row in csv.DictReader(io.StringIO(text)) if row["metric"] in (judged[row["task"]], ""))
    return csv_text(
        _COLUMNS,
        ([f"{float(row[key]):.6g}" if key in _REAL and row[key] else row[key] for key in _COLUMNS] for row in rows),
    )
