"""Packs of one group side by side: whoever goes through which, and however they overtake each other, bits are the same.

All sequences are one group here, so that lanes are more than groups on two cores already.
"""

import numpy as np
import pytest
from model_cases import pair_of
from numba import config as numba_config

from fastpe import Adam, ModelConfig, Transformer
from fastpe.model.passes import Passes

SMALL = {"width": 24, "heads": 2, "hidden": 40, "train_length": 21, "layers": 3, "seed": 4}
NORMED = {**SMALL, "norm": "layernorm", "final_norm": True, "activation": "gelu"}
CASES = {
    "composed ends": ModelConfig("learned", **SMALL),
    "composed ends, tokens": ModelConfig("learned", **SMALL, vocabulary=11),
    "norms": ModelConfig("learned", **NORMED),
    "tokens": ModelConfig("nope", **NORMED, vocabulary=70),
    "tied": ModelConfig("nope", **NORMED, vocabulary=70, tied=True),
    "gated, dropped out": ModelConfig("nope", **SMALL, norm="rmsnorm", activation="swiglu", dropout=0.2),
    "bias of all layers": ModelConfig("alibi", **NORMED, options={"learned": True}),
    "table of all layers": ModelConfig("t5", **SMALL),
    "relative vectors": ModelConfig("shaw", **NORMED),
    "taps": ModelConfig("conv", **NORMED),
    "random positions": ModelConfig("learned", **NORMED, positions="offset:64"),
}  # fmt: skip
SEQUENCES = 24


@pytest.fixture(autouse=True)
def one_group(monkeypatch):
    monkeypatch.setattr(Passes, "_groups", lambda self, batch, lengths: np.array([0, batch]))


def trained(config, threads, **given):
    model = Transformer(config)
    x, y = pair_of(config, SEQUENCES)
    adam = Adam(model, lr=0.01, clip=0.5)
    losses = [adam.step(x, y, threads=threads, **given) for _ in range(8)]
    return losses, model._layout.flat.tobytes(), adam._moments.tobytes()


@pytest.mark.parametrize("name", CASES)
def test_steps_have_the_bits_of_one_lane(name):
    expected = trained(CASES[name], 1)
    assert np.isfinite(expected[0]).all()
    for threads in (2, 3, SEQUENCES, 2 * SEQUENCES):
        assert trained(CASES[name], threads) == expected


@pytest.mark.parametrize("name", ["composed ends", "norms", "tied", "bias of all layers", "random positions"])
def test_so_they_have_where_some_packs_hold_many_sequences(name):
    lengths = np.random.default_rng(1).choice([1, 2, 5, 20, 21], SEQUENCES)
    expected = trained(CASES[name], 1, lengths=lengths)
    for threads in (2, 3, SEQUENCES):
        assert trained(CASES[name], threads, lengths=lengths) == expected


def test_so_they_have_in_bfloat16():
    config = ModelConfig("nope", **NORMED, precision="bfloat16")
    assert trained(config, 1) == trained(config, 2) == trained(config, SEQUENCES)


def test_more_lanes_than_cores_get_through():
    """Lanes come after one another then: a pack waits for none that nobody has begun."""
    config = CASES["norms"]
    assert trained(config, 10 * numba_config.NUMBA_NUM_THREADS) == trained(config, 1)
