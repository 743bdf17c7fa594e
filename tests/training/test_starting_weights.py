"""Runs that start with the weights of another run: which weights, which settings, and what is refused."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from small_run import interrupted

import fastpe
from fastpe import Adam, TrainConfig, Transformer, load, resize, train
from fastpe.base.files import TensorFile
from fastpe.base.stored import DamagedFileError
from fastpe.experiments import existing_runs
from fastpe.experiments.study import Study
from fastpe.training.config_file import RunError, read_config
from fastpe.training.data import training_data
from fastpe.training.events import Started
from fastpe.training.loop import step

SMALL = {"width": 8, "hidden": 8, "layers": 1, "heads": 2, "train_length": 6, "test_lengths": (6,)}
TRAINING = {"samples": 20, "batch": 8, "epochs": 2, "lr": 0.01, "test_sequences": 10}
TEXT = "the cat sat on the mat. the dog sat on the log. " * 20
OF_TEXT = {"width": 8, "hidden": 8, "layers": 1, "train_length": 8, "causal": True, "task": "text"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Finished runs: of numbers by encoding, and one on a text."""
    root = tmp_path_factory.mktemp("runs")
    for encoding in ("rope", "learned", "alibi"):
        train(TrainConfig(encoding, **SMALL, **TRAINING), out=root / encoding, progress=False)
    (root / "text.txt").write_text(TEXT)
    config = TrainConfig("rope", data=root / "text.txt", task_options={"tokens": "characters"}, **OF_TEXT, **TRAINING)
    train(config, out=root / "text", progress=False)
    return root


def starting(run, encoding=None, options=None, **changes):
    return TrainConfig.starting_from(run, encoding, options, **{**TRAINING, **changes})


def first_weights(config, folder):
    """The parameters before the first update."""
    interrupted(config, folder, Started)
    return TensorFile(folder / "start.safetensors").read()


def test_the_run_is_that_of_the_loaded_weights_and_a_new_optimizer(runs, tmp_path):
    config = starting(runs / "rope", seed=5, test_lengths=(6,))
    found = train(config, out=tmp_path / "run", progress=False)
    model = load(runs / "rope")
    adam, data = Adam(model, lr=0.01), training_data(config)
    for epoch in (1, 2):
        for batch in data.batches(epoch):
            step(adam, batch, None)
    for name, array in model.parameters.items():
        np.testing.assert_array_equal(found.model.parameters[name], array)
    again = train(config, progress=False)
    assert all((again.model.parameters[n] == array).all() for n, array in model.parameters.items())


@pytest.mark.parametrize("encoding", ["rope", "learned", "alibi"])
def test_a_longer_length(runs, tmp_path, encoding):
    config = starting(runs / encoding, train_length=9, test_lengths=(9, 12))
    weights, before = first_weights(config, tmp_path / "run"), load(runs / encoding).parameters
    own = {"encoding.learned.table"} if encoding == "learned" else set()
    for name in weights.keys() - own:
        np.testing.assert_array_equal(weights[name], before[name])
    for name in own:
        expected = resize("learned", {"table": before[name]}, length=9)["table"]
        np.testing.assert_array_equal(weights[name], expected)
    assert config.model.made_for == (9 if encoding == "learned" else 6)
    found = train(read_config(tmp_path / "run"), out=tmp_path / "run", resume=True, progress=False)
    assert set(found.result["test"]) == {"9", "12"}
    slots, same = load(tmp_path / "run").slots(9), fastpe.build(
        encoding, 9, dim=8, heads=2, train_length=config.model.made_for, params=_own(load(tmp_path / "run")),
        **config.options,
    )  # fmt: skip
    for name, value in same.items():
        np.testing.assert_array_equal(slots[name], value, err_msg=name)


def _own(model):
    table = model.parameters.get("encoding.learned.table")
    return None if table is None else {"table": table}


def test_a_shorter_length_keeps_the_table(runs, tmp_path):
    config = starting(runs / "learned", train_length=4, test_lengths=(4,))
    assert config.model.made_for == 6
    np.testing.assert_array_equal(
        first_weights(config, tmp_path / "run")["encoding.learned.table"],
        load(runs / "learned").parameters["encoding.learned.table"],
    )


