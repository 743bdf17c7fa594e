"""The process in which one library is measured. Each input line is a request, and each output line is an answer.

    {"prepare": key, "job": name, "arguments": {...}}    ->  {"facts": {...}}, {"absent": why} or {"wrong": what}
    {"time": key, "seconds": s, "least": n}              ->  {"seconds": [...]}

Requests and answers are JSON. `fastpe.benchmarks.turns` sends the requests. The process ends when its standard input
ends: if the parent was killed, a worker finishes its current job and then ends.
"""

import json
import os
import sys
import time
from typing import Any

from fastpe.benchmarks import jobs
from fastpe.benchmarks.figures import WrongResult

_SETTLE = 0.01  # seconds to wait until threads of the previous library stop spinning
_WARM = 1  # untimed calls that warm up caches and threads


def main() -> None:
    """Answer requests until standard input ends."""
    pipe = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # other output goes to standard error, so that it does not mix with the answers
    ready: dict[str, jobs.Job] = {}
    for line in sys.stdin:
        pipe.write(json.dumps(answer(json.loads(line), ready)) + "\n")
        pipe.flush()


def answer(request: dict[str, Any], ready: dict[str, jobs.Job]) -> dict[str, Any]:
    """Run a request, and return the answer. An error is returned as an answer, too."""
    try:
        match request:
            case {"prepare": key, "job": name, "arguments": arguments}:
                ready[key] = jobs.JOBS[name](**arguments)
                return {"facts": ready[key].facts}
            case {"time": key, "seconds": seconds, "least": least}:
                return {"seconds": timings(ready[key], seconds, least)}
        return {"failed": f"unknown request {request!r}"}
    except jobs.Absent as why:
        return {"absent": str(why)}
    except WrongResult as error:
        return {"wrong": str(error)}
    except Exception as error:  # the parent must receive any error
        return {"failed": f"{type(error).__name__}: {error}"}


def timings(job: jobs.Job, seconds: float, least: int) -> list[float]:
    """Time at least `least` calls for at least `seconds`, and return the seconds of each call."""
    time.sleep(_SETTLE)
    for _ in range(_WARM):
        job.call()
    found: list[float] = []
    end = time.perf_counter() + seconds
    while len(found) < least or time.perf_counter() < end:
        start = time.perf_counter()
        job.call()
        found.append((time.perf_counter() - start) / job.repeats)
    return found


if __name__ == "__main__":
    main()
