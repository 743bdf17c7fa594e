"""What this machine can do: its measured sgemm peak, and timing of several things in turn."""

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fastpe.kernels import arrays
from fastpe.kernels._jit import entry
from fastpe.kernels.gemm import gemm
from fastpe.kernels.simd import pointer


@entry
def _repeat_gemm(a, b, c, times):
    n = a.shape[0]
    for _ in range(times):
        gemm(
            pointer(a), n, 1, pointer(b), n, pointer(c), n, n, n, n, np.int64(0), pointer(c), 0, pointer(c), 0,
        )  # fmt: skip


def sgemm_peak() -> tuple[float, float]:
    """Best GFLOP/s of one core: our micro-kernel in cache, and NumPy's BLAS (as many threads as it is set to)."""
    n, times = 96, 200
    a, b = (np.random.default_rng(k).random((n, n), np.float32) for k in (0, 1))
    c = arrays.gemm(a, b)
    np.testing.assert_allclose(c, a @ b, rtol=1e-4)
    ours = 2 * n**3 * times / min(in_turn({"": lambda: _repeat_gemm(a, b, c, times)}, 30)[""]) / 1e9
    big = np.random.default_rng(2).random((1024, 1024), np.float32)
    blas = 2 * 1024**3 / min(in_turn({"": lambda: big @ big}, 20)[""]) / 1e9
    return ours, blas


def in_turn(candidates: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Seconds of each call, the candidates one after the other in every round, after two rounds that do not count."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(rounds + 2):
        for name, call in candidates.items():
            start = time.perf_counter()
            call()
            elapsed = time.perf_counter() - start
            if turn >= 2:
                seconds[name].append(elapsed)
    return seconds
