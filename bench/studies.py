"""Studies of many small runs that show which encoding suits which task, and their tables in bench/results.

    python bench/studies.py tasks|lacoco|depth|nanogpt|lengths FOLDER [WORKERS] [TASK ...]

    tasks    every task with its recipe and eight encodings, 10 seeds: tasks.md, tasks.csv. With names of tasks, only
             these; the lines of other tasks in tasks.csv stay as they are
    lacoco   the protocol of Huang et al. 2025 on two tasks, 5 seeds: lacoco.md, lacoco.csv
    depth    the number of alternating blocks that one and two layers distinguish (Yang et al. 2025), 5 seeds: depth.md,
             depth.csv
    nanogpt  nanoGPT's recipe for a CPU on tinyshakespeare, 5 seeds: text.md, nanogpt.csv
    lengths  ten encodings trained on blocks of 128 characters of tinyshakespeare, 5 seeds: text.md, lengths.csv

The last two read the text from shared/data next to this repository. Runs are stored in FOLDER and not repeated. The CSV
files have every run, also failed ones.
"""

import csv
import itertools
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastpe import TrainConfig
from fastpe.base.tables import csv_text
from fastpe.experiments import local
from fastpe.experiments.jobs import JobEvent, RunEnded, make_job
from fastpe.tasks import list_tasks, load_task
from fastpe.training.presets import preset

RESULTS = Path(__file__).with_name("results")
SEEDS = 10
TEXT = Path(__file__).resolve().parents[2] / "shared" / "data" / "tinyshakespeare.txt"
ENCODINGS = ("nope", "alibi", "rope", "t5", "sinusoidal", "learned", "wavelet", "fire")
LENGTHS_OF = ("alibi", "rope", "sinusoidal", "nope", "t5", "kerple_log", "fire", "wavelet", "legendre", "learned")

Key = tuple[str, ...]
Rows = dict[tuple[Key, int], list[dict[str, Any]]]


def drawn_tasks() -> list[str]:
    """All tasks with a recipe."""
    return [task for task in list_tasks() if load_task(task).recipe is not None]


def tasks() -> Iterator[tuple[Key, int, TrainConfig]]:
    """Yield the runs by (task, encoding): the recipe of each task, tested at up to three times the training length."""
    for task, seed, encoding in itertools.product(drawn_tasks(), range(SEEDS), ENCODINGS):
        yield (task, encoding), seed, preset("recipe", encoding, task=task, seed=seed)


def lacoco() -> Iterator[tuple[Key, int, TrainConfig]]:
    """Yield the runs by (task, encoding): GPT-2 models with one layer of 16 or two of 64, as the protocol states."""
    for task, seed, encoding in itertools.product(("bin_majority", "unique_copy"), range(5), ("learned", "nope")):
        yield (task, encoding), seed, preset("lacoco", encoding, task=task, seed=seed)


def depth() -> Iterator[tuple[Key, int, TrainConfig]]:
    """Yield the runs by (layers, blocks): one head of 64 without positions, 3,000 updates."""
    for seed, (layers, blocks) in itertools.product(range(5), ((1, 3), (1, 4), (2, 3), (2, 4), (2, 5))):
        own = {
            "width": 64, "hidden": 256, "heads": 1, "layers": layers, "norm": "layernorm", "final_norm": True,
            "activation": "gelu", "causal": True, "lr": 1e-3, "warmup": 50, "decay": "linear", "weight_decay": 0.01,
            "clip": 1.0, "batch": 64, "samples": 6400, "epochs": 30, "data": "fresh", "train_length": 50,
            "test_sequences": 1000,
        }  # fmt: skip
        key = (f"{layers} layer{'s' * (layers > 1)}", f"{blocks} blocks")
        yield key, seed, TrainConfig("nope", task="depth", task_options={"blocks": blocks}, seed=seed, **own)


def nanogpt() -> Iterator[tuple[Key, int, TrainConfig]]:
    """Yield the runs by (encoding, length): 2,000 updates of 12 blocks of 64 characters."""
    for seed in range(5):
        yield ("learned", "64"), seed, preset("nanogpt-cpu", "learned", task="text", data=str(TEXT), seed=seed)


def lengths() -> Iterator[tuple[Key, int, TrainConfig]]:
    """Yield the runs by (encoding, length): 1,000 updates with blocks of 128, as many characters as in `nanogpt`."""
    for seed, encoding in itertools.product(range(5), LENGTHS_OF):
        own = {"train_length": 128, "samples": 3000, "epochs": 4, "test_lengths": (128, 256, 512, 1024, 2048)}
        yield (encoding, "128"), seed, preset("nanogpt-cpu", encoding, task="text", data=str(TEXT), seed=seed, **own)


STUDIES = {"tasks": tasks, "lacoco": lacoco, "depth": depth, "nanogpt": nanogpt, "lengths": lengths}


def done(study: str, folder: Path, workers: int, first: Sequence[str] = ()) -> Rows:
    """Make all runs of a study that are not done yet. Return the rows by key and seed, one for each test length.

    With names in `first`, only the runs whose keys begin with one of them.
    """
    jobs = {
        (key, seed): make_job(folder / study, "-".join((*key, str(seed))).replace(" ", ""), config)
        for key, seed, config in STUDIES[study]()
        if not first or key[0] in first
    }
    outcomes = local.run(list(jobs.values()), workers, _say)
    return {key: _rows(outcomes[job.path.name]) for key, job in jobs.items()}


