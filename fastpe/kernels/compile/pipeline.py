"""The compiler pipeline: Numba's passes, except passes that the functions of fastpe do not need.

A training step consists of about 170 functions, and Python calls only one of them. Two thirds of the time to compile a
step are spent in Numba, which is written in Python, and the rest in LLVM. The steps that are left out do not change any
result.

All of this uses private names of Numba, so `pyproject.toml` allows only versions that were tested. If a version lacks
one of the names, everything is compiled with Numba's default pipeline (`FASTPE_PLAIN_NUMBA=1` does the same), which
takes two to three times as long. A version in which one of the names has another meaning must be excluded in
`pyproject.toml`.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def compilers() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of `numba.njit` for functions that Python calls, and for functions that only compiled code
    calls.

    A function that only compiled code calls is typed and lowered, but not compiled to separate machine code. By default
    Numba optimises and assembles every function separately, and optimises it again as a part of each caller. The
    separate code of functions in a deep call tree is not used, and producing it takes half of the time. Here, the code
    of a function that only compiled code calls is also not copied into each of its callers. Instead, a function that
    Python calls links all functions below it once, without the arguments that none of these functions reads
    (`_drop_arguments`).

    A function that only compiled code calls does not count references to its array arguments, because its caller holds
    references to them. This saves a twentieth of the time. Therefore such a function must not create arrays. Nor may it
    return arrays to a function that Python calls, because that function counts references (`_check_ownership`).

    In both kinds, Numba does not search for closures and for expressions of whole arrays, which saves a tenth of the
    time: kernels have neither. A kernel with a closure would not compile, and a kernel that adds whole arrays would
    create a temporary array for each operation.
    """
    try:
        from numba.core.compiler import CompilerBase, DefaultPassBuilder
        from numba.core.compiler_machinery import register_pass
        from numba.core.typed_passes import NativeLowering, NopythonRewrites, NopythonTypeInference
        from numba.core.untyped_passes import InlineClosureLikes

        ownership, (linked_library, whole_library) = _ownership_pass(), _libraries()

        @register_pass(mutates_CFG=True, analysis_only=False)
        class WholeLowering(NativeLowering):
            _name = "lowering with all that is called"

            def run_pass(self, state: Any) -> Any:
                state.library = whole_library(state.targetctx.codegen(), state.func_id.func_qualname)
                state.library.enable_object_caching()  # as Numba does
                return super().run_pass(state)

        @register_pass(mutates_CFG=True, analysis_only=False)
        class LinkedLowering(NativeLowering):
            _name = "lowering for callers alone"

            def run_pass(self, state: Any) -> Any:
                state.library = linked_library(state.targetctx.codegen(), state.func_id.func_qualname)
                return super().run_pass(state)

        nopython_pipeline = DefaultPassBuilder.define_nopython_pipeline

        class PlainCompiler(CompilerBase):
            lowering = WholeLowering

            def define_pipelines(self) -> Any:
                passes = nopython_pipeline(self.state)
                passes.add_pass_after(ownership, NopythonTypeInference)
                if not self.state.flags.auto_parallel.enabled:  # `prange` needs the two passes
                    unused = (InlineClosureLikes, NopythonRewrites)
                    passes.passes = [(each, why) for each, why in passes.passes if each not in unused]
                    passes.passes = [(self.lowering if p is NativeLowering else p, why) for p, why in passes.passes]
                passes.finalize()
                return [passes]

        class LinkedCompiler(PlainCompiler):
            lowering = LinkedLowering

        known = True
    except (ImportError, AttributeError):
        known = False
    # a version of Numba with other internals compiles every function separately as well; results are the same
    linked = {"pipeline_class": LinkedCompiler, "_nrt": False} if known else {}
    return ({"pipeline_class": PlainCompiler}, linked) if known else ({}, {})


def _libraries() -> tuple[type[Any], type[Any]]:
    """Return the library classes for functions that only compiled code calls, and for functions that Python calls."""
    from llvmlite.binding import Linkage
    from numba.core.codegen import JITCodeLibrary

    class Linked(JITCodeLibrary):
        _linking_libraries: list[Any]  # Numba sets both
        _shared_module: Any

        def finalize(self) -> None:
            self._raise_if_finalized()
            self._finalize_dynamic_globals()
            self._finalized = True

        def alone(self) -> Any:
            self._ensure_finalized()
            for function in self._final_module.functions:
                if not function.is_declaration and function.linkage == Linkage.external:
                    function.linkage = Linkage.linkonce_odr
            return self._final_module

        def _get_module_for_linking(self) -> Any:  # called by Numba's own libraries
            if self._shared_module is None:
                self._shared_module = self.alone().clone()
                for library in self._linking_libraries:
                    self._shared_module.link_in(library._get_module_for_linking(), preserve=True)
            return self._shared_module

        def get_pointer_to_function(self, name: str) -> int:
            self._ensure_finalized()
            return 0

        @property
        def codegen(self) -> Any:
            return _NoEnvironment

    class Whole(JITCodeLibrary):
        _linking_libraries: list[Any]

        def finalize(self) -> None:
            self._raise_if_finalized()
            others = []
            for library in _with_those_below(self._linking_libraries, Linked):
                if isinstance(library, Linked):
                    getattr(self, "_reload_init", set()).update(
                        getattr(library, "_reload_init", ())
                    )  # not in Numba 0.61
                    self._final_module.link_in(library.alone(), preserve=True)
                else:
                    others.append(library)
            self._linking_libraries = others
            super().finalize()

        def _optimize_final_module(self) -> None:
            with _drop_arguments(self._final_module, self._codegen):
                super()._optimize_final_module()

    _check_names(JITCodeLibrary, Linked, Whole)
    return Linked, Whole


