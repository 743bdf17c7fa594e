"""What Numba is spared leaves no trace: the same instructions come out, and Python's collector is as it was before."""

import contextlib
import gc
import re
import threading

import numba
import numpy as np
import pytest
from llvmlite.binding import ffi, parse_assembly
from numba.core.registry import cpu_target

from fastpe.encodings.bias import alibi
from fastpe.kernels.compile import decorators, pipeline
from fastpe.kernels.compile.pipeline import undisturbed
from fastpe.kernels.fills import table


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
def test_passes_that_are_left_out_change_no_instruction(kernel, arguments, monkeypatch):
    both = []
    monkeypatch.setattr(pipeline, "_drop_arguments", lambda module, codegen: contextlib.nullcontext())
    for spared in (decorators._WHOLE, {}):
        compiled = numba.njit(no_cfunc_wrapper=True, **spared, **decorators._OPTIONS)(kernel.py_func)
        compiled(*arguments)
        both.append(instructions(compiled))
    assert decorators._WHOLE
    assert len(both[0]) > 1000
    assert both[0] == both[1]


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_inner_functions_are_linked_by_what_is_compiled_otherwise():
    @decorators.inner
    def power(x, times):
        return x**times

    @decorators.inner
    def twice(x, times):
        return power(x, times) + power(x, times + 1)

    assert numba.njit(lambda x, times: twice(x, times))(1.5, 3) == 1.5**3 + 1.5**4


def test_the_collector_rests_until_the_last_thread_has_compiled():
    inside, leave = threading.Event(), threading.Event()

    def compile_long():
        with undisturbed():
            inside.set()
            leave.wait()

    thread = threading.Thread(target=compile_long)
    assert gc.isenabled()
    thread.start()
    inside.wait()
    with undisturbed():
        assert not gc.isenabled()
    assert not gc.isenabled()
    leave.set()
    thread.join()
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off():
    gc.disable()
    try:
        with pytest.raises(ZeroDivisionError), undisturbed():
            _ = 1 / 0
        assert not gc.isenabled()
    finally:
        gc.enable()


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_compiling_is_undisturbed_and_ends_it_after_an_error():
    states = []

    @decorators.entry
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


@decorators.inner
def handed_on(x):
    return x


@decorators.inner
def made_itself():
    return np.zeros(3).sum()


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (handed_on, [np.ones(3)], "takes arrays from handed_on, but only one of them counts references"),
        (made_itself, [], "Only accept returning of array passed into the function"),
    ],
)
def test_who_counts_references_takes_no_arrays_from_who_does_not(function, arguments, message):
    caller = decorators.entry(lambda *arguments: function(*arguments))
    with pytest.raises(Exception, match=message):
        caller(*arguments)


@pytest.mark.skipif(numba.config.DISABLE_JIT, reason="nothing is compiled")
def test_calls_of_llvm_are_timed_again_afterwards():
    clocks = ffi.lib._lock._cblist
    before = list(clocks)
    assert before
    with undisturbed():
        with undisturbed():
            assert clocks == []
        assert clocks == []
    assert clocks == before


_MODULE = """
define linkonce_odr i64 @inner(i64 %read, i64 %unread, i64 %same) {
  %sum = mul i64 %read, %same
  ret i64 %sum
}

define i64 @entry(i64 %x, i64 %y) {
  %first = call i64 @inner(i64 %x, i64 %y, i64 7)
  %second = call i64 @inner(i64 %y, i64 %x, i64 7)
  %both = add i64 %first, %second
  ret i64 %both
}
"""


@pytest.mark.skipif(
    pipeline._argument_passes(cpu_target.target_context.codegen()) is None, reason="this Numba lacks LLVM's passes"
)
def test_arguments_that_are_not_read_and_those_that_are_always_the_same_are_dropped():
    module = parse_assembly(_MODULE)
    with pipeline._drop_arguments(module, cpu_target.target_context.codegen()):
        assert re.search(r"define linkonce_odr .*@inner\((.*)\)", str(module))[1].count("%") == 1
    assert re.search(r"define internal .*@inner\((.*)\)", str(module))[1].count("%") == 1
    assert re.search(r"define i64 @entry\((.*)\)", str(module))[1].count("%") == 2  # Python calls it
    assert str(module).count(", 7\n") == 1  # where it is multiplied by
