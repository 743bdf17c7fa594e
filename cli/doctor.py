"""``fastpe doctor``: report on this machine and check all compiled code against its references."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from .output import FAILED, print_json
from .terminal import next_step

if TYPE_CHECKING:
    from fastpe.doctor.diagnosis import Verdict


@click.command()
@click.option(
    "--warm",
    is_flag=True,
    help="Only compile the functions that train, evaluate and reproduce need, and store them in the compile cache.",
)
@click.option(
    "--accuracy",
    is_flag=True,
    help="Only compare the arrays of each encoding with exact values. Errors are in units in the last place.",
)
@click.option("--only", multiple=True, metavar="TEXT", help="Run only checks with TEXT in their name; may be repeated.")
@click.option("-v", "--verbose", is_flag=True, help="Print all checks, not only those that fail.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
def doctor(warm: bool, accuracy: bool, only: tuple[str, ...], verbose: bool, as_json: bool) -> None:
    """Check fastpe on this machine.

    The command compares all kernels, encodings and gradients with their references. It prints versions, CPU, compile
    cache, measured speed and threads, then each failed check with its error and its bound, and finally the number of
    checks that passed. With --only, the speed is not measured. The exit status is 1 if a check fails.

    With --accuracy, the command instead prints the errors of each encoding's arrays. Near zeros of Legendre
    polynomials, and for tiny entries of wavelets, only the absolute error is bounded (see the pages of these
    encodings).
    """
    import numba

    if numba.config.DISABLE_JIT:
        raise click.ClickException("NUMBA_DISABLE_JIT is set: the kernels only work compiled")
    if accuracy:
        if warm or only:
            raise click.UsageError("--accuracy cannot be combined with --warm or --only")
        _accuracy(as_json)
        return
    passed = _warm(only, verbose, as_json) if warm else _examine(only, verbose, as_json)
    if not passed:
        sys.exit(FAILED)


def _examine(only: tuple[str, ...], verbose: bool, as_json: bool) -> bool:
    from fastpe.doctor import diagnosis

    from .progress import Reporter, counted

    checks = diagnosis.checks(only)
    verdicts = []
    with Reporter() as reporter:
        machine = _machine(measure=not only, show=not as_json)
        if not as_json and not verbose:
            click.echo(f"{len(checks)} checks; only failures are printed (-v prints all)")
        start = time.perf_counter()
        for check in counted(reporter, checks, lambda check: check.name):
            verdict = diagnosis.judge(check)
            verdicts.append(verdict)
            if not as_json and (verbose or not verdict.passed):
                click.echo(_line(verdict))
    seconds, failed = time.perf_counter() - start, sum(not verdict.passed for verdict in verdicts)
    if as_json:
        print_json({"schema": 1, "passed": not failed, **machine, "checks": [vars(verdict) for verdict in verdicts]})
    else:
        what = f"{failed} of {len(checks)} checks failed" if failed else f"all {len(checks)} checks passed"
        click.echo(f"{what}, {seconds:.1f} s")
        if failed:
            next_step({"fastpe doctor --only TEXT -v": "run the checks with TEXT in their name again, in detail"})
        else:
            next_step({"fastpe train --encoding rope --task reverse": "train a small model"})
    return not failed


def _line(verdict: "Verdict") -> str:
    found = verdict.note if verdict.error is None else f"error {verdict.error:<8.2g}  bound {verdict.bound:.2g}"
    return f"{'PASS' if verdict.passed else 'FAIL'}  {verdict.name:26}  {verdict.dtype}  {found}"


# ---------------------------------------------------------------------------------------------------------------------
# The machine


def _machine(measure: bool, show: bool) -> dict[str, Any]:
    """Collect the facts about the machine, and print each as soon as it is known."""
    from fastpe.doctor import machine

    def tell(name: str, text: str) -> None:
        if show:
            click.echo(f"{name:10}{text}".rstrip())

    facts: dict[str, Any] = {"versions": machine.versions(), "cpu": machine.cpu(), "cache": machine.compile_cache()}
    _tell_facts(facts, tell)
    if measure:
        facts["speed"] = _speed(machine.threads()["default"], tell)
    facts["threads"] = machine.threads()
    layer = facts["threads"]["layer"]
    tell("threads", f"{facts['threads']['default']}" + (f", threading layer {layer}" if layer else ""))
    tell("", "")
    return facts


def _tell_facts(facts: dict[str, Any], tell: Any) -> None:
    versions, cpu, cache = facts["versions"], facts["cpu"], facts["cache"]
    tell("versions", ", ".join(f"{name} {version}" for name, version in versions.items() if version))
    if missing := [name for name, version in versions.items() if version is None]:
        tell("", f"optional, not installed: {', '.join(missing)}")
    tell("CPU", f"{cpu['name']}, {cpu['machine']}, {cpu['system']}; {' '.join(cpu['vectors']) or 'no wide vectors'}")
    tell("", f"registers of {cpu['register_bytes']} bytes; {cpu['cores']} cores, usable: {cpu['usable_cores']}")
    if cache["folder"] is None:
        tell("cache", f"none, each process compiles again: {cache['problem']}")
    else:
        state = "stale: fastpe's sources have changed" if cache["stale"] else "not stale"
        tell("cache", f"{cache['folder']}: {cache['files']} files, {_megabytes(cache['bytes'])}; {state}")


def _megabytes(count: int) -> str:
    return f"{count / 1e6:.1f} MB"


def _speed(threads: int, tell: Any) -> dict[str, dict[str, Any]]:
    from fastpe.doctor import probe

    figures = {}
    for count in sorted({1, threads}):
        where = "one core" if count == 1 else f"{count} threads"
        ours, blas, memory = probe.sgemm_peak(count), probe.blas_peak(count), probe.bandwidth(count)
        figures[str(count)] = {"sgemm_gflops": ours, "blas_sgemm_gflops": blas, "memory_gbytes_per_s": memory}
        peer = "not measured" if blas is None else f"{blas:.0f}"
        tell("sgemm", f"{where}: {ours:.0f} GFLOP/s in cache (fastpe), {peer} at order 1024 (NumPy's BLAS)")
        rates = ", ".join(f"{way} {rate:.1f}" for way, rate in memory.items())
        tell("memory", f"{where}: {rates} GB/s ({probe.BYTES // 2**20} MiB arrays)")
    return figures


# ---------------------------------------------------------------------------------------------------------------------
# Accuracy


def _accuracy(as_json: bool) -> None:
    from fastpe.doctor import accuracy
    from fastpe.encodings import registry

    from .progress import Reporter, counted

    columns = [*(f"<= {edge:g}" for edge in accuracy.EDGES), f"> {accuracy.EDGES[-1]:g}"]
    found = []
    if not as_json:
        click.echo("errors in units in the last place, against exact values (60 digits) unless stated otherwise\n")
        click.echo(f"{'encoding':11} {'dtype':8} {'values':>7} {''.join(f'{name:>9}' for name in columns)}     worst")
    with Reporter() as reporter:
        for name in counted(reporter, list(registry.ENCODINGS.load_all()[0]), str):
            for each in accuracy.histograms(name):
                found.append(each)
                if not as_json:
                    shares = "".join(_percent(count, each.values) for count in each.counts)
                    where = f"row {each.place[0]}, channel {each.place[1]} of {each.request}"
                    beside = "" if each.oracle == "decimal" else f"; against {each.oracle}"
                    line = f"{name:11} {each.dtype:8} {each.values:7} {shares}  {each.worst:8.3g}  {where}{beside}"
                    click.echo(line)
    rows = [(position, *accuracy.float32_angles(position)) for position in accuracy.FLOAT32_POSITIONS]
    if as_json:
        others = [{"position": p, "float32_angles": theirs, "fastpe": ours} for p, theirs, ours in rows]
        histograms = [vars(each) | {"values": each.values} for each in found]
        print_json(
            {
                "schema": 1,
                "edges": accuracy.EDGES,
                "limits": accuracy.LIMITS,
                "histograms": histograms,
                "sinusoidal_errors": others,
            }
        )
        return
    click.echo(f"\n{accuracy.LIMITS}")
    click.echo("\nlargest error of a float32 sinusoidal row, with float32 angles (as in most libraries) and in fastpe:")
    for position, theirs, ours in rows:
        click.echo(f"at position {position:10,}: {theirs:8.1e}  {ours:8.1e}")


def _percent(count: int, total: int) -> str:
    return f"{count / total:9.2%}" if count else f"{'-':>9}"


# ---------------------------------------------------------------------------------------------------------------------
# Compiling


def _warm(only: tuple[str, ...], verbose: bool, as_json: bool) -> bool:
    from fastpe.doctor import diagnosis, machine
    from fastpe.kernels.compile import cache

    from .progress import Bar, counted

    if cache.problem:
        raise click.ClickException(f"compiled code cannot be cached: {cache.problem}")
    parts: list[dict[str, Any]] = []
    start = time.perf_counter()
    with Bar() as bar, _compiled() as compiled:
        for check in counted(bar, diagnosis.compiling(only), lambda check: check.name):
            before = time.perf_counter()
            verdict = diagnosis.judge(check)
            seconds = time.perf_counter() - before
            parts.append({"name": check.name, "dtype": check.dtype, "seconds": seconds, "compiled": compiled.copy()})
            if not as_json and (verbose or compiled):
                click.echo(f"{check.name:20}  {check.dtype}  {seconds:5.1f} s  {', '.join(compiled)}".rstrip())
            compiled.clear()
            if not verdict.passed:
                raise click.ClickException(f"{check.name} ({check.dtype}) fails its check: run fastpe doctor")
    seconds, facts = time.perf_counter() - start, machine.compile_cache()
    if as_json:
        print_json({"schema": 1, "passed": True, "seconds": seconds, "parts": parts, "cache": facts})
    else:
        count = sum(len(part["compiled"]) for part in parts)
        what = f"{count} functions compiled" if count else "nothing to compile: everything is in the cache"
        click.echo(f"{what}, {seconds:.1f} s; {facts['folder']}: {facts['files']} files, {_megabytes(facts['bytes'])}")
    return True


@contextmanager
def _compiled() -> Iterator[list[str]]:
    """Yield a list that receives the names of compiled functions."""
    from fastpe.kernels.compile import cache

    found: list[str] = []
    cache.on_compile = found.append
    try:
        yield found
    finally:
        cache.on_compile = None
