"""The peers: the same computations as anyone would write them in NumPy and in PyTorch, for timing and equality."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastpe import Transformer
from fastpe.config import ModelConfig

Array = np.ndarray[Any, Any]


def torch_weights(model: Transformer) -> dict[str, Any]:
    """Copies of the model's parameters as PyTorch leaves; query, key and value joined, as in its own layers."""
    import torch

    parameters = {name: np.array(value) for name, value in model.parameters.items()}
    for layer in range(model.config.layers):
        prefix = f"layers.{layer}.attention"
        for kind in ("weight", "bias"):
            parts = [parameters.pop(f"{prefix}.{name}.{kind}") for name in ("query", "key", "value")]
            parameters[f"{prefix}.qkv.{kind}"] = np.concatenate(parts, -1)
    return {name: torch.tensor(value, requires_grad=True) for name, value in parameters.items()}


def torch_step(model: Transformer, x: Array, y: Array, threads: int) -> Callable[[], float]:
    """One training step (loss, all gradients, Adam) of a copy of `model` in PyTorch; returns the loss."""
    import torch

    torch.set_num_threads(threads)
    weights = torch_weights(model)
    slots = {name: torch.tensor(value) for name, value in model.slots(x.shape[1]).items()}
    optimiser = torch.optim.Adam(weights.values(), lr=1e-3)
    inputs, targets = torch.tensor(x), torch.tensor(y)

    def step() -> float:
        loss = torch.nn.functional.mse_loss(torch_forward(model.config, weights, slots, inputs), targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss.item()

    return step


def torch_forward(config: ModelConfig, weights: dict[str, Any], slots: dict[str, Any], x: Any) -> Any:
    """The model's forward pass (B, N) -> (B, N) on PyTorch tensors, from `torch_weights`."""
    import torch
    from torch.nn.functional import gelu, layer_norm, relu

    n, c, heads = x.shape[1], config.width, config.heads
    offsets = torch.arange(n)[None, :] - torch.arange(n)[:, None] + n - 1
    z = x[..., None] * weights["embed.weight"][0] + weights["embed.bias"]
    if "table" in slots:
        z = z + slots["table"]
    for layer in range(config.layers):
        w = {name.removeprefix(f"layers.{layer}."): value for name, value in weights.items()}
        u = layer_norm(z, (c,), w["norm1.weight"], w["norm1.bias"]) if config.norm == "layernorm" else z
        qkv = u @ w["attention.qkv.weight"] + w["attention.qkv.bias"]
        q, k, v = qkv.view(-1, n, 3, heads, c // heads).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-1, -2) * (c // heads) ** -0.5
        if "bias" in slots:
            scores = scores + slots["bias"][:, offsets]
        if config.causal:
            scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)
        mixed = (scores.softmax(-1) @ v).transpose(1, 2).reshape(-1, n, c)
        out = mixed @ w["attention.out.weight"] + w["attention.out.bias"]
        z = z + out if config.residual else out
        u = layer_norm(z, (c,), w["norm2.weight"], w["norm2.bias"]) if config.norm == "layernorm" else z
        activation = gelu if config.activation == "gelu" else relu
        hidden = activation(u @ w["feedforward.in.weight"] + w["feedforward.in.bias"])
        out = hidden @ w["feedforward.out.weight"] + w["feedforward.out.bias"]
        z = z + out if config.residual else out
    return (z @ weights["head.weight"])[..., 0] + weights["head.bias"]


def numpy_tables() -> dict[str, Callable[[int, int], Array]]:
    """Tables (N, C), float32, in NumPy's usual way of writing them, by encoding."""

    def sinusoidal(length: int, dim: int) -> Array:
        angles = np.arange(length)[:, None] * 10000.0 ** (-np.arange(0, dim, 2) / dim)
        table = np.empty((length, dim), np.float32)
        table[:, 0::2], table[:, 1::2] = np.sin(angles), np.cos(angles)
        return table

    def legendre(length: int, dim: int) -> Array:
        return np.polynomial.legendre.legvander(np.tanh(np.arange(length) / length), dim - 1).astype(np.float32)

    return {"sinusoidal": sinusoidal, "legendre": legendre}
