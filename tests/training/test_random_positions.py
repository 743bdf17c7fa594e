"""Randomised positions: which ones a step draws, what is made of them, and that nothing but seed and step decides."""

from dataclasses import replace

import numpy as np
import pytest
from running_sums import sample
from small_run import same_model

import fastpe
from fastpe.base.random import Stream
from fastpe.encodings.encoding import BeyondTrainingLength
from fastpe.model.adam import Adam
from fastpe.model.config import ModelConfig
from fastpe.model.transformer import Transformer
from fastpe.training.config import TrainConfig
from fastpe.training.evaluation import evaluate
from fastpe.training.events import Noted
from fastpe.training.loop import train
from fastpe.training.run_folder import load

N, MOST = 6, 40
SIZES = {"width": 8, "hidden": 8, "layers": 1, "heads": 2, "train_length": N, "positions": f"random:{MOST}"}
CONFIG = TrainConfig(
    "alibi", {"learned": True}, **SIZES, samples=20, batch=8, epochs=3, lr=0.01, test_lengths=(6, 9), test_sequences=70
)


def drawn(step: int | str, length: int = N) -> np.ndarray:
    return Stream(0, "positions", step).choice(MOST, length)


@pytest.mark.parametrize("name", ["sinusoidal", "learned", "rope", "alibi", "t5", "wavelet+alibi"])
def test_a_step_sees_the_encoding_at_its_own_positions(name: str) -> None:
    model = Transformer(ModelConfig(name, **SIZES))
    whole = model._encoding
    sizes = {"dim": 8, "heads": 2, "train_length": MOST}
    params = fastpe.init(name, **sizes)
    for draw, training, stream in ((0, False, "test.0"), (0, True, 0), (7, True, 7), (1, False, "test.1")):
        slots = whole.slots(N, model.parameters, draw, training=training)
        expected = fastpe.build(name, N, **sizes, positions=drawn(stream), params=params)
        assert set(slots) == set(expected)
        for slot, value in expected.items():
            np.testing.assert_array_equal(slots[slot], value)
    assert model.slots(N).keys() == expected.keys()


def test_a_learned_table_has_a_row_for_every_position_that_may_be_drawn() -> None:
    model = Transformer(ModelConfig("learned", **SIZES))
    table = model.parameters["encoding.learned.table"]
    assert table.shape == (MOST, 8)
    _, gradients = model.loss_and_grads(np.ones((2, N)), np.zeros((2, N)), draw=3)
    touched = np.flatnonzero(np.abs(gradients["encoding.learned.table"]).max(axis=1))
    np.testing.assert_array_equal(touched, drawn(3))


def test_training_step_t_has_the_positions_of_draw_t() -> None:
    x, y = sample(0, "train", 8, N)
    adam = Adam(Transformer(CONFIG.model), lr=0.01)
    for step in range(3):
        others = [adam.model.loss_and_grads(x, y, draw=draw)[0] for draw in (step, step + 1)]
        assert adam.step(x, y) == others[0] != others[1]


def test_nothing_but_seed_and_step_decides(tmp_path) -> None:
    notes = []
    result = train(CONFIG, out=tmp_path / "whole", threads=1, progress=notes.append)
    assert "drawn from 0 .. 39" in next(event.message for event in notes if isinstance(event, Noted))
    train(CONFIG, out=tmp_path / "threads", threads=2)
    assert same_model(tmp_path / "threads", [tmp_path / "whole"])
    restored = load(tmp_path / "whole")
    assert restored.config.positions == "random:40"
    x = np.ones((2, 9))
    np.testing.assert_array_equal(restored(x, draw=1), result.model(x, draw=1))
    assert (restored(x) != restored(x, draw=1)).any()
    assert train(replace(CONFIG, seed=1)).history[0]["loss"] != result.history[0]["loss"]


def test_tests_draw_for_every_32_sequences() -> None:
    model = Transformer(CONFIG.model)
    x, y = sample(0, "test", 70, 9, step=9)
    parts = [model(x[start : start + 32], draw=start // 32) - y[start : start + 32] for start in (0, 32, 64)]
    expected = np.square(np.concatenate(parts), dtype=np.float64).mean()
    np.testing.assert_allclose(evaluate(model, [9], 70)["9"]["mse"], expected, rtol=1e-6)


def test_test_lengths_of_more_positions_than_are_drawn_from_are_refused() -> None:
    said = "test_lengths must have at most 150 positions, from which positions='random:150' draws, not 200"
    with pytest.raises(ValueError, match=said):
        TrainConfig("nope", positions="random:150")


def test_the_largest_range_of_all_is_drawn_from_at_once() -> None:
    assert ModelConfig("nope", positions="random:0200").positions == "random:200"
    model = Transformer(ModelConfig("sinusoidal", **{**SIZES, "positions": f"random:{2**27}"}))
    assert np.isfinite(model(np.zeros(50))).all()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("shaw", "positions cannot be given: 'shaw' supports only offsets of consecutive positions"),
        ("alibi+huang1", "positions cannot be given: 'huang1' supports only offsets"),
        ("graphormer", "positions cannot be given"),
        ("rope_2d", "needs positions with several coordinates"),
        ("wavelet+rope_2d", "needs positions with several coordinates"),
    ],
)
def test_encodings_without_such_positions_refuse_before_any_work(name: str, words: str, tmp_path) -> None:
    with pytest.raises(ValueError, match=words):
        train(replace(CONFIG, encoding=name, options={}), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_length_beyond_the_range_has_no_positions() -> None:
    model = Transformer(CONFIG.model)
    with pytest.raises(
        BeyondTrainingLength, match="length 41 needs more positions than the 40 that positions='random:40'"
    ):
        model(np.zeros(41))
    found = evaluate(model, [41], 2)["41"]
    assert found["mse"] is None
    assert "length 41 needs more positions" in found["reason"]
    with pytest.raises(TypeError, match="draw must be an integer"):
        model(np.zeros(3), draw="x")


def test_a_table_is_scaled_over_all_positions_that_may_be_drawn() -> None:
    model = Transformer(ModelConfig("wavelet", **SIZES, table_scale="unit"))
    usual = fastpe.build("wavelet", MOST, dim=8, train_length=MOST)["table"].astype(np.float64)
    scaled = usual / np.sqrt(np.square(usual).sum() / MOST)
    np.testing.assert_allclose(model.slots(N)["table"], scaled[drawn("test.0")], rtol=1e-6, atol=1e-7)
