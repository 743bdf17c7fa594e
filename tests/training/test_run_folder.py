"""Run folders and the files in them: whole or not there, verified when they are read."""

import errno
import hashlib
import json
import os
from dataclasses import replace

import numpy as np
import pytest
from damage import CONFIG
from safetensors.numpy import load_file

from fastpe.base import files
from fastpe.base.files import TensorFile
from fastpe.base.stored import DamagedFileError
from fastpe.model.transformer import Transformer
from fastpe.training import config_file, run_folder
from fastpe.training.config import TrainConfig
from fastpe.training.run_folder import Run, RunError, load

TENSORS = {
    "b": np.arange(6, dtype=np.float32).reshape(2, 3),
    "a": np.array([1.0, np.nan, -0.0]),
    "scalar": np.float32(3).reshape(()),
    "empty": np.zeros((0, 4), np.float32),
    "strided": np.arange(12, dtype=np.float64).reshape(3, 4).T[::2],
}


@pytest.fixture
def tensor_file(tmp_path):
    path = tmp_path / "x.safetensors"
    files.write_tensors(path, TENSORS, {"epoch": 3, "name": "é"})
    return path


# Tensors -------------------------------------------------------------------------------------------------------------


def test_tensors_are_what_the_safetensors_library_reads(tensor_file):
    theirs, file = load_file(tensor_file), TensorFile(tensor_file)
    ours = file.read()
    assert set(theirs) == set(ours) == set(TENSORS)
    for name, tensor in TENSORS.items():
        np.testing.assert_array_equal(theirs[name], tensor)
        np.testing.assert_array_equal(ours[name], tensor)
        assert ours[name].dtype == tensor.dtype
    assert (file.facts["epoch"], file.facts["name"]) == (3, "é")


def test_the_digest_is_that_of_the_tensor_bytes(tensor_file):
    content = tensor_file.read_bytes()
    data = content[8 + int.from_bytes(content[:8], "little") :]
    assert TensorFile(tensor_file).facts["sha256"] == hashlib.sha256(data).hexdigest()


def test_the_same_tensors_give_the_same_bytes(tensor_file, tmp_path):
    other = tmp_path / "other"
    files.write_tensors(other, dict(reversed(TENSORS.items())), {"name": "é", "epoch": 3})
    assert other.read_bytes() == tensor_file.read_bytes()


@pytest.mark.parametrize("bit", [1, 0x20, 0x80])
def test_every_flipped_byte_is_found(tensor_file, bit):
    content = tensor_file.read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= bit
        tensor_file.write_bytes(damaged)
        with pytest.raises(DamagedFileError, match="is damaged"):
            TensorFile(tensor_file).read()


def test_every_truncation_is_found(tensor_file):
    content = tensor_file.read_bytes()
    for length in range(len(content)):
        tensor_file.write_bytes(content[:length])
        with pytest.raises(DamagedFileError, match="is damaged"):
            TensorFile(tensor_file).read()
    tensor_file.write_bytes(content + b"\0")
    with pytest.raises(DamagedFileError, match="its header states"):
        TensorFile(tensor_file)


def test_a_header_cannot_ask_for_memory(tmp_path):
    path = tmp_path / "x"
    path.write_bytes((2**62).to_bytes(8, "little") + b"{}")
    with pytest.raises(DamagedFileError, match="states a header of"):
        TensorFile(path)
    path.write_bytes((10**6).to_bytes(8, "little") + b"[" * 10**6)
    with pytest.raises(DamagedFileError, match="header"):
        TensorFile(path)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_leaves_the_old_file(tmp_path, monkeypatch, call):
    path = tmp_path / "x"
    files.write_file(path, b"old")

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match="No space left") as caught:
        files.write_file(path, b"new")
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(path))
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == {"x": b"old"}


# Folders -------------------------------------------------------------------------------------------------------------


def test_a_new_run_records_all_that_its_bits_depend_on(tmp_path):
    Run.create(tmp_path / "deep" / "run", CONFIG, {"beyond": "raise"}).close()
    stored = json.loads((tmp_path / "deep" / "run" / "config.json").read_text())
    assert TrainConfig.from_dict(stored["config"]) == CONFIG
    assert stored["encoding_options"] == {"beyond": "raise"}
    assert stored["versions"]["numpy"] == np.__version__
    assert stored["cpu"]["name"]
    # what the paper leaves open and is no field of the configuration
    assert {"input map", "output map of attention", "logit scale"} <= set(stored["protocol"])


def test_an_existing_folder_is_left_alone(tmp_path):
    (tmp_path / "run").mkdir()
    with pytest.raises(RunError, match="exists already"):
        Run.create(tmp_path / "run", CONFIG, {})
    assert not list((tmp_path / "run").iterdir())


def test_a_file_in_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "run").write_text("mine")
    with pytest.raises(RunError, match="cannot be used: it is a file, and a folder is expected"):
        Run.create(tmp_path / "run", CONFIG, {})
    with pytest.raises(RunError, match="cannot be used: it is a file, and a folder is expected"):
        config_file.check_target(tmp_path / "run", CONFIG, resume=False)
    assert (tmp_path / "run").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_refused(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunError, match="is not a folder"):
        Run.create(tmp_path / "file" / "run", CONFIG, {})
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(RunError, match="no permission"):
        Run.create(tmp_path / "run", CONFIG, {})


