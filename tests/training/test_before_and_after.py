"""What is said before a training rather than after it, and what a finished run needs no longer."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fastpe import TrainConfig, train
from fastpe.base import files, validation
from fastpe.encodings.encoding import BeyondTrainingLength
from fastpe.training import evaluation

CONFIG = TrainConfig("alibi", width=8, hidden=8, train_length=4, samples=8, epochs=1, test_lengths=(4, 6))
OF_TEXT = {"task": "text", "causal": True, "data": __file__, "test_lengths": (4,)}


def test_a_reason_of_several_lines_is_stored_and_read_again(tmp_path, monkeypatch):
    """An encoding of one's own may say anything."""

    def refuse(config, length):
        if length > 4:
            raise BeyondTrainingLength("mine has no rows there:\nat most 4\u00a0positions \x1b[2J")

    monkeypatch.setattr(evaluation, "check_length", refuse)
    first = train(CONFIG, out=tmp_path / "run", progress=False)
    notes = []
    again = train(CONFIG, out=tmp_path / "run", resume=True, progress=notes.append)
    assert again.result == first.result
    assert first.result["test"]["6"]["reason"] == "mine has no rows there: at most 4\u00a0positions \\x1b[2J"
    assert not [note for note in notes if "damaged" in getattr(note, "message", "")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"samples": 2**36}, "68719476736 training sequences of length 4 need 13,194.1 GB"),
        ({"validation": 2**36}, "validation with 68719476736 sequences of length 4 needs"),
        ({**OF_TEXT, "validation": 2**36}, "validation with 68719476736 sequences of length 4 needs"),
        ({"test_sequences": 2**36}, "68719476736 test sequences of length 4 need 13,194.1 GB"),
    ],
)
def test_memory_that_nobody_has_is_refused_before_any_file(tmp_path, change, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        train(replace(CONFIG, **change), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("setting", [{"validation": np.int64(0)}, {"patience": np.int8(0)}, {"dropout": -0.0}])
def test_a_zero_is_stored_like_any_other(tmp_path, setting):
    train(replace(CONFIG, **setting), out=tmp_path / "run", progress=False)
    assert train(CONFIG, out=tmp_path / "run", resume=True, progress=False).result["task"] == "running_sum"


def test_a_finished_run_is_read_on_a_smaller_machine(tmp_path, monkeypatch):
    found = train(CONFIG, out=tmp_path / "run", progress=False)
    monkeypatch.setattr(validation, "_memory", lambda: 5 * 10**6)
    monkeypatch.setattr(evaluation, "BYTES_DRAWN", 10**9)
    assert train(CONFIG, out=tmp_path / "run", resume=True, progress=False).result == found.result
    (tmp_path / "run" / "seal.json").unlink()
    with pytest.raises(ValueError, match=r"1000 test sequences of length 4 need 4,000\.0 GB"):
        train(CONFIG, out=tmp_path / "run", resume=True, progress=False)


def test_a_model_whose_checkpoints_could_not_be_read_is_not_trained(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_MAX_HEADER", 5000)
    with pytest.raises(ValueError, match=r"^\d+ tensors cannot be stored: a header of \d+ bytes is too long"):
        train(CONFIG, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    train(replace(CONFIG, layers=1), progress=False)


def test_what_is_counted_of_a_header_is_no_less_than_it_has(tmp_path):
    train(CONFIG, out=tmp_path / "run", progress=False)
    content = (tmp_path / "run" / "checkpoint.safetensors").read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    del header["__metadata__"]
    names = [name.removeprefix("model.") for name in header if name.startswith("model.")]
    assert 3 * len(names) == len(header)
    assert len(json.dumps(header)) < 3 * sum(len(name) + files._OF_ENTRY for name in names)
