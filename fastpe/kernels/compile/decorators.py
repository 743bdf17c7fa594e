"""Decorators for compiled functions: `entry` if Python calls them, `inner` or `inlined` if compiled code calls them."""

from collections.abc import Callable
from typing import Any, TypeVar

import numba

from fastpe.base.shielded import shielded
from fastpe.kernels.compile import cache, switches
from fastpe.kernels.compile.pipeline import compilers, undisturbed

Function = TypeVar("Function", bound=Callable[..., Any])

try:  # private, see `_shield`
    from numba.core.compiler_lock import global_compiler_lock

    _is_compiling: Callable[[], bool] | None = global_compiler_lock.is_locked
except (ImportError, AttributeError):
    _is_compiling = None

# No fast-math: sums keep their written order, so that equal sources give equal bits, and infinity works.
_OPTIONS = {"nogil": True, "error_model": "numpy", **({"boundscheck": True} if switches.CHECK_BOUNDS else {})}
# The checked build uses Numba's default pipeline: it need not compile fast, and with the shorter pipeline some
# functions of the checked build were missing, so that the gradients of attention called address 0.
_WHOLE, _LINKED = ({}, {}) if switches.PLAIN_NUMBA or switches.CHECK_BOUNDS else compilers()


def inner(function: Function) -> Function:
    """Compile a function that only compiled code calls; it becomes part of its callers' machine code."""
    compiled: Function = numba.njit(no_cpython_wrapper=True, no_cfunc_wrapper=True, **_LINKED, **_OPTIONS)(function)
    return compiled


def inlined(function: Function) -> Function:
    """Do the same as `inner`, but always inline the function. This is for parts of loop bodies: a call would cost more
    than the function itself, and would move vectors from registers to memory.
    """
    compiled: Function = numba.njit(
        forceinline=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, **_LINKED, **_OPTIONS
    )(function)  # fmt: skip
    return compiled


def entry(function: Function | None = None, *, label: str = "", parallel: bool = False) -> Any:
    """Compile a function that Python calls, and cache its machine code on disk.

    Parameters
    ----------
    label : str
        Description of the function for `cache.on_compile`; by default the function's name.
    parallel : bool
        Whether the function contains a `numba.prange` (see `kernels.threads.team`).
    """
    if function is None:
        return lambda f: entry(f, label=label, parallel=parallel)
    dispatcher = numba.njit(parallel=parallel, no_cfunc_wrapper=True, **_WHOLE, **_OPTIONS)(function)
    if not numba.config.DISABLE_JIT:
        _keep(dispatcher, cache.Cache(function, label or function.__name__.strip("_").replace("_", " ")))
        _shield(dispatcher)
    return dispatcher


def _keep(dispatcher: Any, kept: cache.Cache) -> None:
    """Make a dispatcher use a cache.

    Private to Numba: a dispatcher looks in its attribute `_cache` before it compiles. Without this attribute, nothing
    is cached.
    """
    if hasattr(dispatcher, "_cache"):
        dispatcher._cache = kept
    elif cache.problem is None:
        cache.problem = "this version of Numba looks for machine code elsewhere"


def _shield(dispatcher: Any) -> None:
    """Keep exceptions of signal handlers out of Numba's compiler. Such an exception would leave the compiler's tables,
    for example the table of known functions, inconsistent.

    Private to Numba: a dispatcher calls `_compile_for_args` if machine code is missing, and the compiler has a lock. If
    one of the two is missing, compilation takes longer, and an interrupt during compilation may leave Numba broken, as
    in any program that uses Numba.
    """
    if _is_compiling is not None and hasattr(dispatcher, "_compile_for_args"):
        compile_quickly = undisturbed()(dispatcher._compile_for_args)
        dispatcher._compile_for_args = shielded(compile_quickly, _is_compiling)
