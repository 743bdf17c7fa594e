"""The catalogue of all encodings: entries of lists, filters and groups.

Files of this package's encodings are read without being imported.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fastpe.encodings import as_written, needed
from fastpe.encodings.encoding import NEEDED, USES, BeyondTrainingLength, Encoding, Needs, Reported, year_of
from fastpe.encodings.registry import file_of, get, list_encodings
from fastpe.encodings.slots import make_spec

GROUPS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "input": ("Added to the input", ("table", "qk_table", "taps")),
    "rotation": ("Rotations of query and key", ("polar", "angles", "growth", "rotors")),
    "relative": (
        "Vectors of the offset, in score and output", ("rel_key", "rel_query", "rel_value", "rel_gain", "key_bias"),
    ),
    "bias": ("Biases and factors of the score", ("bias", "gain", "row_scale", "scores", "index", "values")),
    "content": (
        "Gates of a layer's input, queries, keys and scores", ("counts", "mlp_in", "mlp_bias", "mlp_out"),
    ),
}  # fmt: skip
"""Folder of `fastpe/encodings/` -> its title, and the slots of its encodings. Folders whose encodings act first come
first."""

_FIRST = ("rotation", "relative", "bias", "content")  # the order of precedence if the slots belong to several groups
LEARNED = ("yes", "no", "optional")

NEEDS: Mapping[str, str] = {
    "": "Only positions",
    "training": "Trained parameters",
    "length": "The training length",
    "causal": "A causal mask",
    "digits": "Positions of digits within numbers, derived from the tokens",
    "coordinates": "Positions of several coordinates: a grid, a sphere, space",
    "graph": "A graph: a plain sequence is a path",
}
"""Word for what an encoding needs in addition to positions -> title of a group. The word "" applies to all encodings.
An encoding belongs to the group of the last word that applies to it."""

ORDERS = ("use", "year", "place", "needs")
"""The properties by which a list can be grouped."""
_NO_USE, _NO_YEAR = "No use stated", "Own constructions, and sources without a year"
_TRAINED, _POSITIONS = (6, 12), 18  # two training lengths, and a number of positions beyond both


@dataclass(frozen=True)
class Entry:
    """The entry of an encoding in lists: its key, its group, fields of its record, and whether it learns.

    `learned` is "yes", "optional" (only with some option) or "no".
    """

    key: str
    slots: tuple[str, ...]
    learned: str
    summary: str = ""
    formula: str = ""
    use_when: str = ""
    also_called: tuple[str, ...] = ()
    not_to_be_confused: Mapping[str, str] = field(default_factory=dict)
    use: str = ""
    source: str = ""
    beyond: str = "defined"
    reported: Reported | None = None
    needs: Needs | None = None
    gated: bool = False

    @property
    def group(self) -> str:
        """The folder of the encoding."""
        return group_of(self.slots, gated=self.gated)

    @property
    def year(self) -> int | None:
        """The year of the encoding's source, see `year_of`."""
        return year_of(self.source)

    @property
    def outcome(self) -> str:
        """The reported result on longer sequences: one of `OUTCOMES`, or "none" if no report was found."""
        return self.reported.outcome if self.reported else "none"


def entry(key: str) -> Entry:
    """The entry of one encoding.

    >>> entry("rope_yarn").outcome, entry("da").outcome
    ('tuned', 'none')
    """
    file = file_of(key)
    if file.is_relative_to(Path(__file__).parent):
        return Entry(key, **as_written.record(file))
    encoding = get(key)
    gated = encoding.gate is not None
    return Entry(
        key, learned=learned(encoding), gated=gated, **{name: getattr(encoding, name) for name in as_written.FIELDS}
    )


def entries() -> tuple[list[Entry], dict[str, str]]:
    """Return the entries of all encodings, sorted by key, and key -> error of encodings that cannot be loaded.

    Only encodings of installed packages may fail to load.
    """
    found, broken = [], {}
    for key in list_encodings():
        try:
            found.append(entry(key))
        except ValueError as error:
            broken[key] = str(error)
    return found, broken


def chosen(
    every: Iterable[Entry],
    slots: Collection[str] = (),
    beyond: Collection[str] = (),
    learned: Collection[str] = (),
    reported: Collection[str] = (),
    use: Collection[str] = (),
    *,
    causal: bool = False,
    axes: int | None = None,
) -> list[Entry]:
    """Return the entries that meet all criteria.

    An entry meets a collection of words if it has one of these words, or if the collection is empty.

    >>> "alibi" in [each.key for each in chosen(entries()[0], slots=["bias"], reported=["holds"], causal=True)]
    True
    """
    return [
        each
        for each in every
        if (not slots or set(slots) & set(each.slots))
        and (not beyond or each.beyond in beyond)
        and (not learned or each.learned in learned)
        and (not reported or each.outcome in reported)
        and (not use or each.use in use)
        and (not causal or suits_sequences(get(each.key)))
        and (axes is None or coordinates(get(each.key)) == axes)
    ]


