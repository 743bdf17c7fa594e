"""Rules that compute the verdict on a claim from its values: one class for each form of claim.

A rule is called with a dict of the claim's values and returns one of `VERDICTS`. Nothing else decides the verdict. A
condition is a function whose parameters have the names of the values that it needs. Conditions use the proved bounds of
a value (`low`, `high`). So a verdict is proved if the bounds of its values are proved.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from typing import Protocol

from fastpe.theory.value import Value

# TRUE: the claim is proved, or every case was tried.
# TRUE IF: the claim is true under an assumption.
# FALSE: a counterexample refutes the claim.
# VACUOUS: the claim is true, but a trivial bound is at least as good.
# UNDEFINED: a definition is missing, or possible readings of the text have different verdicts.
# EMPIRICAL: only training can decide the claim.
VERDICTS = ("TRUE", "TRUE IF", "FALSE", "VACUOUS", "UNDEFINED", "EMPIRICAL")
WORST = (
    "FALSE",
    "UNDEFINED",
    "EMPIRICAL",
    "VACUOUS",
    "TRUE IF",
    "TRUE",
)  # from the worst to the best verdict; a claim of several sentences has the worst verdict of its sentences

Values = Mapping[str, Value]
Condition = Callable[..., bool]  # its parameters have the names of the values that it needs


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
    """The interface of rules, which compute a verdict from the values of a claim."""

    def __call__(self, values: Values) -> str:
        """Return the verdict."""

    def note(self) -> str:
        """Return the text that the rule adds to the reason, such as an assumption or a missing definition, or ""."""

    def parts(self, values: Values) -> dict[str, str]:
        """Return the verdict of each sentence or reading of the claim, or {} if there is only one."""


class _Plain:
    """Base class of the rules that judge one sentence and add nothing to the reason."""

    def note(self) -> str:
        """Return "": the rule adds nothing to the reason."""
        return ""

    def parts(self, values: Values) -> dict[str, str]:
        """Return {}: the claim has only one sentence."""
        return {}


@dataclass(frozen=True)
class Holds(_Plain):
    """A rule that returns TRUE if a condition holds, else FALSE.

    Examples
    --------
    >>> from fastpe.theory.value import exact
    >>> Holds(lambda x: x.value > 0)({"x": exact(-1.0, "")})
    'FALSE'
    """

    condition: Condition

    def __call__(self, values: Values) -> str:
        """Return the verdict, see the class."""
        return "TRUE" if met(self.condition, values) else "FALSE"


@dataclass(frozen=True)
class HoldsIf:
    """A rule that returns TRUE if the claim holds as printed, TRUE IF if it holds under an assumption, else FALSE.

    Attributes
    ----------
    condition, assumed : function
        The conditions for the claim as printed and under the assumption.
    assumption : str
        The assumption in words.

    Examples
    --------
    >>> rule = HoldsIf(lambda: False, lambda: True, "alpha > 0")
    >>> rule({}), rule.note()
    ('TRUE IF', 'true if alpha > 0')
    """

    condition: Condition
    assumed: Condition
    assumption: str

    def __call__(self, values: Values) -> str:
        """Return the verdict, see the class."""
        if met(self.condition, values):
            return "TRUE"
        return "TRUE IF" if met(self.assumed, values) else "FALSE"

    def note(self) -> str:
        """Return the assumption."""
        return f"true if {self.assumption}"

    def parts(self, values: Values) -> dict[str, str]:
        """Return {}: the claim has only one sentence."""
        return {}


@dataclass(frozen=True)
class Bounds(_Plain):
    """A rule for bounds: FALSE if the bound is exceeded, VACUOUS if it is no better than a trivial bound, else TRUE.

    Examples
    --------
    >>> Bounds(lambda: True, lambda: False)({})
    'VACUOUS'
    """

    condition: Condition
    informative: Condition

    def __call__(self, values: Values) -> str:
        """Return the verdict, see the class."""
        if not met(self.condition, values):
            return "FALSE"
        return "TRUE" if met(self.informative, values) else "VACUOUS"


@dataclass(frozen=True)
class Agree(_Plain):
    """A rule that returns UNDEFINED if the possible readings of the text give different numbers, else TRUE.

    `names` are the names of these numbers.

    Examples
    --------
    >>> from fastpe.theory.value import exact
    >>> Agree(("db4", "db2"))({"db4": exact(8.0, "taps"), "db2": exact(4.0, "taps")})
    'UNDEFINED'
    """

    names: tuple[str, ...]

    def __call__(self, values: Values) -> str:
        """Return the verdict, see the class."""
        return "TRUE" if len({values[name].value for name in self.names}) == 1 else "UNDEFINED"


@dataclass(frozen=True)
class OfOrder(_Plain):
    """A rule that returns TRUE if a number grows no faster than a power of the width if the width doubles, else FALSE.

    `at_width` and `at_twice` are the names of the number at both widths. The number may grow by the factor 2.05^power
    instead of 2^power, which is a tolerance.

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
        """Return the verdict, see the class."""
        return "TRUE" if values[self.at_twice].value <= 2.05**self.power * values[self.at_width].value else "FALSE"


