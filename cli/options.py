"""The options of commands: their types, the groups in which `--help` lists them, and those that set `TrainConfig`."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import click
from click.shell_completion import CompletionItem

from fastpe.encodings import registry
from fastpe.tasks.registry import TASKS
from fastpe.training.config import TrainConfig
from fastpe.training.settings import SETTINGS, Setting


class Integer(click.types.IntParamType):
    """An integer in ASCII digits, at least `least` if that is given. (`int` also reads the digits of other scripts.)"""

    def __init__(self, least: int | None = None) -> None:
        self.least = least

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Read the integer."""
        if not str(value).isascii():
            self.fail(f"{value!r} is not a valid integer.", param, ctx)
        found: int = super().convert(value, param, ctx)
        if self.least is not None and found < self.least:
            self.fail(f"{found} is not in the range x>={self.least}.", param, ctx)
        return found


class Number(click.types.FloatParamType):
    """A number in ASCII digits."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Read the number."""
        if not str(value).isascii():
            self.fail(f"{value!r} is not a valid float.", param, ctx)
        found: float = super().convert(value, param, ctx)
        return found


class Key(click.ParamType):
    """The type of a key of a registry, or of the user's own file, which is then registered. Shells complete both.

    Parameters
    ----------
    name : str
        Placeholder of the value in `--help`.
    known : callable
        Returns the key for what the user wrote.
    keys : callable
        Returns all keys.
    """

    def __init__(self, name: str, known: Callable[[str], str], keys: Callable[[], Sequence[str]]) -> None:
        self.name, self._known, self._keys = name, known, keys

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the key for what the user wrote."""
        return self._known(value)

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The keys that complete the last term of a sum or pattern, or files if no key does."""
        *terms, last = re.split(r"(?<=[+,])", incomplete)
        found = [CompletionItem("".join(terms) + key) for key in self._keys() if key.startswith(last)]
        return found or [CompletionItem(incomplete, type="file")]


INTEGER, NUMBER = Integer(), Number()
ENCODING = Key("encoding", lambda name: registry.canonical(registry.resolve(name)), registry.list_encodings)
TASK = Key("task", lambda name: TASKS.known(TASKS.resolve(name)), TASKS.names)


class Lengths(click.ParamType):
    """Test lengths, separated by commas: integers, or ranges such as 51-100, which stay text.

    >>> Lengths().convert("50, 51-100", None, None)
    (50, '51-100')
    """

    name = "L,L,..."

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int | str, ...]:
        """Read the lengths. The command checks them."""
        texts = [each.strip() for each in value.split(",")]
        return tuple(int(text) if text.isascii() and text.isdigit() and len(text) < 12 else text for text in texts)


def joined(found: Sequence[Sequence[int | str]]) -> tuple[int | str, ...]:
    """Return the lengths of an option that was given any number of times."""
    return tuple(length for lengths in found for length in lengths)


def earlier_names(**names: str) -> dict[str, Any]:
    """Return context settings of a command that still accepts earlier names of its options, which help does not list.

    >>> earlier_names(length="train-length")["token_normalize_func"]("length")
    'train-length'
    """
    return {"token_normalize_func": lambda name: names.get(name.replace("-", "_"), name)}


class Grouped(click.Command):
    """A command whose `--help` lists its options in groups.

    Parameters
    ----------
    groups : mapping
        The options of each group by its title, in the order in which `--help` lists them. The option `--help` itself
        is listed in the last group.
    *args, **more
        The same as for `click.Command`.
    """

    def __init__(self, *args: Any, groups: Mapping[str, Sequence[click.Option]], **more: Any) -> None:
        super().__init__(*args, **more)
        self.params += [option for options in groups.values() for option in options]
        self._groups = groups

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section for each group."""
        *_, last = self._groups
        for title, options in self._groups.items():
            shown = [*options, self.get_help_option(ctx)] if title == last else options
            records = (option.get_help_record(ctx) for option in shown if option is not None)
            with formatter.section(f"{title} options"):
                formatter.write_dl([record for record in records if record is not None])


def option(*flags: str, **more: Any) -> click.Option:
    """Make an option for a group of `Grouped`."""
    return click.Option(list(flags), **more)


_FLAGS = {"causal": "--causal/--bidirectional"}
_KINDS: Mapping[Any, click.ParamType] = {
    int: INTEGER, int | None: INTEGER, float: NUMBER, float | None: NUMBER,
}  # fmt: skip
_KEYS = {"encoding": ENCODING, "task": TASK}
_FIELDS = {field.name: field for field in fields(TrainConfig)}


def settings(group: str) -> Iterator[click.Option]:
    """The options of one group of `fastpe.training.settings.SETTINGS`."""
    return (setting(name) for name in SETTINGS[group])


def setting(name: str) -> click.Option:
    """The option that sets one field of `TrainConfig`, with its type and default."""
    (found,) = (group[name] for group in SETTINGS.values() if name in group)
    kind, default = _FIELDS[name].type, getattr(TrainConfig, name, None)
    if kind is bool and name not in _FLAGS:
        flag = f"--{'no-' if default else ''}{name}".replace("_", "-")
        return option(flag, name, is_flag=True, flag_value=not default, default=default, help=found.help)
    if kind is bool:
        return option(_FLAGS[name], name, default=None, help=found.help)
    if name == "test_lengths":
        return test_lengths(found.help)
    more = {"metavar": found.values} if isinstance(found.values, str) and found.values else {}
    flag = f"--{name}".replace("_", "-")
    return option(flag, name, type=_type(name, found), default=default, show_default=True, help=found.help, **more)


def _type(name: str, found: Setting) -> click.ParamType:
    if isinstance(found.values, tuple) and found.values:
        return click.Choice(found.values)
    return _KEYS.get(name) or _KINDS.get(_FIELDS[name].type, click.STRING)


def test_lengths(text: str) -> click.Option:
    """The option `--test-lengths`, whose values are read by `joined`."""
    return option("--test-lengths", "test_lengths", type=Lengths(), multiple=True, metavar="L,L,...", help=text)


def threads() -> click.Option:
    """The option `--threads`."""
    return option(
        "--threads", type=INTEGER, help="Number of threads; does not change the result.  [default: all cores]"
    )


def as_json() -> click.Option:
    """The option `--json`."""
    return option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