def _say(event: JobEvent) -> None:
    if isinstance(event, RunEnded):
        print(event.job.name, {length: _measure(found) for length, found in event.outcome.get("test", {}).items()})


def _measure(found: Mapping[str, float]) -> float:
    return next(found[key] for key in ("exact", "nmse", "bits_per_byte") if key in found)


def _rows(outcome: Mapping[str, Any]) -> list[dict[str, Any]]:
    if "failed" in outcome:
        return [{"failed": outcome["failed"]}]
    updates = outcome["train"]["steps"]
    return [{"updates": updates, "length": length, **found} for length, found in outcome["test"].items()]


def write_csv(study: str, rows: Rows) -> None:
    """Write every run of a study, one line for each test length."""
    measures = ["loss", "bits_per_byte"] if study in ("nanogpt", "lengths") else ["exact", "token", "nmse"]
    columns = ["updates", "length", *measures, "failed"]
    lines = [[*key, seed, *(row.get(column) for column in columns)] for (key, seed), own in rows.items() for row in own]
    content = csv_text(("of", "and", "seed", *columns), lines)
    (RESULTS / f"{study}.csv").write_text(content, encoding="utf-8", newline="\n")


def stored(study: str) -> Rows:
    """Read the rows that `write_csv` has written."""
    rows: Rows = {}
    with (RESULTS / f"{study}.csv").open(encoding="utf-8", newline="") as file:
        for line in csv.DictReader(file):
            key = (line.pop("of"), line.pop("and")), int(line.pop("seed"))
            rows.setdefault(key, []).append({name: _value(text) for name, text in line.items() if text})
    return rows


def _value(text: str) -> Any:
    """A number, if the text is one."""
    try:
        return float(text) if "." in text or "e" in text else int(text)
    except ValueError:
        return text


def _cell(runs: Sequence[list[dict[str, Any]]]) -> str:
    """The means over seeds at each test length; `-` if a run failed."""
    if any("failed" in row for rows in runs for row in rows):
        return "-"
    each = [statistics.mean(_measure(row) for row in rows) for rows in zip(*runs, strict=True)]
    return " ".join(f"{100 * x:.0f}" if "exact" in runs[0][0] else f"{x:.2g}" for x in each)


def table(rows: Rows) -> str:
    """The study of tasks, in Markdown: means of tasks of tokens, means of tasks of numbers, and seeds that solve."""
    numbers = {task: load_task(task).kind == "numbers" for (task, _), _ in rows}
    parts = (
        ("task", [task for task in numbers if not numbers[task]], _cell),
        ("task of numbers", [task for task in numbers if numbers[task]], _cell),
        ("solved", list(numbers), _solved),
    )
    return "\n\n".join(_by_encoding(rows, title, tasks, cell) for title, tasks, cell in parts)


def _by_encoding(rows: Rows, title: str, tasks: Sequence[str], cell: Callable[[Sequence[Any]], str]) -> str:
    """A table of tasks and encodings; a cell shows the runs of all seeds."""
    lines = [f"| {title} | {' | '.join(f'`{name}`' for name in ENCODINGS)} |", "|---" * (len(ENCODINGS) + 1) + "|"]
    for task in sorted(tasks):
        cells = (cell([rows[(task, name), seed] for seed in range(SEEDS)]) for name in ENCODINGS)
        lines.append(f"| {task} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _solved(runs: Sequence[list[dict[str, Any]]]) -> str:
    """The number of runs that solve a task at each test length: 99 % right answers, or an nmse of at most 1 %."""
    right = [[row.get("exact", 0) >= 0.99 or row.get("nmse", 1) <= 0.01 for row in rows] for rows in runs]
    return " ".join(str(sum(each)) for each in zip(*right, strict=True))


def _shown(row: Mapping[str, Any]) -> str:
    """Exact answers in percent, or bits per byte."""
    if "failed" in row:
        return "failed"
    return f"{100 * row['exact']:.6g}" if "exact" in row else f"{_measure(row):.4f}"


def seeds_table(rows: Rows) -> str:
    """Every run of a study, in Markdown: updates, and exact answers in percent or bits per byte."""
    lengths = [row["length"] for row in next(iter(rows.values()))]
    lines = [f"| | | seed | updates | {' | '.join(lengths)} |", "|---" * (4 + len(lengths)) + "|"]
    for key in dict.fromkeys(key for key, _ in rows):
        for seed in sorted(seed for own, seed in rows if own == key):
            own = rows[key, seed]
            cells = [_shown(row) for row in own]
            lines.append(f"| {' | '.join(key)} | {seed} | {own[0].get('updates', '-')} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    study, folder, workers = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1
    chosen = sys.argv[4:]
    if chosen and (study != "tasks" or not set(chosen) <= set(drawn_tasks())):
        sys.exit(f"only the study of tasks takes names, and these must be tasks with a recipe, not {' '.join(chosen)}")
    found = done(study, folder, workers, chosen)
    if chosen:
        kept = {each: rows for each, rows in stored(study).items() if each[0][0] not in chosen}
        found = dict(sorted({**kept, **found}.items()))
    write_csv(study, found)
    print(table(found) if study == "tasks" else seeds_table(found))
