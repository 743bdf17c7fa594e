"""The answer of a study in words, on its page and in a notebook; its figure and its data frame. Results are made up."""

import html
import re
import sys
from types import ModuleType

import pytest
from small_study import done

from fastpe.base import frames
from fastpe.experiments import study_answer, study_folder, study_page
from fastpe.experiments.existing_runs import load_study
from fastpe.experiments.study import Study
from fastpe.experiments.study_folder import Compared, FinishedRun
from fastpe.training.config_file import RunError

LENGTHS = ("1-4", "5-8", "9-12")


def found(levels, tasks=("reverse",), seeds=8, failed=(), **facts) -> Compared:
    """A study of 8 seeds: `levels` maps each encoding to its scores, or its errors on running_sum, by length."""
    study = Study(list(levels), list(tasks), seeds, settings={"train_length": 4}, **facts)
    numbers = {task: study.config_of(task).chosen.task.kind == "numbers" for task in tasks}
    runs = {}
    for key in study.run_keys():
        metric, names = ("mse", ("50", "100", "200")) if numbers[key.task] else ("exact", LENGTHS)
        values = {
            name: {metric: value + 1e-4 * key.seed} for name, value in zip(names, levels[key.encoding], strict=True)
        }
        outcome = {"failed": "it diverged"} if key.encoding in failed else done(values)
        runs[key] = FinishedRun(outcome, None, "x", "cpu")
    return study_folder.collect(study, "study", runs)


def said(study: Compared) -> str:
    return study_answer.answer(study.study, study.summary)


@pytest.mark.parametrize(("levels", "facts", "expected"), [
    ({"nope": (0.1, 0.0, 0.0), "rope": (0.69, 0.01, 0.0)}, {},
     "On reverse, up to the training length (4), rope is best (69.0 % exact answers, nope 10.0 %); beyond it, no "
     "encoding gets 5 % of answers right."),
    ({"nope": (0.9, 0.2, 0.1), "rope": (0.5, 0.3, 0.01)}, {},
     "On reverse, up to the training length (4), nope, the baseline, is best (90.0 % exact answers); beyond it, nope, "
     "the baseline, is best (10.0 % exact answers at 9-12)."),
    ({"nope": (0.9, 0.2, 0.0), "rope": (0.9, 0.3, 0.0)}, {"seeds": 3},
     "On reverse, up to the training length (4), both encodings are equal (90.0 % exact answers); beyond it, rope is "
     "best (30.0 % exact answers at 5-8, nope 20.0 %, inconclusive), and no encoding gets 5 % right at 9-12."),
    ({"rope": (0.9, 0.2, 0.1)}, {},
     "On reverse, up to the training length (4), rope has 90.0 % exact answers; beyond it, rope has 10.0 % exact "
     "answers at 9-12."),
    ({"nope": (0.4, 0.5, 0.6), "rope": (0.2, 0.3, 0.4)}, {"tasks": ("running_sum",)},
     "On running_sum, beyond the training length (4), rope has the smallest error (mean squared error 0.400 at 200, "
     "nope 0.600)."),
    ({"nope": (0.4, 0.3, 0.3), "rope": (0.8, 0.1, 0.1)}, {"tasks": ("reverse", "sort")},
     "Up to the training length, rope is better than nope on 2 of 2 tasks; at the longest test length, no encoding is "
     "better than nope on any task."),
    ({"nope": (0.4, 0.3, 0.3), "rope": (0.8, 0.1, 0.1)}, {"tasks": ("reverse", "sort"), "seeds": 3},
     "Up to the training length, rope has the best mean on 2 of 2 tasks; at the longest test length, nope has the best "
     "mean on 2 of 2 tasks."),
    ({"nope": (0.4, 0.3, 0.3), "rope": (0.8, 0.1, 0.1)}, {"failed": ("nope", "rope")},
     "On reverse, up to the training length (4), all runs failed; beyond it, all runs failed."),
])  # fmt: skip
def test_the_answer_is_one_sentence(levels, facts, expected):
    text = said(found(levels, **facts))
    text = re.sub(r"(\d+\.\d)\d? %", r"\1 %", text)
    assert text.replace("0.4004", "0.400") == expected


