"""What `fastpe.inspect` measures: models made by hand, whose heads are known, and changes that must change nothing."""

import json

import numpy as np
import pytest
from layer_checks import moved

import fastpe
from fastpe import ModelConfig, Transformer, attention_scores
from fastpe.heads import frequency_share, frequency_use, head_scores, position_share
from fastpe.model.changed import Change, Changed, Means
from fastpe.training.inspection import Call, blocks

T = 8
ROPE = ModelConfig("rope", width=16, heads=2, layers=2, hidden=16, causal=True, vocabulary=11, train_length=24)
TOKENS = np.random.default_rng(0).integers(0, 11, 400)
SMALL = {"lengths": [24, 48], "samples": 4, "sequences": 4}


def hand_made(beta, gamma):
    """Two layers: the first attends to the previous token by a bias and copies it, the second looks for equal ones."""
    config = ModelConfig(
        "t5,nope", width=2 * (T + 1), heads=1, layers=2, hidden=4, causal=True, vocabulary=T + 1, train_length=32,
        dtype="float64",
    )  # fmt: skip
    model, one = Transformer(config), np.eye(T + 1)
    for parameter in model.parameters.values():
        parameter[...] = 0
    model.parameters["embed.weight"][:, : T + 1] = one
    model.parameters["encoding.t5.table"][1] = beta
    model.parameters["layers.0.attention.value.weight"][: T + 1, : T + 1] = one
    model.parameters["layers.0.attention.out.weight"][: T + 1, T + 1 :] = one
    model.parameters["layers.1.attention.query.weight"][: T + 1, : T + 1] = gamma * config.width**0.5 * one
    model.parameters["layers.1.attention.key.weight"][T + 1 :, : T + 1] = one
    return model


@pytest.mark.parametrize(
    ("beta", "gamma", "previous", "induction", "matching", "last"),
    [(4, 8, 0.8188, 0.4658, 0.9898, 0.9825), (8, 16, 0.9385, 0.4706, 1.0, 1.0)],
)
def test_an_induction_head_made_by_hand(beta, gamma, previous, induction, matching, last):
    tokens = np.array([[T, *range(T), *range(T)]])
    n, found, rows = tokens.shape[1], [], []

    def watch(*call):
        found.append(head_scores(blocks(Call(*call), "weights"), tokens))
        rows.append(np.concatenate(list(blocks(Call(*call), "weights")), axis=2))

    Changed(hand_made(beta, gamma)).watched(tokens, watch)
    weights = rows[0][0, 0]
    for i in range(1, 5):
        assert weights[i, i - 1] == pytest.approx(np.exp(beta) / (np.exp(beta) + i), rel=1e-12)
    # TransformerLens divides by the weights of all n queries, and here T of them have an earlier copy
    assert found[0]["previous"].item() * (n - 1) / n == pytest.approx(previous, abs=5e-5)
    assert found[1]["induction"].item() * T / n == pytest.approx(induction, abs=5e-5)
    assert found[1]["induction"].item() == pytest.approx(matching, abs=5e-5)
    assert rows[1][0, 0, -1, T + 1] == pytest.approx(last, abs=5e-5)


def test_inspect_finds_the_induction_head():
    found = fastpe.inspect(hand_made(8, 16), samples=2)
    assert found.scores["previous"][0, 0] > 0.9
    assert found.scores["induction"][:, 0] == pytest.approx([0, 1], abs=0.1)
    assert found.equal["induction"] < 0.2
    assert found.curves == ()
    assert "no curves" in found.notes[0]


HEADS = {
    "previous": ([0, *range(15)], 0.9375, 0, 0, 0, 0.9375, 0.0667),
    "induction": ([0] * T + [*range(1, T + 1)], 0.0625, 0, 0.5, 1, 5.25, 0.4667),
    "duplicate": ([0] * T + [*range(T)], 0.0625, 0.5, 0, 0.1111, 5.75, 0.5333),
}


