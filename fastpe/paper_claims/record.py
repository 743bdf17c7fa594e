"""A claim of the paper, the values that are computed to judge it, and the judgement."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from fastpe.paper_claims.rules import Measured, Needs, Quoted, Readings, Rule, Sentences, Values
from fastpe.theory.value import Value

Compute = Callable[[], Values]


def nothing() -> Values:
    """Return an empty dict, for claims that no number decides.

    >>> nothing()
    {}
    """
    return {}


def stored(text: str) -> tuple[float, float]:
    """Return the interval of the numbers that round to the digits in `text`, or the interval that `text` states.

    Examples
    --------
    >>> stored("0.25"), stored("1 .. 2")
    ((0.245, 0.255), (1.0, 2.0))
    >>> stored("inf")
    (inf, inf)
    """
    if ".." in text:
        ends = text.split("..")
        return float(ends[0]), float(ends[1])
    number = float(text)
    mantissa, _, power = text.partition("e")
    unit = 10.0 ** (int(power or 0) - len(mantissa.partition(".")[2]))
    return number - 0.5 * unit, number + 0.5 * unit


@dataclass(frozen=True)
class Judgement:
    """The verdict on a claim, with the values and the reason that the verdict follows from.

    Attributes
    ----------
    verdict : str
        One of `fastpe.paper_claims.rules.VERDICTS`.
    parts : dict of str to str
        The verdicts of the sentences or readings of the claim, if there are several.
    values : dict of str to Value
        The computed values by name.
    reason : str
        The counterexample or the proof, with numbers.
    outside : tuple of str
        Names of the values that lie outside their stored interval.
    """

    verdict: str
    parts: Mapping[str, str]
    values: Values
    reason: str
    outside: tuple[str, ...]


@dataclass(frozen=True)
class Claim:
    """A statement of the paper and the rule that judges it.

    Attributes
    ----------
    id : str
        "C1" to "C121".
    place : str
        The place of the statement in the paper, such as "section 3.2".
    statement : str
        The statement in precise words.
    rule : Rule
        Computes the verdict from the values. Nothing else decides the verdict.
    reason : str
        The reason for the verdict. Values are formatted in braces, as in "a step of {at_53:.6g}".
    compute : function
        Returns the values by name.
    expected : dict of str to str
        The stored digits or the stored interval of every value.
    not_deciding : tuple of str
        Names of values that are shown but do not decide.
    reading : str
        The meaning that is judged, if the statement is ambiguous.
    """

    id: str
    place: str
    statement: str
    rule: Rule
    reason: str
    compute: Compute = nothing
    expected: Mapping[str, str] = field(default_factory=dict)
    not_deciding: tuple[str, ...] = ()
    reading: str = ""

    def judge(self) -> Judgement:
        """Compute the values and return the judgement."""
        return self.judged(self.compute())

    def judged(self, values: Values) -> Judgement:
        """Return the judgement for these values."""
        outside = tuple(name for name, value in values.items() if not _within(value, self.expected[name]))
        numbers = {name: value.value for name, value in values.items()}
        texts = [self.reason.format(**numbers), self.rule.note()]
        reason = "; ".join(filter(None, texts))
        return Judgement(self.rule(values), self.rule.parts(values), values, reason, outside)

    @property
    def kind(self) -> str:
        """What decides the claim: computed "numbers", "definitions" in the paper, a cited "source", or "training"."""
        rules = [self.rule]
        if isinstance(self.rule, Sentences | Readings):
            rules = list((self.rule.sentences if isinstance(self.rule, Sentences) else self.rule.readings).values())
        kinds = {_KINDS.get(type(rule), "numbers") for rule in rules}
        return "numbers" if "numbers" in kinds else min(kinds)

    def to_dict(self, found: Judgement) -> dict[str, Any]:
        """Return a dict of the claim and its judgement `found` for JSON, in full precision."""
        return {
            "id": self.id, "place": self.place, "statement": self.statement, "reading": self.reading,
            "verdict": found.verdict, "parts": dict(found.parts), "kind": self.kind, "reason": found.reason,
            "values": {
                name: {**value.to_dict(), "decides": name not in self.not_deciding, "stored": self.expected[name]}
                for name, value in found.values.items()
            },
            "outside": list(found.outside),
        }  # fmt: skip


_KINDS: Mapping[type, str] = {Needs: "definitions", Quoted: "source", Measured: "training"}


def _within(value: Value, text: str) -> bool:
    low, high = stored(text)
    slack = 0.0 if math.isinf(low) else 1e-12 * max(abs(low), abs(high))  # for the rounding of the decimal digits
    return low - slack <= value.value <= high + slack
