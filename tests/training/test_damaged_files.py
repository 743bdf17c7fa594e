"""Damaged and hostile files, most with right checksums: each ends in one clear error that names the file."""

import json
import re

import damage
import numpy as np
import pytest
from command_line import fastpe
from damage import CONFIG, read_all, with_facts, with_header, with_record, with_result

from fastpe.base import files
from fastpe.base.stored import DamagedFileError
from fastpe.training.run_folder import Run, load


def test_what_training_leaves_is_read_without_a_note(finished):
    assert read_all(finished) == []


# The tables of what somebody could write ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("facts", "message"),
    [
        ({"epoch": 10**9}, "epoch is 1000000000, where a whole number from 1 to 3 was expected"),
        ({"epoch": "x"}, "epoch is 'x'"), ({"epoch": 1.5}, "epoch is 1.5"), ({"epoch": None}, "epoch is None"),
        ({"epoch": 0}, "epoch is 0"), ({"epoch": True}, "epoch is True"), ({"epoch": [1]}, r"epoch is \[1\]"),
        ({"step": -3}, "step is -3, where a whole number from 1 to 3 was expected"), ({"step": 2**70}, "step is"),
        ({"step": 1}, "step is 1, where 3 was expected"), ({"epoch": 2}, "step is 3, where 2 was expected"),
        ({"seconds": ...}, "seconds is missing"), ({"seconds": -1.0}, "seconds is -1.0, where a finite number of at"),
        ({"loss": "x"}, "loss is 'x'"), ({"loss": None}, "loss is None"), ({"loss": float("nan")}, "it holds NaN"),
        ({"schema": 2.0}, "schema is 2.0"), ({"more": 1}, "more is 1, where no such key was expected"),
        ({"config": "f" * 64}, r"does not belong to the config\.json in its folder"),
    ],
)  # fmt: skip
def test_a_checkpoint_of_no_such_run_is_refused(finished, facts, message):
    with_facts(finished / "checkpoint.safetensors", **facts)
    with pytest.raises(DamagedFileError, match=rf"checkpoint\.safetensors .*{message}"):
        read_all(finished)


def test_a_checkpoint_with_a_parameter_that_is_no_number_is_refused(finished):
    def change(entries, facts, data):
        begin, end = entries["model.head.weight"]["data_offsets"]
        return data[:begin] + np.full((end - begin) // 4, np.nan, "<f4").tobytes() + data[end:]

    with_header(finished / "checkpoint.safetensors", change)
    with pytest.raises(DamagedFileError, match=r"checkpoint\.safetensors is damaged: model\.head\.weight is not f"):
        read_all(finished)


def shifted(by):
    """The last tensor's place moved: a gap, or an overlap, though sizes, checksums and the file's end agree."""

    def change(entries, facts, data):
        name = max((key for key in entries if key != "__metadata__"), key=lambda key: entries[key]["data_offsets"])
        begin, end = entries[name]["data_offsets"]
        entries[name]["data_offsets"] = [begin + by, end + by]
        return data + bytes(by) if by > 0 else data[:by]

    return change


def entry(**changed):
    def change(entries, facts, data):
        entries["head.weight"].update(changed)

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (shifted(4), "data_offsets is .* was expected"), (shifted(-4), "data_offsets is .* was expected"),
        (entry(shape=[-8, -1]), r"head\.weight'.shape\[0\] is -8, where a whole number from 0"),
        (entry(shape=[8.0, 1]), r"shape\[0\] is 8.0"), (entry(shape="8"), "shape is '8'"),
        (entry(shape=[True]), "True"),
        (entry(shape=[4, 2]), "does not match its configuration: head.weight"), (entry(shape=[16]), "data_offsets is"),
        (entry(data_offsets=[0.0, 32.0]), r"data_offsets\[0\] is 0.0"), (entry(data_offsets=[0]), "2 values"),
        (entry(data_offsets=None), "data_offsets is None"), (entry(dtype="F16"), "dtype is 'F16', where F32 or F64"),
        (entry(dtype=["F32"]), "dtype is"), (entry(more=1), "more is 1, where no such key"),
        (entry(shape=[1] * 40), "a list of 0 to 32 values"),
    ],
)  # fmt: skip
def test_a_header_that_nobody_wrote_is_refused_though_its_checksums_are_right(finished, change, message):
    with_header(finished / "model.safetensors", change)
    with pytest.raises(DamagedFileError, match=rf"model\.safetensors .*{message}"):
        load(finished)


