"""Constants of models from their own weights: nothing measured is ever beyond them, with any slot."""

import math

import numpy as np
import pytest
from pullbacks import jacobian as by_differences

from fastpe import ModelConfig, Transformer, reference
from fastpe.theory.jacobian import attention_jacobian, entry_norms, largest_jacobian
from fastpe.theory.lipschitz import stack_bounds
from fastpe.theory.model_lipschitz import layers_of, model_bounds, slots_of, spectral_norm, weights_of

SMALL = {"width": 8, "heads": 2, "hidden": 8, "train_length": 4}
KINDS = [
    ("nope", {}), ("sinusoidal", {}), ("learned", {"vocabulary": 7}), ("conv", {}), ("alibi", {"causal": True}),
    ("rope", {}), ("rope_yarn", {}), ("xpos", {"causal": True}), ("shaw", {}), ("deberta", {}), ("huang1", {}),
    ("huang3", {}), ("huang4", {}), ("da", {}), ("t5", {}), ("tener", {}), ("transformer_xl", {}), ("li_eq5", {}),
    ("sincos_2d_detr", {}), ("swin_bias", {}), ("shaw+alibi", {"causal": True}),
    ("rope,nope", {}), ("ssmax", {"causal": True}), ("rope+ssmax", {}), ("fope", {}), ("comrope", {}), ("string", {}),
    ("comrope,nope", {}), ("pope", {}), ("pope+ssmax", {"causal": True}),
]  # fmt: skip


def drawn(name, seed=0, loud=1.0, **settings):
    """A model whose parameters are all random, biases and those of its encoding too."""
    model = Transformer(ModelConfig(name, **{**SMALL, **settings, "dtype": "float64"}))
    rng = np.random.default_rng(seed)
    for each in model.parameters.values():
        each[...] = loud * rng.normal(size=each.shape) / math.sqrt(each.shape[0])
    return model


def inputs(model, batch=2):
    rng, length = np.random.default_rng(1), model.config.train_length
    if model.config.vocabulary:
        return rng.integers(0, model.config.vocabulary, (batch, length))
    return rng.normal(size=(batch, length))


def projections_of(model, number, length):
    """Queries, keys and values (H, N, D) of a layer as functions of rows (N, C), and its slots of attention."""
    config, weights, slots = model.config, weights_of(model), slots_of(model, length)[number]
    slots = {name: each for name, each in slots.items() if name not in ("table", "taps")}
    shift = slots.pop("qk_table", 0.0)

    def project(name, z):
        prefix = f"layers.{number}.attention.{name}"
        own = z if name == "value" else z + shift
        mapped = own @ weights[f"{prefix}.weight"] + weights.get(f"{prefix}.bias", 0.0)
        return mapped.reshape(length, config.heads, -1).transpose(1, 0, 2)

    return (lambda z: [project(name, z) for name in ("query", "key", "value")]), slots


def attention_of(model, number, length):
    """A layer's attention without its residual path, as a function of rows (N, C), in float64."""
    weights, prefix = weights_of(model), f"layers.{number}.attention.out"
    project, slots = projections_of(model, number, length)

    def run(z):
        mixed = reference.attention(*project(z), causal=model.config.causal, **slots)
        mixed = mixed.transpose(1, 0, 2).reshape(length, -1)
        return mixed @ weights[f"{prefix}.weight"] + weights.get(f"{prefix}.bias", 0.0)

    return run


def scores_of(model, length):
    """All scores (H, N, N) of the first layer as a function of rows: what is left of a softmax of one key."""
    project, slots = projections_of(model, 0, length)
    own = slots.pop("scores", np.zeros((model.config.heads, length, length)))

    def run(z):
        columns = []
        for key in range(length):
            one = np.full((length, length), -1e30)
            one[:, key] = 0.0
            columns.append(reference.attention(*project(z), return_lse=True, scores=own + one, **slots)[1])
        return np.stack(columns, axis=-1)

    return run


