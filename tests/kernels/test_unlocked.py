"""Compiled code that has looked at Python's objects, and lets other threads run while it works."""

import threading
import time

import numpy as np
import pytest
from numba import config

from fastpe.kernels._jit import allocating, entry, inner
from fastpe.kernels.board import claim, shared_count
from fastpe.kernels.simd import pointer
from fastpe.kernels.unlocked import unlocked

pytestmark = pytest.mark.skipif(bool(config.DISABLE_JIT), reason="there is nothing compiled that could be unlocked")
BEGUN, ENDED = 0, 8  # places of marks: the first counts claims
LOOKS = 10**10  # some seconds: of another thread that may not run


@inner
def _wait(marks, looks, nothing):
    claim(marks)
    for _ in range(looks):
        if shared_count(marks, np.int64(ENDED)) > 0:
            return nothing is None
    return False


@entry(objects=True)
def _waiting(marks, looks):
    return unlocked(_wait, (pointer(marks), looks, None))


@allocating
def _refuse(x):
    if x[0] > 0:
        raise ValueError("x must be 0")
    return np.full(2, x[0])


@entry(objects=True)
def _refusing(x):
    return unlocked(_refuse, (x,))


def test_other_threads_run_meanwhile():
    marks = np.zeros(16, np.int64)

    def answer():
        while marks[BEGUN] == 0:
            time.sleep(0.001)
        marks[ENDED] = 1

    other = threading.Thread(target=answer)
    other.start()
    assert _waiting(marks, LOOKS)
    other.join()


def test_errors_come_through_and_python_goes_on():
    for _ in range(3):
        with pytest.raises(ValueError, match="x must be 0"):
            _refusing(np.ones(1))
        np.testing.assert_array_equal(_refusing(np.zeros(1)), [0.0, 0.0])
