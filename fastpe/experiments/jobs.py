"""Jobs (runs that an engine must make), and the stored results that show which jobs are already done.

There are two engines, `local` and `cluster`. Both write the results into the run folders and notify a listener.

A result is reused only if everything that its bits depend on is the same: the settings, the sources of fastpe and of
the users' encodings, the versions and the CPU. The digest of all this is the `identity` of the run. The identity is
stored with the result. It is also part of the folder's name, so runs with different identities never share a folder.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fastpe.base.stored import DamagedFileError
from fastpe.encodings import registry
from fastpe.kernels.compile.sources import source_digest
from fastpe.tasks.registry import TASKS
from fastpe.training import config_file, result_file
from fastpe.training.config import TrainConfig
from fastpe.training.events import Noted

_WITHOUT = ("paper_claims", "pictures", "theory")  # packages that no run imports


@dataclass(frozen=True)
class Job:
    """A run that an engine must make.

    Attributes
    ----------
    name : str
        The name of the run in messages.
    config : TrainConfig
        The settings of the run.
    path : pathlib.Path
        The run folder.
    identity : str
        The digest that the function `identity` returns.
    """

    name: str
    config: TrainConfig
    path: Path
    identity: str


@dataclass(frozen=True)
class JobsStarted:
    """The jobs begin: `runs` runs with `steps` updates, of which `reused` runs with `reused_steps` updates are done."""

    runs: int
    reused: int
    steps: int
    reused_steps: int


@dataclass(frozen=True)
class RunStepped:
    """The run of `job` has made `step` of its updates."""

    job: Job
    step: int


@dataclass(frozen=True)
class RunEnded:
    """The run of `job` has ended; `outcome` is its result or ``{"failed": reason}``."""

    job: Job
    outcome: Mapping[str, Any]


JobEvent = JobsStarted | RunStepped | RunEnded | Noted
Listener = Callable[[JobEvent], None]
FolderOutcomes = dict[str, dict[str, Any]]
"""By the name of a run folder: the content of its ``result.json``, or ``{"failed": reason}``."""


def make_job(root: Path, name: str, config: TrainConfig) -> Job:
    """Make a job whose folder in `root` is named after `name` and the identity of the run."""
    key = identity(config)
    return Job(name, config, root / f"{name}-{key[:12]}", key)


def begin(jobs: Sequence[Job], notify: Listener) -> tuple[FolderOutcomes, list[Job]]:
    """Read the results of finished jobs, and notify; returns these results, and the jobs that remain."""
    outcomes: FolderOutcomes = {}
    left = []
    for one in jobs:
        try:
            found = read_result(one.path, one.config, one.identity)
        except DamagedFileError as error:
            notify(Noted(f"{error}; this run starts again"))
            found = None
        if found is None:
            left.append(one)
        else:
            outcomes[one.path.name] = found
    steps, left_steps = (sum(one.config.steps for one in some) for some in (jobs, left))
    notify(JobsStarted(len(jobs), len(jobs) - len(left), steps, steps - left_steps))
    return outcomes, left


def own_ways(configs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What another process needs to register the users' own encodings and tasks that these settings name."""
    keys = {key for config in configs for key in registry.all_keys(config["encoding"])}
    named = {config["task"] for config in configs}
    found = registry.ENCODINGS.ways(), TASKS.ways()
    encodings, tasks = ({key: way for key, way in ways.items() if key in keys | named} for ways in found)
    return {"encodings": encodings, "tasks": tasks}


def to_message(config: TrainConfig) -> dict[str, Any]:
    """The settings of a run for another process, as plain JSON values with the content of the tokenizer."""
    content = base64.b64encode(config.tokenizer_content).decode()
    return config.to_dict() | ({"tokenizer_content": content} if content else {})


def from_message(settings: Mapping[str, Any]) -> TrainConfig:
    """The inverse of `to_message`."""
    stored = {name: value for name, value in settings.items() if name != "tokenizer_content"}
    content = base64.b64decode(settings.get("tokenizer_content", ""))
    return TrainConfig.from_dict(stored, tokenizer_content=content)


def identity(config: TrainConfig) -> str:
    """The digest of everything that the bits of a run depend on, as a hexadecimal string."""
    sources = {"sources": _sources(), "encodings": registry.own_files(config.encoding)}
    material = {"config": config.to_dict(), **sources, **config_file.environment()}
    return config_file.digest(material)


@cache
def _sources() -> str:
    """The digest of fastpe's sources, computed once per process, because reading them takes longer than a small run."""
    return source_digest(without=_WITHOUT)


def read_result(folder: Path, config: TrainConfig, key: str) -> dict[str, Any] | None:
    """The result in a run folder that is sealed with this identity; None if there is no such result.

    Raises
    ------
    DamagedFileError
        If the result or its seal was changed after it was written.
    """
    found = result_file.read(folder, config)
    if found is None or not found[1]:  # training seals its results without an identity
        return None
    content, facts = found
    if facts != {"identity": key}:
        raise DamagedFileError(f"{folder / result_file.SEAL} is damaged: it does not belong to a result of this run")
    return content


def seal(folder: Path, key: str) -> None:
    """Store the identity of a run with its result."""
    result_file.seal(folder, identity=key)
