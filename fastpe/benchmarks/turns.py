"""Worker processes, one for each library, which run one at a time, in turns."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Self

from fastpe.benchmarks.figures import WrongResult
from fastpe.doctor.machine import usable_cores
from fastpe.doctor.probe import BLAS_THREADS

Tell = Callable[[str], None]

_MODULE = "fastpe.benchmarks.worker"


class WorkerDied(ChildProcessError):
    """A worker process has ended or failed. The message names the library and the last line of its errors."""


@dataclass(frozen=True)
class Effort:
    """How long to measure: the number of turns, and in each turn at least `least` calls and `seconds` seconds.

    On a shared machine, other programs may disturb all turns but one. So more turns follow, up to `most`, until the
    fastest turn of each candidate is confirmed by a second turn that is nearly as fast.
    """

    turns: int = 5
    seconds: float = 0.06
    least: int = 3
    most: int = 15


QUICK = Effort(turns=1, seconds=0.0, least=1, most=1)
_NEAR = 1.03


# With these settings, glibc keeps freed memory in the process. A model's key/value cache is allocated again for every
# token. Without the settings, the layout of the heap decides whether the pages of the cache are mapped again each time,
# which takes as long as the rest of the call.
_KEPT_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(2**30), "MALLOC_MMAP_THRESHOLD_": str(2**25)}


class Worker:
    """A process that runs one library with a given number of threads; a context manager that ends the process.

    Parameters
    ----------
    library : str
        The name of the library in messages. JAX has no setting for threads, so the worker of ``"jax"`` is restricted to
        as many cores as `threads` says.
    threads : int
        The number of threads. With one thread, all libraries run on the same core, because other programs may disturb
        some cores more than others.
    """

    def __init__(self, library: str, threads: int) -> None:
        self.library = library
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by __exit__
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", _MODULE],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors, text=True, encoding="utf-8",
            env={**os.environ, **_KEPT_MEMORY, **_environment(library, threads)},
            start_new_session=True,  # so that Ctrl-C reaches only the parent
        )  # fmt: skip
        if threads == 1 and hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(self._process.pid, {min(os.sched_getaffinity(0))})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._process.communicate()
        self._errors.close()

    def stop(self) -> None:
        """End the process."""
        self._process.kill()

    def send(self, request: Mapping[str, Any]) -> None:
        """Send a request without waiting for the answer, which `receive` returns."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._died() from None

    def receive(self) -> dict[str, Any]:
        """The answer to the last request.

        Raises
        ------
        WorkerDied
            If there is no answer, or the library failed.
        WrongResult
            If the result of the library is wrong.
        """
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise self._died()
        answer: dict[str, Any] = json.loads(line)
        if "wrong" in answer:
            raise WrongResult(answer["wrong"])
        if "failed" in answer:
            raise WorkerDied(f"the worker process of {self.library} failed: {answer['failed']}")
        return answer

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Send a request, and return the answer."""
        self.send(request)
        return self.receive()

    def _died(self) -> WorkerDied:
        status = self._process.wait()
        self._errors.seek(0)
        lines = self._errors.read().decode("utf-8", "replace").strip().splitlines()
        words = f", after: {lines[-1].strip()}" if lines else ""
        return WorkerDied(f"the worker process of {self.library} ended with status {status}{words}")


def _environment(library: str, threads: int) -> dict[str, str]:
    """Environment variables that limit the threads of a library. fastpe needs no limit: each call sets the number."""
    own = {"NUMBA_NUM_THREADS": str(max(usable_cores(), threads))}
    if library == "fastpe":
        return own
    limits = own | {name: str(threads) for name in BLAS_THREADS}
    # compile in this process, not in a pool of processes that would run during the timings of others
    return {**limits, "TORCHINDUCTOR_COMPILE_THREADS": "1", "JAX_PLATFORMS": "cpu"}


@dataclass
class Candidate:
    """A call to be timed in a worker.

    Attributes
    ----------
    label : str
        The name in tables.
    worker : Worker
    job : str
        A key of `fastpe.benchmarks.jobs.JOBS`.
    arguments : dict
        The arguments of the job.
    absent : str or None
        The reason why the call cannot be timed; set by `prepare`.
    facts : dict
        Facts from the check of the result; set by `prepare`.
    seconds : list of float
        The times of all calls.
    turns : list of float
        The fastest time in each turn.
    """

    label: str
    worker: Worker
    job: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    absent: str | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    turns: list[float] = field(default_factory=list)

    @property
    def key(self) -> str:
        """The name of the call in the worker."""
        return f"{self.job} {json.dumps(dict(self.arguments))}"

    @property
    def best(self) -> float:
        """Seconds of the fastest call."""
        return min(self.seconds)

    @property
    def confirmed(self) -> bool:
        """Whether a second turn is nearly as fast as the fastest."""
        first, *others = sorted(self.turns)
        return bool(others) and others[0] <= _NEAR * first


def prepare(candidates: Iterable[Candidate]) -> None:
    """Build and check all candidates. Different workers do this at the same time."""
    queues: dict[Worker, list[Candidate]] = {}
    for candidate in candidates:
        queues.setdefault(candidate.worker, []).append(candidate)
    pool = ThreadPoolExecutor(len(queues))
    try:
        for _ in pool.map(_prepare_in_order, queues.values()):
            pass
    except BaseException:
        for worker in queues:  # do not wait for the other answers
            worker.stop()
        raise
    finally:
        pool.shutdown()


def _prepare_in_order(candidates: list[Candidate]) -> None:
    for each in candidates:
        answer = each.worker.ask({"prepare": each.key, "job": each.job, "arguments": dict(each.arguments)})
        each.absent, each.facts = answer.get("absent"), answer.get("facts", {})


def take_turns(candidates: Iterable[Candidate], effort: Effort) -> None:
    """Time all candidates that are not absent. In each turn, they are timed one after the other."""
    present = [candidate for candidate in candidates if candidate.absent is None]
    for turn in range(max(effort.turns, effort.most)):
        if turn >= effort.turns and all(each.confirmed for each in present):
            break
        for each in present:
            request = {"time": each.key, "seconds": effort.seconds, "least": effort.least}
            seconds = each.worker.ask(request)["seconds"]
            each.seconds += seconds
            each.turns.append(min(seconds))
