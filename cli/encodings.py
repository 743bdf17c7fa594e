"""``fastpe encodings``: list the position encodings, or print the page of one."""

import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from fastpe.encodings.catalogue import LEARNED, ORDERS
from fastpe.encodings.encoding import BEYOND, OUTCOMES, USES
from fastpe.encodings.slots import NOTATION, SLOTS

from .options import ENCODING, Integer
from .output import print_json
from .terminal import next_step, print_markdown, print_options

if TYPE_CHECKING:
    from fastpe.encodings.catalogue import Entry
    from fastpe.encodings.encoding import Encoding

_HEAD = ("name", "what it is", "learns", "beyond", "reported")
_HEAD_NEEDS = ("name", "what it is", "needs")
_SUMMARY, _GAP = 1, 2
_LEGEND = """
learns: has trained parameters (opt: if an option asks for them). beyond: what the formula does
beyond the training length. reported: published results on longer sequences (tuned: after
interpolation or more training; -: none found). `fastpe encodings NAME` prints the page of an
encoding with the evidence. Filters such as `--causal --reported holds` select encodings, and
`--by use|year|place|needs` groups them."""
_LEGEND_NEEDS = """
needs, in addition to positions: training (of parameters), length (the training length), causal
(a causal mask), digits (their places in numbers), coordinates (several per position), graph. The
page of an encoding says how a run provides the last three. `--by use|year|place` groups encodings
differently."""
_WIDEST = 10**4  # characters per line if the output is not a terminal, so that each encoding has one line


def _words(flag: str, words: Sequence[str], text: str) -> Any:
    """Return a filter option that may be repeated. An encoding matches if one of the chosen words applies to it."""
    metavar = "|".join(words) if len(words) < 9 else flag.strip("-").upper()
    return click.option(flag, type=click.Choice(words), multiple=True, metavar=metavar, help=text)


