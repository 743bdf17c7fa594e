"""Start Numba's threads, with settings that tell GNU OpenMP how idle threads wait for work. The settings of other
libraries in the process are not changed."""

import ctypes
import os
from importlib import import_module

import numba
from numba.np.ufunc import parallel

_WAITING = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "10000"}
_SHARED = {"max_threads": "num_threads", "max_active_levels": "max_active_levels"}  # omp_get_{key}, omp_set_{value}


def start_threads() -> None:
    """Start Numba's threads so that idle ones sleep, unless the user's `OMP_WAIT_POLICY` or `GOMP_SPINCOUNT` say
    otherwise.

    By default OpenMP's idle threads spin. When another process needed a core, the median training step with spinning
    threads took 2.3 times as long as with one thread. But a sleeping thread takes 60 microseconds to wake, a spinning
    thread 4, and calls often follow each other closely. So GNU's threads spin for a quarter of a millisecond, and then
    sleep. This is set by environment variables, which an OpenMP library reads once, when it is loaded. They are removed
    afterwards, so that other OpenMP libraries in the process do not see them.
    """
    # Replace a lock that an interrupted earlier start may have left taken. It is private to Numba; in a version without
    # this lock, the assignment has no effect.
    parallel._backend_init_process_lock = None
    own = {} if _WAITING.keys() & os.environ.keys() else _WAITING
    try:
        for name, value in own.items():
            os.putenv(name, value)  # not os.environ, whose Python code an interrupt may leave halfway
        _start_and_leave_openmp_as_it_is()
    finally:
        for name in own:
            os.unsetenv(name)


def _start_and_leave_openmp_as_it_is() -> None:
    """Start Numba's threads, and restore OpenMP's settings: Numba sets the number of threads, and allows nested
    threads, for all users of OpenMP in the process. With nested threads, PyTorch took up to six times as long."""
    openmp = _openmp()
    before = {} if openmp is None else {own: getattr(openmp, f"omp_get_{said}")() for said, own in _SHARED.items()}
    try:
        numba.get_num_threads()
    finally:
        for own, number in before.items():
            getattr(openmp, f"omp_set_{own}")(number)


def _openmp() -> ctypes.CDLL | None:
    """Return the OpenMP library that Numba's threads use, or None. As in the dynamic loader, a library whose symbols
    are globally visible comes first."""
    try:
        pool = import_module("numba.np.ufunc.omppool").__file__
        libraries = map(ctypes.CDLL, (None, pool))
        return next(own for own in libraries if all(hasattr(own, f"omp_set_{name}") for name in _SHARED.values()))
    except (ImportError, OSError, TypeError, StopIteration):  # Windows has no name for globally visible symbols
        return None
