"""Tables in which training sequences begin anywhere: positions "offset:L"."""

from dataclasses import replace

import numpy as np
import pytest

from fastpe import BeyondTrainingLength, ModelConfig, Transformer, reference

N, ROWS = 20, 50
CONFIG = ModelConfig(
    "learned", width=24, heads=3, layers=2, hidden=20, train_length=N, dtype="float64", causal=True, vocabulary=11,
    positions=f"offset:{ROWS}",
)  # fmt: skip
LENGTHS = np.array([20, 3, 7, 20, 1, 12])


@pytest.fixture
def batch():
    rng = np.random.default_rng(0)
    return rng.integers(0, 11, (6, N)), rng.integers(0, 11, (6, N)), (np.arange(N) < LENGTHS[:, None]) * 1.0


def shifts_of(model, step):
    return model._encoding.shifts(LENGTHS, 6, step)


@pytest.mark.parametrize("encoding", ["learned", "sinusoidal", "nope", "wavelet"])
def test_every_sequence_has_rows_of_its_own(encoding, batch):
    x, y, weights = batch
    model = Transformer(replace(CONFIG, encoding=encoding))
    loss, ours = model.loss_and_grads(x, y, weights=weights, lengths=LENGTHS, draw=5)
    shifts = shifts_of(model, 5)
    assert len(set(shifts.tolist())) > 2
    slots = {}
    if encoding != "nope":
        table = model.slots(N)["table"]
        assert table.shape == (ROWS, 24)
        windows = [np.pad(table[s : s + n], ((0, N - n), (0, 0))) for s, n in zip(shifts, LENGTHS, strict=True)]
        slots = {"table": np.stack(windows)}
    exact, gradients, of_slots = reference.model_loss_and_grads(model.config, model.parameters, slots, x, y, weights)
    assert loss == pytest.approx(float(exact), rel=1e-12)
    if encoding == "learned":
        rows = np.zeros((ROWS, 24))
        for s, n, own in zip(shifts, LENGTHS, of_slots["table"], strict=True):
            rows[s : s + n] += own[:n]
        gradients["encoding.learned.table"] = rows
    assert ours.keys() == gradients.keys()
    for name, gradient in gradients.items():
        scale = np.abs(gradient).max() + 1e-4
        np.testing.assert_allclose(ours[name], gradient, rtol=0, atol=1e-11 * scale, err_msg=name)


def test_every_row_is_begun_at_and_none_is_left():
    model = Transformer(CONFIG)
    found = np.concatenate([shifts_of(model, step) for step in range(400)]).reshape(400, 6)
    assert found.min(axis=0).tolist() == [0] * 6
    assert found.max(axis=0).tolist() == (ROWS - LENGTHS).tolist()
    again = Transformer(CONFIG)
    np.testing.assert_array_equal(shifts_of(again, 7), found[7])
    assert not np.array_equal(shifts_of(Transformer(replace(CONFIG, seed=1)), 7), found[7])


def test_a_test_begins_at_the_first_row(batch):
    x = batch[0]
    model = Transformer(CONFIG)
    usual = Transformer(replace(CONFIG, positions="usual", train_length=ROWS))
    usual.parameters = model.parameters
    np.testing.assert_array_equal(model(x), usual(x))


def test_what_cannot_begin_anywhere_is_named():
    with pytest.raises(BeyondTrainingLength, match=r"^length 60 needs more positions than the 50"):
        Transformer(CONFIG)(np.zeros((1, 60), int))
    with pytest.raises(ValueError, match=r"^positions cannot be 'offset:50': 'learned\+alibi' fills 'bias'"):
        Transformer(replace(CONFIG, encoding="learned+alibi"))
    with pytest.raises(ValueError, match=r"^positions 'offset:L' need L from train_length=20"):
        replace(CONFIG, positions="offset:19")
