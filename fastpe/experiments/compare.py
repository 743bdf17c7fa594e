"""A study made: its runs over worker processes, in folders that other studies may share, and what they found."""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from fastpe.base import files
from fastpe.base.validation import nearest
from fastpe.doctor.machine import usable_cores
from fastpe.experiments import choosing, grid, results, study_report, sweep
from fastpe.experiments import cluster as engine
from fastpe.experiments.choosing import Choices
from fastpe.experiments.study import Cell, Study
from fastpe.training import config_file, metrics_file
from fastpe.training.config import TrainConfig
from fastpe.training.config_file import RunError

RUNS, FILE, FAILED = "runs", "study.toml", "failed.json"


@dataclass(frozen=True)
class Compared:
    """What `compare` returns.

    Attributes
    ----------
    study : Study
    summary : dict
        All that is said of it, as JSON values, see `fastpe.experiments.results.summary`.
    rows : list of dict
        The long table: a row for every run, length and metric.
    out : pathlib.Path
        The folder.
    """

    study: Study
    summary: dict[str, Any]
    rows: list[dict[str, Any]]
    out: Path

    def __repr__(self) -> str:
        return f"<Compared in {self.out}: {study_report.verdict(self.study, self.summary)[0]}>"


def _job(config: TrainConfig, runs: Path) -> sweep.Job:
    encoding = config.encoding.replace("*", "x").replace(",", "-")
    return sweep.job(runs, f"{config.task}-{encoding}-seed{config.seed}", config)


