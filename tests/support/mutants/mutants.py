"""Puts small mistakes into fastpe, one at a time, and tells which of them no test notices.

    FASTPE_RECORD=calls.jsonl PYTHONPATH=tests/support/mutants python -m pytest -p mutant_record
    python tests/support/mutants/mutants.py --record calls.jsonl --results mutants.jsonl --count 300 --seed 13

The first command runs the suite and notes which test calls what; add `--report FILE` to the second for the figures.
A line of the sources is drawn at random within its group, then a kind of mistake that the line allows, then one of
these. Its tests are those that call the function, the nearest first, until one fails; a test that crashes, hangs, or
takes all memory fails too. Results are lines of JSON: run again, it goes on where it was cut off. Every mutant runs in
a fork of this process, which has imported all that fastpe stands on, but nothing of fastpe.
"""

import argparse
import ast
import contextlib
import gc
import importlib
import json
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

import mutant_import
import mutant_report
import numba
import numpy as np
import pytest
from mutant_draw import GROUPS, Mutant, population
from mutant_map import ROOT, Record, References, defined

TRIES = (5.0, 15), (20.0, 80), (120.0, 400)  # at most so many seconds and tests, first in small, then in earnest
TRIES_COMPILED = (20.0, 80), (60.0, 200)  # of what must be compiled anew, which takes longer than its tests
PROCESSES = "/test_interruptions.py", "/test_cli_processes.py", "/experiments/", "/fuzz/", "/test_interrupts.py"
"""Tests that start processes, each of which would compile anew, or repeat a call for long: others see the same code."""
TOO_LONG = 60.0  # seconds of a test that is never tried
SLOW = 40.0, 110.0  # more than ten times the seconds of a test before it counts as without end: else, compiled anew
REWRITTEN = "ignore::pytest.PytestAssertRewriteWarning"  # of what this process imported
MEMORY, BROKEN = 12 << 30, 99  # bytes; the exit code of a child whose pytest raised


# ---------------------------------------------------------------------------------------------------------------------
# One mutant, some tests


class _Teller:
    """Tells the parent through a pipe which test starts, and which fails."""

    def __init__(self, pipe: int) -> None:
        self._pipe = pipe

    def _tell(self, *words: str) -> None:
        os.write(self._pipe, ("\t".join(words) + "\n").encode())

    def pytest_runtest_logstart(self, nodeid: str, location: Any) -> None:
        self._tell("start", nodeid)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self._tell("failed", report.nodeid)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self._tell("failed", report.nodeid)


def _child(environment: dict[str, str], tests: list[str], pipe: int, log: int) -> int:
    os.setpgid(0, 0)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for place in (1, 2):
        os.dup2(log, place)
    os.environ.update(environment)
    if "FASTPE_MUTANT" in environment:
        mutant_import.install()
        try:  # before pytest does: files that it is told to collect it imports in a way of its own
            importlib.import_module(environment["FASTPE_MUTANT"].split(":")[0])
        except Exception:
            os.write(pipe, b"failed\timport\n")
            return 1
    options = ["-x", "-q", "--tb=short", "-pno:cacheprovider", "-pno:benchmark", f"-W{REWRITTEN}"]
    options.append(f"--hypothesis-profile={os.environ['FASTPE_EXAMPLES']}")
    with tempfile.TemporaryDirectory() as folder:
        return int(pytest.main([*options, f"--basetemp={folder}/t", *tests], plugins=[_Teller(pipe)]))


