"""Which tokens a rule of positions looks for: those of the task, or of the text."""

from typing import TYPE_CHECKING

from fastpe.model.positions import completed
from fastpe.tasks import sizes
from fastpe.tasks.task import Chosen

if TYPE_CHECKING:
    from fastpe.text.vocabulary import Vocabulary


def with_tokens(positions: str, chosen: Chosen, symbols: "Vocabulary | None") -> str:
    """The setting `positions` of a model, which no longer needs the task to know its tokens.

    Raises
    ------
    ValueError
        If the task, or the text, has none such.
    """
    if symbols is not None:
        return completed(positions, "the text", symbols.digits)
    if chosen.task.kind == "numbers":
        return positions
    equals = chosen.symbols + sizes.FRAME.index("separator")
    return completed(positions, chosen.whose, chosen.digits, equals, chosen.digit_order)
