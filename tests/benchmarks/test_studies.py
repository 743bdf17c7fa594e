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


def found(study):
    """Its runs, as its table of all of them has them."""
    rows = defaultdict(list)
    with (BENCH / "results" / f"{study}.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            measures = {name: float(row[name]) for name in ("exact", "token", "nmse") if row[name]}
            own = {"updates": int(row["updates"]), "length": row["length"], **measures}
            rows[(row["of"], row["and"]), int(row["seed"])].append(own)
    return rows


@pytest.mark.parametrize("study", ["tasks", "lacoco", "depth"])
def test_the_page_of_a_study_shows_what_the_runs_gave(studies, study):
    rows, configs = found(study), {(key, seed): config for key, seed, config in studies.STUDIES[study]()}
    assert rows.keys() == configs.keys()
    for key, config in configs.items():
        assert [row["length"] for row in rows[key]] == [str(length) for length in config.test_lengths]
    page = (BENCH / "results" / f"{study}.md").read_text(encoding="utf-8")
    table = studies.table if study == "tasks" else studies.seeds_table
    for part in table(rows).strip().split("\n\n"):
        assert part in page


def test_means_and_runs_that_failed(studies):
    exact = [[{"exact": 1.0}, {"exact": 0.25}], [{"exact": 0.5}, {"exact": 0.0}]]
    assert studies._cell(exact) == "75 12"
    assert studies._cell([[{"nmse": 0.001}], [{"nmse": 0.002}]]) == "0.0015"
    assert studies._cell([*exact, [{"failed": "became infinite"}]]) == "-"
