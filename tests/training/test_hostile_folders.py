"""Run folders with links, pipes and folders among their files, and with damage drawn at random."""

import os
import random
import re
import shutil
from dataclasses import replace

import damage
import pytest
from command_line import fastpe
from damage import CONFIG, FILES, read_all

from fastpe.training import config_file, metrics_file
from fastpe.training.events import EpochDone, Noted
from fastpe.training.loop import train
from fastpe.training.run_folder import Run, RunError, load

# What is no file ------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="links and pipes")
@pytest.mark.parametrize("kind", ["folder", "loop", "pipe", "dangling", "device"])
@pytest.mark.parametrize("name", FILES)
def test_whatever_lies_in_the_place_of_a_file_is_said_and_nobody_waits(finished, name, kind):
    path = finished / name
    path.unlink()
    match kind:
        case "folder":
            path.mkdir()
        case "loop":
            path.symlink_to(path)
        case "pipe":
            os.mkfifo(path)
        case "dangling":
            path.symlink_to(finished / "nowhere")
        case "device":
            path.symlink_to("/dev/zero")
    before = _what_it_is(path)
    said = []
    try:
        said += read_all(finished)
    except (OSError, ValueError) as error:
        said.append(str(error))
    if not (kind == "dangling" and name == "seal.json"):  # as if it was not sealed yet
        known = name, "contains no trained model", "contains files but no"
        assert any(each in text for each in known for text in said)
    assert _what_it_is(path) == before or name == "metrics.jsonl"


def _what_it_is(path):
    """All but when it was last read: a link is, to see where it leads."""
    found = path.lstat()
    return found.st_mode, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


@pytest.mark.skipif(os.name == "nt", reason="links")
def test_a_link_planted_in_a_run_folder_is_not_followed(half, tmp_path):
    """Under the names of temporary files, those that were foreseeable once among them, and of files themselves."""
    victim = tmp_path / "thesis.tex"
    victim.write_bytes(b"precious")
    for name in FILES:
        (half / f".{name}.tmp").symlink_to(victim)
    (half / "result.json").symlink_to(victim)
    train(CONFIG, out=half, resume=True)
    assert victim.read_bytes() == b"precious"
    assert not (half / "result.json").is_symlink()
    assert read_all(half) == []


@pytest.mark.skipif(os.name == "nt", reason="links")
@pytest.mark.parametrize("target", ["nowhere", "run"])
def test_a_run_folder_that_is_a_link_to_nowhere_is_an_error(tmp_path, target):
    (tmp_path / "run").symlink_to(tmp_path / target)
    for start in (Run.resume, Run.create):
        with pytest.raises(RunError, match="run cannot be used: it is a broken link"):
            start(tmp_path / "run", CONFIG, {})
    found = fastpe("train", "--resume", "--out", tmp_path / "run")
    assert found.exit_code in (1, 2)
    assert "internal" not in found.stderr


# Lost during a training ----------------------------------------------------------------------------------------------


@pytest.mark.skipif(os.name == "nt", reason="links")
@pytest.mark.parametrize("epoch", [1, 3])
@pytest.mark.parametrize("damage", ["deleted", "another", "loop"])
def test_a_record_that_is_lost_during_a_training_is_written_again_and_said(tmp_path, epoch, damage):
    path = tmp_path / "run"
    record, said = path / "config.json", []

    def lose(event):
        said.extend([event.message] if isinstance(event, Noted) else [])
        if isinstance(event, EpochDone) and event.epoch == epoch:
            before.append(record.read_bytes())
            record.unlink()
            if damage == "another":
                record.write_text("{}")
            elif damage == "loop":
                record.symlink_to(record)

    before = []
    train(CONFIG, out=path, progress=lose)
    assert f"{record} was lost or changed during training: it is written again" in said
    assert record.read_bytes() == before[0]
    assert load(path).config == CONFIG.model
    assert read_all(path) == []


def test_a_folder_in_the_place_of_the_record_ends_the_training_and_is_named(tmp_path):
    path = tmp_path / "run"

    def lose(event):
        if isinstance(event, EpochDone) and event.epoch == 3:
            (path / "config.json").unlink()
            (path / "config.json").mkdir()

    with pytest.raises(IsADirectoryError, match=re.escape(str(path / "config.json"))):
        train(CONFIG, out=path, progress=lose)


def test_leftovers_of_a_killed_process_are_gone_after_a_resume(half):
    (half / ".fastpe-0123456789abcdef.tmp").write_bytes(b"half")
    (half / ".fastpe-0123456789abcdee.tmp").mkdir()
    Run.resume(half, CONFIG, {}).close()
    assert [entry.name for entry in half.iterdir() if entry.name.startswith(".")] == [".fastpe-0123456789abcdee.tmp"]
    assert config_file.read_config(half) == CONFIG


def test_a_run_of_any_number_of_epochs_costs_the_lines_that_it_has(finished):
    config = replace(CONFIG, epochs=2**40)
    history, lacking = metrics_file.cut(finished, config, config.epochs)
    assert [line["epoch"] for line in history] == [1, 2, 3]
    assert lacking == 2**40 - 3


# At random ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(8))
def test_damage_at_random_ends_in_an_error_that_names_the_folder_or_changes_nothing(pristine, tmp_path, seed):
    draw, said = random.Random(seed), 0
    for number in range(25):
        run = shutil.copytree(pristine[0], tmp_path / str(number))
        name, texts = damage.somewhere(run, draw), []
        try:
            texts += read_all(run)
        except (ValueError, OSError) as error:
            texts.append(str(error))
        said += bool(texts)
        for text in texts:
            assert str(run) in text, (name, text)
            assert len(text) < 1000
    assert said > 15


def test_the_command_line_says_it_in_one_line(pristine, tmp_path):
    draw = random.Random(1)
    for number in range(12):
        run = shutil.copytree(pristine[number % 2], tmp_path / str(number))
        damage.somewhere(run, draw)
        for command in (["evaluate", run], ["show", "--run", run, "--json"], ["train", "--resume", "--out", run]):
            found = fastpe(*command)
            assert found.exit_code in (0, 1, 2)
            assert "internal" not in found.stderr
            assert "Traceback" not in found.stderr


def test_forms_and_writers_agree(finished):
    """What is written has the form that is asked for in reading, for values at the ends of their ranges."""
    line = {"loss": 1.7976931348623157e308, "seconds": 5e-324}
    with Run.resume(finished, CONFIG, {}) as run:
        run.save_metrics([{"epoch": n, "step": n, **line} for n in (1, 2, 3)])
        assert len(run.cut_metrics(3)) == 3
