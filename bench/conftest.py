"""Settings of all benchmarks: compiled beforehand, one thread unless a test says otherwise; figures beside the peak."""

from functools import cache

import pytest

from fastpe.doctor import probe

collect_ignore = ["bfloat16.py", "torch_gpt.py", "torch_train.py"]  # programs for the extra `peers`

peak = cache(probe.sgemm_peak)


@pytest.fixture
def measure(benchmark):
    """Call `measure(function, flop=..., bytes_moved=..., threads=...)`: warmed up, then timed, for as long as
    ``--benchmark-max-time`` says, but five rounds at least.

    FLOPs, bytes, their rates, and the share of the machine's own sgemm peak go into `extra_info`.
    """

    def run(function, *arguments, flop=0, bytes_moved=0, threads=1):
        benchmark.extra_info.update(flop=flop, bytes=bytes_moved)
        for _ in range(3):
            function(*arguments)
        result = benchmark(function, *arguments)
        if benchmark.stats is not None:  # None with --benchmark-disable
            best = benchmark.stats.stats.min
            gflops = flop / best / 1e9
            benchmark.extra_info.update(gflops=gflops, gigabytes_per_second=bytes_moved / best / 1e9)
            if flop:
                benchmark.extra_info.update(of_peak=gflops / peak(threads))
        return result

    return run
