"""The training step of the paper's model (batch 32, N 50), beside PyTorch eager, on one thread and on two."""

import numpy as np
import pytest
from peers import torch_step

from fastpe import Transformer
from fastpe.config import ModelConfig
from fastpe.tasks import running_sum
from fastpe.transformer import Adam

CONFIGS = {
    "paper": ModelConfig("wavelet"),
    "alibi-causal": ModelConfig("alibi", causal=True),
    "learned": ModelConfig("learned"),
}


def step_flop(config: ModelConfig, batch: int) -> int:
    """Useful FLOPs of loss, gradients and Adam's products: forward, and twice that backward."""
    n, c, f = config.train_length, config.width, config.hidden
    layer = 2 * n * (4 * c * c + 2 * c * f) + 4 * n * n * c
    return 3 * batch * (config.layers * layer + 4 * n * c)


def batch_of(config: ModelConfig):
    return running_sum.sample(0, "train", 32, config.train_length, np.float32)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.benchmark(group="step")
def test_step_fastpe(measure, name, threads):
    config = CONFIGS[name]
    adam = Adam(Transformer(config))
    x, y = batch_of(config)
    measure(lambda: adam.step(x, y, threads=threads), flop=step_flop(config, 32))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.benchmark(group="step")
def test_step_torch(measure, name, threads):
    pytest.importorskip("torch", reason="PyTorch is a peer: pip install 'fastpe[peers]'")
    config = CONFIGS[name]
    x, y = batch_of(config)
    step = torch_step(Transformer(config), x, y, threads)
    adam = Adam(Transformer(config))
    if config.encoding != "learned":  # the peer's copy of that table is no parameter of PyTorch's optimiser
        for _ in range(3):
            np.testing.assert_allclose(step(), adam.step(x, y), rtol=1e-4)
    measure(step, flop=step_flop(config, 32))
