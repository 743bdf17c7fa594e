"""Settings of all benchmarks: warm up, use one thread unless a test sets more, and report the share of the peak."""

from functools import cache
from time import perf_counter

import pytest

from fastpe.doctor import probe

# scripts that need the extra `peers`
collect_ignore = ["accuracy.py", "bfloat16.py", "smollm2.py", "torch_gpt.py", "torch_train.py"]

peak = cache(probe.sgemm_peak)
_WARM_CALLS, _LONG = 3, 0.1  # warm-up calls; a single call that takes this many seconds is enough


@pytest.fixture
def measure(benchmark):
    """`measure(function, *arguments, flop=..., bytes_moved=..., threads=...)` warms up and times a call of a function.

    Timing lasts ``--benchmark-max-time``, with at least ``--benchmark-min-rounds`` rounds. `extra_info` receives FLOPs,
    bytes, their rates, and the share of this machine's sgemm peak.
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