def _check_names(library: type[Any], *ours: type[Any]) -> None:
    """Raise ImportError if Numba's library class lacks a method that our classes replace or use.

    Attributes that are set when an instance is created, `_final_module` and the lists above, cannot be checked here.
    """
    replaced = {name for kind in ours for name in vars(kind) if not name.startswith("__")} - {"alone"}
    used = {"_raise_if_finalized", "_ensure_finalized", "_finalize_dynamic_globals", "enable_object_caching"}
    if not all(hasattr(library, name) for name in replaced | used):
        raise ImportError("this version of Numba puts its code together differently")


def _with_those_below(libraries: list[Any], kind: type[Any]) -> list[Any]:
    """Return the libraries, and all libraries that they call. Only the calls of libraries of the class `kind` are
    followed. Each library appears once, after all its callers, because LLVM links only code that was called before."""
    found: dict[Any, None] = {}

    def visit(library: Any) -> None:
        if library not in found:
            for below in library._linking_libraries if isinstance(library, kind) else ():
                visit(below)
            found[library] = None

    for library in libraries:
        visit(library)
    return list(reversed(found))


@contextmanager
def _drop_arguments(module: Any, codegen: Any) -> Iterator[None]:
    """Remove the arguments that the functions of a module do not read, and arguments with the same value in all calls.

    The functions of kernels take whole tuples of numbers and pointers, a hundred in total, and most functions read only
    a few of these values. LLVM changes only the arguments of functions with internal linkage, so the functions get
    internal linkage for this step. During the optimisation that follows, they have their previous linkage again: LLVM
    would inline an internal function that is called once, whatever its size, which takes long to compile and makes
    nothing faster.
    """
    from llvmlite.binding import Linkage

    if (found := _argument_passes(codegen)) is None:
        yield
        return
    passes, builder = found
    own = {f.name for f in module.functions if not f.is_declaration and f.linkage == Linkage.linkonce_odr}
    _link_as(Linkage.internal, module, own)
    passes.run(module, builder)
    _link_as(Linkage.linkonce_odr, module, own)
    yield
    _link_as(Linkage.internal, module, own)  # other modules call functions of these names with other arguments


def _argument_passes(codegen: Any) -> tuple[Any, Any] | None:
    """Return LLVM's passes that remove arguments, and the pass builder that runs them; None if this version of Numba
    does not offer them."""
    try:
        from llvmlite.binding.newpassmanagers import create_new_module_pass_manager

        passes, builder = create_new_module_pass_manager(), codegen._pass_builder(opt=0)
        for _ in range(2):  # twice: once a function has lost an argument, its callers may no longer need theirs
            passes.add_ipsccp_pass()
            passes.add_dead_arg_elimination_pass()
            passes.add_argument_promotion_pass()
    except (ImportError, AttributeError):  # Numba 0.61
        return None
    return passes, builder


def _link_as(linkage: Any, module: Any, names: set[str]) -> None:
    for function in module.functions:
        if function.name in names:
            function.linkage = linkage


def _ownership_pass() -> type:
    """Return `_check_ownership` as a pass of Numba."""
    from numba.core.compiler_machinery import AnalysisPass, register_pass

    @register_pass(mutates_CFG=False, analysis_only=True)
    class Ownership(AnalysisPass):
        _name = "who owns arrays"

        def __init__(self) -> None:  # abstract in Numba's class
            pass

        def run_pass(self, state: Any) -> bool:
            _check_ownership(state)
            return False

    return Ownership


def _check_ownership(state: Any) -> None:
    """Raise TypeError if a function gets an array from a function that it calls, and only one of the two functions
    counts references to arrays. The count of such an array would be wrong."""
    from numba.core import ir, types

    models, counts = state.targetctx.data_model_manager, bool(state.flags.nrt)
    for call, signature in state.calltypes.items():
        if isinstance(call, ir.Expr) and call.op == "call" and models[signature.return_type].contains_nrt_meminfo():
            callee = state.typemap[call.func.name]
            if isinstance(callee, types.Dispatcher) and callee.dispatcher.targetoptions.get("_nrt", True) != counts:
                names = state.func_id.func_qualname, callee.dispatcher.py_func.__name__
                raise TypeError("{} takes arrays from {}, but only one of them counts references".format(*names))


class _NoEnvironment:
    """Replaces Numba's object for environments in code that is only linked: such code refers to no Python objects."""

    @staticmethod
    def set_env(name: str, environment: Any) -> None:
        pass


_within, _collects, _counting = 0, False, threading.Lock()
_clocks: list[Any] = []


@contextmanager
def undisturbed() -> Iterator[None]:
    """Turn off garbage collection and the timing of LLVM's calls during a compilation. Collection takes a tenth of the
    time, and the objects that Numba creates live to the end of the process anyway. Timing takes a twentieth: each call
    is timed by the timers of all functions in its call stack.

    Several threads may use this context at the same time; the last thread to leave it turns both on again.
    """
    global _within, _collects
    with _counting:
        if _within == 0:
            _collects = gc.isenabled()
            gc.disable()
            _clocks.extend(_timed())
            _timed().clear()
        _within += 1
    try:
        yield
    finally:
        with _counting:
            _within -= 1
            if _within == 0:
                _timed().extend(_clocks)
                _clocks.clear()
                if _collects:
                    gc.enable()


def _timed() -> list[Any]:
    """Return the list of callbacks that llvmlite runs around each call of LLVM. In a version of llvmlite with other
    internals, return an empty list: then all calls are timed as usual."""
    from llvmlite.binding import ffi

    found = getattr(getattr(ffi.lib, "_lock", None), "_cblist", None)
    return found if isinstance(found, list) else []