def grouped(entries: Iterable[Entry], by: str = "use") -> dict[str, list[Entry]]:
    """Group the entries: title of a group -> its entries. Empty groups are left out.

    by: one of `ORDERS`:

    - "use": the field of use;
    - "year": the year of the source, newest first;
    - "place": where the encoding acts;
    - "needs": the last word of `NEEDS` that applies to the encoding.

    >>> [each.key for each in grouped(entries()[0], "year")["2018"]]
    ['shaw', 'sinusoidal_t2t']
    """
    every = list(entries)
    titles = _titles(every, by)
    found: dict[Any, list[Entry]] = {group: [] for group in titles}
    for each in every:
        found[_group(each, by)].append(each)
    return {titles[group]: members for group, members in found.items() if members}


def _titles(entries: Iterable[Entry], by: str) -> dict[Any, str]:
    """Group -> its title, in the order of the list."""
    match by:
        case "use":
            return {**USES, "": _NO_USE}
        case "year":
            years = sorted({each.year for each in entries if each.year is not None}, reverse=True)
            return {**{year: str(year) for year in years}, None: _NO_YEAR}
        case "place":
            return {folder: title for folder, (title, _) in GROUPS.items()}
    return dict(NEEDS)


def _group(each: Entry, by: str) -> Any:
    """The group of an encoding, a key of `_titles`."""
    match by:
        case "use":
            return each.use
        case "year":
            return each.year
        case "place":
            return each.group
    return ("", *needs(each.key))[-1]


def group_of(slots: Iterable[str], *, gated: bool = False) -> str:
    """The folder of an encoding that fills these slots or has a gate; an encoding with neither belongs to "input".

    >>> group_of(["rel_key", "bias"])
    'relative'
    """
    if gated:
        return "content"
    filled = set(slots)
    return next((folder for folder in _FIRST if filled & set(GROUPS[folder][1])), "input")


def learned(encoding: Encoding) -> str:
    """Whether an encoding has parameters by default ("yes"), only with some option ("optional"), or never ("no")."""
    if encoding.parameters is Encoding.parameters:
        return "no"
    return "yes" if encoding.parameters(make_spec(8), **_defaults(encoding)) else "optional"


def needs(key: str) -> tuple[str, ...]:
    """Return the words of `NEEDS` that apply to an encoding with its default options.

    Whether the encoding depends on the training length is found by filling its slots. If this fails, as it may for a
    user-defined encoding, the word "length" is left out.

    >>> needs("rope"), needs("fire"), needs("learned_2d")
    ((), ('training', 'causal'), ('training', 'length', 'coordinates'))
    """
    encoding = get(key)
    what = "" if (special := needed.of(encoding, _defaults(encoding))) is None else special.what
    found = {
        "training": learned(encoding) == "yes",
        "length": _knows_training_length(key, causal=encoding.direction == "causal"),
        "causal": encoding.direction == "causal",
        **{word: what == word for word in NEEDED},
    }
    return tuple(word for word, needed in found.items() if needed)


def _knows_training_length(key: str, causal: bool) -> bool:
    """Whether the slots for the same positions depend on the training length."""
    import numpy as np  # most lists do not need NumPy

    from fastpe.encodings.build import build

    filled = []
    for train_length in _TRAINED:
        try:
            sizes: dict[str, Any] = {"dim": 24, "heads": 2, "train_length": train_length, "causal": causal}
            filled.append(build(key, _POSITIONS, **sizes, dtype="float64", reference=True))
        except BeyondTrainingLength:
            return True
        except (ValueError, TypeError):  # a faulty user-defined encoding is still listed
            return False
    one, other = filled
    return one.keys() != other.keys() or any(
        np.shape(one[slot]) != np.shape(other[slot]) or not np.array_equal(one[slot], other[slot]) for slot in one
    )


def moves(encoding: Encoding) -> bool:
    """Whether, with default options, the slots of earlier positions change if a sequence exceeds the training length.

    >>> from fastpe.encodings.registry import get
    >>> moves(get("rope_dynamic")), moves(get("rope"))
    (True, False)
    """
    return encoding.moves(**_defaults(encoding))


def coordinates(encoding: Encoding) -> int:
    """The number of coordinates of a position, with default options.

    >>> coordinates(get("rope")), coordinates(get("rope_2d"))
    (1, 2)
    """
    return encoding.axes(**_defaults(encoding))


def suits_sequences(encoding: Encoding) -> bool:
    """Whether an encoding suits a causal model of a plain sequence: one coordinate for each position, and no graph.

    >>> suits_sequences(get("xpos")), suits_sequences(get("rope_2d")), suits_sequences(get("graphormer"))
    (True, False, False)
    """
    special = needed.of(encoding, _defaults(encoding))
    return special is None or special.what not in ("coordinates", "graph")


def _defaults(encoding: Encoding) -> dict[str, Any]:
    return {key: option.default for key, option in encoding.options.items()}