@pytest.mark.parametrize(("name", "settings"), KINDS)
@pytest.mark.parametrize("loud", [0.3, 2.0])
def test_attention_with_every_slot_stays_below_its_constant(name, settings, loud):
    model = drawn(name, loud=loud, **settings)
    length = model.config.train_length
    z = np.random.default_rng(2).normal(size=(length, model.config.width))
    radius = np.linalg.norm(z, axis=1).max()
    for number, layer in enumerate(layers_of(model, length)):
        run = attention_of(model, number, length)
        jacobian = by_differences(run, z)
        blocks = np.linalg.norm(jacobian.transpose(0, 2, 1, 3), 2, axis=(2, 3)).sum(axis=1).max()
        constant = layer.out * math.hypot(*(sum(head.slopes(radius)) for head in layer.heads))
        assert blocks <= constant * (1 + 1e-5)
        size = np.linalg.norm(run(z), axis=1).max()
        mixed = layer.out * math.hypot(*(head.value * radius + head.added for head in layer.heads))
        assert size <= mixed + layer.out_bias


UNEVEN = {"rope", "huang1", "huang2", "huang3", "da"}


@pytest.mark.parametrize("part", ["query.bias", "key.bias", "encoding.", "weight"])
@pytest.mark.parametrize(
    "name", ["nope", "deberta", "transformer_xl", "tener", "shaw", "learned_2d_detr", "t5", *sorted(UNEVEN)]
)
def test_scores_move_as_their_head_says(name, part):
    """One part of the parameters is much larger than the rest, so that no term can be missing."""
    length, radius = 4, 0.7
    model = drawn(name, layers=1)
    for key, each in model.parameters.items():
        each *= 8.0 if part in key and "norm" not in key else 0.2
        if "key.bias" in key and name not in UNEVEN:
            each *= 0.0  # the same for all keys, it does not count
    run, heads = scores_of(model, length), layers_of(model, length)[0].heads
    z = np.random.default_rng(4).normal(size=(length, model.config.width))
    z *= radius / np.linalg.norm(z, axis=1, keepdims=True)
    moves = np.linalg.norm(by_differences(run, z), axis=-1)  # (H, query, key, token)
    for own, head in zip(moves, heads, strict=True):
        _, of_key, of_query = np.array(head.slopes(radius)) / (head.value * radius + head.added)
        for query, key in np.ndindex(length, length):
            if query != key:
                assert own[query, key, key] <= of_key * (1 + 1e-5) + 1e-8
                assert own[query, key, query] <= of_query * (1 + 1e-5) + 1e-8


@pytest.mark.parametrize("part", ["value.bias", "out.bias", "in.bias", "taps", "table", "feedforward.out"])
def test_radii_hold_where_one_part_is_large(part):
    for name in ("conv", "learned"):
        model = drawn(name)
        for key, each in model.parameters.items():
            each *= 30.0 if part in key else 0.3
        x = inputs(model)
        bounds = model_bounds(model, x.shape[1], largest_input=float(np.abs(x).max()))
        assert np.all(entry_norms(model, x) <= np.array(bounds.stack.radii[:-1]) * (1 + 1e-12))


def test_constants_of_the_embedding_and_of_the_head():
    model = drawn("conv", norm="layernorm", final_norm=True)
    gain = np.abs(model.parameters["final_norm.weight"]).max()
    head = np.linalg.norm(model.parameters["head.weight"])
    bounds = model_bounds(model, 4)
    assert bounds.leave.value == pytest.approx(head * gain / math.sqrt(1e-5))
    taps = 1 + np.abs(slots_of(model, 4)[0]["taps"]).max(axis=1).sum()
    assert bounds.enter.value == pytest.approx(taps * np.linalg.norm(model.parameters["embed.weight"]))


