"""Every task's answers beside a solution that does it slowly, one sequence at a time."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from fastpe.base.draws import Draws
from fastpe.base.random import Stream
from fastpe.tasks import frame, sizes
from fastpe.tasks.registry import TASKS, choose


def majority(x, **options):
    (letter, most), *others = Counter(x).most_common()
    assert all(count < most for _, count in others)
    return [letter]


def number(digits, order, base, padded):
    digits = digits if order == "reversed" else digits[::-1]
    assert padded or len(digits) == 1 or digits[-1] > 0, "a leading zero"
    return sum(digit * base**place for place, digit in enumerate(digits))


def addition(x, digits, base, padded):
    plus = x.index(base)
    assert not padded or plus == len(x) // 2
    total = sum(number(part, digits, base, padded) for part in (x[:plus], x[plus + 1 :]))
    written = [int(digit) for digit in np.base_repr(total, base)]
    if padded:
        written = [0] * (plus + 1 - len(written)) + written
    return written if digits == "ordinary" else written[::-1]


def mqar(x, pairs, **options):
    values = dict(zip(x[: 2 * pairs : 2], x[1 : 2 * pairs : 2], strict=True))
    assert len(values) == pairs
    assert sorted(token for token in x[2 * pairs :] if token) == sorted(values)
    return [-1] * 2 * pairs + [values.get(token, -1) for token in x[2 * pairs :]]


def induction(x, **options):
    found = []
    for place, token in enumerate(x):
        before = [earlier for earlier in range(place) if x[earlier] == token]
        found.append(x[before[-1] + 1] if before else -1)
    return found


def flip_flop(x, **options):
    assert (x[0], x[-2]) == (2, 3)
    found, written = [], None
    for instruction, bit in zip(x[::2], x[1::2], strict=True):
        written = bit if instruction == 2 else written
        assert instruction in (2, 4) or bit == written
        found += [written if instruction == 3 else -1, -1]
    return found


def posgen(x, rule, near, far, modulus):
    start = {
        "recursive": lambda t: t - near - far,
        "cot": lambda t: 0,
        "semi_recursive": lambda t: (t - near - far) // 2,
    }

    def token(t, known):
        return (sum(known[start[rule](t) : start[rule](t) + far]) + sum(known[t - near : t])) % modulus

    for t in range(near + far, len(x)):
        assert x[t] == token(t, x)
    return [-1] * (near + far - 1) + [token(t, x) for t in range(near + far, len(x) + 1)]


def depth(x, blocks):
    number = [sum(a != b for a, b in pairwise(x[:end])) for end in range(1, len(x) + 1)]
    assert x[0] == 0
    assert number[-1] == blocks - 1
    return [int(n == blocks - 1) for n in number]


def different(x):
    assert len(set(x)) == len(x)
    return x


SOLUTIONS = {
    "addition": addition,
    "bin_majority": majority,
    "cycle_navigation": lambda x: [(sum(x) - len(x)) % 5],
    "depth": depth,
    "duplicate": lambda x: x + x,
    "even_pairs": lambda x: [sum(a != b for a, b in pairwise(x)) % 2],
    "first_quarter": lambda x: [float(place < len(x) / 4) for place in range(len(x))],
    "flip_flop": flip_flop,
    "induction": induction,
    "majority": majority,
    "missing_duplicate": lambda x: [(x[: len(x) // 2] if 2 not in x[: len(x) // 2] else x[len(x) // 2 :])[
        x.index(2) % (len(x) // 2)
    ]],
    "modular_arithmetic": lambda x: [value("".join("01234+-*"[token] for token in x)) % 5],
    "mqar": mqar,
    "odds_first": lambda x: x[1::2] + x[::2],
    "parity": lambda x: [sum(x) % 2],
    "posgen": posgen,
    "repeat_copy": lambda x, symbols: x,
    "reverse": lambda x, symbols: x[::-1],
    "running_mean": lambda x: [sum(x[: place + 1]) / (place + 1) for place in range(len(x))],
    "running_sum": lambda x: [sum(x[: place + 1]) for place in range(len(x))],
    "shift": lambda x: [0.0, *x[:-1]],
    "sort": lambda x, symbols: sorted(different(x)),
    "unique_copy": lambda x, symbols: different(x),
}  # fmt: skip


def value(text):
    """Of digits with +, - and *, products first."""
    total = 0
    for term in text.replace("-", "+-").split("+"):
        sign, product = (-1 if term.startswith("-") else 1), 1
        for digit in term.lstrip("-").split("*"):
            product *= int(digit)
        total += sign * product
    return total


OTHERS = [
    *(("addition", {"digits": digits, "base": 10, "padded": padded})
      for digits in ("ordinary", "reversed", "answer_reversed") for padded in (False, True)),
    ("addition", {"digits": "reversed"}), ("addition", {"digits": "reversed", "base": 7}),
    ("depth", {"blocks": 2}), ("depth", {"blocks": 6}), ("flip_flop", {"ignore": 0.1}), ("flip_flop", {"ignore": 1.0}),
    ("induction", {"symbols": 3}), ("majority", {"letters": 3}), ("mqar", {"pairs": 2, "vocabulary": 31, "power": 1.0}),
    ("posgen", {"rule": "cot"}), ("posgen", {"rule": "semi_recursive", "far": 2, "near": 1, "modulus": 113}),
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
    for length in chosen.lengths.within(1, 40)[[0, 1, 3, 8]].tolist():
        count = 4000
        _, answers, _ = frame.draw(chosen, Stream(1, "chance"), count, length)
        stated, counts = chosen.task.chance(length, **chosen.options), answers >= 0
        if chosen.symbols <= 64:
            likeliest = [np.bincount(column[column >= 0]).max() for column in answers.T if (column >= 0).any()]
            # as often as that by luck alone: a maximum over symbols lies above its mean
            slack = 4 * np.sqrt(counts.sum()) / counts.sum() * np.sqrt(chosen.symbols)
            if name != "mqar":  # whose labels stand at places that differ
                assert sum(likeliest) / counts.sum() == pytest.approx(stated.token, abs=0.002 + slack)
        if stated.exact is not None and stated.exact > 0.01:
            whole = Counter(row.tobytes() for row in answers).most_common(1)[0][1] / count
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


def test_gaps_are_drawn_without_replacement_in_proportion_to_what_is_left():
    """All pairs of the most that a length has room for; and the law of the first two of three."""
    assert frame.draw(choose("mqar", {"pairs": 64}), Stream(0, "law"), 50, 256).inputs.shape == (50, 256)
    weights = np.array([0.6, 0.3, 0.1])
    found = Draws(Stream(0, "law")).subsets(3, 2, 20_000, weights=weights)
    for first, second in ((0, 1), (0, 2), (1, 0), (2, 1)):
        exact = weights[first] * weights[second] / (1 - weights[first])
        share = (found == (first, second)).all(axis=1).mean()
        assert share == pytest.approx(exact, abs=4 * np.sqrt(exact / 20_000))
