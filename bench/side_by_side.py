"""fastpe beside PyTorch eager, in turn in one run: the training step, and the whole protocol as a user starts it.

python bench/side_by_side.py                 the step, on 1 thread and on all cores
python bench/side_by_side.py --protocol 3    `fastpe train --encoding wavelet` and bench/torch_train.py, 3 times each
"""

import argparse
import math
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


def steps(rounds: int) -> None:
    ours, blas = sgemm_peak(), blas_peak()
    print(f"sgemm peak of one core: {ours:.0f} GFLOP/s in cache (ours); NumPy's BLAS: {blas or math.nan:.0f}")
    print(f"{'step':14}{'threads':>8}{'fastpe ms':>11}{'torch ms':>10}{'ratio':>7}{'% of peak':>11}")
    for name, config in CONFIGS.items():
        x, y = batch_of(config)
        for threads in sorted({1, os.cpu_count() or 1}):
            adam = Adam(Transformer(config))
            candidates = {"fastpe": lambda adam=adam, x=x, y=y, threads=threads: adam.step(x, y, threads=threads)}
            if find_spec("torch"):
                candidates["torch"] = torch_step(Transformer(config), x, y, threads)
            best = {library: min(seconds) * 1e3 for library, seconds in in_turn(candidates, rounds).items()}
            share = step_flop(config, len(x)) / best["fastpe"] / 1e6 / (ours * threads)
            torch_ms = best.get("torch", float("nan"))
            beside = f"{torch_ms:10.2f}{torch_ms / best['fastpe']:7.2f}"
            print(f"{name:14}{threads:8}{best['fastpe']:11.2f}{beside}{share:11.0%}")
    if not find_spec("torch"):
        print("PyTorch is not installed (extra `peers`): only fastpe was timed")


def protocol(times: int) -> None:
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
    parser.add_argument("--rounds", type=int, default=200)
    arguments = parser.parse_args()
    if arguments.protocol:
        protocol(arguments.protocol)
    else:
        steps(arguments.rounds)
