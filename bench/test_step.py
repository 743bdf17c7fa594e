"""The training step of every model of `fastpe bench step`, on one thread with PyTorch eager, and on two threads.

Two thread pools in one process disturb each other, so only `fastpe bench step`, which gives every library a separate
process, times PyTorch on two threads.
"""

import pytest

from fastpe.benchmarks import jobs
from fastpe.benchmarks.models import CASES
from fastpe.model.cost import step_flop


@pytest.mark.parametrize(("library", "threads"), [("fastpe", 1), ("fastpe", 2), ("eager", 1)])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.benchmark(group="step")
def test_step(measure, library, name, threads):
    case = CASES[name]
    try:
        job = jobs.step(library, name, threads, jobs.expected_losses(case))
    except jobs.Absent as why:
        pytest.skip(f"{library}: {why}")
    measure(job.call, flop=step_flop(case.config, case.batch, unmasked=True), threads=threads)
