"""Rules that derive a verdict from numbers: one class for each way in which a claim can be true or false.

A rule is called with the values of a claim, by name, and returns one of `VERDICTS`. Nothing else decides the verdict. A
condition is a function whose parameters are named like the values that it needs. Conditions use the proved bounds of a
value (`low`, `high`), so that a verdict is proved if its numbers are.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Protocol

from fastpe.theory.value import Value

# TRUE: proved, or tried in every case. TRUE IF: the same under an assumption. FALSE: refuted by a counterexample.
# VACUOUS: true, but a trivial bound says as much. UNDEFINED: a definition is missing, or readings of the text disagree.
# EMPIRICAL: only training can decide.
VERDICTS = ("TRUE", "TRUE IF", "FALSE", "VACUOUS", "UNDEFINED", "EMPIRICAL")
WORST = (
    "FALSE",
    "UNDEFINED",
    "EMPIRICAL",
    "VACUOUS",
    "TRUE IF",
    "TRUE",
)  # the verdict of several sentences is the first of these

Values = Mapping[str, Value]
Condition = Callable[..., bool]  # its parameters have the names of the values that it looks at


def met(condition: Condition, values: Values) -> bool:
    """Return whether a condition holds for the values that its parameters name.

    Examples
    --------
    >>> from fastpe.theory.value import exact
    >>> met(lambda nearest: nearest.value > 0, {"nearest": exact(1.5, ""), "lag": exact(1.0, "")})
    True
    """
    return condition(**{name: values[name] for name in signature(condition).parameters})


def low(value: Value) -> float:
    """Return the lower bound of a value.

    >>> from fastpe.theory.value import certified
    >>> low(certified("P1", low=1.0)), low(certified("P6", high=1.0))
    (1.0, -inf)
    """
    return -math.inf if value.low is None else value.low


def high(value: Value) -> float:
    """Return the upper bound of a value.

    >>> from fastpe.theory.value import certified
    >>> high(certified("P1", low=1.0)), high(certified("P6", high=1.0))
    (inf, 1.0)
    """
    return math.inf if value.high is None else value.high


class Rule(Protocol):
    """Computes a verdict from the values of a claim."""

    def __call__(self, values: Values) -> str:
        """Return the verdict."""

    def note(self) -> str:
        """Return what the rule adds to the reason: an assumption or a missing definition; "" for nothing."""

    def parts(self, values: Values) -> dict[str, str]:
        """Return the verdicts of the sentences or readings of the claim; empty if it has only one."""


class _Plain:
    """The base of rules that judge one sentence and add nothing to the reason."""

    def note(self) -> str:
        """Return "": the rule adds nothing to the reason."""
        return ""

    def parts(self, values: Values) -> dict[str, str]:
        """None."""
        return {}


@dataclass(frozen=True)
class Holds(_Plain):
    """TRUE if the condition holds, else FALSE.

    Examples
    --------
    >>> from fastpe.theory.value import exact
    >>> Holds(lambda x: x.value > 0)({"x": exact(-1.0, "")})
    'FALSE'
    """

    condition: Condition

    def __call__(self, values: Values) -> str:
        """See the class."""
        return "TRUE" if met(self.condition, values) else "FALSE"


@dataclass(frozen=True)
class HoldsIf:
    """TRUE if the claim holds as printed, TRUE IF if it holds under an assumption, else FALSE.

    Examples
    --------
    >>> rule = HoldsIf(lambda: False, lambda: True, "alpha > 0")
    >>> rule({}), rule.note()
    ('TRUE IF', 'if alpha > 0')
    """

    condition: Condition
    assumed: Condition
    assumption: str

    def __call__(self, values: Values) -> str:
        """See the class."""
        if met(self.condition, values):
            return "TRUE"
        return "TRUE IF" if met(self.assumed, values) else "FALSE"

    def note(self) -> str:
        """Return the assumption."""
        return f"if {self.assumption}"

    def parts(self, values: Values) -> dict[str, str]:
        """None."""
        return {}


@dataclass(frozen=True)
class Bounds(_Plain):
    """FALSE if a bound is exceeded, VACUOUS if it says no more than a trivial bound, else TRUE.

    Examples
    --------
    >>> Bounds(lambda: True, lambda: False)({})
    'VACUOUS'
    """

    condition: Condition
    informative: Condition

    def __call__(self, values: Values) -> str:
        """See the class."""
        if not met(self.condition, values):
            return "FALSE"
        return "TRUE" if met(self.informative, values) else "VACUOUS"


@dataclass(frozen=True)
class Agree(_Plain):
    """UNDEFINED if the possible readings of the text give different numbers, else TRUE.

    Examples
    --------
    >>> from fastpe.theory.value import exact
    >>> Agree(("db4", "db2"))({"db4": exact(8.0, "taps"), "db2": exact(4.0, "taps")})
    'UNDEFINED'
    """

    names: tuple[str, ...]

    def __call__(self, values: Values) -> str:
        """See the class."""
        return "TRUE" if len({values[name].value for name in self.names}) == 1 else "UNDEFINED"


@dataclass(frozen=True)
class OfOrder(_Plain):
    """TRUE if a number grows no faster than a power of the width when the width doubles, else FALSE.

    `at_width` and `at_twice` name the two numbers. The limit is 2.05 to the power, 2.5 % above a factor of 2 each.

    Examples
    --------
    >>> from fastpe.theory.value import exact
    >>> OfOrder("narrow", "wide", 1)({"narrow": exact(64.0, ""), "wide": exact(128.0, "")})
    'TRUE'
    """

    at_width: str
    at_twice: str
    power: float

    def __call__(self, values: Values) -> str:
        """See the class."""
        return "TRUE" if values[self.at_twice].value <= 2.05**self.power * values[self.at_width].value else "FALSE"


@dataclass(frozen=True)
class Readings:
    """UNDEFINED if the possible readings of the text have different verdicts, else the verdict that they share.

    Examples
    --------
    >>> Readings({"of the bias": Holds(lambda: True), "of the weight": Holds(lambda: False)})({})
    'UNDEFINED'
    """

    readings: Mapping[str, Rule]

    def __call__(self, values: Values) -> str:
        """See the class."""
        found = set(self.parts(values).values())
        return found.pop() if len(found) == 1 else "UNDEFINED"

    def note(self) -> str:
        """Return why there is more than one verdict."""
        return "the text does not say which of these is meant"

    def parts(self, values: Values) -> dict[str, str]:
        """Return the verdict of each reading."""
        return {reading: rule(values) for reading, rule in self.readings.items()}


@dataclass(frozen=True)
class Sentences:
    """The worst verdict of several sentences: FALSE if one of them is FALSE, TRUE if all are TRUE.

    Examples
    --------
    >>> rule = Sentences({"first": Holds(lambda: True), "second": Needs(("c",))})
    >>> rule({}), rule.parts({})
    ('UNDEFINED', {'first': 'TRUE', 'second': 'UNDEFINED'})
    """

    sentences: Mapping[str, Rule]

    def __call__(self, values: Values) -> str:
        """See the class."""
        return min(self.parts(values).values(), key=WORST.index)

    def note(self) -> str:
        """Return the notes of the rules of the sentences."""
        return "; ".join(note for rule in self.sentences.values() if (note := rule.note()))

    def parts(self, values: Values) -> dict[str, str]:
        """Return the verdict of each sentence."""
        return {sentence: rule(values) for sentence, rule in self.sentences.items()}


@dataclass(frozen=True)
class Needs:
    """UNDEFINED if the statement needs definitions that the paper lacks, else the verdict of `then`.

    Without `then` the verdict is TRUE.

    Examples
    --------
    >>> rule = Needs(("L", "norm"), ("L",))
    >>> rule({}), rule.note()
    ('UNDEFINED', 'not defined: norm')
    """

    needed: tuple[str, ...]
    defined: tuple[str, ...] = ()
    then: Rule | None = None

    @property
    def missing(self) -> tuple[str, ...]:
        """Return the definitions that are needed and missing."""
        return tuple(each for each in self.needed if each not in self.defined)

    def __call__(self, values: Values) -> str:
        """See the class."""
        if self.missing:
            return "UNDEFINED"
        return "TRUE" if self.then is None else self.then(values)

    def note(self) -> str:
        """Return the missing definitions, or those that are needed if none is missing."""
        return f"not defined: {'; '.join(self.missing)}" if self.missing else f"defined: {'; '.join(self.needed)}"

    def parts(self, values: Values) -> dict[str, str]:
        """None."""
        return {}


@dataclass(frozen=True)
class Quoted:
    """TRUE if the paper and the source that it cites agree on every point, else FALSE.

    `said` is what the paper says about the source, `source` what the source says; no number decides such a claim.

    Examples
    --------
    >>> rule = Quoted({"table": "sinusoidal"}, {"table": "trainable"}, "Theorem 3")
    >>> rule({}), rule.note()
    ('FALSE', 'table: sinusoidal, but trainable in Theorem 3')
    """

    said: Mapping[str, str]
    source: Mapping[str, str]
    by: str

    def __call__(self, values: Values) -> str:
        """See the class."""
        return "TRUE" if self.said == self.source else "FALSE"

    def note(self) -> str:
        """Return the points on which they differ, or that they agree."""
        apart = [name for name in self.said if self.said[name] != self.source.get(name)]
        if not apart:
            return f"as in {self.by}"
        points = (f"{name}: {self.said[name]}, but {self.source.get(name, 'nothing of it')}" for name in apart)
        return f"{'; '.join(points)} in {self.by}"

    def parts(self, values: Values) -> dict[str, str]:
        """None."""
        return {}


@dataclass(frozen=True)
class Measured:
    """EMPIRICAL: trained models decide the claim; `command` trains them."""

    command: str = "fastpe reproduce table5"

    def __call__(self, values: Values) -> str:
        """See the class."""
        return "EMPIRICAL"

    def note(self) -> str:
        """Return the command that measures it."""
        return f"measured by {self.command}"

    def parts(self, values: Values) -> dict[str, str]:
        """None."""
        return {}
