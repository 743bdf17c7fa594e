"""Sums whose digits stand where positions by their significance need them."""

import numpy as np
import pytest

from fastpe.base.random import Stream
from fastpe.tasks import frame, sizes
from fastpe.tasks.registry import choose


def number(digits, *, least_first):
    """A number of decimal digits."""
    order = digits if least_first else digits[::-1]
    return sum(int(digit) * 10**place for place, digit in enumerate(order))


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("digits", ["ordinary", "reversed", "answer_reversed"])
def test_answers_are_the_sums(digits, padded):
    chosen = choose("addition", {"digits": digits, "base": 10, "padded": padded})
    inputs, answers, _ = frame.draw(chosen, Stream(0, "test"), 300, 11)
    lengths = set()
    for row, answer in zip(inputs.tolist(), answers.tolist(), strict=True):
        a, b = " ".join(map(str, row)).split(" 10 ")
        a, b, c = a.split(), b.split(), [digit for digit in answer if digit >= 0]
        of_operands = digits == "reversed"
        total = number(a, least_first=of_operands) + number(b, least_first=of_operands)
        assert number(c, least_first=digits != "ordinary") == total
        lengths.add((len(a), len(b), len(c)))
        assert padded or len(c) == len(str(total))
    assert lengths == {(5, 5, 6)} if padded else len(lengths) >= 9
    assert answers.shape[1] <= chosen.answer_length(11)
    if padded:
        assert len(np.unique((inputs[:, :5] > 0).sum(axis=1))) > 3  # of fewer digits, too
        with pytest.raises(ValueError, match="every 2 from 3"):
            sizes.check_length(chosen, 10)


def test_it_says_which_symbols_are_digits_and_where_they_stand():
    assert choose("addition", {"base": 10}).digits == tuple(range(10))
    assert choose("addition").digits == (0, 1)
    for each, said in {"reversed": "reversed", "answer_reversed": "answer_reversed", "ordinary": ""}.items():
        assert choose("addition", {"digits": each}).digit_order == said
    assert choose("addition", {"padded": True}).digit_order == "ordinary"
    assert choose("reverse").digit_order == ""
    assert choose("running_sum").digits == ()
