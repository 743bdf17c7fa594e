"""What Numba is spared leaves no trace: the same instructions come out, and Python's collector is as it was before."""

import gc
import re
import threading

import numba
import numpy as np
import pytest

from fastpe.encodings.bias import alibi
from fastpe.kernels import _jit, table
from fastpe.kernels._pipeline import without_collection


def instructions(dispatcher):
    """Machine code of the only specialisation, its names replaced by their order."""
    (text,) = dispatcher.inspect_asm().values()
    names = {}
    return re.sub(r"[.\w$]*_ZN[.\w$]*", lambda found: names.setdefault(found[0], f"name{len(names)}"), text)


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
@pytest.mark.parametrize(
    ("kernel", "arguments"),
    [(table.largest_of, [np.ones(7)]), (alibi._pull_pairs, [np.ones((1, 3)), np.ones((1, 2, 3, 3)), np.ones((2, 2))])],
)
def test_passes_that_are_left_out_change_no_instruction(kernel, arguments):
    both = []
    for spared in (_jit._PLAIN, {}):
        compiled = numba.njit(no_cfunc_wrapper=True, **spared, **_jit._OPTIONS)(kernel.py_func)
        compiled(*arguments)
        both.append(instructions(compiled))
    assert _jit._PLAIN
    assert len(both[0]) > 1000
    assert both[0] == both[1]


def test_the_collector_rests_until_the_last_thread_has_compiled():
    inside, leave = threading.Event(), threading.Event()

    def compile_long():
        with without_collection():
            inside.set()
            leave.wait()

    thread = threading.Thread(target=compile_long)
    assert gc.isenabled()
    thread.start()
    inside.wait()
    with without_collection():
        assert not gc.isenabled()
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    try:
        with pytest.raises(ZeroDivisionError), without_collection():
            _ = 1 / 0
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_compiling_is_without_collection_and_ends_it_after_an_error():
    states = []

    @_jit.entry
    def wrong(x):
        return x.no_such_thing

    original = wrong.targetdescr.typing_context.resolve_getattr
    wrong.targetdescr.typing_context.resolve_getattr = lambda *a: (states.append(gc.isenabled()), original(*a))[1]
    try:
        with pytest.raises(numba.TypingError):
            wrong(np.ones(3))
    finally:
        del wrong.targetdescr.typing_context.resolve_getattr
    assert states
    assert not any(states)
    assert gc.isenabled()
