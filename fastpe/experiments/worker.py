"""The code of worker processes: `do_run` does one job for either engine; `main` is the loop for the engine `local`.

`main` reads one job per line from standard input and writes one message per line to standard output, both as JSON. The
process ends at once when standard input ends, so no worker remains if the parent is killed. A run that was interrupted
continues from its last checkpoint.
"""

import json
import os
import queue
import shutil
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from fastpe.base import files
from fastpe.base.stored import DamagedFileError
from fastpe.encodings import registry
from fastpe.experiments.jobs import from_message, seal
from fastpe.kernels.compile import cache
from fastpe.tasks.registry import TASKS
from fastpe.training import result_file
from fastpe.training.config import TrainConfig
from fastpe.training.config_file import NoRunError
from fastpe.training.events import Event, Noted, Started, Stepped
from fastpe.training.lengths import bins
from fastpe.training.loop import TrainingDiverged, train

Send = Callable[[dict[str, Any]], None]

_EVERY = 0.3  # seconds between two progress messages
_LOCK_PATIENCE = 30.0  # seconds; if a parent was killed, its workers may need this long to end


def main() -> None:
    """Do the jobs that arrive on standard input."""
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # a run's own output goes to standard error, so that it does not mix with the messages
    jobs: queue.Queue[dict[str, Any]] = queue.Queue()

    def listen() -> None:
        for line in sys.stdin:
            jobs.put(json.loads(line))
        os._exit(0)

    def send(message: dict[str, Any]) -> None:
        pipe.write(json.dumps(message) + "\n")
        pipe.flush()

    cache.on_compile = lambda what: send({"note": f"compiling {what}"})
    threading.Thread(target=listen, daemon=True).start()
    while True:
        answer(jobs.get(), send)


def answer(job: dict[str, Any], send: Send) -> None:
    """Do one job and send its outcome: ``result``, ``failed`` (training diverged) or ``error`` (anything else)."""
    try:
        registry.ENCODINGS.register_ways(job["encodings"])
        TASKS.register_ways(job["tasks"])
        if "warm" in job:
            warm([from_message(settings) for settings in job["warm"]])
            send({"warm": True})
        else:
            config = from_message(job["config"])
            send({"result": do_run(Path(job["path"]), config, job["identity"], send)})
    except TrainingDiverged as error:
        send({"failed": str(error)})
    except MemoryError as error:
        send({"error": "memory", "message": str(error)})
    except OSError as error:
        where = f"{error.filename}: " if error.filename is not None else ""
        send({"error": "system", "message": f"{where}{error.strerror or error}"})
    except ValueError as error:
        send({"error": "refused", "message": str(error)})
    except Exception as error:  # the parent must be told of every error
        send({"error": "internal", "message": f"{type(error).__name__}: {error}"})


def warm(configs: list[TrainConfig]) -> None:
    """Compile the kernels of these runs, with tiny sizes."""
    for config in configs:
        ranges = config.chosen.task.kind not in ("numbers", "text")
        tiny = {
            "samples": 2, "batch": 2, "epochs": 1, "warmup": 0, "validation": min(config.validation, 1),
            "test_lengths": (bins(config.train_length)[0] if ranges else config.train_length,), "test_sequences": 1,
        }  # fmt: skip
        train(replace(config, **tiny), threads=1)  # type: ignore[arg-type]  # mypy sees one type for all values


def do_run(path: Path, config: TrainConfig, key: str, send: Send) -> dict[str, Any]:
    """Begin or continue the run in `path`, store the identity `key` with its result, and return the result."""
    _wait_for(path)
    result_file.discard(path)
    notify = _Notify(path, config, send)
    try:
        result = train(config, out=path, resume=True, threads=1, progress=notify).result
    except (DamagedFileError, NoRunError) as error:
        send({"note": f"{error}; this run starts again"})
        shutil.rmtree(path)
        result = train(config, out=path, resume=True, threads=1, progress=notify).result
    seal(path, key)
    return result


def _wait_for(path: Path) -> None:
    """Wait until no other process works in the folder, at most `_LOCK_PATIENCE` seconds."""
    deadline = time.monotonic() + _LOCK_PATIENCE
    while path.is_dir() and time.monotonic() < deadline:
        lock = files.lock_folder(path)
        if lock is not None:
            lock.close()
            return
        time.sleep(0.1)


class _Notify:
    """A training listener that sends the progress of the run at intervals, and notes for the user."""

    def __init__(self, path: Path, config: TrainConfig, send: Send) -> None:
        self._path, self._config, self._send = str(path), config, send
        self._sent = 0.0

    def __call__(self, event: Event) -> None:
        now = time.monotonic()
        match event:
            case Started(step=step):
                self._send({"step": step})
            case Stepped(step=step) if now - self._sent > _EVERY or step == self._config.steps:
                self._sent = now
                self._send({"step": step})
            case Noted(message, of_training=False) if self._path not in message:
                self._send({"note": message})
