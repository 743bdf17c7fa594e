"""The error of a model's float32 logits by part of the graph, compared with PyTorch: results/accuracy.md.

    python bench/accuracy.py [LAYERS WIDTH HIDDEN]

Needs PyTorch (the extra `peers`). The model has the graph of Llama (RMSNorm, rotary attention, SwiGLU, no biases) and
random weights, except for one property of trained language models: in a middle layer the feed-forward layer writes a
value of about 24,000 into one channel of the first token, and a later layer removes it (Sun et al. 2024, "Massive
Activations in Large Language Models", arXiv:2402.17762).

The script first checks that the float64 graph, `fastpe.Transformer` in float64 and PyTorch in float64 agree. Each row
of the table shows the root mean square error of the logits divided by their root mean square, if only that part is
computed in float32 and everything else in float64. In the last row, everything is computed in float32.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.nn import functional

import fastpe
from fastpe.kernels import arrays
from fastpe.kernels.products.float_gemm import FROM, ONTO

Array = np.ndarray[Any, Any]
Weights = Mapping[str, Array]

_LARGE, _CHANNEL, _SMALL_GAIN, _PEAK, _EPS = 24000.0, 7, 0.02, 100.0, 1e-5
_TOKENS, _LENGTH, _BATCH = 512, 48, 2


# ---------------------------------------------------------------------------------------------------------------------
# The parts of the graph, in three implementations that take and return float64 rows


@dataclass(frozen=True)
class Parts:
    """One function for each part. All of them take and return float64 arrays.

    The functions are norm(x, gain), product(x, w), onto(z, x, w) = z + x w, mixed(q, k, v, angles) with q, k and v
    (H, N, D), and hidden(gate, linear).
    """

    norm: Callable[..., Array]
    product: Callable[..., Array]
    onto: Callable[..., Array]
    mixed: Callable[..., Array]
    hidden: Callable[..., Array]


def _turned(x: Array, angles: Array) -> Array:
    (a, b), cos, sin = np.split(x, 2, axis=-1), np.cos(angles), np.sin(angles)
    return np.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def _mixed(q: Array, k: Array, v: Array, angles: Array) -> Array:
    scores = _turned(q, angles) @ _turned(k, angles).swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    weights = np.exp(np.where(np.tri(q.shape[-2], dtype=bool), scores, -np.inf) - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


EXACT = Parts(
    norm=lambda x, gain: gain * x / np.sqrt(np.square(x).mean(-1, keepdims=True) + _EPS),
    product=lambda x, w: x @ w,
    onto=lambda z, x, w: z + x @ w,
    mixed=_mixed,
    hidden=lambda gate, linear: gate / (1 + np.exp(-gate)) * linear,
)


def _in_float32(function: Callable[..., Array]) -> Callable[..., Array]:
    def called(*given: Array) -> Array:
        return function(*(np.ascontiguousarray(x, np.float32) for x in given)).astype(np.float64)

    return called


def _in_torch(function: Callable[..., torch.Tensor]) -> Callable[..., Array]:
    return _in_float32(lambda *given: function(*map(torch.from_numpy, given)).numpy())


def _attention(q: Array, k: Array, v: Array, angles: Array) -> Array:
    return np.asarray(fastpe.attention(q, k, v, causal=True, angles=angles[None].astype(np.float64), pairs="half"))


def _torch_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    cos, sin = (of(angles.double()).float() for of in (torch.cos, torch.sin))

    def turned(x: torch.Tensor) -> torch.Tensor:
        a, b = x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)

    return functional.scaled_dot_product_attention(turned(q), turned(k), v, is_causal=True)


FASTPE = Parts(
    norm=_in_float32(lambda x, gain: arrays.rms_norm_forward(x, gain)[0]),
    product=_in_float32(arrays.gemm),
    onto=_in_float32(lambda z, x, w: arrays.gemm(x, w, int(ONTO), z)),
    mixed=_in_float32(_attention),
    hidden=_in_float32(lambda gate, linear: arrays.swiglu_forward(np.concatenate([gate, linear], axis=1))),
)
TORCH = Parts(
    norm=_in_torch(lambda x, gain: functional.rms_norm(x, gain.shape, gain, _EPS)),
    product=_in_torch(torch.matmul),
    onto=_in_torch(lambda z, x, w: z + x @ w),
    mixed=_in_torch(_torch_attention),
    hidden=_in_torch(lambda gate, linear: functional.silu(gate) * linear),
)
_STARTED = _in_float32(lambda z, x, w: arrays.gemm(x, w, int(FROM), z))


# ---------------------------------------------------------------------------------------------------------------------
# The model


def logits(config: fastpe.ModelConfig, w: Weights, tokens: Array, parts: Parts, seen: Any = None) -> Array:
    """Logits of one sequence. `seen` is called with each layer's number, hidden rows, stream and normalised stream."""
    angles = fastpe.build("rope", len(tokens), dim=config.head_width, pairs="half")["angles"][0]
    z = w["embed.weight"][tokens]
    for layer in range(config.layers):
        own = {name.removeprefix(f"layers.{layer}."): x for name, x in w.items()}
        u = parts.norm(z, own["norm1.weight"])
        heads = (
            parts.product(u, own[f"attention.{name}.weight"]).reshape(len(z), config.heads, -1).swapaxes(0, 1)
            for name in ("query", "key", "value")
        )
        mixed = parts.mixed(*heads, angles).swapaxes(0, 1).reshape(z.shape)
        z = parts.onto(z, mixed, own["attention.out.weight"])
        u = parts.norm(z, own["norm2.weight"])
        hidden = parts.hidden(*(parts.product(u, own[f"feedforward.{name}.weight"]) for name in ("gate", "in")))
        if seen is not None:
            seen(layer, hidden, z, u)
        z = parts.onto(z, hidden, own["feedforward.out.weight"])
    return parts.product(parts.norm(z, w["final_norm.weight"]), w["head.weight"])


