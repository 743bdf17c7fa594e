"""Threads, which divide the work of a kernel among cores. Only this module starts threads.

A batch is cut into numbered *tasks*, which depend only on its shape. Threads, called *workers*, claim tasks one after
the other from a shared counter (`threads.task_counter`), so that a core that another process uses runs fewer tasks.
Results do not depend on which worker runs a task. A task of a later phase waits until all tasks of earlier phases are
finished:

    @inner
    def _work(worker, counters, x, ...):
        while True:
            task = next_task(counters)
            if task >= all_tasks: break
            if task >= first_phase: wait_for(counters, first_phase)
            ...
            finish(counters)
        wait_for(counters, all_tasks)

    @entry
    def work(team, counters, x, ...):
        on_team(team, _work, (pointer(counters), x, ...))

    run_exclusively(threads, work, x, ...)

A worker waits only for tasks that other workers have claimed and are running, so any number of workers, including one,
makes progress. Only `_all_workers` contains a `prange`, because Numba compiles a function with a `prange` twice."""

from collections.abc import Callable
from contextvars import ContextVar
from functools import cache
from typing import Any, NamedTuple

import numba
import numpy as np
from llvmlite import ir
from numba import prange, types
from numba.core import cgutils
from numba.extending import intrinsic
from numba.np.ufunc import parallel

from fastpe.base import forks
from fastpe.base.guard import OneAtATime
from fastpe.base.validation import whole
from fastpe.kernels.compile.decorators import entry
from fastpe.kernels.simd import aligned_zeros
from fastpe.kernels.simd.pointers import check_status
from fastpe.kernels.threads.openmp import start_threads
from fastpe.kernels.threads.task_counter import COUNTERS

_LITTLE = 2**18
_MOST_THREADS = 1024  # with tens of thousands, the process ends without a message
_most = ContextVar("_most", default=_MOST_THREADS)
_I32, _I64 = ir.IntType(32), ir.IntType(64)
_RUNS_WORKERS = types.void(types.intp, types.intp, types.intp, types.intp)  # signature of `_all_workers`


def threads_for(threads: int | None) -> int:
    """Check a number of threads and return it. None stands for `default_threads`."""
    if threads is None:
        return default_threads()
    return whole("threads", threads, 1, _MOST_THREADS)


def default_threads() -> int:
    """Return the number of threads for calls that do not state it: `numba.get_num_threads()`, by default all cores."""
    if not (_threads_started or getattr(parallel, "_is_initialized", False)):
        return int(numba.config.NUMBA_NUM_THREADS)  # asking Numba would start the threads
    # `numba.get_num_threads` first takes a lock in Python, which an interrupt may leave taken. Private to Numba: the
    # same function without the lock, and `_is_initialized`; without these names, the public functions are called.
    return int(getattr(parallel, "_get_num_threads", numba.get_num_threads)())


def workers_for(work: int, tasks: int) -> int:
    """Return the number of workers for `work` multiplications that are divided into `tasks` tasks. It is 1 if there is
    little work, because waking another worker would take longer than the work."""
    if tasks < 2 or work <= _LITTLE:
        return 1
    return min(_most.get(), tasks, default_threads())


class at_most:
    """A context in which `workers_for` returns at most this number, such as a framework's number of threads."""

    def __init__(self, threads: int) -> None:
        self._threads = threads

    def __enter__(self) -> None:
        self._before = _most.set(self._threads)

    def __exit__(self, *_: object) -> None:
        _most.reset(self._before)


# ---------------------------------------------------------------------------------------------------------------------
# Running workers


class Team(NamedTuple):
    """A team: the address of the machine code that runs all workers, the number of workers, and the number of Numba's
    threads that run them."""

    run: int
    workers: int
    threads: int


_threads_started = False
_team_lock = OneAtATime()
_counters = aligned_zeros(COUNTERS, np.int64)
_ALONE = Team(0, 1, 1)


def run_exclusively(threads: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of an entry ``function(team, counters, *arguments)``, run with `threads` workers. Only one such
    call runs at a time; others wait.

    Numba's default threading layers abort the process if two threads enter them at once, and kill a child that was
    forked after their first use.
    """
    _refuse_lost_threads()
    with _team_lock:
        team = _team_of(threads)
        _counters[:] = 0
        return function(team, _counters, *arguments)


def _refuse_lost_threads() -> None:
    if forks.threads_lost:
        raise RuntimeError(
            "threads of fastpe, Numba and GNU OpenMP do not survive os.fork(): start worker processes with the 'spawn' "
            "or 'forkserver' method"
        )


def _team_of(workers: int) -> Team:
    """Return the team with this many workers. The caller must hold `_team_lock`."""
    global _threads_started
    if not _threads_started:
        start_threads()
        _threads_started = True
    return Team(_address_of_all_workers(), workers, max(1, min(workers, numba.config.NUMBA_NUM_THREADS)))


def run_team(threads: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of an entry, as `run_exclusively` does, if no other call uses the outputs of the entry. With
    one worker, the function runs in the calling thread, possibly at the same time as other calls.
    """
    if threads > 1:
        return run_exclusively(threads, function, *arguments)
    return function(_ALONE, np.zeros(COUNTERS, np.int64), *arguments)


def run_short(workers: int, function: Callable[..., Any], *arguments: Any) -> Any:
    """Return the result of an entry ``function(run, workers, *arguments)`` that needs no counters. In other respects,
    this function is like `run_team`, with at most as many workers as threads.

    This saves time in short calls: Numba takes 3 microseconds to unpack a `Team` and counters, as long as the attention
    of one query over 64 keys.
    """
    if workers == 1:
        return function(0, 1, *arguments)
    _refuse_lost_threads()
    with _team_lock:
        team = _team_of(workers)
        return function(team.run, team.threads, *arguments)


@intrinsic
def _run_worker(typingctx, thunk, record, worker):
    """Call the C function at the address `thunk` with the address of a record and the number of a worker."""

    def emit(context, b, signature, arguments):
        function = b.inttoptr(arguments[0], ir.FunctionType(ir.VoidType(), [_I64, _I64]).as_pointer())
        b.call(function, arguments[1:])
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), emit


