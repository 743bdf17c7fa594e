"""Interrupts, whenever they come, leave no trace: the next call gives the bits it would have given, in any thread.

A long run by hand: ``python tests/kernels/test_interrupts.py 100000``.
"""

import contextlib
import gc
import random
import signal
import sys
import threading
import time

import numba
import numpy as np
import pytest
from interrupts import Interrupted, interrupted_everywhere
from numba.core import codegen
from numba.np.ufunc import parallel

import fastpe
from fastpe.base import guard
from fastpe.kernels.compile import cache, sources
from fastpe.kernels.compile.decorators import entry
from fastpe.kernels.threads import team as threads
from fastpe.model import adam, transformer

SECONDS, _LEAST = 2.5, 20  # interrupts at least, however long they take


def learner():
    model = fastpe.Transformer(fastpe.ModelConfig("learned", width=8, hidden=8, train_length=4))
    return model, fastpe.Adam(model), np.ones((3, 4), np.float32)


def calls():
    """Short calls of each kind, and what they give where nothing interrupts them."""
    model, optimiser, x = learner()
    q = np.random.default_rng(0).standard_normal((1, 2, 5, 8)).astype(np.float32)

    def gradients():
        out, pullback = fastpe.attention_vjp(q, q, q, causal=True, bias=fastpe.build("alibi", 5, heads=2)["bias"])
        return out, *pullback(out).values()

    def step():
        optimiser.step(x, x)
        return model.loss(x, x)

    fixed = fastpe.Transformer(fastpe.ModelConfig("alibi", width=8, hidden=8, train_length=4))
    same = {
        "attention": gradients,
        "build": lambda: fastpe.build("wavelet", 6, dim=8)["table"],
        "call": lambda: fixed(x),
        "loss_and_grads": lambda: list(fixed.loss_and_grads(x, x)[1].values()),
        "threads": lambda: fixed(x, threads=2),
    }
    return same, step


def bits(values):
    return [np.asarray(value).tobytes() for value in (values if isinstance(values, list | tuple) else [values])]


