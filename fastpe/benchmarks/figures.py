"""Measured figures and their goals, as plain JSON values."""

from collections.abc import Iterable
from typing import Any

_JUDGEMENTS = ("goal", "at_most", "met", "disturbed")


class WrongResult(ArithmeticError):
    """A library's result is wrong, so it is not timed. The message names the library, the result and the error."""


def judged(value: float, goal: float | None, *, at_most: bool = False) -> dict[str, Any]:
    """A dict with a figure, its goal (None if it has none), and whether the goal is met.

    Examples
    --------
    >>> judged(0.87, 0.85)
    {'value': 0.87, 'goal': 0.85, 'at_most': False, 'met': True}
    >>> judged(1.6, 1.5, at_most=True)["met"]
    False
    """
    met = None if goal is None else bool(value <= goal if at_most else value >= goal)
    return {"value": float(value), "goal": goal, "at_most": at_most, "met": met}


def goals_in(value: Any) -> Iterable[bool]:
    """Yield for each goal in a table, at any depth, whether it is met.

    Examples
    --------
    >>> list(goals_in({"rows": [judged(2.0, 1.0), judged(2.0, None)], "scale": judged(0.5, 0.9)}))
    [True, False]
    """
    if isinstance(value, dict):
        if value.get("met") is not None:
            yield value["met"]
        for item in value.values():
            yield from goals_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from goals_in(item)


def unjudged(value: Any) -> Any:
    """A copy of a table without goals and signs of a disturbed machine, for runs with too few calls to judge either.

    Examples
    --------
    >>> unjudged({"rows": [judged(2.0, 1.0)], "disturbed": []})
    {'rows': [{'value': 2.0}]}
    """
    if isinstance(value, list):
        return [unjudged(item) for item in value]
    if isinstance(value, dict):
        return {name: unjudged(item) for name, item in value.items() if name not in _JUDGEMENTS}
    return value
