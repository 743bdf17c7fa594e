"""The atlas has the results of bench/results, and only encodings that exist."""

import csv
import json
from importlib import resources
from statistics import mean

import findings as script

from fastpe.encodings.registry import built_in


def shipped():
    return json.loads(resources.files("fastpe.pictures.atlas").joinpath("findings.json").read_text("utf-8"))


def rows(title, key):
    (study,) = [each for each in shipped()["studies"] if each["title"].startswith(title)]
    return study["of"][key]["rows"]


def test_the_file_is_that_of_the_results():
    packed = resources.files("fastpe.pictures.atlas").joinpath("findings.json").read_bytes()
    assert packed == script.content(), "run python bench/findings.py"


def test_every_study_has_a_page_and_tables_of_one_width():
    for study in shipped()["studies"]:
        assert (script.ROOT / study["page"]).exists()
        assert set(study["of"]) <= set(built_in())
        for own in study["of"].values():
            assert own["said"] or own["rows"]
            assert all(len(row) == len(study["head"]) for row in own["rows"])


def test_means_are_those_of_the_runs():
    with (script.RESULTS / "lengths.csv").open() as file:
        losses = [float(row["loss"]) for row in csv.DictReader(file) if (row["of"], row["length"]) == ("rope", "2048")]
    assert len(losses) == 5
    assert rows("Characters", "rope")[-1] == ["2048", f"{mean(losses):.3f}", "4 of 10"]
    page = (script.RESULTS / "tasks.md").read_text()
    for key, task in (("fire", "flip_flop"), ("t5", "induction"), ("wavelet", "reverse")):
        _, *cells, _ = next(row for row in rows("Eight", key) if row[0] == task)
        line = next(line for line in page.splitlines() if line.startswith(f"| {task} |"))
        assert " ".join(cells).replace(" %", "") in [cell.strip() for cell in line.split("|")]


def test_tables_of_pages_are_read_cell_by_cell():
    assert ["bidirectional", "50", "", "0.08531", "[0.06622, 0.1099]", "0.00335", "0.0021"] in rows(
        "Running", "sinusoidal"
    )
    assert ["causal", "50", "the authors' slope", "1.453", "[1.342, 1.574]", "0.057", "-"] in rows("Running", "alibi")
    assert rows("Table rows", "chebyshev")[1] == ["kind = 2", "21.828", "0.00222", "24.7", "679"]
    assert rows("Models without", "kerple_log")[1] == ["shift", "a sequence from its reverse", "0.49", "1.038"]
    assert rows("The protocol", "nope")[0] == ["bin_majority", "100.00 %", "100.00 %", "100.00 %"]
    counts = dict.fromkeys(("better", "worse", "equivalent", "inconclusive"), 0)
    study = next(each for each in shipped()["studies"] if each["page"].endswith("compare.md"))
    for own in study["of"].values():
        for row in own["rows"]:
            counts[row[-1]] += 1
    assert list(counts.values()) == [30, 52, 69, 65]  # as bench/results/compare.md has them
