"""``fastpe theory --claims``: the claims of Li (2025), each beside what is right."""

import click


def show_claims(identity: str | None, as_json: bool) -> None:
    """Print one claim, or all of them."""
    raise click.UsageError("--claims is not there yet")