@pytest.mark.parametrize("name", [*HEADS, "uniform"])
def test_the_table_of_check_values(name):
    """The table divides by all 16 queries; `head_scores` leaves out the first, and queries without an earlier copy."""
    if name == "uniform":
        weights = np.tril(np.ones((16, 16))) / np.arange(1, 17)[:, None]
        previous, duplicate, induction, stripe, distance, sink = 0.1488, 0.0414, 0.0414, 0.0875, 3.75, 0.1587
    else:
        targets, previous, duplicate, induction, stripe, distance, sink = HEADS[name]
        weights = np.eye(16)[targets]
    tokens = np.tile(np.arange(T), 2)[None]
    found = {key: value.item() for key, value in head_scores([weights[None, None]], tokens).items()}
    table = [found[key] * share for key, share in (("previous", 15 / 16), ("duplicate", 0.5), ("induction", 0.5))]
    assert table == pytest.approx([previous, duplicate, induction], abs=5e-5)
    assert np.mean([weights[i, i - T + 1] for i in range(T - 1, 2 * T)]) == pytest.approx(stripe, abs=5e-5)
    assert found["distance"] * 15 / 16 == pytest.approx(distance)
    assert found["sink"] == pytest.approx(sink, abs=5e-5)
    whole = np.log(np.arange(2, 17)).mean()
    assert found["entropy"] / whole == pytest.approx(1 if name == "uniform" else 0)


def looking_back(frequencies, strength, keys):
    """Weights of the last of `keys` queries, by distance; each frequency looks one back."""
    frequencies = np.asarray(frequencies, float)
    angles = (np.arange(keys)[:, None] * frequencies)[None]
    k = np.tile([1.0, 0.0], (1, 1, keys, len(frequencies)))
    turned = np.stack([np.cos(-frequencies), np.sin(-frequencies)], axis=-1).ravel()
    q = np.broadcast_to(strength * turned, k.shape)
    return q, k, angles, attention_scores(q, k, causal=True, angles=angles, scale=1.0)[0, 0, -1][::-1]


def test_a_single_frequency_is_no_previous_token_head():
    *_, at = looking_back([1.0], 100, 200)
    assert 100 * (1 - np.cos(1)) == pytest.approx(45.97, abs=5e-3)
    assert at[[1, 45, 89]] == pytest.approx([0.1233, 0.1213, 0.1158], abs=5e-5)
    assert looking_back([1.0], 100, 44)[-1][1] == pytest.approx(0.5655, abs=5e-5)
    assert looking_back([1.0], 100, 1000)[-1][1] == pytest.approx(0.0251, abs=5e-5)
    assert looking_back([1.0, 0.1], 50, 200)[-1][[1, 64]] == pytest.approx([0.6435, 0.3157], abs=5e-5)
    eight = looking_back(10000.0 ** (-np.arange(8) / 8), 12.5, 200)[-1]
    assert eight[:3] == pytest.approx([0.0016, 0.9968, 0.0016], abs=5e-5)


def test_constant_queries_and_keys_are_explained_by_position():
    q, k, angles, _ = looking_back([1.0, 0.1], 1.0, 40)
    scores = attention_scores(q, k, causal=True, angles=angles, stage="masked")
    assert position_share([scores]) == pytest.approx([1.0])
    assert position_share([scores[:, :, :7, :7], scores[:, :, 7:]]) == pytest.approx([1.0])


def test_use_and_share_of_the_only_pair_that_is_used():
    rng = np.random.default_rng(0)
    q = np.zeros((2, 1, 12, 8))
    q[..., 4:6] = rng.normal(size=(2, 1, 12, 2))
    q[..., 4:6] /= np.linalg.norm(q[..., 4:6], axis=-1, keepdims=True)
    angles = np.arange(12.0)[None, :, None] * 10.0 ** -np.arange(4)
    scores = attention_scores(q, q, causal=True, angles=angles, scale=1.0, stage="masked")
    turned = fastpe.rotate(q, angles)
    assert frequency_use(q, q, rotated=8, scale=1.0)[0] == pytest.approx([0, 0, 1, 0])
    assert frequency_share(turned, turned, [scores], rotated=8, scale=1.0)[0] == pytest.approx([0, 0, 1, 0])


def test_the_share_is_the_ratio_of_variances():
    rng = np.random.default_rng(1)
    q, k = rng.normal(size=(2, 4, 9, 8)), rng.normal(size=(2, 2, 9, 8))
    whole = attention_scores(q, k, causal=True, stage="masked")
    for pairs in ("interleaved", "half"):
        parts = frequency_share(q, k, [whole[:, :, :5, :5], whole[:, :, 5:]], rotated=6, pairs=pairs)
        channels = [1, 4] if pairs == "half" else [2, 3]
        part = q[:, :, :, channels] @ k.repeat(2, axis=1)[:, :, :, channels].mT / 8**0.5
        rows = [(part[:, :, i, : i + 1].var(-1).sum(0), whole[:, :, i, : i + 1].var(-1).sum(0)) for i in range(9)]
        expected = sum(own for own, _ in rows) / sum(own for _, own in rows)
        assert parts[:, 1] == pytest.approx(expected)


