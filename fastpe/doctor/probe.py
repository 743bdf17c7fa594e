"""Measure the speed of matrix products and memory in a few seconds, for `fastpe doctor` and bench/.

Every figure is the best of several rounds, since other processes can only make a round slower.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from fastpe.kernels import simd
from fastpe.kernels.compile.decorators import entry, inner
from fastpe.kernels.products.float_gemm import OVERWRITE
from fastpe.kernels.products.gemm import gemm
from fastpe.kernels.simd import at, get, lanes, load, pointer, put, splat, store, total, zeros
from fastpe.kernels.threads.team import on_team, run_exclusively

SIZE = 96
"""Rows and columns of the matrices of `sgemm_peak`. Each takes 36 KiB, so all three stay in the cache of a core."""
BLAS_ORDER = 1024
"""Rows and columns of the matrices of `blas_peak`."""
BYTES = 2**27
"""Size of the arrays of `bandwidth`, several times that of common caches."""
ONE, NONE = np.int64(1), np.int64(0)
BLAS_THREADS = (
    "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"
)  # fmt: skip
"""Environment variables that set the number of threads of BLAS libraries, which read them when they are loaded."""
_BLAS = "from fastpe.doctor import probe; print(min(probe.in_turn({'': probe.blas_call()}, 15)['']))"
_TIMES = 200
PEAK_FLOP = 2 * SIZE**3 * _TIMES
"""Number of FLOPs in a call of `peak_call`, for each thread."""
_BLOCK = np.int64(256)  # elements; each worker's part of an array starts at a multiple of this number


def in_turn(candidates: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, list[float]]:
    """Return the seconds of each call, for each round. A round runs all calls in order; two more rounds warm up."""
    seconds: dict[str, list[float]] = {name: [] for name in candidates}
    for turn in range(rounds + 2):
        for name, call in candidates.items():
            start = time.perf_counter()
            call()
            elapsed = time.perf_counter() - start
            if turn >= 2:
                seconds[name].append(elapsed)
    return seconds


# ---------------------------------------------------------------------------------------------------------------------
# Matrix products


@inner
def _repeat(worker, a, b, c, n, times):  # type: ignore[no-untyped-def]
    target = at(c, worker * n * n)
    for _ in range(times):
        gemm(a, n, ONE, b, n, target, n, n, n, n, OVERWRITE, target, NONE, target, NONE)


@entry(label="the measurement of sgemm")
def _repeat_gemm(team, counters, a, b, c, times):  # type: ignore[no-untyped-def]
    """Compute `c[worker] = a @ b` on every worker, repeatedly."""
    on_team(team, _repeat, (pointer(a), pointer(b), pointer(c), a.shape[0], times))


def peak_call(threads: int = 1) -> Callable[[], Any]:
    """Return the call that `sgemm_peak` times: `PEAK_FLOP` FLOPs on each thread."""
    a, b = (np.random.default_rng(seed).random((SIZE, SIZE), np.float32) for seed in (0, 1))
    c = simd.aligned_zeros((threads, SIZE, SIZE), np.float32)
    return lambda: run_exclusively(threads, _repeat_gemm, a, b, c, _TIMES)


def sgemm_peak(threads: int = 1) -> float:
    """Return the GFLOP/s of fastpe's float32 micro-kernel on matrices in cache, for a number of threads."""
    seconds = in_turn({"": peak_call(threads)}, 100)[""]
    return PEAK_FLOP * threads / min(seconds) / 1e9


def blas_call() -> Callable[[], Any]:
    """Return the call that `blas_peak` times: NumPy's float32 product of order `BLAS_ORDER`."""
    a = np.random.default_rng(0).random((BLAS_ORDER, BLAS_ORDER), np.float32)
    out = np.empty_like(a)
    return lambda: np.dot(a, a, out=out)


def blas_peak(threads: int = 1) -> float | None:
    """Return the GFLOP/s of NumPy's float32 product of order 1024, or None if it cannot be measured.

    It runs in a separate process, since BLAS libraries read their number of threads only once.
    """
    limits = dict.fromkeys(BLAS_THREADS, str(threads))
    command = [sys.executable, "-P", "-c", _BLAS]
    try:
        done = subprocess.run(command, env={**os.environ, **limits}, capture_output=True, text=True, check=True)
        return 2 * BLAS_ORDER**3 / float(done.stdout) / 1e9
    except (OSError, subprocess.CalledProcessError, ValueError):
        return None


# ---------------------------------------------------------------------------------------------------------------------
# Memory


@inner
def _read(x, start, stop):  # type: ignore[no-untyped-def]
    first, second = zeros(x), zeros(x)
    for j in range(start, stop, 2 * lanes(x)):
        first = first + load(x, j)
        second = second + load(x, j + lanes(x))
    return total(first + second)


@inner
def _write(y, value, start, stop):  # type: ignore[no-untyped-def]
    whole = splat(value)
    for j in range(start, stop, lanes(y)):
        store(y, j, whole)


@inner
def _copy(x, y, start, stop):  # type: ignore[no-untyped-def]
    for j in range(start, stop, lanes(x)):
        store(y, j, load(x, j))


@inner
def _stream_worker(worker, x, y, sums, blocks, workers, reads, writes):  # type: ignore[no-untyped-def]
    start, stop = blocks * worker // workers * _BLOCK, blocks * (worker + 1) // workers * _BLOCK
    if reads and writes:
        _copy(x, y, start, stop)
    elif reads:
        put(sums, worker, _read(x, start, stop))
    else:
        _write(y, get(sums, worker), start, stop)


@entry(label="the measurement of memory")
def _stream(team, counters, x, y, sums, reads, writes):  # type: ignore[no-untyped-def]
    """Read x, write sums[0] to y, or copy x to y. Each worker has one part of the arrays and one entry of `sums`."""
    blocks = x.size // _BLOCK
    on_team(team, _stream_worker, (pointer(x), pointer(y), pointer(sums), blocks, sums.size, reads, writes))


def write_call() -> Callable[[], Any]:
    """Return the call that `bandwidth` times as writing: `BYTES` bytes on one thread."""
    y = simd.aligned_zeros(BYTES // 4, np.float32)
    y[...] = 1.0
    return lambda: run_exclusively(1, _stream, y, y, np.zeros(1, np.float32), False, True)


def bandwidth(threads: int = 1, size: int = BYTES) -> dict[str, float]:
    """Return the GB/s of reading, writing and copying large float32 arrays, for a number of threads.

    As in STREAM (McCalpin 1995), the bytes that the program reads and writes are counted, so a copy counts twice. Cache
    lines that the CPU reads before it writes to them are not counted.
    """
    x, y = (simd.aligned_zeros(int(size // 4 // _BLOCK * _BLOCK), np.float32) for _ in range(2))
    x[...], y[...] = 1.0, 2.0  # the first write to memory allocates its pages
    sums = np.zeros(threads, np.float32)
    ways = {"read": (True, False), "write": (False, True), "copy": (True, True)}
    calls = {name: lambda way=way: run_exclusively(threads, _stream, x, y, sums, *way) for name, way in ways.items()}
    return {name: x.nbytes * sum(ways[name]) / min(seconds) / 1e9 for name, seconds in in_turn(calls, 15).items()}