def made(layers: int, width: int, hidden: int) -> tuple[fastpe.Transformer, Array]:
    """The model in float32, and tokens; the first token of every sequence has the large value."""
    config = fastpe.ModelConfig(
        "rope", {"pairs": "half"}, width=width, heads=width // 64, layers=layers, hidden=hidden, causal=True,
        activation="swiglu", norm="rmsnorm", final_norm=True, bias=False, vocabulary=_TOKENS, train_length=_LENGTH,
    )  # fmt: skip
    model, rng = fastpe.Transformer(config), np.random.default_rng(0)
    w = model.parameters
    for name, x in w.items():
        if "norm" in name:
            x[...] = rng.uniform(0.5, 1.5, x.shape)
            x[_CHANNEL] = _SMALL_GAIN
        else:
            x[...] = rng.standard_normal(x.shape) * (1.0 if "embed" in name else x.shape[0] ** -0.5)
    w["embed.weight"][0] *= 4.0
    tokens = rng.integers(1, _TOKENS, (_BATCH, _LENGTH))
    tokens[:, 0] = 0
    _write(model, layers // 3, tokens, _LARGE)
    _write(model, layers - 2, tokens, 0.0)
    return model, tokens


def _write(model: fastpe.Transformer, layer: int, tokens: Array, value: float) -> None:
    """Make one unit of a layer, which only the first token activates, write the value into its channel."""
    w, found = model.parameters, list[tuple[Array, ...]]()
    wide = {name: x.astype(np.float64) for name, x in w.items()}
    for row in tokens:
        logits(model.config, wide, row, EXACT, lambda number, *rows: found.append(rows) if number == layer else None)
    rows = np.concatenate([u for _, _, u in found])
    driven = (np.arange(len(rows)) % _LENGTH == 0).astype(np.float64)
    reading = np.linalg.lstsq(rows, _PEAK * driven, rcond=None)[0]
    for name in ("gate", "in"):
        w[f"layers.{layer}.feedforward.{name}.weight"][:, 0] = reading
    w[f"layers.{layer}.feedforward.out.weight"][0] = 0.0
    before = found[0][1][0, _CHANNEL]
    w[f"layers.{layer}.feedforward.out.weight"][0, _CHANNEL] = (value - before) / _PEAK**2


# ---------------------------------------------------------------------------------------------------------------------
# The table


def main() -> None:
    """Check, measure and print."""
    sizes = tuple(map(int, sys.argv[1:])) or (12, 384, 1536)
    model, tokens = made(*sizes)
    config, wide = model.config, {name: x.astype(np.float64) for name, x in model.parameters.items()}

    def of(parts: Parts) -> Array:
        return np.stack([logits(config, wide, row, parts) for row in tokens])

    largest = 0.0

    def seen(layer: int, hidden: Array, z: Array, u: Array) -> None:
        nonlocal largest
        largest = max(largest, float(np.abs(z).max()))

    exact, double = of(EXACT), fastpe.Transformer(replace(config, dtype="float64"))
    logits(config, wide, tokens[0], EXACT, seen)
    double.parameters = wide
    size = np.sqrt(np.square(exact).mean())

    def error(found: Array) -> float:
        return float(np.sqrt(np.square(found - exact).mean()) / size)

    assert error(double(tokens)) < 1e-12, error(double(tokens))
    print(f"{config.layers} layers, width {config.width}, hidden {config.hidden}; largest activation {largest:.0f}\n")
    print("| computed in float32 | fastpe | PyTorch |\n|---|---|---|")
    for part, what in {
        "norm": "RMSNorm", "product": "products of query, key, value, gate, in, head",
        "onto": "products of out and down, with the residual connection", "mixed": "attention", "hidden": "SwiGLU",
    }.items():  # fmt: skip
        ours, theirs = (error(of(replace(EXACT, **{part: getattr(each, part)}))) for each in (FASTPE, TORCH))
        print(f"| {what} | {ours:.1e} | {theirs:.1e} |")
    print(f"| the same, sums that start with the residual | {error(of(replace(EXACT, onto=_STARTED))):.1e} | |")
    print(f"| all parts | {error(of(FASTPE)):.1e} | {error(of(TORCH)):.1e} |")
    print(f"| the whole model, `fastpe.Transformer` | {error(model(tokens)):.1e} | |")


if __name__ == "__main__":
    main()
