"""`fastpe.compare`: make all runs of a study, and compare their results."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastpe.base import files
from fastpe.base.validation import nearest
from fastpe.doctor.machine import usable_cores
from fastpe.experiments import cluster as cluster_engine
from fastpe.experiments import local, tuning
from fastpe.experiments.jobs import FolderOutcomes, Job, Listener, make_job
from fastpe.experiments.study import SETTINGS, SETTINGS_HELP, RunKey, Study
from fastpe.experiments.study_answer import can_be_concluded
from fastpe.experiments.study_folder import (
    FAILED,
    FILE,
    RUNS,
    Compared,
    FinishedRun,
    check_folder,
    hold,
    write_report,
)
from fastpe.experiments.tuning import Choices
from fastpe.training import config_file
from fastpe.training.config import TrainConfig
from fastpe.training.events import Noted


def compare(
    encodings: Study | Sequence[str] | Mapping[str, Mapping[str, Any]],
    tasks: Sequence[str] | Mapping[str, Mapping[str, Any]] | None = None,
    *,
    seeds: int | Sequence[int] = 10,
    baseline: str | None = None,
    preset: str = "recipe",
    choose: Mapping[str, Sequence[Any]] | None = None,
    choose_seeds: int | Sequence[int] | None = None,
    out: str | Path | None = None,
    runs: str | Path | None = None,
    workers: int | None = None,
    shard: tuple[int, int] | None = None,
    cluster: str | None = None,
    progress: Listener | None = None,
    **settings: Any,
) -> Compared | None:
    """Train every encoding on every task with the same seeds, and compare the results with those of a baseline.

    All comparisons are paired: runs of a task with the same seed have the same training data in the same order, and the
    same test sequences. Finished runs are not repeated. After an interruption, the same call continues the study.

    Parameters
    ----------
    encodings : Study, sequence of str or dict
        A study, or the encodings of a new study; see `fastpe.experiments.study.Study`.
    tasks : sequence of str or dict
        The tasks of a new study.
    seeds : int or sequence of int
        The number of seeds, or the seeds themselves.
    baseline : str, optional
        The encoding that the others are compared with. The default is nope if it is among them, else the first.
    preset : str
        The protocol of a new study, which sets the defaults of `settings`. ``"recipe"`` stands for small models that
        solve the task (see ``fastpe tasks NAME``), and ``"li2025"`` for the defaults of `TrainConfig`. The other keys
        of `fastpe.training.presets.PRESETS` are published protocols.
    choose : dict of str to list, optional
        Name of a setting, or of an option that every encoding has -> list of candidate values. For each task and
        encoding, all combinations of candidates are trained with other seeds than `seeds`. The runs of the study then
        use the combination that is best in validation. See `fastpe.experiments.study`.
    choose_seeds : int or sequence of int, optional
        The seeds with which candidates are trained, or the number of these seeds (by default 3). They must not be among
        `seeds`.
    out : str or pathlib.Path
        The study folder, which receives ``runs/``, ``study.toml`` and the report.
    runs : str or pathlib.Path, optional
        The folder of the runs, by default ``out/runs``. Two studies that use the same folder share the runs that are in
        both.
    workers : int, optional
        Number of processes, each with one thread; by default the number of cores. Results do not depend on it.
    shard : (int, int), optional
        (k, n): divide the runs into n parts, and make only part k, counted from 1. For example, each job of an array of
        batch jobs makes one part. `fastpe merge` joins the parts. With `choose`, all runs of the same task and encoding
        are in the same part.
    cluster : str, optional
        Make the runs on a Dask cluster (dask.distributed): "local", the address of a scheduler, or the path of a
        scheduler file. Dask exchanges pickles and, by default, authenticates nobody. Use it only in a network in which
        you trust everyone.
    progress : callable, optional
        Called with every event, see `fastpe.experiments.jobs.JobEvent`.
    **settings
        Settings of all runs, as in `TrainConfig`.

    Returns
    -------
    Compared or None
        The study with its results: `frame` returns them as a data frame, `plot` draws them. None if `shard` is given.
        `load_study` reads them again.

    Raises
    ------
    ValueError, TypeError
        If an argument is wrong, or the folder contains another study. Nothing is written in this case.
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
            if name not in SETTINGS:
                near = nearest(name, SETTINGS, SETTINGS_HELP, compare.__kwdefaults__ or ())
                raise ValueError(f"setting {name!r} is unknown; {near}")
        chosen = {"choose": choose or {}, "choose_seeds": choose_seeds}
        study = Study(encodings, tasks, seeds, baseline, settings, preset, **chosen)  # type: ignore[arg-type] # it makes them
    if out is None:
        raise ValueError("out is missing: it must be a folder, where runs are kept and an interrupted study continues")
    study = study.with_texts()
    folder, count = Path(out), workers if workers is not None else usable_cores()
    keys = list(study.run_keys()) if shard is None else study.part(*shard)
    check_folder(folder, study)
    place = folder / RUNS if runs is None else Path(runs)
    config_file.check_folder(place)
    notify = progress or (lambda event: None)
    for line in can_be_concluded(study):
        notify(Noted(line))

    def do(jobs: Sequence[Job]) -> FolderOutcomes:
        if cluster is None:
            return local.run(jobs, max(1, count), notify, tolerant=True)
        return cluster_engine.run(jobs, cluster, max(1, count), notify)

    with hold(folder), hold(place):
        return _compare(study, folder, _Runs(place, do, notify), keys, shard is None)


