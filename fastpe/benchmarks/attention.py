"""Attention compared with PyTorch and with the peak, the cost of position terms, and very long calls."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from fastpe.benchmarks.attention_cases import BACKWARD, BOTH, FORWARD, Problem
from fastpe.benchmarks.disturbance import between_turns
from fastpe.benchmarks.figures import judged
from fastpe.benchmarks.turns import QUICK, Candidate, Effort, Tell, Worker, prepare, take_turns
from fastpe.doctor import probe

PEERS = {"sdpa": "PyTorch SDPA", "flashbias": "FlashBias on SDPA", "flex": "compiled FlexAttention"}


@dataclass(frozen=True)
class Case:
    """A problem for several libraries. `times`: by peer and part, the goal for the peer's time divided by fastpe's."""

    name: str
    problem: Problem
    times: Mapping[str, Mapping[str, float | None]]

    @property
    def parts(self) -> list[str]:
        """The timed parts: forward, backward or both."""
        return [part for part in (FORWARD, BACKWARD, BOTH) if any(part in goals for goals in self.times.values())]


CASES = (
    Case("causal ALiBi", Problem(4096, term="alibi"), {
        "sdpa": {FORWARD: 3.0, BOTH: 5.0}, "flashbias": {FORWARD: 1.3, BOTH: 1.3}, "flex": {FORWARD: 3.0},
    }),
    Case("learned bias", Problem(2048, causal=False, term="learned"), {"sdpa": {FORWARD: None, BOTH: 10.0}}),
    Case("no term, causal", Problem(4096), {"sdpa": {FORWARD: 1.0, BACKWARD: 1.3, BOTH: None}}),
    Case("small calls", Problem(64, causal=False, batch=32, heads=4, width=16), {"sdpa": {FORWARD: 1.0, BOTH: 1.0}}),
)  # fmt: skip
"""ALiBi has the standard slopes. For ALiBi, SDPA gets a dense mask that is made before the timing. For a learned bias,
SDPA gathers N x N entries in each call."""
AS_EXACT = {"sdpa": 2.0, "flashbias": 1.0, "flex": None}
"""Goals by peer: the largest allowed ratio of fastpe's error to the peer's error, both against float64."""
OF_PEAK = {FORWARD: 0.6, BACKWARD: 0.55}
LENGTHS = (1024, 2048, 4096)
"""Lengths of the problems without position terms, for which the share of the peak is measured."""
TERMS = {"rope": 1.03, "toeplitz": 1.05, "shaw": 2.0, "shaw values": None}
"""Goals: the largest time with a position term relative to no term, at N 4096, causal, with no tiles skipped."""
LONG, EXTRA_MIB, SKIPPING = 65536, 64.0, 5.0
"""Number of positions of the longest calls, and goals: MiB beyond inputs and outputs, and the speedup by skipping."""
_SLOPES = (0.5, 2.0**-8)


def measure(
    effort: Effort, tell: Tell, threads: int, shorter: int = 1, peers: Sequence[str] = tuple(PEERS)
) -> dict[str, Any]:
    """Time attention forward and backward. Each library is first checked against the reference.

    Parameters
    ----------
    effort : Effort
    tell : callable
        Called with a line of text when a measurement begins.
    threads : int
    shorter : int
        Divisor of all lengths.
    peers : sequence of str
        Keys of `PEERS`.

    Returns
    -------
    dict
        - ``beside``: for each case and part, fastpe's ``ms``, and each peer's ``ms`` with ``times`` (relative to
          fastpe's time, judged), or ``absent``, the reason why there is no time.
        - ``errors``: for each case and result, fastpe's error against float64, relative to the largest entry, and each
          peer's error with ``ratio``, fastpe's error divided by the peer's, judged.
        - ``peak``: ``gflops`` of sgemm, rows with ``of_peak``, judged, and ``disturbed``, signs of a disturbed machine.
        - ``terms``: times relative to no term, judged.
        - ``long``: ``rows`` with ``seconds`` and ``extra_mib``, judged (None if it cannot be measured; ``why`` gives
          the reason), and ``skipping``.

    Raises
    ------
    WrongResult
        If a library's result differs from the reference.
    WorkerDied
        If a process ends.
    """
    effort = replace(effort, least=1)
    with Worker("fastpe", threads) as ours:
        beside, errors = _beside_peers(effort, tell, ours, threads, shorter, peers)
        return {
            "threads": threads, "shorter": shorter, "beside": beside, "errors": errors,
            "peak": _of_peak(effort, tell, ours, threads, shorter),
            "terms": _terms(effort, tell, ours, threads, shorter),
            "long": {"rows": _long(tell, threads, shorter), "skipping": _skipping(tell, ours, threads, shorter)},
        }  # fmt: skip


def _shortened(problem: Problem, shorter: int) -> Problem:
    return replace(problem, length=max(problem.length // shorter, 64))


def _asked(library: str, problem: Problem, part: str, threads: int, **more: Any) -> dict[str, Any]:
    """The arguments of the job `attention`."""
    return {"library": library, "problem": asdict(problem), "part": part, "threads": threads, **more}


# ---------------------------------------------------------------------------------------------------------------------
# Compared with PyTorch


def _beside_peers(
    effort: Effort, tell: Tell, ours: Worker, threads: int, shorter: int, peers: Sequence[str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    errors: list[dict[str, Any]] = []
    with Worker("torch", threads) as torch:
        for case in CASES:
            tell(f"attention: {case.name}; checking takes longer than timing")
            problem = _shortened(case.problem, shorter)
            named = [peer for peer in case.times if peer in peers]
            found = {
                (library, part): Candidate(f"{library} {part}", ours if library == "fastpe" else torch, "attention",
                                           _asked(library, problem, part, threads))
                for library in ("fastpe", *named) for part in case.parts
                if library == "fastpe" or part in case.times[library]
            }  # fmt: skip
            prepare(found.values())
            take_turns(found.values(), effort)
            rows += [_row(case, problem, part, found, named) for part in case.parts]
            errors += _errors(case, problem, found, named)
    return rows, errors


def _row(
    case: Case, problem: Problem, part: str, found: Mapping[tuple[str, str], Candidate], named: Sequence[str]
) -> dict[str, Any]:
    ours, beside = found["fastpe", part].best, {}
    for peer in named:
        if (each := found.get((peer, part))) is None:
            continue
        beside[peer] = (
            {"ms": each.best * 1e3, "times": judged(each.best / ours, case.times[peer][part])}
            if each.absent is None else {"absent": each.absent}
        )  # fmt: skip
    return {"case": case.name, "length": problem.length, "part": part, "ms": ours * 1e3, "peers": beside}


def _errors(
    case: Case, problem: Problem, found: Mapping[tuple[str, str], Candidate], named: Sequence[str]
) -> list[dict[str, Any]]:
    ours, rows = found["fastpe", FORWARD].facts["errors"], []
    theirs = {peer: found[peer, FORWARD].facts.get("errors", {}) for peer in named}
    for name, error in ours.items():
        beside = {
            peer: {"error": each[name], "ratio": judged(error / each[name], AS_EXACT[peer], at_most=True)}
            for peer, each in theirs.items() if name in each
        }  # fmt: skip
        result = name if name == "out" else f"d{name}"
        rows.append({"case": case.name, "length": problem.length, "result": result, "error": error, "peers": beside})
    return rows


# ---------------------------------------------------------------------------------------------------------------------
# Compared with the peak, and with attention without terms


def _of_peak(effort: Effort, tell: Tell, ours: Worker, threads: int, shorter: int) -> dict[str, Any]:
    problems = [_shortened(Problem(length, causal), shorter) for length in LENGTHS for causal in (True, False)]
    found: list[tuple[Problem, str, Candidate]] = []
    with Worker("numpy", threads) as numpy:
        limits = [Candidate("peak", ours, "peak", {"threads": threads}), Candidate("blas", numpy, "blas")]
        prepare(limits)
        for problem in problems:
            tell(f"attention: share of the peak, N {problem.length}{', causal' if problem.causal else ''}")
            candidates = [
                Candidate(part, ours, "attention", _asked("fastpe", problem, part, threads)) for part in OF_PEAK
            ]
            prepare(candidates)
            take_turns([limits[0], *candidates], effort)
            found += [(problem, each.label, each) for each in candidates]
        take_turns([limits[1]], effort)  # BLAS is timed separately: its idle threads spin, and would occupy a core
    own, blas = probe.PEAK_FLOP * threads / limits[0].best, 2 * probe.BLAS_ORDER**3 / limits[1].best
    rows = []
    for problem, part, each in found:
        rate = problem.flop(part) / each.best
        share = judged(rate / max(own, blas), OF_PEAK[part])
        rows.append({"length": problem.length, "causal": problem.causal, "part": part, "ms": each.best * 1e3,
                     "gflops": rate / 1e9, "of_peak": share})  # fmt: skip
    disturbed = between_turns(f"sgemm, threads: {threads},", limits[0].turns)
    return {"own_gflops": own / 1e9, "blas_gflops": blas / 1e9, "rows": rows, "disturbed": disturbed}


def _terms(effort: Effort, tell: Tell, ours: Worker, threads: int, shorter: int) -> list[dict[str, Any]]:
    tell("attention: what position terms cost")
    problems = {term: _shortened(Problem(4096, term=term), shorter) for term in ("none", *TERMS)}
    found = {
        (term, part): Candidate(part, ours, "attention", _asked("fastpe", problem, part, threads, tolerance=0))
        for term, problem in problems.items() for part in (FORWARD, BOTH)
    }  # fmt: skip
    prepare(found.values())
    take_turns(found.values(), replace(effort, turns=2 * effort.turns))  # differences of a few percent matter
    rows = []
    for (term, part), each in found.items():
        times = judged(each.best / found["none", part].best, TERMS[term], at_most=True) if term in TERMS else None
        rows.append({"term": term, "length": problems[term].length, "part": part, "ms": each.best * 1e3,
                     "times": times})  # fmt: skip
    return rows


# ---------------------------------------------------------------------------------------------------------------------
# The longest calls


def _long(tell: Tell, threads: int, shorter: int) -> list[dict[str, Any]]:
    """Time a few forward and backward passes of causal ALiBi over `LONG` positions, and measure their memory."""
    few, rows = replace(QUICK, least=2), []
    for slope in _SLOPES:
        problem = _shortened(Problem(LONG, term="alibi", heads=1, slopes=(slope,)), shorter)
        tell(f"attention: N {problem.length}, one head, slope {slope}")
        # a new process, because freed memory of an older one would hide growth
        with Worker("fastpe", threads) as fresh:
            memory = Candidate("memory", fresh, "attention memory", {"problem": asdict(problem), "threads": threads})
            call = Candidate("call", fresh, "attention", _asked("fastpe", problem, BOTH, threads))
            prepare([memory, call])
            take_turns([call], few)
        extra = memory.facts["extra_bytes"]
        mib = None if extra is None else judged(extra / 2**20, EXTRA_MIB, at_most=True)
        rows.append({"length": problem.length, "heads": 1, "slope": slope, "seconds": call.best, "extra_mib": mib,
                     "why": memory.facts.get("why")})  # fmt: skip
    return rows


def _skipping(tell: Tell, ours: Worker, threads: int, shorter: int) -> dict[str, Any]:
    """Time the eight standard slopes with skipping. Without skipping, only the call that is checked is timed."""
    problem = _shortened(Problem(LONG, term="alibi"), shorter)
    tell(f"attention: N {problem.length}, the eight standard slopes, with skipping and once without")
    some = Candidate("some", ours, "attention", _asked("fastpe", problem, BOTH, threads))
    every = Candidate("every", ours, "attention", _asked("fastpe", problem, BOTH, threads, tolerance=0))
    prepare([some, every])
    take_turns([some], QUICK)
    seconds = every.facts["seconds"]
    return {
        "length": problem.length, "seconds": some.best, "every_seconds": seconds,
        "times": judged(seconds / some.best, SKIPPING),
    }  # fmt: skip
