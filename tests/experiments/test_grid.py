"""Grids of settings to choose from: how they are read, which candidate is the best, and what is no grid."""

import math
from dataclasses import replace

import pytest
from small_study import SMALL
from small_study import TUNED as STUDY

from fastpe.experiments import plan, tuning
from fastpe.experiments.results import Measure
from fastpe.experiments.study import Study, varied
from fastpe.training.estimate import Estimate


def test_the_best_of_some_scores():
    exact, error = Measure("exact", True), Measure("mse", False)
    for values, measure, best in (
        ([[0.5, 0.7], [0.6, 0.6], [0.9, 0.2]], exact, 0),  # two alike: the first
        ([[0.1, 0.1], [0.9, None]], exact, 1),
        ([[0.4, 0.4], [0.7, None]], exact, 0),
        ([[None, None], [0.0, 0.0]], exact, 1),
        ([[None, None], [None, None]], exact, None),
        ([[1.0, 100.0], [9.0, 9.0]], error, 1),  # geometric means 10 and 9
        ([[1.0, 100.0], [11.0, 11.0]], error, 0),
        ([[0.1, None], [9.0, 9.0]], error, 1),
        ([[None, None], [9.0, None]], error, 1),
        ([[None], [None]], error, None),
        ([[0.0, 5.0], [1e-9, 1e-9]], error, 0),
    ):
        assert tuning.best_of(values, measure) == best, (values, measure)
    assert math.isclose(tuning.level([1.0, 100.0, None], error), 10.0)
    assert tuning.level([0.6, None], exact) == 0.3


def test_a_grid_is_read_as_it_was_written():
    whole = replace(
        STUDY,
        encodings={"alibi": {}},
        baseline="alibi",
        choose=STUDY.choose | {"slope": [0.1, 0.2]},
        choose_seeds=[5, 7],
    )
    assert Study.from_toml(whole.to_toml()) == whole
    assert len(whole.candidates) == 6
    assert whole.candidates[1] == {"lr": 1e-3, "slope": 0.2}
    config = whole.config(next(whole.run_keys()), whole.candidates[1])
    assert (config.lr, config.options) == (1e-3, {"slope": 0.2})
    assert list(whole.tuning_seeds) == [5, 7]
    assert Study.from_toml(STUDY.to_toml()) == STUDY
    assert replace(STUDY, choose_seeds=[10_000, 10_001]) == STUDY
    assert list(replace(STUDY, choose_seeds=None).tuning_seeds) == [10_000, 10_001, 10_002]
    assert varied(STUDY, {"heads": [1, 2]}).choose == STUDY.choose


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"choose": {"lr": [0.1]}}, r"choose 'lr' must have at least two different values, not \[0.1\]"),
        ({"choose": {"lr": [0.1, 0.1]}}, "choose 'lr' must have at least two different values"),
        ({"choose": {"lr": 0.1}}, "choose 'lr' must be a list of values, not 0.1"),
        ({"choose": {"dtype": "float32"}}, "choose 'dtype' must be a list of values, not 'float32'"),
        ({"choose": ["lr"]}, "choose must be a dict of settings to values"),
        ({"choose": {"lrr": [1, 2]}}, "choose: setting 'lrr' is unknown; did you mean 'lr'"),
        ({"choose": {"slope": [1, 2]}}, "choose 'slope' must be an option of every encoding, but nope has no such"),
        ({"choose": {"width": [8, 16]}}, "choose 'width' cannot be used: width=8 is already set by settings"),
        ({"encodings": {"nope": {"lr": 0.1}}}, "choose 'lr' cannot be used: lr=0.1 is already set by nope"),
        ({"tasks": {"majority": {"lr": 0.1}}}, "choose 'lr' cannot be used: lr=0.1 is already set by majority"),
        ({"encodings": {"alibi": {"options": {"slope": 0.1}}}, "choose": {"slope": [1, 2]}},
         "choose 'slope' cannot be used: slope=0.1 is already set by alibi"),
        ({"choose": {"heads": [1, 3]}}, "alibi on majority, heads=3: width must be divisible by heads"),
        ({"choose": {"lr": [0.1, "x"]}}, "alibi on majority, lr=x: lr must be a number"),
        ({"choose": {"test_lengths": [[4], [8]]}}, "choose 'test_lengths' cannot be used: this setting defines"),
        ({"choose": {"validation": [4, 8]}}, "choose 'validation' cannot be used: this setting defines"),
        ({"choose": {"seed": [4, 8]}}, "choose: setting 'seed' is unknown"),
        ({"choose": {}}, "choose_seeds needs choose, a grid of settings; only choose_seeds=2"),
        ({"choose_seeds": 0}, "choose_seeds must be at least 1, not 0"),
        ({"choose_seeds": [1, 5]}, "choose_seeds must not contain seeds of the study, such as 1"),
        ({"seeds": [3, 10_001]}, "choose_seeds must not contain seeds of the study, such as 10001"),
        ({"claims": "table5"}, "choose cannot be combined with claims 'table5'"),
    ],
)  # fmt: skip
def test_what_is_no_grid(changes, message):
    with pytest.raises((TypeError, ValueError), match=message):
        replace(STUDY, **changes)


def test_a_grid_of_too_many_combinations_is_refused():
    with pytest.raises(ValueError, match="at most 10000 combinations of values, not 1000000"):
        Study(["nope"], ["reverse"], seeds=1, choose={name: range(1, 101) for name in ("lr", "eps", "clip")})


def test_the_option_that_tuning_uses_is_not_the_users(tmp_path):
    (tmp_path / "a.txt").write_text("abc" * 100)
    with pytest.raises(ValueError, match="option 'tuning' of task 'text' is set for tuning runs only: leave it"):
        Study(
            ["nope"], {"text": {"options": {"tuning": True}}}, choose=STUDY.choose,
            settings={**SMALL, "data": str(tmp_path / "a.txt")},
        )  # fmt: skip


def test_a_plan_counts_every_run_and_what_is_chosen_as_the_dearest(monkeypatch):
    """By a made-up clock: a run takes as many seconds as it has heads, and ten times the FLOPs an update."""
    timed = []

    def estimate(config, threads):
        timed.append((config.task, config.encoding, config.heads))
        return Estimate(1, 1, 10.0 * config.heads, 3, float(config.heads), 1)

    monkeypatch.setattr(plan, "estimate", estimate)
    own = replace(STUDY, choose=STUDY.choose | {"heads": [1, 4, 2]}, seeds=5, choose_seeds=2)
    found = plan.plan(own)
    assert (found.runs, found.tuning_runs) == (4 * (5 + 9 * 2), 4 * 9 * 2)
    assert found.seconds == 4 * (5 * 4 + 2 * 3 * (1 + 4 + 2))
    assert found.flop == 30 * found.seconds
    assert len(timed) == len(set(timed)) == 4 * 3  # the learning rate changes nothing of it
    plain = plan.plan(replace(own, choose={}, choose_seeds=None))
    assert (plain.runs, plain.tuning_runs, plain.seconds) == (20, 0, 20.0)
