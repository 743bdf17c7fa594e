"""Studies from runs that are there: reported again, joined from shards, or put together from single run folders."""

import contextlib
import itertools
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from fastpe.base import files, stored
from fastpe.base.stored import DamagedFileError
from fastpe.experiments import choosing, grid
from fastpe.experiments.compare import FAILED, FILE, RUNS, Compared, Run, check_folder, hold, summed_up
from fastpe.experiments.study import Cell, Study
from fastpe.training import config_file, result_file, run_folder
from fastpe.training.config import TrainConfig
from fastpe.training.config_file import RunError

_Key = TypeVar("_Key", Cell, grid.Trial)
_FAILURES = stored.by_key(stored.anything)  # by the digest of a run's settings, why it failed


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
    kept, failed = _kept(out / RUNS if runs is None else runs), _failures(out)

    def made(configs: Mapping[_Key, TrainConfig]) -> dict[_Key, Run]:
        found = {}
        for one, config in configs.items():
            key = config_file.digest(config.to_dict())
            if key in kept:
                found[one] = kept[key]
            elif key in failed:
                found[one] = Run({"failed": stored.printable(stored.cut(str(failed[key])))}, None, "", "")
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
        where = "" if runs is not None else f", or, if they are not in {out / RUNS}, name their folder by --runs"
        raise RunError(f"{out} lacks {missing} of {count} runs: run the study on, with the same command{where}")
    return summed_up(study, out, known, choices)


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

    Raises
    ------
    RunError
        If a folder holds no study, or another one, or runs are missing.
    """
    content = shared_study(parts)
    check_folder(out, Study.read(parts[0] / FILE))
    with hold(out):
        files.make_folder(out / RUNS, exist_ok=True)
        for part in parts:
            _refuse_link(part / RUNS)
            for run in sorted((part / RUNS).iterdir()) if (part / RUNS).is_dir() else ():
                _refuse_link(run)
                if not (out / RUNS / run.name).exists() and (run / result_file.SEAL).exists():
                    _copy(run, out / RUNS / run.name)
        files.write_file(out / FILE, content)
        joined = {name: why for part in parts for name, why in _failures(part).items()}
        files.write_file(out / FAILED, files.dump_json(dict(sorted(joined.items()))))
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


def _copy(run: Path, target: Path) -> None:
    """Copy the files of a run to a new folder, which is there whole or not at all."""
    beside = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(beside, ignore_errors=True)
    files.make_folder(beside)
    for path in (run / name for name in run_folder.FILES):
        _refuse_link(path)
        if os.path.lexists(path):
            with files.open_file(path) as file:
                files.write_file(beside / path.name, file.read())
    beside.rename(target)


def _failures(folder: Path) -> dict[str, Any]:
    """The runs of a study that failed, and why."""
    path = folder / FAILED
    found = files.read_json(path) if path.exists() else {}
    return dict(stored.checked(path, found, _FAILURES))


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
