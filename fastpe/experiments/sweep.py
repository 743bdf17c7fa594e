"""Many runs over worker processes: resumable at any point, whoever is killed.

A worker that dies is replaced, and its run goes on from the last checkpoint; results that are there already, for the
same configuration, sources, versions and CPU, are reused. Prints nothing: a listener hears what happens.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from fastpe.base.stored import DamagedFileError
from fastpe.encodings import registry
from fastpe.experiments import reuse
from fastpe.tasks.registry import TASKS
from fastpe.training.config import TrainConfig

_ATTEMPTS = 3
_GRACE = 5.0  # seconds that a worker has to end by itself


@dataclass(frozen=True)
class Job:
    """One run: its name, its settings, its folder, and what its bits depend on (`reuse.identity`)."""

    name: str
    config: TrainConfig
    path: Path
    identity: str


@dataclass(frozen=True)
class SweepStarted:
    """`runs` runs of `steps` updates in all are to be done; `reused` of them, `reused_steps` updates, are there."""

    runs: int
    reused: int
    steps: int
    reused_steps: int


@dataclass(frozen=True)
class RunStepped:
    """The run `job` has made `step` of its updates."""

    job: Job
    step: int


@dataclass(frozen=True)
class RunEnded:
    """The run `job` has this outcome: its result, or ``{"failed": reason}``."""

    job: Job
    outcome: Mapping[str, Any]


@dataclass(frozen=True)
class SweepNoted:
    """Something that the user should know."""

    message: str


SweepEvent = SweepStarted | RunStepped | RunEnded | SweepNoted
Listener = Callable[[SweepEvent], None]
Outcomes = dict[str, dict[str, Any]]


def job(root: Path, name: str, config: TrainConfig) -> Job:
    """A job whose folder below `root` is called by its name and its identity."""
    key = reuse.identity(config)
    return Job(name, config, root / f"{name}-{key[:12]}", key)


def run(
    jobs: Sequence[Job], workers: int, notify: Listener = lambda event: None, *, tolerant: bool = False
) -> Outcomes:
    """Do all jobs, or read what was done before.

    Parameters
    ----------
    jobs : sequence of Job
        With distinct folders.
    workers : int
        Processes, of one thread each.
    notify : callable
        Called in this thread with every `SweepEvent`.
    tolerant : bool
        Whether a run that raises, as one of a task of one's own may, is a run that failed, and the others go on.

    Returns
    -------
    dict
        By the name of the folder: the content of the run's ``result.json``, or ``{"failed": reason}`` where training
        diverged.

    Raises
    ------
    OSError
        If a file cannot be written, or a run's worker died again and again.
    MemoryError
        If a worker has not enough memory.
    """
    outcomes, left = reused(jobs, notify)
    total, there = sum(one.config.steps for one in jobs), [one for one in jobs if one not in left]
    notify(SweepStarted(len(jobs), len(there), total, sum(one.config.steps for one in there)))
    if left:
        with _Pool(notify, tolerant) as pool:
            outcomes.update(pool.run(left, max(1, min(workers, len(left)))))
    return {one.path.name: outcomes[one.path.name] for one in jobs}


def reused(jobs: Sequence[Job], notify: Listener) -> tuple[Outcomes, list[Job]]:
    """What was done before, by the name of the folder, and the jobs that are left."""
    outcomes: Outcomes = {}
    left = []
    for one in jobs:
        try:
            found = reuse.read(one.path, one.config, one.identity)
        except DamagedFileError as error:
            notify(SweepNoted(f"{error}: it is made again"))
            found = None
        if found is None:
            left.append(one)
        else:
            outcomes[one.path.name] = found
    return outcomes, left


def own_ways(configs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """How another process registers the encodings and tasks of one's own that these settings name, and no others."""
    keys = {key for config in configs for key in registry.all_keys(config["encoding"])}
    named = {config["task"] for config in configs}
    found = registry.ENCODINGS.ways(), TASKS.ways()
    encodings, tasks = ({key: way for key, way in ways.items() if key in keys | named} for ways in found)
    return {"encodings": encodings, "tasks": tasks}


