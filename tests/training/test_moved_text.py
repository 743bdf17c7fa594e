"""The text of a run is found by its SHA-256 wherever the run is used from, and nothing else is read as it."""

import json
import os
import shutil

import pytest
from command_line import fastpe, refused
from small_run import same_result

from fastpe import TrainConfig, length_curve, receptive_field, train
from fastpe.experiments.study import Study
from fastpe.experiments.study_folder import check_folder
from fastpe.text.corpus import TextNotFound, read_known
from fastpe.theory.probes import probe_run
from fastpe.training import config_file
from fastpe.training.config_file import RunError, read_config
from fastpe.training.text_data import text_parts

TEXT = "the cat sat on the mat. the dog sat on the log. " * 40
SMALL = {
    "task": "text", "task_options": {"tokens": "characters"}, "causal": True, "width": 8, "hidden": 8, "layers": 1,
    "train_length": 6, "samples": 16, "batch": 8, "epochs": 1, "test_lengths": (6,),
}  # fmt: skip


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A folder with a text, and a run on it that was begun there and names it by a relative path."""
    root = tmp_path_factory.mktemp("texts")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        (root / "text.txt").write_text(TEXT)
        train(TrainConfig("alibi", data="text.txt", **SMALL), out="run", progress=False)
    return root


@pytest.fixture
def made(original, tmp_path, monkeypatch):
    """The text's folder and a copy of the run; the working folder is another one."""
    run = shutil.copytree(original / "run", tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    return original, run


def unfinished(run):
    for name in ("result.json", "seal.json", "model.safetensors"):
        (run / name).unlink()
    return run


READERS = {
    "resume": lambda run: fastpe("train", "--resume", "--out", unfinished(run)),
    "evaluate": lambda run: fastpe("evaluate", run),
    "length curve": lambda run: fastpe("evaluate", run, "--length-curve", "--test-lengths", "4"),
    "receptive field": lambda run: fastpe("evaluate", run, "--receptive-field", "--test-lengths", "4"),
    "length_curve": lambda run: length_curve(run, lengths=[4]),
    "receptive_field": lambda run: receptive_field(run, length=4),
    "probe": lambda run: probe_run(run, 4),
    "train": lambda run: train(read_config(run), out=unfinished(run), resume=True, progress=False),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("here", ["nothing", "another text"])
def test_a_run_is_used_from_any_folder(made, reader, here):
    if here != "nothing":
        (made[1].parent / "text.txt").write_text("Another text, with other characters! " * 50)
    found = READERS[reader](made[1])
    assert getattr(found, "exit_code", 0) == 0, found.output


@pytest.mark.parametrize("reader", READERS)
def test_without_the_text_one_error_names_its_path_and_its_sha256(made, reader, monkeypatch):
    record = config_file.read(made[1])
    record["text"] = str(made[1] / "gone.txt")
    config_file.write(made[1], record)
    try:
        found = READERS[reader](made[1])
        assert (found.exit_code, found.output.count("\n")) == (2, 1), found.output
        said = found.output
    except TextNotFound as error:
        said = str(error)
    digest = read_config(made[1]).digest
    where = f"text.txt does not exist; {made[1]}/gone.txt does not exist"
    assert f"no text with the SHA-256 {digest} was found: {where}. Give its path with --data" in said


def test_data_is_taken_where_it_is_the_same_text(made, tmp_path):
    root, run = made
    before = json.loads((run / "result.json").read_text())
    model = (run / "model.safetensors").read_bytes()
    (tmp_path / "moved.txt").write_text(TEXT)
    (tmp_path / "other.txt").write_text(TEXT[1:])
    kept = (run / "config.json").read_bytes()
    assert "other.txt has another SHA-256" in refused(2, "train", "--resume", "--out", run, "--data", "other.txt")
    assert "none.txt does not exist" in refused(2, "train", "--resume", "--out", run, "--data", "none.txt")
    assert (run / "config.json").read_bytes() == kept
    unfinished(run)
    assert fastpe("train", "--resume", "--out", run, "--data", "moved.txt").exit_code == 0
    assert (run / "model.safetensors").read_bytes() == model
    assert same_result(json.loads((run / "result.json").read_text()), before)
    assert config_file.read(run)["text"] == str(tmp_path / "moved.txt")  # where it is found from now on
    assert config_file.read(run)["config"]["data"] == "text.txt"
    again = TrainConfig("alibi", data=root / "text.txt", **SMALL)
    assert same_result(train(again, out=run, resume=True, progress=False).result, before)


def test_a_moved_text_is_needed_before_more_epochs_change_the_run(made):
    record = config_file.read(made[1])
    record["text"] = "/nowhere/text.txt"
    config_file.write(made[1], record)
    before = {path.name: path.read_bytes() for path in made[1].iterdir()}
    assert "/nowhere/text.txt does not exist" in refused(2, "train", "--resume", "--out", made[1], "--epochs", "2")
    assert {path.name: path.read_bytes() for path in made[1].iterdir()} == before


def test_what_is_computed_and_its_digests_do_not_depend_on_the_folder(original, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT)
    train(TrainConfig("alibi", data="text.txt", **SMALL), out="run", progress=False)
    assert (tmp_path / "run/model.safetensors").read_bytes() == (original / "run/model.safetensors").read_bytes()
    here, there = read_config(tmp_path / "run"), read_config(original / "run")
    assert here == there
    assert here.to_dict() == there.to_dict()
    assert here.text_places != there.text_places


@pytest.mark.parametrize("kind", ["fifo", "device", "folder with a fifo", "secret"])
def test_a_path_in_a_strangers_run_is_opened_only_as_a_file_and_never_quoted(made, kind, tmp_path):
    secret = tmp_path / "secret"
    if kind == "fifo":
        os.mkfifo(secret)
    elif kind == "folder with a fifo":
        secret.mkdir()
        os.mkfifo(secret / "fifo")
    elif kind == "secret":
        secret.write_bytes(b"key \xff \x00 ZQX")
    record = config_file.read(made[1])
    record["config"]["data"] = record["text"] = "/dev/zero" if kind == "device" else str(secret)
    config_file.write(made[1], record)
    with pytest.raises(TextNotFound) as caught:
        text_parts(read_config(made[1]))
    why = "has another SHA-256" if kind == "secret" else "is not a file or a folder of files, or is too large"
    assert f"{record['text']} {why}." in str(caught.value)
    assert not any(word in str(caught.value) for word in ("ZQX", "0xff", "UTF-8", "zero bytes", "vocabulary"))


def test_a_folder_and_its_only_file_are_different_texts(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.txt").write_text(TEXT)
    config = TrainConfig("alibi", data=tmp_path / "folder", **SMALL)
    assert read_known([tmp_path / "folder"], config.digest).digest == config.digest
    with pytest.raises(TextNotFound):
        read_known([tmp_path / "folder" / "a.txt"], config.digest)


def test_a_study_is_read_without_its_texts(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = tmp_path / "text.txt"
    text.write_text(TEXT + "\x7f\t")  # characters that TOML escapes
    settings = {name: value for name, value in SMALL.items() if name not in ("task", "task_options", "test_lengths")}
    tasks = {"prose": {"task": "text", "options": {"tokens": "characters"}, "data": "text.txt"}, "reverse": {}}
    study = Study(["alibi", "nope"], tasks, 1, settings=settings).with_texts()
    (tmp_path / "study").mkdir()
    (tmp_path / "study" / "study.toml").write_text(study.to_toml())
    text.write_text(TEXT)
    with pytest.raises(RunError, match="contains another study"):
        check_folder(tmp_path / "study", Study(["alibi", "nope"], tasks, 1, settings=settings))
    text.unlink()
    stored = Study.read(tmp_path / "study" / "study.toml")
    assert stored == stored.with_texts() == study
    assert [stored.config(cell) for cell in stored.run_keys()] == [study.config(cell) for cell in study.run_keys()]
    check_folder(tmp_path / "study", study)