def test_rope_becomes_yarn_for_the_old_length_with_the_old_pairs(runs):
    config = starting(runs / "rope", "rope_yarn", {"factor": 4.0}, train_length=24)
    assert (config.encoding_length, dict(config.options)) == (6, {"pairs": "interleaved", "factor": 4.0})
    model = train(config, progress=False).model
    expected = fastpe.build("rope_yarn", 24, dim=8, heads=2, train_length=6, factor=4.0, pairs="interleaved")
    np.testing.assert_array_equal(model.slots(24)["angles"], expected["angles"])
    assert model.slots(24)["scale"] == expected["scale"]
    automatic = starting(runs / "rope", "rope_linear", train_length=24)  # without a factor: 24 / 6
    given = fastpe.build("rope_linear", 24, dim=8, heads=2, train_length=6, factor=4.0)["angles"]
    np.testing.assert_array_equal(Transformer(automatic.model).slots(24)["angles"], given)


@pytest.mark.parametrize(
    ("origin", "options", "encoding", "expected"),
    [
        ("rope", {"base": 500.0}, "rope+alibi", {"rope.base": 500.0}),
        ("rope+alibi", {"rope.base": 500.0, "alibi.slope": 0.25}, "rope", {"base": 500.0}),
        ("rope+alibi", {"rope.base": 500.0, "alibi.slope": 0.25}, "alibi+rope_yarn",
         {"alibi.slope": 0.25, "rope_yarn.base": 500.0, "rope_yarn.pairs": "interleaved"}),
        ("rope+alibi", {"rope.base": 500.0, "alibi.slope": 0.25}, "nope", {}),
    ],
)  # fmt: skip
def test_terms_of_sums_keep_their_options(tmp_path, origin, options, encoding, expected):
    Transformer(TrainConfig(origin, options, **SMALL).model).save(tmp_path / "model.safetensors")
    assert dict(starting(tmp_path / "model.safetensors", encoding, test_lengths=(6,)).options) == expected


def test_the_origin_is_recorded_and_not_needed_again(runs, tmp_path):
    origin = shutil.copytree(runs / "rope", tmp_path / "origin")
    whole = train(starting(origin), out=tmp_path / "whole", progress=False)
    first_weights(starting(origin), tmp_path / "run")  # interrupted before the first checkpoint
    shutil.rmtree(origin)
    stored = read_config(tmp_path / "run")
    assert stored.start_from == str(origin)
    assert stored.start_digest == TensorFile(runs / "rope" / "model.safetensors").facts["sha256"]
    found = train(replace(stored, epochs=3), out=tmp_path / "run", resume=True, progress=False)
    assert json.loads((tmp_path / "run" / "config.json").read_text())["config"]["start_from"] == str(origin)
    train(replace(whole.config, epochs=3), out=tmp_path / "whole", resume=True, progress=False)
    assert (tmp_path / "run/model.safetensors").read_bytes() == (tmp_path / "whole/model.safetensors").read_bytes()
    (tmp_path / "run/checkpoint.safetensors").unlink()
    (tmp_path / "run/result.json").unlink()
    again = train(found.config, out=tmp_path / "run", resume=True, progress=False)  # from its own first weights
    assert all((again.model.parameters[n] == p).all() for n, p in found.model.parameters.items())


def test_a_model_file_and_another_task(runs, tmp_path):
    load(runs / "alibi").save(tmp_path / "model.safetensors")
    config = starting(tmp_path / "model.safetensors", task="running_mean")
    assert (config.encoding, config.train_length, config.width) == ("alibi", 6, 8)
    assert config.start_digest == starting(runs / "alibi").start_digest
    train(config, progress=False)


def test_another_text_has_the_characters_of_the_first(runs, tmp_path):
    text = tmp_path / "other.txt"
    text.write_text("a cat and a dog. " * 40 + "Z")
    with pytest.raises(ValueError, match=r"other\.txt has characters that are not in the vocabulary: 'Z'"):
        starting(runs / "text", data=text)
    text.write_text("a cat on a mat. " * 40)
    config = starting(runs / "text", data=text, train_length=16)
    assert config.symbols == load(runs / "text").vocabulary
    found = train(config, out=tmp_path / "run", progress=False)
    assert found.model.generate("a cat", 5)
    own = starting(runs / "text")  # without data it is the text of the origin
    assert (own.digest, own.alphabet) == (read_config(runs / "text").digest, config.alphabet)


def test_rope_is_dropped_and_training_goes_on(runs, tmp_path):
    """DroPE: all weights are carried over, bit by bit, and none is new."""
    config = starting(runs / "text", "nope", train_length=16)
    assert (config.encoding, config.train_length, config.options) == ("nope", 16, {})
    weights, before = first_weights(config, tmp_path / "run"), load(runs / "text").parameters
    assert weights.keys() == before.keys()
    for name, array in weights.items():
        np.testing.assert_array_equal(array, before[name], err_msg=name)
    found = train(read_config(tmp_path / "run"), out=tmp_path / "run", resume=True, progress=False)
    assert any((found.model.parameters[name] != before[name]).any() for name in before)
    assert "start" not in json.loads((tmp_path / "run" / "config.json").read_text())
    assert load(tmp_path / "run").config.encoding == "nope"
    assert not load(tmp_path / "run").slots(8)


