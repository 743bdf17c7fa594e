"""Collect the results of the studies in bench/results by encoding, for `fastpe atlas`.

python bench/findings.py    # writes fastpe/pictures/atlas/findings.json from the committed results
"""

import csv
import json
import statistics
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastpe.base.files import write_file
from fastpe.encodings.registry import built_in
from fastpe.experiments import results, table_cells
from fastpe.experiments.comparison import VERDICTS
from fastpe.experiments.study import RunKey, Study

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"
FILE = ROOT / "fastpe" / "pictures" / "atlas" / "findings.json"

Rows = list[list[str]]


def collect() -> dict[str, Any]:
    """All studies, each with its tables by encoding."""
    studies = [compared(), newer(), tasks(), texts(), sums(), drift(), lacoco(), orbits()]
    unknown = {name for study in studies for name in study["of"]} - set(built_in())
    assert not unknown, f"no encodings: {unknown}"
    return {"schema": 1, "costs": costs(), "studies": studies}


def costs() -> dict[str, float]:
    """The time of a training step by encoding, relative to a model without an encoding."""
    rows = next(rows for _, head, rows in _tables("encodings.md") if head[:2] == ["encoding", "slots"])
    return {name: float(relative.partition("x")[0]) for name, _, _, relative, *_ in rows if relative != "-"}


def content() -> bytes:
    """The content of the file, one line for each study."""
    found = collect()
    lines = ",\n".join(json.dumps(each, ensure_ascii=False) for each in found["studies"])
    costs = json.dumps(found["costs"])
    return f'{{"schema": {found["schema"]}, "costs": {costs}, "studies": [\n{lines}\n]}}\n'.encode()


def study(title: str, about: str, page: str, head: Sequence[str], of: Mapping[str, Any]) -> dict[str, Any]:
    """A study as a dict. `of` maps each encoding to a sentence about it and the rows of its table."""
    found = {name: {"said": said, "rows": rows} for name, (said, rows) in of.items()}
    return {"title": title, "about": about, "page": f"bench/results/{page}", "head": list(head), "of": found}


def compared() -> dict[str, Any]:
    """The comparisons of a study with its baseline, computed again from the values of all runs."""
    made = Study.read(RESULTS / "compare.toml")
    found = results.summary(made, _outcomes("compare"))
    said: dict[str, Any] = {made.baseline: ("This is the baseline of the other encodings.", [])}
    of: dict[str, Rows] = defaultdict(list)
    for task, length, encoding, difference, _, _, verdict, *_ in table_cells.comparison_table(made, found)[1]:
        of[encoding].append([task, length, difference.value, difference.interval, verdict])
    for encoding, rows in of.items():
        counts = Counter(row[-1] for row in rows)
        words = ", ".join(f"{counts[word]} {word}" for word in VERDICTS)
        said[encoding] = (f"{len(rows)} comparisons with {made.baseline}: {words}.", rows)
    return study(
        "Ten encodings on eight tasks",
        "Small causal models with ten seeds, trained at 12 or 16 symbols and tested at up to three times that length. "
        "The table gives differences in exact answers in percentage points, or ratios of errors "
        f"({table_cells.TIMES.strip()}). P-values are adjusted by Holm's method over nine encodings at each length.",
        "compare.md", ("task", "length", "difference", "95 %", "verdict"), said,
    )  # fmt: skip


