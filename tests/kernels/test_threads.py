"""Lanes claim every task once, phases wait for each other, and any number of lanes gets through."""

import ctypes.util
import os
import signal
import subprocess
import sys
import threading

import numba
import numpy as np
import pytest

from fastpe import ModelConfig, Transformer
from fastpe.kernels.attention.calls import _next_tasks
from fastpe.kernels.compile.decorators import entry, inner
from fastpe.kernels.simd import pointer
from fastpe.kernels.threads import openmp
from fastpe.kernels.threads.task_counter import finish, next_task, next_task_from_ends, wait_for
from fastpe.kernels.threads.team import (
    at_most,
    default_threads,
    on_team,
    run_exclusively,
    threads_for,
    workers_for,
)

FIRST, TASKS = 40, 60


@inner
def _count(worker, counters, runs, sums, owners):
    task = next_task(counters)
    while task < TASKS:
        if task < FIRST:
            runs[task] += 1
        else:  # what the first phase wrote is there
            wait_for(counters, FIRST)
            sums[task - FIRST] = runs[:FIRST].sum()
        owners[task] = worker
        finish(counters)
        task = next_task(counters)
    wait_for(counters, TASKS)


@entry
def _counted(team, counters, runs, sums, owners):
    on_team(team, _count, (pointer(counters), runs, sums, owners))


@pytest.mark.parametrize("lanes", [1, 2, 3, 8, 100])
def test_every_task_runs_once_and_after_those_it_needs(lanes):
    for _ in range(20):
        runs, sums, owners = np.zeros(FIRST, np.int64), np.zeros(TASKS - FIRST, np.int64), np.full(TASKS, -1)
        run_exclusively(lanes, _counted, runs, sums, owners)
        np.testing.assert_array_equal(runs, 1)
        np.testing.assert_array_equal(sums, FIRST)
        assert set(owners) <= set(range(lanes))


@inner
def _mark(worker, counters, runs, owners):
    task = next_task_from_ends(counters, worker, len(owners))
    while task < len(owners):
        owners[task] = worker
        runs[task] += 1
        task = next_task_from_ends(counters, worker, len(owners))


@entry
def _marked(team, counters, runs, owners):
    on_team(team, _mark, (pointer(counters), runs, owners))


@pytest.mark.parametrize("tasks", [0, 1, 2, 7, 5000])
def test_lanes_that_begin_at_ends_run_every_task_once(tasks):
    for lanes in (1, 2, 3, 8):
        for _ in range(20):
            runs, owners = np.zeros(tasks, np.int64), np.full(tasks, -1)
            run_exclusively(lanes, _marked, runs, owners)
            np.testing.assert_array_equal(runs, 1)
            backward = owners % 2
            assert np.all(np.diff(backward) >= 0)  # first those of even lanes


@inner
def _take(worker, counters, run, runs, owners):
    task, after = _next_tasks(counters, worker, run, len(owners))
    while task < len(owners):
        owners[task] = worker
        runs[task] += 1
        task += 1
        if task == after:
            task, after = _next_tasks(counters, worker, run, len(owners))


@entry
def _taken(team, counters, run, runs, owners):
    on_team(team, _take, (pointer(counters), run, runs, owners))


@pytest.mark.parametrize("tasks", [0, 1, 5, 8, 1000])
@pytest.mark.parametrize("run", [0, 1, 2, 4, 500])
def test_tasks_that_are_taken_together_run_once_in_one_lane(tasks, run):
    for lanes in (1, 2, 3, 8):
        runs, owners = np.zeros(tasks, np.int64), np.full(tasks, -1)
        run_exclusively(lanes, _taken, run, runs, owners)
        np.testing.assert_array_equal(runs, 1)
        if run:
            assert all(len(set(owners[first : first + run])) == 1 for first in range(0, tasks, run))


def test_threads_are_checked():
    assert threads_for(None) == default_threads()
    assert threads_for(np.int64(2)) == 2
    assert threads_for(3) == 3
    for wrong in (0, -1, 100_000):
        with pytest.raises(ValueError, match="threads must be at"):
            threads_for(wrong)
    for wrong in (1.5, True, "2"):
        with pytest.raises(TypeError, match="threads must be an integer"):
            threads_for(wrong)