def test_without_positions_distance_explains_nothing():
    config = ModelConfig("nope", width=16, heads=2, layers=1, hidden=16, causal=True, vocabulary=50, train_length=64)
    found = fastpe.inspect(Transformer(config), np.random.default_rng(0).integers(0, 50, 4000), changes=())
    assert (found.position < 0.06).all()
    assert found.frequency_use is None


def test_layers_without_rotations_use_no_frequencies():
    model = Transformer(ModelConfig(**{**vars(ROPE), "encoding": "nope,rope"}))
    found = fastpe.inspect(model, TOKENS, changes=(), **SMALL)
    assert np.isnan(found.frequency_share[0]).all()
    assert not np.isnan(found.frequency_share[1]).any()
    assert found.wavelengths == pytest.approx(2 * np.pi * 10000.0 ** (np.arange(4) / 4))


@pytest.mark.parametrize(
    ("encoding", "change"),
    [
        ("nope", "drop"), ("rope", "swap:rope"), ("alibi", "swap:alibi"), ("rope", "pair:1=1"), ("rope", "slower:9=1"),
        ("rope", "near:60"), ("rope", "shift:0"),
    ],
)  # fmt: skip
def test_a_change_of_nothing_changes_no_bit(encoding, change):
    model = Transformer(ModelConfig(**{**vars(ROPE), "encoding": encoding}))
    x = TOKENS[:120].reshape(4, 30)
    assert (Changed(model, change)(x) == Changed(model)(x)).all()


@pytest.mark.parametrize("how", ["", "=zero"])
def test_a_head_without_output_can_be_removed(how):
    model, means = Transformer(ROPE), Means()
    for name in ("weight", "bias"):
        model.parameters[f"layers.1.attention.value.{name}"][..., 8:] = 0  # of head 1
    x = TOKENS[:240].reshape(8, 30)
    expected = Changed(model, record=means)(x)
    assert (Changed(model, f"head:1.1{how}", means=means)(x) == expected).all()
    assert (Changed(model, f"head:1.0{how}", means=means)(x) != expected).any()


def test_the_mean_of_a_head_is_the_mean_at_each_place():
    model, means, seen = Transformer(ROPE), Means(), {}
    x = TOKENS[:240].reshape(8, 30)
    Changed(model, record=means)(x)
    Changed(model).watched(x, lambda layer, q, k, v, options: seen.setdefault(layer, (q, k, v, options)))
    q, k, v, options = seen[1]
    out = fastpe.reference.attention(q, k, v, **options)
    np.testing.assert_allclose(means.of(1, 1, 30), out[:, 1].mean(axis=0), atol=1e-6)


@pytest.mark.parametrize("encoding", ["rope", "alibi", "t5", "xpos", "rope+fox"])
def test_a_shift_changes_nothing_for_relative_encodings(encoding):
    model = moved(ModelConfig(**{**vars(ROPE), "encoding": encoding, "dtype": "float64"}))
    x = TOKENS[:60].reshape(2, 30)
    np.testing.assert_allclose(Changed(model, "shift:17")(x), Changed(model)(x), rtol=1e-7, atol=1e-9)


def test_a_shift_changes_absolute_positions():
    model = Transformer(ModelConfig(**{**vars(ROPE), "encoding": "sinusoidal"}))
    x = TOKENS[:60].reshape(2, 30)
    assert np.abs(Changed(model, "shift:17")(x) - Changed(model)(x)).max() > 1e-3


@pytest.mark.parametrize("encoding", ["rope", "sinusoidal", "alibi", "rope+fox", "pope"])
def test_an_unchanged_model_is_the_model(encoding):
    model = moved(ModelConfig(**{**vars(ROPE), "encoding": encoding, "dtype": "float64"}))
    x = TOKENS[:60].reshape(2, 30)
    np.testing.assert_allclose(Changed(model)(x), model(x), rtol=1e-9, atol=1e-11)


def test_a_swapped_encoding_is_that_of_another_model():
    options, x = {"pairs": "half"}, TOKENS[:60].reshape(2, 30)
    model = Transformer(ModelConfig(**{**vars(ROPE), "options": options, "encoding_length": 6}))
    other = Transformer(ModelConfig(**{**vars(model.config), "encoding": "rope_yarn"}))
    other.parameters = dict(model.parameters)
    assert (Changed(model, "swap:rope_yarn")(x) == Changed(other)(x)).all()
    assert (Changed(model, "swap:rope_yarn")(x) != Changed(model)(x)).any()


