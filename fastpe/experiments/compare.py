"""A study made: its runs over worker processes, in folders that other studies may share, and what they found."""

import contextlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from fastpe.base import files
from fastpe.doctor.machine import usable_cores
from fastpe.experiments import cluster as engine
from fastpe.experiments import results, study_report, sweep
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


def jobs(study: Study, runs: Path, cells: Sequence[Cell]) -> dict[Cell, sweep.Job]:
    """The runs as jobs in a folder; two cells with the same settings are one job."""
    return {cell: _job(study.config(cell), runs) for cell in cells}


def _job(config: TrainConfig, runs: Path) -> sweep.Job:
    encoding = config.encoding.replace("*", "x").replace(",", "-")
    return sweep.job(runs, f"{config.task}-{encoding}-seed{config.seed}", config)


def compare(
    encodings: Study | Sequence[str] | Mapping[str, Mapping[str, Any]],
    tasks: Sequence[str] | Mapping[str, Mapping[str, Any]] | None = None,
    *,
    seeds: int | Sequence[int] = 10,
    baseline: str | None = None,
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
    out : str or pathlib.Path
        The folder of the study: ``runs/``, ``study.toml``, and what comes of it.
    runs : str or pathlib.Path, optional
        Where the runs are, if not in ``out/runs``: studies that name the same folder share what they have in common.
    workers : int, optional
        Processes, of one thread each; they change nothing but the time. By default one for each core.
    shard : (int, int), optional
        Make the k-th of n parts of the runs alone, for an array of jobs; all of them are joined by `merge`.
    cluster : str, optional
        Make the runs on dask.distributed: "local", the address of a scheduler, or the path of its file.
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
        raise TypeError("tasks must be given, unless the first argument is a Study")
    else:
        study = Study(encodings, tasks, seeds, baseline, settings)  # type: ignore[arg-type] # made one by the study
    if out is None:
        raise ValueError("out must be a folder: runs are kept there, so that an interrupted study goes on")
    folder, count = Path(out), workers if workers is not None else usable_cores()
    cells = list(study.cells()) if shard is None else study.part(*shard)
    check_folder(folder, study)
    place = folder / RUNS if runs is None else Path(runs)
    config_file.check_folder(place)
    made = jobs(study, place, cells)
    with hold(folder), hold(place):
        return _make(study, folder, made, count, shard is None, cluster, progress or (lambda event: None))


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Make a folder, and let no other process work in it."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = files.lock_folder(folder)
    if lock is None:
        raise RunError(f"another process is working in {folder}")
    try:
        files.remove_leftovers(folder)
        yield
    finally:
        lock.close()


def _make(
    study: Study, folder: Path, made: Mapping[Cell, sweep.Job], count: int, whole: bool, cluster: str | None,
    notify: sweep.Listener,
) -> Compared | None:  # fmt: skip
    files.write_file(folder / FILE, study.to_toml().encode())
    distinct = {one.path.name: one for one in made.values()}
    if cluster is None:
        done = sweep.run(list(distinct.values()), max(1, count), notify, tolerant=True)
    else:
        done = engine.run(list(distinct.values()), cluster, max(1, count), notify)
    failed = {
        config_file.digest(one.config.to_dict()): done[name]["failed"]
        for name, one in distinct.items()
        if "failed" in done[name]
    }
    files.write_file(folder / FAILED, files.dump_json(failed))
    if not whole:
        return None
    cpu = config_file.environment()["cpu"]["name"]
    own = {cell: _run_of(done[one.path.name], one, cpu) for cell, one in made.items()}
    return summed_up(study, folder, own)


class Run(NamedTuple):
    """What one run found, where, and what it is a result of."""

    outcome: Mapping[str, Any]
    path: Path | None
    identity: str
    cpu: str


def _run_of(outcome: Mapping[str, Any], one: sweep.Job, cpu: str) -> Run:
    """A run that failed has no result that could be of anything."""
    return Run(outcome, None, "", "") if "failed" in outcome else Run(outcome, one.path, one.identity, cpu)


def summed_up(study: Study, out: Path, runs: Mapping[Cell, Run]) -> Compared:
    """What the runs of a study found, written beside them."""
    facts = {cell: {"identity": run.identity[:12], "cpu": run.cpu} for cell, run in runs.items()}
    outcomes = {cell: run.outcome for cell, run in runs.items()}
    summary = results.summary(study, outcomes) | {"cpus": sorted({run.cpu for run in runs.values() if run.cpu})}
    for each in summary["cells"] if len(summary["cpus"]) > 1 else ():
        own = {runs[Cell(each["task"], each["encoding"], seed)].cpu for seed in study.each_seed}
        each["mixed"] = len(own - {""}) > 1
    found = Compared(study, summary, results.rows(study, outcomes, facts), out)
    for name, content in study_report.files_of(study, summary, found.rows, _curves(study, runs)).items():
        files.write_file(out / name, content)
    return found


def _curves(study: Study, runs: Mapping[Cell, Run]) -> dict[Cell, list[float]]:
    """The losses of every run, epoch by epoch."""
    found = {}
    for cell, run in runs.items():
        if run.path is not None and "failed" not in run.outcome:
            config = study.config(cell)
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
            there = Study.read(stored)
        except (TypeError, ValueError) as error:
            raise RunError(f"{stored} was edited, and is no study any more: {error}") from error
        more = set(there.each_seed) <= set(study.each_seed)
        if replace(there, seeds=study.seeds) != study or not more:  # of more seeds it is the same study, longer
            raise RunError(f"{folder} holds another study: choose another folder, or the settings of {stored}")
    elif any(not _of_study(folder / each) for each in os.listdir(folder)):
        raise RunError(f"{folder} is no study's folder: it holds files but no {FILE}")


def _of_study(path: Path) -> bool:
    """Whether a study may put its files beside this: what an interrupted one left, its runs, other studies."""
    return files.is_leftover(path.name) or path.name == RUNS or (path / FILE).exists()
