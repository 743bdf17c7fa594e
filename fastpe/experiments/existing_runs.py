"""Reports of existing runs, without training: of a study folder, of the shards of a study, or of single run folders."""

import contextlib
import itertools
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fastpe.base import files, validation
from fastpe.experiments import tuning
from fastpe.experiments.study import RunKey, Study, Trial
from fastpe.experiments.study_folder import (
    FAILED,
    FILE,
    RUNS,
    Compared,
    FinishedRun,
    check_folder,
    collect,
    finished_run,
    finished_runs,
    hold,
    read_failures,
    write_report,
)
from fastpe.experiments.tuning import Choices
from fastpe.training import config_file, result_file, run_folder
from fastpe.training.config import TrainConfig
from fastpe.training.config_file import RunError

_Key = TypeVar("_Key", RunKey, Trial)


class _Found(NamedTuple):
    """All runs of a study.

    Attributes
    ----------
    runs : dict of RunKey to FinishedRun
        The runs that are reported.
    choices : dict
        The chosen candidates, as `tuning.choose` returns them.
    all : dict of str to FinishedRun
        The reported runs and the tuning runs, by the digest of their settings.
    """

    runs: dict[RunKey, FinishedRun]
    choices: Choices
    all: dict[str, FinishedRun]


def load_study(folder: str | Path, runs: str | Path | None = None) -> Compared:
    """Read the results of a study from its folder, as `fastpe.compare` returned them. Nothing is trained or written.

    Parameters
    ----------
    folder : str or pathlib.Path
        The study folder.
    runs : str or pathlib.Path, optional
        The folder of the runs, by default ``folder/runs``.

    Returns
    -------
    Compared

    Raises
    ------
    RunError
        If the folder is not a study folder, or runs are missing; the message states their number.

    Examples
    --------
    >>> load_study("missing")
    Traceback (most recent call last):
    fastpe.training.config_file.RunError: missing is not a study folder: it has no study.toml
    """
    where = validation.path("folder", folder)
    study, found = _read(where, None if runs is None else validation.path("runs", runs))
    return collect(study, where, found.runs, found.choices)


def report_study(out: Path, runs: Path | None = None, margin: float | None = None) -> Compared:
    """Write the report of a study folder again; see `load_study`.

    The runs may have been made with other versions and on other CPUs.

    Parameters
    ----------
    out, runs
        The study folder, and the folder of the runs, by default ``out/runs``.
    margin : float, optional
        The study's new margin, which its study file then contains; by default, the margin does not change.
    """
    study, found = _read(out, runs)
    if margin is None:
        return write_report(study, out, found.runs, found.choices)
    study = replace(study, margin=margin)
    with hold(out):
        files.write_file(out / FILE, study.to_toml().encode())
        return write_report(study, out, found.runs, found.choices)


def _read(out: Path, runs: Path | None) -> tuple[Study, _Found]:
    """Read the study of a folder, and all its runs."""
    try:
        study = Study.read(out / FILE)
    except FileNotFoundError as error:
        raise RunError(f"{out} is not a study folder: it has no {FILE}") from error
    if runs is not None and not runs.is_dir():
        raise RunError(f"there is no folder {runs}")
    where = "" if runs is not None else f", or name the folder of the runs with --runs if it is not {out / RUNS}"
    finished = finished_runs(out / RUNS if runs is None else runs)
    return study, _found(study, finished, read_failures(out), out, where)


def _found(
    study: Study, finished: Mapping[str, FinishedRun], failed: Mapping[str, str], out: Path, where: str
) -> _Found:
    """Find all runs of a study among finished and failed runs, which are both keyed by the digest of their settings.

    Raises
    ------
    RunError
        If runs are missing. The message ends with `where`, which tells what else the user can do.
    """
    every: dict[str, FinishedRun] = {}

    def made(configs: Mapping[_Key, TrainConfig]) -> dict[_Key, FinishedRun]:
        found = {}
        for one, config in configs.items():
            key = config_file.digest(config.to_dict())
            if key in finished:
                found[one] = every[key] = finished[key]
            elif key in failed:
                found[one] = every[key] = FinishedRun({"failed": failed[key]}, None, "", "")
        return found

    trials = {trial: study.trial_config(trial) for trial in study.trials()}
    tried, keys = made(trials), list(study.run_keys())
    waiting = {(trial.task, trial.encoding) for trial in trials if trial not in tried}
    choices = tuning.choose(
        study, {trial: run.outcome for trial, run in tried.items() if (trial.task, trial.encoding) not in waiting}
    )
    configs = tuning.configs(study, keys, choices)
    known = made(configs)
    never = [key for key in keys if key not in configs and (key.task, key.encoding) in choices]
    count = len(trials) + len(keys) - len(never)
    missing = count - len(tried) - len(known)
    if missing:
        raise RunError(
            f"{out} lacks {missing} of {count} runs: to continue the study, run the same command again{where}"
        )
    return _Found(known, choices, every)