def in_a_thread(function):
    found = []
    thread = threading.Thread(target=lambda: found.append(function()), daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "another thread waits for ever"
    return found[0]


def stressed(most, seconds):
    """Alarms at drawn moments of short calls, so many or for so long; returns how many there were."""
    draw, seen, moments = random.Random(20250611), 0, {}

    def alarm(*_):
        raise Interrupted

    def timed(call):
        begin = time.perf_counter()
        found = bits(call())
        return found, time.perf_counter() - begin

    same, step = calls()
    step()  # what alarms keep from being compiled, the next call would compile
    expected = {name: timed(call)[0] for name, call in same.items()}
    moments = {name: max(timed(call)[1], 2e-5) for name, call in same.items()}
    before, names = numba.get_num_threads(), [*same]
    collected, gc.callbacks[:] = gc.callbacks[:], []  # others' functions, in which what a handler raises is lost
    old, end = signal.signal(signal.SIGALRM, alarm), time.monotonic() + seconds
    try:
        while seen < most and (seen <= _LEAST or time.monotonic() < end):
            name = draw.choice(names)
            try:
                signal.setitimer(signal.ITIMER_REAL, draw.uniform(1e-6, 1.2 * moments[name]))
                if draw.random() < 0.2:
                    step()
                else:
                    same[name]()
                signal.setitimer(signal.ITIMER_REAL, 0)
            except Interrupted:
                seen += 1
            assert numba.get_num_threads() == before
            if draw.random() < 0.05:
                assert bits(same[name]()) == expected[name], name
            if draw.random() < 0.005:
                assert in_a_thread(lambda name=name: bits(same[name]())) == expected[name], name
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
        gc.callbacks[:] = collected
    for name, call in same.items():
        assert bits(call()) == expected[name], name
        assert in_a_thread(lambda call=call: bits(call())) == expected[name], name
    assert np.isfinite(step())
    return seen


@pytest.mark.full("takes seconds")
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers that raise signals")
# Python drops what a handler raises within a weak reference's callback: such an alarm interrupts nothing
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_alarms_at_any_moment_leave_no_trace():
    assert stressed(3000, SECONDS) > _LEAST


OURS = {each.__file__ for each in (guard, threads, transformer, adam)}


@pytest.mark.full("takes seconds")
def test_an_interrupt_at_any_step_of_a_call_leaves_no_trace():
    """Of a training step, whose update is made whole or not at all, and of a call that asks for another number of
    threads."""
    model, optimiser, x = learner()
    expected, before = bits(model(x)), numba.get_num_threads()
    start = {name: value.copy() for name, value in model.parameters.items()}
    optimiser.step(x, x)
    after = {name: value.copy() for name, value in model.parameters.items()}

    def back():
        for name, value in start.items():
            model.parameters[name][...] = value
        for moments in (optimiser.first, optimiser.second):
            for value in moments.values():
                value[...] = 0
        optimiser.steps = 0

    def check():
        assert numba.get_num_threads() == before
        wanted = after if optimiser.steps else start
        assert all(np.array_equal(value, wanted[name]) for name, value in model.parameters.items())
        back()
        assert bits(model(x)) == expected

    back()
    assert interrupted_everywhere(lambda: optimiser.step(x, x, threads=2), OURS, check) > 300


def test_a_lock_of_numbas_that_an_interrupt_left_taken_stops_no_other_thread():
    """Its functions take one in Python, where an interrupt may come before it is given back."""
    model, _, x = learner()
    expected = bits(model(x))
    with parallel._backend_init_process_lock:
        assert in_a_thread(lambda: bits(model(x))) == expected
        assert in_a_thread(lambda: bits(model(x, threads=2))) == expected


@pytest.fixture
def keeping(tmp_path, monkeypatch):
    """Machine code of tests' own functions is kept, too, in a folder that is empty."""
    monkeypatch.setattr(cache, "folder", tmp_path)
    monkeypatch.setattr(sources, "digest_of", lambda module: "0" * 20)
    return tmp_path


def test_machine_code_that_an_interrupt_kept_from_the_cache_is_used_all_the_same(keeping, monkeypatch):
    """LLVM hands it over in a callback; what is raised in there is lost, and so is what was handed over."""

    @entry
    def doubled(x):
        return 2 * x

    def missing(library):
        raise RuntimeError(f"no compiled object yet for {library}")

    with monkeypatch.context() as patch:
        patch.setattr(codegen.CPUCodeLibrary, "_get_compiled_object", missing)
        assert doubled(3) == 6
        assert not [*keeping.iterdir()]
    assert doubled(4) == 8
    assert doubled(1.5) == 3.0


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers that raise signals")
# Python drops what a handler raises within a weak reference's callback: such an alarm interrupts nothing
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_alarms_while_numba_compiles_leave_it_whole(keeping):
    """Its tables are filled by generators, which an exception within would end for good."""

    def alarm(*_):
        raise Interrupted

    old, seen = signal.signal(signal.SIGALRM, alarm), 0
    try:
        for k in range(12):

            @entry
            def times(x, k=k):
                return k * x

            with contextlib.suppress(Interrupted):
                signal.setitimer(signal.ITIMER_REAL, 0.003 * (k + 1))
                times(3)
                seen -= 1
            seen += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            assert times(3) == 3 * k
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert seen > 3


def test_an_interrupted_compilation_is_made_again(keeping):
    @entry
    def tripled(x):
        return 3 * x

    compiler = tripled._compiler
    compile_once = compiler.compile

    def interrupted(*arguments):
        compiler.compile = compile_once
        raise Interrupted

    compiler.compile = interrupted
    with pytest.raises(Interrupted):
        tripled(2)
    assert tripled(2) == 6


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers that raise signals")
def test_a_handler_that_wants_what_waits_for_its_own_call_gets_an_error():
    """It stands above a call that has the lanes; the thread that has the model waits for the lanes, and may be told."""
    model, _, x = learner()
    inside = threading.Event()

    def work():
        with contextlib.suppress(RuntimeError), model._lock:
            inside.set()
            with threads._team_lock:
                pass

    thread = threading.Thread(target=work)
    with threads._team_lock:
        thread.start()
        inside.wait()
        with pytest.raises(RuntimeError, match="within another call of fastpe"):
            model(x)
    thread.join(10)
    assert not thread.is_alive()
    assert np.isfinite(model(x)).all()


if __name__ == "__main__":
    print(stressed(int(sys.argv[1]), float("inf")), "interrupts")
