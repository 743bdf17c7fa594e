"""Whether this process is a forked child that has lost its parent's threads. This is tracked from the import of fastpe
on."""

import os
import sys
from pathlib import Path

threads_lost = False  # threads of Numba or GNU OpenMP; a child that starts them again is killed or waits forever


def _after_fork_in_child() -> None:
    global threads_lost
    numba = sys.modules.get("numba.np.ufunc.parallel")
    threads_lost = threads_lost or getattr(numba, "_is_initialized", False) or _has_gnu_openmp()


def _has_gnu_openmp() -> bool:
    """Whether GNU OpenMP is loaded, for example by PyTorch. The result does not say whether GNU OpenMP was used.

    Other OpenMP runtimes can start their threads again in a child.
    """
    try:
        return b"libgomp" in Path("/proc/self/maps").read_bytes()
    except OSError:
        return False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
