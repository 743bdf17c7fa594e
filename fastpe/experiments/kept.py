"""Studies from runs that are there: reported again, joined from shards, or put together from single run folders."""

import contextlib
import itertools
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from fastpe.base import files, stored
from fastpe.base.stored import DamagedFileError, Unfit
from fastpe.experiments import choosing, grid
from fastpe.experiments.choosing import Choices
from fastpe.experiments.compare import FAILED, FILE, RUNS, Compared, Run, check_folder, hold, summed_up
from fastpe.experiments.study import Cell, Study
from fastpe.training import config_file, result_file, run_folder
from fastpe.training.config import TrainConfig
from fastpe.training.config_file import RunError

_Key = TypeVar("_Key", Cell, grid.Trial)


class _Found(NamedTuple):
    """The runs of a study that are there.

    Attributes
    ----------
    cells : dict of Cell to Run
    choices : dict
    all : dict of str to Run
        Those that chose settings among them, by the digest of their settings.
    """

    cells: dict[Cell, Run]
    choices: Choices
    all: dict[str, Run]


def read_again(out: Path, runs: Path | None = None) -> Compared:
    """A study from its folder, whatever version and CPU its runs were made with: nothing is run.

    Parameters
    ----------
    out : Path
    runs : Path, optional
        Where the runs are, if not in ``out/runs``.

    Raises
    ------
    RunError
        If there is no study, or runs are missing; the message says how many.
    """
    try:
        study = Study.read(out / FILE)
    except FileNotFoundError as error:
        raise RunError(f"{out} holds no study: it has no {FILE}") from error
    where = "" if runs is not None else f", or, if they are not in {out / RUNS}, name their folder by --runs"
    found = _found(study, _kept(out / RUNS if runs is None else runs), _failures(out), out, where)
    return summed_up(study, out, found.cells, found.choices)


def _found(study: Study, kept: Mapping[str, Run], failed: Mapping[str, str], out: Path, where: str) -> _Found:
    """All runs of a study, of those that are kept, or failed, by the digest of their settings.

    Raises
    ------
    RunError
        If runs are missing; `where` says what else can be done.
    """
    every: dict[str, Run] = {}

    def made(configs: Mapping[_Key, TrainConfig]) -> dict[_Key, Run]:
        found = {}
        for one, config in configs.items():
            key = config_file.digest(config.to_dict())
            if key in kept:
                found[one] = every[key] = kept[key]
            elif key in failed:
                found[one] = every[key] = Run({"failed": failed[key]}, None, "", "")
        return found

    trials = {trial: grid.trial_config(study, trial) for trial in grid.trials(study)}
    tried, cells = made(trials), list(study.cells())
    waiting = {(trial.task, trial.encoding) for trial in trials if trial not in tried}
    choices = choosing.choose(
        study, {trial: run.outcome for trial, run in tried.items() if (trial.task, trial.encoding) not in waiting}
    )
    configs = choosing.configs(study, cells, choices)
    known = made(configs)
    never = [cell for cell in cells if cell not in configs and (cell.task, cell.encoding) in choices]
    count = len(trials) + len(cells) - len(never)
    missing = count - len(tried) - len(known)
    if missing:
        raise RunError(f"{out} lacks {missing} of {count} runs: run the study on, with the same command{where}")
    return _Found(known, choices, every)


def _kept(runs: Path) -> dict[str, Run]:
    """The finished runs of a folder by the digest of their settings; of several the first by name."""
    found: dict[str, Run] = {}
    for path in sorted(runs.iterdir()) if runs.is_dir() else ():
        with contextlib.suppress(DamagedFileError, RunError, OSError):  # it is missing, and said to be
            config, run = finished(path)
            found.setdefault(config_file.digest(config.to_dict()), run)
    return found


def finished(path: Path) -> tuple[TrainConfig, Run]:
    """The settings of a finished run, and what it found.

    Raises
    ------
    RunError
        If it is no run's folder, or the run has not ended.
    DamagedFileError
    """
    config = config_file.read_config(path)
    sealed = None if config is None else result_file.read(path, config)
    if config is None or sealed is None:
        raise RunError(f"{path} holds no finished run")
    return config, Run(sealed[0], path, sealed[1].get("identity", ""), config_file.read(path)["cpu"]["name"])


def merge(parts: Sequence[Path], out: Path) -> Compared:
    """Join the runs of several shards of one study, which must be whole together.

    All shards are checked before anything is written, and a copy that fails leaves nothing.

    Raises
    ------
    RunError
        If a folder holds no study, or another one, or a link, or runs are missing.
    DamagedFileError
        If a file in a shard is damaged.
    """
    content = shared_study(parts)
    study = Study.read(parts[0] / FILE)
    check_folder(out, study)
    kept, failed = _kept(out / RUNS), _failures(out)
    for part in parts:
        kept = _kept_in_shard(part) | kept
        failed |= _failures(part)
    found = _found(study, kept, failed, out, "")
    copied: dict[Path, Path] = {}  # where to, and from where
    for run in found.all.values():
        if run.path is not None and run.path.parent != out / RUNS:
            target = out / RUNS / run.path.name
            if target in copied or os.path.lexists(target):
                raise RunError(f"{run.path} and {copied.get(target, target)} are two runs with one name")
            copied[target] = run.path
    failures = {key: run.outcome["failed"] for key, run in found.all.items() if run.path is None}
    try:
        with hold(out):
            _copy_all(list(copied.values()), out / RUNS)
            files.write_file(out / FILE, content)
            files.write_file(out / FAILED, files.dump_json(dict(sorted(failures.items()))))
    except BaseException:
        with contextlib.suppress(OSError):  # it holds other things
            out.rmdir()
        raise
    return read_again(out)


