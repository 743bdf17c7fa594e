"""What the terms of an encoding need beyond a plain sequence of tokens, and whether the options provide it.

Files of this package's encodings are read without being imported, unless options are given.
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
"""What an encoding needs -> the option that provides it."""


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
        """Return the error message for a run that does not provide what is needed.

        For digits, the message ends with `why`, which says what the run has instead.
        """
        if self.needs.what == "digits":
            return f"encoding {self.term!r} needs positions='digits:K', as in {self.needs.default!r}, {why}"
        encoding = get(self.term)
        if self.needs.what == "graph":
            return f"encoding {self.term!r} needs a graph: set option edges=0,1,1,2, ..., the two nodes of every edge"
        missing = f"encoding {self.term!r} needs positions with several coordinates, but sequences of tasks have one"
        if "grid" in encoding.options:
            return f"{missing}: set option grid=A,B, the sides of a grid whose cells are the tokens"
        return f"{missing}: it cannot be trained on a task; use fastpe.build(..., positions=...)"


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
    """Return what an encoding needs with these options: the value of its field `needs`.

    If the field is None but positions have several coordinates, the encoding needs coordinates.
    """
    if encoding.needs is None and encoding.axes(**options) > 1:
        return Needs("coordinates")
    return encoding.needs


def told(encoding: Encoding, needs: Needs) -> str:
    """Describe what an encoding needs, how a run provides it, and the default.

    >>> told(get("laplacian"), Needs("graph", "the graph is a path"))
    'a graph: set option edges; by default the graph is a path'
    """
    if needs.what == "digits":
        return f"tokens that are digits: set positions='digits:K'; the default is {needs.default!r}"
    if needs.what == "graph":
        text = "a graph: set option edges"
    elif "grid" in encoding.options:
        text = "positions with several coordinates: set option grid"
    else:
        text = "positions with several coordinates, which no task has: pass them to fastpe.build"
    return f"{text}; by default {needs.default}" if needs.default else text


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
