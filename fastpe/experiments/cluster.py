"""The runs of a study on dask.distributed, on one machine or many: the other engine beside `sweep`.

Files on storage that all workers share hold the results; a task's future says only how it ended. A run whose worker was
lost goes on from its last checkpoint on another one. Workers whose fastpe, Numba or NumPy are others are refused by
name, as dask's own check of versions knows neither; of another CPU the bits may differ, so that the results are kept
under an identity of their own.

Under SLURM, dask-jobqueue starts the workers; its jobs end before their walltime, and what they were doing goes on:

    cluster = dask_jobqueue.SLURMCluster(
        cores=1, processes=1, memory="4GB", walltime="01:00:00", job_script_prologue=["export NUMBA_NUM_THREADS=1"],
        worker_extra_args=["--lifetime", "55m", "--lifetime-stagger", "4m"],
    )
    cluster.scale(jobs=20)
    print(cluster.scheduler_address)        # fastpe compare ... --out SHARED_FOLDER --cluster ADDRESS

Dask exchanges pickles and, unless it is configured for TLS, authenticates nobody: whoever reaches the scheduler can run
code on every worker and here. Use it only in a network in which everyone is trusted (SECURITY.md).
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
from fastpe.experiments import reuse, sweep, worker
from fastpe.kernels.compile.sources import source_digest
from fastpe.tasks.registry import TASKS
from fastpe.training import config_file
from fastpe.training.config import TrainConfig

MISSING = "a cluster needs dask.distributed: pip install -e '.[cluster]' from a clone of fastpe"
_PATIENCE = 20  # seconds to find a scheduler
ATTEMPTS = 5  # workers that a run may lose without having got on


class WorkerDiffers(ValueError):
    """A worker has other versions than this process."""


def run(
    jobs: Sequence[sweep.Job], address: str, workers: int, notify: sweep.Listener = lambda event: None
) -> sweep.Outcomes:
    """Do all jobs on a cluster, or read what was done before.

    Parameters
    ----------
    jobs : sequence of sweep.Job
        With folders on storage that all workers share.
    address : str
        "local" for processes of this machine; the address of a scheduler; or the path of its file.
    workers : int
        Of a local cluster.
    notify : callable
        Called with every `sweep.SweepEvent`.

    Returns
    -------
    dict
        As from `sweep.run`.

    Raises
    ------
    ModuleNotFoundError
        If dask.distributed is missing.
    WorkerDiffers
        If a worker has other versions; the message names it.
    OSError
        If the scheduler cannot be reached, or a run lost one worker after the other.
    """
    try:
        import distributed
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(MISSING) from error
    outcomes, left = sweep.reused(jobs, notify)
    there = [one for one in jobs if one not in left]
    total, done = (sum(one.config.steps for one in some) for some in (jobs, there))
    notify(sweep.SweepStarted(len(jobs), len(there), total, done))
    if left:
        with _client(distributed, address, workers) as client:
            outcomes.update(_run(distributed, client, left, notify))
    return {one.path.name: outcomes[one.path.name] for one in jobs}


@contextlib.contextmanager
def _environment_kept() -> Iterator[None]:
    # a nanny writes its workers' variables into this process and leaves them there, where Numba refuses them
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

    logging.getLogger("distributed.client").setLevel(logging.CRITICAL)  # what it logs is raised too
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
            raise ConnectionError(f"there is no scheduler at {address}: {error}") from error
        yield stack.enter_context(client)


def _run(distributed: Any, client: Any, jobs: Sequence[sweep.Job], notify: sweep.Listener) -> sweep.Outcomes:
    """Hand out the jobs; one that lost its worker is handed out again."""
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
                f"the worker of {one.name} ran out ({error}); give workers more, or start fewer"
            ) from error
        except OSError as error:
            raise OSError(f"{one.name}: {error}") from error
        except (distributed.KilledWorker, distributed.client.FutureCancelledError) as error:
            name = one.path.name
            if not _connected(client):
                done = f"{len(outcomes)} of {len(jobs)} runs were done by then"
                raise ConnectionError(
                    f"the scheduler is gone, {done}: with another one the same command goes on"
                ) from error
            attempts[name] += 1
            if attempts[name] > ATTEMPTS:
                raise ChildProcessError(f"{one.name}: it lost {ATTEMPTS} workers without getting on") from error
            notify(sweep.SweepNoted(f"{one.name}: its workers were lost; the run goes on from its last checkpoint"))
            again = client.submit(do_run, _message(one, facts), key=f"{name}-{attempts[name]}", pure=False)
            futures[again] = one
            waiting.add(again)
            continue
        outcomes[one.path.name] = _outcome(one, found)
        notify(sweep.RunEnded(one, outcomes[one.path.name]))
    return outcomes


def _connected(client: Any) -> bool:
    """Whether the scheduler is there; the client itself tries for a while to find it again."""
    deadline = time.monotonic() + 2 * _PATIENCE
    while client.status == "connecting" and time.monotonic() < deadline:
        time.sleep(0.1)
    return bool(client.status == "running")


def _outcome(one: sweep.Job, found: Mapping[str, str]) -> dict[str, Any]:
    """What a run found, out of its folder."""
    if "differs" in found:
        raise WorkerDiffers(found["differs"])
    if "failed" in found:
        return {"failed": found["failed"]}
    result = reuse.read(Path(found["path"]), one.config, found["identity"])
    if result is None:
        raise OSError(f"{found['path']} of worker {found['host']} is not there: the folder must be one that all share")
    return result


def _message(one: sweep.Job, facts: Mapping[str, str]) -> dict[str, Any]:
    settings = one.config.to_dict()
    facts_of_run = {"config": settings, "path": str(one.path.absolute()), "versions": dict(facts)}
    return {**facts_of_run, **sweep.own_ways([settings])}


def versions() -> dict[str, str]:
    """What workers must have alike, beside the CPU, of which identities tell."""
    found = config_file.environment()["versions"]
    return {**{name: found[name] for name in ("fastpe", "numba", "numpy", "python")}, "sources": source_digest()}


def do_run(message: Mapping[str, Any]) -> dict[str, str]:
    """One run, on a worker: where its result lies, or why it failed."""
    host, own = f"{socket.gethostname()}:{os.getpid()}", versions()
    wrong = [f"{name} {own[name]}, here {value}" for name, value in message["versions"].items() if own[name] != value]
    if wrong:
        return {"differs": f"worker {host} cannot be used: it has {'; '.join(wrong)}"}
    registry.ENCODINGS.register_ways(message["encodings"])
    TASKS.register_ways(message["tasks"])
    config, path = TrainConfig.from_dict(message["config"]), Path(message["path"])
    key = reuse.identity(config)
    path = path.with_name(f"{path.name.rpartition('-')[0]}-{key[:12]}")
    try:
        worker.do_run(path, config, key, lambda said: None)
    except (ArithmeticError, ValueError, TypeError) as error:
        return {"failed": str(error)}
    return {"path": str(path), "identity": key, "host": host}
