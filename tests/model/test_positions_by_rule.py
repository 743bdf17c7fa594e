"""Models whose positions follow from tokens: comparison with the reference, written token by token, and errors."""

import re
from dataclasses import replace

import numpy as np
import pytest
from guards import guarded_results
from layer_checks import assert_gradients_are_the_references

from fastpe import Adam, BeyondTrainingLength, ModelConfig, Transformer, load
from fastpe.model import encoding_by_rule, passes, scratch, token_positions
from fastpe.model.encoding import ModelEncoding
from fastpe.model.encoding_by_rule import EncodingByRule

N, V = 20, 15
CONFIG = ModelConfig(
    "abacus", width=24, heads=3, layers=2, hidden=20, train_length=N, dtype="float64", causal=True, vocabulary=V,
    positions="digits:20:0-9",
)  # fmt: skip
CASES = [
    {},
    {"causal": False, "encoding": "learned+alibi", "options": {"learned.scale": 2.0}, "table_scale": "rms"},
    {"encoding": "abacus+rope,abacus+t5", "norm": "layernorm", "layers": 3},
    {"encoding": "learned", "positions": "coupled:30:0-9:12:reversed"},
    {"encoding": "rope", "positions": "documents:12"},
    {"encoding": "learned+rope+t5", "positions": "documents:11-13:first", "causal": False},
    {"encoding": "rope*2,alibi", "layers": 4, "positions": "documents:3", "sight": "window:4,all"},
    {"encoding": "sinusoidal", "positions": "documents:3", "causal": False, "sight": "chunks:7"},
    {"encoding": "learned+rope", "positions": "segments:11,12"},
    {"encoding": "rope", "positions": "segments:11,12:first", "causal": False},
    {"encoding": "alibi", "options": {"factor": 96.0}, "positions": "segments:11,12"},
    {"encoding": "learned+rope,learned+alibi", "positions": "segments:5-12", "layers": 3, "norm": "rmsnorm"},
]


def tokens(seed=0, count=6, length=N):
    return np.random.default_rng(seed).integers(0, V, (2, count, length))


@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradients_are_the_references(case):
    assert_gradients_are_the_references(replace(CONFIG, **case), N)


