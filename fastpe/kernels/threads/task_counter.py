"""The counters through which workers share tasks (see `threads.team`).

There are two counters, each on a separate cache line: tasks claimed, and tasks finished.
"""

import os

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.simd.pointers import element

COUNTERS = 24  # number of elements: the counters with their cache lines
_FINISHED, _ONE, _LOW = np.int64(8), np.int64(1), np.int64(2**32 - 1)
_PATIENCE = 2000  # reads of the counter, some microseconds, before a waiting worker yields its core
_YIELD = "SwitchToThread" if os.name == "nt" else "sched_yield"


@intrinsic
def _fetch_add(typingctx, p, offset, step):
    """Add `step` to a shared counter, and return its previous value."""

    def emit(context, b, signature, arguments):
        p, offset, step = arguments
        return b.atomic_rmw("add", element(b, p, offset), step, "acq_rel")

    return types.int64(p, types.intp, types.int64), emit


@intrinsic
def shared_count(typingctx, p, offset):
    """Return the value of a shared counter. All that was written before the counter reached this value is visible."""

    def emit(context, b, signature, arguments):
        return b.load_atomic(element(b, *arguments), "acquire", 8)

    return types.int64(p, types.intp), emit


@intrinsic
def _give_way(typingctx):
    """Yield this core to another thread."""

    def emit(context, b, signature, arguments):
        function = cgutils.get_or_insert_function(b.module, ir.FunctionType(ir.IntType(32), []), _YIELD)
        b.call(function, [])
        return context.get_dummy_value()

    return types.void(), emit


@inner
def next_task(counters):
    """Return the number of a task that the caller must run. If it is beyond the last task, nothing is left to do."""
    return _fetch_add(counters, np.int64(0), _ONE)


@inner
def next_task_from_ends(counters, worker, tasks):
    """Return the number of a task, as `next_task` does, for fewer than 2^31 independent tasks. Workers with odd numbers
    start from the last task, all others from the first. Two workers then process one half of the tasks each. Two
    threads of other libraries divide an array in the same way when they write the inputs.
    """
    back = worker & 1
    claimed = _fetch_add(counters, np.int64(0), _ONE << (32 * back))
    front, last = claimed & _LOW, claimed >> 32
    if front + last >= tasks:
        return tasks
    return tasks - 1 - last if back else front


@inner
def finish(counters):
    """Mark a claimed task as finished, and make its results visible to other workers."""
    _fetch_add(counters, _FINISHED, _ONE)


@inner
def wait_for(counters, tasks):
    """Return when `tasks` tasks are finished, and all their results are visible."""
    wait_for_ticket(counters, _FINISHED, tasks)


@inner
def wait_for_ticket(turns, place, turn):
    """Return when the shared counter at `place` has reached `turn`. Such turns let workers add to a sum in a fixed
    order.
    """
    looks = 0
    while shared_count(turns, place) < turn:
        looks += 1
        if looks > _PATIENCE:
            _give_way()


@inner
def pass_ticket(turns, place):
    """Increase the shared counter at `place`, so that the worker that waits for the next turn continues."""
    _fetch_add(turns, place, _ONE)
