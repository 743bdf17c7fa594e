"""One call at a time, whatever interrupts: nobody finds the guard taken for ever, and never are two inside."""

import contextlib
import ctypes
import threading
import time

import pytest
from interrupts import Interrupted, interrupt_at, interrupted_everywhere

from fastpe.base import guard
from fastpe.base.guard import OneAtATime


def in_a_thread(function):
    """What a call in another thread returns, within the time that nobody should have to wait."""
    found = []
    thread = threading.Thread(target=lambda: found.append(function()), daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive(), "it waits for ever"
    return found[0] if found else None


def entered(one):
    with one:
        return True


@pytest.mark.parametrize("nested", [False, True])
def test_an_interrupt_at_any_step_leaves_it_free(nested):
    one = OneAtATime(nested=nested)

    def after():
        assert entered(one)

    def after_for_others():
        assert in_a_thread(lambda: entered(one))
        assert entered(one)

    for check in (after, after_for_others):
        assert interrupted_everywhere(lambda: entered(one), {guard.__file__, __file__}, check) > 50


def test_an_interrupt_while_waiting_leaves_it_to_who_has_it():
    """The other thread stays inside, and gets out again."""
    one, inside, leave = OneAtATime(), threading.Event(), threading.Event()

    def stay():
        with one:
            inside.set()
            leave.wait()

    def wait():
        threading.Timer(0.001, leave.set).start()
        with one:
            pass

    def after():
        leave.set()
        thread.join()
        assert entered(one)
        assert all(mine.over() for mine, _ in guard._waiting.values())

    step, more = 0, True
    while more:
        inside.clear()
        leave.clear()
        thread = threading.Thread(target=stay)
        thread.start()
        inside.wait()
        with contextlib.suppress(Interrupted), interrupt_at(step, {guard.__file__}) as raised:
            wait()
        after()
        step, more = step + 5, bool(raised)
    assert step > 100


def test_a_call_inside_a_call_is_an_error_and_the_outer_one_goes_on():
    one = OneAtATime()
    with one:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="within another call of fastpe"):
                entered(one)
        assert not one._last().over()
    assert entered(one)


def test_a_nested_call_does_not_let_others_in():
    one, got = OneAtATime(nested=True), []
    with one:
        assert entered(one)
        thread = threading.Thread(target=lambda: got.append(entered(one)))
        thread.start()
        thread.join(0.1)
        assert not got
    thread.join()
    assert got == [True]


def test_a_thread_that_ended_inside_holds_nothing():
    one = OneAtATime()
    in_a_thread(one.__enter__)
    assert entered(one)


def test_never_are_two_inside():
    one, inside, counts = OneAtATime(), [0], []

    def work():
        for _ in range(100):
            with one:
                inside[0] += 1
                counts.append(inside[0])
                time.sleep(0)
                inside[0] -= 1

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [1] * 400


@pytest.mark.full("takes seconds")
def test_exceptions_sent_to_a_thread_keep_nobody_out():
    """As `PyThreadState_SetAsyncExc` sends them, to a thread that is forever inside or about to be."""
    one, stop, entries, caught = OneAtATime(), threading.Event(), [0], [0]

    def work():
        while not stop.is_set():
            try:
                while not stop.is_set():
                    with one:
                        entries[0] += 1
            except TimeoutError:
                caught[0] += 1

    def wait_for(count, more):
        end = time.monotonic() + 10
        while count[0] < more:
            assert time.monotonic() < end
            time.sleep(0)

    thread = threading.Thread(target=work)
    thread.start()
    for number in range(1, 201):
        wait_for(entries, entries[0] + 1)  # it is where exceptions are caught
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(TimeoutError))
        assert entered(one)
        wait_for(caught, number)
    stop.set()
    thread.join(10)
    assert not thread.is_alive()


def test_two_calls_that_would_wait_for_each_other_are_told():
    first, second, both = OneAtATime(), OneAtATime(), threading.Barrier(2)
    said = []

    def enter(one, other):
        try:
            with one:
                both.wait()
                with other:
                    pass
        except RuntimeError as error:
            said.append(str(error))

    threads = [threading.Thread(target=enter, args=pair, daemon=True) for pair in ((first, second), (second, first))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
    assert said
    assert all("would wait for each other" in text for text in said)
    assert entered(first)
    assert entered(second)
