"""The frame around what a task draws: tokens, targets, what counts, lengths; and what is no sequence of a task."""

from dataclasses import replace

import numpy as np
import pytest

from fastpe.base.random import Stream
from fastpe.tasks import list_tasks, sizes
from fastpe.tasks.frame import draw, sequences
from fastpe.tasks.registry import choose
from fastpe.tasks.sizes import positions, vocabulary
from fastpe.tasks.task import Lengths

STREAM = Stream(7, "train", 2)
TOKENS = [name for name in list_tasks() if choose(name).task.kind not in ("numbers", "text")]


def parts(chosen, row):
    """The input, the answer as it stands there, and the words of the frame, of one sequence of tokens."""
    words = {chosen.symbols + place: word for place, word in enumerate(sizes.FRAME)}
    return [words.get(token, token) for token in row]


@pytest.mark.parametrize(("causal", "blanks"), [(True, 0), (False, 5)])
def test_an_answer(causal, blanks):
    chosen = choose("reverse", {"symbols": 9})
    (inputs,), (answers,), _ = draw(chosen, STREAM, 1, 4)
    found = sequences(chosen, STREAM, [4], causal)
    shown = ["blank"] * blanks or answers.tolist()  # a causal model reads its own answer
    assert parts(chosen, found.x[0]) == ["begin", *inputs, "separator", *shown]
    unread = 5 if causal else 6
    assert parts(chosen, found.y[0])[unread:] == [*answers, "end"]
    assert found.weights.tolist() == [[0] * unread + [1] * 5]
    assert found.lengths is None
    assert (positions(chosen, 4, causal), vocabulary(chosen)) == (unread + 5, 13)


def test_labels():
    chosen = choose("induction", {"symbols": 3})
    (inputs,), (labels,), _ = draw(chosen, STREAM, 1, 8)
    for causal in (True, False):
        found = sequences(chosen, STREAM, [8], causal)
        assert parts(chosen, found.x[0]) == ["begin", *inputs]
        assert found.weights.tolist() == [[0, *(labels >= 0)]]
        assert found.y[0, 1:][labels >= 0].tolist() == labels[labels >= 0].tolist()
        assert positions(chosen, 8, causal) == 9


def test_numbers_stand_alone():
    chosen = choose("shift")
    found = sequences(chosen, STREAM, [5, 5, 5], causal=False)
    inputs, answers, _ = draw(chosen, STREAM, 3, 5)
    np.testing.assert_array_equal(found.x, inputs)
    np.testing.assert_array_equal(found.y, answers)
    assert found.weights is found.lengths is vocabulary(chosen) is None


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", TOKENS)
def test_sequences_of_a_batch_are_those_that_stand_alone(name, causal):
    """Lengths in any order; padding counts nothing; the first are the same with more behind them."""
    chosen = choose(name)
    known = chosen.lengths.within(1, 40)
    lengths = known[np.random.default_rng(0).integers(0, min(len(known), 9), 25)]
    lengths[:2] = known[[1, 0]]
    found = sequences(chosen, STREAM, lengths, causal)
    assert found.x.shape == found.y.shape == found.weights.shape
    assert found.x.max() < vocabulary(chosen)
    assert found.x.shape[1] <= positions(chosen, int(lengths.max()), causal)
    ends = found.lengths if found.lengths is not None else np.full(25, found.x.shape[1])
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        own = Stream(7, f"train@{length}", 2)
        alone = sequences(chosen, own, [length] * len(rows), causal)
        for place, row in enumerate(rows):
            end = ends[row]
            assert end == (alone.x.shape[1] if alone.lengths is None else alone.lengths[place])
            np.testing.assert_array_equal(found.x[row, :end], alone.x[place, :end])
            np.testing.assert_array_equal(found.weights[row, :end], alone.weights[place, :end])
            np.testing.assert_array_equal(found.y[row, :end], alone.y[place, :end])
            assert not found.weights[row, end:].any()
            assert not found.x[row, end:].any()
            assert found.weights[row].sum() > 0
    few = sequences(chosen, STREAM, lengths[:12], causal)
    np.testing.assert_array_equal(few.x, found.x[:12, : few.x.shape[1]])


