"""What Li (2025) says of its Table 5, each claim with a rule that decides it and a verdict in plain words.

The rules were fixed before the full experiment was run. A difference between two encodings counts only where the 95 %
interval of the paired difference does not hold zero; with one seed there is no interval, and nothing is decided.
"""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

PAPER: Mapping[str, Mapping[int, float]] = {
    "sinusoidal": {50: 0.0021, 100: 0.0158, 200: 0.0423},
    "alibi": {50: 0.0023, 100: 0.0055, 200: 0.0127},
    "wavelet": {50: 0.0024, 100: 0.0049, 200: 0.0108},
    "legendre": {50: 0.0022, 100: 0.0078, 200: 0.0215},
}
"""Mean squared errors as printed, by encoding and length."""

HOLDS, FAILS, OPEN, IMPOSSIBLE = "holds", "does not hold", "undecided", "impossible"
NEAR = 2.0
"""A mean within this factor of the paper's error counts as that error."""

_PAPER_SPREAD = 0.0024 / 0.0021

Rows = Sequence[Mapping[str, Any]]
Verdict = dict[str, Any]


def judge(rows: Rows, differences: Rows, reference: Rows) -> list[Verdict]:
    """A verdict for every claim, reading and length: ``claim``, ``reading``, ``length``, ``verdict``, ``reason``."""
    found = {(row["reading"], row["length"], row["encoding"]): row for row in rows}
    pairs = _both_ways(differences)
    points = {point["length"]: point for point in reference}
    verdicts: list[Verdict] = []
    for reading, length in itertools.product(dict.fromkeys(row["reading"] for row in rows), points):
        at = {scheme: found[reading, length, scheme] for scheme in PAPER}
        known = {(a, b): pairs.get((reading, length, a, b)) for a, b in itertools.permutations(PAPER, 2)}
        here = [_levels(at, length, points[length]["zero_predictor"])]
        if reading == "bidirectional":
            here.append(_symmetric(at["alibi"], length, points[length]["reversal_bound"]))
        here.append(_order(known, length))
        if length == min(points):
            here.append(_comparable(at, length))
        else:
            here.append(_best(known, length))
            here += [_extrapolates(at[scheme], known, length) for scheme in ("alibi", "wavelet")]
        verdicts += [{"reading": reading, **verdict} for verdict in here]
    return verdicts


def _both_ways(differences: Rows) -> dict[tuple[str, int, str, str], tuple[float, float, float] | None]:
    """(mean, low, high) of first - second by (reading, length, first, second), and with the sign turned."""
    found: dict[tuple[str, int, str, str], tuple[float, float, float] | None] = {}
    for one in differences:
        a, b, key = one["first"], one["second"], (one["reading"], one["length"])
        known = one["low"] is not None
        found[*key, a, b] = (one["mean"], one["low"], one["high"]) if known else None
        found[*key, b, a] = (-one["mean"], -one["high"], -one["low"]) if known else None
    return found


Pairs = Mapping[tuple[str, str], tuple[float, float, float] | None]


def _verdict(claim: str, length: int, verdict: str, reason: str) -> Verdict:
    return {"length": length, "claim": claim, "verdict": verdict, "reason": reason}


def _levels(at: Mapping[str, Mapping[str, Any]], length: int, zero: float) -> Verdict:
    """The means over seeds lie within a factor 2 of the paper's errors."""
    claim = f"the errors at {length}"
    words, verdict = [], HOLDS
    for scheme, row in at.items():
        paper, mse = row["paper"], row["mse"]
        if mse is None:
            words.append(f"{scheme} has no result")
            verdict = FAILS if verdict == FAILS else OPEN
            continue
        inside = mse["low"] is not None and mse["low"] <= paper <= mse["high"]
        if 1 / NEAR <= mse["mean"] / paper <= NEAR:
            words.append(f"{scheme} {paper:g} is {'in' if inside else 'near'} the interval")
        elif inside:
            words.append(f"{scheme} {paper:g} is in an interval too wide to tell")
            verdict = FAILS if verdict == FAILS else OPEN
        else:
            words.append(f"{scheme} {paper:g}, here {_times(mse['mean'] / paper)}")
            verdict = FAILS
    return _verdict(claim, length, verdict, f"{'; '.join(words)}. Always answering zero gives {zero:.4g}")


def _times(ratio: float) -> str:
    """A ratio in words, with three digits."""
    words = "times as much" if ratio >= 1 else "times less"
    ratio = max(ratio, 1 / ratio)
    return f"{round(ratio, 2 - len(str(int(ratio))) + 1):,g} {words}" if ratio < 1000 else f"{ratio:,.0f} {words}"


