"""``fastpe encodings``: what there is, and one page for each."""

from typing import TYPE_CHECKING, Any

import click

from fastpe.slots import SLOTS, make_spec

from .output import print_json, print_table

if TYPE_CHECKING:
    from fastpe.registry import Encoding


@click.command()
@click.argument("name", required=False)
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def encodings(name: str | None, as_json: bool) -> None:
    """List the position encodings, or show the page of the one called NAME."""
    from fastpe.registry import get, list_encodings, page

    if name is None:
        found = {key: get(key) for key in list_encodings()}
        if as_json:
            print_json([_facts(key, encoding) for key, encoding in found.items()])
        else:
            rows = [
                (
                    key,
                    ", ".join(encoding.slots) or "-",
                    _learned(encoding),
                    encoding.direction,
                    encoding.beyond,
                    encoding.source,
                )
                for key, encoding in found.items()
            ]
            print_table(("name", "slots", "learned", "direction", "beyond training", "source"), rows)
    elif as_json:
        print_json({**_facts(name, get(name)), "page": page(name)})
    else:
        _print_page(name, get(name), page(name))


def _print_page(name: str, encoding: "Encoding", text: str) -> None:
    click.echo(f"{name}\n\n{text}\n")
    for slot in encoding.slots:
        click.echo(f"slot {slot} {SLOTS[slot].axes}: {SLOTS[slot].acts}")
    click.echo(f"learned: {_learned(encoding)}")
    click.echo(f"tells left from right without a causal mask: {encoding.direction}")
    click.echo(f"past the training length: {encoding.beyond}")
    click.echo(f"source: {encoding.source}")
    if encoding.paper:
        settings = ", ".join(f"{key}={value}" for key, value in encoding.paper.items())
        click.echo(f"as Li (2025) has it, and so `fastpe train`: {settings}")
    if encoding.options:
        click.echo("\noptions (--option NAME=VALUE):")
        rows = [(key, str(option.default), option.expected(), option.doc) for key, option in encoding.options.items()]
        print_table(("name", "default", "may be", "meaning"), rows)


def _learned(encoding: "Encoding") -> str:
    """Whether an encoding has parameters by default, only with some option, or never."""
    if encoding.pull is None:
        return "no"
    defaults = {key: option.default for key, option in encoding.options.items()}
    return "yes" if encoding.parameters(make_spec(8), **defaults) else "optional"


def _facts(name: str, encoding: "Encoding") -> dict[str, Any]:
    return {
        "name": name,
        "slots": list(encoding.slots),
        "learned": _learned(encoding),
        "direction": encoding.direction,
        "beyond": encoding.beyond,
        "source": encoding.source,
        "paper": dict(encoding.paper),
        "options": {
            key: {"default": option.default, "expected": option.expected(), "doc": option.doc}
            for key, option in encoding.options.items()
        },
    }