class _Worker:
    """A worker process, and the job that it is doing."""

    def __init__(self, inbox: "queue.Queue[tuple[_Worker, dict[str, Any] | None]]") -> None:
        self.job: Job | None = None
        self.attempt = self.reached = 0
        self.fresh = True
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        # the parent's import path, as multiprocessing's "spawn" hands it over, but without running its main module
        code = f"import sys; sys.path[:] = {sys.path!r}\nfrom fastpe.experiments.worker import main; main()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, encoding="utf-8",
            env={**os.environ, "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,  # so that Ctrl-C reaches the parent alone
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read, args=(inbox,), daemon=True)
        self._reader.start()

    def _read(self, inbox: "queue.Queue[tuple[_Worker, dict[str, Any] | None]]") -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                with contextlib.suppress(ValueError):  # the last line of a worker that was killed may be cut
                    inbox.put((self, json.loads(line)))
        inbox.put((self, None))

    def send(self, message: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):  # that it has died is told by the end of its messages
            configs = message["warm"] if "warm" in message else [message["config"]]
            self.process.stdin.write(json.dumps({**message, **own_ways(configs)}) + "\n")
            self.process.stdin.flush()

    def start(self, job: Job, attempt: int = 1, reached: int = 0) -> None:
        """Begin a run; `attempt` counts how often in a row it got no further than to the update `reached`."""
        self.job, self.attempt, self.reached, self.fresh = job, attempt, reached, True
        self.send({"config": job.config.to_dict(), "path": str(job.path), "identity": job.identity})

    def close(self) -> str:
        """End the process, by force where it does not end by itself; returns in words how it ended."""
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            status = self.process.wait(_GRACE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = self.process.wait()
        self._reader.join()
        with self._errors:
            self._errors.seek(0)
            lines = self._errors.read().decode(errors="replace").strip().splitlines()
        if status < 0:
            return f"was killed by signal {-status}"
        return f"ended with status {status}" + (f": {lines[-1]}" if lines else "")


class _Pool:
    """The workers of one sweep; a context manager that ends them, whatever happens."""

    def __init__(self, notify: Listener, tolerant: bool = False) -> None:
        self._notify, self._tolerant = notify, tolerant
        self._inbox: queue.Queue[tuple[_Worker, dict[str, Any] | None]] = queue.Queue()
        self._workers: list[_Worker] = []
        self._told: set[str] = set()
        self._short: list[str] = []  # runs that had not enough memory, where others go on

    def __enter__(self) -> "_Pool":
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.close()

    def run(self, jobs: Sequence[Job], workers: int) -> Outcomes:
        """Do the jobs; the first worker compiles for all before the others start."""
        waiting = list(reversed(jobs))
        outcomes: Outcomes = {}
        self._warm(jobs)
        while len(self._workers) < workers:
            self._hire()
        for worker in self._workers:
            worker.start(waiting.pop())
        for worker, message in self._messages():
            if message is None:
                job = self._bury(worker)
                self._hire().start(job, worker.attempt + 1, worker.reached)
                continue
            done = self._take(worker, message)
            if done is None:
                continue
            assert worker.job is not None
            outcomes[worker.job.path.name] = done
            self._notify(RunEnded(worker.job, done))
            worker.job = None
            if waiting:
                worker.start(waiting.pop())
            elif len(outcomes) == len(jobs):
                break
        if self._short:
            names = ", ".join(self._short[:3]) + (" ..." if len(self._short) > 3 else "")
            raise MemoryError(
                f"{len(self._short)} of {len(jobs)} runs ran out ({names}), the others are done; use fewer workers"
            )
        return outcomes

    def _messages(self) -> Iterator[tuple[_Worker, dict[str, Any] | None]]:
        """What the workers say; None at the end of one that was working."""
        while True:
            # a timeout keeps Ctrl-C working where a wait without one cannot be interrupted
            with contextlib.suppress(queue.Empty):
                worker, message = self._inbox.get(timeout=0.5)
                if worker in self._workers and (message is not None or worker.job is not None):
                    yield worker, message

    def _hire(self) -> _Worker:
        worker = _Worker(self._inbox)
        self._workers.append(worker)
        return worker

    def _warm(self, jobs: Sequence[Job]) -> None:
        kinds = {
            (
                c.encoding,
                c.dtype,
                c.precision,
                json.dumps(c.options, sort_keys=True),
                c.dropout > 0,
                c.positions,
                c.sight == "all",
            ): c.to_dict()
            for c in (one.config for one in jobs)
        }
        for attempt in range(1, _ATTEMPTS + 1):
            worker = self._hire()
            worker.send({"warm": list(kinds.values())})
            while (message := self._inbox.get()[1]) is not None:
                if "warm" in message or "failed" in message:  # a run that fails will say so itself
                    return
                self._take(worker, message)
            self._workers.remove(worker)
            fate = worker.close()
            if attempt == _ATTEMPTS:
                raise ChildProcessError(f"the worker that compiles {fate}, {attempt} times in a row")
            self._notify(SweepNoted(f"the worker that compiles {fate}; another one takes over"))

    def _take(self, worker: _Worker, message: dict[str, Any]) -> dict[str, Any] | None:
        """Pass a message on; returns the run's outcome if it is that."""
        if "note" in message:
            if message["note"] not in self._told:  # every run of an encoding has the same remarks
                self._told.add(message["note"])
                self._notify(SweepNoted(message["note"]))
        elif "step" in message:
            assert worker.job is not None
            if worker.fresh and message["step"] > worker.reached:  # the checkpoint it begins from is a new one
                worker.attempt, worker.reached = 1, message["step"]
            worker.fresh = False
            self._notify(RunStepped(worker.job, message["step"]))
        elif self._tolerant and worker.job is not None and message.get("error") in ("refused", "internal", "memory"):
            if message["error"] == "memory":
                self._short.append(worker.job.name)
            return {"failed": message["message"]}
        elif "error" in message:
            self._fail(worker, message)
        else:
            result: dict[str, Any] = message.get("result") or {"failed": message["failed"]}
            return result
        return None

    def _fail(self, worker: _Worker, message: Mapping[str, str]) -> NoReturn:
        who = worker.job.name if worker.job is not None else "the first compilation"
        text = message["message"]
        match message["error"]:
            case "memory":
                raise MemoryError(f"the worker of {who} ran out ({text}); use fewer workers")
            case "system":
                raise OSError(f"{who}: {text}")
            case "refused":
                raise ValueError(f"{who}: {text}")
        raise RuntimeError(f"{who}: {text}")

    def _bury(self, worker: _Worker) -> Job:
        """A worker died: its job, if there may be another attempt."""
        self._workers.remove(worker)
        job, fate = worker.job, worker.close()
        assert job is not None
        if worker.attempt >= _ATTEMPTS:
            hint = "; the system may be out of memory: use fewer workers" if "signal 9" in fate else ""
            raise ChildProcessError(f"{job.name}: its worker {fate}, {worker.attempt} times without getting on{hint}")
        self._notify(SweepNoted(f"{job.name}: its worker {fate}; the run goes on from its last checkpoint"))
        return job
