"""The folder of a study: its definition, its runs, the reasons why runs failed, and the report.

=====================  =================================================================
``study.toml``         the study
``runs/``              the run folders, unless another folder is given
``failed.json``        the reasons why runs failed, by the digest of their settings
``report.html``, ...   the report, see `fastpe.experiments.study_report.files_of`
=====================  =================================================================
"""

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fastpe.base import files, stored
from fastpe.base.frames import frame
from fastpe.base.stored import DamagedFileError, Unfit
from fastpe.experiments import results, study_answer, study_page, study_report, tuning
from fastpe.experiments.study import RunKey, Study, candidate_name
from fastpe.experiments.tuning import Choices
from fastpe.pictures import plots
from fastpe.training import config_file, metrics_file, result_file
from fastpe.training.config import TrainConfig
from fastpe.training.config_file import RunError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RUNS, FILE, FAILED = "runs", "study.toml", "failed.json"


@dataclass(frozen=True)
class Compared:
    """A study and its results, as `fastpe.compare` returns them.

    Attributes
    ----------
    study : Study
    summary : dict
        Statistics of the results, as JSON values, see `fastpe.experiments.results.summary`.
    rows : list of dict
        The table of all results, with one row for each run, length and metric.
    out : pathlib.Path
        The study folder.
    """

    study: Study
    summary: dict[str, Any]
    rows: list[dict[str, Any]]
    out: Path

    def __repr__(self) -> str:
        return f"<Compared in {self.out}: {study_answer.answer(self.study, self.summary)}>"

    def _repr_html_(self) -> str:
        """A notebook shows the answer, and the means of all encodings on all tasks."""
        return study_page.notebook(self.study, self.summary)

    def frame(self) -> Any:
        """Return all results as a data frame.

        Returns
        -------
        pandas.DataFrame or polars.DataFrame
            A row for each run, length and metric, with the columns of ``results.csv``: ``task``, ``encoding``,
            ``seed``, ``length``, ``metric``, ``value``, ``updates``, ``seconds``, ``identity``, ``cpu``, ``failed``. It
            is a frame of polars if pandas is missing.

        Raises
        ------
        ModuleNotFoundError
            If neither pandas nor polars is installed.

        Examples
        --------
        >>> table = load_study("compare").frame()  # doctest: +SKIP
        >>> table[table.metric == "exact"].groupby(["encoding", "length"]).value.mean()  # doctest: +SKIP
        """
        return frame(results.columns(self.rows), self.rows)

    def plot(self) -> "Figure":
        """Draw the results of each task over length, as the page does.

        Returns
        -------
        matplotlib.figure.Figure

        Raises
        ------
        ModuleNotFoundError
            If matplotlib is not installed.

        Examples
        --------
        >>> load_study("compare").plot().savefig("study.png")  # doctest: +SKIP
        """
        return plots.drawn([study_page.plot(self.study, self.summary, task) for task in self.study.tasks])


class FinishedRun(NamedTuple):
    """The outcome of one run, its folder, identity and CPU.

    Attributes
    ----------
    outcome : dict
        The content of ``result.json``, or ``{"failed": reason}``.
    path : pathlib.Path or None
        The run folder; None if the run failed.
    identity, cpu : str
        The identity of the run (`fastpe.experiments.jobs.identity`) and the name of its CPU; empty if the run failed.
    """

    outcome: Mapping[str, Any]
    path: Path | None
    identity: str
    cpu: str


@contextlib.contextmanager
def hold(folder: Path) -> Iterator[None]:
    """Create a folder if it does not exist, and lock it for this process; a context manager."""
    files.make_folder(folder, exist_ok=True)
    lock = files.lock_folder(folder)
    if lock is None:
        raise RunError(f"another process is working in {folder}")
    try:
        files.remove_leftovers(folder)
        yield
    finally:
        lock.close()


def check_folder(folder: Path, study: Study) -> None:
    """Raise if a study cannot be made in a folder.

    Raises
    ------
    RunError
        If the folder cannot be written, or contains another study or other files.
    """
    config_file.check_folder(folder)
    if not folder.is_dir():
        return
    stored = folder / FILE
    if stored.exists():
        try:
            there, study = Study.read(stored).with_texts(), study.with_texts()
        except (TypeError, ValueError) as error:
            raise RunError(f"{stored} was edited and is not a valid study: {error}") from error
        more = set(there.each_seed) <= set(study.each_seed)
        same = there.choose_seeds == study.choose_seeds and replace(there, seeds=study.seeds) == study
        if not (same and more):  # a study may be continued with more seeds
            raise RunError(f"{folder} contains another study: choose another folder, or use the settings of {stored}")
    elif any(not _of_study(folder / each) for each in os.listdir(folder)):
        raise RunError(f"{folder} is not a study folder: it contains files but no {FILE}")


