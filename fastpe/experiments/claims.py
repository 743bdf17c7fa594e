"""The claims of Li (2025) about its Table 5, and the rules that decide the verdict on each.

Every report of a study with these claims (``claims = "table5"``) contains the verdicts. The rules do not depend on
the results. Errors are compared as ratios on the same seeds. Two encodings differ significantly if the p value of the
sign-flip test is at most 0.05, adjusted by Holm for the six pairs of the paper's four encodings at one length.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from fastpe.experiments.comparison import ALPHA, Comparison, compare_paired
from fastpe.experiments.study import Study
from fastpe.experiments.table5_facts import LENGTHS, PAPER, READINGS, WHOLE
from fastpe.tasks import targets

HOLDS, FAILS, OPEN, IMPOSSIBLE = "holds", "does not hold", "undecided", "impossible"
NEAR = 2.0
"""A geometric mean agrees with the paper's error if neither is more than this many times the other."""

_PAPER_SPREAD = 0.0024 / 0.0021

Verdict = dict[str, Any]
Cells = Mapping[str, Mapping[str, Any]]
Pairs = Mapping[tuple[str, str], Comparison | None]


def judged(study: Study) -> bool:
    """Return whether a study can be judged: its runs must be at least as long as those of the paper."""
    config = study.config_of(READINGS[0], "wavelet")
    return config.samples >= WHOLE["samples"] and config.epochs >= WHOLE["epochs"]


def reference_points(study: Study, reading: str, length: int) -> dict[str, float]:
    """Reference errors at this length, in the unit of the targets.

    ``zero_predictor`` is the error of always answering zero. ``reversal_bound`` is the smallest possible error of a
    model that cannot tell a sequence from its reverse.
    """
    config = study.config_of(reading, "wavelet")
    factors = targets.factors(length, config.target_scale, config.train_length)
    task = config.chosen.task
    assert task.reversal_bound is not None
    return {
        "zero_predictor": targets.zero_error(config.chosen, length, factors),
        "reversal_bound": task.reversal_bound(length, factors),
    }


def cells_at(summary: Mapping[str, Any], reading: str, length: int) -> dict[str, Mapping[str, Any]]:
    """The cells of one reading and length, by encoding."""
    return {c["encoding"]: c for c in summary["cells"] if (c["task"], c["length"]) == (reading, str(length))}


def pairs_of(cells: Cells) -> dict[tuple[str, str], Comparison | None]:
    """Compare the errors of all ordered pairs of the paper's encodings as ratios; a pair with a failed run has None."""
    known = {name: cells[name]["values"] for name in PAPER}
    every = list(itertools.combinations(PAPER, 2))
    usable = [pair for pair in every if all(value for name in pair for value in known[name])]
    logs = {name: [math.log(value) for value in own if value] for name, own in known.items()}
    found: dict[tuple[str, str], Comparison | None] = dict.fromkeys(itertools.permutations(PAPER, 2))
    for turned in (False, True):
        pairs = [pair[::-1] if turned else pair for pair in usable]
        made = compare_paired([(logs[a], logs[b]) for a, b in pairs], larger_is_better=False)
        found.update(zip(pairs, made, strict=True))
    return found


def judge(study: Study, summary: Mapping[str, Any]) -> list[Verdict]:
    """Verdicts on every claim, by reading and length: ``claim``, ``reading``, ``length``, ``verdict``, ``reason``."""
    verdicts: list[Verdict] = []
    for reading, length in itertools.product(READINGS, LENGTHS):
        at, points = cells_at(summary, reading, length), reference_points(study, reading, length)
        pairs = pairs_of(at)
        here = [_levels(at, length, points["zero_predictor"])]
        if reading == "bidirectional":
            here.append(_symmetric(at["alibi"], length, points["reversal_bound"]))
        here.append(_order(pairs, length))
        if length == min(LENGTHS):
            here.append(_comparable(at, length))
        else:
            here.append(_best(pairs, length))
            here += [_extrapolates(at[name], pairs, length, points["zero_predictor"]) for name in ("alibi", "wavelet")]
        verdicts += [{"reading": reading, **verdict} for verdict in here]
    return verdicts


