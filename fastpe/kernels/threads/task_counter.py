"""The counters by which workers share out tasks (see `threads.team`).

Two counters, each alone on its cache line: tasks claimed, and tasks finished.
"""

import os

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.simd.pointers import element

COUNTERS = 24  # elements: its counters with their cache lines
_FINISHED, _ONE, _LOW = np.int64(8), np.int64(1), np.int64(2**32 - 1)
_PATIENCE = 2000  # looks at the counter, some microseconds, before a waiting worker offers its core to others
_YIELD = "SwitchToThread" if os.name == "nt" else "sched_yield"


@intrinsic
def _fetch_add(typingctx, p, offset, step):
    """Add to a counter that workers share; returns what it was."""

    def emit(context, b, signature, arguments):
        p, offset, step = arguments
        return b.atomic_rmw("add", element(b, p, offset), step, "acq_rel")

    return types.int64(p, types.intp, types.int64), emit


@intrinsic
def shared_count(typingctx, p, offset):
    """A counter that workers share, and all that was written before it came to that."""

    def emit(context, b, signature, arguments):
        return b.load_atomic(element(b, *arguments), "acquire", 8)

    return types.int64(p, types.intp), emit


@intrinsic
def _give_way(typingctx):
    """Let another thread have this core."""

    def emit(context, b, signature, arguments):
        function = cgutils.get_or_insert_function(b.module, ir.FunctionType(ir.IntType(32), []), _YIELD)
        b.call(function, [])
        return context.get_dummy_value()

    return types.void(), emit


@inner
def next_task(counters):
    """The number of a task that is now the caller's to run; past the last task there is nothing left to do."""
    return _fetch_add(counters, np.int64(0), _ONE)


@inner
def next_task_from_ends(counters, worker, tasks):
    """As `next_task`, where no task is later than another: every other worker begins with the last ones, so that two
    keep to halves, as the threads of others do that wrote what tasks read. Below 2^31 tasks."""
    back = worker & 1
    claimed = _fetch_add(counters, np.int64(0), _ONE << (32 * back))
    front, last = claimed & _LOW, claimed >> 32
    if front + last >= tasks:
        return tasks
    return tasks - 1 - last if back else front


@inner
def finish(counters):
    """Tell the other workers that a claimed task is done, and let them see what it wrote."""
    _fetch_add(counters, _FINISHED, _ONE)


@inner
def wait_for(counters, tasks):
    """Return when so many tasks are finished, and all that they wrote can be read."""
    wait_for_ticket(counters, _FINISHED, tasks)


@inner
def wait_for_ticket(turns, place, turn):
    """Return when the shared counter at `place` has come to `turn`: what is added up in turns has one order."""
    looks = 0
    while shared_count(turns, place) < turn:
        looks += 1
        if looks > _PATIENCE:
            _give_way()


@inner
def pass_ticket(turns, place):
    """Let the next one have its turn."""
    _fetch_add(turns, place, _ONE)
