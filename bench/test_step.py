"""The training step of every model of `fastpe bench step`, on one thread, beside PyTorch eager, and on two.

In one process two pools of threads disturb each other, so that PyTorch on two threads is left to `fastpe bench step`,
which gives every library a process of its own.
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
