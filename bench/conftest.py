"""Settings of all benchmarks: compiled beforehand, garbage collector off, one thread unless a test says otherwise."""

import pytest

collect_ignore = ["torch_train.py"]  # a program for the extra `peers`


@pytest.fixture
def measure(benchmark):
    """Call `measure(function, flop=..., bytes=...)`: warmed up, then timed; FLOPs and bytes go into `extra_info`."""

    def run(function, *arguments, flop=0, bytes_moved=0):
        benchmark.extra_info.update(flop=flop, bytes=bytes_moved)
        result = benchmark.pedantic(function, arguments, rounds=30, iterations=3, warmup_rounds=3)
        if benchmark.stats is not None:  # None with --benchmark-disable
            best = benchmark.stats.stats.min
            benchmark.extra_info.update(gflops=flop / best / 1e9, gigabytes_per_second=bytes_moved / best / 1e9)
        return result

    return run
