"""Attention of one query to a key/value cache, with each argument that the path for few queries supports.

fastpe is compared with PyTorch's `scaled_dot_product_attention` (SDPA).

PyTorch is optional (`pip install -e '.[peers]'` from a clone of fastpe); the functions that use it import it.
"""

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import Any

import numpy as np

from fastpe import reference
from fastpe.benchmarks import peers
from fastpe.benchmarks.attention_cases import Problem
from fastpe.benchmarks.figures import judged
from fastpe.benchmarks.turns import Candidate, Effort, Tell, Worker, prepare, take_turns
from fastpe.functional.slots import sample

LENGTHS = (64, 512, 2048, 8192)
GROUPED = "grouped keys"
TOLERANCE = 1e-5
"""Largest allowed error of float32 results, relative to the largest entry; observed: 4e-6."""
_GROUP = 4  # query heads that share one head of keys and values
_WAYS = ("fastpe", "sdpa")

Array = np.ndarray[Any, Any]


def _slot(name: str) -> Callable[[int, int], dict[str, Any]]:
    def given(keys: int, heads: int) -> dict[str, Any]:
        sizes = {"H": heads, "H1": heads, "M": keys, "T": 2 * keys - 1}
        return {name: sample(name, sizes, _rng(), dtype=np.float32)}

    return given


def _rng() -> np.random.Generator:
    return np.random.default_rng(3)


CASES: Mapping[str, Callable[[int, int], dict[str, Any]]] = {
    "none": lambda keys, heads: {},
    GROUPED: lambda keys, heads: {},
    "causal": lambda keys, heads: {"causal": True},
    "window": lambda keys, heads: {"window": keys // 4},
    "spans": lambda keys, heads: {"spans": np.array([[[keys // 2, keys]]])},
    "lengths": lambda keys, heads: {"lengths": np.array([keys - keys // 4])},
    "query_start": lambda keys, heads: {"query_start": np.array([keys - keys // 4]), "causal": True},
    "mask of bool": lambda keys, heads: {"mask": _rng().random((1, 1, 1, keys)) < 0.8},
    "mask of floats": lambda keys, heads: {"mask": _rng().standard_normal((1, heads, 1, keys), np.float32)},
    "softcap": lambda keys, heads: {"softcap": 5.0},
    "scale": lambda keys, heads: {"scale": 0.1},
    "scale of each head": lambda keys, heads: {"scale": np.linspace(0.05, 0.2, heads)},
    "sinks": _slot("sinks"),
    "bias": _slot("bias"),
    "key_offset": _slot("key_offset"),
}
"""By name: a function of the numbers of keys and query heads that returns the arguments besides q, k and v."""

_OF_SDPA: Mapping[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]] = {
    **dict.fromkeys(("none", "causal"), lambda given: {}),
    **dict.fromkeys(("mask of bool", "mask of floats"), lambda given: {"attn_mask": given["mask"]}),
    GROUPED: lambda given: {"enable_gqa": True},
    "scale": lambda given: given,
}  # fmt: skip
"""SDPA's arguments for the cases that it can compute. In all other cases it gets a dense mask of floats."""


def goal(length: int) -> float:
    """The goal for SDPA's time divided by fastpe's.

    >>> goal(64), goal(512)
    (0.5, 1.0)
    """
    return 0.5 if length < 512 else 1.0


def measure(effort: Effort, tell: Tell, threads: int, shorter: int = 1) -> dict[str, Any]:
    """Time attention of one query in all cases. fastpe's results are first compared with the reference.

    Parameters
    ----------
    effort, tell, threads, shorter
        The same as for `fastpe.benchmarks.frameworks.measure`.

    Returns
    -------
    dict
        - ``rows``: for each case and length, fastpe's time ``us`` in microseconds, and ``sdpa``, SDPA's time divided by
          fastpe's, judged by `goal`.
        - ``absent``: the reason why there are no rows, or None.

    Raises
    ------
    WrongResult
        If a result differs from the reference.
    WorkerDied
        If a process ends.
    """
    rows: list[dict[str, Any]] = []
    if find_spec("torch") is None:
        return {"rows": rows, "absent": peers.INSTALL}
    lengths = sorted({max(length // shorter, 64) for length in LENGTHS})
    with Worker("fastpe in PyTorch", threads) as ours, Worker("torch", threads) as theirs:
        for case in CASES:
            tell(f"frameworks: one query and a cache, {case}")
            for length in lengths:
                found = {
                    way: Candidate(f"{way}, {case}", ours if way == "fastpe" else theirs, "decoding", {
                        "way": way, "case": case, "length": length, "threads": threads,
                    })
                    for way in _WAYS
                }  # fmt: skip
                prepare(found.values())
                if reason := next((each.absent for each in found.values() if each.absent is not None), None):
                    return {"rows": [], "absent": reason}
                take_turns(found.values(), effort)
                us, times = found["fastpe"].best * 1e6, found["sdpa"].best / found["fastpe"].best
                rows.append({"case": case, "length": length, "us": us, "sdpa": judged(times, goal(length))})
    return {"rows": rows, "absent": None}


def arguments(case: str, keys: int, heads: int = 8, width: int = 64) -> dict[str, Any]:
    """The query, keys and values of a case, and its other arguments, as NumPy arrays and numbers."""
    q, k, v, _ = Problem(keys, heads=heads, width=width).inputs()
    if case == GROUPED:
        k, v = k[:, ::_GROUP].copy(), v[:, ::_GROUP].copy()
    return {"q": q[:, :, -1:].copy(), "k": k, "v": v, **CASES[case](keys, heads)}


def call(way: str, case: str, given: Mapping[str, Any]) -> Callable[[], Any]:
    """The call of a case to be timed, with arguments from `arguments`. `way` is ``fastpe`` or ``sdpa``."""
    import torch

    rows = {name: torch.from_numpy(x) if isinstance(x, np.ndarray) else x for name, x in given.items()}
    q, k, v = (rows.pop(name) for name in "qkv")
    if way == "fastpe":
        from fastpe.torch import attention

        return lambda: attention(q, k, v, **rows)
    dense = torch.from_numpy(_rng().standard_normal((1, q.shape[1], 1, k.shape[2]), np.float32))
    options = _OF_SDPA[case](rows) if case in _OF_SDPA else {"attn_mask": dense}
    return lambda: torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)


def error(result: Any, given: Mapping[str, Any]) -> float:
    """The largest error of a result, relative to the largest entry of the reference."""
    wide = {name: given[name].astype(np.float64) for name in "qkv"}
    exact = reference.attention(**{**given, **wide})
    return float(np.abs(np.asarray(result) - exact).max() / np.abs(exact).max())
