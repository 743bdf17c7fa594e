"""The training step of every model of `fastpe bench step`, beside PyTorch eager, on one thread and on two.

Both run in this process, where their pools of threads can disturb each other: `fastpe bench step` keeps them apart.
"""

import pytest

from fastpe.benchmarks import jobs
from fastpe.benchmarks.models import CASES, step_flop


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("library", ["fastpe", "eager"])
@pytest.mark.benchmark(group="step")
def test_step(measure, library, name, threads):
    case = CASES[name]
    try:
        job = jobs.step(library, name, threads, jobs.expected_losses(case))
    except jobs.Absent as why:
        pytest.skip(f"{library}: {why}")
    measure(job.call, flop=step_flop(case.config, case.batch), threads=threads)