def test_dropped_positions_are_those_of_a_model_without_encoding():
    model = Transformer(ROPE)
    bare = Transformer(ModelConfig(**{**vars(ROPE), "encoding": "nope"}))
    bare.parameters = dict(model.parameters)
    x = TOKENS[:60].reshape(2, 30)
    assert (Changed(model, "drop")(x) == Changed(bare)(x)).all()
    every = Changed(model, "pair:0,1,2,3=still")(x)
    np.testing.assert_allclose(every, Changed(bare)(x), atol=1e-6)


def test_a_removed_pair_is_not_in_the_score():
    model, x, seen = Transformer(ROPE), TOKENS[:30][None], []
    Changed(model, "pair:1").watched(x, lambda layer, q, k, v, options: seen.append((q, k)))
    q, k = seen[0]
    assert (q[..., 2:4] == 0).all()
    assert frequency_use(q, k, rotated=8)[:, 1] == pytest.approx([0, 0])
    assert Change.parse("slower:10").what == 10


@pytest.mark.parametrize("change", ["pair:1", "slower:1"])
def test_a_change_of_pairs_leaves_layers_without_rotations_as_they_are(change):
    model, x, seen = Transformer(ModelConfig(**{**vars(ROPE), "encoding": "nope,rope"})), TOKENS[:30][None], {}
    for name in ("", change):
        Changed(model, name).watched(x, lambda layer, q, k, v, options, n=name: seen.update({(n, layer): q}))
    assert (seen["", 0] == seen[change, 0]).all()
    assert (seen["", 1] != seen[change, 1]).any()
    assert Changed(model, "pair:1").marked().tolist() == [False, True, False, False]


def test_sequences_that_do_not_fit_into_one_pass(monkeypatch):
    from fastpe.model import by_layer
    from fastpe.training import inspection  # their limit is changed

    whole = fastpe.inspect(Transformer(ROPE), TOKENS, changes=(), **SMALL)
    for module in (by_layer, inspection):
        monkeypatch.setattr(module, "MOST", 24 * 64 * 2)
    parts = fastpe.inspect(Transformer(ROPE), TOKENS, changes=(), **SMALL)
    for name, values in whole.repeated.items():
        np.testing.assert_allclose(parts.repeated[name], values, rtol=1e-5)


def test_no_wavelengths_where_layers_or_heads_differ():
    for encoding, options in (("rope@a,rope@b", {"rope@b.base": 100.0}), ("ms_poe", {})):
        own = {**vars(ROPE), "encoding": encoding, "options": options}
        assert fastpe.inspect(Transformer(ModelConfig(**own)), TOKENS, changes=(), **SMALL).wavelengths is None


def test_blocks_of_queries_are_the_whole(monkeypatch):
    from fastpe.training import inspection  # its limit is changed

    for encoding in ("rope+fox", "shaw", "fire", "xpos", "cope", "path", "temperature+alibi"):
        config = {**vars(ROPE), "encoding": encoding, "dtype": "float64"}
        seen = []
        Changed(moved(ModelConfig(**config))).watched(
            TOKENS[:40].reshape(2, 20), lambda *own, s=seen: s.append(Call(*own))
        )
        (whole,) = blocks(seen[1], "weights")
        monkeypatch.setattr(inspection, "_CELLS", 7 * 2 * 2 * 20)
        parts = list(blocks(seen[1], "weights"))
        monkeypatch.undo()
        assert [each.shape[2:] for each in parts] == [(7, 7), (7, 14), (6, 20)]
        for part, first in zip(parts, (0, 7, 14), strict=True):
            own = whole[:, :, first : first + part.shape[2], : part.shape[3]]
            np.testing.assert_allclose(part, own, rtol=1e-9, atol=1e-12)


