"""What a task says of its tests: several right answers, places, named tests; counted for models that are told."""

import json
from dataclasses import replace

import numpy as np
import pytest
from command_line import fastpe, refused

from fastpe import TrainConfig, Transformer, evaluate, train
from fastpe.base.random import Stream
from fastpe.tasks.frame import draw
from fastpe.tasks.registry import choose

TINY = {"width": 8, "hidden": 8, "layers": 1, "samples": 32, "batch": 16, "epochs": 1, "test_sequences": 30}
CHAINS = TrainConfig("nope", task="variable_tracking", causal=True, train_length=30, **TINY)


class Told(Transformer):
    """Its likeliest token at a position is that of a function of the input and of the tokens of the answer so far."""

    def logits_by_rows(self, x, wanted, use, *, lengths=None, threads=None, draw=0):
        rows, columns = wanted.nonzero()
        logits = np.zeros((len(rows), self.config.vocabulary))
        separator = self.config.vocabulary - 3
        for place, (row, column) in enumerate(zip(rows, columns, strict=True)):
            tokens = x[row].tolist()
            begin = tokens.index(separator)
            shown = tokens[begin + 1 : column + 1] if self.config.causal else [None] * (column - begin - 1)
            logits[place, self.next_token(tokens[1:begin], shown)] = 1.0
        use(slice(None), logits)


def chain(inputs):
    known = inputs[-1:]
    statements = {inputs[i + 1]: inputs[i - 1] for i, token in enumerate(inputs[:-1]) if token == 0}
    while known[-1] in statements:
        known.append(statements[known[-1]])
    return known[1:]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize(
    ("answer", "exact"),
    [(sorted, 1.0), (lambda names: names, 1.0), (lambda names: names[1:], 0.0), (lambda names: [*names, 5], 0.0),
     (lambda names: [names[0]] * 3, 0.0), (lambda names: [], 0.0)],
)  # fmt: skip
def test_an_answer_in_another_order_is_right(causal, answer, exact):
    """Names may come in any order; a causal model then reads what it said, not the drawn answer."""
    model = Told(replace(CHAINS, causal=causal).model)
    end = model.config.vocabulary - 2

    def next_token(inputs, shown):
        wanted = [*answer(chain(inputs)), end]
        if causal and shown != wanted[: len(shown)]:
            return end  # another answer than its own begins
        return wanted[len(shown)] if len(shown) < len(wanted) else end

    model.next_token = next_token
    found = evaluate(model, ["20-40"], 30, task="variable_tracking")["20-40"]
    assert found["exact"] == exact
    assert answer is not sorted or found["token"] < 0.9


def test_values_of_a_key_may_come_in_any_order():
    """Whole values of two tokens, of three needles with the same key; for other needles there is one answer."""
    for variant, order in (("multivalue", True), ("multiquery", False)):
        chosen = choose("needles", {"variant": variant, "digits": 2, "needles": 3, "queries": 3})
        inputs, answers, _ = draw(chosen, Stream(2, "test"), 50, 40)
        values = answers.reshape(50, 3, 2)
        turned = values[:, [2, 0, 1]].reshape(50, 6)
        assert (chosen.judge(inputs, turned) == (order | (turned == answers).all(axis=1))).all()
        split = values[:, :, ::-1].reshape(50, 6)  # the tokens of each value in another order
        same = [sorted(map(tuple, each)) == sorted((b, a) for a, b in each) for each in values.tolist()]
        assert chosen.judge(inputs, split).tolist() == (same if order else (split == answers).all(axis=1).tolist())
        assert not chosen.judge(inputs, answers[:, :4]).any()
        longer = np.concatenate([answers, answers[:, :1]], axis=1)
        assert not chosen.judge(inputs, longer).any()
        assert chosen.judge(inputs, np.where(np.arange(7) < 6, longer, -1)).all()


def test_right_tokens_are_counted_by_depth():
    """A model that answers right only if the needle is in the first half."""
    config = TrainConfig("nope", task="needles", causal=True, train_length=30, **TINY)
    model, body = Told(config.model), 28

    def next_token(inputs, shown):
        if shown:
            return model.config.vocabulary - 2
        place = next(i for i, token in enumerate(inputs) if token == 0 and inputs[i + 1] == inputs[-1])
        return inputs[place + 2] if place < body / 2 else 0

    model.next_token = next_token
    found = evaluate(model, [30], 300, task="needles", by_place=True)["30"]
    right, asked = (np.array(found["places"][name]) for name in ("right", "asked"))
    assert asked.sum() == 300
    assert len(asked) == body - 2
    assert (asked > 0).all()
    np.testing.assert_array_equal(right, np.where(np.arange(len(asked)) < body / 2, asked, 0))
    assert found["exact"] == found["token"] == right.sum() / 300


def test_labels_are_counted_at_their_own_places():
    class Zero(Transformer):
        def logits_by_rows(self, x, wanted, use, **others):
            use(slice(None), np.eye(1, self.config.vocabulary).repeat(wanted.sum(), axis=0))

    with pytest.raises(ValueError, match="by_place needs a task of tokens, and 'shift' has numbers"):
        evaluate(Transformer(TrainConfig("nope").model), [5], 2, task="shift", by_place=True)
    config = TrainConfig("nope", task="word_problem", causal=True, **TINY)
    found = evaluate(Zero(config.model), ["3-5"], 200, task="word_problem", by_place=True)["3-5"]
    right, asked = found["places"]["right"], found["places"]["asked"]
    assert asked[:3] == [200, 200, 200]
    assert 200 > asked[3] > asked[4] > 0
    assert sum(right) == round(found["token"] * sum(asked))


def test_the_command_tests_under_other_options_and_by_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    options = {"ignore": 0.5}
    config = TrainConfig(
        "alibi", task="flip_flop", task_options=options, causal=True, train_length=10, test_lengths=("8-12",), **TINY
    )  # fmt: skip
    train(config, out="run", progress=False)
    given = ("--test", "sparse", "--by-place", "--json")
    found = {name: json.loads(fastpe("evaluate", "run", *more, "--json").stdout) for name, more in (
        ("same", ()), ("sparse", ("--test", "sparse")), ("option", ("--task-option", "ignore=0.98")),
    )}  # fmt: skip
    assert found["sparse"] == found["option"] != found["same"]
    assert [each["task_options"] for each in found.values()] == [options, {"ignore": 0.98}, {"ignore": 0.98}]
    places = json.loads(fastpe("evaluate", "run", *given).stdout)["test"]["8-12"]["places"]
    assert sum(places["asked"][::2]) == sum(places["asked"])  # only `r` has labels
    told = fastpe("evaluate", "run", "--by-place").stdout
    assert "in fifths of the places" in told
    assert "--test must be one of sparse, dense, not 'rare'" in refused(2, "evaluate", "run", "--test", "rare")
    line = refused(2, "evaluate", "run", "--task-option", "ignored=1")
    assert "--task-option ignored of task 'flip_flop' is unknown; did you mean 'ignore'?" in line


def test_named_tests_and_shortcuts_are_on_the_page():
    told = fastpe("tasks", "needles", "--length", "30").stdout
    assert "shortcut at length 30, the value of any needle: tokens 0.344" in told
    assert "test sparse: ignore=0.98" in fastpe("tasks", "flip_flop").stdout
    assert json.loads(fastpe("tasks", "flip_flop", "--json").stdout)["tests"]["dense"] == {"ignore": 0.1}
    assert choose("path_star", {"reversed": True}).shortcuts(14) == {}