def compare(
    encodings: Study | Sequence[str] | Mapping[str, Mapping[str, Any]],
    tasks: Sequence[str] | Mapping[str, Mapping[str, Any]] | None = None,
    *,
    seeds: int | Sequence[int] = 10,
    baseline: str | None = None,
    choose: Mapping[str, Sequence[Any]] | None = None,
    choose_seeds: int | Sequence[int] | None = None,
    out: str | Path | None = None,
    runs: str | Path | None = None,
    workers: int | None = None,
    shard: tuple[int, int] | None = None,
    cluster: str | None = None,
    progress: sweep.Listener | None = None,
    **settings: Any,
) -> Compared | None:
    """Train every encoding on every task with the same seeds, and say which is better, how far, and how surely.

    Everything is paired: run k of every encoding has the same data, order, test sequences. What is finished is not run
    again; interrupted, the same call goes on.

    Parameters
    ----------
    encodings : Study, sequence of str or dict
        A study, or its encodings, see `fastpe.experiments.study.Study`.
    tasks : sequence of str or dict
        Its tasks.
    seeds : int or sequence of int
        How many, or which.
    baseline : str, optional
        What the others are compared with. By default nope, where it is among them, or the first.
    choose : dict of str to list, optional
        Settings, or options that every encoding has, and the values that each is chosen from by validation, for every
        task and encoding, on seeds of their own (`choose_seeds`, by default 3), see `fastpe.experiments.grid`.
    choose_seeds : int or sequence of int, optional
        How many, or which; none of them may be among `seeds`.
    out : str or pathlib.Path
        The folder of the study: ``runs/``, ``study.toml``, and what comes of it.
    runs : str or pathlib.Path, optional
        Where the runs are, if not in ``out/runs``: studies that name the same folder share what they have in common.
    workers : int, optional
        Processes, of one thread each; they change nothing but the time. By default one for each core.
    shard : (int, int), optional
        Make the k-th of n parts of the runs alone, for an array of jobs; all of them are joined by `merge`. Where
        settings are chosen, all runs of a task and an encoding are in the same part.
    cluster : str, optional
        Make the runs on dask.distributed: "local", the address of a scheduler, or the path of its file. Dask exchanges
        pickles and, by default, authenticates nobody: use it only in a network in which you trust everyone.
    progress : callable, optional
        Called with every event of `fastpe.experiments.sweep`.
    **settings
        Settings of all runs, as in `TrainConfig`.

    Returns
    -------
    Compared, or None of a shard

    Raises
    ------
    ValueError, TypeError
        If the study is none, or the folder holds another one; nothing is written.
    OSError
        If a file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> small = {"width": 8, "hidden": 8, "layers": 1, "train_length": 4, "samples": 16, "epochs": 1, "batch": 8}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = compare(["alibi", "nope"], ["reverse"], seeds=2, out=folder, workers=1, test_sequences=10, **small)
    >>> len(found.summary["cells"]), found.summary["failed"]
    (6, 0)
    """
    if isinstance(encodings, Study):
        study = encodings
    elif tasks is None:
        example = "compare(['alibi', 'nope'], ['reverse'], out='study')"
        raise TypeError(f"tasks is missing: a study needs encodings and tasks, as in {example}")
    else:
        for name in settings:
            if name not in grid.SETTINGS:
                near = nearest(name, grid.SETTINGS, grid.LISTED, compare.__kwdefaults__ or ())
                raise ValueError(f"setting {name!r} is unknown; {near}")
        chosen = {"choose": choose or {}, "choose_seeds": choose_seeds}
        study = Study(encodings, tasks, seeds, baseline, settings, **chosen)  # type: ignore[arg-type] # it makes them
    if out is None:
        raise ValueError("out must be a folder: runs are kept there, so that an interrupted study goes on")
    study = study.with_texts()
    folder, count = Path(out), workers if workers is not None else usable_cores()
    cells = list(study.cells()) if shard is None else study.part(*shard)
    check_folder(folder, study)
    place = folder / RUNS if runs is None else Path(runs)
    config_file.check_folder(place)
    notify = progress or (lambda event: None)

    def engine_run(made: Sequence[sweep.Job]) -> sweep.Outcomes:
        if cluster is None:
            return sweep.run(made, max(1, count), notify, tolerant=True)
        return engine.run(made, cluster, max(1, count), notify)

    with hold(folder), hold(place):
        return _make(study, folder, _Runs(place, engine_run, notify), cells, shard is None)


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Make a folder, and let no other process work in it."""
    files.make_folder(folder, exist_ok=True)
    lock = files.lock_folder(folder)
    if lock is None:
        raise RunError(f"another process is working in {folder}")
    try:
        files.remove_leftovers(folder)
        yield
    finally:
        lock.close()


class _Runs:
    """Makes runs in a folder; two with the same settings are one."""

    def __init__(
        self, place: Path, run: Callable[[Sequence[sweep.Job]], sweep.Outcomes], notify: sweep.Listener
    ) -> None:
        self._place, self._run, self.notify = place, run, notify
        self.failed: dict[str, Any] = {}

    def make(self, configs: Mapping[Any, TrainConfig]) -> dict[Any, tuple[sweep.Job, dict[str, Any]]]:
        """The job and the outcome of each."""
        made = {key: _job(config, self._place) for key, config in configs.items()}
        done = self._run(list({one.path.name: one for one in made.values()}.values()))
        found = {key: (one, done[one.path.name]) for key, one in made.items()}
        for one, outcome in found.values():
            if "failed" in outcome:
                self.failed[config_file.digest(one.config.to_dict())] = outcome["failed"]
        return found


def _make(study: Study, folder: Path, runs: _Runs, cells: Sequence[Cell], whole: bool) -> Compared | None:
    files.write_file(folder / FILE, study.to_toml().encode())
    choices: Choices = {}
    if trials := {trial: grid.trial_config(study, trial) for trial in grid.trials(study, cells)}:
        runs.notify(sweep.SweepNoted(f"{len(trials)} runs choose: {choosing.offered(study)}"))
        choices = choosing.choose(study, {trial: outcome for trial, (_, outcome) in runs.make(trials).items()})
        for choice in choices.values():
            runs.notify(sweep.SweepNoted(choosing.in_words(study, choice)))
    made = runs.make(choosing.configs(study, cells, choices))
    files.write_file(folder / FAILED, files.dump_json(runs.failed))
    if not whole:
        return None
    cpu = config_file.environment()["cpu"]["name"]
    own = {cell: _run_of(outcome, one, cpu) for cell, (one, outcome) in made.items()}
    return summed_up(study, folder, own, choices)


class Run(NamedTuple):
    """What one run found, where, and what it is a result of."""

    outcome: Mapping[str, Any]
    path: Path | None
    identity: str
    cpu: str


def _run_of(outcome: Mapping[str, Any], one: sweep.Job, cpu: str) -> Run:
    """A run that failed has no result that could be of anything."""
    return Run(outcome, None, "", "") if "failed" in outcome else Run(outcome, one.path, one.identity, cpu)


def summed_up(study: Study, out: Path, runs: Mapping[Cell, Run], choices: Choices | None = None) -> Compared:
    """What the runs of a study found, written beside them.

    Parameters
    ----------
    choices : dict, optional
        Of a study that chooses, by task and encoding; where there was nothing to choose there are no runs.
    """
    choices, known = choices or {}, runs
    runs = {cell: known[cell] if cell in known else _unmade(cell, choices) for cell in study.cells()}
    facts = {cell: {"identity": run.identity[:12], "cpu": run.cpu} for cell, run in runs.items()}
    outcomes = {cell: run.outcome for cell, run in runs.items()}
    summary = results.summary(study, outcomes) | {"cpus": sorted({run.cpu for run in runs.values() if run.cpu})}
    for each in summary["cells"] if len(summary["cpus"]) > 1 else ():
        own = {runs[Cell(each["task"], each["encoding"], seed)].cpu for seed in study.each_seed}
        each["mixed"] = len(own - {""}) > 1
    configs = choosing.configs(study, list(runs), choices)
    if study.choose:
        summary["choosing"] = choosing.facts(study, choices)
        for cell, own_facts in facts.items():
            best = choices[cell.task, cell.encoding].chosen
            own_facts["chosen"] = "" if best is None else grid.named(study.candidates[best])
    found = Compared(study, summary, results.rows(study, outcomes, facts), out)
    for name, content in study_report.files_of(study, summary, found.rows, _curves(configs, runs)).items():
        files.write_file(out / name, content)
    return found


def _unmade(cell: Cell, choices: Choices) -> Run:
    """A run that waited for a choice which could not be made."""
    return Run({"failed": choices[cell.task, cell.encoding].reason}, None, "", "")


def _curves(configs: Mapping[Cell, TrainConfig], runs: Mapping[Cell, Run]) -> dict[Cell, list[float]]:
    """The losses of every run, epoch by epoch."""
    found = {}
    for cell, run in runs.items():
        if run.path is not None and "failed" not in run.outcome:
            config = configs[cell]
            history, _ = metrics_file.cut(run.path, config, config.epochs)
            found[cell] = [float(line["loss"]) for line in history]
    return found


def check_folder(folder: Path, study: Study) -> None:
    """Refuse a folder that holds another study, or other things.

    Raises
    ------
    RunError
    """
    config_file.check_folder(folder)
    if not folder.is_dir():
        return
    stored = folder / FILE
    if stored.exists():
        try:
            there, study = Study.read(stored).with_texts(), study.with_texts()
        except (TypeError, ValueError) as error:
            raise RunError(f"{stored} was edited, and is no study any more: {error}") from error
        more = set(there.each_seed) <= set(study.each_seed)
        same = there.choose_seeds == study.choose_seeds and replace(there, seeds=study.seeds) == study
        if not (same and more):  # of more seeds it is the same study, longer
            raise RunError(f"{folder} holds another study: choose another folder, or the settings of {stored}")
    elif any(not _of_study(folder / each) for each in os.listdir(folder)):
        raise RunError(f"{folder} is no study's folder: it holds files but no {FILE}")


def _of_study(path: Path) -> bool:
    """Whether a study may put its files beside this: what an interrupted one left, its runs, other studies."""
    return files.is_leftover(path.name) or path.name == RUNS or (path / FILE).exists()
