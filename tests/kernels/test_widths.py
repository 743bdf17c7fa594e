"""The kernels and a whole step, built for CPUs older than this one: 32 and 16 bytes a register."""

import json
import os
import platform
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from fastpe.doctor.kernel_checks import KERNELS
from fastpe.kernels import simd

OLDER = {
    32: (
        "haswell",
        "+avx2,+fma,+avx,+sse4.2,+sse4.1,+ssse3,+sse3,+sse2,+sse,+popcnt",
        ["kernel attention float32", "kernel attention_vjp float32", "step tokens float32"],
    ),
    16: ("generic", "+sse2,+sse", ["kernel attention float64"]),
}  # the name alone would keep this CPU's own features
SMALL = [f"kernel {each}" for each in KERNELS if not each.startswith("attention")]


def examine(width):
    """Every small kernel in both dtypes; of what takes long to compile the width's own."""
    name, features, large = OLDER[width]
    command = [sys.executable, "-m", "fastpe", "doctor", "--json", *(f"--only={title}" for title in SMALL + large)]
    environment = {**os.environ, "NUMBA_CPU_NAME": name, "NUMBA_CPU_FEATURES": features}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


@pytest.mark.full("starts processes")
@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="names features of x86")
@pytest.mark.skipif(simd.REGISTER_BYTES < 32, reason="this CPU has no wider registers to do without")
def test_narrower_registers_give_right_results():
    widths = [width for width in OLDER if width < simd.REGISTER_BYTES]
    with ThreadPoolExecutor() as pool:
        for width, found in zip(widths, pool.map(examine, widths), strict=True):
            assert found["cpu"]["register_bytes"] == width
            assert found["passed"]
            assert len(found["checks"]) > 30
