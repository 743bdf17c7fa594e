"""Models of transformers and attention of PyTorch, with their own functions and with fastpe's adapter."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fastpe.benchmarks import decoding, features, framework_cases
from fastpe.benchmarks.attention_cases import BOTH, FORWARD
from fastpe.benchmarks.figures import WrongResult, judged
from fastpe.benchmarks.turns import Candidate, Effort, Tell, Worker, prepare, take_turns

PEERS = {
    "eager": "transformers eager", "sdpa": "PyTorch SDPA", "flex": "compiled FlexAttention",
    "dense": "dense attention in PyTorch", "slots": "fastpe.torch.attention",
}  # fmt: skip
SKIPS, SKIPS_NOTHING = 1.5, 0.95
"""Goals for a peer's time divided by fastpe's: `SKIPS` if fastpe skips keys or needs no dense bias, `SKIPS_NOTHING`
otherwise. `decoding` has the goals of calls with one query."""
AS_SLOTS, AS_SHORT_SLOTS, AS_DENSE = 1 / 1.2, 1 / 1.5, 3.0
"""Goals for `fastpe.torch.flex_attention` beside the same slots, the same slots for 128 tokens, and dense attention."""
_SECONDS, _FEW_TURNS = 2.0, 2


@dataclass(frozen=True)
class Case:
    """A kind of `framework_cases.call` at some lengths.

    `times` has, by peer and part, the goal for the peer's time divided by fastpe's. All results are compared with those
    of the first peer. `processes` is the number of pairs of processes that are timed. Short calls, such as one token of
    a model, need several pairs: their times differ by 5 % between equal processes, because the memory is laid out
    differently.
    """

    name: str
    kind: str
    lengths: Sequence[int]
    times: Mapping[str, Mapping[str, float]]
    processes: int = 1


CASES = (
    Case("BLOOM", "bloom", (2048, 8192), {"eager": {FORWARD: SKIPS}}),
    Case("ALiBi alone", "alibi", (2048, 8192), {"sdpa": {FORWARD: SKIPS, BOTH: SKIPS}}),
    Case("T5 encoder", "t5", (1024, 4096), {"eager": {BOTH: SKIPS}, "sdpa": {BOTH: SKIPS}}),
    Case("Mistral, window 4,096", "mistral", (8192,), {"sdpa": {FORWARD: SKIPS}}),
    Case("documents of 512 alone", "packed", (8192,), {
        "sdpa": {FORWARD: SKIPS, BOTH: SKIPS}, "flex": {FORWARD: SKIPS},
    }),
    Case("Llama, documents of 512", "llama packed", (8192,), {"sdpa": {FORWARD: SKIPS}}),
    Case("Llama", "llama", (2048,), {"sdpa": {FORWARD: SKIPS_NOTHING, BOTH: SKIPS_NOTHING}}),
    Case("FlexAttention, 128 tokens", "flex alibi", (128,), {
        "slots": {FORWARD: AS_SHORT_SLOTS, BOTH: AS_SHORT_SLOTS},
    }, 4),
    *(Case(f"FlexAttention, {name}", f"flex {term}", (512, 4096), {
        "dense": {BOTH: AS_DENSE}, "sdpa": {FORWARD: SKIPS, BOTH: SKIPS}, "flex": {FORWARD: SKIPS_NOTHING},
        "slots": {FORWARD: AS_SLOTS, BOTH: AS_SLOTS},
    }) for name, term in (("ALiBi", "alibi"), ("learned bias", "learned"))),
    Case("FlexAttention, ALiBi, long", "flex alibi", (8192,), {
        "flex": {FORWARD: SKIPS_NOTHING}, "slots": {FORWARD: AS_SLOTS, BOTH: AS_SLOTS},
    }),
    Case("Llama, one token and a cache", "llama decode", decoding.LENGTHS, {"sdpa": {FORWARD: SKIPS_NOTHING}}, 4),
)  # fmt: skip
"""For attention alone, SDPA gets a dense mask that is made before the timing. In models, each call makes the mask."""


def measure(
    effort: Effort, tell: Tell, threads: int, shorter: int = 1, peers: Sequence[str] = tuple(PEERS)
) -> dict[str, Any]:
    """Time models and attention with fastpe's adapter and with their own functions.

    Also times one query and a key/value cache (`decoding`), and every feature by itself (`features`).

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
        - ``beside``: for each case, length and part, fastpe's ``ms``, and each peer's ``ms`` with ``times`` (relative
          to fastpe's time, judged), or ``absent``, the reason why there is no time.
        - ``absent``: by case, the reason why the case cannot be measured at all.
        - ``decoding`` and ``features``: the results of `decoding.measure` and `features.measure`.

    Raises
    ------
    WrongResult
        If results of a case differ from those of its first peer, or results of `decoding` and `features` from the
        reference.
    WorkerDied
        If a process ends.
    """
    effort = replace(effort, least=1)
    rows: list[dict[str, Any]] = []
    absent: dict[str, str] = {}
    for case in CASES:
        tell(f"frameworks: {case.name}")
        found: dict[int, Found] = {}
        for _ in range(case.processes if effort.turns > 1 else 1):
            found, reason = _timed(case, effort, threads, shorter, peers, found)
            if reason is not None:
                absent[case.name] = reason
                break
        rows += [row for length, each in found.items() for row in _rows(case, length, each)]
    return {
        "threads": threads, "shorter": shorter, "beside": rows, "absent": absent,
        "decoding": decoding.measure(effort, tell, threads, shorter),
        "features": features.measure(effort, tell, threads, shorter),
    }  # fmt: skip


Found = Mapping[tuple[str, str], Candidate]
"""Timed candidates by library and part."""


def _timed(
    case: Case, effort: Effort, threads: int, shorter: int, peers: Sequence[str], before: Mapping[int, Found]
) -> tuple[dict[int, Found], str | None]:
    """Time a case in two new processes, and return the timings by length, or the reason why there are none.

    Earlier timings, in `before`, are added. Every case has new processes, so that masks of other cases take no memory.
    """
    timed: dict[int, Found] = {}
    with Worker("fastpe in PyTorch", threads) as ours, Worker("torch", threads) as theirs:
        for length in sorted({max(length // shorter, 64) for length in case.lengths}):
            found = _candidates(case, length, threads, peers, ours, theirs)
            prepare(found.values())
            if reason := next((each.absent for (way, _), each in found.items() if way == "fastpe"), None):
                return {}, reason
            _check(case, length, found)
            take_turns(found.values(), _effort(effort, found))
            for key, earlier in before.get(length, {}).items():
                found[key].seconds += earlier.seconds
            timed[length] = found
    return timed, None


def _candidates(
    case: Case, length: int, threads: int, peers: Sequence[str], ours: Worker, theirs: Worker
) -> dict[tuple[str, str], Candidate]:
    named = {peer: parts for peer, parts in case.times.items() if peer in peers}
    parts = list(dict.fromkeys(part for each in case.times.values() for part in each))
    asked = [("fastpe", part) for part in parts] + [(peer, part) for peer, parts in named.items() for part in parts]
    return {
        (way, part): Candidate(f"{way} {part}", ours if way == "fastpe" else theirs, "framework", {
            "way": way, "kind": case.kind, "length": length, "part": part, "threads": threads,
        })
        for way, part in asked
    }  # fmt: skip


def _check(case: Case, length: int, found: Found) -> None:
    """Compare all results with those of the first peer that is present."""
    for part in dict.fromkeys(part for _, part in found):
        there = {way: each for (way, own), each in found.items() if own == part and each.absent is None}
        exact = next((way for way in there if way != "fastpe"), "fastpe")
        for way, each in there.items():
            if wrong := framework_cases.disagreement(each.facts["results"], there[exact].facts["results"]):
                raise WrongResult(f"{case.name}, N {length}, {part}: {way} differs from {exact}: {wrong}")


def _effort(effort: Effort, found: Found) -> Effort:
    """Reduce the turns if the calls take seconds, because a disturbance affects only a part of a long call."""
    taken = sum(each.facts["seconds"] for each in found.values() if each.absent is None)
    few = min(effort.turns, _FEW_TURNS)
    return effort if taken < _SECONDS else replace(effort, turns=few, most=few)


def _rows(case: Case, length: int, found: Found) -> list[dict[str, Any]]:
    rows = []
    for (way, part), ours in found.items():
        if way == "fastpe":
            beside = {
                peer: {"absent": each.absent} if each.absent is not None
                else {"ms": each.best * 1e3, "times": judged(each.best / ours.best, case.times[peer][part])}
                for (peer, own), each in found.items() if peer != "fastpe" and own == part
            }  # fmt: skip
            rows.append({"case": case.name, "length": length, "part": part, "ms": ours.best * 1e3, "peers": beside})
    return rows
