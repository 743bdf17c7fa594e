"""The grid of settings that a study chooses from, and the runs that choose: the same number for every encoding.

Every candidate is trained for every task and encoding on seeds of its own, `FIRST_SEED` and those after it, which are
none of the study's: what is reported is not what was best by luck of the seeds that chose it. A tuning run is not
tested at all; it is judged by `fastpe.training.validation`, sequences of the lengths of its training from a stream of
their own, or of a text by the last part of what the study trains with, see option ``tuning`` of the task.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, NamedTuple

from fastpe.base.validation import nearest, shown
from fastpe.encodings import registry
from fastpe.training.config import TrainConfig

if TYPE_CHECKING:
    from fastpe.experiments.study import Cell, Study

FIRST_SEED = 10_000
"""Of the seeds that choose, where they are counted: beyond those of a study whose seeds are counted."""
SEEDS = 3
"""How many they are where nobody says otherwise."""

SETTINGS = {f.name for f in fields(TrainConfig) if f.compare} - {
    "encoding", "options", "task", "task_options", "seed",
}  # fmt: skip
"""The settings that a study gives its runs."""
LISTED = "help(fastpe.TrainConfig) lists them"
_ASKED = {
    "train_length", "lengths", "target_scale", "data", "digest", "alphabet", "test_lengths", "test_sequences",
    "validation",
}  # fmt: skip
"""Settings of what is asked, and how it is measured: with them a validation score would be of another question."""

Candidate = Mapping[str, Any]


class Trial(NamedTuple):
    """One tuning run: its task and encoding as the study calls them, which candidate of the grid, and its seed."""

    task: str
    encoding: str
    candidate: int
    seed: int


def candidates(choose: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values; of no grid the one that sets nothing.

    >>> candidates({"lr": [0.1, 0.2], "heads": [1]}), candidates({})
    ([{'lr': 0.1, 'heads': 1}, {'lr': 0.2, 'heads': 1}], [{}])
    """
    return [dict(zip(choose, values, strict=True)) for values in itertools.product(*choose.values())]


def named(candidate: Candidate) -> str:
    """A candidate in words.

    >>> named({"lr": 0.001, "heads": 2})
    'lr=0.001 heads=2'
    """
    return " ".join(f"{name}={shown(value) if isinstance(value, int) else value}" for name, value in candidate.items())


def whose(encoding: str, task: str, candidate: Candidate) -> str:
    """Whose settings are wrong, in words.

    >>> whose("alibi", "sort", {"heads": 3}), whose("alibi", "sort", {})
    ('alibi on sort, heads=3', 'alibi on sort')
    """
    return ", ".join(each for each in (f"{encoding} on {task}", named(candidate)) if each)


def settings_of(candidate: Candidate) -> dict[str, Any]:
    """What of a candidate are settings of the run."""
    return {name: value for name, value in candidate.items() if name in SETTINGS}


def options_of(candidate: Candidate) -> dict[str, Any]:
    """What of a candidate are options of the encoding."""
    return {name: value for name, value in candidate.items() if name not in SETTINGS}


def trials(study: "Study", cells: "Iterable[Cell] | None" = None) -> Iterator[Trial]:
    """The tuning runs of a study, or those that some of its runs wait for; none where nothing is chosen."""
    wanted = None if cells is None else {(cell.task, cell.encoding) for cell in cells}
    if study.choose:
        each = range(len(study.candidates))
        for seed, task, encoding, number in itertools.product(study.tuning_seeds, study.tasks, study.encodings, each):
            if wanted is None or (task, encoding) in wanted:
                yield Trial(task, encoding, number, seed)


def trial_config(study: "Study", trial: Trial) -> TrainConfig:
    """The settings of a tuning run: those of the study's with this candidate, but validated instead of tested.

    It is validated on as many sequences as the study's settings say, or if they say none on as many as a test has.
    """
    config = study.config(trial, study.candidates[trial.candidate])
    if config.symbols is not None:
        return replace(config, test_lengths=(), task_options={**config.task_options, "tuning": True})
    return replace(config, test_lengths=(), validation=config.validation or config.test_sequences)


def check(study: "Study") -> None:
    """Refuse a grid that there is nothing to choose from, or of what is no setting, is set already, or not chosen.

    Raises
    ------
    ValueError, TypeError
    """
    if study.claims is not None:
        raise ValueError(f"choose does not go with claims {study.claims!r}, whose settings are a paper's")
    if both := sorted(set(study.tuning_seeds) & set(study.each_seed)):
        raise ValueError(f"choose_seeds must not be among seeds, as {both[0]} is: what chooses is not reported")
    for name, values in study.choose.items():
        if len(values) < 2 or any(value in values[:place] for place, value in enumerate(values)):
            raise ValueError(f"choose {name!r} must have two values at least, all different, not {list(values)}")
        if name in _ASKED:
            raise ValueError(
                f"choose {name!r}: it is part of what is asked or measured, and cannot be chosen by results"
            )
        _check_unset(study, name)
        if name not in SETTINGS:
            _check_option(study, name)
    for label, entry in study.tasks.items():
        if entry.get("options", {}).get("tuning"):
            raise ValueError(f"option 'tuning' of task {label!r} is that of the runs that choose: leave it out")


def _check_unset(study: "Study", name: str) -> None:
    """Whether nobody else says it."""
    encodings = ((label, {**entry.get("options", {}), **entry}) for label, entry in study.encodings.items())
    for whose, own in (("settings", study.settings), *study.tasks.items(), *encodings):
        if name in own:
            raise ValueError(
                f"choose {name!r}: it is set already, {name}={own[name]} of {whose}; leave one of them out"
            )


def _check_option(study: "Study", name: str) -> None:
    """What is no setting must be an option of every encoding."""
    known = {label: registry.option_values(entry["encoding"]) for label, entry in study.encodings.items()}
    if not any(name in options for options in known.values()):
        near = nearest(name, SETTINGS.union(*known.values()), LISTED)
        raise ValueError(f"choose: setting {name!r} is unknown; {near}")
    for label, options in known.items():
        if name not in options:
            raise ValueError(f"choose {name!r}: it must be an option of every encoding, and {label} has none such")