def test_another_encoding_has_no_rows_of_the_old_table(runs, tmp_path):
    config = TrainConfig("learned", **SMALL, **TRAINING, positions="offset:12")
    train(config, out=tmp_path / "run", progress=False)
    assert starting(tmp_path / "run", test_lengths=(6,)).positions == "offset:12"
    assert starting(tmp_path / "run", "rope", test_lengths=(24,)).positions == "usual"


@pytest.mark.parametrize(
    ("origin", "encoding", "options", "left_out", "initial"),
    [
        ("learned", "nope", {}, ["encoding.learned.table"], []),
        ("rope", "t5", {}, [], ["encoding.t5.table"]),
        ("learned", "t5", {}, ["encoding.learned.table"], ["encoding.t5.table"]),
        ("learned", "learned+alibi", {}, [], []),
        ("alibi", "rope", {}, [], []),
    ],
)
def test_what_cannot_be_carried_over_is_told_and_recorded(runs, tmp_path, origin, encoding, options, left_out, initial):
    config, notes = starting(runs / origin, encoding, options, seed=3), []
    found = train(config, out=tmp_path / "run", progress=lambda event: notes.append(str(event)), resume=False)
    start, before = TensorFile(tmp_path / "run" / "start.safetensors").read(), load(runs / origin).parameters
    for name, array in start.items():
        expected = Transformer(config.model).parameters if name in initial else before
        np.testing.assert_array_equal(array, expected[name], err_msg=name)
    record = json.loads((tmp_path / "run" / "config.json").read_text())
    told = [note for note in notes if "the model starts from" in note]
    if not (left_out or initial):
        assert ("start" in record, told) == (False, [])
        return
    assert record["start"] == {"left_out": left_out, "initial": initial}
    assert all(name in told[0] for name in (*left_out, *initial))
    assert train(found.config, out=tmp_path / "run", resume=True, progress=False).result == found.result


@pytest.mark.parametrize(
    ("encoding", "changes", "message"),
    [
        (None, {"width": 16}, r"width must be 8, as in .*rope, whose weights the run starts with, not 16"),
        (None, {"heads": 4}, "heads must be 2, as in"),
        (None, {"activation": "gelu"}, "activation must be 'relu', as in"),
        (None, {"init": "small_normal"}, "init must be 'uniform', as in"),
        (None, {"task": "sort", "causal": False}, "task 'sort' has 1[0-9]* tokens, but the model of .* takes numbers"),
        (None, {"start_from": "x"}, "start_from cannot be given: starting_from sets it"),
    ],
)
def test_what_contradicts_the_weights_is_refused_by_name(runs, encoding, changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        starting(runs / "rope", encoding, **changes)


def test_a_report_tells_runs_by_what_they_start_from(runs):
    configs = [read_config(runs / "rope"), starting(runs / "rope", test_lengths=(6,))]
    study, keys = existing_runs._study_of(configs, None)
    assert [study.config(key) for key in keys] == configs
    again = Study.from_toml(study.to_toml())
    assert [again.config(key) for key in keys] == configs


def test_an_origin_that_cannot_be_used_is_an_error_before_any_work(runs, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no run folder or model file"):
        starting(tmp_path / "none")
    origin = shutil.copytree(runs / "rope", tmp_path / "origin")
    config, model = starting(origin), origin / "model.safetensors"
    whole = model.read_bytes()
    model.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    for use in (lambda: starting(origin), lambda: train(config, out=tmp_path / "run", progress=False)):
        with pytest.raises(DamagedFileError, match=r"model\.safetensors is damaged"):
            use()
    model.unlink()
    with pytest.raises(FileNotFoundError, match="its training is not finished"):
        starting(origin)
    other = shutil.copytree(runs / "rope", tmp_path / "other")
    renamed = replace(config, start_from=str(other), start_digest="0" * 64)
    with pytest.raises(RunError, match="have changed since the run was configured: their SHA-256 was 0000"):
        train(renamed, out=tmp_path / "run", progress=False)
    with pytest.raises(ValueError, match=r"start_from needs start_digest: TrainConfig\.starting_from sets both"):
        replace(config, start_digest=None)
    assert not (tmp_path / "run").exists()
