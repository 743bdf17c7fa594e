"""fastpe beside PyTorch eager: the training step, and the whole protocol as a user starts it.

    python bench/side_by_side.py                 the step, on 1 thread and on all cores
    python bench/side_by_side.py --protocol 3    `fastpe train --encoding wavelet` and bench/torch_train.py, 3 times

The two take turns, each in a process of its own: in one process their two OpenMP pools fight for the cores, which made
PyTorch's step on 2 threads 1.7 times as long.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

from peers import torch_step
from test_step import CONFIGS, batch_of, step_flop

from fastpe import Transformer
from fastpe.speed import blas_peak, in_turn, sgemm_peak
from fastpe.transformer import Adam

TURNS = 3


def measure(library: str, name: str, threads: int, rounds: int) -> float:
    """Milliseconds of the fastest of `rounds` steps in this process."""
    config = CONFIGS[name]
    x, y = batch_of(config)
    model = Transformer(config)
    if library == "torch":
        step = torch_step(model, x, y, threads)
    else:
        adam = Adam(model)

        def step() -> float:
            return adam.step(x, y, threads=threads)

    return min(in_turn({library: step}, rounds)[library]) * 1e3


def elsewhere(library: str, name: str, threads: int, rounds: int) -> float:
    """`measure` in a process of its own."""
    command = [sys.executable, __file__, "--measure", library, name, str(threads), "--rounds", str(rounds)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def steps(rounds: int) -> None:
    """Print a line for every model and number of threads."""
    peak = sgemm_peak(1)
    print(f"sgemm peak of one core: {peak:.0f} GFLOP/s in cache (ours); NumPy's BLAS: {blas_peak(1):.0f}")
    print(f"{'step':14}{'threads':>8}{'fastpe ms':>11}{'torch ms':>10}{'ratio':>7}{'% of peak':>11}")
    libraries = ["fastpe", *(["torch"] if find_spec("torch") else [])]
    for name, config in CONFIGS.items():
        flop = step_flop(config, len(batch_of(config)[0]))
        for threads in sorted({1, os.cpu_count() or 1}):
            best = {library: float("inf") for library in libraries}
            for _ in range(TURNS):
                for library in libraries:
                    best[library] = min(best[library], elsewhere(library, name, threads, rounds))
            torch_ms, ours = best.get("torch", float("nan")), best["fastpe"]
            share = flop / ours / 1e6 / (peak * threads)
            print(f"{name:14}{threads:8}{ours:11.2f}{torch_ms:10.2f}{torch_ms / ours:7.2f}{share:11.0%}", flush=True)
    if len(libraries) == 1:
        print("PyTorch is not installed (extra `peers`): only fastpe was timed")


def protocol(times: int) -> None:
    """Print the seconds of both programs, `times` times."""
    threads = str(os.cpu_count() or 1)
    peer = [sys.executable, str(Path(__file__).with_name("torch_train.py")), "--threads", threads]
    for turn in range(times):
        with tempfile.TemporaryDirectory() as folder:
            ours = [
                sys.executable, "-m", "fastpe", "train", "--encoding", "wavelet", "--threads", threads,
                "--out", str(Path(folder) / "run"),
            ]  # fmt: skip
            seconds = []
            for command in (ours, peer):
                start = time.perf_counter()
                subprocess.run(command, check=True, capture_output=True)
                seconds.append(time.perf_counter() - start)
        ratio = seconds[1] / seconds[0]
        print(f"run {turn + 1}: fastpe {seconds[0]:.1f} s, PyTorch {seconds[1]:.1f} s, ratio {ratio:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--protocol", type=int, metavar="TIMES")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument(
        "--measure", nargs=3, metavar=("LIBRARY", "MODEL", "THREADS"), help="one number, in this process"
    )
    arguments = parser.parse_args()
    if arguments.measure:
        print(measure(arguments.measure[0], arguments.measure[1], int(arguments.measure[2]), arguments.rounds))
    elif arguments.protocol:
        protocol(arguments.protocol)
    else:
        steps(arguments.rounds)
