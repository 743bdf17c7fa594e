"""The training step (loss, all gradients, Adam), compared with PyTorch eager, torch.compile and jax.jit."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from fastpe.benchmarks import jobs
from fastpe.benchmarks.disturbance import between_turns, on_more_threads
from fastpe.benchmarks.figures import judged
from fastpe.benchmarks.models import CASES
from fastpe.benchmarks.turns import Candidate, Effort, Tell, Worker, prepare, take_turns
from fastpe.doctor import probe
from fastpe.model.cost import step_flop

_WAYS = {"eager": ("eager", "eager, own attention")}
"""Several forms of a peer. The fastest one counts."""
PEERS = {"eager": "PyTorch eager", "compile": "torch.compile", "jax": "jax.jit"}


def measure(
    effort: Effort,
    tell: Tell,
    threads: Sequence[int],
    models: Sequence[str] = tuple(CASES),
    peers: Sequence[str] = tuple(PEERS),
) -> dict[str, Any]:
    """Time the step of every model on every number of threads, and compare it with the machine's peak.

    Parameters
    ----------
    effort : Effort
    tell : callable
        Called with a line of text when a measurement begins.
    threads : sequence of int
        Numbers of threads.
    models, peers : sequence of str
        Keys of `CASES` and `PEERS`.

    Returns
    -------
    dict
        - ``rows``: ``model``; ``threads``; ``flop``, the useful FLOPs of the model as defined (a step with fused first
          and last products does fewer, so its share of the peak may exceed 1); ``fastpe`` with ``ms`` and ``of_peak``,
          judged; and ``peers``, each with ``ms`` and ``times`` (relative to fastpe's time), judged, or with ``absent``,
          the reason why there is no time.
        - ``sgemm``: for each number of threads, the GFLOP/s of fastpe's sgemm in cache and of NumPy's BLAS. The larger
          of the two is the peak.
        - ``disturbed``: signs of a disturbed machine.

    Raises
    ------
    WrongResult
        If a library's losses differ from the reference.
    WorkerDied
        If a process ends.
    """
    expected = {name: jobs.expected_losses(CASES[name]) for name in models}
    rows: list[dict[str, Any]] = []
    peaks, disturbed = [], list[str]()
    with ExitStack() as stack:
        tell("step: building and checking all libraries; torch.compile may take a minute the first time")
        found: dict[int, dict[str, list[Candidate]]] = {}
        for count in threads:
            names = ("fastpe", "numpy", *peers)
            workers = {name: stack.enter_context(Worker(name, count)) for name in names}
            found[count] = {model: _candidates(model, count, workers, expected[model]) for model in models}
        prepare(each for of_count in found.values() for of_model in of_count.values() for each in of_model)
        for count, of_count in found.items():
            best = {}
            for model, candidates in of_count.items():
                tell(f"step: {model}, threads: {count}")
                take_turns(candidates, effort)
                best[model] = _best(candidates)
            # use the fastest of all turns, because the peak does not depend on the model
            own = probe.PEAK_FLOP * count / min(each["peak"] for each in best.values())
            blas = 2 * probe.BLAS_ORDER**3 / min(each["blas"] for each in best.values())
            peaks.append({"threads": count, "own_gflops": own / 1e9, "blas_gflops": blas / 1e9})
            rows += [_row(model, count, best[model], max(own, blas)) for model in models]
            alone = [each for candidates in of_count.values() for each in candidates if each.label == "peak"]
            disturbed += between_turns(f"sgemm, threads: {count},", [turn for each in alone for turn in each.turns])
    disturbed += on_more_threads({(row["model"], row["threads"]): row["fastpe"]["of_peak"]["value"] for row in rows})
    return {"rows": rows, "sgemm": peaks, "disturbed": disturbed}


def _candidates(model: str, threads: int, workers: Mapping[str, Worker], expected: list[float]) -> list[Candidate]:
    """All candidates of a row, each in the worker of its library."""
    found = [
        Candidate("peak", workers["fastpe"], "peak", {"threads": threads}),
        Candidate("blas", workers["numpy"], "blas"),
    ]
    for name in workers:
        if name != "numpy":
            for way in _WAYS.get(name, (name,)):
                arguments = {"library": way, "model": model, "threads": threads, "expected": expected}
                found.append(Candidate(name, workers[name], "step", arguments))
    return found


def _best(candidates: Iterable[Candidate]) -> dict[str, Any]:
    """By label: the seconds of the fastest form of each library, or the reason why there is no time."""
    found: dict[str, Any] = {}
    for each in candidates:
        absent = each.absent is not None
        found[each.label] = each.absent if absent else min(each.best, found.get(each.label, each.best))
    return found


def _row(model: str, threads: int, best: Mapping[str, Any], peak: float) -> dict[str, Any]:
    case = CASES[model]
    flop, ours = step_flop(case.config, case.batch, unmasked=True), best["fastpe"]
    share, masked_too = flop / ours / peak, step_flop(case.config, case.batch)
    return {
        "model": model, "threads": threads, "batch": case.batch, "length": case.config.train_length, "flop": flop,
        "fastpe": {
            "ms": ours * 1e3, "gflops": flop / ours / 1e9, "of_peak": judged(share, case.of_peak),
            "of_peak_masked_too": share * masked_too / flop if case.config.causal else None,
        },
        "peers": {name: _beside(best[name], ours, case.goal(name, threads)) for name in PEERS if name in best},
    }  # fmt: skip


def _beside(peer: float | str, ours: float, goal: float) -> dict[str, Any]:
    if isinstance(peer, str):
        return {"absent": peer}
    return {"ms": peer * 1e3, "times": judged(peer / ours, goal)}
