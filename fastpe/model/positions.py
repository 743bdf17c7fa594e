"""Positions of tokens: the values of `ModelConfig.positions`, and what they mean. They may be independent of tokens:

    usual             0, 1, 2, ...
    random:L          N different ones of 0 .. L - 1, ascending, drawn in every step (Ruoss et al. 2023,
                      arXiv:2305.16843)
    float:L           N real numbers, uniform in [0, L - 1), ascending, drawn in every step (Shimizu et al. 2026,
                      arXiv:2602.14050)
    pose:L            in training 0 .. r - 1, then r + u .. N - 1 + u (PoSE, Zhu et al. 2023, arXiv:2309.10400); in
                      testing 0, 1, 2, ... Every step draws r uniformly from 1 .. floor((N + 1)/2), and the gap u
                      uniformly from 0 .. L - N
    offset:L          a table of L rows; in training, each sequence begins at a random row

They may also follow from the tokens by a rule (`fastpe.model.token_positions`):

    digits:K          the position within a number (Abacus)
    coupled:L         the significance of a digit (position coupling)
    documents:SEP     the position within a document; attention stays within documents
    segments:SEP      the position within a segment, and the number of earlier segments (BiPE)

Importing this module does not import NumPy.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from fastpe.base.validation import shown
from fastpe.encodings.slots import MAX_POSITION

DIGIT_ROWS = 1024
"""Rows of Abacus's table, and of BiPE's table of positions within segments, as in the authors' code."""
ORDERS = ("ordinary", "reversed", "answer_reversed")
"""The order of digits: most significant first, least significant first, or least significant first only in answers."""
FORMS = "'usual', 'random:L', 'float:L', 'pose:L', 'offset:L', 'digits:K', 'coupled:L', 'documents:SEP', 'segments:SEP'"
_MOST_TOKEN = 2**24


@dataclass(frozen=True)
class Digits:
    """Abacus (McLeish et al. 2024, arXiv:2405.17399): positions 1, 2, ... in a run of digits, 0 for all other tokens.

    In a training step one number of 0 .. most is added to the positions of all digits.
    """

    most: int
    digits: tuple[int, ...] = ()  # () until a task or text provides the tokens

    name = "digits"
    rows = DIGIT_ROWS
    keeps_apart = turns = False

    @property
    def complete(self) -> bool:
        """Whether the tokens that a task provides are known."""
        return bool(self.digits)

    def __str__(self) -> str:
        return _joined(self.name, str(self.most), _ranges(self.digits))


@dataclass(frozen=True)
class Coupled:
    """Position coupling (Cho et al. 2024, arXiv:2405.20671) for a + b = c: equally significant digits share a position.

    The digit of weight 10^w has the position start + 1 + w in all three numbers, and tokens that are not digits have
    `start`. Exception: if c begins with its most significant digit, `equals` has start + len(c) + 1, and c is assumed
    to be one digit longer than the longer operand. `start` is 1 in testing. In training it is drawn uniformly for every
    sequence, such that no position exceeds `last`, the last row of the table.
    """

    last: int
    digits: tuple[int, ...] = ()
    equals: int = -1
    order: str = ""

    name = "coupled"
    keeps_apart = turns = False

    @property
    def rows(self) -> int:
        return self.last + 1

    @property
    def complete(self) -> bool:
        """Whether the tokens that a task provides are known."""
        return bool(self.order)

    def __str__(self) -> str:
        return _joined(
            self.name, str(self.last), *((_ranges(self.digits), str(self.equals), self.order) * self.complete)
        )


@dataclass(frozen=True)
class Documents:
    """The position within a document, for table and rotations; attention stays within a document.

    A separator is the last token of its document; with `first`, it is the first token.
    """

    separators: tuple[int, ...]
    first: bool = False

    name = "documents"
    rows = 0  # as many as positions
    complete = keeps_apart = turns = True

    def __str__(self) -> str:
        return _joined(self.name, _ranges(self.separators), "first" * self.first)


@dataclass(frozen=True)
class Segments:
    """BiPE (He et al. 2024, arXiv:2401.16421): a position within the segment, and the number of earlier segments.

    The table has the position within the segment, at most DIGIT_ROWS - 1. Rotations, and ALiBi in a causal model, have
    the number of earlier segments. A separator is the last token of its segment; with `first`, it is the first token.
    """

    separators: tuple[int, ...]
    first: bool = False

    name = "segments"
    rows = DIGIT_ROWS
    complete = turns = True
    keeps_apart = False

    def __str__(self) -> str:
        return _joined(self.name, _ranges(self.separators), "first" * self.first)


Rule = Digits | Coupled | Documents | Segments


def canonical(value: Any, train_length: int) -> str:
    """Return the setting in its canonical spelling.

    >>> canonical("digits:020:0,1,2,3", 10), canonical("random:64", 50)
    ('digits:20:0-3', 'random:64')
    """
    if value == "usual":
        return "usual"
    if not isinstance(value, str):
        raise ValueError(f"positions must be one of {FORMS}, not {shown(value)}")
    way, _, count = value.partition(":")
    if way in ("random", "offset", "float", "pose"):
        if (most := _number(count)) is None:
            raise ValueError(f"positions must be '{way}:L' with L a number of positions, not {value!r}")
        if not train_length <= most <= MAX_POSITION:
            raise ValueError(f"positions '{way}:L' need L from train_length={train_length} to 2**27, not {value!r}")
        return f"{way}:{most}"
    return str(_rule(value))