def test_a_disk_that_is_full_at_the_start_leaves_no_folder(tmp_path, monkeypatch):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(RunError, match="cannot be written: No space left on device"):
        Run.create(tmp_path / "run", CONFIG, {})
    assert not list(tmp_path.iterdir())


def test_numbered_folders_take_the_first_free_number(tmp_path):
    (tmp_path / "learned-1").mkdir()
    for number in (0, 2, 3):
        with Run.create_numbered(CONFIG, {}, tmp_path) as run:
            assert run.path == tmp_path / f"learned-{number}"


def test_numbered_folders_survive_a_race(tmp_path, monkeypatch):
    """Another process takes the number between the look and the making."""
    make = run_folder.Path.mkdir
    taken = []

    def race(path, *arguments, **keywords):
        if path.name == "learned-0" and not taken:
            taken.append(path)
            make(path)
        make(path, *arguments, **keywords)

    monkeypatch.setattr(run_folder.Path, "mkdir", race)
    with Run.create_numbered(CONFIG, {}, tmp_path) as run:
        assert run.path == tmp_path / "learned-1"


def test_one_process_at_a_time(tmp_path):
    with Run.create(tmp_path / "run", CONFIG, {}), pytest.raises(RunError, match="another process is working"):
        Run.resume(tmp_path / "run", CONFIG, {})
    Run.resume(tmp_path / "run", CONFIG, {}).close()


@pytest.mark.parametrize("leftover", [None, "empty", ".config.json.tmp"])
def test_a_run_that_was_killed_at_its_start_is_started_afresh(tmp_path, leftover):
    path = tmp_path / "run"
    if leftover is not None:
        path.mkdir()
        if leftover != "empty":
            (path / leftover).write_text("{")
    with Run.resume(path, CONFIG, {}) as run:
        assert "starting a new run" in run.notes[0]
    assert config_file.read_config(path) == CONFIG


def test_other_folders_are_not_taken_for_runs(tmp_path):
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(RunError, match="not a run folder"):
        Run.resume(tmp_path, CONFIG, {})
    assert [entry.name for entry in tmp_path.iterdir()] == ["thesis.tex"]


def test_resuming_with_other_settings_names_them(tmp_path):
    Run.create(tmp_path / "run", CONFIG, {}).close()
    with pytest.raises(RunError, match=r"epochs was 3, now 4; test_lengths was \[4\], now \[5\]"):
        Run.resume(tmp_path / "run", replace(CONFIG, epochs=4, test_lengths=(5,)), {})


def test_resuming_under_other_versions_goes_on_and_says_so(tmp_path, monkeypatch):
    Run.create(tmp_path / "run", CONFIG, {}).close()
    now = config_file.environment()
    now["versions"]["numpy"] = "99.0"
    monkeypatch.setattr(config_file, "environment", lambda: now)
    with Run.resume(tmp_path / "run", CONFIG, {}) as run:
        assert "-> 99.0" in run.notes[0]
    assert config_file.read(tmp_path / "run")["resumed"] == [now]
    with Run.resume(tmp_path / "run", CONFIG, {}) as run:
        assert run.notes == []


# Loading -------------------------------------------------------------------------------------------------------------


def test_every_flipped_byte_of_the_record_is_found(finished):
    path = finished / "config.json"
    content = path.read_bytes()
    for place in range(0, len(content), 7):
        damaged = bytearray(content)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(DamagedFileError, match=r"config\.json is damaged"):
            load(finished)


def test_missing_files_are_named(finished, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere"):
        load(tmp_path / "nowhere")
    (finished / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="is not finished"):
        load(finished)
    (finished / "config.json").unlink()
    with pytest.raises(RunError, match=r"it contains files but no config\.json"):
        load(finished)
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="contains no run"):
        load(tmp_path / "empty")


def test_the_model_of_another_run_is_refused(finished, tmp_path):
    other = replace(CONFIG, seed=1)
    with Run.create(tmp_path / "other", other, {}) as run:
        run.save_model(Transformer(other.model))
    (run.path / "model.safetensors").replace(finished / "model.safetensors")
    with pytest.raises(DamagedFileError, match=r"does not belong to the config\.json in its folder"):
        load(finished)


@pytest.mark.parametrize(
    "sizes", [{"width": 10**6}, {"hidden": 10**9}, {"layers": 10**4}, {"dtype": "float64"}, {"train_length": 10**8}]
)
def test_sizes_are_compared_before_memory_is_taken(finished, monkeypatch, sizes):
    """Both files are consistent in themselves, checksums included, but the sizes are not those of the tensors."""
    wrong = replace(CONFIG, **sizes)
    config_file.write(finished, config_file.make(wrong, {}))
    facts = {"schema": 2, "config": config_file.digest(wrong.to_dict()), "model": wrong.model.to_dict()}
    files.write_tensors(finished / "model.safetensors", Transformer(CONFIG.model).parameters, facts)

    def refuse(config):
        raise AssertionError("the model was built")

    monkeypatch.setattr(run_folder, "Transformer", refuse)
    with pytest.raises(DamagedFileError, match="does not match its configuration"):
        load(finished)
