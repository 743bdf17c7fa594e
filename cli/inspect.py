"""``fastpe inspect``: what the heads of a trained model attend to, and how the model depends on its positions."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .options import ENCODING, INTEGER, TASK, Grouped, as_json, joined, option, test_lengths, threads
from .output import Source, check_folder, parse_task_options, print_json, print_table, use_threads
from .terminal import TITLE, next_step, opening

if TYPE_CHECKING:
    from fastpe.training.inspection import Curve, Inspection

_MOST = 32  # heads in the table

_OPTIONS = {
    "Sequence": [
        option("--data", type=click.Path(path_type=Path), help="Text to read and to test on."),
        option("--task", type=TASK, help="Task to read and to test on, or file that defines your own."),
        option("--task-option", "task_options", multiple=True, metavar="K=V", help="Option of --task."),
        option("--length", type=INTEGER, help="Positions of the sequences that are read.  [default: those of training, "
               "at most 512]"),
        option("--samples", type=INTEGER, default=16, show_default=True, help="Number of these sequences."),
        option("--seed", type=INTEGER, default=0, show_default=True, help="Seed of random tokens, heads and pairs."),
    ],
    "Change": [
        option(
            "--change", "changes", multiple=True, metavar="CHANGE",
            help="Change to test: drop, swap:ENCODING, shift:POSITIONS, near:DISTANCE, head:LAYER.HEAD, pair:P, "
            "slower:WAVELENGTH or faster:WAVELENGTH; may be repeated. head:0.1=zero replaces the output of a head by 0 "
            "instead of its mean; pair:3=still does not rotate a pair, pair:3=0.5 halves its frequency. 'none' tests "
            "nothing.  [default: some that suit the model]",
        ),
        option("--greedy", type=INTEGER, default=0, metavar="N",
               help="Leave out N heads, one after the other: each time the one whose loss matters least."),
        test_lengths("Test lengths.  [default: those of the run; for a text 1, 2 and 4 times the training length]"),
        option("--test-sequences", type=INTEGER, default=128, show_default=True,
               help="Number of test sequences for each length."),
        threads(),
    ],
    "File": [option("--encoding", type=ENCODING, expose_value=False,
                    help="File that defines your own encoding, if the model uses one.")],
    "Output": [
        option("--out", type=click.Path(path_type=Path), metavar="FILE", help="HTML page to write, with figures."),
        as_json(),
    ],
}  # fmt: skip


@click.command(cls=Grouped, groups=_OPTIONS)
@click.argument("path", metavar="MODEL", type=click.Path(path_type=Path))
def inspect(
    path: Path, data: Path | None, task: str | None, task_options: tuple[str, ...], changes: tuple[str, ...],
    test_lengths: tuple[tuple[int | str, ...], ...], test_sequences: int, out: Path | None, as_json: bool,
    threads: int | None, **more: Any,
) -> None:  # fmt: skip
    """Measure what heads attend to, and test a model with changes.

    MODEL is a run folder, a model file, or a folder in the format of Hugging Face's transformers, of a causal model.
    The command prints scores of heads, the use of rotary frequencies, and test results of the model with changes of
    its positions and heads. A run is read and tested on its task or text; for other models, give --data or --task.

    \b
    Examples:
      fastpe inspect runs/rope-0 --out page.html
      fastpe inspect runs/rope-0 --change drop --change slower:50=still
      fastpe inspect model.safetensors --task induction --json
    """
    if out is not None:
        if out.suffix.lower() != ".html":
            raise click.UsageError(f"--out must end in .html, not {str(out)!r}")
        check_folder("--out", out)
    if "none" in changes and len(changes) > 1:
        raise click.UsageError("--change none cannot be combined with other changes")
    if task is None and task_options:
        raise click.UsageError("--task-option needs --task")
    use_threads(threads)
    from fastpe.training import inspection

    from .progress import working

    model: Any = path
    given: dict[str, Any] = {"task": task, "changes": () if changes == ("none",) else changes or None}
    if task is not None:
        given["task_options"] = parse_task_options(task, task_options)
    if data is not None:
        from . import curves

        (text,) = curves.on_texts([Source(path, hf=inspection.is_checkpoint(path))], data)
        model, given["tokens"] = text.model, text.tokens
    lengths = joined(test_lengths)
    with working(f"inspecting {path}"):
        found = inspection.inspect(
            model, **given, lengths=lengths or None, sequences=test_sequences, threads=threads, **more
        )
    if out is not None:
        from fastpe.base import files
        from fastpe.experiments import inspection_page

        files.write_file(out, inspection_page.page(found, path.name).encode())
        click.echo(f"written: {out}", err=True)
    if as_json:
        print_json({"schema": 1, "model": str(path), **found.to_dict()})
        return
    _print(found)
    if out is None:
        next_step({f"fastpe inspect {shlex.quote(str(path))} --out page.html": "the same with figures"})
    else:
        next_step({opening(out): "read the page"})


def _print(found: "Inspection") -> None:
    click.secho("Heads", **TITLE)
    rows = list(_heads(found))
    print_table(rows[0], rows[1:], right=True)
    copies = "previous, sink, distance, entropy: on the model's own sequences." if found.own and found.repeated else ""
    if found.repeated:
        copies = f"duplicate, induction: on random tokens that are repeated, in the second copy. {copies}"
    own = "On the model's own sequences." if found.own else "On random numbers."
    click.secho(copies.strip() or own, dim=True)
    if found.position.size > _MOST:
        click.secho(f"The {_MOST} of {found.position.size} heads with the largest scores; --json has all.", dim=True)
    click.secho("output: mean norm of what the head adds to the residual stream.", dim=True)
    click.secho("position: share of the variance of scores that the distance explains.", dim=True)
    sinks = f"{100 * found.sink_rate:.0f} % of sequences and heads"
    click.secho(f"The mean weight of the first key is above 0.3 in {sinks}.", dim=True)
    if found.frequency_share is not None:
        click.secho("wavelength: of the pair with the largest share of the variance of scores.", dim=True)
    if found.curves:
        click.echo()
        lengths = [*found.curves[0].test]
        for metric in dict.fromkeys((found.metric, "loss" if found.metric == "exact" else found.metric)):
            what = "share of exact answers" if metric == "exact" else metric
            click.secho(f"Changes: {what} by length, and the difference from the model as it is", **TITLE)
            table = [[_named(each), *_cells(each, found, metric, lengths)] for each in found.curves]
            print_table(("change", *lengths), table)
    for note in found.notes:
        click.secho(note, dim=True)


def _heads(found: "Inspection") -> Iterator[tuple[str, ...]]:
    """Return the head of the table, and a row for each head; if there are many, for those with the largest scores."""
    import numpy as np

    names = list(found.scores)
    turning = found.frequency_share is not None and found.wavelengths is not None
    yield ("head", *names, "output", "position", *(["wavelength"] if turning else []))
    places = [*np.ndindex(found.position.shape)]
    if len(places) > _MOST:
        largest = np.nanmax([np.nan_to_num(found.scores[name]) for name in ("previous", "duplicate", "induction")], 0)
        places = sorted(places, key=lambda place: -largest[place])[:_MOST]
    for layer, head in places:
        values = [found.scores[name][layer, head] for name in names]
        values += [found.output[layer, head], found.position[layer, head]]
        row = (f"{layer}.{head}", *("-" if np.isnan(each) else f"{each:.3f}" for each in values))
        if turning:
            assert found.frequency_share is not None
            assert found.wavelengths is not None
            shares = found.frequency_share[layer, head]
            known = not np.isnan(shares).all()
            row += (f"{found.wavelengths[np.nanargmax(shares)]:.1f}" if known else "-",)
        yield row
    equal = ["-" if np.isnan(found.equal[name]) else f"{found.equal[name]:.3f}" for name in names]
    yield "equal weights", *equal, *["-"] * (2 + turning)


def _named(curve: "Curve") -> str:
    if curve.control == "greedy":
        return f"{curve.change}  (greedy)"
    return f"  control: {curve.change}" if curve.control else curve.change or "as it is"


def _cells(curve: "Curve", found: "Inspection", metric: str, lengths: list[str]) -> Iterator[str]:
    own, intact = curve.values(metric), found.curves[0].values(metric)
    for length in lengths:
        value, other = own[length], intact[length]
        if value is None:
            yield "-"
        elif curve.change and other is not None:
            yield f"{value:.4g} ({value - other:+.3g})"
        else:
            yield f"{value:.4g}"
