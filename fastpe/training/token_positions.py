"""Positions that follow from tokens: which ones a task or a text has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastpe.model.positions import completed
from fastpe.tasks import sizes
from fastpe.tasks.task import Chosen

if TYPE_CHECKING:
    from fastpe.text.vocabulary import Vocabulary


def with_tokens(positions: str, chosen: Chosen, symbols: Vocabulary | None) -> str:
    """A setting with the tokens of its rule.

    >>> from fastpe.tasks.registry import choose
    >>> with_tokens("digits:20", choose("addition", {"base": 10}), None)
    'digits:20:0-9'
    """
    if symbols is not None:
        return completed(positions, "the text", symbols.digits)
    if chosen.task.kind == "numbers":
        return positions
    equals = chosen.symbols + sizes.FRAME.index("separator")
    return completed(positions, chosen.whose, chosen.digits, equals, chosen.digit_order)