def test_an_inspection_of_a_text_model():
    found = fastpe.inspect(Transformer(ROPE), TOKENS, greedy=2, **SMALL)
    assert found.maps.shape == (2, 2, 24, 24)
    np.testing.assert_allclose(found.maps.sum(axis=-1), 1, atol=1e-6)
    assert (found.output > 0).all()
    np.testing.assert_allclose(found.by_distance[..., 0], np.diagonal(found.maps, axis1=2, axis2=3).mean(-1), atol=0.2)
    changes = [(curve.change, bool(curve.control)) for curve in found.curves]
    assert changes[:4] == [("", False), ("drop", False), ("shift:24", False), ("near:23", False)]
    assert found.curves[0].values("loss")["24"] == pytest.approx(found.curves[2].values("loss")["24"], rel=1e-5)
    assert found.curves[0].values("loss")["24"] == pytest.approx(found.curves[3].values("loss")["24"], rel=1e-6)
    assert [curve.control for curve in found.curves[-2:]] == ["greedy", "greedy"]
    assert len(Change.parse(found.curves[-1].change).what) == 2
    controls = [curve for curve in found.curves if curve.control.startswith("head")]
    assert controls
    assert all(curve.change not in (curve.control, "") for curve in controls)
    json.dumps(found.to_dict(), allow_nan=False)


def test_an_inspection_of_a_task_and_of_numbers():
    model = Transformer(ModelConfig("alibi", width=8, heads=2, hidden=8, causal=True, vocabulary=6, train_length=20))
    found = fastpe.inspect(model, task="reverse", changes=["drop", "head:0.1"], lengths=[9, 18], sequences=6, samples=3)
    assert found.metric == "exact"
    assert found.words[0] == "begin"
    assert set(found.curves[0].test) == {"9", "18"}
    assert not np.isnan(found.scores["induction"]).any()
    numbers = Transformer(ModelConfig("alibi", width=8, heads=2, hidden=8, causal=True, train_length=20))
    found = fastpe.inspect(numbers, task="running_sum", changes=[], lengths=[20], sequences=6, samples=3)
    assert np.isnan(found.scores["induction"]).all()
    assert found.curves[0].values("mse")["20"] > 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("head:2.0", "must name a head of the model, which has 2 layers of 2 heads"), ("head:0", "one of the forms"),
        ("pair:4", "a pair below 4"), ("swap:alibi", "cannot swap 'rope', which fills angles"), ("pair:0=x", "forms"),
        ("drop:1", "one of the forms"), ("slower:-1", "one of the forms"), ("near:", "forms"), ("swap:none", "none"),
        ("head:0.0=still", "one of the forms"), ("nothing", "one of the forms"),
    ],
)  # fmt: skip
def test_wrong_changes(change, message):
    with pytest.raises(ValueError, match=message):
        fastpe.inspect(Transformer(ROPE), TOKENS, changes=[change], **SMALL)


@pytest.mark.parametrize(
    ("own", "options", "message"),
    [
        ({"causal": False}, {}, "must be causal"),
        ({"encoding": "sinusoidal", "positions": "offset:50"}, {}, "usual positions"),
        ({"encoding": "alibi"}, {"changes": ["pair:0"]}, "rotates queries and keys, not 'alibi'"),
        ({}, {"length": 3}, "length must be"), ({}, {"samples": 0}, "samples must be"),
        ({}, {"task": "reverse"}, "task cannot be combined with tokens"),
        ({}, {"task_options": {"symbols": 3}}, "task_options need task"), ({}, {"lengths": []}, "at least one length"),
        ({}, {"lengths": [0]}, "lengths must be"),
    ],
)  # fmt: skip
def test_wrong_models_and_arguments(own, options, message):
    with pytest.raises(ValueError, match=message):
        fastpe.inspect(Transformer(ModelConfig(**{**vars(ROPE), **own})), TOKENS, **options)


def test_a_tied_model_is_read_on_a_task():
    tied = {"width": 8, "hidden": 8, "heads": 2, "causal": True, "vocabulary": 6, "train_length": 20, "tied": True}
    found = fastpe.inspect(
        Transformer(ModelConfig("alibi", **tied)), task="reverse", changes=(), lengths=[9], sequences=6, samples=3
    )
    assert set(found.curves[0].test) == {"9"}


def test_changes_need_sequences():
    with pytest.raises(ValueError, match="changes need test sequences"):
        fastpe.inspect(Transformer(ROPE), changes=["drop"])
    with pytest.raises(ValueError, match="task must be one of the model's 11 tokens, not 6"):
        fastpe.inspect(Transformer(ROPE), task="reverse")
    with pytest.raises(TypeError, match="model_or_run must be"):
        fastpe.inspect(3)
    with pytest.raises(ValueError, match="model with bands was made from"):
        fastpe.inspect(fastpe.Banded(Transformer(ROPE), "rerope:window=9"))