def test_each_slot_adds_its_term_to_the_constants_of_a_head():
    """Proof P5, slot by slot: tables, biases and rotations nothing; Shaw's keys V R |WQ| B_r / sqrt dk, and so on."""
    settings = {"width": 8, "heads": 1, "hidden": 8, "train_length": 6, "dtype": "float64", "layers": 1, "bias": False}

    def head(name, **more):
        model = Transformer(ModelConfig(name, **{**settings, **more}))
        return model, layers_of(model, 6)[0].heads[0]

    _, plain = head("nope")
    for name in ("sinusoidal", "alibi", "kerple_log", "fire", "sandwich", "conv"):
        assert head(name, causal=True)[1] == plain
    model, shaw = head("shaw")
    rows = slots_of(model, 6)[0]
    query = spectral_norm(model.parameters["layers.0.attention.query.weight"])
    assert shaw.query == pytest.approx(query * np.linalg.norm(rows["rel_key"], axis=-1).max() / math.sqrt(8))
    assert shaw.added == pytest.approx(np.linalg.norm(rows["rel_value"], axis=-1).max())
    assert (shaw.score, shaw.key) == (plain.score, 0.0)
    model, xpos = head("xpos", causal=True)
    growth = slots_of(model, 6)[0]["growth"]
    factor = max(math.exp((growth[i] - growth[j]).max()) for i in range(6) for j in range(i + 1))
    _, rope = head("rope")
    assert xpos.score == pytest.approx(rope.score * max(1.0, factor))
    assert rope.score >= plain.score
    assert head("t5")[1].score == pytest.approx(plain.score * math.sqrt(8))  # T5 does not divide by sqrt dk
    model, _ = head("huang1")
    for key, each in model.parameters.items():
        each[...] = -3.0 if "encoding" in key else each
    assert layers_of(model, 6)[0].heads[0].score == pytest.approx(3 * plain.score)


def test_rotations_need_the_norms_of_both_maps():
    """|WQ WK^T| alone is no bound where channels turn: here it is 0, and attention depends on content all the same."""
    model = Transformer(ModelConfig("rope", width=2, heads=1, hidden=2, layers=1, train_length=4, dtype="float64"))
    for name in ("query", "key"):
        model.parameters[f"layers.0.attention.{name}.weight"][...] = 0.0
        model.parameters[f"layers.0.attention.{name}.bias"][...] = 0.0
    model.parameters["layers.0.attention.query.weight"][0, 0] = 1.0
    model.parameters["layers.0.attention.key.weight"][0, 1] = 1.0
    query, key = (model.parameters[f"layers.0.attention.{name}.weight"] for name in ("query", "key"))
    assert not (query @ key.T).any()
    z = np.array([[1.0, 0.0], [2.0, 1.0], [-1.0, 3.0], [3.0, 0.5]])
    run = attention_of(model, 0, 4)
    assert np.abs(run(z * [5.0, 1.0]) - run(z)).max() > 0.1
    assert layers_of(model, 4)[0].heads[0].score == pytest.approx(1 / math.sqrt(2))


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("sinusoidal", {}), ("shaw", {"causal": True}), ("conv", {}), ("rope,nope", {}),
        ("alibi", {"norm": "layernorm", "final_norm": True}), ("rope", {"norm": "rmsnorm", "bias": False}),
        ("learned", {"vocabulary": 9, "tied": True}), ("nope", {"vocabulary": 9, "activation": "swiglu"}),
        ("wavelet", {"activation": "gelu", "residual": False}), ("t5", {"activation": "gelu_tanh"}),
    ],
)  # fmt: skip
def test_models_stay_below_their_constants(name, settings):
    model = drawn(name, **settings)
    x = inputs(model)
    length = x.shape[1]
    largest = 1.0 if model.config.vocabulary else float(np.abs(x).max())
    bounds, norms = model_bounds(model, length, largest_input=largest), entry_norms(model, x)
    assert np.all(norms <= np.array(bounds.stack.radii[:-1]) * (1 + 1e-12))
    measured = largest_jacobian(model, x)
    local = stack_bounds(layers_of(model, length), norms)
    assert local.product.value <= bounds.stack.product.value * (1 + 1e-12)
    assert 0.0 < measured["token"].low <= local.product.value * bounds.leave.value
    wide = model_bounds(model, length, largest_input=largest, colmax=float(length))
    assert 0.0 < measured["frobenius"].low <= wide.stack.product.value * wide.leave.value
    assert wide.stack.norm == "frobenius"
    if model.config.vocabulary:
        assert bounds.enter is None
        return
    # between any two inputs of that size, the token norm of the outputs changes by at most the whole constant
    other = x + 0.3 * (np.random.default_rng(3).uniform(-largest, largest, x.shape) - x)
    change = np.abs(model(x) - model(other)).max()
    assert change <= bounds.whole.value * np.abs(x - other).max()


