"""GNU OpenMP: how Numba's threads wait for work, chosen once, when they start, and without a change to those of other
libraries."""

import ctypes
import os
from importlib import import_module

import numba
from numba.np.ufunc import parallel

_WAITING = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "10000"}
_SHARED = {"max_threads": "num_threads", "max_active_levels": "max_active_levels"}  # as OpenMP says and sets them


def start_threads() -> None:
    """Start Numba's threads so that idle ones sleep, unless the user's `OMP_WAIT_POLICY` or `GOMP_SPINCOUNT` say
    otherwise.

    By default OpenMP's spin. Where another process wanted a core, that made the median training step 2.3 times as long
    as on one thread. But one that sleeps takes 60 microseconds to wake, one that spins takes 4, and calls often follow
    each other closely: GNU's spin for a quarter of a millisecond, and then sleep. OpenMP reads the variables once, when
    loaded: other OpenMP libraries here must not see them.
    """
    # an interrupt of an earlier start may have left it taken; made anew. Private: without it nothing changes
    parallel._backend_init_process_lock = None
    own = {} if _WAITING.keys() & os.environ.keys() else _WAITING
    try:
        for name, value in own.items():
            os.putenv(name, value)  # not os.environ, which is Python's: an interrupt may come within
        _start_and_leave_openmp_as_it_is()
    finally:
        for name in own:
            os.unsetenv(name)


def _start_and_leave_openmp_as_it_is() -> None:
    """Numba tells OpenMP its own number of threads, and that threads may start others: which is also told to others
    here. PyTorch took up to six times as long with the latter."""
    openmp = _openmp()
    before = {} if openmp is None else {own: getattr(openmp, f"omp_get_{said}")() for said, own in _SHARED.items()}
    try:
        numba.get_num_threads()
    finally:
        for own, number in before.items():
            getattr(openmp, f"omp_set_{own}")(number)


def _openmp() -> ctypes.CDLL | None:
    """The OpenMP that Numba's threads are of, found as the loader does: what all see comes before its own."""
    try:
        pool = import_module("numba.np.ufunc.omppool").__file__
        libraries = map(ctypes.CDLL, (None, pool))
        return next(own for own in libraries if all(hasattr(own, f"omp_set_{name}") for name in _SHARED.values()))
    except (ImportError, OSError, TypeError, StopIteration):  # on Windows no name stands for what all see
        return None
