"""Live equality with PyTorch where it is installed (extra `peers`); stored values: tests/reference."""

import math
from dataclasses import replace

import numpy as np
import pytest
from model_cases import DEEP, PAPER, SMALL, assert_same_gradients, gradient_sizes, pair_of

from fastpe import Adam, ModelConfig, TrainConfig, Transformer
from fastpe.training.schedule import rate

torch = pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")
peers = pytest.importorskip("peers")


TODAY = replace(SMALL, norm="rmsnorm", final_norm=True, activation="swiglu", bias=False, tied=True)
GPT = replace(SMALL, encoding="learned", final_norm=True, activation="gelu_tanh", tied=True, init_by_depth=True)


def joined(gradients):
    """The gradients of query, key and value maps as the peer has them: one map."""
    found = dict(gradients)
    for name in list(found):
        if ".query." in name:
            parts = [found.pop(name.replace("query", part)) for part in ("query", "key", "value")]
            found[name.replace("query", "qkv")] = np.concatenate(parts, -1)
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("config", [PAPER, DEEP, SMALL, TODAY, GPT], ids=["paper", "deep", "tokens", "today", "gpt"])
def test_loss_and_gradients_agree_with_autograd(config, dtype):
    config = ModelConfig.from_dict({**config.to_dict(), "dtype": dtype})
    model = Transformer(config)
    x, y = pair_of(config, 32)
    loss, gradients = model.loss_and_grads(x, y)
    weights = peers.torch_weights(model)
    slots = {name: torch.tensor(slot) for name, slot in model.slots(x.shape[1]).items()}
    outputs = peers.torch_forward(config, weights, slots, torch.tensor(x))
    np.testing.assert_allclose(model(x), outputs.detach().numpy(), rtol=0, atol=1e-4 if dtype == "float32" else 1e-9)
    expected = peers.torch_loss(config, outputs, torch.tensor(y))
    expected.backward()
    tolerance = 1e-4 if dtype == "float32" else 1e-9
    assert loss == pytest.approx(expected.item(), rel=tolerance)
    exact = {name: weight.grad.numpy() for name, weight in weights.items()}
    ours = joined(gradients)
    sizes = joined(gradient_sizes(model, x, y))
    assert_same_gradients({name: ours[name] for name in exact}, exact, sizes, dtype)


@pytest.mark.parametrize("vocabulary", [None, 65])
def test_ten_steps_of_adam_agree_with_pytorchs(vocabulary):
    config = ModelConfig("sinusoidal", vocabulary=vocabulary, dtype="float64")
    model = Transformer(config)
    x, y = pair_of(config, 32)
    step, adam = peers.torch_step(Transformer(config), x, y, 1), Adam(model)
    for _ in range(10):
        assert adam.step(x, y) == pytest.approx(step(), rel=1e-8)


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("config", [TODAY, GPT], ids=["today", "gpt"])
def test_fifty_updates_of_a_whole_recipe_agree_with_pytorchs(config):
    """AdamW, warm-up and cosine, clipping, dropout with the mask handed over, targets that do not count."""
    recipe = replace(config, dtype="float64", dropout=0.1)
    model, steps = Transformer(recipe), 50
    weights = peers.torch_weights(model)
    slots = {name: torch.tensor(slot) for name, slot in model.slots(24).items()}
    matrices = [value for value in weights.values() if value.ndim > 1]
    vectors = [value for value in weights.values() if value.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}]
    optimiser, limit = torch.optim.AdamW(groups, betas=(0.9, 0.99)), 0.3
    adam = Adam(model, beta2=0.99, weight_decay=0.1, clip=limit)
    settings = TrainConfig(
        "nope", task="reverse", causal=True, samples=steps, batch=1, epochs=1, lr=3e-3, min_lr=1e-4, warmup=5,
        decay="cosine",
    )  # fmt: skip
    rng = np.random.default_rng(3)
    for step in range(steps):
        x, y = rng.integers(0, recipe.vocabulary, (2, 6, 24))
        counts = rng.random(y.shape) < 0.5
        adam.lr = rate(settings, step)
        mine = adam.step(x, np.where(counts, y, -100), weights=counts)
        for group in optimiser.param_groups:
            group["lr"] = adam.lr
        factors = {name: torch.tensor(own) for name, own in model.dropout_factors(6, 24, step).items()}
        outputs = peers.torch_forward(recipe, weights, slots, torch.tensor(x), factors=factors)
        loss = peers.torch_loss(recipe, outputs, torch.tensor(np.where(counts, y, peers.NOT_COUNTED)))
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(weights.values()), limit)
        optimiser.step()
        assert mine == pytest.approx(loss.item(), rel=1e-9)
        assert math.isfinite(mine)
    ours = joined(dict(model.parameters))
    for name, value in weights.items():
        np.testing.assert_allclose(ours[name], value.detach().numpy(), rtol=0, atol=1e-9, err_msg=name)
