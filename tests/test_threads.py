"""Lanes claim every task once, phases wait for each other, and any number of lanes gets through."""

import numpy as np
import pytest

from fastpe.kernels._jit import entry, inner
from fastpe.kernels.simd import pointer
from fastpe.kernels.threads import claim, default_threads, finish, fork, in_lanes, threads_for, wait_for

FIRST, TASKS = 40, 60


@inner
def _count(lane, board, runs, sums, owners):
    task = claim(board)
    while task < TASKS:
        if task < FIRST:
            runs[task] += 1
        else:  # what the first phase wrote is there
            wait_for(board, FIRST)
            sums[task - FIRST] = runs[:FIRST].sum()
        owners[task] = lane
        finish(board)
        task = claim(board)
    wait_for(board, TASKS)


@entry
def _counted(crew, board, runs, sums, owners):
    in_lanes(crew, _count, (pointer(board), runs, sums, owners))


@pytest.mark.parametrize("lanes", [1, 2, 3, 8, 100])
def test_every_task_runs_once_and_after_those_it_needs(lanes):
    for _ in range(20):
        runs, sums, owners = np.zeros(FIRST, np.int64), np.zeros(TASKS - FIRST, np.int64), np.full(TASKS, -1)
        fork(lanes, _counted, runs, sums, owners)
        np.testing.assert_array_equal(runs, 1)
        np.testing.assert_array_equal(sums, FIRST)
        assert set(owners) <= set(range(lanes))


def test_threads_are_checked():
    assert threads_for(None) == default_threads()
    assert threads_for(3) == 3
    for wrong in (0, -1, 100_000):
        with pytest.raises(ValueError, match="threads must be at"):
            threads_for(wrong)
    for wrong in (1.5, True, "2"):
        with pytest.raises(TypeError, match="threads must be an integer"):
            threads_for(wrong)