def _symmetric(row: Mapping[str, Any], length: int, bound: float) -> Verdict:
    """No bidirectional model with a symmetric bias gets below the reversal bound."""
    claim = f"bidirectional ALiBi reaches {row['paper']:g} at {length}"
    mse = row["mse"]
    here = f"; here {mse['mean']:.4g}" if mse is not None else ""
    if mse is not None and mse["low"] is not None:
        here += (
            f" [{mse['low']:.4g}, {mse['high']:.4g}], a mean over test sequences that scatters about its expectation"
        )
    if row["paper"] < bound:
        reason = (
            "a bidirectional model with a symmetric bias cannot tell a sequence from its reverse, and so not expect "
            f"less than {bound:.4g}{here}. The paper's number is from a causal model, other targets or another protocol"
        )
        return _verdict(claim, length, IMPOSSIBLE, reason)
    return _verdict(claim, length, OPEN, f"the bound for symmetric biases, {bound:.4g}, allows it{here}")


def _order(known: Pairs, length: int) -> Verdict:
    """The paper's order of its four encodings, pair by pair."""
    ranked = sorted(PAPER, key=lambda scheme: PAPER[scheme][length])
    claim = f"the order at {length}: {' < '.join(ranked)}"
    agree, against, unsure = [], [], []
    for better, worse in itertools.combinations(ranked, 2):
        difference = known[better, worse]
        if difference is None or difference[1] <= 0 <= difference[2]:
            unsure.append(f"{better} and {worse}")
        elif difference[0] < 0:
            agree.append(f"{better} < {worse}")
        else:
            against.append(f"{worse} < {better}")
    words = [
        *([f"as in the paper: {', '.join(agree)}"] if agree else []),
        *([f"the other way round: {', '.join(against)}"] if against else []),
        *([f"not told apart: {', '.join(unsure)}"] if unsure else []),
    ]
    return _verdict(claim, length, FAILS if against else OPEN if unsure else HOLDS, "; ".join(words))


def _comparable(at: Mapping[str, Mapping[str, Any]], length: int) -> Verdict:
    """Largest mean over smallest, against the paper's own ratio with as much room again."""
    claim = f"all four are nearly equal at {length}"
    if any(row["mse"] is None for row in at.values()):
        return _verdict(claim, length, OPEN, "an encoding has no result")
    means = {scheme: row["mse"]["mean"] for scheme, row in at.items()}
    low, high = min(means, key=lambda s: means[s]), max(means, key=lambda s: means[s])
    ratio, limit = means[high] / means[low], _PAPER_SPREAD**2
    reason = (
        f"{high} ({means[high]:.3g}) has {ratio:.3g} times the error of {low} ({means[low]:.3g}); in the paper the "
        f"largest is {_PAPER_SPREAD:.2f} times the smallest, and up to {limit:.2f} counts as equal"
    )
    return _verdict(claim, length, HOLDS if ratio <= limit else FAILS, reason)


def _best(known: Pairs, length: int) -> Verdict:
    """Wavelet has a smaller error than each of the paper's other three."""
    claim = f"wavelet is best at {length}"
    return _verdict(claim, length, *_beats("wavelet", [s for s in PAPER if s != "wavelet"], known))


def _beats(scheme: str, others: Sequence[str], known: Pairs) -> tuple[str, str]:
    words, verdict = [], HOLDS
    for other in others:
        difference = known[scheme, other]
        if difference is None:
            words.append(f"against {other} no interval")
            verdict = FAILS if verdict == FAILS else OPEN
            continue
        mean, low, high = difference
        text = f"{mean:+.3g} [{low:+.3g}, {high:+.3g}]"
        if low <= 0 <= high:
            words.append(f"not told apart from {other} ({text})")
            verdict = FAILS if verdict == FAILS else OPEN
        elif mean < 0:
            words.append(f"below {other} ({text})")
        else:
            words.append(f"above {other} ({text})")
            verdict = FAILS
    return verdict, f"the error of {scheme} is {'; '.join(words)}"


def _extrapolates(row: Mapping[str, Any], known: Pairs, length: int) -> Verdict:
    """Better than answering zero, with its whole interval, and better than sinusoidal."""
    scheme = row["encoding"]
    claim = f"{scheme} extrapolates to {length}: better than answering zero, and than sinusoidal"
    if row["nmse"] is None or row["nmse"]["low"] is None:
        return _verdict(claim, length, OPEN, "there is no interval")
    nmse = row["nmse"]
    zero = HOLDS if nmse["high"] < 1 else FAILS if nmse["low"] >= 1 else OPEN
    beats, words = _beats(scheme, ["sinusoidal"], known)
    verdict = FAILS if FAILS in (zero, beats) else OPEN if OPEN in (zero, beats) else HOLDS
    reason = f"{nmse['mean']:.3g} [{nmse['low']:.3g}, {nmse['high']:.3g}] of the zero predictor's error; {words}"
    return _verdict(claim, length, verdict, reason)
