"""The studies of tasks: what they are made of, and that the page shows what the runs gave."""

import importlib.util
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture(scope="module")
def studies():
    spec = importlib.util.spec_from_file_location("studies", BENCH / "studies.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("study", "runs"), [("tasks", 23 * 8 * 10), ("lacoco", 2 * 2 * 5), ("depth", 5 * 5)])
def test_every_run_of_a_study_is_another_one(studies, study, runs):
    found = {(key, seed): config for key, seed, config in studies.STUDIES[study]()}
    assert len(found) == runs
    assert len({str(config.to_dict()) for config in found.values()}) == runs
    assert all(config.seed == seed for (_, seed), config in found.items())


@pytest.mark.parametrize("study", ["tasks", "lacoco", "depth"])
def test_the_page_of_a_study_shows_what_the_runs_gave(studies, study):
    rows, configs = studies.stored(study), {(key, seed): config for key, seed, config in studies.STUDIES[study]()}
    tasks = {key[0] for key, _ in rows}  # the study of tasks may be stored for some of them
    assert rows.keys() == {each for each in configs if study != "tasks" or each[0][0] in tasks}
    for key, own in rows.items():
        assert [str(row["length"]) for row in own] == [str(length) for length in configs[key].test_lengths]
    page = (BENCH / "results" / f"{study}.md").read_text(encoding="utf-8")
    table = studies.table if study == "tasks" else studies.seeds_table
    for part in table(rows).strip().split("\n\n"):
        assert part in page


def test_means_and_runs_that_failed(studies):
    exact = [[{"exact": 1.0}, {"exact": 0.25}], [{"exact": 0.5}, {"exact": 0.0}]]
    assert studies._cell(exact) == "75 12"
    assert studies._cell([[{"nmse": 0.001}], [{"nmse": 0.002}]]) == "0.0015"
    assert studies._cell([*exact, [{"failed": "became infinite"}]]) == "-"
    assert studies._solved(exact) == "1 0"
    assert studies._solved([[{"nmse": 0.01}], [{"nmse": 0.02}]]) == "1"
