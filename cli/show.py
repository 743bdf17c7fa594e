"""``fastpe show``: what an encoding looks like, as text, as a figure, or as numbers."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from fastpe.training.config import TrainConfig

from .output import encoding_name, figure_kind, own_files, parse_options

if TYPE_CHECKING:
    from fastpe.pictures.look import Look
    from fastpe.pictures.text import Glyphs


_SIZES = {
    "dim": "Width of the model.", "heads": "Attention heads.", "train_length": "Length that the encoding is made for.",
    "seed": "Seed of initial values, where any are learned.",
}  # fmt: skip
_IN_TRAINING = {"dim": "width"}  # names of sizes in `TrainConfig`, where they are others


def _sizes(command: Callable[..., None]) -> Callable[..., None]:
    """The options that are sizes, with the defaults of `fastpe train`."""
    for name, text in reversed(_SIZES.items()):
        default = getattr(TrainConfig, _IN_TRAINING.get(name, name))
        flag = f"--{name.replace('_', '-')}"
        command = click.option(flag, name, type=int, default=default, show_default=True, help=text)(command)
    return command


@click.command()
@click.argument("name", required=False, callback=encoding_name)
@click.option("--run", type=click.Path(path_type=Path), metavar="RUN", help="Show what this run has learned.")
@click.option(
    "--encoding",
    callback=encoding_name,
    help="With --run: its encoding, where that is a file: ./mine.py.",
)
@own_files("the run", "task")
@click.option("--layer", type=int, help="Layer of the run, where layers have parameters of their own.  [default: 0]")
@click.option("--theory", is_flag=True, help="Draw what fastpe.theory computes of it over position, length or noise.")
@click.option("--length", type=int, help="Positions.  [default: 2 times the training length, with --theory 4 times]")
@_sizes
@click.option("--causal/--bidirectional", default=None, help="The model's mask.  [default: causal where it has to be]")
@click.option("--option", "options", multiple=True, metavar="K=V", help="Option of the encoding; may be repeated.")
@click.option(
    "--out", type=click.Path(path_type=Path), metavar="FILE", help="Draw it: a .png, .svg or .pdf (needs matplotlib)."
)
@click.option("--json", "as_json", is_flag=True, help="Print every number as JSON on standard output.")
@click.pass_context
def show(
    context: click.Context, name: str | None, run: Path | None, encoding: str | None, layer: int | None,
    theory: bool, length: int | None, out: Path | None, as_json: bool, **request: Any,
) -> None:  # fmt: skip
    """Show what the encoding NAME looks like, or with --run what a run has learned.

    NAME may be a sum such as wavelet+alibi, or your own file, ./mine.py; sizes are those of fastpe train where they are
    not given. A run (or a file that holds a model) has its own sizes and options. What is shown follows from the slots
    that are filled: tables as maps, with dot products and cosines between positions; rotations with wavelengths and
    decay; biases and gains over the offset; vectors over offsets. The training length is marked.

    With --theory it is what can be computed without training: of a table the drift of rows from trained ones, the
    spectrum, the kernel by lag and the information about the position over noise; of rotations turns, unseen angles and
    similarity; of biases the reach, the effect, and what a longer text moves, over the length.
    """
    _check_choice(context, name, run, request)
    for flag, value in (("--layer", layer), ("--encoding", encoding)):
        if run is None and value is not None:
            raise click.UsageError(f"{flag} is that of a --run", context)
    if name is not None:
        request |= parse_options(name, request.pop("options"))
    kind = None if out is None else figure_kind(out)
    from fastpe.pictures.look import look, look_at_path

    if run is not None:
        found = look_at_path(run, length, layer=layer or 0, theory=theory)
        if encoding not in (None, found.name):
            raise click.UsageError(f"run {run} has the encoding {found.name!r}, not {encoding!r}", context)
    else:
        assert name is not None
        found = look(name, length, theory=theory, **request)
    if out is not None and kind is not None:
        from fastpe.base import files
        from fastpe.pictures import figure

        files.write_file(out, figure.draw(found, kind))
        click.echo(f"written: {out}", err=True)
    if as_json:
        click.echo(json.dumps(found.as_dict(), allow_nan=False))
    elif out is None:
        _print(found)


def _check_choice(context: click.Context, name: str | None, run: Path | None, request: dict[str, Any]) -> None:
    """Either a name, with sizes and options, or a run, which has its own."""
    if run is None:
        if name is None:
            raise click.UsageError("NAME is missing, or --run RUN", context)
        return
    commanded = (each for each in request if context.get_parameter_source(each) is ParameterSource.COMMANDLINE)
    flags = {each.name: each.opts[0] for each in context.command.params}
    given = ["NAME"] * (name is not None) + [flags[each] for each in commanded]
    if given:
        raise click.UsageError(f"--run has its own encoding, sizes and options: give it or {given[0]}", context)


def _print(found: "Look") -> None:
    from rich.console import Console

    from fastpe.pictures import text

    terminal, width = sys.stdout.isatty(), max(40, shutil.get_terminal_size().columns)
    console = Console(width=width, highlight=False, markup=False, emoji=False)
    glyphs = _glyphs(terminal, sys.stdout.encoding, console.color_system is not None and not console.no_color)
    for line in text.render(found, width, glyphs):
        if terminal:
            console.print(line, soft_wrap=True)
        else:
            click.echo(line.plain)


def _glyphs(terminal: bool, coding: str | None, colours: bool) -> "Glyphs":
    """Characters that get through: plain ASCII in files and pipes, and where the terminal knows no others."""
    from fastpe.pictures import text

    if not terminal or not (coding or "").lower().startswith("utf"):
        return text.ASCII
    return text.COLOURS if colours else text.SHADES
