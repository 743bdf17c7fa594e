"""Live equality with PyTorch where it is installed (extra `peers`); stored values: tests/reference."""

import numpy as np
import pytest
from model_cases import DEEP, PAPER, SMALL, assert_same_gradients, batch_of, gradient_sizes, tokens_of

from fastpe import ModelConfig, Transformer
from fastpe.model.adam import Adam

torch = pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")
peers = pytest.importorskip("peers")


def drawn(config, sequences):
    return batch_of(config, sequences) if config.vocabulary is None else tokens_of(config, sequences)


def joined(gradients):
    """The gradients of query, key and value maps as the peer has them: one map."""
    found = dict(gradients)
    for name in list(found):
        if ".query." in name:
            parts = [found.pop(name.replace("query", part)) for part in ("query", "key", "value")]
            found[name.replace("query", "qkv")] = np.concatenate(parts, -1)
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("config", [PAPER, DEEP, SMALL], ids=["paper", "deep", "tokens"])
def test_loss_and_gradients_agree_with_autograd(config, dtype):
    config = ModelConfig.from_dict({**config.to_dict(), "dtype": dtype})
    model = Transformer(config)
    x, y = drawn(config, 32)
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
    x, y = drawn(config, 32)
    step, adam = peers.torch_step(Transformer(config), x, y, 1), Adam(model)
    for _ in range(10):
        assert adam.step(x, y) == pytest.approx(step(), rel=1e-8)
