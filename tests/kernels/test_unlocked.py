"""Compiled code that has looked at Python's objects, and lets other threads run while it works."""

import threading

import numpy as np
import pytest
from numba import config

from fastpe.kernels._jit import allocating, entry, inner
from fastpe.kernels.board import wait_for
from fastpe.kernels.simd import pointer
from fastpe.kernels.unlocked import unlocked

pytestmark = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="there is nothing compiled that could be unlocked")
FINISHED = 8  # of a board, as `finish` counts it


@inner
def _wait(board, x, nothing):
    wait_for(board, 1)
    return x + 1 if nothing is None else x


@entry(objects=True)
def _waiting(board, x):
    return unlocked(_wait, (pointer(board), x, None))


@allocating
def _refuse(x):
    if x[0] > 0:
        raise ValueError("x must be 0")
    return np.full(2, x[0])


@entry(objects=True)
def _refusing(x):
    return unlocked(_refuse, (x,))


def test_other_threads_run_meanwhile():
    board = np.zeros(24, np.int64)
    _refusing(np.zeros(1))
    other = threading.Thread(target=lambda: board.__setitem__(FINISHED, 1))
    other.start()  # it may be done before, and the wait is then none; mostly it is not
    assert _waiting(board, 4) == 5
    other.join()


def test_errors_come_through_and_python_goes_on():
    for _ in range(3):
        with pytest.raises(ValueError, match="x must be 0"):
            _refusing(np.ones(1))
        np.testing.assert_array_equal(_refusing(np.zeros(1)), [0.0, 0.0])
