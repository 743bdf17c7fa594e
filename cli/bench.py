"""``fastpe bench``: measure the speed of fastpe on this machine and compare it with other libraries."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from .bench_tables import tables_of
from .options import Integer
from .output import check_place, print_json, use_threads
from .tables import Table, as_markdown, as_text

_TABLES = ("step", "encodings", "attention", "frameworks", "gemm", "tables", "scaling")


def _writable(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """Raise if a file cannot be written, before minutes of measuring."""
    if path is not None and not path.parent.is_dir():
        raise click.BadParameter(f"folder {str(path.parent)!r} does not exist")
    if path is not None and not os.access(path.parent, os.W_OK):
        raise click.BadParameter(f"folder {str(path.parent)!r} is not writable")
    if path is not None:
        check_place("--markdown", path)
    return path


@click.command()
@click.argument("tables", nargs=-1, type=click.Choice(_TABLES), metavar=f"[{'|'.join(_TABLES)}]...")
@click.option("--threads", type=Integer(1), help="Largest number of threads.  [default: all cores]")
@click.option(
    "--quick",
    is_flag=True,
    help="Time only a few calls, and leave out torch.compile. This shows how the command works, but is too short for "
    "conclusions.",
)
@click.option(
    "--markdown", type=click.Path(dir_okay=False, path_type=Path), callback=_writable, metavar="FILE",
    help="Also write the tables to this Markdown file.",
)  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def bench(tables: tuple[str, ...], threads: int | None, quick: bool, markdown: Path | None, as_json: bool) -> None:
    """Measure the speed of fastpe on this machine.

    The command also measures NumPy and, if they are installed, PyTorch and JAX.

    \b
    step        the training step
    encodings   the training step with each encoding
    attention   attention with position terms, forward and backward
    frameworks  models of Hugging Face Transformers, and PyTorch's attention with
                masks, biases and caches; each with and without fastpe
    gemm        the matrix products of the training step
    tables      the computation of position tables
    scaling     the training step on more threads and beside a busy process, and
                the cost of bitwise equal results

    By default, all of these are measured. Each library runs in a separate process. Its results are checked before it is
    timed. The libraries are timed in turn, and the time of the fastest call is printed. Do not use the machine during
    the measurement; if it was busy, a line below the table says so.
    """
    import numba

    if numba.config.DISABLE_JIT:
        raise click.ClickException("NUMBA_DISABLE_JIT is set: the kernels only work compiled")
    use_threads(threads)
    from fastpe.base import files
    from fastpe.benchmarks import figures
    from fastpe.doctor import machine

    found: dict[str, Any] = {"schema": 1, "quick": quick, "machine": _facts(machine)}
    shown: list[Table] = []
    if not as_json:
        click.echo("\n".join(f"{name:8}  {fact}" for name, fact in _of_machine(found["machine"])))
    for name in _TABLES:
        if name in tables or not tables:
            measured = _measure(name, threads or machine.usable_cores(), quick)
            found[name] = figures.unjudged(measured) if quick else measured
            new = tables_of(name, found[name])
            shown += new
            if not as_json:
                click.echo("".join(f"\n{as_text(table)}\n" for table in new), nl=False)
    if not quick:
        met = list(figures.goals_in(found))
        found["goals"] = {"met": sum(met), "of": len(met)}
    if as_json:
        print_json(found)
    else:
        click.echo(f"\n{_conclusion(found)}")
    if markdown is not None:
        command = _command(tables, threads, quick)
        files.write_file(markdown, _document(command, found, shown).encode())
        click.echo(f"written: {markdown}", err=True)


def _measure(name: str, threads: int, quick: bool) -> dict[str, Any]:
    from fastpe.benchmarks import attention, encodings, fills, frameworks, products, scaling, step
    from fastpe.benchmarks.turns import QUICK, Effort

    def tell(text: str) -> None:
        click.echo(text, err=True)

    effort = QUICK if quick else Effort()
    match name:
        case "step":
            peers = tuple(peer for peer in step.PEERS if not (quick and peer == "compile"))
            return step.measure(effort, tell, sorted({1, threads}), peers=peers)
        case "encodings":
            return encodings.measure(effort, tell)
        case "attention":
            peers = tuple(peer for peer in attention.PEERS if not (quick and peer == "flex"))
            return attention.measure(effort, tell, threads, shorter=16 if quick else 1, peers=peers)
        case "frameworks":
            peers = tuple(peer for peer in frameworks.PEERS if not (quick and peer == "flex"))
            return frameworks.measure(effort, tell, threads, shorter=16 if quick else 1, peers=peers)
        case "gemm":
            return products.measure(effort, tell)
        case "tables":
            return fills.measure(effort, tell, **({"length": 1024} if quick else {}))
    return scaling.measure(effort, tell, threads)


# ---------------------------------------------------------------------------------------------------------------------
# Showing


def _facts(machine: Any) -> dict[str, Any]:
    return {"cpu": machine.cpu(), "versions": machine.versions()}


def _of_machine(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return the machine and the versions, by name."""
    cpu = facts["cpu"]
    registers = f"{cpu['name']}, registers of {cpu['register_bytes']} bytes, usable cores: {cpu['usable_cores']}"
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items() if version)
    return [("CPU", registers), ("versions", versions)]


def _conclusion(found: Mapping[str, Any]) -> str:
    if found["quick"]:
        return "a quick run is too short for conclusions"
    return f"{found['goals']['met']} of {found['goals']['of']} goals met"


def _command(tables: Sequence[str], threads: int | None, quick: bool) -> str:
    """Return the command, with its tables in the order of the output, and without the path of --markdown."""
    options = [] if threads is None else ["--threads", str(threads)]
    return " ".join(["fastpe bench", *(name for name in _TABLES if name in tables), *options, *["--quick"] * quick])


def _document(command: str, found: Mapping[str, Any], tables: Sequence[Table]) -> str:
    """Return all tables as one Markdown document, with the command, the date and the machine."""
    from datetime import UTC, datetime

    facts = [("made by", f"`{command}`"), ("date", f"{datetime.now(UTC):%Y-%m-%d}"), *_of_machine(found["machine"])]
    names = " ".join(word for word in command.split() if word in _TABLES)
    blocks = [
        f"# Benchmarks: {names}",
        "\n".join(f"- {name}: {fact}" for name, fact in facts),
        *map(as_markdown, tables),
    ]
    return "\n\n".join([*blocks, f"**{_conclusion(found)}**"]) + "\n"