def _verdict(claim: str, length: int, verdict: str, reason: str) -> Verdict:
    return {"length": length, "claim": claim, "verdict": verdict, "reason": reason}


def mean_of(cell: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The geometric mean of a cell with its interval; None if a run failed."""
    found: Mapping[str, Any] | None = cell.get("geometric") if not cell["failed"] else None
    return found


def _levels(at: Cells, length: int, zero: float) -> Verdict:
    """Judge whether the means over seeds lie within a factor of 2 of the paper's errors."""
    claim = f"the errors at {length}"
    words, verdict = [], HOLDS
    for name in PAPER:
        paper, mean = PAPER[name][length], mean_of(at[name])
        if mean is None:
            words.append(f"{name} has no result")
            verdict = FAILS if verdict == FAILS else OPEN
            continue
        inside = mean["low"] is not None and mean["low"] <= paper <= mean["high"]
        if 1 / NEAR <= mean["mean"] / paper <= NEAR:
            words.append(f"{name} {paper:g} is {'in' if inside else 'near'} the interval")
        elif inside:
            words.append(f"{name} {paper:g} is in an interval that is too wide to decide")
            verdict = FAILS if verdict == FAILS else OPEN
        else:
            words.append(f"{name} {paper:g}, here {_times(mean['mean'] / paper)}")
            verdict = FAILS
    return _verdict(claim, length, verdict, f"{'; '.join(words)}. Always answering zero gives {zero:.4g}")


def _times(ratio: float) -> str:
    """The text of a ratio, such as "3.25 times as much", with three digits."""
    words = "times as much" if ratio >= 1 else "times less"
    ratio = max(ratio, 1 / ratio)
    return f"{round(ratio, 2 - len(str(int(ratio))) + 1):,g} {words}" if ratio < 1000 else f"{ratio:,.0f} {words}"


def _symmetric(cell: Mapping[str, Any], length: int, bound: float) -> Verdict:
    """Judge the error of bidirectional ALiBi, whose symmetric bias cannot reach an error below the reversal bound."""
    paper, mean = PAPER["alibi"][length], mean_of(cell)
    claim = f"bidirectional ALiBi reaches {paper:g} at {length}"
    here = f"; here {mean['mean']:.4g}" if mean is not None else ""
    if mean is not None and mean["low"] is not None:
        here += f" [{mean['low']:.4g}, {mean['high']:.4g}], measured on random test sequences"
    if paper < bound:
        reason = (
            "a bidirectional model with a symmetric bias cannot distinguish a sequence from its reverse, so its "
            f"expected error is at least {bound:.4g}{here}. The paper's number is from a causal model, other "
            "targets or another protocol"
        )
        return _verdict(claim, length, IMPOSSIBLE, reason)
    return _verdict(claim, length, OPEN, f"the bound for symmetric biases, {bound:.4g}, does not exclude it{here}")


def told_apart(pair: Comparison | None) -> bool:
    """Whether a pair differs significantly."""
    return pair is not None and pair.adjusted <= ALPHA


def _order(pairs: Pairs, length: int) -> Verdict:
    """Judge the paper's order of its four encodings, pair by pair."""
    ranked = sorted(PAPER, key=lambda name: PAPER[name][length])
    claim = f"the order at {length}: {' < '.join(ranked)}"
    agree, against, unsure = [], [], []
    for better, worse in itertools.combinations(ranked, 2):
        pair = pairs[better, worse]
        if pair is None or not told_apart(pair):
            unsure.append(f"{better} and {worse}")
        elif pair.difference.mean < 0:
            agree.append(f"{better} < {worse}")
        else:
            against.append(f"{worse} < {better}")
    words = [
        *([f"as in the paper: {', '.join(agree)}"] if agree else []),
        *([f"the other way round: {', '.join(against)}"] if against else []),
        *([f"inconclusive: {', '.join(unsure)}"] if unsure else []),
    ]
    return _verdict(claim, length, FAILS if against else OPEN if unsure else HOLDS, "; ".join(words))


def _comparable(at: Cells, length: int) -> Verdict:
    """Judge whether the ratio of the largest to the smallest mean is at most the square of this ratio in the paper."""
    claim = f"all four are nearly equal at {length}"
    means = {name: mean["mean"] for name in PAPER if (mean := mean_of(at[name])) is not None}
    if len(means) < len(PAPER):
        return _verdict(claim, length, OPEN, "an encoding has no result")
    low, high = min(means, key=lambda s: means[s]), max(means, key=lambda s: means[s])
    ratio, limit = means[high] / means[low], _PAPER_SPREAD**2
    reason = (
        f"{high} ({means[high]:.3g}) has {ratio:.3g} times the error of {low} ({means[low]:.3g}); in the paper the "
        f"largest is {_PAPER_SPREAD:.2f} times the smallest, and up to {limit:.2f} counts as equal"
    )
    return _verdict(claim, length, HOLDS if ratio <= limit else FAILS, reason)


def _best(pairs: Pairs, length: int) -> Verdict:
    """Judge whether wavelet has a smaller error than each of the paper's other three encodings."""
    claim = f"wavelet is best at {length}"
    return _verdict(claim, length, *_beats("wavelet", [s for s in PAPER if s != "wavelet"], pairs))


def _beats(name: str, others: Sequence[str], pairs: Pairs) -> tuple[str, str]:
    words, verdict = [], HOLDS
    for other in others:
        pair = pairs[name, other]
        if pair is None:
            words.append(f"not compared with {other}: a run failed")
            verdict = FAILS if verdict == FAILS else OPEN
        elif not told_apart(pair):
            words.append(f"not conclusively different from {other}'s ({ratio_of(pair)})")
            verdict = FAILS if verdict == FAILS else OPEN
        elif pair.difference.mean < 0:
            words.append(f"below {other}'s ({ratio_of(pair)})")
        else:
            words.append(f"above {other}'s ({ratio_of(pair)})")
            verdict = FAILS
    return verdict, f"the error of {name} is {'; '.join(words)}"


def ratio_of(pair: Comparison) -> str:
    """The text of a ratio of errors, with its interval and its adjusted p value."""
    mean = pair.difference
    ends = "" if mean.low is None or mean.high is None else f" [{math.exp(mean.low):.3g}, {math.exp(mean.high):.3g}]"
    return f"x {math.exp(mean.mean):.3g}{ends}, p {pair.adjusted:.2g}"


def _extrapolates(cell: Mapping[str, Any], pairs: Pairs, length: int, zero: float) -> Verdict:
    """Judge whether the whole interval is below the error of answering zero, and the mean below that of sinusoidal."""
    name, mean = cell["encoding"], mean_of(cell)
    claim = f"{name} extrapolates to {length}: better than answering zero, and than sinusoidal"
    if mean is None or mean["low"] is None:
        return _verdict(claim, length, OPEN, "there is no interval")
    share = {end: mean[end] / zero for end in ("mean", "low", "high")}
    against_zero = HOLDS if share["high"] < 1 else FAILS if share["low"] >= 1 else OPEN
    beats, words = _beats(name, ["sinusoidal"], pairs)
    verdict = FAILS if FAILS in (against_zero, beats) else OPEN if OPEN in (against_zero, beats) else HOLDS
    of_zero = f"{share['mean']:.3g} [{share['low']:.3g}, {share['high']:.3g}] of the zero predictor's error"
    return _verdict(claim, length, verdict, f"{of_zero}; {words}")
