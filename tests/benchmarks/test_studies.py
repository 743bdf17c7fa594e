"""The studies of tasks: what they are made of, and that the page shows what the runs gave."""

import csv
import importlib.util
from collections import defaultdict
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(scope="module")
def studies():
    spec = importlib.util.spec_from_file_location("studies", BENCH / "studies.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("study", "runs"), [("tasks", 23 * 8 * 3), ("lacoco", 2 * 2 * 5), ("depth", 5 * 5)])
def test_every_run_of_a_study_is_another_one(studies, study, runs):
    found = {(key, seed): config for key, seed, config in studies.STUDIES[study]()}
    assert len(found) == runs
    assert len({str(config.to_dict()) for config in found.values()}) == runs
    assert all(config.seed == seed for (_, seed), config in found.items())


def test_the_page_of_tasks_shows_what_the_runs_gave(studies):
    rows = defaultdict(list)
    with (BENCH / "results" / "tasks.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            measures = {name: float(row[name]) for name in ("exact", "token", "nmse") if row[name]}
            rows[(row["of"], row["and"]), int(row["seed"])].append({"length": row["length"], **measures})
    study = {(key, seed): config for key, seed, config in studies.tasks()}
    assert rows.keys() == study.keys()
    for key, config in study.items():
        assert [row["length"] for row in rows[key]] == [str(length) for length in config.test_lengths]
    page = (BENCH / "results" / "tasks.md").read_text(encoding="utf-8")
    for part in studies.table(rows).strip().split("\n\n"):
        assert part in page


def test_means_and_runs_that_failed(studies):
    exact = [[{"exact": 1.0}, {"exact": 0.25}], [{"exact": 0.5}, {"exact": 0.0}]]
    assert studies._cell(exact) == "75 12"
    assert studies._cell([[{"nmse": 0.001}], [{"nmse": 0.002}]]) == "0.0015"
    assert studies._cell([*exact, [{"failed": "became infinite"}]]) == "-"
