"""How Numba is put together here: what it does to a function, less what our functions have no use for.

A training step is some 170 functions, of which Python calls one. Two thirds of the time that it takes to compile are
Numba's own, in Python, and the rest LLVM's. What is left out below changes no instruction of what comes out.
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
    tree of kernels the first is for nothing, and takes half of the time.

    In both, closures and expressions of whole arrays are not looked for (a tenth of the time): kernels have none. One
    with a closure would not compile; one that adds arrays would make a temporary for each operation.
    """
    try:
        from numba.core.codegen import JITCodeLibrary
        from numba.core.compiler import CompilerBase, DefaultPassBuilder
        from numba.core.compiler_machinery import register_pass
        from numba.core.typed_passes import NativeLowering, NopythonRewrites
        from numba.core.untyped_passes import InlineClosureLikes

        class Linked(JITCodeLibrary):
            def _optimize_final_module(self) -> None:
                pass

            def _finalize_final_module(self) -> None:
                self._finalize_dynamic_globals()
                self._finalized = True

            def get_pointer_to_function(self, name: str) -> int:
                self._ensure_finalized()
                return 0

            @property
            def codegen(self) -> Any:
                return _NoEnvironment

        @register_pass(mutates_CFG=True, analysis_only=False)
        class LinkedLowering(NativeLowering):
            _name = "lowering for callers alone"

            def run_pass(self, state: Any) -> Any:
                state.library = Linked(state.targetctx.codegen(), state.func_id.func_qualname)
                return super().run_pass(state)

        class PlainCompiler(CompilerBase):
            def define_pipelines(self) -> Any:
                passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
                if not self.state.flags.auto_parallel.enabled:  # a `prange` is made of both
                    unused = (InlineClosureLikes, NopythonRewrites)
                    passes.passes = [(each, why) for each, why in passes.passes if each not in unused]
                passes.finalize()
                return [passes]

        class LinkedCompiler(PlainCompiler):
            def define_pipelines(self) -> Any:
                (passes,) = super().define_pipelines()
                passes.passes = [(LinkedLowering if p is NativeLowering else p, why) for p, why in passes.passes]
                passes.finalize()
                return [passes]

        replaced = [name for name in vars(Linked) if not name.startswith("__")]
        known = all(hasattr(JITCodeLibrary, name) for name in (*replaced, "_finalize_dynamic_globals"))
    except ImportError:
        known = False
    # a Numba that is put together otherwise compiles every function by itself too; nothing else changes
    return ({"pipeline_class": PlainCompiler}, {"pipeline_class": LinkedCompiler}) if known else ({}, {})


class _NoEnvironment:
    """What only linked code has in place of Python objects that it might refer to: it refers to none."""

    @staticmethod
    def set_env(name: str, environment: Any) -> None:
        pass


_pauses, _collects, _counting = 0, False, threading.Lock()


@contextmanager
def without_collection() -> Iterator[None]:
    """Python looks for no cycles meanwhile, which costs a tenth of compiling: what Numba makes lives to the end anyway.

    Several threads may be within; the last to leave lets Python look again, if it did before.
    """
    global _pauses, _collects
    with _counting:
        if _pauses == 0:
            _collects = gc.isenabled()
            gc.disable()
        _pauses += 1
    try:
        yield
    finally:
        with _counting:
            _pauses -= 1
            if _pauses == 0 and _collects:
                gc.enable()
