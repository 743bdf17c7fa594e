"""The values of claims: that narrow intervals are stored of them, and that the verdict follows wrong ones."""

import math

from fastpe.paper_claims.record import stored
from fastpe.theory.value import exact


def others(value, values):
    """Wrong values in the place of one, among them those of its neighbours."""
    numbers = [0.0, -1.0, 0.5, 1.0, 2.0, 10.5, 1e9, math.inf, 1e-300, value.value / 2, 2 * value.value]
    numbers += [1e6 * value.value, value.value + 1.0, value.value - 1.0, *(each.value for each in values.values())]
    return [exact(number, "wrong") for number in numbers if not value.value - 1e-9 < number < value.value + 1e-9]


def check_deciding(claim, found):
    """The values that are said to decide change the verdict, or that of a sentence, and no other does."""
    for name, value in found.values.items():
        wrong = [claim.judged(found.values | {name: other}) for other in others(value, found.values)]
        changed = [each for each in wrong if (each.verdict, each.parts) != (found.verdict, found.parts)]
        assert bool(changed) == (name not in claim.not_deciding), f"{claim.id} {name}"


def check_stored(claim, found):
    """Every value has digits that are stored of it, or a range where it is a residual or an estimate."""
    assert set(found.values) == set(claim.expected)
    for name, text in claim.expected.items():
        low, high = stored(text)
        counted = "." not in text and "e" not in text
        assert counted or ".." in text or high - low < 1e-4 * max(abs(low), abs(high)), f"{claim.id} {name}"