def _of_study(path: Path) -> bool:
    """Whether a study folder may contain this path: a leftover of an interruption, the runs, or a study folder."""
    return files.is_leftover(path.name) or path.name == RUNS or (path / FILE).exists()


def finished_runs(folder: Path) -> dict[str, FinishedRun]:
    """The finished runs in a folder by the digest of their settings; of runs with equal settings, the first by name."""
    found: dict[str, FinishedRun] = {}
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        with contextlib.suppress(DamagedFileError, RunError, OSError):  # such a run counts as missing
            config, run = finished_run(path)
            found.setdefault(config_file.digest(config.to_dict()), run)
    return found


def finished_run(path: Path) -> tuple[TrainConfig, FinishedRun]:
    """Read the settings and the result of a finished run.

    Raises
    ------
    RunError
        If the folder contains no run, or the run is not finished.
    DamagedFileError
        If a file of the run is damaged.
    """
    config = config_file.read_config(path)
    sealed = None if config is None else result_file.read(path, config)
    if config is None or sealed is None:
        raise RunError(f"{path} contains no finished run")
    return config, FinishedRun(sealed[0], path, sealed[1].get("identity", ""), config_file.read(path)["cpu"]["name"])


def read_failures(folder: Path) -> dict[str, str]:
    """The reasons why runs of a study failed, by the digest of their settings."""
    path = folder / FAILED
    found = files.read_json(path) if path.exists() else {}
    stored.checked(path, found, stored.by_key(_reason))
    return {key: stored.printable(stored.cut(why)) for key, why in found.items()}


def _reason(key: str, value: Any) -> None:
    if type(value) is not str:
        raise Unfit.of(key, value, "a text")


def write_report(
    study: Study, out: Path, runs: Mapping[RunKey, FinishedRun], choices: Choices | None = None
) -> Compared:
    """Write the report into the study folder, and return the results; see `collect`."""
    found = collect(study, out, runs, choices)
    configs = tuning.configs(study, list(study.run_keys()), choices or {})
    for name, content in study_report.files_of(study, found.summary, found.rows, _curves(configs, runs)).items():
        files.write_file(out / name, content)
    return found


def collect(study: Study, out: Path, runs: Mapping[RunKey, FinishedRun], choices: Choices | None = None) -> Compared:
    """Compute the statistics of the runs of a study. Nothing is written.

    Parameters
    ----------
    study : Study
    out : pathlib.Path
        The study folder.
    runs : dict of RunKey to FinishedRun
        The runs of the study.
    choices : dict, optional
        If the study chooses settings: the choices, by task and encoding. If no candidate could be chosen for a pair,
        its runs are missing from `runs` and count as failed.
    """
    choices, known = choices or {}, runs
    runs = {key: known[key] if key in known else _not_made(key, choices) for key in study.run_keys()}
    facts = {key: {"identity": run.identity[:12], "cpu": run.cpu} for key, run in runs.items()}
    outcomes = {key: run.outcome for key, run in runs.items()}
    summary = results.summary(study, outcomes) | {"cpus": sorted({run.cpu for run in runs.values() if run.cpu})}
    for each in summary["cells"] if len(summary["cpus"]) > 1 else ():
        own = {runs[RunKey(each["task"], each["encoding"], seed)].cpu for seed in study.each_seed}
        each["mixed"] = len(own - {""}) > 1
    if study.choose:
        summary["choosing"] = tuning.facts(study, choices)
        for key, own_facts in facts.items():
            best = choices[key.task, key.encoding].chosen
            own_facts["chosen"] = "" if best is None else candidate_name(study.candidates[best])
    return Compared(study, summary, results.rows(study, outcomes, facts), out)


def _not_made(key: RunKey, choices: Choices) -> FinishedRun:
    """The outcome of a run that was not made because no candidate could be chosen for it."""
    return FinishedRun({"failed": choices[key.task, key.encoding].reason}, None, "", "")


def _curves(configs: Mapping[RunKey, TrainConfig], runs: Mapping[RunKey, FinishedRun]) -> dict[RunKey, list[float]]:
    """The training losses of every run that did not fail, one for each epoch."""
    found = {}
    for key, run in runs.items():
        if run.path is not None and "failed" not in run.outcome:
            config = configs[key]
            history, _ = metrics_file.cut(run.path, config, config.epochs)
            found[key] = [float(line["loss"]) for line in history]
    return found