@pytest.mark.parametrize("shape", ["[" + "9" * 4000 + "]", "[" + ",".join(["9" * 4000] * 100) + "]"])
def test_a_shape_of_thousands_of_digits_costs_no_time(tmp_path, shape):
    """Not a digest of it is right: it must be refused before anybody multiplies such numbers."""
    header = f'{{"__metadata__":{{"fastpe":"{{}}"}},"a":{{"dtype":"F32","shape":{shape},"data_offsets":[0,4]}}}}'
    (tmp_path / "x").write_bytes(len(header).to_bytes(8, "little") + header.encode() + bytes(4))
    with pytest.raises(DamagedFileError, match="x is damaged: it holds a number of 4000 digits"):
        files.TensorFile(tmp_path / "x")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"width": "8"}, "width must be an integer, not '8'"), ({"causal": 1}, "causal"), ({"layers": 2.0}, "layers"),
        ({"encoding": ["learned"]}, "encoding must be a name"), ({"options": {"beyond": 3}}, "beyond"),
        ({"encoding": "/tmp/x.py"}, "must be a key here, not the path of a file"), ({"dtype": 32}, "dtype"),
        ({"task": {}}, "task"), ({"lr": "1"}, "lr"), ({"test_lengths": ["4"]}, "test_lengths"),
        ({"more": 1}, "setting 'more' is unknown"), ({"train_length": 2**70}, "train_length"),
    ],
)  # fmt: skip
def test_a_setting_of_a_wrong_type_names_the_file_and_the_setting(finished, change, message):
    with_record(finished, lambda record: record["config"].update(change))
    damage.reseal_config_of(finished, "model.safetensors")
    with pytest.raises(ValueError, match=rf"run/config\.json\W.*{re.escape(message)}"):
        load(finished)
    found = fastpe("evaluate", finished)
    assert (found.exit_code, "internal" in found.stderr, found.stderr.count("\n")) == (2, False, 1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda record: record.pop("versions"), "versions is missing"),
        (lambda record: record["versions"].update(numpy=2), r"versions\.numpy is 2, where a text was expected"),
        (lambda record: record["cpu"].pop("name"), "cpu.name is missing"),
        (lambda record: record.update(resumed=[1]), r"resumed\[0\] is 1, where an object was expected"),
        (lambda record: record.update(encodings={"a": {"file": 1, "sha256": "0" * 64}}), r"encodings\.a\.file is 1"),
        (lambda record: record.pop("config"), "config is missing"), (lambda record: record.update(more=1), "more is 1"),
        (lambda record: record.update(schema="1"), "schema is '1'"),
        (lambda record: record.update(protocol={"adam": 1}), r"protocol\.adam is 1"),
    ],
)  # fmt: skip
def test_a_record_of_a_wrong_form_is_refused_though_its_checksum_is_right(finished, change, message):
    with_record(finished, change)
    for read in (load, read_all):
        with pytest.raises(DamagedFileError, match=rf"config\.json is damaged: {message}"):
            read(finished)


@pytest.mark.parametrize("content", ["[" * 200_000, "NaN", '{"schema": 1e999}', "1" * 5000, "[]", "3", "", "\ufeff{}"])
def test_a_record_that_is_no_record_is_refused(finished, content):
    (finished / "config.json").write_text(content)
    with pytest.raises(DamagedFileError, match=r"config\.json is damaged: "):
        load(finished)


LINE = {"epoch": 2, "step": 2, "loss": 0.5, "seconds": 0.25}


@pytest.mark.parametrize(
    "line",
    [
        "[" * 200_000, "{}", "[]", "3", '"x"', json.dumps({**LINE, "loss": float("nan")}), "1" * 5000, "\ud7ff",
        *(json.dumps({**LINE, **change}) for change in (
            {"loss": float("inf")}, {"loss": "x"}, {"epoch": 4, "step": 4}, {"epoch": 10**9}, {"epoch": 2.0},
            {"step": 3}, {"epoch": [2]}, {"epoch": {}}, {"seconds": -1}, {"seconds": None}, {"more": 1},
        )),
    ],
)  # fmt: skip
def test_a_damaged_line_of_the_metrics_is_left_out_and_said(finished, line):
    path = finished / "metrics.jsonl"
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], line, lines[2]]) + "\n")
    with Run.resume(finished, CONFIG, {}) as run:
        history = run.cut_metrics(3)
    assert [line["epoch"] for line in history] == [1, 3]
    assert run.notes == [f"{path} lacks 1 of 3 epochs"]
    assert path.read_text().splitlines() == [lines[0], lines[2]]


def test_metrics_that_are_far_too_large_are_refused(finished):
    (finished / "metrics.jsonl").write_bytes(b"\n" * 2 * 10**6)
    with pytest.raises(DamagedFileError, match=r"metrics\.jsonl is damaged: it is larger than \d+ bytes"):
        read_all(finished)


TRAIN = {"steps": 3, "loss": 0.5, "seconds": 0.75}
RESULT = {"schema": 2, "task": "running_sum", "encoding": "learned", "seed": 0, "train": TRAIN}
TEST = {"mse": 1.5, "nmse": 0.5, "mse_last": 2.0, "mse_beyond": None, "sequences": 5}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], r"it is \[\], where an object was expected"), (None, "it is None"), (RESULT, "test is missing"),
        ({**RESULT, "test": {}}, r"test\.4 is missing"), ({**RESULT, "test": {"4": TEST, "5": TEST}}, r"test\.5 is"),
        ({**RESULT, "test": {"4": {**TEST, "mse": "x"}}}, r"test\.4\.mse is 'x'"),
        ({**RESULT, "test": {"4": {**TEST, "mse": float("nan")}}}, "it holds NaN"),
        ({**RESULT, "test": {"4": {**TEST, "mse": None}}}, r"test\.4\.reason is None, where a text was expected"),
        ({**RESULT, "test": {"4": {**TEST, "sequences": 6}}}, r"sequences is 6, where 5 was expected"),
        ({**RESULT, "test": {"4": TEST}, "seed": 1}, "seed is 1, where 0 was expected"),
        ({**RESULT, "test": {"4": TEST}, "encoding": "alibi"}, "encoding is 'alibi', where 'learned' was expected"),
        ({**RESULT, "test": {"4": TEST}, "train": {**RESULT["train"], "steps": 4}}, "steps is 4, where"),
        ({**RESULT, "test": {"4": TEST}, "schema": 9}, "schema is 9"),
    ],
)  # fmt: skip
def test_a_sealed_result_of_no_such_run_is_made_again_and_says_why(finished, content, message):
    with_result(finished, json.dumps(content))
    (note,) = read_all(finished)
    assert re.fullmatch(rf".*result\.json is damaged: .*{message}.*; it is computed again", note)
