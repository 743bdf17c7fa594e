"""The training step (loss, all gradients, Adam) beside PyTorch eager, torch.compile and jax.jit."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

from fastpe import speed
from fastpe.benchmarks import jobs
from fastpe.benchmarks.figures import judged
from fastpe.benchmarks.models import CASES, step_flop
from fastpe.benchmarks.turns import Candidate, Effort, Tell, Worker, prepare, take_turns

PEERS = {"eager": "PyTorch eager", "compile": "torch.compile", "jax": "jax.jit"}


def measure(
    effort: Effort,
    tell: Tell,
    threads: Sequence[int],
    models: Sequence[str] = tuple(CASES),
    peers: Sequence[str] = tuple(PEERS),
) -> dict[str, Any]:
    """Time the step of every model on every number of threads, each beside the machine's own peak.

    Parameters
    ----------
    effort : Effort
    tell : callable
        Called with a line whenever something begins.
    threads : sequence of int
    models, peers : sequences of str
        Keys of `CASES` and `PEERS`.

    Returns
    -------
    dict
        ``rows``: ``model``, ``threads``, ``flop`` (useful ones), ``fastpe`` with ``ms`` and ``of_peak``, judged, and
        ``peers``, each with ``ms`` and ``times`` (how often as long as fastpe's), judged, or ``absent``, the reason.
        ``sgemm``: per number of threads the GFLOP/s of fastpe's sgemm in cache and of NumPy's BLAS; the better one is
        the peak.

    Raises
    ------
    WrongResult
        If a library's losses are not the reference's.
    WorkerDied
        If a process ends.
    """
    expected = {name: jobs.expected_losses(CASES[name]) for name in models}
    rows: list[dict[str, Any]] = []
    peaks = []
    for count in threads:
        with ExitStack() as stack:
            names = ("fastpe", "numpy", *peers)
            workers = {name: stack.enter_context(Worker(name, count)) for name in names}
            found = {}
            for model in models:
                tell(f"step: {model}, threads: {count}")
                found[model] = _timed(model, count, workers, expected[model], effort)
        # the fastest of all turns: what the machine can do does not depend on the model
        own = speed.PEAK_FLOP * count / min(each["peak"].best for each in found.values())
        blas = 2 * speed.BLAS_ORDER**3 / min(each["blas"].best for each in found.values())
        peaks.append({"threads": count, "own_gflops": own / 1e9, "blas_gflops": blas / 1e9})
        rows += [_row(model, count, found[model], max(own, blas)) for model in models]
    return {"rows": rows, "sgemm": peaks}


def _timed(
    model: str, threads: int, workers: dict[str, Worker], expected: list[float], effort: Effort
) -> dict[str, Candidate]:
    """All candidates of a row, checked and timed."""
    candidates = [
        Candidate("peak", workers["fastpe"], "peak", {"threads": threads}),
        Candidate("blas", workers["numpy"], "blas"),
    ]
    for name in workers:
        if name != "numpy":
            arguments = {"library": name, "model": model, "threads": threads, "expected": expected}
            candidates.append(Candidate(name, workers[name], "step", arguments))
    prepare(candidates)
    take_turns(candidates, effort)
    return {each.label: each for each in candidates}


def _row(model: str, threads: int, found: dict[str, Candidate], peak: float) -> dict[str, Any]:
    case = CASES[model]
    flop, ours = step_flop(case.config, case.batch), found["fastpe"].best
    share, unmasked = flop / ours / peak, step_flop(case.config, case.batch, unmasked=True)
    return {
        "model": model, "threads": threads, "batch": case.batch, "length": case.config.train_length, "flop": flop,
        "fastpe": {
            "ms": ours * 1e3, "gflops": flop / ours / 1e9, "of_peak": judged(share, case.of_peak),
            "of_peak_unmasked": share * unmasked / flop if case.config.causal else None,
        },
        "peers": {name: _beside(found[name], ours, case.goal(name, threads)) for name in PEERS if name in found},
    }  # fmt: skip


def _beside(peer: Candidate, ours: float, goal: float) -> dict[str, Any]:
    if peer.absent is not None:
        return {"absent": peer.absent}
    return {"ms": peer.best * 1e3, "times": judged(peer.best / ours, goal), "note": peer.note}
