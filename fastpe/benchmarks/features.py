"""The cost of each argument of attention by itself, compared with plain causal attention."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from fastpe import attention, attention_vjp, reference, spans
from fastpe.benchmarks.attention_cases import BOTH, FORWARD, Calls, Problem
from fastpe.benchmarks.turns import Candidate, Effort, Tell, Worker, prepare, take_turns
from fastpe.functional.slots import sample

Array = np.ndarray[Any, Any]

LENGTH = 1024
PLAIN = "none"


def _drawn() -> np.random.Generator:
    return np.random.default_rng(2)


def _mask(n: int) -> Array:
    """A boolean mask that hides a tenth of all keys, but no whole tile."""
    return (_drawn().random((1, 1, n, n)) < 0.9) | np.eye(n, dtype=bool)


FEATURES: Mapping[str, Callable[[int, int], Mapping[str, Any]]] = {
    PLAIN: lambda n, heads: {},
    "mask of bool": lambda n, heads: {"mask": _mask(n)},
    "mask of floats": lambda n, heads: {"mask": _drawn().standard_normal((1, 1, n, n), np.float32)},
    "spans": lambda n, heads: {"spans": spans.causal(n)},
    "softcap": lambda n, heads: {"softcap": 5.0},
    "sinks": lambda n, heads: {"sinks": sample("sinks", {"H": heads}, _drawn(), dtype=np.float32)},
    "dropout": lambda n, heads: {"dropout": 0.1, "dropout_seed": 3},
    "lse": lambda n, heads: {"return_lse": True},
    "window of a quarter": lambda n, heads: {"window": max(1, n // 4)},
    "values of half the width": lambda n, heads: {},
}
"""By name: a function of the numbers of positions and heads that returns arguments of attention.

The spans hide the same keys as the causal mask."""


def inputs(name: str, problem: Problem) -> tuple[Array, Array, Array, Array]:
    """q, k, v and the gradient of the output."""
    q, k, v, dout = problem.inputs()
    width = problem.width // 2 if name == "values of half the width" else problem.width
    return q, k, np.ascontiguousarray(v[..., :width]), np.ascontiguousarray(dout[..., :width])


def calls(name: str, problem: Problem, exact: bool = False) -> Calls:
    """The calls of fastpe, or if `exact` those of `fastpe.reference`, in float64."""
    q, k, v, _ = inputs(name, problem)
    settings: dict[str, Any] = {"causal": problem.causal, **FEATURES[name](problem.length, problem.heads)}
    vjp: Callable[..., Any] = reference.attention_vjp if exact else attention_vjp
    learned = ("sinks",) if name == "sinks" else ()
    wrt = ("q", "k", "v", *learned)
    lse = name == "lse"

    def forward() -> Array:
        found: Any = (reference.attention if exact else attention)(q, k, v, **settings)
        return found[0] if lse else found

    def both(dout: Array) -> tuple[Array, Mapping[str, Array]]:
        found, pullback = vjp(q, k, v, wrt=wrt, **settings)
        out, own = (found[0], (dout, np.ones_like(found[1]))) if lse else (found, dout)
        return out, pullback(own)

    return Calls(forward, both, lambda: vjp(q, k, v, wrt=wrt, **settings)[1])


def errors(name: str, problem: Problem) -> dict[str, float]:
    """The largest error of each result, relative to its largest entry."""
    own, exact = calls(name, problem), calls(name, problem, exact=True)
    dout = inputs(name, problem)[3]
    assert own.both is not None
    assert exact.both is not None
    (out, gradients), (right, right_gradients) = own.both(dout), exact.both(dout)
    found, known = {"out": out, **gradients}, {"out": right, **right_gradients}
    return {key: float(np.abs(found[key] - known[key]).max() / np.abs(known[key]).max()) for key in known}


def measure(effort: Effort, tell: Tell, threads: int, shorter: int = 1) -> list[dict[str, Any]]:
    """Time every feature forward, and forward and backward. Results are first checked against the reference.

    Parameters
    ----------
    effort, tell, threads, shorter
        The same as for `fastpe.benchmarks.frameworks.measure`.

    Returns
    -------
    list of dict
        For each feature and part: ``ms``, and ``times``, the time relative to plain causal attention.

    Raises
    ------
    WrongResult
        If a result differs from the reference.
    """
    length = max(LENGTH // shorter, 64)
    with Worker("fastpe", threads) as ours:
        tell(f"features: causal, N {length}")
        found = {
            (name, part): Candidate(name, ours, "feature", {
                "name": name, "length": length, "part": part, "threads": threads,
            })
            for name in FEATURES for part in (FORWARD, BOTH)
        }  # fmt: skip
        prepare(found.values())
        take_turns(found.values(), replace(effort, turns=2 * effort.turns))  # differences of a few percent matter
    return [
        {"feature": name, "length": length, "part": part, "ms": each.best * 1e3,
         "times": None if name == PLAIN else each.best / found[PLAIN, part].best}
        for (name, part), each in found.items()
    ]  # fmt: skip
