"""The engine for one machine: worker processes that do one job after the other.

- Only this process receives Ctrl-C. It then ends the workers. A repeated call continues from their checkpoints.
- A worker that dies is replaced, and its run continues from its last checkpoint.
- A worker whose parent was killed ends by itself, because its standard input ends.
- Every worker has one thread. Results do not depend on the number of workers or the order of the jobs.
"""

import contextlib
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from fastpe.experiments.jobs import (
    FolderOutcomes,
    Job,
    Listener,
    RunEnded,
    RunStepped,
    begin,
    own_ways,
    to_message,
)
from fastpe.training.events import Noted

_ATTEMPTS = 3
_GRACE = 5.0  # seconds that a worker has to end by itself before it is killed


def run(
    jobs: Sequence[Job], workers: int, notify: Listener = lambda event: None, *, tolerant: bool = False
) -> FolderOutcomes:
    """Do all jobs that are not done yet, in processes of this machine.

    Parameters
    ----------
    jobs : sequence of Job
        The runs to make. Their folders must be distinct.
    workers : int
        Number of processes, each with one thread.
    notify : callable
        Called in this thread with every `JobEvent`.
    tolerant : bool
        If True, a run that raises an error (as a user's task may) counts as failed, and the other runs continue.

    Returns
    -------
    dict
        By the name of the run folder: the content of ``result.json``, or ``{"failed": reason}`` if the run failed.

    Raises
    ------
    OSError
        If a file cannot be written, or the worker of a run died three times without progress.
    MemoryError
        If a worker runs out of memory.
    """
    outcomes, left = begin(jobs, notify)
    if left:
        with _Pool(notify, tolerant) as pool:
            outcomes.update(pool.run(left, max(1, min(workers, len(left)))))
    return {one.path.name: outcomes[one.path.name] for one in jobs}


class _Worker:
    """A worker process and its current job."""

    def __init__(self, inbox: "queue.Queue[tuple[_Worker, dict[str, Any] | None]]") -> None:
        self.job: Job | None = None
        self.attempt = self.reached = 0
        self.fresh = True
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        # like multiprocessing's "spawn", give the worker this process's import path, but do not run its main module
        code = f"import sys; sys.path[:] = {sys.path!r}\nfrom fastpe.experiments.worker import main; main()"
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, encoding="utf-8",
            env={**os.environ, "NUMBA_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
            start_new_session=True,  # so that only the parent receives Ctrl-C
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
        with contextlib.suppress(OSError):  # `_read` notices that a worker has died
            configs = message["warm"] if "warm" in message else [message["config"]]
            self.process.stdin.write(json.dumps({**message, **own_ways(configs)}) + "\n")
            self.process.stdin.flush()

    def start(self, job: Job, attempt: int = 1, reached: int = 0) -> None:
        """Begin a run. `attempt` counts successive attempts without progress beyond the update number `reached`."""
        self.job, self.attempt, self.reached, self.fresh = job, attempt, reached, True
        self.send({"config": to_message(job.config), "path": str(job.path), "identity": job.identity})

    def close(self) -> str:
        """End the process, by force if necessary, and return a phrase that says how it ended."""
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
    """The worker processes of one call of `run`; a context manager that always ends them."""

    def __init__(self, notify: Listener, tolerant: bool = False) -> None:
        self._notify, self._tolerant = notify, tolerant
        self._inbox: queue.Queue[tuple[_Worker, dict[str, Any] | None]] = queue.Queue()
        self._workers: list[_Worker] = []
        self._told: set[str] = set()
        self._short: list[str] = []  # names of runs that ran out of memory while the others continued

    def __enter__(self) -> "_Pool":
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers:
            worker.close()

    def run(self, jobs: Sequence[Job], workers: int) -> FolderOutcomes:
        """Do the jobs, and return their outcomes. The first worker compiles all kernels before the others start."""
        waiting = list(reversed(jobs))
        outcomes: FolderOutcomes = {}
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
                f"{len(self._short)} of {len(jobs)} runs ran out of memory ({names}); the others are finished. Use "
                "fewer workers"
            )
        return outcomes

    def _messages(self) -> Iterator[tuple[_Worker, dict[str, Any] | None]]:
        """Yield each worker that sent something and its message, which is None if the worker ended during a job."""
        while True:
            # on some systems Ctrl-C cannot interrupt a wait without a timeout
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
            ): to_message(c)
            for c in (one.config for one in jobs)
        }
        for attempt in range(1, _ATTEMPTS + 1):
            worker = self._hire()
            worker.send({"warm": list(kinds.values())})
            while (message := self._inbox.get()[1]) is not None:
                if "warm" in message or "failed" in message:  # a run that fails sends its own message
                    return
                self._take(worker, message)
            self._workers.remove(worker)
            fate = worker.close()
            if attempt == _ATTEMPTS:
                raise ChildProcessError(f"the worker process for compilation {fate}, {attempt} times in a row")
            self._notify(Noted(f"the worker process for compilation {fate}; another one replaces it"))

    def _take(self, worker: _Worker, message: dict[str, Any]) -> dict[str, Any] | None:
        """Handle a message, and return the outcome of the run if the message says that it has ended."""
        if "note" in message:
            if message["note"] not in self._told:  # all runs of an encoding send the same notes
                self._told.add(message["note"])
                self._notify(Noted(message["note"]))
        elif "step" in message:
            assert worker.job is not None
            if worker.fresh and message["step"] > worker.reached:  # the run continues from a newer checkpoint
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
                raise MemoryError(f"the worker of {who} ran out of memory ({text}); use fewer workers")
            case "system":
                raise OSError(f"{who}: {text}")
            case "refused":
                raise ValueError(f"{who}: {text}")
        raise RuntimeError(f"{who}: {text}")

    def _bury(self, worker: _Worker) -> Job:
        """Remove a worker that died, and return its job; raise if the job has used all its attempts."""
        self._workers.remove(worker)
        job, fate = worker.job, worker.close()
        assert job is not None
        if worker.attempt >= _ATTEMPTS:
            hint = "; the system may be out of memory: use fewer workers" if "signal 9" in fate else ""
            raise ChildProcessError(f"{job.name}: the worker {fate}, {worker.attempt} times without progress{hint}")
        self._notify(Noted(f"{job.name}: the worker {fate}; the run continues from its last checkpoint"))
        return job
