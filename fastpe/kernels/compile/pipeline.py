"""How Numba is put together here: what it does to a function, less what our functions have no use for.

A training step is some 170 functions, of which Python calls one. Two thirds of the time that it takes to compile are
Numba's own, in Python, and the rest LLVM's. What is left out below changes no number that comes out.

Private to Numba: all of this, which `pyproject.toml` therefore keeps to versions that it was tried with. Of one where a
name is missing everything is compiled as Numba does it (`FASTPE_PLAIN_NUMBA=1` is the same), which takes two to three
times as long. One where a name means something else must be kept out.
"""

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def compilers() -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of `numba.njit` for a function that Python calls, and for one that only compiled code calls.

    The latter is kept for its callers: typed and lowered, but without machine code of its own. Numba optimises and
    assembles every function for itself, and optimises it again as a part of each caller. For the functions of a deep
    tree of kernels the first is for nothing, and takes half of the time. Nor is it copied into its callers: what Python
    calls takes all functions below it, each once, without the arguments that nobody reads (`_drop_arguments`).

    Nor does it count references to the arrays that it is handed (a twentieth): its caller holds them. So it makes
    none, and hands none back to a function that Python calls, which does count (`_check_ownership`).

    In both, closures and expressions of whole arrays are not looked for (a tenth of the time): kernels have none. One
    with a closure would not compile; one that adds arrays would make a temporary for each operation.
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
                state.library.enable_object_caching()  # as Numba's
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
                if not self.state.flags.auto_parallel.enabled:  # a `prange` is made of both
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
    # a Numba that is put together otherwise compiles every function by itself too; nothing else changes
    linked = {"pipeline_class": LinkedCompiler, "_nrt": False} if known else {}
    return ({"pipeline_class": PlainCompiler}, linked) if known else ({}, {})


def _libraries() -> tuple[type[Any], type[Any]]:
    """What holds the code of functions that only compiled code calls, and of those that Python calls."""
    from llvmlite.binding import Linkage
    from numba.core.codegen import JITCodeLibrary

    class Linked(JITCodeLibrary):
        _linking_libraries: list[Any]  # Numba's
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

        def _get_module_for_linking(self) -> Any:  # by what is compiled otherwise
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
    """Refuse a Numba whose library has not what ours replace and use.

    What it makes when it is made, `_final_module` and the lists above, cannot be asked for here.
    """
    replaced = {name for kind in ours for name in vars(kind) if not name.startswith("__")} - {"alone"}
    used = {"_raise_if_finalized", "_ensure_finalized", "_finalize_dynamic_globals", "enable_object_caching"}
    if not all(hasattr(library, name) for name in replaced | used):
        raise ImportError("this version of Numba puts its code together differently")


def _with_those_below(libraries: list[Any], kind: type[Any]) -> list[Any]:
    """Libraries and all that those of a kind call, each once, after all that call it: LLVM links what is called."""
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
    """What the functions of a module do not read is not handed to them, nor is what it is the same in all calls.

    Ours take whole tuples of numbers and pointers, a hundred in all, of which most read a few. LLVM changes arguments
    only of functions that no other module calls. In between they are what they were: one that is called once would be
    joined to its caller whatever its size, which takes long to compile, and gains nothing.
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
    _link_as(Linkage.internal, module, own)  # other modules have functions of these names with other arguments


def _argument_passes(codegen: Any) -> tuple[Any, Any] | None:
    """LLVM's passes that remove arguments, and what runs them; None if this version of Numba does not offer them."""
    try:
        from llvmlite.binding.newpassmanagers import create_new_module_pass_manager

        passes, builder = create_new_module_pass_manager(), codegen._pass_builder(opt=0)
        for _ in range(2):  # an argument that one function no longer reads may be one that its caller need not get
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
    """`_check_ownership` as a pass of Numba."""
    from numba.core.compiler_machinery import AnalysisPass, register_pass

    @register_pass(mutates_CFG=False, analysis_only=True)
    class Ownership(AnalysisPass):
        _name = "who owns arrays"

        def __init__(self) -> None:  # Numba's is abstract
            pass

        def run_pass(self, state: Any) -> bool:
            _check_ownership(state)
            return False

    return Ownership


def _check_ownership(state: Any) -> None:
    """Refuse calls that hand back arrays from where references are not counted to where they are: they would be taken
    from their owner."""
    from numba.core import ir, types

    models, counts = state.targetctx.data_model_manager, bool(state.flags.nrt)
    for call, signature in state.calltypes.items():
        if isinstance(call, ir.Expr) and call.op == "call" and models[signature.return_type].contains_nrt_meminfo():
            callee = state.typemap[call.func.name]
            if isinstance(callee, types.Dispatcher) and callee.dispatcher.targetoptions.get("_nrt", True) != counts:
                names = state.func_id.func_qualname, callee.dispatcher.py_func.__name__
                raise TypeError("{} takes arrays from {}, which counts no references to them".format(*names))


class _NoEnvironment:
    """What only linked code has in place of Python objects that it might refer to: it refers to none."""

    @staticmethod
    def set_env(name: str, environment: Any) -> None:
        pass


_within, _collects, _counting = 0, False, threading.Lock()
_clocks: list[Any] = []


@contextmanager
def undisturbed() -> Iterator[None]:
    """Python looks for no cycles meanwhile, a tenth of compiling: what Numba makes lives to the end anyway. Nor are
    calls of LLVM timed, each by the clocks of all functions on the way there: a twentieth.

    Several threads may be within; the last to leave lets all be as it was.
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
    """What llvmlite calls around each call of LLVM, itself; of one that is put together otherwise, some other list:
    then all is timed, as it is without us."""
    from llvmlite.binding import ffi

    found = getattr(getattr(ffi.lib, "_lock", None), "_cblist", None)
    return found if isinstance(found, list) else []
