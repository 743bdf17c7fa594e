"""What the terms of an encoding need that a plain sequence does not have, and whether options provide it.

For encodings of this package without options, the files are read but not imported.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from fastpe.encodings import as_written
from fastpe.encodings.encoding import Encoding, Needs
from fastpe.encodings.registry import all_terms, file_of, get, parse_all

_OPTIONS = {"coordinates": "grid", "graph": "edges"}
"""The option that provides what an encoding needs."""


class Needed(NamedTuple):
    """What one term of an encoding needs, and whether its options provide it."""

    term: str
    needs: Needs
    given: bool

    @property
    def words(self) -> str:
        """What is needed, how a run provides it, and the default, in words."""
        return told(get(self.term), self.needs)

    def refusal(self, why: str = "") -> str:
        """The message for a run that does not provide what is needed; why: for digits, what it provides instead."""
        if self.needs.what == "digits":
            return f"encoding {self.term!r} needs positions='digits:K', as in {self.needs.default!r}, {why}"
        encoding = get(self.term)
        if self.needs.what == "graph":
            return f"encoding {self.term!r} needs a graph: give option edges=0,1,1,2, the two nodes of every edge"
        missing = f"encoding {self.term!r} needs positions of several coordinates, and a task's sequences have one"
        if "grid" in encoding.options:
            return f"{missing}: give option grid=A,B, the sides of a grid whose cells are the tokens"
        return f"{missing}: it cannot be trained on a task, only filled by fastpe.build(..., positions=...)"


def needed(name: str, options: Mapping[str, Any] | None = None) -> list[Needed]:
    """The terms of an encoding's name that need more than a plain sequence.

    >>> [(each.term, each.needs.what, each.given) for each in needed("rope_2d+abacus", {"rope_2d.grid": (2, 3)})]
    [('rope_2d', 'coordinates', True), ('abacus', 'digits', False)]
    >>> needed("rope")
    []
    """
    own = {part.scheme: part.options for part in parse_all(name, options)} if options else {}
    found = []
    for term in all_terms(name):
        if (needs := _of_term(term, own.get(term))) is not None:
            option = _OPTIONS.get(needs.what, "")
            found.append(Needed(term, needs, own.get(term, {}).get(option) is not None))
    return found


def of(encoding: Encoding, options: Mapping[str, Any]) -> Needs | None:
    """What an encoding needs, given all its options: from its file, or from its number of coordinates."""
    if encoding.needs is None and encoding.axes(**options) > 1:
        return Needs("coordinates")
    return encoding.needs


def told(encoding: Encoding, needs: Needs) -> str:
    """What an encoding needs, how a run provides it, and the default, in words.

    >>> told(get("laplacian"), Needs("graph", "the graph is a path"))
    'a graph: a run gives it by option edges; by default the graph is a path'
    """
    if needs.what == "digits":
        return f"tokens that are digits: a run has positions='digits:K', by default {needs.default!r}"
    if needs.what == "graph":
        found = "a graph: a run gives it by option edges"
    elif "grid" in encoding.options:
        found = "positions of several coordinates: a run gives them by option grid"
    else:
        found = "positions of several coordinates, which no task has: fastpe.build takes them"
    return f"{found}; by default {needs.default}" if needs.default else found


def _of_term(term: str, options: Mapping[str, Any] | None) -> Needs | None:
    file = file_of(term)
    if options is None and file.is_relative_to(Path(__file__).parent):
        return _written(file)
    encoding = get(term)
    return of(encoding, {name: option.default for name, option in encoding.options.items()} | dict(options or {}))


@cache
def _written(file: Path) -> Needs | None:
    found: Needs | None = as_written.record(file).get("needs")
    return found
