"""Studies where something goes wrong: what fails is counted and said in one line, and the rest goes on."""

import os
import shutil

import pytest
from small_study import SMALL, STUDY

from fastpe.experiments import study_folder
from fastpe.experiments.compare import compare
from fastpe.experiments.study import Study
from fastpe.tasks.registry import TASKS
from fastpe.training.config_file import RunError


@pytest.fixture(scope="module")
def made(no_pdf_at_all, tmp_path_factory):
    """A small study, made."""
    return compare(STUDY, out=tmp_path_factory.mktemp("studies") / "study", workers=1)


@pytest.mark.full("starts processes")
@pytest.mark.parametrize("year", [1980, 2100])
def test_a_clock_that_is_off_changes_nothing(made, tmp_path, year):
    """Files of the past or the future, as a machine with another clock leaves them on shared storage."""
    copy = shutil.copytree(made.out, tmp_path / "copy")
    seconds = (year - 1970) * 365.25 * 86400
    shutil.rmtree(next((copy / "runs").iterdir()))
    for path in copy.rglob("*"):
        os.utime(path, (seconds, seconds))
    events = []
    again = compare(STUDY, out=copy, workers=1, progress=events.append)
    started = next(each for each in events if hasattr(each, "reused"))
    assert (started.runs, started.reused) == (12, 11)
    assert again.summary == made.summary


@pytest.mark.full("starts processes")
def test_two_starters_in_one_folder(made):
    with study_folder.hold(made.out), pytest.raises(RunError, match="another process is working in "):
        compare(STUDY, out=made.out)


MOODY = """
import numpy as np
from fastpe.tasks import Task

def sample(draws, length, count):
    bits = draws.integers(2, (count, length))
    if draws._stream.seed == 1:
        raise ValueError("not with this seed")
    return bits, bits[:, ::-1]

TASK = Task("answer", "the input backwards, but with one seed", symbols=2)
"""


@pytest.mark.full("starts processes")
def test_a_run_without_memory_is_one_clear_line_and_the_rest_goes_on(tmp_path, monkeypatch):
    (tmp_path / "moody.py").write_text(MOODY.replace("ValueError", "MemoryError"))
    monkeypatch.setattr(TASKS, "_registered", {})
    study = Study(["nope"], [str(tmp_path / "moody.py")], seeds=3, settings=SMALL)
    with pytest.raises(
        MemoryError, match=r"^1 of 3 runs ran out of memory \(.*seed1\); the others are finished\. Use "
    ):
        compare(study, out=tmp_path / "out", workers=1)
    assert len(list((tmp_path / "out" / "runs").glob("*/result.json"))) == 2
    assert not (tmp_path / "out" / "report.html").exists()


@pytest.mark.full("starts processes")
def test_a_task_that_raises_on_one_seed_fails_there_alone(tmp_path, monkeypatch):
    (tmp_path / "moody.py").write_text(MOODY)
    monkeypatch.setattr(TASKS, "_registered", {})
    study = Study(["nope"], [str(tmp_path / "moody.py")], seeds=3, settings=SMALL)
    found = compare(study, out=tmp_path / "out", workers=1)
    assert found.summary["failed"] == 1
    (why,) = [row["failed"] for row in found.rows if row.get("failed")]
    assert "not with this seed" in why