def test_what_can_be_concluded_is_known_before_any_run():
    study = Study(["alibi", "rope", "nope"], ["reverse"], seeds=3, margin=0.1)
    few = study_answer.can_be_concluded(study)
    assert few[0].endswith("at least 7 seeds are needed for 2 comparisons at each length.")
    assert "With 3 seeds no equivalence can be shown" in few[1]
    assert few[2].startswith("The smallest difference that 7 seeds detect with 80 % power depends on the spread: ")
    enough = study_answer.can_be_concluded(Study(["alibi", "nope"], ["reverse"], seeds=10))
    assert "differences can be called significant" in enough[0]
    assert enough[1].endswith("which are reported at the end.")
    assert "nothing to compare" in study_answer.can_be_concluded(Study(["nope"], ["reverse"]))[0]


@pytest.fixture(scope="module")
def one() -> Compared:
    return found({"nope": (0.4, 0.3, 0.1), "rope": (0.8, 0.1, 0.1)})


def page(study: Compared) -> str:
    return study_page.page(study.study, study.summary, [], [], [], None, "task,encoding,seed,seconds,metric\n", {})


def test_the_page_has_the_answer_a_panel_and_a_matrix(one):
    text = page(one)
    assert f'<p class="answer">{html.escape(said(one))}</p>' in text
    assert text.count("<main>") == 1
    assert not re.search(r"<th[^>]*></th>", text)
    assert 'class="first good" title="better: +40 points" style="--share:40%"' in text
    assert 'title="worse: -20 points"' in text
    assert "inconclusive" in re.search(r'<td class="[^"]*" title="([^"]*)">10.0', text.partition(">rope</th>")[2])[1]


def test_a_verdict_colours_a_cell_only_if_there_is_one(one):
    matrix = dict(study_page._matrix(one.study, one.summary)["rows"])
    assert [cell["mark"] for cell in matrix["rope"]] == ["▲", "▼", ""]
    assert [cell["share"] for cell in matrix["rope"]] == [40, 20, 0]
    assert {cell["class"] for cell in matrix["nope"]} == {""}


def test_the_baseline_is_grey(one):
    nope, rope = study_page.plot(one.study, one.summary, "reverse").styles.values()
    other = found({"alibi": (0.4, 0.3, 0.1), "rope": (0.8, 0.1, 0.1)}, baseline="rope")
    assert nope == study_page.plot(other.study, other.summary, "reverse").styles["rope"]
    assert rope != nope


def test_a_range_of_lengths_is_drawn_over_the_whole_range(one):
    plot = study_page.plot(one.study, one.summary, "reverse")
    assert [x for x, _ in plot.lines[0].mean] == [1, 4, 5, 8, 9, 12]
    assert (plot.marks, plot.top, plot.percent) == ([1, 4, 8, 12], 1.0, True)


def test_a_notebook_shows_the_answer_escaped():
    study = found({"nope": (0.4, 0.3, 0.1), "rope": (0.8, 0.1, 0.1)})
    hostile = Study(
        {"<b>": {"encoding": "rope"}, "nope": {}}, {"<i>": {"task": "reverse"}}, 8, settings={"train_length": 4}
    )
    runs = {
        key: FinishedRun(done({n: {"exact": 0.5} for n in LENGTHS}), None, "x", "cpu") for key in hostile.run_keys()
    }
    text = study_folder.collect(hostile, "x", runs)._repr_html_()
    assert "<i>" not in text
    assert "&lt;b&gt;" in text
    assert html.escape(said(study)) in study._repr_html_()


def test_a_study_is_drawn(one):
    pytest.importorskip("matplotlib")
    panels = one.plot().axes
    assert len(panels) == 1
    assert panels[0].get_ylabel() == "exact answers (%)"


def test_a_frame_has_a_row_for_each_value(one, monkeypatch):
    made = ModuleType("polars")
    made.DataFrame = dict
    monkeypatch.setitem(sys.modules, "polars", made)
    monkeypatch.setattr(frames, "find_spec", lambda name: name == "polars" or None)
    table = one.frame()
    assert table["length"][:3] == list(LENGTHS)
    assert {len(column) for column in table.values()} == {2 * 8 * 3}
    monkeypatch.setattr(frames, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="a data frame needs pandas or polars: pip install pandas"):
        one.frame()


def test_a_folder_without_a_study_is_refused(tmp_path):
    with pytest.raises(RunError, match="is not a study folder"):
        load_study(tmp_path)


@pytest.mark.parametrize(("arguments", "name"), [((3,), "folder"), ((None,), "folder"), (("study", 3), "runs")])
def test_what_is_no_path_is_refused_by_name(arguments, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(TypeError, match=f"{name} must be a path, as a str or pathlib.Path, not "):
        load_study(*arguments)
