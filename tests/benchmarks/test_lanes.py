"""The simulated schedule of a step: examples worked out by hand, and sums that it must keep."""

from dataclasses import replace

import numpy as np
import pytest
from lanes import CASES, LANES, Measured, Task, compared, measured, phases, scheduled

FOUND = Measured((1.0, 1.0), 0.5, 8.0, 6.0, (2.0, 1.0), (1.0,) * 8, (0, 4, 8, 12, 16, 20, 24, 28, 32), 0.0)
TWICE = ((1.0, 1.0), (1.0, 1.0))  # a second apart, then one in turn, and that again


@pytest.mark.parametrize(
    ("phases", "lanes", "expected"),
    [
        ([[Task(3.0), Task(2.0), Task(2.0)]], 2, 4.0),  # the lane that is free first takes the third
        ([[Task(3.0), Task(2.0)], [Task(1.0), Task(1.0)]], 2, 4.0),  # the second phase waits for all of the first
        ([[Task(4.0, TWICE), Task(4.0, TWICE, after=0)]], 2, 5.0),  # one second late from the first turn on
        ([[Task(4.0, TWICE), Task(4.0, TWICE)]], 2, 4.0),  # of two groups
        ([[Task(2.0, ((0.0, 2.0),)), *(Task(2.0, ((0.0, 2.0),), after=i) for i in range(3))]], 4, 8.0),  # all in turn
        ([[Task(1.0, first=0.5), Task(1.0, first=0.5), Task(1.0, first=0.5)]], 2, 2.5),
    ],
)
def test_schedules_worked_out_by_hand(phases, lanes, expected):
    assert scheduled(phases, lanes) == expected


@pytest.mark.parametrize("side_by_side", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_one_lane_takes_the_sum(name, side_by_side):
    found = FOUND if name == "paper" else replace(FOUND, ends=())
    tasks = phases(CASES[name][0], found, side_by_side=side_by_side)
    whole = 2 + 0.5 + 8 * (8 + 3 * 6) + sum(found.ends) + 8
    assert scheduled(tasks, 1) == pytest.approx(whole, rel=1e-12)
    for lanes in LANES:
        assert 0.999999 * whole / lanes <= scheduled(tasks, lanes) <= whole + 8 * 0.5


def test_only_lanes_past_the_groups_gain():
    rows = {lanes: both for lanes, *both in compared(CASES["paper"][0], 32, FOUND)}
    assert all(before == after for before, after in (rows[lanes] for lanes in (1, 2, 4, 8)))
    assert rows[16][0] == rows[64][0] == rows[8][0]
    assert rows[32][1] < rows[16][1] < rows[8][1]


@pytest.mark.full("compiles kernels of its own")
def test_what_is_measured_of_a_model_is_all_there_is_of_its_step():
    config = replace(CASES["paper"][0], width=16, heads=2, hidden=16, train_length=8)
    found = measured(config, 12, 0.0)
    assert found.starts == (0, 1, 3, 4, 6, 7, 9, 10, 12)
    assert len(found.ends) == 2
    assert 0 < min(found.step, found.compose, *found.ends) <= found.step < np.inf