@pytest.mark.parametrize(
    ("name", "length", "message"),
    [
        ("unique_copy", 151, "length must be 1 to 150 for task 'unique_copy', not 151"),
        ("missing_duplicate", 7, "length must be every 2 from 2 to 134217728 for task 'missing_duplicate', not 7"),
        ("mqar", 14, "length must be every 2 from 16 to 134217728 for task 'mqar', not 14"),
        ("addition", 2, "length must be 3 to"),
        ("reverse", 0, "length must be at least 1, not 0"),
    ],
)
def test_a_length_that_a_task_cannot_have(name, length, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        draw(choose(name), STREAM, 3, length)


def test_at_least_one_sequence_is_drawn():
    with pytest.raises(ValueError, match=r"^count must be at least 1, not 0"):
        draw(choose("reverse"), STREAM, 0, 4)


def drawn(inputs, answers, *more):
    return lambda draws, length, count: (inputs, answers, *more)


OK = np.zeros((2, 3), int)


@pytest.mark.parametrize(
    ("kind", "sample", "message"),
    [
        ("answer", lambda *given: OK, r"sample must return \(inputs, answers\), not ndarray"),
        ("answer", drawn(OK, OK, OK), r"sample must return \(inputs, answers\), not 3 values"),
        ("labels", drawn(OK, OK, OK, OK), r"sample must return \(inputs, answers\), or .*, not 4 values"),
        ("answer", drawn(OK[:1], OK), r"inputs must have the shape \(2, 3\), not \(1, 3\)"),
        ("answer", drawn(OK, OK[:1]), r"answers must have the shape \(2, 1 .. 3\), not \(1, 3\)"),
        ("answer", drawn(OK, np.zeros((2, 4), int)), r"answers must have the shape \(2, 1 .. 3\), not \(2, 4\)"),
        ("labels", drawn(OK, OK[:, :2]), r"answers must have the shape \(2, 3\), not \(2, 2\)"),
        ("answer", drawn(OK + 0.5, OK), "inputs must hold integers, not float64"),
        ("answer", drawn(OK, OK + 2), r"answers must be tokens of 0 .. 1, not 2"),
        ("answer", drawn(OK - 1, OK), r"inputs must be tokens of 0 .. 1, not -1"),
        ("labels", drawn(OK, OK - 2), r"answers must be tokens of 0 .. 1, not -2"),
        ("labels", drawn(OK, OK - 1), "every sequence needs a label with weight > 0, but one at length=3 has none"),
        ("answer", drawn(OK, OK - 1), "an answer must begin with a token, and -1 may only follow its last token"),
        ("answer", drawn(OK, OK - [0, 1, 0]), "an answer must begin with a token, and -1 may only follow"),
        ("labels", drawn(OK, OK, OK + np.array([[1], [0]])), "every sequence needs a label with weight > 0"),
        ("labels", drawn(OK, OK, OK - 1), "weights must be finite and >= 0"),
        ("labels", drawn(OK, OK, OK + np.nan), "weights must be finite and >= 0"),
        ("labels", drawn(OK, OK, np.ones(3)), r"weights must be \(2, 3\) numbers, not \(3,\) of float64"),
        ("numbers", drawn(OK + np.inf, OK), "inputs must be finite numbers"),
        ("numbers", drawn(OK, OK * np.nan), "answers must be finite numbers"),
        ("labels", drawn(OK, np.ma.array(OK, mask=OK == 0)), "answers of task 'reverse' must not be a masked array"),
    ],
)
def test_what_is_no_sequence_of_a_task_is_said(kind, sample, message):
    chosen = choose("reverse")
    task = replace(chosen.task, kind=kind, sample=sample, lengths=Lengths(), options={})
    task = replace(task, symbols=0 if kind == "numbers" else 2, answer_length=lambda length: length)
    with pytest.raises((ValueError, TypeError), match=message):
        draw(replace(chosen, task=task, options={}), STREAM, 2, 3)


def test_weights_count_beside_labels():
    chosen = choose("depth", {"blocks": 2})
    task = replace(chosen.task, sample=lambda draws, length, count, blocks: (OK, OK, np.array([[0, 0.5, 2]] * 2)))
    found = sequences(replace(chosen, task=task), STREAM, [3, 3], causal=True)
    assert found.weights.tolist() == [[0, 0, 0.5, 2]] * 2
