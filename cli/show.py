"""``fastpe show``: show an encoding as text, as a figure, or as numbers."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from fastpe.training.config import TrainConfig

from .options import ENCODING, INTEGER
from .output import figure_kind, own_files, parse_options
from .terminal import next_step

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
@click.option("--run", type=click.Path(path_type=Path), metavar="RUN", help="Run whose trained encoding is shown.")
@click.option("--encoding", type=ENCODING, help="With --run: file that defines your own encoding, if the run uses one.")
@own_files("the run", "task")
@click.option(
    "--layer",
    type=INTEGER,
    help="With --run: the layer to show, if each layer has its own parameters.  [default: 0]",
)
@click.option(
    "--theory", is_flag=True, help="Show theoretical properties (fastpe.theory) instead of the encoding itself."
)
@click.option(
    "--length", type=INTEGER,
    help="Number of positions.  [default: 2 times the training length; 4 times with --theory]",
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
    help="File of a figure to draw: .svg, or .png or .pdf, which need matplotlib.",
)
@click.option("--json", "as_json", is_flag=True, help="Print all numbers as JSON on standard output.")
@click.pass_context
def show(
    context: click.Context, name: str | None, run: Path | None, encoding: str | None, layer: int | None,
    theory: bool, length: int | None, out: Path | None, as_json: bool, **request: Any,
) -> None:  # fmt: skip
    """Show an encoding, or what a run has learned.

    NAME is an encoding, a sum such as wavelet+alibi, or a file that defines your own, such as ./mine.py. By default,
    sizes are those of fastpe train. With --run in place of NAME, the trained encoding of a run folder or model file is
    shown, with the sizes and options of the run.

    What is shown depends on the kind of encoding. Tables are shown as maps, with dot products and cosines between
    positions. For rotations, wavelengths and decay are shown. Biases, gains and vectors for offsets are shown as
    functions of the offset. The training length is marked.

    With --theory, curves of theoretical properties are shown, which need no training. For a table, they are the
    distance of each row from the nearest trained row, the singular values, the mean dot product of two rows as a
    function of their distance, and how much information a row contains about its position when noise is added to it.
    For rotations, they are the number of turns within the training length, the angles that do not occur in it, and the
    score of equal query and key as a function of their distance. For biases, they are functions of the length: how far
    back attention reaches, how much the bias changes the attention weights, and how much these weights change in a
    longer text.
    """
    _check_choice(context, name, run, request)
    for flag, value in (("--layer", layer), ("--encoding", encoding)):
        if run is None and value is not None:
            raise click.UsageError(f"{flag} needs --run", context)
    if name is not None:
        request |= parse_options(name, request.pop("options"))
    kind = None if out is None else figure_kind(out)
    from fastpe.pictures.look import look, look_at_path

    from .progress import working

    if run is not None:
        with working(f"reading {run}"):
            found = look_at_path(run, length, layer=layer or 0, theory=theory)
        if encoding not in (None, found.name):
            raise click.UsageError(f"run {run} has the encoding {found.name!r}, not {encoding!r}", context)
    else:
        assert name is not None
        with working(name):
            found = look(name, length, theory=theory, **request)
    if out is not None and kind is not None:
        from fastpe.base import files
        from fastpe.pictures import figure

        with working(f"drawing {out}"):
            content = figure.draw(found, kind)
        files.write_file(out, content)
        click.echo(f"written: {out}", err=True)
    if as_json:
        click.echo(json.dumps(found.as_dict(), allow_nan=False))
    elif out is None:
        _print(found)
        what = f"--run {run}" if name is None else name
        more = {f"fastpe show {what} --out FILE.png": "a figure"}
        if not theory:
            more = {f"fastpe show {what} --theory": "what it can and cannot do"} | more
        next_step(more)


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
    # some terminals set COLORFGBG to FOREGROUND;BACKGROUND; the light colours have the numbers 7 and 15
    light = os.environ.get("COLORFGBG", "").rpartition(";")[2] in ("7", "15")
    return replace(text.COLOURS, light=light) if colours else text.SHADES
