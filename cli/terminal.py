"""Pages on a terminal: prose and Markdown at its width, tables whose text wraps, colours, and the line "next: ...".

Without a terminal, pages are plain text of 80 columns. If NO_COLOR is set, there are no colours.
"""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from fastpe.base.stored import printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

_PIPED = 80  # columns without a terminal
_NARROWEST = 40  # columns; a smaller terminal breaks lines itself
TITLE: Mapping[str, Any] = {"bold": True, "fg": "cyan"}
"""The style of headings."""
_CODE = re.compile(r"(``?)(.+?)\1", re.S)
_MARKUP = re.compile(r"[!-/:-@[-`{-~]")


def columns() -> int:
    """Return the number of columns of standard output."""
    terminal = sys.stdout is not None and sys.stdout.isatty()
    return max(_NARROWEST, shutil.get_terminal_size().columns) if terminal else _PIPED


def colours() -> bool | None:
    """Return whether click may use colours: not if NO_COLOR is set, otherwise None (only on a terminal)."""
    return False if os.environ.get("NO_COLOR") else None


class HelpFormatter(click.HelpFormatter):
    """The layout of `--help`: click's, with coloured headings, and on a terminal with code in bold."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        """Write the usage line."""
        super().write_usage(prog, args, prefix or click.style("Usage: ", **TITLE))

    def write_heading(self, heading: str) -> None:
        """Write the heading of a section."""
        self.write(f"{'':>{self.current_indent}}{click.style(f'{heading}:', **TITLE)}\n")

    def getvalue(self) -> str:
        """Return the page."""
        page = super().getvalue()
        return _CODE.sub(lambda code: click.style(code[2], bold=True), page) if sys.stdout.isatty() else page


def print_rich(page: "RenderableType", width: int | None = None) -> None:
    """Print what rich can draw on standard output, without spaces at the ends of lines."""
    from rich.console import Console
    from rich.theme import Theme

    styles = {
        "markdown.h1": "bold cyan", "markdown.h2": "bold cyan", "markdown.code": "cyan", "markdown.strong": "bold",
        "markdown.item.bullet": "none", "table.header": "bold cyan",
    }  # fmt: skip
    console = Console(width=width or columns(), highlight=False, markup=False, emoji=False, theme=Theme(styles))
    with console.capture() as capture:
        console.print(page)
    click.echo("\n".join(line.rstrip() for line in capture.get().splitlines()), color=console.is_terminal or None)


def print_markdown(text: str) -> None:
    """Print Markdown: headings, paragraphs, lists, **bold**, `code`, and formulas, which are indented by four spaces.

    A line that starts with ** after the end of a sentence starts a new paragraph.
    """
    from rich.markdown import CodeBlock, Heading, Markdown
    from rich.padding import Padding
    from rich.text import Text

    class Formula(CodeBlock):
        def __rich_console__(self, console: Any, options: Any) -> Any:
            yield Padding(Text(str(self.text).rstrip(), style="green"), (0, 0, 0, 4))

    class Title(Heading):
        def __rich_console__(self, console: Any, options: Any) -> Any:
            self.text.justify = "left"
            yield self.text

    class Page(Markdown):
        elements: ClassVar[dict[str, Any]] = {**Markdown.elements, "code_block": Formula, "heading_open": Title}

    text = "\n".join(f"\\{line}" if line.startswith(">") else line for line in map(printable, text.splitlines()))
    blocks = re.split(r"\n[ \t]*\n", re.sub(r"(?<=[.:])\n(?=\*\*)", "\n\n", text))
    if not sys.stdout.isatty():  # without colours, code keeps its backquotes
        blocks = [block if block.startswith("    ") else _CODE.sub(_quoted, block) for block in blocks]
    print_rich(Page("\n\n".join(blocks), hyperlinks=False))


def _quoted(code: re.Match[str]) -> str:
    """Return Markdown of a piece of code that is shown with its backquotes."""
    return "\\`" + _MARKUP.sub(r"\\\g<0>", code[2]) + "\\`"


def table(*head: str, right: Sequence[int] = ()) -> "Table":
    """Return a table without lines, to which rows can be added. The columns with the numbers `right` are aligned right.

    The last column wraps; the others wrap only if the terminal is too narrow for them.
    """
    from rich.table import Table

    made = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, name in enumerate(head):
        made.add_column(name, justify="right" if number in right else "left", overflow="fold")
    return made


def print_options(flag: str, options: Mapping[str, Any]) -> None:
    """Print the options of an encoding or a task as a table."""
    print_markdown(f"## Options ({flag} NAME=VALUE)")
    made = table("name", "default", "values", "meaning")
    for key, option in options.items():
        made.add_row(key, str(option.default), option.expected(), option.doc)
    print_rich(made)


def print_settings(title: str, settings: Mapping[str, Any]) -> None:
    """Print settings on standard error: as a table on a terminal, otherwise on one line."""
    shown = {name: ",".join(map(str, value)) if isinstance(value, tuple) else value for name, value in settings.items()}
    cells = [printable(f"{name}={value}") for name, value in shown.items()]
    if sys.stderr is None or not sys.stderr.isatty():
        click.echo(f"{title}: {', '.join(cells)}", err=True)
        return
    click.echo(f"{click.style(title, **TITLE)}, where it differs from the defaults:", err=True, color=colours())
    width = max(map(len, cells), default=0) + 2
    across = max(1, (max(_NARROWEST, shutil.get_terminal_size().columns) - 2) // width)
    down = -(-len(cells) // across)
    for row in range(down):
        click.echo("  " + "".join(cell.ljust(width) for cell in cells[row::down]).rstrip(), err=True)


def next_step(commands: Mapping[str, str]) -> None:
    """Print commands that usually follow, with what they do, on standard error if this is a terminal."""
    if sys.stderr is None or not sys.stderr.isatty():
        return
    width = max(map(len, commands))
    for number, (command, what) in enumerate(commands.items()):
        head = click.style("next: ", **TITLE) if number == 0 else " " * len("next: ")
        click.echo(f"{head}{printable(command):{width}}  {click.style(what, dim=True)}", err=True, color=colours())


def opening(page: Path) -> str:
    """Return the command that opens a file with its usual program."""
    command = {"darwin": "open", "win32": "start"}.get(sys.platform, "xdg-open")
    return shlex.join([command, str(page)])
