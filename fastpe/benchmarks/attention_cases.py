"""The measured problems of attention: inputs, useful FLOPs, exact results, and the calls of fastpe."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from fastpe import attention, attention_vjp, reference
from fastpe.functional.slots import sample

Array = np.ndarray[Any, Any]

FORWARD, BACKWARD, BOTH = "forward", "backward", "forward and backward"
SHAW_REACH = 16
_LONGEST = 4096
"""Beyond this length only `_SAMPLES` rows of the output and their gradients are checked."""
_SAMPLES = 8
_CHUNK = 512  # number of queries whose exact attention weights are in memory at once
_TOLERANCE = {"fastpe": 2e-5, "sdpa": 2e-5, "flex": 2e-5, "flashbias": 1e-3}
"""Bound of errors of float32 results, relative to the largest entry; observed: 2e-6 except FlashBias."""


@dataclass(frozen=True)
class Problem:
    """A problem: sizes and one position term. q, k and v are normal, in float32.

    `term` is one of:

    - ``none``, ``rope``;
    - ``alibi``: a bias with the standard slopes 2^-1 ... 2^-8, or with `slopes`;
    - ``learned`` (for comparisons with peers) and ``toeplitz`` (for the cost of a term): a bias whose gradient is
      computed;
    - ``shaw``: relative keys;
    - ``shaw values``: relative keys and values.
    """

    length: int
    causal: bool = True
    term: str = "none"
    batch: int = 1
    heads: int = 8
    width: int = 64
    slopes: tuple[float, ...] = ()

    def flop(self, part: str) -> int:
        """Useful FLOPs: those of products for unmasked scores, 4 D for each score forward and 10 D backward."""
        n = self.length
        cells = self.batch * self.heads * (n * (n + 1) // 2 if self.causal else n * n)
        return cells * self.width * {FORWARD: 4, BACKWARD: 10, BOTH: 14}[part]

    def inputs(self) -> tuple[Array, Array, Array, Array]:
        """q, k, v and the gradient of the output, each (B, H, N, D) in float32."""
        rng = np.random.default_rng(0)
        q, k, v, dout = rng.standard_normal((4, self.batch, self.heads, self.length, self.width), np.float32)
        return q, k, v, dout

    def slope_per_head(self) -> Array:
        """ALiBi's slopes (H,), float64."""
        return np.array(self.slopes or 2.0 ** (-8.0 * np.arange(1, self.heads + 1) / self.heads))

    def slots(self) -> dict[str, Array]:
        """The slots for `fastpe.attention`, by name."""
        n, d = self.length, self.width
        match self.term:
            case "alibi":
                offsets = np.arange(1 - n, n)
                return {"bias": (-self.slope_per_head()[:, None] * np.abs(offsets)).astype(np.float32)}
            case "learned" | "toeplitz":
                return self._sampled(("bias",), 2 * n - 1)
            case "rope":
                turns = np.arange(n)[:, None] * 10000.0 ** (-2 * np.arange(d // 2) / d)
                return {"angles": np.remainder(turns + np.pi, 2 * np.pi)[None] - np.pi}
            case "shaw":
                return self._sampled(("rel_key",), 2 * SHAW_REACH + 1, 0.1)
            case "shaw values":
                return self._sampled(("rel_key", "rel_value"), 2 * SHAW_REACH + 1, 0.1)
        return {}

    def _sampled(self, names: tuple[str, ...], offsets: int, size: float = 1.0) -> dict[str, Array]:
        """Random slots for this number of offsets. If a slot can be shared, all heads have the same array."""
        rng, d = np.random.default_rng(1), self.width
        sizes = {"H": self.heads, "H1": 1, "T": offsets, "D": d, "Dv": d}
        return {name: np.float32(size) * sample(name, sizes, rng, dtype=np.float32) for name in names}

    def wanted(self) -> tuple[str, ...]:
        """The arguments whose gradients are computed."""
        fixed = ("angles", "bias") if self.term == "alibi" else ("angles",)
        return ("q", "k", "v", *(name for name in self.slots() if name not in fixed))


class Calls(NamedTuple):
    """The calls of a library for a problem. Gradients are a dict of arrays by the name of the argument.

    `forward()` returns the output. `both(dout)` returns the output and the gradients. `prepared()` runs the forward
    pass, and returns a function that runs only the backward pass. `both` and `prepared` are None for a library without
    a backward pass.
    """

    forward: Callable[[], Any]
    both: Callable[[Any], tuple[Any, Mapping[str, Any]]] | None = None
    prepared: Callable[[], Callable[[Any], Any]] | None = None

    def part(self, part: str, dout: Any) -> Callable[[], Any]:
        """The call to be timed for a part."""
        if part == FORWARD or self.both is None or self.prepared is None:
            return self.forward
        if part == BOTH:
            both = self.both
            return lambda: both(dout)
        pull = self.prepared()
        return lambda: pull(dout)


def own_calls(problem: Problem, tolerance: float | None = None) -> Calls:
    """The calls of fastpe."""
    q, k, v, _ = problem.inputs()
    settings: dict[str, Any] = {"causal": problem.causal, "tolerance": tolerance, **problem.slots()}
    wrt = problem.wanted()

    def both(dout: Array) -> tuple[Array, dict[str, Array]]:
        out, pullback = attention_vjp(q, k, v, wrt=wrt, **settings)
        return out, pullback(dout)

    return Calls(lambda: attention(q, k, v, **settings), both, lambda: attention_vjp(q, k, v, wrt=wrt, **settings)[1])


# ---------------------------------------------------------------------------------------------------------------------
# Exact results


@dataclass(frozen=True)
class Exact:
    """Exact float64 results: the output for some heads and rows, and gradients for a `dout` that is 0 in other rows."""

    heads: list[int]
    rows: list[int]
    dout: Array
    results: Mapping[str, Array]

    def errors(self, found: Mapping[str, Any]) -> dict[str, float]:
        """The largest error of every result, relative to the largest entry."""
        errors = {}
        for name, right in self.results.items():
            if name in found:
                array = np.asarray(found[name])
                if name == "bias":
                    array = array[self.heads]
                elif name in ("out", "q", "k", "v"):
                    array = array[:, self.heads]
                array = array[:, :, self.rows] if name == "out" else array
                errors[name] = float(np.abs(array - right).max() / np.abs(right).max())
        return errors


def exact(problem: Problem) -> Exact:
    """The results of `fastpe.reference` for the first and last head of a problem, one block of queries at a time."""
    heads, n = sorted({0, problem.heads - 1}), problem.length
    chunks = [(start, min(start + _CHUNK, n)) for start in range(0, n, _CHUNK)]
    if n > _LONGEST:
        chunks = [(row, row + 1) for row in np.linspace(0, n - 1, _SAMPLES).astype(int).tolist()]
    elif not problem.causal and problem.term != "none":
        chunks = [(0, n)]  # in one piece: the reference cannot compute a block of queries that has keys on both sides
    rows = [row for start, stop in chunks for row in range(start, stop)]
    q, k, v, dout = problem.inputs()
    known = np.zeros_like(dout)
    known[:, np.array(heads)[:, None], rows] = dout[:, np.array(heads)[:, None], rows]
    slots = {name: array[heads] if name == "bias" else array for name, array in problem.slots().items()}
    wrt = problem.wanted()
    q, k, v, dout = (x[:, heads].astype(np.float64) for x in (q, k, v, dout))
    found = {name: np.zeros(array.shape) for name, array in {"q": q, "k": k, "v": v, **slots}.items() if name in wrt}
    outs = []
    for start, stop in chunks:
        seen = stop if problem.causal else n
        here: dict[str, Any] = {name: array[:, :seen] if name == "angles" else array for name, array in slots.items()}
        out, pullback = reference.attention_vjp(
            q[:, :, start:stop], k[:, :, :seen], v[:, :, :seen], causal=problem.causal, wrt=wrt, **here
        )
        outs.append(out)
        for name, gradient in pullback(dout[:, :, start:stop]).items():
            span = slice(start, stop) if name == "q" else slice(seen)
            target = found[name][:, :, span] if name in ("q", "k", "v") else found[name]
            target += gradient
    return Exact(heads, rows, known, {"out": np.concatenate(outs, axis=2), **found})


def too_large(errors: Mapping[str, float], library: str) -> str | None:
    """A message that names the first result whose error is too large, or None."""
    bound = _TOLERANCE[library]
    for name, error in errors.items():
        if not error <= bound:
            return f"{name} is off by {error:.2g} of the largest entry, bound {bound:.2g}"
    return None
