"""What a study says in words: which encoding is best up to the training length and beyond it, and how sure that is."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fastpe.experiments.comparison import ALPHA, detectable, least_seeds
from fastpe.experiments.results import SOLVED, lengths_of, measure_of
from fastpe.experiments.study import Study
from fastpe.experiments.table_cells import level, value_text
from fastpe.pictures.axes import number
from fastpe.training.forms import NAMES
from fastpe.training.lengths import ends

Summary = Mapping[str, Any]

NOTHING = 0.05
"""If every encoding gets fewer answers right, the differences between encodings say nothing."""
_LOSSES = ("bits_per_byte", "loss")
_NAMED = 3  # more encodings or tasks than this are counted, not named


def split(study: Study, task: str) -> tuple[list[str], list[str]]:
    """The test lengths up to the training length of a task, and the longer ones, each from short to long."""
    trained = study.config_of(task).train_length
    lengths = sorted(lengths_of(study, task), key=_end)
    return [each for each in lengths if _end(each) <= trained], [each for each in lengths if _end(each) > trained]


def _end(length: str) -> int:
    return ends(int(length) if length.isdigit() else length)[1]


def answer(study: Study, summary: Summary) -> str:
    """The answer of a study in one sentence.

    For one task it names the best encodings up to the training length and beyond it. For several tasks it counts the
    tasks on which an encoding is better than the baseline, or has the best mean if there are too few seeds to judge.
    """
    if len(study.tasks) == 1:
        task = next(iter(study.tasks))
        said = answer_of(study, summary, task)
        return f"On {task}, {said[0].lower()}{said[1:]}"
    within, beyond = ({task: part[-1] for task in study.tasks if (part := split(study, task)[k])} for k in (0, 1))
    parts = [f"up to the training length, {_winners(study, summary, within)}"] if within else []
    if beyond:
        where = "at the longest test length" if within else "beyond the training length"
        parts.append(f"{where}, {_winners(study, summary, beyond)}")
        if none := [task for task, length in beyond.items() if _nothing(study, summary, task, length)]:
            parts[-1] += f", and no encoding gets {100 * NOTHING:g} % of answers right on {listed(none, 'tasks')}"
    return _sentence("; ".join(parts) or "the study has no test lengths")


def _winners(study: Study, summary: Summary, at: Mapping[str, str]) -> str:
    """Which encodings are better than the baseline on most tasks, each at one length."""
    of = f"of {len(at)} task{'s' if len(at) > 1 else ''}"
    if len(study.encodings) == 1:
        there = [task for task in at if measure_of(study, task).larger]
        solved = sum((level(_cells(summary, task, at[task])[0]) or {"mean": 0})["mean"] >= SOLVED for task in there)
        return f"{study.baseline} solves {solved} of {len(there)} tasks" if there else f"{study.baseline} is alone"
    if too_few(study):
        won = Counter(name for task, length in at.items() for name in _best(study, summary, task, length))
        what, judged = "has the best mean", "have the best mean"
    else:
        won = Counter(
            each["encoding"] for each in summary["comparisons"]
            if each["verdict"] == "better" and at.get(each["task"]) == each["length"]
        )  # fmt: skip
        what, judged = f"is better than {study.baseline}", f"are better than {study.baseline}"
    if not won:
        return f"no encoding {what} on any task"
    most = max(won.values())
    names = [name for name in study.encodings if won[name] == most]
    each = " each" if len(names) > 1 else ""
    return f"{listed(names, most=5)} {judged if len(names) > 1 else what} on {most} {of}{each}"


def answer_of(study: Study, summary: Summary, task: str) -> str:
    """The answer of a study for one task in one sentence, without the name of the task."""
    within, beyond = split(study, task)
    trained = study.config_of(task).train_length
    parts = []
    if within:
        parts.append(f"up to the training length ({trained}), {_part(study, summary, task, within)}")
    if beyond:
        where = "beyond it" if within else f"beyond the training length ({trained})"
        parts.append(f"{where}, {_part(study, summary, task, beyond)}")
    return _sentence("; ".join(parts) or "there are no test lengths")


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."


def _part(study: Study, summary: Summary, task: str, lengths: Sequence[str]) -> str:
    """Which encodings are best at some lengths: at the longest one at which answers are right."""
    metric, larger = measure_of(study, task).metric, measure_of(study, task).larger
    known = [length for length in lengths if not _nothing(study, summary, task, length)]
    nobody = "no encoding gets" if len(study.encodings) > 1 else f"{study.baseline} does not get"
    if not known:
        return f"{nobody} {100 * NOTHING:g} % of answers right"
    names = _best(study, summary, task, known[-1])
    if not names:
        return "all runs failed"
    cells = {cell["encoding"]: cell for cell in _cells(summary, task, known[-1])}
    value = value_text(metric, (level(cells[names[0]]) or {})["mean"])
    what = f"{value} {NAMES[metric]}" if larger or metric in _LOSSES else f"{NAMES[metric]} {value}"
    what += f" at {known[-1]}" if len(lengths) > 1 else ""
    if len(study.encodings) == 1:
        said = f"{names[0]} has {what}" if larger else f"{names[0]} has a {what}"
    else:
        said = f"{_ranked(study, names, metric)} ({what}{_against(study, summary, cells, names)})"
    left = [length for length in lengths if length not in known]
    return said + (f", and {nobody} {100 * NOTHING:g} % right at {left[-1]}" if left else "")


def _ranked(study: Study, names: Sequence[str], metric: str) -> str:
    if len(names) == len(study.encodings):
        return f"{'both' if len(names) == 2 else f'all {len(names)}'} encodings are equal"
    who = f"{names[0]}, the baseline," if list(names) == [study.baseline] else listed(names)
    if metric == "exact":
        return f"{who} {'is' if len(names) == 1 else 'are'} best"
    error = "loss" if metric in _LOSSES else "error"
    return f"{who} {'has' if len(names) == 1 else 'have'} the smallest {error}"


def _against(study: Study, summary: Summary, cells: Mapping[str, Any], names: Sequence[str]) -> str:
    """The value of the baseline, if it is not among the best, and whether the difference is conclusive."""
    if study.baseline in names:
        return ""
    base = cells[study.baseline]
    mean = level(base)
    if mean is None:
        return f"; all runs of {study.baseline} failed"
    verdicts = {
        each["verdict"] for each in summary["comparisons"]
        if (each["task"], each["length"]) == (base["task"], base["length"]) and each["encoding"] in names
    }  # fmt: skip
    unsure = f", {verdicts.pop()}" if len(verdicts) == 1 and "better" not in verdicts else ""
    return f", {study.baseline} {value_text(base['metric'], mean['mean'])}{unsure}"


def _cells(summary: Summary, task: str, length: str) -> list[Mapping[str, Any]]:
    return [cell for cell in summary["cells"] if (cell["task"], cell["length"]) == (task, length)]


def _rank(cell: Mapping[str, Any], larger: bool) -> tuple[float, float]:
    """Smaller is better. Failed runs count as 0 for scores; for errors, fewer failed runs are better."""
    mean, failed = (level(cell) or {})["mean"], cell["failed"]
    return (-mean * (1 - failed / len(cell["values"])), 0.0) if larger else (failed, mean)


def _best(study: Study, summary: Summary, task: str, length: str) -> list[str]:
    """The encodings with the best mean, several if their means are equal as text; none if nothing is right."""
    measure = measure_of(study, task)
    cells = [cell for cell in _cells(summary, task, length) if level(cell) is not None]
    if not cells or _nothing(study, summary, task, length):
        return []
    best = min(cells, key=lambda cell: _rank(cell, measure.larger))

    def shown(cell: Mapping[str, Any]) -> tuple[int, str]:
        return cell["failed"], value_text(measure.metric, (level(cell) or {})["mean"])

    return [cell["encoding"] for cell in cells if shown(cell) == shown(best)]


def _nothing(study: Study, summary: Summary, task: str, length: str) -> bool:
    """Whether no encoding gets a twentieth of the answers right."""
    means = [mean["mean"] for cell in _cells(summary, task, length) if (mean := level(cell)) is not None]
    return measure_of(study, task).larger and bool(means) and max(means) < NOTHING


def listed(names: Sequence[str], what: str = "encodings", most: int = _NAMED) -> str:
    """Names as a list, or their number if there are many.

    >>> listed(["rope"]), listed(["a", "b", "c"]), listed(list("abcd"), "tasks")
    ('rope', 'a, b and c', '4 tasks')
    """
    if len(names) > most:
        return f"{len(names)} {what}"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def too_few(study: Study) -> bool:
    """Whether there are too few seeds for any difference to be significant."""
    return study.count < least_seeds(max(1, len(study.encodings) - 1))


def limits(study: Study) -> list[str]:
    """Sentences on what cannot be concluded, because there are too few seeds.

    >>> limits(Study(["alibi", "rope", "nope"], ["reverse"], seeds=3))[0].partition(":")[0]
    'With 3 seeds no difference can be called significant'
    """
    others, found = len(study.encodings) - 1, []
    seeds = "1 seed" if study.count == 1 else f"{study.count} seeds"
    if others and too_few(study):
        compared = "1 comparison" if others == 1 else f"{others} comparisons"
        found.append(
            f"With {seeds} no difference can be called significant: at least {least_seeds(others)} seeds are needed "
            f"for {compared} at each length."
        )
    if others and study.margin is not None and 2.0**-study.count > ALPHA / others:
        found.append(
            f"With {seeds} no equivalence can be shown, however small the differences: these tests need more seeds."
        )
    return found


def can_be_concluded(study: Study) -> list[str]:
    """Sentences on what the number of seeds allows to conclude, before there are results.

    >>> can_be_concluded(Study(["alibi", "rope", "nope"], ["reverse"], seeds=8))[0]
    'With 8 seeds differences can be called significant (at 5 %, for 2 comparisons at each length).'
    """
    others = len(study.encodings) - 1
    if not others:
        return ["The study has one encoding, so there is nothing to compare."]
    found, count = limits(study), max(study.count, least_seeds(others))
    if not too_few(study):
        compared = "1 comparison" if others == 1 else f"{others} comparisons"
        found.append(
            f"With {study.count} seeds differences can be called significant (at 5 %, for {compared} at each length)."
        )
    least = number(detectable(1.0, count, others) or 0.0)
    found.append(
        f"The smallest difference that {count} seeds detect with 80 % power depends on the spread: {least} standard "
        "deviations of the differences" + ("." if too_few(study) else ", which are reported at the end.")
    )
    return found