@pytest.mark.parametrize("case", CASES)
def test_sequences_of_a_batch_are_those_alone(case):
    """Of other lengths, with tokens past their ends that would be places of their own."""
    model, x, lengths = Transformer(replace(CONFIG, **case)), tokens(1)[0], np.array([20, 7, 13, 1, 20, 2])
    together = model(x, lengths=lengths)
    for row, length, found in zip(x, lengths, together, strict=True):
        np.testing.assert_allclose(found[:length], model(row[:length]), rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("case", [each for each in CASES if each.get("causal", True)])
def test_tokens_written_one_by_one_are_those_of_whole_sequences(case):
    model, x = Transformer(replace(CONFIG, **case, dtype="float32")), tokens(2)[0]
    for prompt in (x[0, :1], x[1, :9]):
        written = model.generate(prompt, N - len(prompt), temperature=0.0)
        np.testing.assert_array_equal(written, model.generate(prompt, N - len(prompt), temperature=0.0, cache=False))


@pytest.mark.parametrize("case", CASES)
def test_threads_change_no_bit(case):
    x, y = tokens(4, 9)
    one, more = (Transformer(replace(CONFIG, **case)).loss_and_grads(x, y, threads=count) for count in (1, 3))
    assert one[0] == more[0]
    for name, gradient in one[1].items():
        np.testing.assert_array_equal(gradient, more[1][name], err_msg=name)


def test_alibi_among_segments_of_one_token_is_alibi():
    usual = Transformer(replace(CONFIG, encoding="alibi", options={"factor": 2.0}, positions="usual"))
    model = Transformer(replace(usual.config, positions="segments:0-14"))
    model.parameters, x = usual.parameters, tokens(8)[0]
    np.testing.assert_allclose(model(x), usual(x), rtol=1e-11, atol=1e-13)
    apart = Transformer(replace(model.config, positions="segments:3"))
    apart.parameters = usual.parameters
    nothing = Transformer(replace(CONFIG, encoding="nope", positions="usual"))
    nothing.parameters = usual.parameters
    without = np.where(x == 3, 4, x)
    np.testing.assert_allclose(apart(without), nothing(without), rtol=1e-11, atol=1e-13)  # one segment
    assert np.abs(apart(x) - nothing(x)).max() > 1e-3


def test_only_rows_that_tokens_have_get_gradients():
    model, x = Transformer(CONFIG), np.array([[11, 1, 2, 3, 11, 4, 12, 13]])
    _, gradients = model.loss_and_grads(x, x, draw=3)
    rows = model._encoding.placed(x, np.array([8]), step=3).rows[0]
    touched = np.flatnonzero(np.abs(gradients["encoding.abacus.table"]).max(axis=1))
    assert touched.tolist() == sorted({*rows.ravel()})
    assert model.parameters["encoding.abacus.table"].shape == (1024, 24)
    assert len({model._encoding.placed(x, np.array([8]), step=step).rows[0, 0, 1] for step in range(60)}) > 10


def test_a_training_is_the_references(tmp_path):
    """Steps of `Adam` have the places of their number; a saved model works alone."""
    x, y = tokens(5)
    adam = Adam(Transformer(CONFIG))
    for step in range(3):
        exact, _ = EncodingByRule(CONFIG).reference_loss_and_grads(adam.model.copies(), x, y, step=step)
        assert adam.step(x, y) == pytest.approx(exact, rel=1e-12)
    adam.model.save(tmp_path / "model.safetensors")
    again = load(tmp_path / "model.safetensors")
    assert again.config.positions == "digits:20:0-9"
    np.testing.assert_array_equal(again(x), adam.model(x))


@pytest.mark.parametrize("case", CASES)
def test_writes_stay_inside(case, monkeypatch):
    check = guarded_results(monkeypatch, scratch, passes, token_positions, encoding_by_rule)
    x, y = tokens(6)
    model = Transformer(replace(CONFIG, **case))
    model.loss_and_grads(x, y, lengths=np.array([20, 7, 13, 1, 20, 2]))
    if model.config.causal:
        model.generate(x[0, :5], 9)
    check()


@pytest.mark.parametrize("positions", ["float:40", "pose:40", "random:40"])
@pytest.mark.parametrize(
    ("encoding", "options"), [("sinusoidal", {}), ("rope", {}), ("alibi", {}), ("alibi", {"learned": True})]
)
def test_drawn_positions_are_the_encodings(encoding, options, positions):
    config = replace(CONFIG, encoding=encoding, options=options, positions=positions)
    (x, y), model = tokens(7), Transformer(config)
    whole = ModelEncoding(config)
    whole.slots(N, model.parameters, 3, training=True)  # what `reference_slots` then takes
    exact, gradients = whole.reference_loss_and_grads(model.parameters, x, y)
    loss, ours = model.loss_and_grads(x, y, draw=3)
    assert loss == pytest.approx(exact, rel=1e-12)
    assert ours.keys() == gradients.keys()
    for name, gradient in gradients.items():
        scale = np.abs(gradient).max() + 1e-4
        np.testing.assert_allclose(ours[name], gradient, rtol=0, atol=1e-11 * scale, err_msg=name)
    usual = Transformer(replace(config, positions="usual", train_length=40))
    usual.parameters = model.parameters
    assert np.allclose(model(x), usual(x), rtol=1e-12) == (positions == "pose:40")
    assert loss != pytest.approx(usual.loss(x, y), rel=1e-9)


SEGMENTS = {"positions": "segments:3"}


def test_a_place_beyond_the_table_is_an_error_before_any_work():
    model = Transformer(replace(CONFIG, encoding="learned", positions="coupled:5:0-9:12:reversed"))
    with pytest.raises(
        BeyondTrainingLength, match=r"token 7 of sequence 0 has the position 6 by .* the table has 6 rows$"
    ):
        model([[1, 2, 12, 4, 5, 6, 7, 8]])
    model([[1, 2, 12, 4, 5, 6, 7]])
    model([[1, 2, 12, 4, 5, 6, 7, 8]], lengths=[7])


@pytest.mark.parametrize(
    ("case", "said"),
    [
        ({"vocabulary": None}, "follow from tokens: the model must have a vocabulary"),
        ({"vocabulary": 9}, "must name tokens of 0 .. 8, not 9"),
        ({"positions": "digits:20"}, "must say which tokens are digits, as in 'digits:20:0-9'"),
        ({"positions": "coupled:20"}, "must say which tokens are digits, as in 'coupled:20:0-9:12:reversed'"),
        ({"encoding": "rope"}, "the rule chooses rows of a table, and 'rope' has none"),
        ({**SEGMENTS, "encoding": "learned+alibi", "causal": False}, "'learned+alibi' fills 'bias', not a table"),
        ({**SEGMENTS, "encoding": "alibi", "options": {"learned": True}}, "'alibi' fills 'bias', not a table"),
        (
            {**SEGMENTS, "encoding": "alibi@a,alibi@b", "options": {"alibi@a.factor": 2.0}},
            "'alibi@a,alibi@b' combines 'alibi@a' with 'alibi@b'",
        ),
        ({**SEGMENTS, "encoding": "alibi+fox"}, "'alibi+fox' combines 'alibi' with a gate"),
        ({"encoding": "conv", "positions": "documents:3"}, "'conv' fills 'taps', which cannot restart"),
        ({"encoding": "rope_2d", "positions": "documents:3"}, "'rope_2d' needs several coordinates"),
    ],
)
def test_what_has_no_places_is_refused(case, said):
    with pytest.raises(ValueError, match=re.escape(said)):
        Transformer(replace(CONFIG, **case))


def test_slots_without_tokens_are_refused():
    with pytest.raises(ValueError, match=r"^positions='digits:20:0-9' follow from tokens"):
        ModelEncoding(CONFIG)
