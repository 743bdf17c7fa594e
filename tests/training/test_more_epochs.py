"""A run goes on with more epochs: the same bits as a run that had them from the start; and when that cannot be."""

import shutil
from dataclasses import replace

import pytest
from small_run import CONFIG, assert_same_run, interrupted, same_model, same_result

from fastpe import TrainConfig, load, train
from fastpe.training import config_file, schedule
from fastpe.training.config_file import RunError, read_config
from fastpe.training.events import EpochDone, Noted, Started

SMALL = replace(CONFIG, epochs=2)
CONFIGS = {
    "fixed data, warm-up": replace(SMALL, warmup=4),
    "fresh data, dropout, random positions": replace(SMALL, data="fresh", dropout=0.2, positions="random:12"),
    "the best epoch of tokens": TrainConfig(
        "rope", task="reverse", causal=True, width=8, hidden=8, layers=1, train_length=4, samples=20, batch=8, epochs=2,
        lr=0.01, test_lengths=("1-4",), test_sequences=10, validation=8, keep="best", patience=5, weight_decay=0.1,
    ),
}  # fmt: skip


def contents(path):
    return {each.name: each.read_bytes() for each in path.iterdir()}


@pytest.fixture(scope="module")
def two(tmp_path_factory):
    """A finished run of two epochs."""
    path = tmp_path_factory.mktemp("runs") / "two"
    train(SMALL, out=path, progress=False)
    return path


@pytest.fixture
def run(two, tmp_path):
    return shutil.copytree(two, tmp_path / "run")


@pytest.mark.parametrize("name", CONFIGS)
def test_the_bits_are_those_of_a_run_that_had_the_epochs_from_the_start(tmp_path, name):
    config, longer = CONFIGS[name], replace(CONFIGS[name], epochs=4)
    whole, run = tmp_path / "whole", tmp_path / "run"
    expected = train(longer, out=whole, progress=False)
    train(config, out=run, progress=False)
    found = train(longer, out=run, resume=True, progress=False)
    assert same_result(found.result, expected.result)
    assert_same_run(run, whole)
    assert read_config(run).epochs == found.config.epochs == 4
    assert [each["epochs"] for each in config_file.read(run)["resumed"]] == [2]
    assert same_result(train(longer, out=run, resume=True, progress=False).result, expected.result)


@pytest.mark.parametrize("epochs", [4, 2, 1])
def test_an_interrupted_run_may_end_later_or_earlier_than_it_was_to(tmp_path, epochs):
    train(replace(SMALL, epochs=epochs), out=tmp_path / "whole", progress=False)
    interrupted(replace(SMALL, epochs=3), tmp_path / "run", EpochDone, epoch=1)
    train(replace(SMALL, epochs=epochs), out=tmp_path / "run", resume=True, progress=False)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_a_kill_before_the_first_new_checkpoint_leaves_a_run_that_goes_on(run, tmp_path):
    longer = replace(SMALL, epochs=4)
    train(longer, out=tmp_path / "whole", progress=False)
    interrupted(longer, run, Started, resume=True)
    assert read_config(run).epochs == 4
    assert not (run / "result.json").exists()
    with pytest.raises(FileNotFoundError, match="its training is not finished"):
        load(run)
    interrupted(replace(SMALL, epochs=3), run, Started, resume=True)  # twice
    train(longer, out=run, resume=True, progress=False)
    assert same_model(run, [tmp_path / "whole"])


def test_a_kill_before_the_record_is_written_leaves_the_run_as_it_was(run, two, monkeypatch):
    def fail(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(config_file, "write", fail)
        with pytest.raises(KeyboardInterrupt):
            train(replace(SMALL, epochs=4), out=run, resume=True, progress=False)
    train(SMALL, out=run, resume=True, progress=False)
    assert same_model(run, [two])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 1}, r"epochs must be at least 2, the finished epochs of run .*, not 1"),
        ({"lr": 0.5, "epochs": 4}, r"lr was 0\.01, now 0\.5.*start a new run: fastpe train --from "),
        ({"samples": 40}, r"samples was 20, now 40.*start a new run: fastpe train --from "),
    ],
)
def test_what_cannot_change_is_named_and_nothing_is_written(run, changes, message):
    before = contents(run)
    with pytest.raises(RunError, match=message):
        train(replace(SMALL, **changes), out=run, resume=True, progress=False)
    assert contents(run) == before


@pytest.mark.parametrize("decay", ["linear", "cosine"])
def test_a_rate_that_falls_until_the_end_cannot_go_on(tmp_path, decay):
    config = replace(SMALL, decay=decay)
    longer = replace(config, epochs=4)
    changed = any(schedule.rate(config, step) != schedule.rate(longer, step) for step in range(config.steps))
    assert changed == schedule.depends_on_epochs(config)
    train(config, out=tmp_path / "run", progress=False)
    before = contents(tmp_path / "run")
    with pytest.raises(RunError, match=rf"its learning rate falls .* \(decay '{decay}'\).* fastpe train --from "):
        train(longer, out=tmp_path / "run", resume=True, progress=False)
    assert contents(tmp_path / "run") == before


def test_without_its_checkpoint_a_finished_run_cannot_go_on(run):
    (run / "checkpoint.safetensors").unlink()
    before = contents(run)
    with pytest.raises(RunError, match=r"has no checkpoint\.safetensors.* fastpe train --from "):
        train(replace(SMALL, epochs=4), out=run, resume=True, progress=False)
    assert contents(run) == before


def test_a_run_that_ended_early_says_that_more_epochs_change_nothing(tmp_path):
    config = replace(CONFIGS["the best epoch of tokens"], lr=0.5, patience=1, epochs=30)
    found = train(config, out=tmp_path / "run", progress=False)
    assert found.result["train"]["ended"] == "validation"
    notes = []
    again = train(replace(config, epochs=40), out=tmp_path / "run", resume=True, progress=notes.append)
    assert again.result == found.result
    done = len(found.history)
    said = f"training had ended after epoch {done}: in validation the loss no longer falls. More epochs change nothing"
    assert said in [note.message for note in notes if isinstance(note, Noted)]
