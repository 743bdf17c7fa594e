"""Every task's answers beside a solution that does it slowly, one sequence at a time."""

from collections import Counter

import numpy as np
import pytest
from task_solutions import SOLUTIONS

from fastpe.base.draws import Draws
from fastpe.base.random import Stream
from fastpe.tasks import frame, sizes
from fastpe.tasks.registry import TASKS, choose

OTHERS = [
    *(("addition", {"digits": digits, "base": 10, "padded": padded})
      for digits in ("ordinary", "reversed", "answer_reversed") for padded in (False, True)),
    ("addition", {"digits": "reversed"}), ("addition", {"digits": "reversed", "base": 7}),
    ("compositional_mqar", {"grid": 3, "vocabulary": 31}), ("counting", {"variables": 3, "passes": 0.2}),
    ("depth", {"blocks": 2}), ("depth", {"blocks": 6}), ("flip_flop", {"ignore": 0.1}), ("flip_flop", {"ignore": 1.0}),
    ("dyck", {"kinds": 5, "depth": 2}),
    *(("fuzzy_recall", {"sizes": sizes, "vocabulary": 9, "size": 2, "keys": 3}) for sizes in ("any", "largest")),
    ("fuzzy_recall", {"sizes": "largest"}),
    ("in_context_recall", {"vocabulary": 5, "noise": 0.4}),
    ("induction", {"symbols": 3}), ("majority", {"letters": 3}), ("mqar", {"pairs": 2, "vocabulary": 31, "power": 1.0}),
    ("mqar", {"pairs": 3, "vocabulary": 16, "updates": 2}), ("mqar", {"pairs": 4, "vocabulary": 20, "updates": 4}),
    ("n_back_recall", {"back": 1}), ("n_back_recall", {"back": 4, "keys": 2}),
    *(("needles", {"variant": variant, **more}) for variant in ("single", "multivalue", "multiquery")
      for more in ({}, {"digits": 3}, {"needles": 0})),
    ("needles", {"needles": 0, "keys": 30}), ("path_star", {"arms": 3}), ("path_star", {"reversed": True}),
    ("posgen", {"rule": "cot"}), ("posgen", {"rule": "semi_recursive", "far": 2, "near": 1, "modulus": 113}),
    *(("tomita", {"grammar": grammar}) for grammar in (1, 2, 3, 5, 6, 7)),
    ("variable_tracking", {"hops": 4, "chains": 1}), ("variable_tracking", {"hops": 0, "chains": 3}),
    *(("word_problem", {"group": group}) for group in ("Z60", "A4xZ5", "A5", "S5")),
    ("word_problem", {"group": "S5", "generators": "transpositions"}),
    ("repeat_copy", {"symbols": 5}), ("reverse", {"symbols": 40}), ("sort", {"symbols": 70}),
    ("unique_copy", {"symbols": 61}),
]  # fmt: skip


def test_every_task_has_a_solution():
    assert set(SOLUTIONS) == set(TASKS.files) - {"text"}  # it draws nothing


@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in sorted(SOLUTIONS)), *OTHERS])
def test_answers(name, options):
    chosen = choose(name, options)
    within = chosen.lengths.within(1, 60)
    for length in (*within[:4].tolist(), *within[-2:].tolist()):
        inputs, answers, _ = frame.draw(chosen, Stream(3, "test"), 40, length)
        for x, y in zip(inputs.tolist(), answers.tolist(), strict=True):
            expected = SOLUTIONS[name](x, **chosen.options)
            if chosen.task.kind == "answer":
                expected = expected + [-1] * (len(y) - len(expected))
                assert len(y) <= chosen.answer_length(length)
            assert y == pytest.approx(expected, abs=1e-12), (x, y)


