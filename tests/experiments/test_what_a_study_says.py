"""What a study says of made-up results: effective lengths with their spread, and equivalence as it is tested."""

import math
import re
from dataclasses import replace

import pytest
from small_study import done

from fastpe.experiments import study_folder, study_page, study_report, table_cells
from fastpe.experiments.study import Study

STUDY = Study(["alibi", "nope", "rope"], ["reverse"], seeds=2, settings={"train_length": 4})


def test_every_seed_has_an_effective_length(tmp_path):
    """Of six seeds with made-up scores: that of the mean, each one's own, and the interval of their median."""
    study = replace(STUDY, encodings={"nope": {}}, seeds=6)
    scores = {"1-4": [1.0, 1.0, 0.95, 1.0, 0.9, 1.0], "5-8": [1.0, 0.5, 1.0, 0.95, 0.8, 1.0],
              "9-12": [0.9, 1.0, 0.2, 0.1, 1.0, 0.0]}  # fmt: skip
    results = {
        cell: done({n: {"exact": own[cell.seed]} for n, own in scores.items()}) if cell.seed != 4 else
        {"failed": "it diverged"}
        for cell in study.run_keys()
    }  # fmt: skip
    known = {cell: study_folder.FinishedRun(result, None, "x", "cpu") for cell, result in results.items()}
    found = study_folder.write_report(study, tmp_path, known)
    (own,) = found.summary["effective"]
    assert own["seeds"] == [12, 4, 8, 8, None, 8]
    assert (own["length"], own["low"], own["high"]) == (None, None, 12)  # 4.95 of 6 is below 0.9
    assert own["coverage"] == 1 - 2 * 0.5**6
    for name in ("results.md", "report.html"):
        said = (tmp_path / name).read_text()
        assert "the exact interval of the median over seeds (order statistics, coverage at least 96.9 %)" in said
        assert re.sub(r"<.*?>", "", said).count("none [none, 12]") == 1
    more = study_folder.write_report(replace(study, threshold=0.5), tmp_path, known)
    assert more.summary["effective"][0]["seeds"] == [12, 12, 8, 8, None, 8]
    assert (more.summary["effective"][0]["length"], more.summary["effective"][0]["low"]) == (8, None)
    few = replace(study, seeds=1)
    alone = study_folder.write_report(few, tmp_path, {cell: known[cell] for cell in few.run_keys()})
    assert alone.summary["effective"][0]["coverage"] == 0.0
    assert "the exact interval of the median" not in (tmp_path / "report.html").read_text()


@pytest.mark.full("takes seconds")
def test_equivalence_is_said_as_it_is_tested(tmp_path):
    """Made-up scores of eight seeds: one encoding at the baseline, one beyond the margin."""
    study = replace(STUDY, seeds=8, margin=0.1)
    levels = {"nope": 0.5, "rope": 0.51, "alibi": 0.65}
    scores = {cell: {"exact": levels[cell.encoding] + 0.001 * cell.seed} for cell in study.run_keys()}
    known = {
        cell: study_folder.FinishedRun(done(dict.fromkeys(("1-4", "5-8", "9-12"), score)), None, "x", "cpu")
        for cell, score in scores.items()
    }
    found = study_folder.write_report(study, tmp_path, known)
    for each in found.summary["comparisons"]:
        expected = {"rope": (2 * 2.0**-8, "equivalent"), "alibi": (1.0, "better")}[each["encoding"]]
        assert (each["within"], each["verdict"]) == expected
    for name in ("results.md", "report.html"):
        said = (tmp_path / name).read_text()
        assert (
            "Equivalent: the difference lies within 10 points, or 10 % of an error, by two one-sided sign-flip tests"
            in said
        )
        assert "p (equivalent): p of two one-sided sign-flip tests that the difference lies within the margin" in said
        assert "no equivalence can be shown" not in said
    assert "| 0.00781 | equivalent |" in (tmp_path / "results.md").read_text()
    few = replace(study, seeds=5)
    alone = study_folder.write_report(few, tmp_path, {cell: known[cell] for cell in few.run_keys()})
    line = "With 5 seeds no equivalence can be shown"
    assert any(each.startswith(line) for each in study_report.verdict(few, alone.summary))


@pytest.mark.parametrize(("needed", "same", "said"), [
    ([18, 62, 77, 197, 563, 7131], 6, "197 seeds or more"), ([10, 20, 30], 0, "20 seeds or more"),
    ([10, None, None], 0, "more than 10,000 seeds"), ([], 2, None),
])  # fmt: skip
def test_inconclusive_comparisons_say_how_many_seeds_they_need(needed, same, said):
    """Half of the differences need as many seeds as the middle one or more; means that are equal need none."""
    open_ = [{"needed": each, "difference": {"mean": 0.1}, "ratio": False, "could_find": 0.2} for each in needed]
    open_ += [{"needed": None, "difference": {"mean": 0.0}, "ratio": False, "could_find": 0.1}] * same
    first, *others = study_report._inconclusive(open_)
    detected = "10.0 points" if not needed else "10 to 20 points" if same else "20 points"
    assert first.endswith(
        f"the smallest effect that could have been detected (80 % power) is {detected}.".replace(".0", "")
    )
    what = "To detect effects of the observed size, half of the inconclusive comparisons need"
    assert others == ([] if said is None else [f"{what} {said}."])


@pytest.mark.parametrize(("difference", "said"), [
    (0.0, "1"), (math.log(2.0), "2"), (math.log(1.000011), "1.000011"), (math.log(0.99958), "0.99958"),
    (-2e-3, "0.998"), (800.0, "1.01e+304"), (1e-15, "1.000000000000"),
])  # fmt: skip
def test_a_ratio_near_one_shows_what_it_is_off_by(difference, said):
    assert table_cells.difference_text({"ratio": True}, difference) == table_cells.TIMES + said


@pytest.mark.parametrize(
    ("task", "length", "said"),
    [("parity", 6, "By chance: 57.1 % at 6."), ("path_star", 14, "By the shortcut, any arm: 50.0 % at 14.")],
)
def test_a_study_says_what_guessing_and_shortcuts_reach(task, length, said):
    study = Study(["nope"], [task], settings={"train_length": length, "test_lengths": (length,), "causal": True})
    assert study_page._described(study, task).endswith(said)