def test_numba_threads_stay_as_the_user_set_them():
    before = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        assert default_threads() == 1
        run_exclusively(2, _counted, *(np.zeros(size, np.int64) for size in (FIRST, TASKS - FIRST, TASKS)))
        assert numba.get_num_threads() == 1
    finally:
        numba.set_num_threads(before)


def small_model():
    return Transformer(ModelConfig("nope", width=8, hidden=8, train_length=4)), np.ones((2, 4))


OPENMP = """
import ctypes
import numpy as np
from numba.np.ufunc import omppool
openmp = ctypes.CDLL(omppool.__file__)
openmp.omp_set_num_threads(3)
openmp.omp_set_max_active_levels(2)
import fastpe
fastpe.Transformer(fastpe.ModelConfig("nope"))(np.zeros((64, 20), np.float32), threads=2)
assert __import__("numba").threading_layer() == "omp"
print(openmp.omp_get_max_threads(), openmp.omp_get_max_active_levels())
getenv = ctypes.CDLL(None).getenv  # what other libraries and processes would read
print(*(bool(getenv(name)) for name in (b"OMP_WAIT_POLICY", b"GOMP_SPINCOUNT")))
"""


@pytest.mark.full("starts processes")
def test_openmp_stays_as_other_libraries_have_it():
    pytest.importorskip("numba.np.ufunc.omppool")
    environment = {**os.environ, "NUMBA_NUM_THREADS": "2", "NUMBA_THREADING_LAYER": "omp"}
    for name in openmp._WAITING:
        environment.pop(name, None)
    done = subprocess.run([sys.executable, "-c", OPENMP], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3", "2", "False", "False"]


def test_calls_take_no_more_lanes_than_they_may():
    most = workers_for(10**9, 10**6)
    assert [workers_for(10**9, tasks) for tasks in (0, 1)] == [1, 1]
    assert workers_for(1, 10**6) == 1
    with at_most(1):
        assert workers_for(10**9, 10**6) == 1
        with at_most(most + 1):
            assert workers_for(10**9, 10**6) == most
        assert workers_for(10**9, 10**6) == 1
    assert workers_for(10**9, 10**6) == most
    with pytest.raises(KeyError), at_most(1):
        raise KeyError
    assert workers_for(10**9, 10**6) == most


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="needs timers that raise signals")
def test_a_signal_handler_gets_an_error_instead_of_waiting_for_ever():
    model, x = small_model()
    model(x)
    said = []

    def handler(*_):
        try:
            model(x)
        except RuntimeError as error:
            said.append(str(error))

    old = signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.0005)
    try:
        for _ in range(100_000):
            model.loss_and_grads(x, x)
            if said:
                break
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert said
    assert "within another call" in said[0]
    model(x)  # the interrupted one has left


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_gets_an_error_though_another_thread_was_in_a_step():
    model, x = small_model()
    done = threading.Event()

    def work():
        while not done.is_set():
            model.loss_and_grads(x, x)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                try:
                    model(x)
                except RuntimeError as error:
                    os._exit(0 if "os.fork" in str(error) else 1)
                finally:
                    os._exit(2)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        done.set()
        thread.join()


OTHERS_THREADS = {
    "Numba's": "import numba; numba.get_num_threads()",
    "GNU OpenMP's": """
import ctypes
work = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(lambda _: None)
ctypes.CDLL("libgomp.so.1").GOMP_parallel(work, None, 2, 0)
""",
}
FORKED = """
import os, signal
import fastpe
{threads}
child = os.fork()
if child == 0:
    signal.alarm(60)
    from fastpe import ModelConfig, Transformer
    model = Transformer(ModelConfig("nope", width=8, hidden=8, train_length=4))
    try:
        model([[1.0, 2.0, 3.0, 4.0]], threads=2)
    except RuntimeError as error:
        os._exit(7 if "GNU OpenMP do not survive os.fork()" in str(error) else 1)
    os._exit(2)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


@pytest.mark.full("starts processes")
@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.parametrize("whose", OTHERS_THREADS)
def test_a_forked_child_gets_an_error_where_others_had_started_threads(whose):
    """Before fastpe had done anything: Numba would end such a child, and GNU OpenMP would wait for ever."""
    if whose == "GNU OpenMP's" and ctypes.util.find_library("gomp") != "libgomp.so.1":
        pytest.skip("needs GNU OpenMP")
    script = FORKED.format(threads=OTHERS_THREADS[whose])
    assert subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=False, timeout=120).returncode == 7
