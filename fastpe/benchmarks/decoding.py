"""One query and a cache with each slot of attention: fastpe's adapter, and what PyTorch users write instead."""

from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from fastpe.benchmarks import framework_cases, peers
from fastpe.benchmarks.decoding_cases import CASES
from fastpe.benchmarks.figures import WrongResult, judged
from fastpe.benchmarks.turns import Candidate, Effort, Tell, Worker, prepare, take_turns

LENGTHS = (64, 512, 2048, 8192)
JUDGED = (
    "none", "causal", "mask of bool", "mask of floats", "spans", "lengths", "query_start", "window", "softcap", "sinks",
    "scale", "scale of each head", "bias", "key_offset",
)  # fmt: skip
"""The slots with a goal: those that `fastpe.functional.decode` handles."""
TOLERANCE = 1e-5  # bound of float32 errors, relative to the largest entry; observed: 4e-6
_WAYS = ("fastpe", "peer", "sdpa")


def measure(effort: Effort, tell: Tell, threads: int, shorter: int = 1) -> dict[str, Any]:
    """Time attention of one query with every slot. Results are first checked against the peer.

    Parameters
    ----------
    effort, tell, threads, shorter
        As for `fastpe.benchmarks.frameworks.measure`.

    Returns
    -------
    dict
        ``rows``: for each slot and length fastpe's ``us``, ``times`` (the peer's time relative to fastpe's), and
        ``sdpa`` (the relative time of PyTorch's function with a dense mask for any slot), judged by `goal`;
        ``absent``: the reason if there are no rows, or None.

    Raises
    ------
    WrongResult
        If a result differs from the peer's.
    WorkerDied
        If a process ends.
    """
    rows: list[dict[str, Any]] = []
    if find_spec("torch") is None:
        return {"rows": rows, "absent": peers.INSTALL}
    lengths = sorted({max(length // shorter, 64) for length in LENGTHS})
    with Worker("fastpe in PyTorch", threads) as ours, Worker("torch", threads) as theirs:
        for slot in CASES:
            tell(f"frameworks: one query and a cache, {slot}")
            for length in lengths:
                found = {
                    way: Candidate(f"{way}, {slot}", ours if way == "fastpe" else theirs, "decoding", {
                        "way": way, "slot": slot, "length": length, "threads": threads,
                    })
                    for way in _WAYS
                }  # fmt: skip
                prepare(found.values())
                if reason := next((each.absent for each in found.values() if each.absent is not None), None):
                    return {"rows": [], "absent": reason}
                _check(slot, length, found)
                take_turns(found.values(), effort)
                rows.append(_row(slot, length, found))
    return {"rows": rows, "absent": None}


def goal(slot: str, length: int) -> float | None:
    """The least time of PyTorch's function relative to fastpe's; None for slots without a goal.

    >>> goal("bias", 64), goal("bias", 512), goal("gain", 512)
    (0.5, 1.0, None)
    """
    if slot not in JUDGED:
        return None
    return 0.5 if length < 512 else 1.0


def _check(slot: str, length: int, found: Mapping[str, Candidate]) -> None:
    own, right = (found[way].facts["results"] for way in ("fastpe", "peer"))
    if wrong := framework_cases.disagreement(own, right, TOLERANCE):
        raise WrongResult(f"one query and a cache, {slot}, {length} keys: fastpe differs from its peer: {wrong}")


def _row(slot: str, length: int, found: Mapping[str, Candidate]) -> dict[str, Any]:
    ours, peer, sdpa = (found[way].best for way in _WAYS)
    return {
        "slot": slot, "length": length, "us": ours * 1e6, "times": peer / ours,
        "sdpa": judged(sdpa / ours, goal(slot, length)),
    }  # fmt: skip
