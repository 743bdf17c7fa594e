"""Tasks of one's own: files, modules, packages; what is no task; in another process; checked as ours are."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fastpe import TrainConfig, train
from fastpe.base.random import Stream
from fastpe.doctor import diagnosis, task_checks
from fastpe.tasks import Task, frame, list_tasks, load_task, page, register
from fastpe.tasks import template as template_module
from fastpe.tasks.registry import TASKS, choose

TEMPLATE = Path(template_module.__file__).read_text()


CHANCE = "Chance(1 / symbols, symbols**-length)"


def lengths(returned):
    """A change of the template: it says what lengths it can have."""
    return "def answer_length", f"def lengths(*, symbols):\n    return {returned}\n\n\ndef answer_length"


def hook(signature, returned):
    """A change of the template: another function."""
    return "def answer_length", f"def {signature}:\n    return {returned}\n\n\ndef answer_length"


def write(folder, *changes, name="mine.py"):
    text = TEMPLATE
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    path = folder / name
    path.write_text(text)
    return path


def test_a_file_is_a_task_like_any_other(tmp_path):
    key = register(write(tmp_path))
    assert key == "mine"
    assert "mine" in list_tasks()
    assert isinstance(load_task("mine"), Task)
    assert load_task("mine").file == "mine.py"
    assert page("mine").startswith("Every symbol twice")
    inputs, answers, _ = frame.draw(choose("mine"), Stream(0, "test"), 3, 5)
    np.testing.assert_array_equal(answers, np.repeat(inputs, 2, axis=1))
    assert register(tmp_path / "mine.py") == "mine"  # the same content
    assert load_task(str(tmp_path / "mine.py")) is load_task("mine")
    assert choose("mine", {"symbols": 9}).symbols == 9


def test_a_module_and_an_installed_package(tmp_path, monkeypatch):
    write(tmp_path, name="task_of_a_module.py")
    write(tmp_path, name="pkg_offered.py")
    about = tmp_path / "pkg_offered-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: pkg-offered\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text("[fastpe.tasks]\noffered = pkg_offered\n")
    monkeypatch.syspath_prepend(tmp_path)
    vars(TASKS).pop("_offered", None)
    import task_of_a_module

    try:
        assert register(task_of_a_module) == "task_of_a_module"
        assert TASKS.ways()["task_of_a_module"]["way"] == "task_of_a_module"
        assert {"offered", "task_of_a_module", "sort"} <= set(list_tasks())
        assert load_task("offered").summary == "every symbol twice"
    finally:
        for name in ("task_of_a_module", "pkg_offered"):
            sys.modules.pop(name, None)


def test_another_process_finds_it(tmp_path):
    path = write(tmp_path)
    register(path)
    ways = TASKS.ways()
    code = (
        f"from fastpe.tasks.registry import TASKS, choose; TASKS.register_ways({ways!r}); print(choose('mine').symbols)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "4\n"
    path.write_text(path.read_text() + "\n")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ValueError: task 'mine'" in done.stderr
    assert "has changed since it was registered" in done.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("TASK = ", "OTHER = "), "must define TASK, a fastpe.tasks.Task: there is none"),
        (("TASK = Task(", "TASK = dict("), "must define TASK, a fastpe.tasks.Task: not dict"),
        (('kind="answer"', 'kind="answers"'), "kind must be one of answer, labels, numbers, not 'answers'"),
        (("def sample", "def simple"), r"the function that draws is missing: define sample\(draws, length, count"),
        (("symbols=lambda symbols: symbols", "symbols=0"), "symbols must be at least 1 for tokens, not 0"),
        (("symbols=lambda symbols: symbols", "symbols=2.5"), "symbols must be a function, not 2.5"),
        (('summary="every', "summary=3 or \"every"), "summary must be a str, not 3"),
        (('{"symbols": fastpe.Option', '{"length": fastpe.Option'), "options: 'length' is not a valid name"),
        (("fastpe.Option(4,", "fastpe.Option(1,"), "the default of option 'symbols' must be an integer >= 2"),
        (("    options=", "    tests={'x': {'size': 3}},\n    options="), "tests must be a dict of names to"),
        (("    options=", "    tests={'x': {'symbols': 1}},\n    options="), "test 'x': option 'symbols' must be"),
        (("    options=", "    tests=3,\n    options="), "tests must be a dict of names to dicts of the task's opt"),
        (("def sample(", "raise OSError(3)\n\n\ndef sample("), "line 18: OSError: 3"),
        (("import numpy", "import numbpy"), "line 12: ModuleNotFoundError: No module named 'numbpy'"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_task(tmp_path, change, message):
    with pytest.raises(ValueError, match=rf"^mine\.py,? ?:?{message}|^mine\.py: {message}"):
        register(write(tmp_path, change))
    assert "mine" not in list_tasks()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("np.repeat(inputs, 2,", "np.repeat(inputs, 3,"), r"mine.py: answers must have the shape \(2, 1"),
        (("np.repeat(inputs, 2, axis=1)", "inputs[5]"), r"^mine\.py, line 20: IndexError: index 5 is out of bounds"),
        (("return inputs, np", "raise SystemExit(1)\n    return inputs, np"), r"^mine\.py, line 20: SystemExit: 1"),
    ],
)
def test_what_goes_wrong_when_it_draws_names_the_file(tmp_path, change, message):
    register(write(tmp_path, change))
    with np.errstate(all="ignore"), pytest.raises(ValueError, match=message):
        frame.draw(choose("mine"), Stream(0, "test"), 2, 3)


CONFIG = {"width": 8, "hidden": 8, "layers": 1, "train_length": 4, "samples": 32, "epochs": 2, "test_lengths": (4,)}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lengths("(1, 2, 3)"), "lengths must be"),
        (lengths("fastpe.tasks.Lengths(5, 0)"), "lengths must be fastpe.tasks.Lengths of integers from 1, not Lengths"),
        (("return 2 * length", "return 'a'"), r"answer_length\(length=4\) must be an integer, not 'a'"),
        (("return 2 * length", "return 0"), r"answer_length\(length=4\) must be at least 1, not 0"),
        (("symbols=lambda symbols: symbols", "symbols=lambda symbols: 2.5"), "symbols must be an integer, not 2.5"),
        (("symbols=lambda symbols: symbols", "symbols=2**30"), "symbols must be at most 16777212, not 1073"),
        (("inputs = draws", "assert length < 9\n    inputs = draws"), "line 19: AssertionError"),
        (("np.repeat(inputs, 2, axis=1)", "inputs + symbols"), r"answers must be tokens of 0 \.\. 3, not"),
    ],
)
def test_whatever_a_task_says_of_itself_is_looked_at_before_a_run(tmp_path, change, message):
    path = str(write(tmp_path, change))
    settings = {**CONFIG, "test_lengths": ("1-4", "9-12")}
    with pytest.raises(ValueError, match=rf"^mine\.py[:,] {message}"):
        train(TrainConfig("nope", task=path, causal=True, **settings), out=tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (CHANCE, "0.5", r"chance\(length=\d+\) must be fastpe.tasks.Chance of num.*, not 0.5"),
        (CHANCE, "Chance(None, 0)", r"chance\(length=\d+\) must be"),
        (CHANCE, "Chance(1.5, -1)", r"chance\(length=\d+\) must be"),
        ("TASK = ", "def word(symbol, *, symbols):\n    return symbol\n\n\nTASK = ", r"word\(0\) must be a str, not 0"),
    ],
)
def test_what_a_page_shows_is_checked_too(tmp_path, old, new, message):
    register(write(tmp_path, (old, new)))
    verdicts = [diagnosis.judge(check) for check in task_checks.checks("mine")]
    assert [verdict.note for verdict in verdicts if not verdict.passed and re.search(message, verdict.note)]


def test_one_that_fails_in_the_middle_loses_nothing(tmp_path):
    """Four lengths are drawn for what is compiled first, and in every epoch; one to see whether it draws at all."""
    fails = "    CALLS.append(0)\n    if len(CALLS) == 11:\n        raise KeyError\n    return inputs, np"
    changes = ("def sample", "CALLS = []\n\n\ndef sample"), ("    return inputs, np", fails)
    path = write(tmp_path, *changes)
    config = TrainConfig("nope", task=str(path), causal=True, **CONFIG)
    with pytest.raises(ValueError, match=r"^mine\.py, line 25: KeyError"):
        train(config, out=tmp_path / "run", progress=False)
    assert len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines()) == 1
    again = train(config, out=tmp_path / "run", resume=True, progress=False)
    assert again.result["test"] == train(config, progress=False).result["test"]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("sortt", {}, "task 'sortt' is unknown; did you mean 'sort'"),
        ("sort", {"symbol": 3}, "option 'symbol' of task 'sort' is unknown; did you mean 'symbols'"),
        ("parity", {"x": 3}, "option 'x' of task 'parity' is unknown: it has none"),
        ("sort", {"symbols": 1}, "option 'symbols' of task 'sort' must be an integer >= 2 and <= 2[*][*]20, not 1"),
        ("mqar", {"pairs": 50, "vocabulary": 99}, "'vocabulary' of task 'mqar' must be at least 2 . pairs . 2, 102"),
        ("x/y.py", {}, "task must be a key here, not the path of a file: 'x/y.py'"),
    ],
)
def test_a_request_that_names_no_task_or_option(name, options, message):
    with pytest.raises(ValueError, match=message):
        choose(name, options)


@pytest.mark.parametrize("name", sorted(set(TASKS.files) - {"text"}))
def test_it_passes_what_a_user_checks_an_own_task_by(name):
    for check in task_checks.checks(name):
        verdict = diagnosis.judge(check)
        assert verdict.passed, f"{verdict.name}: {verdict.note} {verdict.error} {verdict.bound}"
    left = [text for text in task_checks.remarks(name) if "chance" not in text]
    assert not left


def test_the_template_passes_and_says_everything(tmp_path):
    register(write(tmp_path))
    assert all(diagnosis.judge(check).passed for check in task_checks.checks("mine"))
    assert task_checks.remarks("mine") == []


@pytest.mark.parametrize(
    ("change", "check"),
    [
        (("draws.integers(symbols, (count, length))", "np.random.randint(0, symbols, (count, length))"), "draws"),
        (("draws.integers(symbols, (count, length))", "draws.integers(symbols, (length, count)).T"), "draws"),
        (("draws.integers(symbols, (count, length))", "np.ones((count, length), int)"), "draws"),
        (("    return inputs, np.", "    assert length < 60\n    return inputs, np."), "sequences"),
        (("np.repeat(inputs, 2, axis=1)", "draws.integers(symbols, inputs.shape)"), "answers"),
        (("Chance(1 / symbols,", "Chance(2 / symbols,"), "chance"),
        (("symbols**-length", "symbols ** (1 - length)"), "chance"),
        (("int, minimum=2", "int, minimum=0"), "sequences"),
        (("    options=", "    tests={'more': {'symbols': 9}},\n    options="), "options"),
        (hook("judge(inputs, given, *, symbols)", "(given[:, 0] == 1) & (given[:, -1] == 1)"), "answers"),
        (hook("judge(inputs, given, *, symbols)", "given == given"), "answers"),
        (hook("places(inputs, answers, *, symbols)", "inputs"), "answers"),
        (hook("places(inputs, answers, *, symbols)", "-1 - answers"), "answers"),
        (hook("shortcuts(length, *, symbols)", "{'less': Chance(0.5 / symbols, None)}"), "chance"),
        (hook("shortcuts(length, *, symbols)", "{'no chance': 0.5}"), "chance"),
        (hook("shortcuts(length, *, symbols)", "Chance(0.5, None)"), "chance"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_task_fails_its_check(tmp_path, change, check):
    register(write(tmp_path, change))
    failed = {each.name for each in task_checks.checks("mine") if not diagnosis.judge(each).passed}
    assert check in failed
