"""GNU OpenMP: how Numba's threads wait for work, chosen once, when they start, and without a change to those of other
libraries; and lanes on the threads of another one (`team_of`)."""

import ctypes
import os
from functools import cache
from importlib import import_module
from typing import Any

import numba
from llvmlite import binding, ir
from numba import types
from numba.core import cgutils
from numba.core.registry import cpu_target
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
    parallel._backend_init_process_lock = None  # an interrupt of an earlier start may have left it taken; made anew
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


# ---------------------------------------------------------------------------------------------------------------------
# Lanes on another library's threads

RUNS_LANES = types.void(types.intp, types.intp, types.intp, types.intp)
"""What runs lanes: of a thunk and a record (`threads.call_lanes`), the number of lanes, and that of threads."""

_NEEDED = ("GOMP_parallel", "omp_get_thread_num", "omp_get_num_threads")
_I32, _I64 = ir.IntType(32), ir.IntType(64)
_WORK = ir.LiteralStructType([_I64] * 3)  # thunk, record, lanes
_engines: list[Any] = []  # to keep their machine code


@cache
def team_of(path: str) -> int:
    """Where machine code lies, as `RUNS_LANES`, of lanes on the threads of the GNU OpenMP that was loaded from this
    file; 0 where none was.

    Idle threads of such a library spin for a while after its own work. Those of Numba would have to share cores with
    them.
    """
    try:
        library = ctypes.CDLL(path, os.RTLD_NOLOAD)
        addresses = [ctypes.cast(getattr(library, name), ctypes.c_void_p).value or 0 for name in _NEEDED]
    except (AttributeError, OSError):  # on Windows nothing is loaded by such a mode
        return 0
    engine = binding.create_mcjit_compiler(
        binding.parse_assembly(str(_team(*addresses))), binding.Target.from_default_triple().create_target_machine()
    )
    engine.finalize_object()
    _engines.append(engine)
    return int(engine.get_function_address("run"))


def _team(start: int, number: int, count: int) -> ir.Module:
    """The code: `run` starts a team of threads, each of which is a `member`."""
    module = ir.Module()
    module.triple = binding.get_process_triple()
    address, nothing, of_member = ir.IntType(8).as_pointer(), ir.VoidType(), (ir.IntType(8).as_pointer(),)
    member = ir.Function(module, ir.FunctionType(nothing, of_member), "member")
    b = ir.IRBuilder(member.append_basic_block())
    work = b.load(b.bitcast(member.args[0], _WORK.as_pointer()))
    thunk, record, lanes = (b.extract_value(work, place) for place in range(3))
    own, step = (b.sext(b.call(_at(b, each, _I32, []), []), _I64) for each in (number, count))
    with cgutils.for_range_slice(b, own, lanes, step, intp=_I64) as (lane, _):
        called = b.inttoptr(thunk, ir.FunctionType(nothing, [_I64, _I64]).as_pointer())
        b.call(called, [record, lane])
    b.ret_void()
    context = cpu_target.target_context
    run = ir.Function(module, context.call_conv.get_function_type(types.void, RUNS_LANES.args), "run")
    b = ir.IRBuilder(run.append_basic_block())
    *_, thunk, record, lanes, threads = run.args
    work = cgutils.alloca_once_value(b, cgutils.pack_struct(b, [thunk, record, lanes]))
    team = _at(b, start, nothing, [member.type, address, _I32, _I32])
    b.call(team, [member, b.bitcast(work, address), b.trunc(threads, _I32), ir.Constant(_I32, 0)])
    b.ret(ir.Constant(_I32, 0))
    return module


def _at(b: ir.IRBuilder, address: int, result: ir.Type, arguments: list[ir.Type]) -> ir.Value:
    """The function at an address."""
    return b.inttoptr(ir.Constant(_I64, address), ir.FunctionType(result, arguments).as_pointer())
