"""Time the whole main job, `fastpe train`, and the same in PyTorch eager, bench/torch_train.py.

    python bench/protocol.py [TIMES]

The two programs alternate, each in a separate process. `fastpe bench step` compares single steps.
"""

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def protocol(times: int) -> None:
    """Run both programs `times` times, and print their seconds."""
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
    protocol(int(sys.argv[1]) if len(sys.argv) > 1 else 1)
