"""The page of the atlas: a gallery of all encodings with filters, and the card of each encoding."""

from collections.abc import Callable, Sequence

from fastpe.base.version import VERSION
from fastpe.encodings import catalogue
from fastpe.encodings.catalogue import GROUPS, Entry
from fastpe.encodings.encoding import BEYOND, USES
from fastpe.encodings.slots import NOTATION
from fastpe.pictures import web
from fastpe.pictures.atlas import prose
from fastpe.pictures.atlas.card import EVIDENCE, HEADS, Card, card
from fastpe.theory.essentials import SIZES

_USES = {**USES, "none": "none stated"}
_LEARNED = {"yes": "yes", "no": "no", "optional": "with an option"}


def atlas(entries: Sequence[Entry], listen: Callable[[str], None] = lambda key: None) -> str:
    """One HTML page about some encodings. It loads no other files, and is equal for equal encodings.

    Parameters
    ----------
    entries : sequence of Entry
        From `fastpe.encodings.catalogue.entries`.
    listen : callable
        Called with each key before its card is made.

    Returns
    -------
    str
        The page.

    Examples
    --------
    >>> from fastpe.encodings.catalogue import entry
    >>> page = atlas([entry("rope"), entry("alibi")])
    >>> page.count("<article"), page.count('class="tile"')
    (2, 2)
    """
    cards: dict[str, Card] = {}
    for entry in entries:
        listen(entry.key)
        made = cards[entry.key] = card(entry)
        made.theory  # noqa: B018 - computed now, while `listen` reports it
    groups = catalogue.grouped(entries, "use")
    every = list(cards.values())
    years = [each.entry.year for each in every if each.entry.year is not None] or [2017]
    return web.render(
        "fastpe.pictures.atlas/atlas.html",
        title="Position encodings: an atlas",
        version=VERSION,
        notation=NOTATION,
        sizes={**SIZES, "heads": HEADS},
        groups={title: [cards[each.key] for each in members] for title, members in groups.items()},
        cards=every,
        selections=_selections(every),
        slots=_slots(every),
        years=(min(years), max(years)),
        evidence=EVIDENCE,
        inline=prose.inline,
    )


def _selections(cards: Sequence[Card]) -> list[tuple[str, str, dict[str, str]]]:
    """Name, label, and words with their texts of each selection. Words that apply to no encoding are left out."""
    every = (
        ("use", "Use", _USES),
        ("learned", "Learns", _LEARNED),
        ("beyond", "Beyond training length", {word: word for word in BEYOND}),
        ("reported", "Extrapolation evidence", {word: word for word in EVIDENCE}),
    )
    return [
        (name, label, {word: text for word, text in words.items() if word in {each.data[name] for each in cards}})
        for name, label, words in every
    ]


def _slots(cards: Sequence[Card]) -> dict[str, tuple[str, list[str]]]:
    """Place -> its title and its slots, for those that some encoding fills."""
    filled = {slot for each in cards for slot in each.encoding.slots}
    places = {each.entry.group for each in cards}
    return {
        place: (title, [slot for slot in slots if slot in filled])
        for place, (title, slots) in GROUPS.items()
        if place in places
    }
