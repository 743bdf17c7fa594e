"""Loss by length and by place, and receptive fields: each beside another way to get it."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from fastpe import ModelConfig, TrainConfig, Transformer, length_curve, receptive_field, train
from fastpe.text.vocabulary import Vocabulary
from fastpe.training import text_metrics
from fastpe.training.length_curve import interval, positions_binned, sliding_losses, tokens_read

CONFIG = ModelConfig(
    "alibi", width=16, heads=2, hidden=24, layers=2, causal=True, vocabulary=11, train_length=8, dtype="float64",
    norm="layernorm",
)  # fmt: skip
TOKENS = np.random.default_rng(0).integers(0, 11, 203)


@pytest.fixture(scope="module")
def model():
    return Transformer(CONFIG)


def one_by_one(model, first, last):
    """The loss of token `last` from those since `first`, with nothing but a call of the model."""
    logits = model(TOKENS[first:last])[-1]
    return float(np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[TOKENS[last]])


def test_blocks_are_read_alone(model):
    curve = length_curve(model, TOKENS, (8, 20))
    for point, length in zip(curve.points, (8, 20), strict=True):
        expected = [one_by_one(model, (i - 1) // length * length, i) for i in range(1, len(TOKENS))]
        assert point.loss == pytest.approx(np.mean(expected), rel=1e-12)
        assert (point.length, point.tokens, point.parts) == (length, 202, math.ceil(202 / length))
        full = np.array(expected[: 202 // length * length]).reshape(-1, length)
        rest = expected[202 // length * length :]
        by_place = [np.mean([*full[:, p], *rest[p : p + 1]]) for p in range(length)]
        np.testing.assert_allclose(curve.by_position[length], by_place, rtol=1e-12)


@pytest.mark.parametrize("stride", [1, 3, 8])
def test_a_sliding_window_gives_every_token_its_context(model, stride):
    found = sliding_losses(model, TOKENS, 8, stride)
    assert found.shape == (202,)
    ends = [8, *range(8 + stride, 202, stride), 202]
    expected, done = [one_by_one(model, 0, i) for i in range(1, 9)], 8
    for end in ends[1:]:
        expected += [one_by_one(model, end - 8, i) for i in range(done + 1, end + 1)]
        done = end
    np.testing.assert_allclose(found, expected, rtol=1e-12)
    curve = length_curve(model, TOKENS, [8], sliding=True, stride=stride)
    assert curve.points[0].loss == pytest.approx(np.mean(expected), rel=1e-12)
    assert curve.by_position == {}


def test_the_interval_of_equal_parts_is_that_of_their_means():
    nats = np.random.default_rng(1).random(60)
    means = nats.reshape(6, 10).mean(axis=1)
    expected = stats.t.interval(0.95, 5, loc=means.mean(), scale=stats.sem(means))
    assert interval(nats, np.arange(0, 60, 10)) == pytest.approx(expected, rel=1e-12)
    assert interval(nats, np.array([0])) == (None, None)


def test_intervals_of_unequal_parts_cover():
    """Nominally 95 % of them have the mean inside, by which all were drawn."""
    rng, inside = np.random.default_rng(2), 0
    for _ in range(400):
        sizes = rng.integers(5, 30, 12)
        nats = np.concatenate([rng.normal(2.0 + rng.normal(0, 0.3), 1.0, size) for size in sizes])
        low, high = interval(nats, np.cumsum([0, *sizes[:-1]]))
        inside += low < 2.0 < high
    assert 0.91 < inside / 400 < 0.98


def test_documents_are_the_parts_where_there_are_some(model):
    curve = length_curve(model, TOKENS, (8,), documents=[0, 50, 120, 203])
    placed = length_curve(model, TOKENS, (8,))
    assert (curve.points[0].parts, curve.points[0].loss) == (3, placed.points[0].loss)
    assert curve.points[0].low != placed.points[0].low
    first = length_curve(model, TOKENS, (8,), documents=[0, 1, 203]).points[0]
    assert (first.parts, first.low) == (1, None)  # of the first token nothing is predicted


@pytest.mark.parametrize("sliding", [False, True])
def test_progress_adds_up_to_the_tokens_that_are_read(model, sliding, monkeypatch):
    monkeypatch.setattr(text_metrics, "_LOGITS", 11 * 40)  # several calls of the model for a length
    read = {8: [], 20: []}
    told = length_curve(model, TOKENS, (8, 20), sliding=sliding, progress=lambda n, tokens: read[n].append(tokens))
    plain = length_curve(model, TOKENS, (8, 20), sliding=sliding)
    assert told.points == plain.points
    for length, tokens in read.items():
        assert tokens[0] == 0
        assert len(tokens) > 3
        assert sum(tokens) == tokens_read(len(TOKENS), length, sliding=sliding)


def test_progress_counts_a_length_that_is_undefined_and_the_blocks_of_a_receptive_field(model):
    read, done = [], []
    short = Transformer(replace(CONFIG, encoding="learned"))
    length_curve(short, TOKENS, (20,), progress=lambda length, tokens: read.append(tokens))
    assert read == [0, tokens_read(len(TOKENS), 20, sliding=False)]
    receptive_field(model, TOKENS, 8, blocks=3, progress=done.append)
    assert done == [1, 2, 3]


def test_places_are_binned_by_doubling():
    binned = positions_binned(np.arange(1.0, 11.0))
    assert [(each["first"], each["last"], each["loss"]) for each in binned] == [
        (1, 1, 1.0), (2, 2, 2.0), (3, 4, 3.5), (5, 8, 6.5), (9, 10, 9.5),
    ]  # fmt: skip


def test_bits_per_byte_where_the_vocabulary_is_known():
    model = Transformer(replace(CONFIG, vocabulary=3))
    model.vocabulary = Vocabulary.of("aé€")
    text = "aé€€éa" * 10
    (point,) = length_curve(model, text, [8]).points
    size = len(text[1:].encode())
    assert point.bits_per_byte == pytest.approx(point.loss * 59 / math.log(2) / size, rel=1e-12)


def test_where_an_encoding_is_undefined_there_is_a_reason():
    curve = length_curve(Transformer(replace(CONFIG, encoding="learned")), TOKENS, (8, 9))
    assert curve.points[0].loss is not None
    assert curve.points[1].loss is None
    assert "'learned' has no row for position 8" in curve.points[1].reason
    facts = curve.to_dict()
    assert (facts["sliding"], list(facts["by_position"]), facts["points"][1]["loss"]) == (False, ["8"], None)


def test_a_run_has_its_own_text(tmp_path):
    (tmp_path / "a.txt").write_text("one two three. " * 40)
    config = TrainConfig(
        "rope", task="text", causal=True, data=tmp_path / "a.txt", task_options={"separator": ". ", "share": 0.3},
        width=8, hidden=8, train_length=6, samples=8, batch=8, epochs=1,
    )  # fmt: skip
    result = train(config, out=tmp_path / "run", progress=False).result
    curve = length_curve(tmp_path / "run")
    assert [point.length for point in curve.points] == [6, 12, 24, 48, 96]
    assert curve.points[0].loss == result["test"]["6"]["loss"]
    assert curve.points[0].bits_per_byte == result["validation"]["bits_per_byte"]
    assert {point.parts for point in curve.points} == {12}  # documents
    assert receptive_field(tmp_path / "run").length == 12


@pytest.mark.parametrize(
    ("arguments", "named", "message"),
    [
        ((TOKENS, (8, 8)), {}, "test_lengths must be 1 to 100 distinct integers"),
        ((TOKENS, (0,)), {}, "test_lengths must be at least 1, not 0"),
        ((TOKENS, (203,)), {}, "test_lengths must be below the 203 tokens of the text, not 203"),
        ((TOKENS, "8"), {}, "test_lengths must be a sequence of integers, not '8'"),
        ((TOKENS[:1],), {}, r"tokens must have the shape \(T,\) with T at least 2, not \(1,\)"),
        ((TOKENS + 1,), {}, r"tokens must lie in \[0, 11\), not 1 .. 11"),
        ((), {}, "tokens must be given, unless model_or_run"),
        (("text",), {}, "tokens must be tokens, not text"),
        ((TOKENS, (8,)), {"stride": 2}, "stride needs sliding=True"),
        ((TOKENS, (8,)), {"stride": 9, "sliding": True}, "stride must be at most the shortest length, 8, not 9"),
        ((TOKENS, (8,)), {"documents": [0, 9]}, "documents must be ascending from 0 to the number of tokens, 203"),
    ],
)
def test_bad_requests(model, arguments, named, message):
    with pytest.raises((ValueError, TypeError), match=message):
        length_curve(model, *arguments, **named)


def test_models_that_predict_no_text():
    for config in (replace(CONFIG, causal=False), replace(CONFIG, vocabulary=None)):
        with pytest.raises(ValueError, match="model must be causal and have a vocabulary"):
            length_curve(Transformer(config), TOKENS)
    with pytest.raises(TypeError, match="model_or_run must be a Transformer or a run folder, not 3"):
        length_curve(3, TOKENS)


# How far back a model looks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [{}, {"tied": True, "bias": False}, {"norm": "rmsnorm", "final_norm": True, "encoding": "rope"},
     {"encoding": "learned", "dropout": 0.5}],
    ids=str,
)  # fmt: skip
def test_a_receptive_field_is_that_of_differences(changes):
    """Of a block of distinct tokens each place has its own row of the table, whose differences are taken."""
    model = Transformer(replace(CONFIG, **changes))
    block = np.random.default_rng(3).permutation(11)[:9]
    field = receptive_field(model, block, 8, blocks=1)
    weights, table, sizes = np.eye(8)[-1], model.parameters["embed.weight"], []
    head = None if "head.weight" in model.parameters else table.copy()
    x, y = block[:-1], block[1:]
    for token in x:
        slopes = []
        for channel in range(16):
            values, kept = [], table[token, channel]
            for step in (1e-6, -1e-6):
                table[token, channel] = kept + step
                values.append(_loss(model, x, y, weights, head))
            table[token, channel] = kept
            slopes.append((values[0] - values[1]) / 2e-6)
        sizes.append(np.linalg.norm(slopes))
    expected = np.array(sizes[::-1]) / np.sum(sizes)
    np.testing.assert_allclose(field.shares, expected, atol=1e-6)
    assert field.distance == np.searchsorted(np.cumsum(expected), 0.99)


def _loss(model, x, y, weights, head):
    """The last loss; of tied weights the head is the table as it was."""
    if head is None:
        return model.loss(x, y, weights=weights)
    untied = Transformer(replace(model.config, tied=False))
    for name, array in untied.parameters.items():
        array[...] = head.T if name == "head.weight" else model.parameters.get(name, 0.0)
    return untied.loss(x, y, weights=weights)


def test_a_receptive_field_is_a_mean_over_blocks(model):
    whole = receptive_field(model, TOKENS, 20, blocks=4)
    starts = np.linspace(0, 182, 4).astype(int)
    parts = [receptive_field(model, TOKENS[start : start + 21], 20, blocks=1).shares for start in starts]
    np.testing.assert_allclose(whole.shares, np.mean(parts, axis=0), rtol=1e-12)
    assert (whole.blocks, whole.length, whole.shares.sum()) == (4, 20, pytest.approx(1.0))
    assert whole.to_dict()["distance"] == whole.distance
    steep = Transformer(replace(CONFIG, options={"slope": 60.0}))
    assert receptive_field(steep, TOKENS, 20).distance == 0


@pytest.mark.parametrize(("encoding", "positions"), [("sinusoidal", "offset:30"), ("rope", "random:30")])
def test_positions_of_a_draw_have_no_receptive_field(encoding, positions):
    with pytest.raises(ValueError, match="model must have positions='usual'"):
        receptive_field(Transformer(replace(CONFIG, encoding=encoding, positions=positions)), TOKENS, 8)


def test_bad_requests_for_a_receptive_field(model):
    with pytest.raises(ValueError, match="length must be below the 203 tokens of the text, not 203"):
        receptive_field(model, TOKENS, 203)
    with pytest.raises(ValueError, match="blocks must be at least 1, not 0"):
        receptive_field(model, TOKENS, 8, blocks=0)
    with pytest.raises(ValueError, match="'learned' has no row for position 8"):
        receptive_field(Transformer(replace(CONFIG, encoding="learned")), TOKENS, 9)
