"""Training steps and attention with bfloat16 products, compared with float32 and with PyTorch.

    python bench/bfloat16.py [THREADS [ROUNDS]]

The script times language models of three sizes in fastpe (float32 and bfloat16) and PyTorch (eager in float32, eager
and compiled under autocast). It also compares causal attention with 8 heads of 64 channels at N = 2,048 with
`scaled_dot_product_attention`. Measurements alternate, and the fastest of ROUNDS turns counts (10 by default). Before
timing, the losses of three steps and the outputs of attention are compared with those of float32.
"""

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numba
import numpy as np
import torch
from torch.nn import functional

import fastpe
import fastpe.torch
from fastpe.benchmarks.peers import torch_forward, torch_loss, torch_weights

Call = Callable[[], Any]

MODELS = {"6 x 384": (6, 384, 6, 256, 4), "4 x 256": (4, 256, 4, 256, 8), "4 x 128": (4, 128, 4, 64, 12)}
"""By name: number of layers, width, number of heads, length, number of sequences."""
_LOSS = {"fastpe bfloat16": 1e-3, "PyTorch float32": 1e-4, "PyTorch autocast": 5e-3,
         "PyTorch compiled autocast": 5e-3}  # fmt: skip
"""Largest allowed difference of losses from float32; observed: 4e-5, 1e-6, 2e-4."""


def model_of(name: str) -> tuple[fastpe.ModelConfig, int]:
    """A language model of 256 tokens, and its batch."""
    layers, width, heads, length, batch = MODELS[name]
    config = fastpe.ModelConfig(
        "sinusoidal", layers=layers, width=width, heads=heads, hidden=4 * width, activation="gelu", norm="layernorm",
        causal=True, vocabulary=256, train_length=length,
    )  # fmt: skip
    return config, batch


def peer(config: fastpe.ModelConfig, x: Any, y: Any, autocast: bool, compiled: bool = False) -> Call:
    """A step of PyTorch, eager or compiled, with its attention and fused Adam; bfloat16 products if `autocast`."""
    model = fastpe.Transformer(config)
    weights = torch_weights(model)
    slots = {name: torch.tensor(value) for name, value in model.slots(x.shape[1]).items()}
    optimiser = torch.optim.Adam(weights.values(), lr=1e-3, fused=True)
    inputs, targets = torch.tensor(x), torch.tensor(y)

    def loss_of(weights: dict[str, Any], inputs: Any, targets: Any) -> Any:
        return torch_loss(config, torch_forward(config, weights, slots, inputs, own=True), targets)

    if compiled:
        loss_of = torch.compile(loss_of, dynamic=False)

    def step() -> float:
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = loss_of(weights, inputs, targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return float(loss.item())

    return step


def steps(name: str, threads: int) -> dict[str, Call]:
    """The steps of a model by library, after a comparison of their losses."""
    config, batch = model_of(name)
    text = np.random.default_rng(0).integers(0, config.vocabulary or 2, (batch, config.train_length + 1))
    x, y = np.ascontiguousarray(text[:, :-1]), np.ascontiguousarray(text[:, 1:])

    def ours(precision: str) -> Call:
        adam = fastpe.Adam(fastpe.Transformer(replace(config, precision=precision)))
        return lambda: adam.step(x, y, threads=threads)

    calls = {
        "fastpe float32": ours("float32"), "fastpe bfloat16": ours("bfloat16"),
        "PyTorch float32": peer(config, x, y, False), "PyTorch autocast": peer(config, x, y, True),
        "PyTorch compiled autocast": peer(config, x, y, True, True),
    }  # fmt: skip
    losses = {each: [call() for _ in range(3)] for each, call in calls.items()}
    for each, allowed in _LOSS.items():
        np.testing.assert_allclose(losses[each], losses["fastpe float32"], rtol=allowed, err_msg=f"{each}, {name}")
    return calls


def attentions(backward: bool) -> dict[str, Call]:
    """Causal attention by library, forward or with gradients of q, k and v, after a comparison of the results."""
    torch.manual_seed(0)
    given = [torch.randn(1, 8, 2048, 64).bfloat16().requires_grad_(backward) for _ in range(3)]
    wide = [x.detach().float().requires_grad_(backward) for x in given]
    dout = torch.randn(1, 8, 2048, 64).bfloat16()

    def call(function: Any, tensors: Any) -> Call:
        def both() -> Any:
            out = function(*tensors)
            return torch.autograd.grad(out, tensors, dout.to(out.dtype)) if backward else (out,)

        return both

    def ours(q: Any, k: Any, v: Any) -> Any:
        return fastpe.torch.attention(q, k, v, causal=True)

    def theirs(q: Any, k: Any, v: Any) -> Any:
        return functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    calls = {
        "fastpe float32": call(ours, wide), "fastpe bfloat16": call(ours, given),
        "PyTorch float32": call(theirs, wide), "PyTorch bfloat16": call(theirs, given),
    }  # fmt: skip
    right = calls["fastpe float32"]()
    for each, own in calls.items():
        for x, exact in zip(own(), right, strict=True):
            assert float((x.float() - exact).norm() / exact.norm()) < 0.01, each
    return calls


def best(calls: Mapping[str, Call], rounds: int) -> dict[str, float]:
    """The seconds of the fastest turn of each call. The calls take turns."""
    found = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            found[name] = min(found[name], time.perf_counter() - start)
    return found


def main(threads: int = 1, rounds: int = 10) -> None:
    """Print a row for every problem: milliseconds, and times relative to fastpe in bfloat16."""
    numba.set_num_threads(threads)  # first, because PyTorch uses the same OpenMP threads
    torch.set_num_threads(threads)
    problems: dict[str, Callable[[], dict[str, Call]]] = {
        name: lambda name=name: steps(name, threads)  # type: ignore[misc] # mypy cannot infer the type of this default
        for name in MODELS
    }
    problems |= {"attention": lambda: attentions(False), "attention, both ways": lambda: attentions(True)}
    for name, make in problems.items():
        found = best(make(), rounds)
        ours = found["fastpe bfloat16"]
        print(f"{name:22}", *(f"{each} {1e3 * s:.1f} ms ({s / ours:.2f}x)" for each, s in found.items()), sep="  ")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
