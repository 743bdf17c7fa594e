"""Functions that all commands share: errors with one line and an exit status, parsing of options, printed results."""

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from fastpe.base.stored import cut, printable
from fastpe.doctor.machine import usable_cores

from .options import ENCODING, TASK
from .tables import aligned
from .terminal import HelpFormatter, colours

if TYPE_CHECKING:
    from fastpe.model.transformer import Transformer
    from fastpe.text.vocabulary import Vocabulary
    from fastpe.training.config import TrainConfig

click.Context.formatter_class = HelpFormatter  # for all commands

Command = TypeVar("Command", bound=Callable[..., Any])

FAILED, USAGE, INTERRUPTED = 1, 2, 130


class Commands(click.Group):
    """A group that lists its commands under titles, and reports failures without a traceback.

    Each failure is one line on standard error and an exit status.

    Parameters
    ----------
    groups : mapping, optional
        The commands of each group by its title, in the order in which `--help` lists them.
    *args, **more
        The same as for `click.Group`.
    """

    def __init__(self, *args: Any, groups: Mapping[str, Sequence[click.Command]] | None = None, **more: Any) -> None:
        super().__init__(*args, **more)
        self._groups = groups or {}
        for command in (command for commands in self._groups.values() for command in commands):
            self.add_command(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one section for each group, with the summaries in full."""
        width = max(map(len, self.commands), default=0)
        for title, commands in self._groups.items():
            with formatter.section(title):
                rows = [(f"{command.name:{width}}", command.get_short_help_str(1000)) for command in commands]
                formatter.write_dl(rows)

    def main(  # type: ignore[override]  # click's overloads tell apart only whether it returns
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command, and end the process unless `standalone_mode` is false."""
        extra.setdefault("color", colours())
        if not standalone_mode:
            return super().main(args, prog_name, standalone_mode=False, **extra)
        try:
            status = super().main(args, prog_name, standalone_mode=False, **extra)
        except click.exceptions.NoArgsIsHelpError as error:  # a group without a command prints its help
            error.show()
            status = USAGE
        except click.Abort:
            click.echo("fastpe: interrupted", err=True)
            status = INTERRUPTED
        except Exception as error:  # one line for any error
            if os.environ.get("FASTPE_DEBUG"):
                raise
            message, status = explain(error)
            click.echo(f"fastpe: error: {message}", err=True)
        sys.exit(status if isinstance(status, int) else 0)

    def invoke(self, context: click.Context) -> Any:
        """Run the command; errors name options instead of the library's arguments."""
        try:
            return super().invoke(context)
        except ValueError as error:
            command = self.get_command(context, context.invoked_subcommand or "")
            error.args = (in_flags(str(error), command),)
            raise


def in_flags(message: str, command: click.Command | None) -> str:
    """Return a message of the library with the names of options in place of arguments.

    >>> command = click.Command("show", params=[click.Option(["--train-length"]), click.Option(["--causal/--both"])])
    >>> in_flags("train_length must be at least 1, not 0", command), in_flags("needs causal=True", command)
    ('--train-length must be at least 1, not 0', 'needs --causal')
    """
    options = {} if command is None else {each.name: each for each in command.params if isinstance(each, click.Option)}
    if "width" in options:  # encodings call the width of a model dim
        options.setdefault("dim", options["width"])

    def named(word: re.Match[str]) -> str:
        return options[word[0]].opts[-1] if word[0] in options else word[0]

    def switched(setting: re.Match[str]) -> str:
        option = options.get(setting[1])
        if option is None or not option.secondary_opts:
            return setting[0]
        return (option.opts if setting[2] == "True" else option.secondary_opts)[-1]

    if subject := re.match(r"\w+( / \w+)*(?=( '\w+')? (must|cannot|needs) )", message):
        message = re.sub(r"\w+", named, subject[0]) + message[subject.end() :]
    if "tokens" in options:  # an option of the task of texts
        message = re.sub(r"(?<![-\w])option 'tokens'(?= of task )", "--tokens", message)
        message = re.sub(r"(?<![-\w])tokens '([\w:]+)'", r"--tokens \1", message)
    if "task_options" in options:
        message = re.sub(r"(?<![-\w])option '(\w+)'(?= of task )", r"--task-option \1", message)
    if "options" in options:
        message = re.sub(r"(?<![-\w])option (?:'([\w.]+)'|(?=[\w.]+=))", r"--option \1", message)
    return re.sub(r"\b(\w+)=(True|False)\b", switched, message)


def explain(error: Exception) -> tuple[str, int]:
    """Return one line for an error and the exit status: 2 for a wrong request, 1 for a failure while running it."""
    match error:
        case click.UsageError(ctx=context):
            hint = f" (see '{context.command_path} --help')" if context is not None else ""
            return _line(error.format_message()) + hint, USAGE
        case click.ClickException():
            return _line(error.format_message()), error.exit_code
        case ValueError():
            return _line(str(error)), USAGE
        case FileNotFoundError() | NotADirectoryError():
            return _system(error), USAGE
        case OSError():
            return _system(error), FAILED
        case MemoryError():
            return f"not enough memory: {_line(str(error)) or 'the sizes are too large'}", FAILED
        case ArithmeticError():
            return _line(str(error)), FAILED
        case ModuleNotFoundError() if "pip install" in str(error):
            return _line(str(error)), USAGE
    internal = f"internal: {type(error).__name__}: {_line(str(error))}"
    return f"{internal} (FASTPE_DEBUG=1 shows where)", FAILED


def _line(text: str) -> str:
    return cut(printable(" ".join(text.split())), 2000)  # names from files may have any length


def _system(error: OSError) -> str:
    if error.strerror is None:
        return _line(str(error))
    return _line(f"{error.filename}: {error.strerror}" if error.filename is not None else error.strerror)


def use_threads(threads: int | None) -> None:
    """Allow Numba to start this many threads; Numba reads the limit once, when it is imported."""
    if threads is not None and "numba" not in sys.modules:
        os.environ["NUMBA_NUM_THREADS"] = str(max(usable_cores(), threads))


def check_place(what: str, path: Path) -> None:
    """Raise, before any work, if a file to be written is a folder, a pipe or a device."""
    from fastpe.base import files

    try:
        files.check_place(path)
    except OSError as error:
        raise click.UsageError(f"{what}: {path} cannot be written: {error.strerror}") from error


def check_folder(what: str, path: Path) -> None:
    """Raise if the folder of a file does not exist, or as `check_place` does."""
    if not path.parent.is_dir():
        raise click.UsageError(f"{what}: folder {path.parent} does not exist")
    check_place(what, path)


def figure_kind(out: Path) -> str:
    """Return the format that a figure's file name asks for; raise, before any work, if it cannot be written."""
    from fastpe.pictures import canvas

    kind = out.suffix.lower().removeprefix(".")
    if kind not in canvas.KINDS:
        endings = ", ".join(f".{each}" for each in canvas.KINDS)
        raise click.UsageError(f"--out must end in one of {endings}, not {str(out)!r}")
    check_folder("--out", out)
    if kind != "svg" and not canvas.available():
        raise click.UsageError(canvas.MISSING)
    return kind


def own_files(what: str, *words: str) -> Callable[[Command], Command]:
    """Add options that register the user's own files.

    Files that fastpe writes contain only the keys of encodings and tasks, so commands that read them need the Python
    files again.

    Parameters
    ----------
    what : str
        Which files contain these keys, for `--help`.
    *words : str
        "encoding", "task" or both.
    """
    types = {"encoding": ENCODING, "task": TASK}

    def add(command: Command) -> Command:
        for word in reversed(words):
            command = click.option(
                f"--{word}", f"_own_{word}s", multiple=True, metavar="FILE", type=types[word], expose_value=False,
                help=f"File that defines your own {word}, if {what} uses one; may be repeated.",
            )(command)  # fmt: skip
        return command

    return add


@dataclass(frozen=True)
class Source:
    """The path of a model: a run folder or model file, or with `hf` a folder of Hugging Face's transformers.

    If `fastpe.load_hf` does not read the folder, and `in_torch` is true, the model runs in PyTorch.
    """

    path: Path
    hf: bool = False
    in_torch: bool = False

    def __str__(self) -> str:
        return str(self.path)

    @cached_property
    def model(self) -> "Transformer":
        """The model, which is loaded once."""
        if self.hf and self.in_torch:
            from fastpe.huggingface.in_torch import load_any

            model = load_any(self.path)
            if encoding_of(model) is None:
                click.echo(printable(f"{self}: fastpe.load_hf does not read this model; it runs in PyTorch"), err=True)
            return model
        if self.hf:
            from fastpe.huggingface.loading import load_hf

            return load_hf(self.path)
        from fastpe.training import run_folder

        return run_folder.load(self.path)

    @property
    def vocabulary(self) -> "Vocabulary":
        """The vocabulary of a model of a text. Raises UsageError if the model is none."""
        if self.model.vocabulary is not None:
            return self.model.vocabulary
        if self.hf:
            raise click.UsageError(
                f"{self} has no tokenizer.json, which the text needs: put that of the model into the folder"
            )
        raise click.UsageError(f"{self} contains no model of a text: train one with --task text --data FILE")

    def stored_text(self) -> "TrainConfig | None":
        """Read the settings of a run; None if it is no run, or its task is not text."""
        from fastpe.training.config_file import read_config

        config = read_config(self.path) if self.path.is_dir() and not self.hf else None
        return config if config is not None and config.symbols is not None else None


def with_bands(model: "Transformer", scheme: str = "none") -> "Transformer":
    """Return the model, or a copy of it that uses a scheme of `fastpe.bands`."""
    from fastpe.huggingface.in_torch import InTorch
    from fastpe.model.banded import Banded

    if scheme == "none":
        return model
    return model.with_bands(scheme) if isinstance(model, InTorch) else Banded(model, scheme)


def encoding_of(model: "Transformer") -> str | None:
    """Return the encoding of a model; None if it runs in PyTorch, where its architecture determines it."""
    return None if hasattr(model, "architecture") else model.config.encoding


def parse_options(encoding: str, texts: Sequence[str]) -> dict[str, Any]:
    """Read `--option NAME=VALUE`, given any number of times."""
    from fastpe.encodings.registry import parse_option

    return {key: parse_option(encoding, key, value) for key, value in _pairs("--option", texts)}


def parse_task_options(task: str, texts: Sequence[str]) -> dict[str, Any]:
    """Read `--task-option NAME=VALUE`, given any number of times."""
    from fastpe.tasks.registry import parse_option

    return {key: parse_option(task, key, value) for key, value in _pairs("--task-option", texts)}


def _pairs(flag: str, texts: Sequence[str]) -> Iterator[tuple[str, str]]:
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError(f"{flag} must be NAME=VALUE, not {text!r}")
        yield key.strip(), value


def print_json(value: Any) -> None:
    """Print a value as JSON on standard output."""
    click.echo(json.dumps(value, indent=2, allow_nan=False))


def print_table(head: Sequence[str], rows: Sequence[Sequence[str]], right: bool = False) -> None:
    """Print aligned columns on standard output."""
    for line in aligned(head, rows, right):
        click.echo(line)


def print_tests(test: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the metrics at each length, and the reasons for missing ones."""
    counted = ("sequences", "tokens")
    keys = [key for key in next(iter(test.values()), {}) if key not in (*counted, "reason", "note", "places")]
    rows = [
        [length, *(_figure(metrics[key]) for key in keys), *(f"{metrics[key]}" for key in counted if key in metrics)]
        for length, metrics in test.items()
    ]
    if rows:
        what = "tokens" if "tokens" in next(iter(test.values())) else "sequences"
        names = [key.removeprefix("mse_").replace("bits_per_byte", "bits/byte") for key in keys]
        print_table(("length", *names, what), rows, right=True)
    for length, metrics in test.items():
        if "reason" in metrics:
            click.echo(f"length {length}: {metrics['reason']}")
    if any("places" in metrics for metrics in test.values()):
        click.echo("\nshare of right tokens by the place that they are about, in fifths of the places")
        shares = [
            [length, *map(_figure, _fifths(**each["places"]))] for length, each in test.items() if "places" in each
        ]
        print_table(("length", "first", "second", "third", "fourth", "last"), shares, right=True)


def _fifths(right: Sequence[int], asked: Sequence[int]) -> list[float | None]:
    """Return the share of right tokens in each fifth of the places."""
    ends = [round(len(asked) * part / 5) for part in range(6)]
    sums = [(sum(right[first:last]), sum(asked[first:last])) for first, last in pairwise(ends)]
    return [some / every if every else None for some, every in sums]


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