def merge(parts: Sequence[Path], out: Path) -> Compared:
    """Join the shards of a study, which together must contain all of its runs, and write the report.

    All shards are checked before anything is written. If copying fails, everything that was copied is removed.

    Raises
    ------
    RunError
        If a folder is not a study folder, contains another study or a link, or if runs are missing.
    DamagedFileError
        If a file in a shard is damaged.
    """
    content = shared_study(parts)
    study = Study.read(parts[0] / FILE)
    check_folder(out, study)
    finished, failed = finished_runs(out / RUNS), read_failures(out)
    for part in parts:
        finished = _runs_of_shard(part) | finished
        failed |= read_failures(part)
    found = _found(study, finished, failed, out, "")
    copied: dict[Path, Path] = {}  # target folder -> source folder
    for run in found.all.values():
        if run.path is not None and run.path.parent != out / RUNS:
            target = out / RUNS / run.path.name
            if target in copied or os.path.lexists(target):
                raise RunError(
                    f"{run.path} and {copied.get(target, target)} are different runs with the same folder name"
                )
            copied[target] = run.path
    failures = {key: run.outcome["failed"] for key, run in found.all.items() if run.path is None}
    try:
        with hold(out):
            _copy_all(list(copied.values()), out / RUNS)
            files.write_file(out / FILE, content)
            files.write_file(out / FAILED, files.dump_json(dict(sorted(failures.items()))))
    except BaseException:
        with contextlib.suppress(OSError):  # the folder is kept if it contains other files
            out.rmdir()
        raise
    return report_study(out)


def shared_study(parts: Sequence[Path]) -> bytes:
    """The content of ``study.toml``, which must be the same in all shards.

    Raises
    ------
    RunError
        If a folder is not a study folder or contains another study.
    """
    texts = {}
    for part in parts:
        _refuse_link(part / FILE)
        try:
            texts[part] = files.read_file(part / FILE)
        except OSError as error:
            raise RunError(f"{part} is not a study folder: it has no {FILE}") from error
    first = next(iter(texts))
    for part, text in texts.items():
        if text != texts[first]:
            raise RunError(f"{part} and {first} contain different studies: only shards of the same study can be merged")
    return texts[first]


def _refuse_link(path: Path) -> None:
    """Raise RunError for a link, because a shard from someone else could link to any file of the user."""
    if path.is_symlink():
        raise RunError(f"{path} is a link: replace it by a copy of its target before merging the shards")


def _runs_of_shard(part: Path) -> dict[str, FinishedRun]:
    """The finished runs of a shard, by the digest of their settings. Links and files that are too large are refused."""
    found: dict[str, FinishedRun] = {}
    _refuse_link(part / FAILED)
    _refuse_link(part / RUNS)
    for path in sorted((part / RUNS).iterdir()) if (part / RUNS).is_dir() else ():
        _refuse_link(path)
        for name in run_folder.FILES:
            _refuse_link(path / name)
        if not files.is_leftover(path.name) and (path / result_file.SEAL).exists():
            config, run = finished_run(path)
            run_folder.check_sizes(path, config)
            found.setdefault(config_file.digest(config.to_dict()), run)
    return found


def _copy_all(runs: Sequence[Path], folder: Path) -> None:
    """Copy the files of runs into a folder, either all of them or none."""
    staged = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(staged, ignore_errors=True)
    try:
        for run in runs:
            files.make_folder(staged / run.name)
            for path in (run / name for name in run_folder.FILES):
                _refuse_link(path)
                if os.path.lexists(path):
                    files.write_file(staged / run.name / path.name, files.pieces(path))
        files.make_folder(folder, exist_ok=True)
        for run in runs:
            (staged / run.name).rename(folder / run.name)
    finally:
        shutil.rmtree(staged, ignore_errors=True)


