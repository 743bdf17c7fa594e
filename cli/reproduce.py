"""``fastpe reproduce``: a table of a paper run again, every run and every seed, and judged."""

import re
import sys
from pathlib import Path
from typing import Any

import click

from fastpe.doctor.machine import usable_cores

from .output import INTERRUPTED, check_place

_TEXTS = ("table5.md", "table5.json", "table5.csv", "table5-differences.csv")
_PLOTS = ("table5.png", "table5.pdf")


@click.group()
def reproduce() -> None:
    """Run an experiment of a paper again and judge its claims."""


@reproduce.command()
@click.option("--seeds", type=click.IntRange(min=1), help="Seeds, from 0.  [default: 5; 3 with --quick]")
@click.option("--workers", type=click.IntRange(min=1), help="Processes of one thread each.  [default: usable cores]")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder.  [default: reproduce/table5; reproduce/table5-quick with --quick]",
)
@click.option("--quick", is_flag=True, help="A small version, under a minute: shows how it goes, proves nothing.")
@click.option(
    "--vary", multiple=True, metavar="K=V,V",
    help="Repeat everything with these values of a setting that the paper leaves open; may be repeated, and then every "
    "combination is run. 'encoding.option' varies an option of one encoding.",
)  # fmt: skip
@click.option("--plot/--no-plot", default=None, help="Draw table5.png and .pdf.  [default: if matplotlib is installed]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def table5(
    seeds: int | None,
    workers: int | None,
    out: Path | None,
    quick: bool,
    vary: tuple[str, ...],
    plot: bool | None,
    as_json: bool,
) -> None:
    """Table 5 of Li (2025): sinusoidal, ALiBi, wavelet and Legendre on running sums.

    Every encoding, with nope and learned beside the paper's four, is trained at length 50 and tested at 50, 100 and
    200, bidirectional and causal. Prints errors with intervals beside the paper's, reference points, paired
    differences, and a verdict on each of the paper's claims with its reason; leaves table5.md, .json, .csv, a plot and
    all run folders in --out. Interrupted, the same command goes on; what is finished is not run again.
    """
    from fastpe.experiments import plot as figure
    from fastpe.experiments import report
    from fastpe.experiments import table5 as experiment

    from .progress import SweepReporter

    if plot and not figure.available():
        raise click.UsageError(figure.MISSING)
    requests = list(vary)
    experiment.variants(requests)  # refuses what is wrong before anything is written
    if seeds is None:
        seeds = experiment.QUICK_SEEDS if quick else 5
    out = out or Path("reproduce", "table5-quick" if quick else "table5")
    lock = _take(out)
    try:
        with SweepReporter() as reporter:
            if quick:
                reporter.line(report.LOUD)
            found = experiment.reproduce(out, seeds, workers or usable_cores(), quick, requests, reporter)
    except KeyboardInterrupt:
        click.echo("fastpe: interrupted; the same command goes on from here", err=True)
        sys.exit(INTERRUPTED)
    names = _write(out, found, draw=figure.available() if plot is None else plot)
    lock.close()
    click.echo(report.as_json(found) if as_json else report.text(found), nl=False)
    if plot is None and not figure.available():
        click.echo(f"no plot: {figure.MISSING}", err=True)
    click.echo(f"\nwritten in {out}: {', '.join(names)}", err=True)


def _take(out: Path) -> Any:
    """Make the folder and hold it."""
    from fastpe.base import files
    from fastpe.training import config_file

    config_file.check_folder(out)
    out.mkdir(parents=True, exist_ok=True)
    lock = files.lock_folder(out)
    if lock is None:
        raise click.UsageError(f"another process is working in {out}")
    for name in (*_TEXTS, *_PLOTS):
        check_place("--out", out / name)
    files.remove_leftovers(out)
    return lock


def _write(out: Path, found: dict[str, Any], draw: bool) -> list[str]:
    """Write all files of a report; returns their names."""
    from fastpe.base import files
    from fastpe.experiments import plot as figure
    from fastpe.experiments import report

    texts = report.markdown(found), report.as_json(found), report.rows_csv(found), report.differences_csv(found)
    contents = {name: text.encode() for name, text in zip(_TEXTS, texts, strict=True)}
    for number, variant in enumerate(found["variants"] if draw else []):
        stem = "table5" if number == 0 else f"table5-{number}"
        title = f"{found['source']}, run again: {report.name_of(variant)}, {len(found['seeds'])} seeds, 95 % intervals"
        if found["quick"]:
            title += " (QUICK VERSION)"
        for kind, content in figure.draw(variant, title).items():
            contents[f"{stem}.{kind}"] = content
    for name, content in contents.items():
        files.write_file(out / name, content)
    for kind in ("png", "pdf"):  # a plot of an earlier table beside this one would mislead
        for old in out.glob(f"table5*.{kind}"):
            if old.name not in contents and re.fullmatch(r"table5(-\d+)?", old.stem):
                old.unlink()
    return list(contents)
