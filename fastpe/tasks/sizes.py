"""How many positions and tokens a model of a task has. Importing this imports no NumPy."""

from __future__ import annotations

from fastpe.tasks.task import Chosen

FRAME = ("begin", "separator", "end", "blank")
"""The tokens after a task's own symbols, in this order."""


def vocabulary(chosen: Chosen) -> int | None:
    """How many tokens a model of this task knows; None where its inputs are numbers, or a text says it."""
    return None if chosen.task.kind in ("numbers", "text") else chosen.symbols + len(FRAME)


def positions(chosen: Chosen, length: int, causal: bool) -> int:
    """Positions of the longest sequence of an input of this length.

    >>> from fastpe.tasks.registry import choose
    >>> positions(choose("reverse"), 50, causal=True), positions(choose("running_sum"), 50, causal=True)
    (102, 50)
    """
    if chosen.task.kind in ("numbers", "text"):
        return length
    return length + (1 if chosen.task.kind == "labels" else 3 - causal + chosen.answer_length(length))


def check_length(chosen: Chosen, length: int, name: str = "length") -> None:
    """Raise ValueError if the task cannot have inputs of this length; `name` is what the caller calls it.

    >>> from fastpe.tasks.registry import choose
    >>> check_length(choose("missing_duplicate"), 4)
    """
    least, step, most = chosen.lengths
    if not least <= length <= most or (length - least) % step:
        which = f"every {step} from {least}" if step > 1 else f"{least}"
        raise ValueError(f"{name} must be {which} to {most}, as task {chosen.name!r} has it, not {length}")