def report_runs(runs: Sequence[Path], out: Path, baseline: str | None = None) -> Compared:
    """Make a study from single run folders, and write its report.

    A setting that differs between runs becomes part of the study's tasks if it is the same in all runs of each task.
    Otherwise it becomes part of the study's encodings.

    Parameters
    ----------
    runs : sequence of Path
        Folders of finished runs. There must be a run of every encoding on every task, with the same seeds.
    out : Path
        The folder of the report: a new folder, or that of an earlier report.
    baseline : str, optional
        The label of the baseline in the report.

    Raises
    ------
    RunError
        If a folder contains no finished run, two folders contain the same run, or a run is missing.
    """
    found = [finished_run(path) for path in runs]
    study, keys = _study_of([config for config, _ in found], baseline)
    known: dict[RunKey, FinishedRun] = {}
    for key, path, (_, run) in zip(keys, runs, found, strict=True):
        if key in known:
            raise RunError(f"{path} and {known[key].path} are the same run: {key.encoding}, seed {key.seed}")
        known[key] = run
    for key in study.run_keys():
        if key not in known:
            raise RunError(
                f"the folders contain no run of {key.encoding} on {key.task} with seed {key.seed}: a report needs "
                "a run of every encoding on every task with the same seeds"
            )
    check_folder(out, study)
    with hold(out):
        files.write_file(out / FILE, study.to_toml().encode())
        return write_report(study, out, known)


def _study_of(configs: Sequence[TrainConfig], baseline: str | None) -> tuple[Study, list[RunKey]]:
    """The study that consists of the runs with these settings, and the key of every run."""
    of = [config.to_dict() for config in configs]
    every = dict.fromkeys(name for each in of for name in each)  # some settings are stored only if they are set
    of = [{**dict.fromkeys(every), **each} for each in of]
    names = [name for name in every if name not in ("encoding", "options", "task", "task_options", "seed")]
    differ = [name for name in names if any(each[name] != of[0][name] for each in of)]
    tasks = _labelled(of, "task", "task_options", [name for name in differ if _told_by_task(of, name)])
    encodings = _labelled(of, "encoding", "options", [name for name in differ if not _told_by_task(of, name)])
    labels = [(task, encoding) for (task, _), (encoding, _) in zip(tasks, encodings, strict=True)]
    keys = [RunKey(task, encoding, each["seed"]) for (task, encoding), each in zip(labels, of, strict=True)]
    alike = {name: of[0][name] for name in names if name not in differ and of[0][name] is not None}
    seeds = sorted({each["seed"] for each in of})
    return Study(dict(encodings), dict(tasks), seeds, baseline, alike), keys  # type: ignore[arg-type] # None: the default


def _told_by_task(of: Sequence[Mapping[str, Any]], name: str) -> bool:
    """Whether a setting is the same in all runs of a task."""
    seen: dict[str, Any] = {}
    return all(seen.setdefault(repr((each["task"], each["task_options"])), each[name]) == each[name] for each in of)


def _labelled(
    of: Sequence[Mapping[str, Any]], key: str, options: str, own: Sequence[str]
) -> list[tuple[str, dict[str, Any]]]:
    """The label and the entry in a study of the encoding, or of the task, of every run."""
    entries = [
        {key: each[key], "options": each[options], **{name: each[name] for name in own if each[name] is not None}}
        for each in of
    ]
    shown = {
        name
        for one, other in itertools.combinations({repr(entry): entry for entry in entries}.values(), 2)
        if one[key] == other[key]
        for name, value in _flat(one).items() | _flat(other).items()
        if _flat(one).get(name) != _flat(other).get(name)
    }
    return [
        (" ".join([entry[key], *(f"{n}={v}" for n, v in _flat(entry).items() if n in shown and n != key)]), entry)
        for entry in entries
    ]


def _flat(entry: Mapping[str, Any]) -> dict[str, str]:
    """The options and settings of an entry in one dict, as text."""
    return {name: str(value) for name, value in {**entry["options"], **entry}.items() if name != "options"}