@click.command()
@click.argument("name", required=False, type=ENCODING)
@_words("--slot", list(SLOTS), f"List encodings that act through this slot: {', '.join(SLOTS)}.")
@_words(
    "--beyond",
    BEYOND,
    "What the formula does beyond the training length. clipped: far offsets share one value; resized: learned values "
    "are resampled.",
)
@_words("--learned", LEARNED, "Whether the encoding has trained parameters; optional: only with some options.")
@_words(
    "--reported",
    (*OUTCOMES, "none"),
    "Published results on sequences longer than in training. tuned: good after interpolation or more training; none: "
    "no result was found.",
)
@_words("--use", list(USES), f"Use case. {'; '.join(f'{word}: {title}' for word, title in USES.items())}.")
@click.option("--by", type=click.Choice(ORDERS), help="How the list is grouped.  [default: use]")
@click.option(
    "--causal",
    is_flag=True,
    help="List encodings for causal models of plain sequences: those that need no grid, sphere or graph.",
)
@click.option("--axes", type=Integer(1), metavar="N", help="List encodings whose positions have N coordinates.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def encodings(name: str | None, by: str | None, as_json: bool, **filters: Any) -> None:
    """List the position encodings, or print the page of one.

    NAME is an encoding, or a file that defines your own, such as ./mine.py.

    The filters --slot, --beyond, --learned, --reported, --use, --causal and --axes select encodings. The list contains
    those that match all filters. If a filter is repeated, any of its values may match. A slot is an array that an
    encoding fills, and that the model uses at one place. `--by` groups the list by use case, by year, by the place
    where encodings act, or by what they need.
    """
    from fastpe.encodings import catalogue
    from fastpe.encodings.registry import get, list_encodings, page

    if name is not None:
        if any(filters.values()) or by is not None:
            raise click.UsageError("filters and --by apply to the list: give either them or NAME")
        if name not in list_encodings():
            raise click.UsageError(f"NAME must be a single encoding, not {name!r}")
        if as_json:
            print_json({**_facts(name, get(name)), "page": page(name), "theory": _theory(name)})
        else:
            _print_page(name, get(name), page(name))
            next_step({
                f"fastpe show {name}": "plot it",
                f"fastpe theory {name}": "what it can and cannot do, without training",
                **_training(name),
            })  # fmt: skip
        return
    every, problems = catalogue.entries()
    for problem in problems.values():
        click.echo(f"fastpe: {problem}", err=True)
    found = catalogue.chosen(every, slots=filters.pop("slot"), **filters)
    if as_json:
        if by is not None:
            raise click.UsageError("--by cannot be combined with --json, which has no groups")
        print_json([_facts(each.key, get(each.key)) for each in found])
        return
    room = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDEST
    click.echo("\n".join(listing(found, room, by or ORDERS[0])) if found else "no encoding matches these filters")


def listing(found: "Iterable[Entry]", room: int, by: str = ORDERS[0]) -> list[str]:
    """Return the lines of the list: groups of encodings, wrapped to `room` characters, and a legend."""
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
    """Return the row of an encoding in the list."""
    learns = {"optional": "opt"}.get(each.learned, each.learned)
    return each.key, each.summary, learns, each.beyond, "-" if each.reported is None else each.outcome


def _needs(each: "Entry") -> tuple[str, ...]:
    """Return the row of an encoding in the list by needs."""
    from fastpe.encodings import catalogue

    return each.key, each.summary, ", ".join(catalogue.needs(each.key)) or "-"


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    gap = " " * _GAP
    return (gap + gap.join(cell.ljust(width) for cell, width in zip(cells, widths, strict=False))).rstrip()


def _print_page(name: str, encoding: "Encoding", text: str) -> None:
    from fastpe.encodings import catalogue

    print_markdown(f"# {name}\n\n" + "\n".join(_choice(encoding)))
    click.echo()
    print_markdown(f"{text}\n\n{NOTATION}")
    click.echo()
    print_markdown("## At a glance\n\n" + "\n".join(f"- {fact}" for fact in _at_a_glance(name, encoding)))
    _print_theory(name, catalogue.learned(encoding) == "yes")
    click.echo()
    if encoding.options:
        print_options("--option", encoding.options)
        click.echo()
    print_markdown("## Published results on longer sequences")
    if encoding.reported is None:
        click.echo("none found in the sources that were read")
    else:
        outcome, evidence, source = encoding.reported
        print_markdown(f"**{outcome}**: {evidence} ({source})")


def _training(name: str) -> dict[str, str]:
    """Return the command that trains a small model with an encoding, if it suits a sequence."""
    from fastpe.encodings import catalogue

    needs, what = catalogue.needs(name), "train a small model with it"
    if "digits" in needs:
        return {f"fastpe train --encoding {name} --task addition --task-option digits=reversed": what}
    return {} if {"coordinates", "graph"} & set(needs) else {f"fastpe train --encoding {name} --task reverse": what}


def _choice(encoding: "Encoding") -> Iterator[str]:
    """Yield when to use an encoding, its other names, and what not to confuse it with, as a list in Markdown."""
    if encoding.use_when:
        yield f"- use it when {encoding.use_when}"
    if encoding.also_called:
        yield f"- also called: {', '.join(encoding.also_called)}"
    if encoding.not_to_be_confused:
        yield "- not to be confused with:"
        yield from (f"    - {other}: {difference}" for other, difference in encoding.not_to_be_confused.items())


def _at_a_glance(name: str, encoding: "Encoding") -> Iterator[str]:
    from fastpe.encodings import catalogue, needed

    for slot in encoding.slots:
        values = SLOTS[slot].axes
        yield f"slot `{slot}` {values if values.startswith('(') else f'({values})'}: {SLOTS[slot].acts}"
    yield f"learned: {catalogue.learned(encoding)}"
    if special := needed.needed(name):
        yield f"needs: {special[0].words}"
    if encoding.direction == "causal":
        yield "only for causal models"
    else:
        yield f"distinguishes left from right without a causal mask: {encoding.direction}"
    moved = "; earlier positions change with the length" if catalogue.moves(encoding) else ""
    if "grid" in encoding.options and catalogue.coordinates(encoding) > 1 and not moved:
        moved = "; without `--option grid`, the grid and each token's cell change with the length"
    yield f"beyond the training length: {encoding.beyond}{moved}"
    if encoding.use:
        yield f"use: {USES[encoding.use]}"
    if encoding.source:
        yield f"source: {encoding.source}"
    if encoding.paper:
        settings = ", ".join(f"{key}={value}" for key, value in encoding.paper.items())
        yield f"options in Li (2025), and with `fastpe train --paper`: {settings}"


def _theory(name: str) -> dict[str, Any]:
    """Return three theoretical numbers as JSON values, or the error of a file that cannot be built."""
    from fastpe.theory.essentials import SIZES, essentials

    try:
        found = essentials(name)
    except (ValueError, TypeError) as error:  # the page is printed even if the user's file has an error
        return {**SIZES, "numbers": {}, "error": str(error)}
    return {**SIZES, "numbers": {what: each and each.to_dict() for what, each in found.items()}}


def _print_theory(name: str, learned: bool) -> None:
    from fastpe.theory.pages.words import short

    found = _theory(name)
    if "error" in found:
        click.echo(f"\nin theory: not available, because the encoding cannot be built: {found['error']}")
    if found["numbers"]:
        sizes = f"width {found['dim']}, {found['heads']} head, training length {found['train_length']}"
        sizes += ", initial values" if learned else ""
        rows = (
            f"- {what}: {'-' if each is None else short(float(each['value']))}"
            for what, each in found["numbers"].items()
        )
        click.echo()
        print_markdown(f"## In theory ({sizes})\n\n" + "\n".join(rows))


def _facts(name: str, encoding: "Encoding") -> dict[str, Any]:
    from fastpe.encodings import catalogue, needed
    from fastpe.encodings.encoding import year_of

    return {
        "name": name,
        "summary": encoding.summary,
        "use_when": encoding.use_when,
        "also_called": list(encoding.also_called),
        "not_to_be_confused": dict(encoding.not_to_be_confused),
        "formula": encoding.formula,
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
