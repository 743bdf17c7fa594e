"""The engine for several machines: jobs on dask.distributed.

- The results are files on storage that all workers share. The future of a dask task only tells how its run ended.
- A run that loses its worker continues from its last checkpoint on another worker.
- A worker with other versions of fastpe, Numba, NumPy or Python is refused with an error that names the worker, because
  dask does not compare all of these versions.
- A worker with another CPU may round differently, so its results have another identity.

Under SLURM, dask-jobqueue starts the workers. In this example, workers end before the walltime of their SLURM jobs, and
their runs continue on other workers:

    cluster = dask_jobqueue.SLURMCluster(
        cores=1, processes=1, memory="4GB", walltime="01:00:00", job_script_prologue=["export NUMBA_NUM_THREADS=1"],
        worker_extra_args=["--lifetime", "55m", "--lifetime-stagger", "4m"],
    )
    cluster.scale(jobs=20)
    print(cluster.scheduler_address)        # fastpe compare ... --out SHARED_FOLDER --cluster ADDRESS

Dask exchanges pickles and, unless it is configured for TLS, authenticates nobody: anyone who can reach the
scheduler can run code on every worker and here. Use it only in a network in which everyone is trusted (SECURITY.md).
"""

import contextlib
import logging
import os
import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from fastpe.encodings import registry
from fastpe.experiments import worker
from fastpe.experiments.jobs import (
    FolderOutcomes,
    Job,
    Listener,
    RunEnded,
    begin,
    from_message,
    identity,
    own_ways,
    read_result,
    to_message,
)
from fastpe.kernels.compile.sources import source_digest
from fastpe.tasks.registry import TASKS
from fastpe.training import config_file
from fastpe.training.events import Noted

MISSING = "a cluster needs dask.distributed: pip install -e '.[cluster]' from a clone of fastpe"
_PATIENCE = 20  # seconds to connect to a scheduler
ATTEMPTS = 5  # a run that loses this many workers ends with an error


class WorkerDiffers(ValueError):
    """A worker has other versions than this process."""


def run(jobs: Sequence[Job], address: str, workers: int, notify: Listener = lambda event: None) -> FolderOutcomes:
    """Do all jobs that are not done yet, on a cluster.

    Parameters
    ----------
    jobs : sequence of Job
        The runs to make. Their folders must be on storage that all workers share.
    address : str
        "local" for a cluster of processes on this machine, the address of a scheduler, or the path of a scheduler file.
    workers : int
        Number of processes of a local cluster.
    notify : callable
        Called with every `JobEvent`.

    Returns
    -------
    dict
        The outcome of each run, by the name of its folder, as `local.run` returns it.

    Raises
    ------
    ModuleNotFoundError
        If dask.distributed is not installed.
    WorkerDiffers
        If a worker has other versions; the message names it.
    OSError
        If the scheduler cannot be reached, or a run lost five workers.
    """
    try:
        import distributed
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(MISSING) from error
    outcomes, left = begin(jobs, notify)
    if left:
        with _client(distributed, address, workers) as client:
            outcomes.update(_run(distributed, client, left, notify))
    return {one.path.name: outcomes[one.path.name] for one in jobs}


@contextlib.contextmanager
def _environment_kept() -> Iterator[None]:
    # dask's nanny sets its workers' environment variables in this process too and never removes them, and Numba raises
    # an error if they change
    before = dict(os.environ)
    try:
        yield
    finally:
        for added in os.environ.keys() - before.keys():
            del os.environ[added]
        os.environ.update(before)


@contextlib.contextmanager
def _client(distributed: Any, address: str, workers: int) -> Iterator[Any]:
    import dask

    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # the client also raises the errors that it logs
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")
    settings = {"distributed.nanny.pre-spawn-environ": one_thread, "distributed.scheduler.allowed-failures": 3}
    with dask.config.set(settings), _environment_kept(), contextlib.ExitStack() as stack:
        if address == "local":
            cluster = distributed.LocalCluster(
                n_workers=workers, threads_per_worker=1, memory_limit=0, dashboard_address=None, silence_logs=50
            )
            yield stack.enter_context(distributed.Client(stack.enter_context(cluster)))
            return
        where = {"scheduler_file": address} if Path(address).is_file() else {"address": address}
        try:
            client = distributed.Client(**where, timeout=_PATIENCE)
        except (OSError, TimeoutError, ValueError) as error:
            raise ConnectionError(f"no scheduler can be reached at {address}: {error}") from error
        yield stack.enter_context(client)