class _Runs:
    """Makes runs in a folder. Runs with the same settings are made only once."""

    def __init__(self, folder: Path, do: Callable[[Sequence[Job]], FolderOutcomes], notify: Listener) -> None:
        self._folder, self._do, self.notify = folder, do, notify
        self.failed: dict[str, Any] = {}

    def make(self, configs: Mapping[Any, TrainConfig]) -> dict[Any, tuple[Job, dict[str, Any]]]:
        """Make the runs, and return the job and the outcome of each."""
        made = {key: _job(config, self._folder) for key, config in configs.items()}
        done = self._do(list({one.path.name: one for one in made.values()}.values()))
        found = {key: (one, done[one.path.name]) for key, one in made.items()}
        for one, outcome in found.values():
            if "failed" in outcome:
                self.failed[config_file.digest(one.config.to_dict())] = outcome["failed"]
        return found


def _job(config: TrainConfig, runs: Path) -> Job:
    encoding = config.encoding.replace("*", "x").replace(",", "-")
    return make_job(runs, f"{config.task}-{encoding}-seed{config.seed}", config)


def _compare(study: Study, folder: Path, runs: _Runs, keys: Sequence[RunKey], whole: bool) -> Compared | None:
    files.write_file(folder / FILE, study.to_toml().encode())
    choices: Choices = {}
    if trials := {trial: study.trial_config(trial) for trial in study.trials(keys)}:
        runs.notify(Noted(f"{len(trials)} tuning runs: {tuning.offered(study)}"))
        choices = tuning.choose(study, {trial: outcome for trial, (_, outcome) in runs.make(trials).items()})
        for choice in choices.values():
            runs.notify(Noted(tuning.in_words(study, choice)))
    made = runs.make(tuning.configs(study, keys, choices))
    files.write_file(folder / FAILED, files.dump_json(runs.failed))
    if not whole:
        return None
    cpu = config_file.environment()["cpu"]["name"]
    finished = {key: _finished(outcome, one, cpu) for key, (one, outcome) in made.items()}
    return write_report(study, folder, finished, choices)


def _finished(outcome: Mapping[str, Any], one: Job, cpu: str) -> FinishedRun:
    if "failed" in outcome:
        return FinishedRun(outcome, None, "", "")
    return FinishedRun(outcome, one.path, one.identity, cpu)