@dataclass(frozen=True)
class Readings:
    """A rule that returns the common verdict of all possible readings of the text, or UNDEFINED if verdicts differ.

    Examples
    --------
    >>> Readings({"of the bias": Holds(lambda: True), "of the weight": Holds(lambda: False)})({})
    'UNDEFINED'
    """

    readings: Mapping[str, Rule]

    def __call__(self, values: Values) -> str:
        """Return the verdict, see the class."""
        found = set(self.parts(values).values())
        return found.pop() if len(found) == 1 else "UNDEFINED"

    def note(self) -> str:
        """Return a sentence on the ambiguity of the text."""
        return "the text does not say which of these readings is meant"

    def parts(self, values: Values) -> dict[str, str]:
        """Return the verdict of each reading."""
        return {reading: rule(values) for reading, rule in self.readings.items()}


@dataclass(frozen=True)
class Sentences:
    """A rule that returns the worst verdict of several sentences: FALSE if one is FALSE, TRUE if all are TRUE.

    Examples
    --------
    >>> rule = Sentences({"first": Holds(lambda: True), "second": Needs(("c",))})
    >>> rule({}), rule.parts({})
    ('UNDEFINED', {'first': 'TRUE', 'second': 'UNDEFINED'})
    """

    sentences: Mapping[str, Rule]

    def __call__(self, values: Values) -> str:
        """Return the verdict, see the class."""
        return min(self.parts(values).values(), key=WORST.index)

    def note(self) -> str:
        """Return the notes of the sentences' rules, joined by "; "."""
        return "; ".join(note for rule in self.sentences.values() if (note := rule.note()))

    def parts(self, values: Values) -> dict[str, str]:
        """Return the verdict of each sentence."""
        return {sentence: rule(values) for sentence, rule in self.sentences.items()}


@dataclass(frozen=True)
class Needs:
    """A rule that returns UNDEFINED if the paper lacks definitions that the claim needs, else the verdict of `then`.

    Without `then` the verdict is TRUE. `needed` and `defined` name the needed definitions and those in the paper.

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
        """The needed definitions that the paper lacks."""
        return tuple(each for each in self.needed if each not in self.defined)

    def __call__(self, values: Values) -> str:
        """Return the verdict, see the class."""
        if self.missing:
            return "UNDEFINED"
        return "TRUE" if self.then is None else self.then(values)

    def note(self) -> str:
        """Return a list of the missing definitions or, if none is missing, of the needed definitions."""
        return f"not defined: {'; '.join(self.missing)}" if self.missing else f"defined: {'; '.join(self.needed)}"

    def parts(self, values: Values) -> dict[str, str]:
        """Return {}: the claim has only one sentence."""
        return {}


@dataclass(frozen=True)
class Quoted:
    """A rule that returns TRUE if the paper and the source that it cites agree on every point, else FALSE.

    No number decides such a claim.

    Attributes
    ----------
    said : dict of str to str
        For each point, the paper's statement about the source.
    source : dict of str to str
        For each point, the statement of the source.
    by : str
        The name of the source.

    Examples
    --------
    >>> rule = Quoted({"table": "sinusoidal"}, {"table": "trainable"}, "Theorem 3")
    >>> rule({}), rule.note()
    ('FALSE', 'the source, Theorem 3, differs in table (paper: sinusoidal; source: trainable)')
    """

    said: Mapping[str, str]
    source: Mapping[str, str]
    by: str

    def __call__(self, values: Values) -> str:
        """Return the verdict, see the class."""
        return "TRUE" if self.said == self.source else "FALSE"

    def note(self) -> str:
        """Return the points on which paper and source differ, or a statement that they agree."""
        differing = [name for name in self.said if self.said[name] != self.source.get(name)]
        if not differing:
            return f"the source, {self.by}, says the same"
        points = (
            f"{name} (paper: {self.said[name]}; source: {self.source.get(name, 'not mentioned')})" for name in differing
        )
        return f"the source, {self.by}, differs in {', '.join(points)}"

    def parts(self, values: Values) -> dict[str, str]:
        """Return {}: the claim has only one sentence."""
        return {}


@dataclass(frozen=True)
class Measured:
    """A rule that returns EMPIRICAL: trained models decide the claim, and the shell command `command` trains them."""

    command: str = "fastpe reproduce table5"

    def __call__(self, values: Values) -> str:
        """Return the verdict, see the class."""
        return "EMPIRICAL"

    def note(self) -> str:
        """Return a sentence that names the command."""
        return f"`{self.command}` measures it"

    def parts(self, values: Values) -> dict[str, str]:
        """Return {}: the claim has only one sentence."""
        return {}
