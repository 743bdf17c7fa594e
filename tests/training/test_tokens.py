"""Training and testing on tasks of tokens: what is drawn, what is counted, and the same bits after an interruption."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

from fastpe import ModelConfig, TrainConfig, Transformer, evaluate, load, train
from fastpe.base.random import Stream
from fastpe.tasks import frame
from fastpe.training.data import TrainingData
from fastpe.training.lengths import bins
from fastpe.training.presets import preset

CONFIG = TrainConfig(
    "rope", task="reverse", task_options={"symbols": 3}, causal=True, width=16, hidden=16, train_length=5, samples=50,
    batch=8, epochs=3, test_lengths=("1-5", "6-9", 7), test_sequences=40,
)  # fmt: skip


def test_the_model_follows_from_the_task():
    assert (CONFIG.model.train_length, CONFIG.model.vocabulary) == (12, 7)
    assert replace(CONFIG, causal=False).model.train_length == 13
    assert (CONFIG.data, CONFIG.lengths) == ("fresh", "uniform")
    assert TrainConfig("rope", task="sort", train_length=20).test_lengths == bins(20) == ("1-20", "21-40", "41-60")
    assert TrainConfig("rope", task="sort", train_length=80).test_lengths == ("1-80", "81-160")  # of 150 symbols
    assert TrainConfig("rope", task="modular_arithmetic", train_length=1).test_lengths == ("1-1", "3-3")
    assert TrainConfig.from_dict(json.loads(json.dumps(CONFIG.to_dict()))) == CONFIG


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("data", ["fresh", "fixed"])
def test_batches_hold_sequences_of_the_task(data, causal):
    config = replace(CONFIG, data=data, causal=causal, samples=1100)
    batches = [list(TrainingData(config).batches(epoch)) for epoch in (1, 2)]
    assert [len(batch.x) for batch in batches[0]] == [8] * 137 + [4]
    width = config.model.train_length
    rows = [np.concatenate([batch.x for batch in own]) for own in batches]
    assert all(batch.x.shape[1] == width for batch in batches[0])
    lengths = np.concatenate([batch.lengths for batch in batches[0]]) - (3 - causal)
    assert set(lengths // 2) == {1, 2, 3, 4, 5}
    counts = np.bincount(lengths // 2)[1:]
    assert counts.min() > 1100 / 5 - 6 * math.sqrt(1100 * 0.16)
    first, second = ({row.tobytes() for row in own} for own in rows)
    assert (first == second) == (data == "fixed")
    if data == "fixed":
        assert (rows[0] != rows[1]).any()  # in another order


def test_all_seeds_and_encodings_are_tested_on_the_same_sequences(monkeypatch):
    seen, original = [], frame.sequences

    def record(chosen, stream, lengths, *rest):
        seen.append((stream, lengths.tolist()))
        return original(chosen, stream, lengths, *rest)

    monkeypatch.setattr(frame, "sequences", record)
    for seed, encoding in ((0, "rope"), (1, "alibi")):
        config = replace(CONFIG, encoding=encoding, seed=seed)
        evaluate(Transformer(config.model), ["1-5", "6-9"], 30, seed=seed, task="reverse", task_options={"symbols": 3})
    assert len(seen) == 4
    assert seen[:2] == seen[2:]
    assert seen[0][0] == Stream(0, "test", "1-5")
    assert set(seen[1][1]) == {6, 7, 8, 9}


class Oracle(Transformer):
    """Answers as it is told."""

    def logits_by_rows(self, x, wanted, use, *, lengths=None, threads=None, draw=0):
        use(slice(None), self.answers(x, lengths)[wanted])


@pytest.mark.parametrize("causal", [True, False])
def test_metrics_are_those_of_answers_that_are_known(causal):
    """Right but for the last symbol of every answer of an even length, and for the end of those of length 9."""
    config = replace(CONFIG, causal=causal)
    model, chosen = Oracle(config.model), config.chosen
    asked = []

    def answers(x, lengths):
        logits = np.zeros((*x.shape, 7))
        for row, (tokens, end) in enumerate(zip(x.tolist(), lengths, strict=True)):
            n = tokens.index(4) - 1  # the separator
            answer = [*tokens[n:0:-1], 5]
            if n % 2 == 0:
                answer[-2] = (answer[-2] + 1) % 3
            if n == 9:
                answer[-1] = 0
            begin = n + 1 if causal else n + 2
            assert end == begin + len(answer)
            logits[row, np.arange(begin, end), answer] = 50.0
            asked.append(n)
        return logits

    model.answers = answers
    found = evaluate(model, ["6-9"], 200, task="reverse", task_options={"symbols": 3})["6-9"]
    n = np.array(asked)
    assert set(n) == {6, 7, 8, 9}
    assert found["exact"] == pytest.approx((n == 7).mean())
    assert found["token"] == pytest.approx(1 - (n % 2 == 0).sum() / n.sum())
    wrong = (n % 2 == 0).sum() + (n == 9).sum()
    assert found["loss"] == pytest.approx(50 * wrong / (n + 1).sum(), rel=1e-6)
    assert found["sequences"] == 200
    assert chosen.symbols == 3


@pytest.mark.parametrize(
    "task", ["mqar", "depth", "flip_flop", "posgen", "induction", "addition", "sort", "unique_copy"]
)
def test_every_kind_of_task_is_trained_and_tested(task, tmp_path):
    options = {"mqar": {"pairs": 2, "vocabulary": 20}, "sort": {"symbols": 12}, "unique_copy": {"symbols": 12}}
    config = TrainConfig(
        "alibi", task=task, task_options=options.get(task, {}), causal=True, width=16, hidden=16, train_length=10,
        samples=64, batch=16, epochs=2, test_lengths=("8-12",), test_sequences=20,
    )  # fmt: skip
    result = train(config, out=tmp_path / "run", progress=False)
    found = result.result["test"]["8-12"]
    assert set(found) == {"exact", "token", "loss", "sequences"}
    assert result.history[1]["loss"] < result.history[0]["loss"]
    assert result.result["task"] == task
    assert load(tmp_path / "run").config == config.model
    assert "exact answers at length 8-12: " in repr(result)
    again = train(config, out=tmp_path / "run", resume=True, progress=False)
    assert again.result == result.result


def test_a_task_for_causal_models_is_no_test_of_others():
    """They would see the labels, which are the inputs to come."""
    model = Transformer(ModelConfig("rope", width=8, hidden=8, vocabulary=9, train_length=4))
    with pytest.raises(ValueError, match=r"^model must be causal for task 'flip_flop': other models see the answers$"):
        evaluate(model, [4], 10, task="flip_flop")
    with pytest.raises(ValueError, match=r"^seed must be at least 0, not -1$"):
        evaluate(model, [4], 10, task="sort", task_options={"symbols": 5}, seed=-1)


def test_a_preset_has_positions_for_the_lengths_that_are_asked_for():
    assert preset("lacoco", "learned", task="reverse", test_lengths=(200,)).positions == "offset:402"
    assert preset("lacoco", "learned", task="sort", train_length=80).positions == "offset:302"
    with pytest.raises(TypeError, match=r"^width must be an integer, not None"):
        preset("lacoco", "nope", task="reverse", width=None)
