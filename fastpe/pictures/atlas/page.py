"""The page itself: how to choose, a list of names, and the cards of all encodings by whom they are for."""

import html
from collections.abc import Callable, Iterable, Mapping, Sequence

from fastpe.base.version import VERSION
from fastpe.encodings import catalogue
from fastpe.encodings.catalogue import GROUPS, LEARNED, Entry
from fastpe.encodings.encoding import BEYOND, OUTCOMES, USES
from fastpe.pictures import web
from fastpe.pictures.atlas.card import HEADS, Card, card
from fastpe.theory.essentials import SIZES

_NONE = "none"  # the use of what states none
_LEARNED = {"yes": "yes", "no": "no", "optional": "by an option"}
_REPORTED = {"none": "nothing found"}


def atlas(entries: Sequence[Entry], listen: Callable[[str], None] = lambda key: None) -> str:
    """All that is known of some encodings, as one page in HTML that loads nothing.

    The same encodings always give the same page.

    Parameters
    ----------
    entries : sequence of Entry
        As `fastpe.encodings.catalogue.entries` has them.
    listen : callable
        Hears of each key before its card is made.

    Returns
    -------
    str

    Examples
    --------
    >>> from fastpe.encodings.catalogue import entry
    >>> page = atlas([entry("rope"), entry("alibi")])
    >>> page.count("<article"), "How far a model reads" in page
    (2, False)
    """
    cards: dict[str, Card] = {}
    for entry in entries:
        listen(entry.key)
        cards[entry.key] = card(entry)
    groups = catalogue.grouped(entries, "use")
    parts = [
        _about(len(cards)),
        _form(cards.values()),
        _names(groups),
        '<main id="encodings">\n',
        *(_group(title, [cards[each.key] for each in members]) for title, members in groups.items()),
        "</main>\n",
    ]
    return web.document("Position encodings: an atlas", "".join(parts), "fastpe.pictures.atlas", "atlas")


def _about(count: int) -> str:
    many = f"{count} position encodings" if count != 1 else "One position encoding"
    sizes = f"width {SIZES['dim']}, training length {SIZES['train_length']}"
    return (
        f"<p>{many} of transformers, as fastpe {VERSION} has them: formula, picture, options, source, what "
        "theory says and what was measured. A position encoding fills a few small arrays, its slots, and each slot "
        "acts at one place of a transformer.</p>\n"
        f'<p class="note">Pictures: {sizes}, {HEADS} heads, up to twice the training length (the dashed line), initial '
        f"values of seed 0 of what is learned. Theory: {sizes}, one head. Offsets are key - query.</p>\n"
    )


def _form(cards: Iterable[Card]) -> str:
    """What chooses; hidden until the script is there that does it."""
    every = list(cards)
    learned = {word: _LEARNED[word] for word in LEARNED}
    years = sorted({each.entry.year for each in every if each.entry.year is not None})
    first, last = (years[0], years[-1]) if years else (2017, 2017)
    year = f'type="number" min="{first}" max="{last}" placeholder='
    fields = [
        '<label class="search">Search <input type="search" name="q" placeholder="name, author, slot, option"></label>',
        _select("use", "Use", {**USES, _NONE: "none stated"}, {each.entry.use or _NONE for each in every}),
        _slots(every),
        _select("learned", "Learns", learned, {each.entry.learned for each in every}),
        _select("beyond", "Past the training length", dict.fromkeys(BEYOND, ""), {each.entry.beyond for each in every}),
        _select("reported", "Reported there", {**dict.fromkeys(OUTCOMES, ""), **_REPORTED},
                {each.entry.outcome for each in every}),
        f'<label>From <input {year}"{first}" name="from"></label>',
        f'<label>To <input {year}"{last}" name="to"></label>',
        '<label class="check"><input type="checkbox" name="plain" value="yes"> for a plain text</label>',
        '<label class="check"><input type="checkbox" name="all" value="yes"> search in whole pages</label>',
        '<button type="reset">Show all</button>',
    ]  # fmt: skip
    count = f'<p id="count" role="status">{len(every)} of {len(every)}</p>'
    return (
        '<form id="choose" role="search" aria-label="Choose encodings" hidden>\n'
        + "\n".join(fields)
        + f"\n{count}\n</form>\n"
    )


def _select(name: str, label: str, words: Mapping[str, str], there: set[str]) -> str:
    """A field of one word; those that no encoding has are left out."""
    options = "".join(_option(word, words[word] or word) for word in words if word in there)
    return f'<label>{label} <select name="{name}"><option value="">any</option>{options}</select></label>'


def _option(value: str, words: str) -> str:
    return f'<option value="{html.escape(value, quote=True)}">{html.escape(words)}</option>'


def _slots(cards: Sequence[Card]) -> str:
    """The places where encodings act, and below each its slots."""
    filled = {slot for each in cards for slot in each.slots}
    places = {each.entry.group for each in cards}
    groups = "".join(
        f'<optgroup label="{title}">{_option(f"place:{place}", "any of them")}'
        f"{''.join(_option(slot, slot) for slot in slots if slot in filled)}</optgroup>"
        for place, (title, slots) in GROUPS.items()
        if place in places
    )
    return f'<label>Acts on <select name="slot"><option value="">any</option>{groups}</select></label>'


def _names(groups: Mapping[str, Sequence[Entry]]) -> str:
    lines = "".join(
        f"<div><dt>{html.escape(title)}</dt><dd>{' '.join(_link(each.key) for each in members)}</dd></div>\n"
        for title, members in groups.items()
    )
    return f'<nav aria-label="All encodings"><dl>\n{lines}</dl></nav>\n'


def _link(key: str) -> str:
    return f'<a href="#{html.escape(key, quote=True)}">{html.escape(key)}</a>'


def _group(title: str, cards: Sequence[Card]) -> str:
    return (
        f'<section class="group"><h2>{html.escape(title)}</h2>\n{"".join(each.content for each in cards)}</section>\n'
    )
