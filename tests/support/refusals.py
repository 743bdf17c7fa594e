"""Whether a call gives something, or refuses by name what it was given."""

from collections.abc import Callable, Iterable
from typing import Any

Refusal = ValueError | TypeError


def attempt(call: Callable[[], Any], named: Iterable[str]) -> tuple[Any, Refusal | None]:
    """What the call returns, or the error that names one of these arguments; any other error is let through."""
    try:
        return call(), None
    except (ValueError, TypeError) as error:
        if not any(name in str(error) for name in named):
            raise AssertionError(f"the message names no argument: {error}") from error
        return None, error
