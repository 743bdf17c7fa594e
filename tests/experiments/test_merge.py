"""Shards that somebody else made: all of them are checked before anything is written."""

import json
import os
import shutil

import damage
import pytest

from fastpe.base import files
from fastpe.experiments.existing_runs import merge
from fastpe.experiments.study import Study
from fastpe.training import config_file

pytestmark = pytest.mark.usefixtures("no_pdf")

SETTINGS = {
    "width": 8, "hidden": 4, "layers": 1, "train_length": 4, "samples": 8, "batch": 8, "epochs": 3, "test_lengths": [4],
    "test_sequences": 5,
}  # fmt: skip
ENCODINGS = {"learned": {"options": {"beyond": "clip"}}, "nope": {}}
STUDY = Study(ENCODINGS, ["running_sum"], seeds=1, settings=SETTINGS)


def digests():
    return [config_file.digest(STUDY.config(cell).to_dict()) for cell in STUDY.run_keys()]


@pytest.fixture
def shard(tmp_path):
    """A shard that holds all of a study: one run that is done, one that failed."""
    (path := tmp_path / "shard").mkdir()
    (path / "study.toml").write_text(STUDY.to_toml())
    (path / "failed.json").write_text(json.dumps({digests()[1]: "it diverged"}))
    (path / "runs").mkdir()
    damage.finished(path / "runs" / "one")
    return path


def test_what_the_study_has_is_copied_and_nothing_else(shard, tmp_path):
    shutil.copytree(shard / "runs" / "one", shard / "runs" / ".one.tmp")
    (shard / "runs" / "one" / "more").write_text("x")
    failed = json.loads((shard / "failed.json").read_text())
    (shard / "failed.json").write_text(json.dumps({**failed, "0" * 64: "of another study", "x\x1b": "y"}))
    found = merge([shard], tmp_path / "out")
    assert found.summary["failed"] == 1
    assert json.loads((tmp_path / "out" / "failed.json").read_text()) == failed
    assert [path.name for path in (tmp_path / "out" / "runs").iterdir()] == ["one"]
    copied = {path.name: path.read_bytes() for path in (tmp_path / "out" / "runs" / "one").iterdir()}
    assert copied == {name: (shard / "runs" / "one" / name).read_bytes() for name in damage.FILES}
    assert not [path for path in (tmp_path / "out").iterdir() if path.name.startswith(".")]


def enlarge(path):
    """A file with a hole, which takes no room on the disk."""
    os.truncate(path, 2**40)


BAD = {
    "failed.json is of another form": ("failed.json", lambda path: path.write_text('{"a": {"b": 1}}')),
    "failed.json is a list": ("failed.json", lambda path: path.write_text("[1]")),
    "a checkpoint is junk": ("runs/one/checkpoint.safetensors", lambda path: path.write_bytes(b"junk")),
    "a model has a tebibyte": ("runs/one/model.safetensors", enlarge),
    "metrics have a tebibyte": ("runs/one/metrics.jsonl", enlarge),
    "a result is another": ("runs/one/result.json", lambda path: path.write_text("{}")),
}


@pytest.mark.skipif(os.name == "nt", reason="files with holes")
@pytest.mark.parametrize("what", BAD)
def test_a_damaged_shard_is_named_and_nothing_is_written(shard, tmp_path, what):
    good = shutil.copytree(shard, tmp_path / "good")
    name, harm = BAD[what]
    harm(shard / name)
    with pytest.raises(ValueError, match="is damaged") as error:
        merge([good, shard], tmp_path / "out")
    assert str(error.value).startswith(str(shard / name))
    assert not (tmp_path / "out").exists()


@pytest.mark.skipif(os.name == "nt", reason="files with holes")
def test_tensors_that_no_memory_holds_are_refused(shard, tmp_path):
    path = shard / "runs" / "one" / "checkpoint.safetensors"

    def huge(entries, facts, data):
        metadata = entries["__metadata__"]
        entries.clear()
        entries |= {"__metadata__": metadata, "huge": {"dtype": "F32", "shape": [2**41], "data_offsets": [0, 2**43]}}

    damage.with_header(path, huge)
    os.truncate(path, 8 + int.from_bytes(path.read_bytes()[:8], "little") + 2**43)
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors needs 8,796\.1 GB, and this machine has"):
        merge([shard], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_copy_that_fails_leaves_nothing(shard, tmp_path, monkeypatch):
    write = files.write_file

    def full(path, content):
        if path.name == "result.json":
            raise OSError(28, "No space left on device", str(path))
        write(path, content)

    monkeypatch.setattr(files, "write_file", full)
    with pytest.raises(OSError, match="No space left"):
        merge([shard], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_missing_runs_are_said_before_anything_is_copied(shard, tmp_path):
    (shard / "failed.json").unlink()
    with pytest.raises(ValueError, match="lacks 1 of 2 runs"):
        merge([shard], tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_two_runs_with_one_name_are_not_mixed_up(shard, tmp_path):
    (tmp_path / "out" / "runs" / "one").mkdir(parents=True)
    with pytest.raises(ValueError, match="are different runs with the same folder name"):
        merge([shard], tmp_path / "out")
    assert list((tmp_path / "out" / "runs" / "one").iterdir()) == []
