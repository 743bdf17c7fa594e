"""Signs that other programs disturbed the machine during a measurement.

Either of two signs is enough:

- A *yardstick* is a call whose time depends on the machine only (sgemm in cache, writing memory, the step without an
  encoding). It is timed in every turn, and the fastest call of each turn counts. On an undisturbed machine, these times
  differ by a few percent. The sign is that their median is more than `BETWEEN_TURNS` times their minimum. The median is
  used because a few bad turns do not change the figures, which are the fastest calls of all turns.
- On several threads, the step reached less than `OF_ONE_THREAD` times the share of the peak that it reached on one
  thread. The peak is measured on the same number of threads, so slower clocks or shared cores give no sign. Another
  process on one of the cores gives a sign, because the step waits for its slowest thread.

One or two turns are too few to give a sign.
"""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

BETWEEN_TURNS, OF_ONE_THREAD = 1.25, 0.75
_LEAST_TURNS = 3


def between_turns(yardstick: str, fastest: Sequence[float]) -> list[str]:
    """The sign of a yardstick, a list with at most one line. `fastest`: seconds of its fastest call in each turn.

    Examples
    --------
    >>> between_turns("sgemm", [1.0, 1.02, 1.0, 3.0, 1.01]), between_turns("sgemm", [1.0, 3.0])
    ([], [])
    >>> between_turns("sgemm", [1.0, 1.5, 1.4])
    ['sgemm took 1.40 times as long in the middle turn as in the fastest']
    """
    if len(fastest) < _LEAST_TURNS:
        return []
    ratio = median(fastest) / min(fastest)
    far = ratio > BETWEEN_TURNS
    return [f"{yardstick} took {ratio:.2f} times as long in the middle turn as in the fastest"] if far else []


def on_more_threads(shares: Mapping[tuple[str, int], float]) -> list[str]:
    """One line for each share of the peak that is far below the share on one thread. `shares` is by (model, threads).

    Examples
    --------
    >>> on_more_threads({("paper", 1): 0.8, ("paper", 2): 0.5, ("causal", 1): 0.8, ("causal", 2): 0.7})
    ['paper reached 50% of the peak, threads: 2, but 80% on one']
    """
    return [
        f"{model} reached {share:.0%} of the peak, threads: {threads}, but {shares[model, 1]:.0%} on one"
        for (model, threads), share in shares.items()
        if (model, 1) in shares and share < OF_ONE_THREAD * shares[model, 1]
    ]


def signs_in(value: Any) -> list[str]:
    """All signs in a table: the lines under ``"disturbed"``, at any depth.

    Examples
    --------
    >>> signs_in({"peak": {"disturbed": ["a"], "rows": [{"ms": 1.0}]}, "disturbed": ["b"]})
    ['a', 'b']
    """
    if isinstance(value, list):
        return [sign for item in value for sign in signs_in(item)]
    if not isinstance(value, dict):
        return []
    return [sign for name, item in value.items() for sign in (item if name == "disturbed" else signs_in(item))]
