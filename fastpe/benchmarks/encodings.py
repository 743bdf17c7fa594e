"""The cost of every encoding: the paper's training step with and without the encoding, its fill and its pull.

The model is that of Li (2025), section 7.1: N 50, width 64, one head, batch 32, on one thread. It is causal for
encodings that are for causal models only. Encodings that learn are filled and pulled in every step, all others once.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fastpe.benchmarks.disturbance import between_turns
from fastpe.benchmarks.figures import judged
from fastpe.benchmarks.turns import Candidate, Effort, Tell, Worker, prepare, take_turns
from fastpe.encodings import registry

GOAL, COLUMNS_GOAL, MOST = 1.25, 1.6, 2.5
"""Goals: the largest time of a step relative to the step without an encoding. `COLUMNS_GOAL` is for encodings whose
layers compute offsets or slopes of keys from their input. `MOST` is for layers that compute angles or reflections, and
for encodings with vectors at every offset, maps, polar form, counted keys, or networks over scores."""
_MORE = {"rel_gain", "rel_key", "rel_query", "rel_value", "rotors", "polar", "counts", "mlp_in"}


def goal(name: str) -> float:
    """The largest allowed time of a step with an encoding, relative to a step without.

    Examples
    --------
    >>> goal("wavelet"), goal("fox"), goal("transformer_xl"), goal("selective_rope")
    (1.25, 1.6, 2.5, 2.5)
    """
    encoding = registry.get(name)
    if not _MORE.isdisjoint(encoding.slots) or (encoding.gate is not None and encoding.gate.kind != "adds"):
        return MOST
    return GOAL if encoding.gate is None else COLUMNS_GOAL


def measure(effort: Effort, tell: Tell, names: Sequence[str] = ()) -> dict[str, Any]:
    """Time the step with every encoding, or with the encodings `names`, in turns with the step of `nope`.

    Returns
    -------
    dict
        - ``rows``, each with ``encoding``, ``slots``, ``causal``, ``ms`` of the step, ``nope_ms``, ``times`` (relative
          to `nope`, judged), ``fill_us``, and ``pull_us``, which is None if nothing is learned.
        - ``disturbed``: signs of a disturbed machine.

    Raises
    ------
    WrongResult
        If losses differ from the reference.
    WorkerDied
        If the process ends.
    """
    shorter = replace(effort, turns=min(effort.turns, 2), seconds=effort.seconds / 3)
    rows = []
    with Worker("fastpe", 1) as ours:
        nope = {causal: Candidate("nope", ours, "encoding step", _asked("nope", causal)) for causal in (False, True)}
        tell("encodings: compiling, building and checking")
        prepare(nope.values())
        for name in names or [name for name in registry.built_in() if name != "nope"]:
            causal = registry.get(name).direction == "causal"
            tell(f"encodings: {name}")
            own = {
                part: Candidate(part, ours, f"encoding {part}", _asked(name, causal))
                for part in ("step", "fill", "pull")
            }
            without = replace(nope[causal], seconds=[])  # all copies share one list of turns, as one yardstick
            prepare(own.values())
            take_turns([without, own["step"]], effort)
            take_turns([own["fill"], own["pull"]], shorter)
            rows.append(_row(name, causal, own, without))
    disturbed = [sign for each in nope.values() for sign in between_turns(_yardstick(each), each.turns)]
    return {"rows": rows, "disturbed": disturbed}


def _yardstick(nope: Candidate) -> str:
    return f"the {'causal ' * nope.arguments['causal']}step without an encoding"


def _asked(encoding: str, causal: bool) -> dict[str, Any]:
    return {"encoding": encoding, "causal": causal}


def _row(name: str, causal: bool, own: dict[str, Candidate], without: Candidate) -> dict[str, Any]:
    slots = list(own["step"].facts["slots"])
    return {
        "encoding": name, "slots": slots, "causal": causal, "ms": own["step"].best * 1e3,
        "nope_ms": without.best * 1e3, "times": judged(own["step"].best / without.best, goal(name), at_most=True),
        "fill_us": own["fill"].best * 1e6,
        "pull_us": own["pull"].best * 1e6 if own["pull"].absent is None else None,
    }  # fmt: skip
