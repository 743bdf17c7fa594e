"""The cost of a study on this machine, estimated from a few updates of each kind of run. No file is written."""

import json
from collections.abc import Callable
from dataclasses import dataclass

from fastpe.experiments.study import Study, Trial, candidate_name
from fastpe.training.config import TrainConfig
from fastpe.training.estimate import Estimate, estimate

_FREE = ("lr", "min_lr", "beta1", "beta2", "eps", "weight_decay", "clip", "warmup", "decay", "keep", "patience")
"""Settings that do not change the time of an update."""


@dataclass(frozen=True)
class Plan:
    """The cost of a study.

    Attributes
    ----------
    runs, tuning_runs : int
        Number of all runs, and of the tuning runs among them.
    flop : float
        FLOPs of all updates.
    seconds : float
        Time of one core for all updates; validation and tests are not included.
    """

    runs: int
    tuning_runs: int
    flop: float
    seconds: float


def plan(study: Study, tell: Callable[[str], None] = lambda line: None) -> Plan:
    """Count the runs of a study, time a few updates of each kind of run, and return the estimated cost.

    It is not known yet which candidates tuning will choose, so the most expensive ones are assumed.

    Parameters
    ----------
    study : Study
    tell : callable
        Called with a line of text for each kind of run.

    Raises
    ------
    ValueError
        For the same reasons as `fastpe.train`.

    Examples
    --------
    >>> small = {"width": 8, "hidden": 8, "layers": 1, "train_length": 4, "samples": 16, "batch": 8, "epochs": 1}
    >>> found = plan(Study(["nope"], ["reverse"], seeds=2, settings=small, choose={"lr": [0.1, 0.01, 0.001]}))
    >>> found.runs, found.tuning_runs
    (11, 9)
    """
    known: dict[str, Estimate] = {}
    seconds, flop = 0.0, 0.0
    for task in study.tasks:
        for encoding in study.encodings:
            each = []
            for number, candidate in enumerate(study.candidates):
                config = study.config(Trial(task, encoding, number, study.each_seed[0]), candidate)
                key = _kind(config)
                if key not in known:
                    known[key] = estimate(config, threads=1)
                    words = f", {candidate_name(candidate)}" if candidate else ""
                    tell(f"{encoding} on {task}{words}: {known[key].seconds:.1f} s per run")
                each.append(known[key])
            seconds += max(one.seconds for one in each) * study.count
            flop += max(one.flop * one.updates for one in each) * study.count
            if study.choose:
                seconds += sum(one.seconds for one in each) * len(study.tuning_seeds)
                flop += sum(one.flop * one.updates for one in each) * len(study.tuning_seeds)
    tuning = sum(1 for _ in study.trials())
    return Plan(sum(1 for _ in study.run_keys()) + tuning, tuning, flop, seconds)


def _kind(config: TrainConfig) -> str:
    """The settings that determine the time of a run, as JSON text."""
    return json.dumps({name: value for name, value in config.to_dict().items() if name not in _FREE}, sort_keys=True)