@intrinsic
def _exchange_threads(typingctx, threads):
    """Set the number of Numba's threads, and return the previous number.

    This is compiled code, so that no interrupt comes before the number is restored. Numba's own function is not used,
    because the machine code of that function contains a limit for the number: the cache would carry this limit into
    other processes.

    Private to Numba: the symbols `get_num_threads` and `set_num_threads`. Without them, nothing runs on several
    threads.
    """

    def emit(context, b, signature, arguments):
        # Numba declares the result as 64 bits wide, but the C function returns an int, which sets only half of them
        ask = cgutils.get_or_insert_function(b.module, ir.FunctionType(_I64, []), "get_num_threads")
        tell = cgutils.get_or_insert_function(b.module, ir.FunctionType(ir.VoidType(), [_I32]), "set_num_threads")
        before = b.trunc(b.call(ask, []), _I32)
        b.call(tell, [b.trunc(arguments[0], _I32)])
        return b.sext(before, _I64)

    return types.intp(types.intp), emit


@entry(label="the threads", parallel=True)
def _all_workers(thunk, record, workers, threads):
    before = _exchange_threads(threads)
    for worker in prange(workers):
        _run_worker(thunk, record, worker)
    _exchange_threads(before)


@cache
def _address_of_all_workers() -> int:
    """Return the address of the machine code of `_all_workers`. The function is compiled first if necessary. Numba
    never frees the machine code.

    Private to Numba, here and below: its calling convention for compiled functions (`call_conv`, `fndesc`), and the
    library that holds the machine code (`library`). Without these, nothing runs on several threads.
    """
    compiled = _all_workers.get_compile_result(_RUNS_WORKERS)
    return int(compiled.library.get_pointer_to_function(compiled.fndesc.llvm_func_name))


@intrinsic
def on_team(typingctx, team, function, arguments):
    """Call the inner function ``function(worker, *arguments)`` once for each worker of the team, in parallel.

    The arguments (a tuple) are stored in a record on the caller's stack. A small C function, the thunk, reads them and
    calls `function`. `_all_workers` gets only the addresses of the thunk and the record, so it is compiled only once. A
    single worker is the calling thread.

    Workers do not count references to the arrays, because each count takes a locked instruction. The arrays stay alive
    because the caller holds references to them.
    """
    called = function.get_call_type(typingctx, (types.intp, *arguments.types), {})

    def emit(context, b, signature, values):
        run, workers, threads = (b.extract_value(values[0], place) for place in range(3))
        record = cgutils.alloca_once_value(b, _uncounted(b, signature.args[2], values[2]))
        thunk = _thunk_of(context, b.module, function, called, values[2].type)
        _call_workers(context, b, (run, workers, threads), thunk, b.ptrtoint(record, _I64))
        # only the thunk, which Numba does not know, calls `function`: tell Numba that the library is needed
        context.add_linking_libs([function.dispatcher.get_compile_result(called).library])
        return context.get_dummy_value()

    return types.void(team, function, arguments), emit


def _call_workers(context, b, team, thunk, record):
    """Call a thunk once for each worker of a team, with the address of a record. `team` is a tuple of LLVM values."""
    run, workers, threads = team
    kind = context.call_conv.get_function_type(types.void, _RUNS_WORKERS.args)
    result, error = (cgutils.alloca_once(b, place.pointee) for place in kind.args[:2])  # Numba's calling convention
    with b.if_else(b.icmp_signed("==", workers, ir.Constant(_I64, 1))) as (alone, together):
        with alone:
            b.call(thunk, [record, ir.Constant(_I64, 0)])
        with together:
            numbers = [b.ptrtoint(thunk, _I64), record, workers, threads]
            b.call(b.inttoptr(run, kind.as_pointer()), [result, error, *numbers])


def _uncounted(b, kind, value):
    """Return the value with arrays that have no owner of their memory, so that Numba does not count references to
    them."""
    if isinstance(kind, types.Array):
        # private to Numba: the first field of an array is its owner (if it were another field, workers would get null)
        return b.insert_value(value, ir.Constant(value.type.elements[0], None), 0)
    for place, member in enumerate(kind.types if isinstance(kind, types.BaseTuple) else ()):
        value = b.insert_value(value, _uncounted(b, member, b.extract_value(value, place)), place)
    return value


def _thunk_of(context, module, function, called, record_type):
    """Return the C function ``void thunk(address of the record, worker)`` that unpacks the record and
    calls `function`.
    """
    compiled = function.dispatcher.get_compile_result(called)
    name = f"fastpe.worker.{compiled.fndesc.mangled_name}"
    if name in module.globals:
        return module.globals[name]
    thunk = ir.Function(module, ir.FunctionType(ir.VoidType(), [_I64, _I64]), name)
    thunk.linkage = "internal"
    b = ir.IRBuilder(thunk.append_basic_block())
    record, worker = b.inttoptr(thunk.args[0], record_type.as_pointer()), thunk.args[1]
    members = range(len(called.args) - 1)
    values = [worker, *(b.load(cgutils.gep_inbounds(b, record, 0, member)) for member in members)]
    callee = context.declare_function(module, compiled.fndesc)
    status, _ = context.call_conv.call_function(b, callee, called.return_type, called.args, values)
    check_status(b, status.is_error)
    b.ret_void()
    return thunk
