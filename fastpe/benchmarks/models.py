"""The models whose training step is measured, their useful FLOPs, and their matrix products."""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from fastpe.base.random import Stream
from fastpe.kernels.products.float_gemm import FROM, OVERWRITE, PLUS, RELU, WHERE_POSITIVE
from fastpe.model.config import ModelConfig
from fastpe.tasks import frame
from fastpe.tasks.registry import choose

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A model, the size of its batch, and the goals of its step.

    `of_peak` is the goal for the share of the machine's sgemm peak, counting the FLOPs of the model as defined
    (`fastpe.model.cost`). A step whose first and last products are fused does about a quarter fewer FLOPs, so the share
    may exceed 1. `times` has, by peer, the goal for the time of the peer's step relative to fastpe's on one thread;
    `times_threaded` is the goal on more threads, for all peers.
    """

    config: ModelConfig
    batch: int
    of_peak: float = 0.0
    times: dict[str, float] = field(default_factory=dict)
    times_threaded: float = 0.0

    def goal(self, peer: str, threads: int) -> float:
        """The goal for the time of a peer's step relative to fastpe's."""
        return self.times[peer] if threads == 1 else self.times_threaded


_SMALL = (32, 0.85, {"eager": 2.2, "compile": 2.2, "jax": 2.0}, 3.0)
_LANGUAGE = ModelConfig(
    "sinusoidal", width=128, layers=4, heads=4, hidden=512, activation="gelu", norm="layernorm", causal=True,
    vocabulary=256, train_length=128,
)  # fmt: skip

CASES = {
    "paper": Case(ModelConfig("wavelet"), *_SMALL),
    "alibi": Case(ModelConfig("alibi"), *_SMALL),
    "causal": Case(ModelConfig("alibi", causal=True), *_SMALL),
    "learned": Case(ModelConfig("learned"), *_SMALL),
    "lm": Case(_LANGUAGE, 8, 0.75, {"eager": 2.0, "compile": 2.0, "jax": 2.0}, 2.0),
}
"""Cases by name: the paper's model with its table, ALiBi, causal ALiBi and a learned table; a small language model."""


def batch_of(case: Case) -> tuple[Array, Array]:
    """Inputs and targets (B, N): numbers in the model's dtype, or tokens."""
    config = case.config
    if config.vocabulary is None:
        x, y, _ = frame.draw(choose("running_sum"), Stream(0, "train"), case.batch, config.train_length, config.dtype)
        return x.astype(config.dtype), y.astype(config.dtype)
    text = np.random.default_rng(0).integers(0, config.vocabulary, (case.batch, config.train_length + 1))
    return np.ascontiguousarray(text[:, :-1]), np.ascontiguousarray(text[:, 1:])


class Product(NamedTuple):
    """A product of the step, `C = A @ B` with A (m, depth) and B (depth, n), and what the step fuses with it.

    `fused` is a mode of `fastpe.kernels.products.gemm`. With PLUS, the first addend is a matrix. With FROM but not
    PLUS, the addend is a row (a bias), or C itself if `onto`. If `b_transposed`, B is stored as its transpose, and is
    transposed for every sequence.
    """

    name: str
    m: int
    depth: int
    n: int
    a_transposed: bool = False
    b_transposed: bool = False
    fused: int = int(OVERWRITE)
    onto: bool = False

    @property
    def flop(self) -> int:
        """The number of FLOPs, `2 * m * n * depth`."""
        return 2 * self.m * self.n * self.depth

    @property
    def label(self) -> str:
        """The fused operations, in words."""
        return _FUSED[self.fused, self.onto]


_BIAS, _BOTH, _RELU = int(FROM), int(FROM | PLUS), int(FROM | RELU)
_FUSED = {
    (0, False): "", (_BIAS, False): "bias", (_BIAS, True): "added onto", (_BOTH, False): "residual + bias",
    (_RELU, False): "bias + relu", (int(WHERE_POSITIVE), False): "relu's mask",
}  # fmt: skip


def products(config: ModelConfig) -> list[Product]:
    """All products of a step on one sequence. Products of equal shape and form appear once, with all their names."""
    n, c, f, head = config.train_length, config.width, config.hidden, config.head_width
    relu = config.activation == "relu"
    plain = config.norm == "none"  # without norms, products are added directly to the gradient of the residual stream
    found = [
        Product("qkv", n, c, 3 * c, fused=_BIAS),
        Product("scores", n, head, n, b_transposed=True),
        Product("weighted sum", n, n, head),
        Product("out", n, c, c, fused=_BOTH),
        Product("ff in", n, c, f, fused=_RELU if relu else _BIAS),
        Product("ff out", n, f, c, fused=_BOTH),
        Product("d ff out.weight", f, n, c, a_transposed=True, fused=_BIAS, onto=True),
        Product("d hidden", n, c, f, fused=int(WHERE_POSITIVE) if relu else 0),
        Product("d ff in.weight", c, n, f, a_transposed=True, fused=_BIAS, onto=True),
        Product("d ff input", n, f, c, fused=_BIAS if plain else 0, onto=plain),
        Product("d out.weight", c, n, c, a_transposed=True, fused=_BIAS, onto=True),
        Product("d mixed", n, c, c),
        Product("d weights", n, head, n, b_transposed=True),
        Product("d values, d keys", n, n, head, a_transposed=True),
        Product("d queries", n, n, head),
        Product("d qkv.weight", c, n, 3 * c, a_transposed=True, fused=_BIAS, onto=True),
        Product("d qkv input", n, 3 * c, c, fused=_BIAS if plain else 0, onto=plain),
    ]
    if config.vocabulary:
        v = config.vocabulary
        found.append(Product("logits", n, c, v, fused=_BIAS))
        found.append(Product("d head.weight", c, n, v, a_transposed=True, fused=_BIAS, onto=True))
        found.append(Product("d head input", n, v, c))
    merged: dict[tuple[Any, ...], list[str]] = {}
    for product in found:
        merged.setdefault(product[1:], []).append(product.name)
    return [Product(", ".join(names), *form) for form, names in merged.items()]
