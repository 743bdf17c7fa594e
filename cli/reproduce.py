"""``fastpe reproduce``: a table of a paper made again, by training or by computing, and judged."""

import sys
from pathlib import Path
from typing import Any

import click

from fastpe.doctor.machine import usable_cores

from .compare import print_written
from .output import INTERRUPTED, check_place, print_json


@click.group()
def reproduce() -> None:
    """Make a table of a paper again and judge its claims."""


@reproduce.command()
@click.option("--seeds", type=click.IntRange(min=1), help="Seeds, from 0.  [default: 10; 3 with --quick]")
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
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def table5(
    seeds: int | None, workers: int | None, out: Path | None, quick: bool, vary: tuple[str, ...], as_json: bool
) -> None:
    """Table 5 of Li (2025): sinusoidal, ALiBi, wavelet and Legendre on running sums.

    Every encoding, with nope and learned beside the paper's four, is trained at length 50 and tested at 50, 100 and
    200, bidirectional and causal. Prints errors with intervals beside the paper's, reference points, and a verdict on
    each of the paper's claims with its reason. It is a study like any other: --out has its page, report.html, its
    tables, and a study.toml that `fastpe compare --study` takes, on a cluster too. Interrupted, the same command goes
    on; what is finished is not run again.
    """
    from fastpe.experiments import table5 as experiment
    from fastpe.experiments.claims_report import SMALL

    from .progress import JobReporter

    made = experiment.variants(list(vary), seeds or (experiment.QUICK_SEEDS if quick else experiment.SEEDS), quick)
    out = out or Path("reproduce", "table5-quick" if quick else "table5")
    try:
        with JobReporter() as reporter:
            if quick:
                reporter.line(SMALL)
            found = experiment.reproduce(out, made, workers or usable_cores(), reporter)
    except KeyboardInterrupt:
        click.echo("fastpe: interrupted; the same command goes on from here", err=True)
        sys.exit(INTERRUPTED)
    _print(found, as_json, judged=not quick)


@reproduce.command()
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("reproduce", "tables"), show_default=True, help="Folder."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def tables(out: Path, as_json: bool) -> None:
    """Tables 1 to 4 of Li (2025), cell by cell, without training.

    Prints of each cell what the paper has, what is computed, a verdict and its reason, and writes tables.md,
    tables.json and tables.html into --out. The exit status is 1 if a value has left its stored interval; `fastpe theory
    --claims` has the claims that cells rest on.
    """
    from fastpe.base import files
    from fastpe.experiments import tables_report
    from fastpe.experiments.sections import as_text
    from fastpe.paper_claims import tables as paper_tables

    from .progress import Bar

    for name in ("tables.md", "tables.json", "tables.html"):
        check_place("--out", out / name)
    files.make_folder(out, exist_ok=True)
    with Bar() as bar:
        bar.open(len(paper_tables.CELLS), 0, "cells")

        def told(done: int) -> None:
            bar.advance(1)
            bar.show(f"{done} of {len(paper_tables.CELLS)} cells", "")

        cells = paper_tables.judge(told)
    written = tables_report.files_of(cells)
    for name, content in written.items():
        files.write_file(out / name, content)
    if as_json:
        click.echo(written["tables.json"], nl=False)
    else:
        click.echo(as_text(tables_report.sections(cells)))
    click.echo(f"written in {out}: {', '.join(written)}", err=True)
    if left := paper_tables.outside(cells):
        raise click.ClickException(f"outside of its stored interval: {'; '.join(left)}")


def _print(found: "list[tuple[Any, Any]]", as_json: bool, judged: bool) -> None:
    from fastpe.experiments import claims_report
    from fastpe.experiments.sections import as_text
    from fastpe.experiments.study_report import beside
    from fastpe.experiments.table5 import overview

    if as_json:
        print_json(
            {
                variant.name: {**compared.summary, "claims": claims_report.facts(variant.study, compared.summary)}
                for variant, compared in found
            }
        )
        return
    for variant, compared in found:
        if len(found) > 1:
            click.echo(f"{variant.name}\n{'=' * len(variant.name)}\n")
        click.echo(as_text(beside(variant.study, compared.summary)))
    if len(found) > 1 and judged:
        click.echo(as_text([overview(found)]))
    for _, compared in found:
        print_written(compared)
