"""``fastpe show``: show an encoding as text, as a figure, or as numbers."""

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from fastpe.training.config import TrainConfig

from .options import ENCODING, INTEGER
from .output import figure_kind, own_files, parse_options

if TYPE_CHECKING:
    from fastpe.pictures.look import Look
    from fastpe.pictures.text import Glyphs


_SIZES = {
    "dim": "Width of the model.", "heads": "Number of attention heads.", "train_length": "Training length.",
    "seed": "Seed of the initial values of learned parameters.",
}  # fmt: skip
_IN_TRAINING = {"dim": "width"}  # sizes with another name in `TrainConfig`


def _sizes(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options that are sizes, with the defaults of `fastpe train`."""
    for name, text in reversed(_SIZES.items()):
        default = getattr(TrainConfig, _IN_TRAINING.get(name, name))
        flag = f"--{name.replace('_', '-')}"
        command = click.option(flag, name, type=INTEGER, default=default, show_default=True, help=text)(command)
    return command


@click.command()
@click.argument("name", required=False, type=ENCODING)
@click.option("--run", type=click.Path(path_type=Path), metavar="RUN", help="Show the trained encoding of this run.")
@click.option(
    "--encoding", type=ENCODING, help="With --run: the encoding's file, if it is your own, such as ./mine.py."
)
@own_files("the run", "task")
@click.option(
    "--layer", type=INTEGER, help="With --run: layer to show, if layers have separate parameters.  [default: 0]"
)
@click.option(
    "--theory", is_flag=True, help="Show theoretical properties over position, length or noise (fastpe.theory)."
)
@click.option(
    "--length", type=INTEGER,
    help="Number of positions.  [default: 2 times the training length, with --theory 4 times]",
)  # fmt: skip
@_sizes
@click.option(
    "--causal/--bidirectional", default=None, help="Attention mask.  [default: causal where the encoding needs it]"
)
@click.option("--option", "options", multiple=True, metavar="K=V", help="Option of the encoding; may be repeated.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Draw a figure: a .png, .svg or .pdf (needs matplotlib).",
)
@click.option("--json", "as_json", is_flag=True, help="Print all numbers as JSON on standard output.")
@click.pass_context
def show(
    context: click.Context, name: str | None, run: Path | None, encoding: str | None, layer: int | None,
    theory: bool, length: int | None, out: Path | None, as_json: bool, **request: Any,
) -> None:  # fmt: skip
    """Show an encoding, or what a run has learned.

    NAME is an encoding; --run shows the trained encoding of a run instead. NAME may be a sum such as wavelet+alibi, or
    your own file such as ./mine.py. The default sizes are those of fastpe train. A run or a model file determines sizes
    and options itself. The output depends on the slots of the encoding: tables as maps, with dot products and cosines
    between positions; rotations with wavelengths and decay; biases and gains over the offset; vectors over offsets. The
    training length is marked.

    --theory shows what can be computed without training. For a table: the distance of rows from the trained rows, the
    spectrum, the kernel by lag, and the information about the position over noise. For rotations: turns, unseen angles
    and similarity. For biases: the reach, the effect, and the change by a longer text, over the length.
    """
    _check_choice(context, name, run, request)
    for flag, value in (("--layer", layer), ("--encoding", encoding)):
        if run is None and value is not None:
            raise click.UsageError(f"{flag} needs --run", context)
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
    """Raise unless there is either NAME, with sizes and options, or --run, which determines them."""
    if run is None:
        if name is None:
            raise click.UsageError("NAME is missing, or --run RUN", context)
        return
    commanded = (each for each in request if context.get_parameter_source(each) is ParameterSource.COMMANDLINE)
    flags = {each.name: each.opts[0] for each in context.command.params}
    given = ["NAME"] * (name is not None) + [flags[each] for each in commanded]
    if given:
        raise click.UsageError(
            f"--run determines encoding, sizes and options: give either --run or {given[0]}", context
        )


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
    """Choose the characters: plain ASCII for files, pipes and terminals without UTF-8."""
    from fastpe.pictures import text

    if not terminal or not (coding or "").lower().startswith("utf"):
        return text.ASCII
    return text.COLOURS if colours else text.SHADES
