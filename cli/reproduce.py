"""``fastpe reproduce``: compute the tables of a paper again, and judge its claims."""

import sys
from pathlib import Path
from typing import Any

import click

from fastpe.doctor.machine import usable_cores

from .compare import print_written
from .options import Integer
from .output import INTERRUPTED, check_place, print_json
from .terminal import next_step, opening


@click.group()
def reproduce() -> None:
    """Reproduce a table of a paper and judge its claims."""


@reproduce.command()
@click.option("--seeds", type=Integer(1), help="Number of seeds.  [default: 10; 3 with --quick]")
@click.option("--workers", type=Integer(1), help="Number of processes, of one thread each.  [default: usable cores]")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    help="Folder of the results.  [default: reproduce/table5; reproduce/table5-quick with --quick]",
)
@click.option(
    "--quick", is_flag=True, help="Run a small version in under a minute: a demonstration, too short for conclusions."
)
@click.option(
    "--vary", multiple=True, metavar="K=V,V",
    help="Repeat the study with each of these values of a setting that the paper does not state; may be repeated: "
    "then every combination is run. 'encoding.option' varies an option of one encoding.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def table5(
    seeds: int | None, workers: int | None, out: Path | None, quick: bool, vary: tuple[str, ...], as_json: bool
) -> None:
    """Reproduce table 5 of Li (2025): sinusoidal, ALiBi, wavelet and Legendre on running sums.

    The command trains the paper's four encodings, nope and learned at length 50, bidirectional and causal, and tests
    them at 50, 100 and 200. It prints the errors with intervals, the paper's errors, reference points, and a verdict
    with its reason for each of the paper's claims. The command writes these files to the folder --out: the page
    report.html, the tables, and a study.toml, which `fastpe compare --study` can also run on a cluster. Finished runs
    are not repeated: to continue an interrupted study, run the same command again.
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
        click.echo("fastpe: interrupted; to continue, run the same command again", err=True)
        sys.exit(INTERRUPTED)
    _print(found, as_json, judged=not quick)


@reproduce.command()
@click.option(
    "--out", type=click.Path(path_type=Path), default=Path("reproduce", "tables"), show_default=True,
    help="Folder of the results.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def tables(out: Path, as_json: bool) -> None:
    """Check tables 1 to 4 of Li (2025), cell by cell, without training.

    For each cell, the command prints the paper's entry, the computed value, a verdict and its reason. It writes
    tables.md, tables.json and tables.html into --out. The exit status is 1 if a value lies outside its stored interval.
    `fastpe theory --claims` prints the claims that the cells depend on.
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
    if not as_json:
        next_step({"fastpe theory --claims": "the 121 claims of the paper, recomputed"})
    if left := paper_tables.outside(cells):
        raise click.ClickException(f"values outside their stored intervals: {'; '.join(left)}")


def _print(found: "list[tuple[Any, Any]]", as_json: bool, judged: bool) -> None:
    from fastpe.experiments import claims_report
    from fastpe.experiments.sections import as_text
    from fastpe.experiments.study_report import claim_sections
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
        click.echo(as_text(claim_sections(variant.study, compared.summary)))
    if len(found) > 1 and judged:
        click.echo(as_text([overview(found)]))
    for _, compared in found:
        print_written(compared)
    next_step({opening(found[0][1].out / "report.html"): "the report with its figures"})
