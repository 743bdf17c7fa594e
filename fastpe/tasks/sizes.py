"""The numbers of positions and tokens of a model for a task. Importing this module does not import NumPy."""

from __future__ import annotations

from fastpe.tasks.task import Chosen

FRAME = ("begin", "separator", "end", "blank")
"""The tokens that follow the symbols of a task, in this order."""


def vocabulary(chosen: Chosen) -> int | None:
    """The number of different tokens for this task; None if inputs are numbers, or if a text determines the number."""
    return None if chosen.task.kind in ("numbers", "text") else chosen.symbols + len(FRAME)


def positions(chosen: Chosen, length: int, causal: bool) -> int:
    """The number of positions in the longest sequence that a model reads for an input of the given length.

    For tokens, the sequence also has the begin token. If the task asks for an answer, it also has the separator, the
    answer or the blanks in its place and, unless `causal`, a blank for the end.

    >>> from fastpe.tasks.registry import choose
    >>> positions(choose("reverse"), 50, causal=True), positions(choose("running_sum"), 50, causal=True)
    (102, 50)
    """
    if chosen.task.kind in ("numbers", "text"):
        return length
    return length + (1 if chosen.task.kind == "labels" else 3 - causal + chosen.answer_length(length))


def check_length(chosen: Chosen, length: int, name: str = "length") -> None:
    """Raise ValueError if the task does not allow inputs of this length; `name` is the name of the caller's argument.

    >>> from fastpe.tasks.registry import choose
    >>> check_length(choose("missing_duplicate"), 4)
    """
    least, step, most = chosen.lengths
    if not least <= length <= most or (length - least) % step:
        which = f"every {step} from {least}" if step > 1 else f"{least}"
        raise ValueError(f"{name} must be {which} to {most} for task {chosen.name!r}, not {length}")
