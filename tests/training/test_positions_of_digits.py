"""Trainings whose positions follow from the digits that a task or text has."""

import pytest

from fastpe.training.config import TrainConfig
from fastpe.training.evaluation import evaluate
from fastpe.training.loop import train
from fastpe.training.run_folder import load

SMALL = {
    "task": "addition", "task_options": {"digits": "reversed", "base": 10}, "causal": True, "train_length": 7,
    "width": 16, "hidden": 16, "layers": 1, "samples": 64, "batch": 16, "epochs": 2, "test_sequences": 20,
}  # fmt: skip


def test_a_model_records_the_digits_of_its_task():
    config = TrainConfig("abacus", positions="digits:9", **SMALL)
    assert (config.positions, config.model.positions) == ("digits:9", "digits:9:0-9")
    config = TrainConfig("learned", positions="coupled:40", **SMALL)
    assert config.model.positions == "coupled:40:0-9:12:reversed"  # 10 is "+", 11 begins, 12 is "="
    own = TrainConfig("abacus", positions="digits:9:3,4", **SMALL)
    assert own.model.positions == "digits:9:3-4"


def test_a_text_has_digits_of_its_own(tmp_path):
    (tmp_path / "text").write_text("a 12, b 7;" * 40)
    text = {"task": "text", "data": str(tmp_path / "text"), "causal": True, "train_length": 8, "positions": "digits:3"}
    assert TrainConfig("abacus", **text).model.positions == "digits:3:48-57"
    characters = TrainConfig("abacus", task_options={"tokens": "characters"}, **text)
    assert characters.model.positions == "digits:3:2-4"  # after " " and ","
    (tmp_path / "text").write_text("abba " * 40)
    with pytest.raises(ValueError, match=r"^positions='digits:3' need digits, and the text has none$"):
        TrainConfig("abacus", task_options={"tokens": "characters"}, **text)


@pytest.mark.parametrize(("encoding", "positions"), [("abacus+alibi", "digits:9"), ("learned", "coupled:12")])
def test_a_run_trains_and_is_tested_at_longer_lengths(encoding, positions, tmp_path):
    config = TrainConfig(encoding, positions=positions, test_lengths=("3-7", 12, 30), **SMALL)
    found = train(config, out=tmp_path / "run")
    test = found.result["test"]
    assert test["3-7"]["loss"] > 0
    assert test["12"]["loss"] > 0
    assert test["30"]["loss"] is None if encoding == "learned" else test["30"]["loss"] > 0
    if encoding == "learned":
        assert "but the table has 13 rows" in test["30"]["reason"]
    again = load(tmp_path / "run")
    assert again.config == found.model.config
    assert evaluate(again, [12], 20, task="addition", task_options=config.task_options)["12"] == test["12"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"task": "running_sum", "task_options": {}, "positions": "digits:3"}, "the model must have a vocabulary"),
        ({"task": "reverse", "task_options": {}, "positions": "coupled:30"}, "which task 'reverse' does not say"),
        ({"task_options": {"base": 10}, "positions": "coupled:30"}, "which task 'addition' does not say with these"),
    ],
)
def test_who_has_no_digits_is_refused(settings, said):
    with pytest.raises(ValueError, match=said):
        TrainConfig("learned", **{**SMALL, **settings})
