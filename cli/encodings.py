"""``fastpe encodings``: what there is to choose from, and one page for each."""

import shutil
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click

from fastpe.encodings.catalogue import LEARNED, ORDERS
from fastpe.encodings.encoding import BEYOND, OUTCOMES, USES
from fastpe.encodings.slots import SLOTS

from .output import encoding_name, print_json, print_table

if TYPE_CHECKING:
    from fastpe.encodings.catalogue import Entry
    from fastpe.encodings.encoding import Encoding

_HEAD = ("name", "what it is", "learns", "beyond", "reported")
_HEAD_NEEDS = ("name", "what it is", "needs")
_SUMMARY, _GAP = 1, 2
_LEGEND = """
learns: parameters are trained (opt: by an option). beyond: the formula past the training length.
reported: models measured there (tuned: after interpolation or more training; -: nothing found).
`fastpe encodings NAME` prints its page and the evidence; `--causal --reported holds` chooses,
`--by year`, place (where they act), needs or use orders."""
_LEGEND_NEEDS = """
needs, beside positions: training (of parameters), length (that of training), causal (a mask),
digits (their places in numbers), coordinates (several to a position), graph; the page of an
encoding says how a run gives the last three. `--by use`, year or place orders otherwise."""
_WIDEST = 10**4  # characters of a line that nobody sees on a terminal: one encoding, one line


def _words(flag: str, words: Sequence[str], text: str) -> Any:
    """A filter that may be repeated: any of these words."""
    metavar = "|".join(words) if len(words) < 9 else flag.strip("-").upper()
    return click.option(flag, type=click.Choice(words), multiple=True, metavar=metavar, help=text)