def _outcomes(name: str) -> dict[RunKey, dict[str, Any]]:
    """The tests of all runs, from the table of a study without failed runs."""
    found: dict[RunKey, dict[str, Any]] = {}
    with (RESULTS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            assert not row["failed"], row
            key = RunKey(row["task"], row["encoding"], int(row["seed"]))
            tests = found.setdefault(key, {"train": {"loss": None}, "test": {}})["test"]
            tests.setdefault(row["length"], {})[row["metric"]] = float(row["value"])
    return found


def _means(name: str) -> dict[tuple[str, str], dict[str, tuple[str, float]]]:
    """Read a study without failed runs: (of, and) -> test length -> (measure, its mean over seeds)."""
    values: dict[tuple[str, str], dict[str, list[tuple[str, float]]]] = defaultdict(lambda: defaultdict(list))
    with (RESULTS / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            assert not row["failed"], row
            measure = next(key for key in ("exact", "nmse", "loss") if row.get(key))
            values[row["of"], row["and"]][row["length"]].append((measure, float(row[measure])))
    return {
        key: {length: (each[0][0], statistics.mean(value for _, value in each)) for length, each in own.items()}
        for key, own in values.items()
    }


def _cell(measure: str, mean: float) -> str:
    return f"{100 * mean:.0f} %" if measure == "exact" else f"{mean:.3f}" if measure == "loss" else f"{mean:.2g}"


def _ranks(values: Mapping[str, float], larger: bool) -> dict[str, str]:
    """Ranks of the values; equal values share the best rank."""
    better = {name: sum((other > own) if larger else (other < own) for other in values.values())
              for name, own in values.items()}  # fmt: skip
    return {name: f"{better[name] + 1} of {len(values)}" for name in values}


def tasks() -> dict[str, Any]:
    """Means over ten seeds, and the rank among the encodings at the longest length."""
    means = _means("tasks")
    of: dict[str, Rows] = defaultdict(list)
    for task in dict.fromkeys(task for task, _ in means):
        own = {encoding: lengths for (each, encoding), lengths in means.items() if each == task}
        last = {encoding: list(lengths.values())[-1] for encoding, lengths in own.items()}
        larger = next(iter(last.values()))[0] == "exact"
        ranks = _ranks({encoding: float(_cell(*each).split()[0]) for encoding, each in last.items()}, larger)
        for encoding, lengths in own.items():
            cells = [_cell(*each) for each in lengths.values()]
            of[encoding].append([task, *cells, "-" if cells[-1] == "0 %" else ranks[encoding]])
    return study(
        "Eight encodings on tasks with recipes",
        "Small causal models, means of ten seeds, trained at 1 to 12 symbols (some tasks up to 32) with settings that "
        "solve the task with at least one encoding. The table gives exact answers, or mean squared errors divided by "
        "those of always answering 0.",
        "tasks.md", ("task", "training length", "twice", "three times", "rank at three times"),
        {name: ("", rows) for name, rows in of.items()},
    )  # fmt: skip


def texts() -> dict[str, Any]:
    """Losses of character models by context length."""
    means = {name: lengths for (name, _), lengths in _means("lengths").items()}
    lengths = list(next(iter(means.values())))
    ranks = {length: _ranks({name: own[length][1] for name, own in means.items()}, False) for length in lengths}
    of = {
        name: (
            f"Loss {own[lengths[0]][1]:.3f} at the training length, {own[lengths[-1]][1]:.3f} at 16 times that.",
            [[length, _cell(*own[length]), ranks[length][name]] for length in lengths],
        )
        for name, own in means.items()
    }
    return study(
        "Characters of Shakespeare, at up to sixteen times the training length",
        "nanoGPT's recipe for a CPU with blocks of 128 characters, five seeds. Losses are in nats per character, over "
        "blocks that are read independently.",
        "text.md", ("block length", "loss", "rank"), of,
    )  # fmt: skip


def _tables(name: str) -> Iterator[tuple[str, list[str], Rows]]:
    """The tables of a Markdown page: the last title or bold line before each table, its head, and its rows."""
    title = ""
    text = (RESULTS / name).read_text("utf-8")
    for block in text.split("\n\n"):
        lines = block.strip().split("\n")
        if lines[0].startswith(("#", "**")):
            title = lines[0].strip("#* ")
        if lines[0].startswith("|"):
            head, _, *rows = ([cell.strip(" `") for cell in line.strip("|").split("|")] for line in lines)
            yield title, head, rows


def sums() -> dict[str, Any]:
    """Table 5 of Li (2025), reproduced."""
    of: dict[str, Rows] = defaultdict(list)
    for title, head, rows in _tables("table5.md"):
        if head[:3] == ["length", "encoding", "mean squared error"]:
            for length, name, error, interval, _, paper, zero in rows:
                option = "the authors' slope" if name == "alibi-authors" else ""
                of[name.removesuffix("-authors")].append(
                    [title.rpartition(", ")[2], length, option, error, interval, zero, paper]
                )
    return study(
        "Running sums: Table 5 of Li (2025), reproduced",
        "Models with 2 layers of width 64, trained on sequences of 50 numbers; geometric means of squared errors over "
        "ten seeds. ALiBi has the paper's settings unless stated otherwise.",
        "table5.md",
        ("mask", "length", "settings", "error", "95 %", "relative to answering 0", "in the paper"),
        {name: ("", rows) for name, rows in of.items()},
    )  # fmt: skip


def newer() -> dict[str, Any]:
    """Encodings since 2023 compared with older ones; without sums of encodings and unusual positions."""
    of: dict[str, Rows] = defaultdict(list)
    for _, head, rows in _tables("since2023.md"):
        if head[:2] == ["task", "encoding"]:
            baseline = head[-1].removeprefix("versus ")
            for task, name, *cells, verdict in rows:
                if name in built_in():
                    of[name].append([task, baseline, *cells, verdict])
    return study(
        "Encodings since 2023 compared with older ones",
        "Small causal models with ten seeds, trained at 12 or 16 symbols: exact answers in percent with 95 % "
        "intervals, at up to the training length, twice and three times that length. P-values are adjusted by Holm's "
        "method over each family at each length.",
        "since2023.md", ("task", "baseline", "training length", "twice", "three times", "verdict"),
        {name: ("", rows) for name, rows in of.items()},
    )  # fmt: skip


def drift() -> dict[str, Any]:
    """Distance of table rows beyond the training length from the trained rows, and the errors there."""
    encodings = tomllib.loads((RESULTS / "drift.toml").read_text("utf-8"))["encoding"]
    title, _, rows = next(each for each in _tables("theory.md") if each[1][:2] == ["encoding", "farthest row"])
    assert title == "as defined"
    of: dict[str, Rows] = defaultdict(list)
    for name, far, *errors in rows:
        own = encodings[name]
        options = ", ".join(f"{key} = {value}" for key, value in own.get("options", {}).items())
        of[own["encoding"]].append([options or "default", far, *errors])
    return study(
        "Table rows far from the trained rows",
        "Twelve tables on causal running sums, three seeds: the largest distance of a row, at up to twice the training "
        "length of 50, from all trained rows, and the squared errors. Errors grow with this distance (rank correlation "
        "0.73).",
        "theory.md", ("options", "farthest row", "error at 50", "at 100", "at 200"),
        {name: ("", rows) for name, rows in of.items()},
    )  # fmt: skip


def lacoco() -> dict[str, Any]:
    """The protocol of Huang et al. 2025."""
    of: dict[str, Rows] = defaultdict(list)
    for (task, name), own in _means("lacoco").items():
        of[name].append([task, *(f"{100 * mean:.2f} %" for _, mean in own.values())])
    return study(
        "The protocol of Huang et al. 2025",
        "GPT-2 models trained at 1 to 50 symbols, five seeds: exact answers. Training sequences start at random "
        "positions of the learned table.",
        "lacoco.md", ("task", "1-50", "51-100", "101-150"), {name: ("", rows) for name, rows in of.items()},
    )  # fmt: skip


def orbits() -> dict[str, Any]:
    """Models without a mask compared with the least error that their symmetry allows."""
    of: dict[str, Rows] = defaultdict(list)
    for _, head, rows in _tables("theory.md"):
        if head[:3] == ["task", "encoding", "symmetry"]:
            for task, name, symmetry, least, _, ratio in rows:
                of[name].append([task, _SYMMETRY[symmetry], least, ratio])
    return study(
        "Models without a mask compared with the least error that symmetry allows",
        "Models with 2 layers of width 64, sequences of 50 numbers, five seeds.",
        "theory.md", ("task", "cannot distinguish", "least error of any such model", "mean error divided by it"),
        {name: ("", rows) for name, rows in of.items()},
    )  # fmt: skip


_SYMMETRY = {"perm": "any two orders", "rev": "a sequence from its reverse"}


if __name__ == "__main__":
    write_file(FILE, content())
    print(f"written: {FILE}")