def shared_study(parts: Sequence[Path]) -> bytes:
    """The content of the study's file, which all of these folders, its shards, have alike.

    Raises
    ------
    RunError
        If a folder holds no study, or another one.
    """
    texts = {}
    for part in parts:
        _refuse_link(part / FILE)
        try:
            texts[part] = files.read_file(part / FILE)
        except OSError as error:
            raise RunError(f"{part} holds no study: it has no {FILE}") from error
    first = next(iter(texts))
    for part, text in texts.items():
        if text != texts[first]:
            raise RunError(f"{part} holds another study than {first}: only shards of one can be merged")
    return texts[first]


def _refuse_link(path: Path) -> None:
    """Raise RunError for a link in a shard: a shard may come from someone else, and lead to any of the user's files."""
    if path.is_symlink():
        raise RunError(f"{path} is a link: put what it leads to in its place before the shards are merged")


def _kept_in_shard(part: Path) -> dict[str, Run]:
    """The finished runs of a shard by the digest of their settings, with no link in them and no file too large."""
    found: dict[str, Run] = {}
    _refuse_link(part / FAILED)
    _refuse_link(part / RUNS)
    for path in sorted((part / RUNS).iterdir()) if (part / RUNS).is_dir() else ():
        _refuse_link(path)
        for name in run_folder.FILES:
            _refuse_link(path / name)
        if not files.is_leftover(path.name) and (path / result_file.SEAL).exists():
            config, run = finished(path)
            run_folder.check_sizes(path, config)
            found.setdefault(config_file.digest(config.to_dict()), run)
    return found


def _copy_all(runs: Sequence[Path], folder: Path) -> None:
    """Copy the files of runs into a folder; where one cannot be copied, none is."""
    beside = folder.with_name(f".{folder.name}.tmp")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        for run in runs:
            files.make_folder(beside / run.name)
            for path in (run / name for name in run_folder.FILES):
                _refuse_link(path)
                if os.path.lexists(path):
                    files.write_file(beside / run.name / path.name, files.pieces(path))
        files.make_folder(folder, exist_ok=True)
        for run in runs:
            (beside / run.name).rename(folder / run.name)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _failures(folder: Path) -> dict[str, str]:
    """Why runs of a study failed, by the digest of their settings."""
    path = folder / FAILED
    found = files.read_json(path) if path.exists() else {}
    stored.checked(path, found, stored.by_key(_reason))
    return {key: stored.printable(stored.cut(why)) for key, why in found.items()}


def _reason(key: str, value: Any) -> None:
    if type(value) is not str:
        raise Unfit.of(key, value, "a text")


def report_of(runs: Sequence[Path], out: Path, baseline: str | None = None) -> Compared:
    """A study put together from single run folders, reported in a folder.

    What differs between the runs tells encodings apart, or tasks where all runs of one task have it.

    Parameters
    ----------
    runs : sequence of Path
        Finished runs: every encoding on every task with the same seeds.
    out : Path
        Folder of the report, new or a report's.
    baseline : str, optional
        As the report calls it.

    Raises
    ------
    RunError
        If a folder holds no finished run, two hold the same, or one is missing.
    """
    found = [finished(path) for path in runs]
    study, cells = _study_of([config for config, _ in found], baseline)
    known: dict[Cell, Run] = {}
    for cell, path, (_, run) in zip(cells, runs, found, strict=True):
        if cell in known:
            raise RunError(f"{path} and {known[cell].path} are the same run: {cell.encoding}, seed {cell.seed}")
        known[cell] = run
    for cell in study.cells():
        if cell not in known:
            raise RunError(
                f"no run of {cell.encoding} on {cell.task} with seed {cell.seed} is among the folders: a report needs "
                "every encoding on every task with the same seeds"
            )
    check_folder(out, study)
    with hold(out):
        files.write_file(out / FILE, study.to_toml().encode())
        return summed_up(study, out, known)


def _study_of(configs: Sequence[TrainConfig], baseline: str | None) -> tuple[Study, list[Cell]]:
    """The study that runs with these settings are of, and each one's place in it."""
    of = [config.to_dict() for config in configs]
    every = dict.fromkeys(name for each in of for name in each)  # some settings are stored only where they are set
    of = [{**dict.fromkeys(every), **each} for each in of]
    names = [name for name in every if name not in ("encoding", "options", "task", "task_options", "seed")]
    differ = [name for name in names if any(each[name] != of[0][name] for each in of)]
    tasks = _labelled(of, "task", "task_options", [name for name in differ if _told_by_task(of, name)])
    encodings = _labelled(of, "encoding", "options", [name for name in differ if not _told_by_task(of, name)])
    cells = [
        Cell(task, encoding, each["seed"]) for (task, _), (encoding, _), each in zip(tasks, encodings, of, strict=True)
    ]
    alike = {name: of[0][name] for name in names if name not in differ and of[0][name] is not None}
    seeds = sorted({each["seed"] for each in of})
    return Study(dict(encodings), dict(tasks), seeds, baseline, alike), cells  # type: ignore[arg-type] # None: a usual one


def _told_by_task(of: Sequence[Mapping[str, Any]], name: str) -> bool:
    """Whether a setting is the same in all runs of a task."""
    seen: dict[str, Any] = {}
    return all(seen.setdefault(repr((each["task"], each["task_options"])), each[name]) == each[name] for each in of)


def _labelled(
    of: Sequence[Mapping[str, Any]], key: str, options: str, own: Sequence[str]
) -> list[tuple[str, dict[str, Any]]]:
    """Of every run what a study calls its encoding, or its task, and the entry that stands under that name."""
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
    """An entry's options and settings side by side, as text."""
    return {name: str(value) for name, value in {**entry["options"], **entry}.items() if name != "options"}