@cache
def rule_of(positions: str) -> Rule | None:
    """Return the rule in a setting, or None if positions do not follow from tokens.

    >>> rule_of("documents:10")
    Documents(separators=(10,), first=False)
    """
    return None if positions.partition(":")[0] in ("usual", "random", "offset", "float", "pose") else _rule(positions)


def check_tokens(rule: Rule, vocabulary: int | None, positions: str) -> None:
    """Raise ValueError if a model does not have the tokens of its rule, or if the tokens of the rule are unknown."""
    if vocabulary is None:
        raise ValueError(f"positions={positions!r} follow from tokens: the model must have a vocabulary")
    if not rule.complete:
        wanted = f"{rule}:0-9" + (":12:reversed" if isinstance(rule, Coupled) else "")
        raise ValueError(f"positions={positions!r} must say which tokens are digits, as in {wanted!r}")
    named = rule.separators if isinstance(rule, Documents | Segments) else rule.digits
    for token in (*named, *([rule.equals] if isinstance(rule, Coupled) else [])):
        if token >= vocabulary:
            raise ValueError(f"positions={positions!r} must name tokens of 0 .. {vocabulary - 1}, not {token}")


def completed(positions: str, what: str, digits: Iterable[int], equals: int = -1, order: str = "") -> str:
    """Complete a setting with the tokens of a task, unless the setting names tokens. what: the task, for errors.

    >>> completed("digits:20", "a task", range(10)), completed("digits:20:3-5", "a task", range(10))
    ('digits:20:0-9', 'digits:20:3-5')

    Raises
    ------
    ValueError
        If the task has no digits, or does not say where numbers are.
    """
    rule = rule_of(positions)
    if rule is None or rule.complete or isinstance(rule, Documents | Segments):
        return positions
    if not (known := tuple(digits)):
        raise ValueError(f"positions={positions!r} need digits, and {what} has none")
    if isinstance(rule, Digits):
        return str(replace(rule, digits=known))
    if not order:
        told = f"where the digits of numbers are, which {what} does not say with these options"
        raise ValueError(f"positions={positions!r} need to know {told}")
    return str(replace(rule, digits=known, equals=equals, order=order))


# ---------------------------------------------------------------------------------------------------------------------
# Parsing and printing


def _rule(value: str) -> Rule:
    way, *rest = value.split(":")
    fault = ValueError(f"positions must be one of {FORMS}, not {value!r}")
    if way == "digits" and 1 <= len(rest) <= 2:
        most, digits = _number(rest[0]), _tokens(rest[1]) if len(rest) > 1 else ()
        if most is None or digits is None:
            raise ValueError(
                f"positions must be 'digits:K', or 'digits:K:0-9' with the tokens of digits, not {value!r}"
            )
        if most > DIGIT_ROWS - 2:
            raise ValueError(f"positions must add at most {DIGIT_ROWS - 2} to the places of digits, not {most}")
        return Digits(most, digits)
    if way == "coupled" and len(rest) in (1, 4):
        last = _number(rest[0])
        if last is None or not 2 <= last <= MAX_POSITION:
            raise ValueError(f"positions must be 'coupled:L' with L from 2 to 2**27, not {value!r}")
        if len(rest) == 1:
            return Coupled(last)
        digits, equals = _tokens(rest[1]), _number(rest[2])
        if digits is None or equals is None or rest[3] not in ORDERS or equals in digits:
            raise ValueError(
                f"positions must be 'coupled:L:DIGITS:EQUALS:ORDER' as in 'coupled:132:0-9:12:reversed', with an order "
                f"of {', '.join(ORDERS)}, not {value!r}"
            )
        return Coupled(last, digits, equals, rest[3])
    if way in ("documents", "segments") and 1 <= len(rest) <= 2:
        separators = _tokens(rest[0])
        if separators is None or rest[1:] not in ([], ["first"]):
            raise ValueError(
                f"positions must be '{way}:SEP', or '{way}:SEP:first', with tokens as in 10 or 3,5-7, not {value!r}"
            )
        return (Documents if way == "documents" else Segments)(separators, len(rest) > 1)
    raise fault


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None


def _tokens(text: str) -> tuple[int, ...] | None:
    """Return the tokens of a list such as "3,5-7", ascending; None if the text is not such a list."""
    found: set[int] = set()
    for item in text.split(","):
        first, dash, last = item.partition("-")
        low, high = _number(first), _number(last if dash else first)
        if low is None or high is None or not low <= high < _MOST_TOKEN or high - low >= DIGIT_ROWS:
            return None
        found |= set(range(low, high + 1))
    return tuple(sorted(found))


def _ranges(tokens: tuple[int, ...]) -> str:
    """
    >>> _ranges((3, 5, 6, 7))
    '3,5-7'
    """
    runs: list[list[int]] = []
    for token in sorted(tokens):
        if runs and token == runs[-1][-1] + 1:
            runs[-1] = [runs[-1][0], token]
        else:
            runs.append([token])
    return ",".join("-".join(map(str, run)) for run in runs)


def _joined(*parts: str) -> str:
    return ":".join(part for part in parts if part)
