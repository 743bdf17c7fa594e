"""The page of the atlas: introduction, filters, list of names, and the cards of all encodings by use."""

import html
from collections.abc import Callable, Iterable, Mapping, Sequence

from fastpe.base.version import VERSION
from fastpe.encodings import catalogue
from fastpe.encodings.catalogue import GROUPS, LEARNED, Entry
from fastpe.encodings.encoding import BEYOND, OUTCOMES, USES
from fastpe.pictures import web
from fastpe.pictures.atlas.card import HEADS, Card, card
from fastpe.theory.essentials import SIZES

_NONE = "none"  # the use of encodings that state none
_LEARNED = {"yes": "yes", "no": "no", "optional": "with an option"}
_REPORTED = {"none": "none found"}


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
        f"<p>{many} for transformers in fastpe {VERSION}, each with formula, pictures, options, source, "
        "theoretical properties and measurements. A position encoding provides a few small arrays, its slots. Each "
        "slot acts at one fixed point of a transformer.</p>\n"
        f'<p class="note">Pictures show {sizes}, {HEADS} heads, positions up to twice the training length (dashed '
        f"line), and the initial values (seed 0) of learned parameters. Theory is for {sizes} and one head. An offset "
        "is the position of the key minus that of the query.</p>\n"
    )


def _form(cards: Iterable[Card]) -> str:
    """The filters. They are hidden until the script that applies them runs."""
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
        _select("beyond", "Beyond training length", dict.fromkeys(BEYOND, ""), {each.entry.beyond for each in every}),
        _select("reported", "Extrapolation evidence", {**dict.fromkeys(OUTCOMES, ""), **_REPORTED},
                {each.entry.outcome for each in every}),
        f'<label>From <input {year}"{first}" name="from"></label>',
        f'<label>To <input {year}"{last}" name="to"></label>',
        '<label class="check"><input type="checkbox" name="plain" value="yes"> text only</label>',
        '<label class="check"><input type="checkbox" name="all" value="yes"> search full pages</label>',
        '<button type="reset">Show all</button>',
    ]  # fmt: skip
    count = f'<p id="count" role="status">{len(every)} of {len(every)}</p>'
    return (
        '<form id="choose" role="search" aria-label="Choose encodings" hidden>\n'
        + "\n".join(fields)
        + f"\n{count}\n</form>\n"
    )


def _select(name: str, label: str, words: Mapping[str, str], there: set[str]) -> str:
    """A selection of one word. Words that apply to no encoding are left out."""
    options = "".join(_option(word, words[word] or word) for word in words if word in there)
    return f'<label>{label} <select name="{name}"><option value="">any</option>{options}</select></label>'


def _option(value: str, words: str) -> str:
    return f'<option value="{html.escape(value, quote=True)}">{html.escape(words)}</option>'


def _slots(cards: Sequence[Card]) -> str:
    """The selection of slots, grouped by where they act."""
    filled = {slot for each in cards for slot in each.slots}
    places = {each.entry.group for each in cards}
    groups = "".join(
        f'<optgroup label="{title}">{_option(f"place:{place}", "any of these")}'
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
