"""Every encoding that a run takes trains on a task: the loss falls, and the bits are the seed's."""

import math

import numpy as np
import pytest
from encoding_variants import ENCODINGS, NAMES, is_causal

from fastpe.encodings.needed import needed
from fastpe.encodings.registry import parse
from fastpe.model.transformer import Transformer
from fastpe.training.config import TrainConfig
from fastpe.training.events import Stepped
from fastpe.training.loop import TrainResult, train

LENGTH, LONG = 20, 50


GRIDS = {name: own.axes(**parse(name)[0].options) for name, own in ENCODINGS.items() if "grid" in own.options}


def grid_of(name: str) -> dict[str, tuple[int, ...]]:
    """An option that gives the coordinates of LENGTH cells to an encoding that needs them."""
    return {"grid": (1,) * (GRIDS[name] - 2) + (4, 5)} if GRIDS.get(name, 1) > 1 else {}


def trained(name: str) -> bool:
    """Whether a run takes it on running sums: what needs digits, or positions that no option gives, is refused."""
    return bool(grid_of(name)) or all(each.needs.default and each.needs.what != "digits" for each in needed(name))


def one_epoch(name: str, threads: int) -> tuple[TrainResult, list[float]]:
    config = TrainConfig(
        name, grid_of(name), width=24, heads=2, hidden=16, causal=is_causal(name), train_length=LENGTH, samples=256,
        batch=16, epochs=1, lr=0.01, test_lengths=(LENGTH, LONG), test_sequences=8,
    )  # fmt: skip
    told: list[object] = []
    result = train(config, threads=threads, progress=told.append)
    return result, [event.loss for event in told if isinstance(event, Stepped)]


@pytest.mark.parametrize("name", [name for name in NAMES if trained(name)])
def test_one_short_epoch(name: str) -> None:
    result, losses = one_epoch(name, threads=1)
    assert np.mean(losses[-4:]) < 0.8 * np.mean(losses[:4])
    first = Transformer(result.config.model).parameters
    for key, array in result.model.parameters.items():
        assert (array != first[key]).any(), f"{key} has not learned anything"
    for threads in (1, 2):
        again, same = one_epoch(name, threads)
        assert same == losses
        assert again.result["test"] == result.result["test"]
        assert set(again.model.parameters) == set(result.model.parameters)
        for key, array in again.model.parameters.items():
            assert array.tobytes() == result.model.parameters[key].tobytes(), key
    assert math.isfinite(result.result["test"][str(LENGTH)]["mse"])
    metrics = result.result["test"][str(LONG)]
    assert metrics["mse"] is None or not grid_of(name)  # a length that an option rules out costs no run its end
    if metrics["mse"] is None:
        assert (name if "grid" not in result.config.options else "option 'grid'") in metrics["reason"]
    else:
        assert math.isfinite(metrics["mse"])
        assert math.isfinite(metrics["mse_beyond"])
        assert "reason" not in metrics
