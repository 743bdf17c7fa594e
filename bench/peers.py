"""The peers: the same computations as anyone would write them in NumPy and in PyTorch, for timing and equality."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pywt

from fastpe import Transformer
from fastpe.config import ModelConfig
from fastpe.encoding import init, make_spec, parse
from fastpe.encodings.wavelet import columns

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
        loss = torch_loss(model.config, torch_forward(model.config, weights, slots, inputs), targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss.item()

    return step


def torch_loss(config: ModelConfig, outputs: Any, targets: Any) -> Any:
    """The model's loss on PyTorch tensors, from the outputs of `torch_forward`."""
    from torch.nn.functional import cross_entropy, mse_loss

    if config.vocabulary is None:
        return mse_loss(outputs, targets)
    return cross_entropy(outputs.flatten(0, 1), targets.flatten())


def torch_forward(config: ModelConfig, weights: dict[str, Any], slots: dict[str, Any], x: Any) -> Any:
    """The model's forward pass (B, N) -> (B, N), or logits (B, N, V), on PyTorch tensors, from `torch_weights`."""
    import torch
    from torch.nn.functional import embedding, gelu, layer_norm, linear, relu

    n, c, heads = x.shape[1], config.width, config.heads

    def affine(u: Any, name: str) -> Any:
        return linear(u, weights[f"{name}.weight"].T, weights[f"{name}.bias"])

    def norm(u: Any, name: str) -> Any:
        if config.norm == "none":
            return u
        return layer_norm(u, (c,), weights[f"{name}.weight"], weights[f"{name}.bias"])

    def attention(u: Any, name: str) -> Any:
        q, k, v = affine(u, f"{name}.qkv").chunk(3, -1)
        if heads > 1:
            q, k, v = (t.unflatten(-1, (heads, -1)).transpose(1, 2) for t in (q, k, v))
        scores = q @ k.transpose(-1, -2) * (c // heads) ** -0.5
        if "bias" in slots:
            offsets = torch.arange(n)[None, :] - torch.arange(n)[:, None] + n - 1
            scores = scores + slots["bias"][:, offsets]
        if config.causal:
            scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)
        mixed = scores.softmax(-1) @ v
        return affine(mixed.transpose(1, 2).flatten(2) if heads > 1 else mixed, f"{name}.out")

    tokens = config.vocabulary is not None
    z = embedding(x, weights["embed.weight"]) if tokens else affine(x[..., None], "embed")
    if "table" in slots:
        z = z + slots["table"]
    for layer in range(config.layers):
        prefix = f"layers.{layer}"
        out = attention(norm(z, f"{prefix}.norm1"), f"{prefix}.attention")
        z = z + out if config.residual else out
        activation = gelu if config.activation == "gelu" else relu
        hidden = activation(affine(norm(z, f"{prefix}.norm2"), f"{prefix}.feedforward.in"))
        out = affine(hidden, f"{prefix}.feedforward.out")
        z = z + out if config.residual else out
    return affine(z, "head") if tokens else affine(z, "head")[..., 0]


HEADS = 8  # of the biases below


def numpy_tables() -> dict[str, Callable[[int, int], Array]]:
    """The one slot of each encoding, float32, in NumPy's usual way of writing it, from length and width."""

    def sinusoidal(length: int, dim: int) -> Array:
        angles = np.arange(length)[:, None] * 10000.0 ** (-np.arange(0, dim, 2) / dim)
        table = np.empty((length, dim), np.float32)
        table[:, 0::2], table[:, 1::2] = np.sin(angles), np.cos(angles)
        return table

    def legendre(length: int, dim: int) -> Array:
        return np.polynomial.legendre.legvander(np.tanh(np.arange(length) / length), dim - 1).astype(np.float32)

    def wavelet(length: int, dim: int) -> Array:
        spec = make_spec(length, dim=dim)
        (part,) = parse("wavelet")
        chosen = columns(spec, **part.options)  # which functions: not the arithmetic that is compared
        phi, psi, grid = pywt.Wavelet("db4").wavefun(level=10)
        positions, table = np.arange(length), np.empty((length, dim))
        for c, (kind, level, shift) in enumerate(zip(*chosen, strict=True)):
            values = (np.zeros_like(grid), phi, psi)[kind]
            table[:, c] = np.interp(positions / 2.0**level - shift, grid, values, 0.0, 0.0) * 2.0 ** (-level / 2)
        norm = np.linalg.norm(table, axis=1, keepdims=True)
        return np.divide(table, norm, where=norm > 0, out=table).astype(np.float32)

    def alibi(length: int, dim: int) -> Array:
        slopes = 2.0 ** (-8 * np.arange(1, HEADS + 1) / HEADS)
        return (-slopes[:, None] * np.abs(np.arange(1 - length, length))).astype(np.float32)

    def learned(length: int, dim: int) -> Array:
        return learned_rows(length, dim)[np.arange(length)]

    return {"sinusoidal": sinusoidal, "legendre": legendre, "wavelet": wavelet, "alibi": alibi, "learned": learned}


@lru_cache(maxsize=2)
def learned_rows(length: int, dim: int) -> Array:
    """The parameters of a learned table."""
    return init("learned", dim=dim, train_length=length)["table"]
