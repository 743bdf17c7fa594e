"""Results of this repository's studies by encoding. They are read from a file of the package."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Any, NamedTuple


class Study(NamedTuple):
    """What one study found about one encoding: a sentence, a file with the full results, and a table."""

    title: str
    about: str
    said: str
    page: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@cache
def _stored() -> dict[str, Any]:
    text = resources.files("fastpe.pictures.atlas").joinpath("findings.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def studies() -> list[dict[str, Any]]:
    """All studies as dicts: `title`, `about`, `page` (a file), `head` (of the table) and `of` (results by encoding)."""
    found: list[dict[str, Any]] = _stored()["studies"]
    return found


def of(key: str) -> list[Study]:
    """The studies that include an encoding.

    >>> [each.title for each in of("sph_harm")], len(of("wavelet")) > 3
    ([], True)
    """
    return [
        Study(
            each["title"], each["about"], each["of"][key]["said"], each["page"], each["head"], each["of"][key]["rows"]
        )
        for each in studies()
        if key in each["of"]
    ]


def costs() -> Mapping[str, float]:
    """The time of a training step by encoding, relative to a model without an encoding.

    >>> 0.9 < costs()["rope"] < 1.2
    True
    """
    found: dict[str, float] = _stored()["costs"]
    return found
