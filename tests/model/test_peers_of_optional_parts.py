"""The optional parts of a model, compared with the same model written with PyTorch's operations: outputs, loss and all
gradients in float64."""

import math
from dataclasses import replace

import numpy as np
import pytest

from fastpe import ModelConfig, Transformer

torch = pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")
functional = torch.nn.functional

N = 20
BASE = ModelConfig(
    "rope", {"pairs": "half"}, width=24, heads=4, layers=2, hidden=20, causal=True, train_length=N, norm="rmsnorm",
    final_norm=True, activation="swiglu", bias=False, vocabulary=11, dtype="float64",
)  # fmt: skip
MODELS = {
    "llama": {"key_heads": 2, "norm_eps": 1e-6},
    "qwen 2": {"key_heads": 1, "qkv_bias": True, "tied": True},
    "qwen 3": {"key_heads": 2, "head_dim": 10, "qk_norm": "head", "norm_eps": 1e-6},
    "olmo 2": {"qk_norm": "all", "key_heads": 2, "norm_placement": "after"},
    "gpt-neox": {
        "parallel": True, "norm": "layernorm", "activation": "gelu", "bias": True,
        "options": {"pairs": "half", "rotated": 2},
    },
    "phi": {"parallel": True, "norm": "layernorm", "activation": "gelu_tanh", "bias": True, "qkv_bias": False},
    "gemma": {"activation": "geglu", "embedding_scale": math.sqrt(24), "key_heads": 1, "head_dim": 8, "tied": True},
    "gemma 2": {
        "activation": "geglu", "embedding_scale": math.sqrt(24), "key_heads": 2, "head_dim": 8, "tied": True,
        "norm_placement": "both", "score_softcap": 2.0, "logit_softcap": 1.5, "score_scale": 0.2, "norm_eps": 1e-6,
    },
    "gpt-oss": {"sinks": True, "key_heads": 2, "head_dim": 10, "qkv_bias": True},
    "nanochat": {"activation": "relu2", "logit_softcap": 15.0},
}  # fmt: skip


class Model(torch.nn.Module):
    """The model of a `ModelConfig` with rope, whose parameters have fastpe's names with "_" for "."."""

    def __init__(self, config, parameters):
        super().__init__()
        self.config = config
        for name, value in parameters.items():
            self.register_parameter(name.replace(".", "_"), torch.nn.Parameter(torch.tensor(value)))

    def part(self, name):
        return getattr(self, name.replace(".", "_"), None)

    def linear(self, x, name):
        return functional.linear(x, self.part(f"{name}.weight").T, self.part(f"{name}.bias"))

    def norm(self, x, name):
        weight = self.part(f"{name}.weight")
        if weight is None:
            return x
        if self.config.norm == "layernorm":
            return functional.layer_norm(x, weight.shape, weight, self.part(f"{name}.bias"), self.config.norm_eps)
        return functional.rms_norm(x, weight.shape, weight, self.config.norm_eps)

    def heads_of(self, x, name, heads):
        """(B, N, C) -> (B, heads, N, D), with the norm of all heads or of each."""
        x = self.linear(x, name)
        if self.config.qk_norm == "all":
            x = self.norm(x, f"{name}_norm")
        x = x.unflatten(-1, (heads, -1))
        return (self.norm(x, f"{name}_norm") if self.config.qk_norm == "head" else x).transpose(1, 2)

    def turned(self, x):
        """Rotary embedding of the first channels, which pairs channels c and c + R/2."""
        rotated = self.config.options.get("rotated") or self.config.head_width
        angles = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * 10000.0 ** -(
            torch.arange(0, rotated, 2, dtype=x.dtype) / rotated
        )
        cos, sin = angles.cos(), angles.sin()
        first, second, rest = x.tensor_split((rotated // 2, rotated), -1)
        return torch.cat([first * cos - second * sin, first * sin + second * cos, rest], -1)

    def attention(self, x, name):
        config = self.config
        q = self.turned(self.heads_of(x, f"{name}.query", config.heads))
        k = self.turned(self.heads_of(x, f"{name}.key", config.key_value_heads))
        v = self.linear(x, f"{name}.value").unflatten(-1, (config.key_value_heads, -1)).transpose(1, 2)
        k, v = (each.repeat_interleave(config.heads // config.key_value_heads, 1) for each in (k, v))
        scores = q @ k.mT * (config.score_scale or config.head_width**-0.5)
        if config.score_softcap:
            scores = config.score_softcap * torch.tanh(scores / config.score_softcap)
        n = x.shape[1]
        scores = scores.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)
        if config.sinks:
            sinks = self.part(f"{name}.sinks")[:, None, None].expand(len(x), -1, n, 1)
            scores = torch.cat([scores, sinks], -1)
        weights = scores.softmax(-1)[..., :n]
        return self.linear((weights @ v).transpose(1, 2).flatten(2), f"{name}.out")

    def feedforward(self, x, name):
        hidden = self.linear(x, f"{name}.in")
        match self.config.activation:
            case "swiglu":
                active = functional.silu(self.linear(x, f"{name}.gate")) * hidden
            case "geglu":
                active = functional.gelu(self.linear(x, f"{name}.gate"), approximate="tanh") * hidden
            case "relu2":
                active = functional.relu(hidden).square()
            case "gelu":
                active = functional.gelu(hidden)
            case "gelu_tanh":
                active = functional.gelu(hidden, approximate="tanh")
        return self.linear(active, f"{name}.out")

    def branch(self, block, x, layer, number):
        """A block with its norms, before and after; those that the model does not have change nothing."""
        name = f"layers.{layer}"
        found = block(self.norm(x, f"{name}.norm{number}"), f"{name}.{block.__name__}")
        return self.norm(found, f"{name}.post_norm{number}")

    def forward(self, tokens):
        config = self.config
        z = functional.embedding(tokens, self.part("embed.weight")) * config.embedding_scale
        for layer in range(config.layers):
            attended = self.branch(self.attention, z, layer, 1)
            z, seen = z + attended, z if config.parallel else z + attended
            z = z + self.branch(self.feedforward, seen, layer, 2)
        z = self.norm(z, "final_norm")
        logits = z @ self.part("embed.weight").T if config.tied else self.linear(z, "head")
        return (
            logits if config.logit_softcap is None else config.logit_softcap * torch.tanh(logits / config.logit_softcap)
        )


@pytest.mark.full("float64, and with a soft cap of scores other kinds of kernels")
@pytest.mark.parametrize("name", MODELS)
def test_outputs_loss_and_gradients_are_those_of_pytorch(name):
    config = replace(BASE, **MODELS[name])
    model, rng = Transformer(config), np.random.default_rng(4)
    for own, parameter in model.parameters.items():
        if any(part in own for part in ("norm", "bias", "sinks")):
            parameter += rng.normal(0, 0.3, parameter.shape)
    x, y = rng.integers(0, config.vocabulary, (2, 3, N))
    peer = Model(config, model.parameters)
    logits = peer(torch.tensor(x))
    np.testing.assert_allclose(model(x), logits.detach().numpy(), rtol=0, atol=1e-11)
    expected = functional.cross_entropy(logits.flatten(0, 1), torch.tensor(y).flatten())
    expected.backward()
    loss, gradients = model.loss_and_grads(x, y)
    assert loss == pytest.approx(expected.item(), rel=1e-12)
    for own, gradient in gradients.items():
        exact = peer.part(own).grad.numpy()
        np.testing.assert_allclose(gradient, exact, rtol=0, atol=1e-10 * (np.abs(exact).max() + 1e-2), err_msg=own)