def _run(distributed: Any, client: Any, jobs: Sequence[Job], notify: Listener) -> FolderOutcomes:
    """Submit the jobs, submit a job again if it loses its worker, and return the outcomes."""
    facts = versions()
    attempts, outcomes = {one.path.name: 1 for one in jobs}, dict[str, dict[str, Any]]()
    futures = {client.submit(do_run, _message(one, facts), key=f"{one.path.name}-1", pure=False): one for one in jobs}
    waiting = distributed.as_completed(list(futures))
    for future in waiting:
        one = futures.pop(future)
        try:
            found = future.result()
        except MemoryError as error:
            raise MemoryError(
                f"the worker of {one.name} ran out of memory ({error}); give workers more, or start fewer"
            ) from error
        except OSError as error:
            raise OSError(f"{one.name}: {error}") from error
        except (distributed.KilledWorker, distributed.client.FutureCancelledError) as error:
            name = one.path.name
            if not _connected(client):
                done = f"{len(outcomes)} of {len(jobs)} runs were done by then"
                raise ConnectionError(
                    f"the connection to the scheduler was lost ({done}); to continue, run the same command with "
                    "another scheduler"
                ) from error
            attempts[name] += 1
            if attempts[name] > ATTEMPTS:
                raise ChildProcessError(f"{one.name}: the run lost {ATTEMPTS} workers without progress") from error
            notify(Noted(f"{one.name}: the worker was lost; the run continues from its last checkpoint"))
            again = client.submit(do_run, _message(one, facts), key=f"{name}-{attempts[name]}", pure=False)
            futures[again] = one
            waiting.add(again)
            continue
        outcomes[one.path.name] = _outcome(one, found)
        notify(RunEnded(one, outcomes[one.path.name]))
    return outcomes


def _connected(client: Any) -> bool:
    """Whether the scheduler can be reached; waits while the client tries to reconnect."""
    deadline = time.monotonic() + 2 * _PATIENCE
    while client.status == "connecting" and time.monotonic() < deadline:
        time.sleep(0.1)
    return bool(client.status == "running")


def _outcome(one: Job, found: Mapping[str, str]) -> dict[str, Any]:
    """The result of a run, read from its folder."""
    if "differs" in found:
        raise WorkerDiffers(found["differs"])
    if "failed" in found:
        return {"failed": found["failed"]}
    result = read_result(Path(found["path"]), one.config, found["identity"])
    if result is None:
        raise OSError(
            f"{found['path']} of worker {found['host']} does not exist here: all workers must share this folder"
        )
    return result


def _message(one: Job, facts: Mapping[str, str]) -> dict[str, Any]:
    settings = to_message(one.config)
    facts_of_run = {"config": settings, "path": str(one.path.absolute()), "versions": dict(facts)}
    return {**facts_of_run, **own_ways([settings])}


def versions() -> dict[str, str]:
    """The versions that must be the same on all workers. CPUs may differ: they are part of the identity of a run."""
    found = config_file.environment()["versions"]
    return {**{name: found[name] for name in ("fastpe", "numba", "numpy", "python")}, "sources": source_digest()}


def do_run(message: Mapping[str, Any]) -> dict[str, str]:
    """Make one run on a worker, and return the folder of its result, or the reason why there is none."""
    host, own = f"{socket.gethostname()}:{os.getpid()}", versions()
    wrong = [f"{name} {own[name]}, here {value}" for name, value in message["versions"].items() if own[name] != value]
    if wrong:
        return {"differs": f"worker {host} cannot be used: it has {'; '.join(wrong)}"}
    registry.ENCODINGS.register_ways(message["encodings"])
    TASKS.register_ways(message["tasks"])
    config, path = from_message(message["config"]), Path(message["path"])
    key = identity(config)
    path = path.with_name(f"{path.name.rpartition('-')[0]}-{key[:12]}")
    try:
        worker.do_run(path, config, key, lambda said: None)
    except (ArithmeticError, ValueError, TypeError) as error:
        return {"failed": str(error)}
    return {"path": str(path), "identity": key, "host": host}