def test_spectral_norm_is_numpys():
    rng = np.random.default_rng(0)
    for shape in ((3, 5), (5, 3), (1, 4), (4, 1), (1, 1)):
        matrix = rng.normal(size=shape) * 1e-200
        assert spectral_norm(matrix) == pytest.approx(np.linalg.norm(matrix, 2), rel=1e-12)
    assert spectral_norm(np.zeros((2, 3))) == 0.0


@pytest.mark.full("takes seconds")
def test_measured_slope_is_that_of_differences():
    for name, settings in (("shaw", {}), ("rope,nope", {"causal": True}), ("alibi", {"norm": "layernorm"})):
        model = drawn(name, **settings)
        x = inputs(model, 1)
        weights, slots = weights_of(model), slots_of(model, x.shape[1])
        base = x[0][:, None] * weights["embed.weight"] + weights["embed.bias"]

        def run(z, model=model, weights=weights, slots=slots):
            zero = {**weights, "embed.weight": 0 * weights["embed.weight"], "embed.bias": 0 * weights["embed.bias"]}
            rows = [{**slots[0], "table": z}, *slots[1:]]
            return reference.model_forward(model.config, zero, rows, np.zeros((1, len(z))))[0]

        jacobian = by_differences(run, base).reshape(len(base), -1)
        found = largest_jacobian(model, x, iterations=60)
        assert found["frobenius"].value == pytest.approx(np.linalg.norm(jacobian, 2), rel=1e-3)
        assert found["frobenius"].value <= np.linalg.norm(jacobian, 2) * (1 + 1e-7)
        tokens = np.linalg.norm(jacobian.reshape(len(base), *base.shape), axis=-1).sum(axis=1).max()
        assert found["token"].value == pytest.approx(tokens, rel=1e-6)
        assert found["frobenius"].high is None


def test_entry_norms_are_those_of_the_rows():
    model = drawn("sinusoidal", layers=1)
    x = inputs(model)
    weights = weights_of(model)
    rows = x[..., None] * weights["embed.weight"] + weights["embed.bias"] + slots_of(model, 4)[0]["table"]
    assert entry_norms(model, x) == pytest.approx([np.linalg.norm(rows, axis=-1).max()])


def test_layers_of_a_pattern_have_their_own_slots():
    rotated, plain = slots_of(drawn("rope,nope"), 4)
    assert "angles" in rotated
    assert "angles" not in plain


def test_a_long_sequence_needs_little_memory():
    import tracemalloc

    model = drawn("alibi")
    tracemalloc.start()
    model_bounds(model, 2**14)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100e6


def test_constants_of_a_saved_model(tmp_path):
    model = drawn("alibi")
    model.save(tmp_path / "model.safetensors")
    assert layers_of(tmp_path / "model.safetensors", 6) == layers_of(model, 6)


def test_constants_of_a_single_position():
    model = drawn("shaw")
    assert model_bounds(model, 1).whole.high > 0
    assert largest_jacobian(model, [0.5])["token"].low > 0
    assert attention_jacobian(np.ones((1, 2)), np.eye(2)).reshape(2, 2).tolist() == np.eye(2).tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: largest_jacobian(drawn("nope"), np.ones((2, 3, 4))), r"x must have shape \(B, N\)"),
        (lambda: largest_jacobian(drawn("nope"), [np.nan]), "x must be finite"),
        (lambda: largest_jacobian(drawn("nope", vocabulary=5), [0, 5]), r"tokens, integers in \[0, 5\)"),
        (lambda: largest_jacobian(drawn("nope"), np.ones((1, 8192))), "at most 2\\*\\*24"),
        (lambda: largest_jacobian(drawn("nope"), [1.0], iterations=0), "iterations must be at least 1"),
        (lambda: model_bounds(drawn("nope"), 0), "length must be at least 1"),
        (lambda: model_bounds(drawn("nope"), 4, largest_input=-1.0), "largest_input must be at least 0"),
        (
            lambda: layers_of(drawn("sinusoidal", positions="random:40"), 4),
            "model must have positions='usual', not 'random:40'",
        ),
        (lambda: layers_of(drawn("learned"), 7), "learned"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
