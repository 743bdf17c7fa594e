"""Settings of all benchmarks: compiled beforehand, one thread unless a test says otherwise; figures beside the peak."""

from functools import cache
from time import perf_counter

import pytest

from fastpe.doctor import probe

collect_ignore = ["accuracy.py", "bfloat16.py", "torch_gpt.py", "torch_train.py"]  # programs for the extra `peers`

peak = cache(probe.sgemm_peak)
_WARM_CALLS, _LONG = 3, 0.1  # calls beforehand, but one alone that takes so many seconds: it was long enough


@pytest.fixture
def measure(benchmark):
    """Call `measure(function, flop=..., bytes_moved=..., threads=...)`: warmed up, then timed, for as long as
    ``--benchmark-max-time`` says, but as many rounds as `--benchmark-min-rounds` at least.

    FLOPs, bytes, their rates, and the share of the machine's own sgemm peak go into `extra_info`.
    """

    def run(function, *arguments, flop=0, bytes_moved=0, threads=1):
        benchmark.extra_info.update(flop=flop, bytes=bytes_moved)
        for _ in range(_WARM_CALLS):
            begun = perf_counter()
            function(*arguments)
            if perf_counter() - begun > _LONG:
                break
        result = benchmark(function, *arguments)
        if benchmark.stats is not None:  # None with --benchmark-disable
            best = benchmark.stats.stats.min
            gflops = flop / best / 1e9
            benchmark.extra_info.update(gflops=gflops, gigabytes_per_second=bytes_moved / best / 1e9)
            if flop:
                benchmark.extra_info.update(of_peak=gflops / peak(threads))
        return result

    return run