@click.command()
@click.argument("name", required=False, callback=encoding_name)
@_words("--slot", list(SLOTS), f"Those that fill this slot: {', '.join(SLOTS)}.")
@_words("--beyond", BEYOND, "What the formula does past the training length.")
@_words("--learned", LEARNED, "Whether parameters are trained; optional: by an option.")
@_words("--reported", (*OUTCOMES, "none"), "How models did on longer sequences, as others measured.")
@_words("--use", list(USES), f"Whom they are for: {'; '.join(f'{word}: {title}' for word, title in USES.items())}.")
@click.option("--by", type=click.Choice(ORDERS), help="What the list is grouped by.  [default: use]")
@click.option("--causal", is_flag=True, help="Those for a causal model of a plain sequence: no grid, sphere or graph.")
@click.option("--axes", type=click.IntRange(1), metavar="N", help="Those whose positions have N coordinates.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def encodings(name: str | None, by: str | None, as_json: bool, **filters: Any) -> None:
    """List the position encodings by whom they are for, or show the page of the one called NAME, or of a file:
    ./mine.py.

    Filters combine: an encoding is listed that meets all of them. One that is repeated is met by any of its words.
    `--by` groups the list by use, by year, by the place where they act, or by what they need.
    """
    from fastpe.encodings import catalogue
    from fastpe.encodings.registry import get, list_encodings, page

    if name is not None:
        if any(filters.values()) or by is not None:
            raise click.UsageError("filters and --by are of the list: give them or NAME")
        if name not in list_encodings():
            raise click.UsageError(f"a page is of one encoding, not of several: {name!r}")
        if as_json:
            print_json({**_facts(name, get(name)), "page": page(name), "theory": _theory(name)})
        else:
            _print_page(name, get(name), page(name))
        return
    every, problems = catalogue.entries()
    for problem in problems.values():
        click.echo(f"fastpe: {problem}", err=True)
    found = catalogue.chosen(every, slots=filters.pop("slot"), **filters)
    if as_json:
        if by is not None:
            raise click.UsageError("--by groups the list, and --json has no groups: leave one out")
        print_json([_facts(each.key, get(each.key)) for each in found])
        return
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDEST
    click.echo("\n".join(listing(found, room, by or ORDERS[0])) if found else "no encoding meets all of these")


def listing(found: "Iterable[Entry]", room: int, by: str = ORDERS[0]) -> list[str]:
    """A line for each encoding under its group, and a legend; where lines have too little room, several."""
    from fastpe.encodings import catalogue

    groups = catalogue.grouped(found, by)
    head, row_of, legend = (_HEAD_NEEDS, _needs, _LEGEND_NEEDS) if by == "needs" else (_HEAD, _row, _LEGEND)
    rows = {group: [row_of(each) for each in members] for group, members in groups.items()}
    widths = [
        max(map(len, column)) for column in zip(head, *(row for own in rows.values() for row in own), strict=True)
    ]
    widths[_SUMMARY] = max(20, min(widths[_SUMMARY], room - (sum(widths) - widths[_SUMMARY] + _GAP * len(widths))))
    lines = [_aligned(head, widths)]
    for group, own in rows.items():
        lines += ["", group]
        for row in own:
            first, *more = textwrap.wrap(row[_SUMMARY], widths[_SUMMARY], break_on_hyphens=False) or [""]
            lines.append(_aligned([row[0], first, *row[_SUMMARY + 1 :]], widths))
            lines += [_aligned(["", line], widths) for line in more]
    return lines + [
        line for text in legend.split("\n") for line in textwrap.wrap(text, room, break_on_hyphens=False) or [""]
    ]


def _row(each: "Entry") -> tuple[str, ...]:
    """What a list says of an encoding, as short as it gets."""
    learns = {"optional": "opt"}.get(each.learned, each.learned)
    return each.key, each.summary, learns, each.beyond, "-" if each.reported is None else each.outcome


def _needs(each: "Entry") -> tuple[str, ...]:
    """What a list by needs says of an encoding."""
    from fastpe.encodings import catalogue

    return each.key, each.summary, ", ".join(catalogue.needs(each.key)) or "-"


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    gap = " " * _GAP
    return (gap + gap.join(cell.ljust(width) for cell, width in zip(cells, widths, strict=False))).rstrip()


def _print_page(name: str, encoding: "Encoding", text: str) -> None:
    from fastpe.encodings import catalogue, needed

    click.echo(f"{name}\n\n{text}\n")
    for slot in encoding.slots:
        values = SLOTS[slot].axes
        click.echo(f"slot {slot} {values if values.startswith('(') else f'({values})'}: {SLOTS[slot].acts}")
    click.echo(f"learned: {catalogue.learned(encoding)}")
    if special := needed.needed(name):
        click.echo(f"needs: {special[0].words}")
    if encoding.direction == "causal":
        click.echo("made for causal models alone")
    else:
        click.echo(f"tells left from right without a causal mask: {encoding.direction}")
    moved = ", and earlier positions change with the length" if catalogue.moves(encoding) else ""
    if "grid" in encoding.options and catalogue.coordinates(encoding) > 1 and not moved:
        moved = "; a grid that is not given changes with the length, and every token's cell with it"
    click.echo(f"past the training length: {encoding.beyond}{moved}")
    if encoding.use:
        click.echo(f"use: {USES[encoding.use]}")
    if encoding.source:
        click.echo(f"source: {encoding.source}")
    if encoding.paper:
        settings = ", ".join(f"{key}={value}" for key, value in encoding.paper.items())
        click.echo(f"as Li (2025) has it, and `fastpe train --paper`: {settings}")
    _print_theory(name, catalogue.learned(encoding) == "yes")
    if encoding.options:
        click.echo("\noptions (--option NAME=VALUE):")
        rows = [(key, str(option.default), option.expected(), option.doc) for key, option in encoding.options.items()]
        print_table(("name", "default", "may be", "meaning"), rows)
    if encoding.reported is None:
        click.echo("\nReported on longer sequences: nothing was found in the sources read.")
    else:
        outcome, evidence, source = encoding.reported
        click.echo(f"\nReported on longer sequences: {outcome}\n{evidence}\n({source})")


def _theory(name: str) -> dict[str, Any]:
    """Three numbers of theory, as JSON; of a file of one's own that cannot be filled, why not."""
    from fastpe.theory.essentials import SIZES, essentials

    try:
        found = essentials(name)
    except (ValueError, TypeError) as error:  # a page is printed whatever is wrong with an own file
        return {**SIZES, "numbers": {}, "error": str(error)}
    return {**SIZES, "numbers": {what: each and each.to_dict() for what, each in found.items()}}


def _print_theory(name: str, learned: bool) -> None:
    from fastpe.theory.pages.words import short

    found = _theory(name)
    if "error" in found:
        click.echo(f"\nin theory: nothing, as it cannot be filled: {found['error']}")
    if found["numbers"]:
        sizes = f"width {found['dim']}, {found['heads']} head, training length {found['train_length']}"
        click.echo(f"\nin theory ({sizes}{', initial values' if learned else ''}):")
        for what, each in found["numbers"].items():
            click.echo(f"  {what}: {'-' if each is None else short(float(each['value']))}")


def _facts(name: str, encoding: "Encoding") -> dict[str, Any]:
    from fastpe.encodings import catalogue, needed
    from fastpe.encodings.encoding import year_of

    return {
        "name": name,
        "summary": encoding.summary,
        "use": encoding.use,
        "year": year_of(encoding.source),
        "group": catalogue.group_of(encoding.slots, gated=encoding.gate is not None),
        "slots": list(encoding.slots),
        "learned": catalogue.learned(encoding),
        "direction": encoding.direction,
        "beyond": encoding.beyond,
        "moves": catalogue.moves(encoding),
        "reported": encoding.reported._asdict() if encoding.reported else None,
        "causal": catalogue.suits_sequences(encoding),
        "axes": catalogue.coordinates(encoding),
        "needs": list(catalogue.needs(name)),
        "runs_need": [each.words for each in needed.needed(name)],
        "source": encoding.source,
        "paper": dict(encoding.paper),
        "options": {
            key: {"default": option.default, "expected": option.expected(), "doc": option.doc}
            for key, option in encoding.options.items()
        },
    }
