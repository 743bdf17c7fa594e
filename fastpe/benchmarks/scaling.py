"""Scaling of the training step to more threads, its time next to a busy process, and the cost of bitwise equality."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median
from typing import Any

from fastpe.benchmarks import jobs
from fastpe.benchmarks.disturbance import between_turns
from fastpe.benchmarks.figures import judged
from fastpe.benchmarks.models import CASES
from fastpe.benchmarks.turns import Candidate, Effort, Tell, Worker, prepare, take_turns
from fastpe.doctor.machine import usable_cores

SCALING_GOAL, BUSY_GOAL, FIXED_GOAL = 0.95, 1.5, 1.04
_BUSY = """
import os
import sys
if hasattr(os, "sched_setaffinity"):
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
print(flush=True)
while os.getppid() == int(sys.argv[1]):
    sum(range(100_000))
"""


def measure(effort: Effort, tell: Tell, threads: int, model: str = "paper") -> dict[str, Any]:
    """Time one model's step on 1 and on `threads` threads.

    Returns
    -------
    dict
        - ``threads``: the number of threads.
        - ``step`` and ``sgemm``: the speed on these threads divided by the speed on one thread. ``scaling``: ``step``
          divided by ``sgemm``, judged, or None on one thread.
        - ``fixed``: for each number of threads, the time of the step divided by that of a step whose bits depend on the
          number of threads, judged.
        - ``busy``: the median time of the step next to a process that keeps one core busy, divided by the undisturbed
          median on one thread, judged, or None on one thread or core.
        - ``disturbed``: signs of a disturbed machine.
    """
    tell(f"scaling: {model}, threads: 1 and {threads}")
    counts, expected = sorted({1, threads}), jobs.expected_losses(CASES[model])
    with Worker("fastpe", threads) as worker:
        groups = []
        for count in counts:
            arguments = {"model": model, "threads": count, "expected": expected}
            groups += [
                Candidate(f"step {count}", worker, "step", {"library": "fastpe", **arguments}),
                Candidate(f"by threads {count}", worker, "step by threads", arguments),
                Candidate(f"sgemm {count}", worker, "peak", {"threads": count}),
            ]
        prepare(groups)
        take_turns(groups, effort)
        found = {each.label: each for each in groups}
        busy = None
        if threads > 1 and usable_cores() > 1:
            tell("scaling: next to a busy process")
            busy = _beside_a_busy_process(found, groups[-3], worker, effort)
    table: dict[str, Any] = {"model": model, "threads": threads, "scaling": None, "busy": busy}
    if threads > 1:
        step, sgemm = found["step 1"].best / found[f"step {threads}"].best, found["sgemm 1"].best
        sgemm *= threads / found[f"sgemm {threads}"].best
        table |= {"step": step, "sgemm": sgemm, "scaling": judged(step / sgemm, SCALING_GOAL)}
    table["fixed"] = {
        str(count): judged(found[f"step {count}"].best / found[f"by threads {count}"].best, FIXED_GOAL, at_most=True)
        for count in counts
    }
    table["disturbed"] = [
        sign for count in counts for sign in between_turns(f"sgemm, threads: {count},", found[f"sgemm {count}"].turns)
    ]
    return table


def _beside_a_busy_process(
    found: dict[str, Candidate], alone: Candidate, worker: Worker, effort: Effort
) -> dict[str, Any]:
    disturbed = Candidate("disturbed", worker, "step", alone.arguments)
    prepare([disturbed])
    with _busy_process():
        take_turns([disturbed], effort)
    return judged(median(disturbed.seconds) / median(found["step 1"].seconds), BUSY_GOAL, at_most=True)


@contextmanager
def _busy_process() -> Iterator[None]:
    """A process that keeps the last core busy."""
    command = [sys.executable, "-c", _BUSY, str(os.getpid())]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()