@pytest.mark.parametrize(("name", "options"), [*((name, {}) for name in sorted(SOLUTIONS)), *OTHERS])
def test_chance_is_what_the_best_answer_reaches_that_does_not_look(name, options):
    chosen = choose(name, options)
    if chosen.task.chance is None:
        return
    for length in chosen.lengths.within(1, 40)[:9].tolist()[::3] or [chosen.lengths.least]:
        count = 4000
        _, answers, _ = frame.draw(chosen, Stream(1, "chance"), count, length)
        stated, counts = chosen.task.chance(length, **chosen.options), answers >= 0
        if chosen.symbols <= 64:
            likeliest = [np.bincount(column[column >= 0]).max() for column in answers.T if (column >= 0).any()]
            # as often as that by luck alone: a maximum over symbols lies above its mean
            slack = 4 * np.sqrt(counts.sum()) / counts.sum() * np.sqrt(chosen.symbols)
            if chosen.task.kind == "answer" or (counts == counts[0]).all():  # labels at the same places
                assert sum(likeliest) / counts.sum() == pytest.approx(stated.token, abs=0.002 + slack)
        if stated.exact is not None and stated.exact > 0.01:
            whole = Counter(row.tobytes() for row in answers).most_common(1)[0][1] / count
            if chosen.task.kind == "answer" or (counts == counts[0]).all():
                assert whole == pytest.approx(stated.exact, abs=4 * np.sqrt(stated.exact / count) + 0.02)


def test_addition_draws_numbers_of_all_sizes_and_says_which_symbols_are_digits():
    inputs, _, _ = frame.draw(choose("addition"), Stream(0, "test"), 300, 11)
    assert set(np.argmax(inputs == 2, axis=1)) == set(range(1, 10))
    padded = choose("addition", {"padded": True})
    inputs, _, _ = frame.draw(padded, Stream(0, "test"), 300, 11)
    assert len(np.unique((inputs[:, :5] > 0).sum(axis=1))) > 3
    with pytest.raises(ValueError, match="every 2 from 3"):
        sizes.check_length(padded, 10)
    assert (padded.digit_order, choose("addition").digit_order, choose("reverse").digit_order) == ("ordinary", "", "")
    for order in ("reversed", "answer_reversed"):
        assert choose("addition", {"digits": order}).digit_order == order
    assert choose("addition", {"base": 10}).digits == tuple(range(10))
    assert (choose("addition").digits, choose("running_sum").digits) == ((0, 1), ())


def test_inputs_with_a_repetition_are_equally_likely():
    """Induction has no others; where symbols are many, a repetition is not waited for."""
    inputs, _, _ = frame.draw(choose("induction", {"symbols": 3}), Stream(0, "law"), 27_000, 3)
    counts = Counter(map(bytes, inputs.astype(np.uint8)))
    assert set(counts) == {bytes(row) for row in np.ndindex(3, 3, 3) if len(set(row)) < 3}
    expected = 27_000 / 21
    assert sum((n - expected) ** 2 / expected for n in counts.values()) < 45  # chi-squared of 20, a chance of 0.001
    inputs, _, _ = frame.draw(choose("induction", {"symbols": 2**16}), Stream(0, "law"), 50, 2)
    assert (inputs[:, 0] == inputs[:, 1]).all()


@pytest.mark.parametrize(
    ("name", "options", "length", "number"),
    [
        ("dyck", {"depth": 2}, 6, 32),
        ("tomita", {}, 6, 44),
        ("tomita", {"grammar": 7}, 5, 26),
        ("tomita", {"grammar": 3}, 5, 18),
    ],
)
def test_strings_of_a_language_are_equally_likely(name, options, length, number):
    inputs, _, _ = frame.draw(choose(name, options), Stream(0, "law"), 300 * number, length)
    counts = np.array(list(Counter(map(bytes, inputs.astype(np.uint8))).values()))
    assert len(counts) == number
    assert ((counts - 300) ** 2 / 300).sum() < number + 4 * np.sqrt(2 * number)  # chi-squared


def test_gaps_are_drawn_without_replacement_in_proportion_to_what_is_left():
    """All pairs of the most that a length has room for; and the law of the first two of three."""
    assert frame.draw(choose("mqar", {"pairs": 64}), Stream(0, "law"), 50, 256).inputs.shape == (50, 256)
    weights = np.array([0.6, 0.3, 0.1])
    found = Draws(Stream(0, "law")).subsets(3, 2, 20_000, weights=weights)
    for first, second in ((0, 1), (0, 2), (1, 0), (2, 1)):
        exact = weights[first] * weights[second] / (1 - weights[first])
        share = (found == (first, second)).all(axis=1).mean()
        assert share == pytest.approx(exact, abs=4 * np.sqrt(exact / 20_000))
