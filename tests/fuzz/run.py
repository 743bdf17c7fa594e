"""Random cases against fastpe: `build` with every encoding, attention with every combination of slots, damaged files.

    python tests/fuzz/run.py --seconds 120              # a fresh seed, which is printed
    python tests/fuzz/run.py --cases 100000 --seed 7
    python tests/fuzz/run.py --seed 7 --case 1234       # one case again, as a finding names it

A case must end in a right result or in a documented error that names what is wrong with it. Anything else is a finding:
another error, a warning, a wrong or missing number, a guard word overwritten, a hang, the end of the process. Cases run
in a process of their own, which says the number of each before it runs; this one watches it.
"""

import argparse
import os
import queue
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

BATCH = 50  # cases that Hypothesis draws at a time: each batch has a seed of its own, so that any can be drawn again
PATIENCE = 180.0  # seconds that a case may take, what it compiles included
_MOST_FINDINGS = 20
_TELL = 60.0  # seconds between lines that say how far the run is
_SUPPORT = Path(__file__).resolve().parents[1] / "support"


def main(arguments: list[str] | None = None, worker: tuple[str, ...] = ()) -> int:
    """Run the command line; 1 if there was a finding. `worker` takes the place of the usual worker's command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--seconds", type=float, default=120.0, help="how long, where no number of cases is given")
    parser.add_argument("--cases", type=int, help="how many cases")
    parser.add_argument("--seed", type=int, help="which cases; drawn and printed where none is given")
    parser.add_argument("--case", type=int, help="this case alone")
    parser.add_argument("--patience", type=float, default=PATIENCE, help="seconds that one case may take")
    given = parser.parse_args(arguments)
    seed = secrets.randbelow(2**31) if given.seed is None else given.seed
    print(f"seed {seed}", flush=True)
    worker = worker or (sys.executable, str(Path(__file__).with_name("worker.py")))
    if given.case is not None:
        return _watch([*worker, str(seed), str(given.case), "--alone"], given, seed)
    return _watch([*worker, str(seed)], given, seed)


def _watch(worker: list[str], given: argparse.Namespace, seed: int) -> int:
    """Start workers, each after the case that ended the one before it, until all is done; tell of findings."""
    began, told, done, findings = time.monotonic(), 0.0, 0, 0
    last = given.cases if given.case is None else 1

    def over() -> bool:
        enough = done >= last if last is not None else time.monotonic() - began >= given.seconds
        return enough or findings >= _MOST_FINDINGS

    while not over():
        first = [] if given.case is not None else [str(done)]
        for number, text in _cases([*worker, *first], given.patience):
            if text is not None:
                findings += 1
                again = f"\n  again: python tests/fuzz/run.py --seed {seed} --case {number}" if number >= 0 else ""
                print(f"case {number}: {text}{again}", flush=True)
            if number < 0:  # no worker gets that far
                return 1
            done = 1 if given.case is not None else number + 1
            if over():
                break
            if time.monotonic() - began >= told + _TELL:
                told = time.monotonic() - began
                print(f"{done:,} cases, {findings} findings, {told:,.0f} s", flush=True)
    print(f"{done:,} cases, {findings} findings", flush=True)
    return int(findings > 0)


def _cases(command: list[str], patience: float) -> Iterator[tuple[int, str | None]]:
    """Every case of a worker as it ends: its number, and what was found, or None."""
    path = os.pathsep.join([str(_SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONFAULTHANDLER": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment)
    assert process.stdout is not None
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    reader = threading.Thread(target=_read, args=(process.stdout, lines.put), daemon=True)
    reader.start()
    running, said = -1, []
    try:
        while True:
            try:
                line = lines.get(timeout=patience if running >= 0 else PATIENCE)
            except queue.Empty:
                yield running, f"it did not end in {patience:.0f} s"
                return
            match line.split(" ", 1):
                case ["begin", number]:
                    running, said = int(number), []
                case ["held", _]:
                    yield running, None
                case ["found", text]:
                    yield running, text.rstrip().replace("\\n", "\n    ")
                case ["end", _]:
                    return
                case [""]:
                    yield running, f"the process ended: {_cause(process.wait())}\n" + "".join(said)
                    return
                case _:
                    said.append(f"    {line}")  # of a library, or a traceback
    finally:
        process.kill()
        process.wait()
        reader.join()
        process.stdout.close()


def _read(stream: IO[str], put: Callable[[str], None]) -> None:
    for line in stream:
        put(line)
    put("")


def _cause(status: int) -> str:
    return f"signal {signal.Signals(-status).name}" if status < 0 else f"exit status {status}"


if __name__ == "__main__":
    sys.exit(main())
