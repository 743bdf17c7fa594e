"""The claims of Li (2025) on the command line: a list of all claims, or one claim with its certificate."""

import textwrap
from collections import Counter
from typing import TYPE_CHECKING

import click

from .output import print_json, print_table
from .terminal import columns, next_step

if TYPE_CHECKING:
    from fastpe.paper_claims import Claim, Judgement

_LEAST = 24  # characters per line of a statement
_HEAD = ("claim", "place", "verdict", "value", "statement")


def show_claims(identity: str | None, as_json: bool) -> None:
    """Judge all claims, or the claim with the given id, and print the verdicts."""
    from fastpe.paper_claims import CLAIMS, claim

    if identity is None:
        chosen = CLAIMS
    else:
        try:
            chosen = (claim(identity.strip().upper()),)
        except ValueError as error:
            raise click.BadParameter(str(error)) from None
    from .progress import Bar, counted

    with Bar() as bar:
        judged = [(each, each.judge()) for each in counted(bar, chosen, lambda each: f"claim {each.id}")]
    if as_json:
        facts = [each.to_dict(found) for each, found in judged]
        print_json(facts if identity is None else facts[0])
    elif identity is None:
        _print_list(judged)
    else:
        _print_one(*judged[0])


def _print_list(judged: "list[tuple[Claim, Judgement]]") -> None:
    rows = [(each.id, each.place, found.verdict, _first(each, found), each.statement) for each, found in judged]
    widths = [max(map(len, column)) for column in zip(_HEAD[:-1], *(row[:-1] for row in rows), strict=True)]
    left = sum(widths) + 2 * len(widths)
    for row in (_HEAD, *rows):
        cells = "".join(cell.ljust(width + 2) for cell, width in zip(row[:-1], widths, strict=True))
        lines = textwrap.wrap(row[-1], max(_LEAST, columns() - left), break_on_hyphens=False)
        click.echo(cells + lines[0])
        for line in lines[1:]:
            click.echo(" " * left + line)
    counts = Counter(found.verdict for _, found in judged)
    click.echo(f"\n{len(judged)} claims: {', '.join(f'{count} {word}' for word, count in counts.most_common())}")
    next_step({"fastpe theory --claims C13": "one claim with its certificate"})
    for each, found in judged:
        _print_outside(each, found)


def _first(claim: "Claim", found: "Judgement") -> str:
    """Return the first value that decides the claim, or "-"."""
    name = next((name for name in found.values if name not in claim.not_deciding), None)
    return "-" if name is None else f"{found.values[name].value:.7g}"


def _print_one(claim: "Claim", found: "Judgement") -> None:
    def say(text: str, indent: str = "") -> None:
        click.echo(textwrap.fill(text, columns(), initial_indent=indent, subsequent_indent=indent))

    click.echo(f"{claim.id}, {claim.place}: {found.verdict}\n")
    say(claim.statement)
    if claim.reading:
        say(f"Read as: {claim.reading}.")
    if found.parts:
        click.echo()
        print_table(("verdict", "of"), [(verdict, part) for part, verdict in found.parts.items()])
    click.echo()
    say(f"{found.reason[0].upper()}{found.reason[1:]}.")
    if found.values:
        click.echo()
        rows = [
            (name, f"{value.value:.16g}", value.kind, _end(value.low), _end(value.high), claim.expected[name],
             "no" if name in claim.not_deciding else "yes")
            for name, value in found.values.items()
        ]  # fmt: skip
        print_table(("name", "value", "known", "at least", "at most", "stored", "decides"), rows)
        click.echo()
        for name, value in found.values.items():
            say(f"{name}: {value.why}")
    _print_outside(claim, found)


def _end(number: float | None) -> str:
    return "-" if number is None else f"{number:.16g}"


def _print_outside(claim: "Claim", found: "Judgement") -> None:
    for name in found.outside:
        click.echo(f"fastpe: {claim.id}: {name} lies outside its stored interval {claim.expected[name]}", err=True)
