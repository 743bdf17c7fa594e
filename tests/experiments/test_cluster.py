"""A study on dask.distributed: the same table as by workers of this machine, also where workers are lost; and by other
versions, or without a scheduler, one clear line. Where it is not installed: what it says."""

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import pytest
from small_study import SMALL

from fastpe.experiments import cluster, jobs
from fastpe.experiments.compare import compare
from fastpe.experiments.study import RunKey, Study

STUDY = Study(["alibi", "nope"], ["reverse"], seeds=2, settings=SMALL)


def contents(folder):
    """The files of a study, but for the seconds that its runs took."""
    table = [line.split(",") for line in (folder / "results.csv").read_text().splitlines()]
    return [row[:7] + row[8:] for row in table], (folder / "results.md").read_bytes()


def test_without_dask_it_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ModuleNotFoundError, match=r"a cluster needs dask\.distributed: pip install -e '\.\[cluster\]'"):
        compare(STUDY, out=tmp_path / "out", cluster="local")


def test_a_worker_of_another_version_is_named(monkeypatch):
    facts = {**cluster.versions(), "numba": "0.1"}
    found = cluster.do_run({"versions": facts})
    assert "worker " in found["differs"]
    assert f"numba {cluster.versions()['numba']}, here 0.1" in found["differs"]


@pytest.fixture
def distributed():
    found = pytest.importorskip("distributed", reason="an engine: pip install -e '.[cluster]' from a clone of fastpe")
    with cluster._environment_kept():  # a cluster of the test's own, in this process, writes into it as well
        yield found


@pytest.mark.filterwarnings("default")
def test_a_local_cluster_chooses_the_same_and_makes_the_same_table(distributed, tmp_path):
    study = Study(["nope"], ["majority"], seeds=1, settings=SMALL, choose={"lr": [0.001, 0.03]}, choose_seeds=1)
    compare(study, out=tmp_path / "here", workers=1)
    before = dict(os.environ)
    compare(study, out=tmp_path / "cluster", workers=2, cluster="local")
    assert dict(os.environ) == before
    assert contents(tmp_path / "cluster") == contents(tmp_path / "here")
    choices = [(tmp_path / name / "choices.csv").read_bytes() for name in ("here", "cluster")]
    assert choices[0] == choices[1]


@pytest.mark.filterwarnings("default")
def test_lost_workers_change_nothing(distributed, tmp_path):
    """Two of three are killed while they train, and one joins late."""
    study = replace(STUDY, seeds=3, settings={**SMALL, "samples": 3200, "epochs": 12})
    compare(study, out=tmp_path / "here", workers=1)
    own = distributed.LocalCluster(
        n_workers=3, threads_per_worker=1, memory_limit=0, dashboard_address=None, silence_logs=50
    )
    with own, distributed.Client(own) as client:

        def kill():
            while not list(tmp_path.glob("cluster/runs/*/checkpoint.safetensors")):
                time.sleep(0.05)
            for each in list(client.run(os.getpid).values())[:2]:
                os.kill(each, signal.SIGKILL)
            own.scale(4)

        thread = threading.Thread(target=kill)
        thread.start()
        compare(study, out=tmp_path / "cluster", cluster=own.scheduler_address)
        thread.join()
    assert contents(tmp_path / "cluster") == contents(tmp_path / "here")


@pytest.mark.filterwarnings("default")
def test_a_scheduler_that_is_killed_is_one_clear_line_and_nothing_is_lost(distributed, tmp_path, monkeypatch):
    """With another one the same command goes on, to the same table."""
    monkeypatch.setattr(cluster, "_PATIENCE", 2)
    study = replace(STUDY, settings={**SMALL, "samples": 3200, "epochs": 20})
    compare(study, out=tmp_path / "here", workers=1)
    file = tmp_path / "scheduler.json"
    start = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--port", "0", "--no-dashboard", "--no-show"]
    scheduler = subprocess.Popen([*start, "--scheduler-file", str(file)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    worker = [sys.executable, "-m", "distributed.cli.dask_worker", "--scheduler-file", str(file), "--no-dashboard"]
    workers = subprocess.Popen([*worker, "--nthreads", "1", "--death-timeout", "30"], stderr=subprocess.DEVNULL)

    def kill():
        while not list(tmp_path.glob("cluster/runs/*/checkpoint.safetensors")) and time.monotonic() < deadline:
            time.sleep(0.05)
        scheduler.kill()

    thread = threading.Thread(target=kill)
    thread.start()
    try:
        with pytest.raises(ConnectionError, match=r"scheduler was lost \(. of 4 runs were done by then\); to continue"):
            compare(study, out=tmp_path / "cluster", cluster=str(file))
    finally:
        thread.join()
        workers.kill()
        workers.wait()
        scheduler.wait()
    compare(study, out=tmp_path / "cluster", workers=1, cluster="local")
    assert contents(tmp_path / "cluster") == contents(tmp_path / "here")


@pytest.mark.parametrize(
    ("raised", "line"),
    [
        (MemoryError("no room"), r"the worker of reverse-alibi-seed0 ran out of memory \(no room\); give workers more"),
        (OSError(errno.ENOSPC, "No space left on device", "x"), "reverse-alibi-seed0: .*No space left on device"),
        (OSError(errno.EROFS, "Read-only file system", "x"), "reverse-alibi-seed0: .*Read-only file system"),
    ],
)
def test_what_a_worker_lacks_is_one_clear_line(distributed, raised, line, tmp_path):
    """A future of a stand-in for the scheduler ends with what the worker raised."""

    one = jobs.make_job(tmp_path, "reverse-alibi-seed0", STUDY.config(RunKey("reverse", "alibi", 0)))

    class Failed:
        def __init__(self, futures):
            self.futures = futures

        def __iter__(self):
            return iter(self.futures)

        def result(self):
            raise raised

    class Distributed:
        KilledWorker, client = distributed.KilledWorker, distributed.client
        as_completed = Failed

    client = type("Client", (), {"submit": lambda *_, **__: Failed([])})()
    with pytest.raises(type(raised), match=line):
        cluster._run(Distributed, client, [one], lambda event: None)


@pytest.mark.filterwarnings("default")
def test_no_scheduler_is_one_clear_line(distributed, tmp_path, monkeypatch):
    with pytest.raises(ConnectionError, match=r"no scheduler can be reached at tcp://127\.0\.0\.1:1: "):
        compare(STUDY, out=tmp_path / "out", cluster="tcp://127.0.0.1:1")