def run(environment: dict[str, str], tests: list[str], seconds: dict[str, float], log: int) -> str:
    """How it ended: "passed", the name of the test that failed, or that test with how it fell."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        code = BROKEN
        try:
            code = _child(environment, tests, writing, log)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    slow = SLOW[bool(environment.get("FASTPE_MUTANT_STALE"))]
    test, failed, rest, left = "start", "", b"", 60.0
    while left > 0:
        before = time.monotonic()
        if not select.select([reading], [], [], 1.0)[0]:
            left -= min(time.monotonic() - before, 2.0)  # more went by where all this was stopped for a while
            continue
        text = os.read(reading, 65536)
        if not text:
            break
        *lines, rest = (rest + text).split(b"\n")
        for line in lines:
            word, name = line.decode().split("\t", 1)
            failed = failed or (name if word == "failed" else "")
            test, left = name, slow + 10 * seconds.get(name, 1.0)
    hangs = left <= 0
    os.close(reading)
    if not hangs:
        _, status = os.waitpid(child, 0)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # and what it started
    if hangs:
        os.waitpid(child, 0)
        return f"{test} (no end)"
    if os.WIFSIGNALED(status):
        return f"{test} ({signal.Signals(os.WTERMSIG(status)).name})"
    code = os.waitstatus_to_exitcode(status)
    if code == BROKEN:
        raise RuntimeError("pytest itself could not run: see its output with --only")
    return "passed" if code == 0 else failed or f"{test} (exit {code})"


class Runner:
    """Tries mutants against their tests and writes down how they end."""

    def __init__(self, record: Path, results: Path, log: int) -> None:
        self.record, self.references = Record(record), References()
        self._results, self._log = results, log
        self._seconds = self.record.seconds

    def environment(self, mutant: Mutant) -> dict[str, str]:
        stale = set()
        if self.references.in_compiled_code(mutant.module, mutant.function):
            stale = self.references.stale(mutant.module, mutant.function or _defined_at(mutant))
        path = ROOT / mutant.path
        return {
            "FASTPE_MUTANT": f"{mutant.module}:{mutant.at}", "FASTPE_MUTANT_SIZE": str(path.stat().st_size),
            "FASTPE_MUTANT_STALE": ",".join(sorted(stale)),
            "PYTHONPATH": str(Path(__file__).parent),
        }  # fmt: skip

    def tests(self, mutant: Mutant) -> list[str]:
        function = mutant.function or _defined_at(mutant)
        chosen = self.record.tests_of(mutant.module, function, self.references)
        return [test for test in chosen if self._seconds[test] < TOO_LONG]

    def learn(self, test: str) -> None:
        """Remember that a test found a mutant: it is tried earlier from now on."""
        self.record.kills[test.split(" (")[0]] += 1

    def judge(self, mutant: Mutant) -> None:
        start, end, tried = time.monotonic(), "passed", 0
        environment = self.environment(mutant)
        compiles = bool(environment["FASTPE_MUTANT_STALE"])
        known = self.tests(mutant)
        if compiles:
            known = [test for test in known if not any(part in test for part in PROCESSES)]
        for seconds, number in TRIES_COMPILED if compiles else TRIES:
            tests = self._within(known, seconds, number)[tried:]
            end = run(environment, tests, self._seconds, self._log) if tests else end
            tried += len(tests)
            if end != "passed" or not tests:
                break
        if end != "passed":
            self.learn(end)
        line = asdict(mutant) | {
            "end": "survived" if end == "passed" else "killed", "by": "" if end == "passed" else end, "tests": tried,
            "anew": environment["FASTPE_MUTANT_STALE"].count(":"), "seconds": round(time.monotonic() - start, 1),
        }  # fmt: skip
        with self._results.open("a") as file:
            file.write(json.dumps(line) + "\n")
        print(f"{line['end']:8} {line['seconds']:6.1f} s  {mutant.key}:{mutant.line}  {mutant.before[:60]!r} -> "
              f"{mutant.after[:60]!r}  {line['by'][-80:]}", flush=True)  # fmt: skip

    def _within(self, tests: list[str], seconds: float, number: int) -> list[str]:
        chosen, total = [], 0.0
        for test in tests[:number]:
            total += self._seconds[test]
            if chosen and total > seconds:
                break
            chosen.append(test)
        return chosen

    def check(self, done: dict[str, dict[str, Any]]) -> None:
        """Run the tests that found mutants where there is none: what one found that fails here too is forgotten."""
        found = {line["by"].split(" (")[0] for line in done.values()}
        tests, failed = sorted(found & self._seconds.keys()), []
        while (end := run({}, tests, self._seconds, self._log)) != "passed":
            failed.append(end.split(" (")[0])
            tests = tests[tests.index(failed[-1]) + 1 :]
            print("fails without a mutant:", failed[-1], flush=True)
        kept = [line for line in done.values() if line["by"].split(" (")[0] not in failed]
        self._results.write_text("".join(json.dumps(line) + "\n" for line in kept))


def _defined_at(mutant: Mutant) -> str:
    """What a statement at the top of a file defines."""
    for statement in ast.parse((ROOT / mutant.path).read_text()).body:
        if statement.lineno <= mutant.line <= (statement.end_lineno or 0):
            return next(iter(defined(statement)), "")
    return ""


def _import_what_fastpe_stands_on() -> None:
    """Import what fastpe and its tests import from other packages, but for frameworks that few of them need."""
    names = set()
    for path in (*ROOT.glob("fastpe/**/*.py"), *ROOT.glob("tests/**/test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    for name in sorted(names):
        if name.split(".")[0] in ("numpy", "numba", "llvmlite", "scipy", "pywt", "mpmath", "hypothesis", "safetensors"):
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
    numba.njit(lambda x: x.sum())(np.ones(3))  # what Numba prepares for its first function, it prepares once


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", type=Path, required=True, help="what mutant_record.py wrote")
    parser.add_argument("--results", type=Path, required=True, help="lines of JSON, one for each mutant; added to")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=13)
    parser.add_argument("--groups", default=" ".join(GROUPS), help="only of these groups")
    parser.add_argument("--part", default="1/1", help="only this of so many parts, as 2/3: for several processes")
    parser.add_argument("--stop", type=float, default=1e9, help="seconds after which no further mutant is begun")
    parser.add_argument("--again", action="store_true", help="try the survivors again")
    parser.add_argument("--check", action="store_true", help="do the tests that found mutants pass without?")
    parser.add_argument("--examples", choices=["few", "many"], default="many", help="few: as in the default selection")
    parser.add_argument("--only", help="one mutant, PATH:NUMBER, its tests' output shown; nothing is written")
    parser.add_argument("--report", type=Path, help="write the figures as Markdown; runs nothing")
    parser.add_argument("--rest", type=Path, help="results of all tests for what survived --results: prints a table")
    options = parser.parse_args()
    os.chdir(ROOT)
    done = mutant_report.read(options.results)
    if options.rest:
        print(mutant_report.selections(done, mutant_report.read(options.rest)))
        return
    if options.report:
        options.report.write_text(mutant_report.markdown(done, options.seed))
        return
    chosen = population(options.count, options.seed, options.results)
    os.environ["FASTPE_EXAMPLES"] = options.examples
    log = sys.stdout.fileno() if options.only else os.open(os.devnull, os.O_WRONLY)
    runner = Runner(options.record, Path(os.devnull) if options.only else options.results, log)
    for line in done.values():
        if line["by"]:
            runner.learn(line["by"])
    chosen = [mutant for mutant in chosen if mutant.group in options.groups.split()]
    if options.only:
        chosen = [mutant for mutant in chosen if mutant.key == options.only]
    elif options.again:
        chosen = [m for m in chosen if m.key in done and mutant_report.is_open(done[m.key])]
    else:
        chosen = [mutant for mutant in chosen if mutant.key not in done]
    part, parts = map(int, options.part.split("/"))
    chosen = chosen[part - 1 :: parts]
    _import_what_fastpe_stands_on()
    if options.check:
        runner.check(done)
        return
    gc.freeze()  # children need not go through what all of them share
    end = time.monotonic() + options.stop
    for mutant in chosen:
        if time.monotonic() < end:
            runner.judge(mutant)


if __name__ == "__main__":
    main()
