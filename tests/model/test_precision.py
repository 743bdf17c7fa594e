"""Models whose products round operands to bfloat16: against the reference that rounds alike, and the same bits."""

from dataclasses import replace

import numpy as np
import pytest

from fastpe import Adam, ModelConfig, Transformer, reference
from fastpe.kernels.products.bfloat16 import isa as way
from fastpe.model import precision
from fastpe.model.encoding import ModelEncoding

WAYS = tuple(dict.fromkeys((way.ways()[0], way.SHIFTS)))
"""This CPU's, and every CPU's. Each takes 25 s to compile; `tests/kernels/test_bfloat16.py` has those between."""
TINY = ModelConfig("alibi", width=16, heads=2, hidden=24, layers=1, train_length=9, precision="bfloat16")
TOKENS = replace(TINY, vocabulary=19, causal=True, norm="layernorm", activation="gelu", train_length=11)
MODELS = {
    "numbers": TINY,
    "numbers, no residual": replace(TINY, encoding="learned", residual=False, causal=True),
    "tokens": TOKENS,
    "two layers": replace(TOKENS, layers=2),
    "today": replace(
        TOKENS, encoding="rope", norm="rmsnorm", final_norm=True, activation="swiglu", bias=False, tied=True
    ),
    "shifted queries and keys": replace(TINY, encoding="sincos_2d_detr"),
    "relative": replace(TOKENS, encoding="shaw"),
    "network": replace(TOKENS, encoding="alibi+dape"),
    "reflections": replace(TOKENS, encoding="rope+shaw+fox+path"),
}


def batch(config, sequences, seed=0):
    random = np.random.default_rng(seed)
    if config.vocabulary is None:
        return random.standard_normal((2, sequences, config.train_length)).astype(np.float32)
    return random.integers(0, config.vocabulary, (2, sequences, config.train_length))


def missed(config, seed):
    """How far the loss and every gradient are from the rounding reference, as a share of what rounding does to them."""
    config = replace(config, seed=seed, init="xavier_normal")
    model, (x, y) = Transformer(config), batch(config, 3, seed)
    loss, gradients = model.loss_and_grads(x, y)
    parameters = {name: np.array(value, np.float64) for name, value in model.parameters.items()}
    encoding = ModelEncoding(replace(config, dtype="float64", precision="float32"))
    exact, unrounded = encoding.reference_loss_and_grads(parameters, x, y)
    rounding = {name: value.view(reference.Rounding) for name, value in parameters.items()}
    expected, rounded = encoding.reference_loss_and_grads(rounding, x, y)
    shares = {"loss": abs(loss - expected) / abs(expected - exact)}
    for name, gradient in gradients.items():
        right = np.asarray(rounded[name])
        noise = 1e-6 * np.linalg.norm(right) + 1e-9  # a sum in float32; of what is zero in theory nothing is left
        effect = np.linalg.norm(right - unrounded[name])
        shares[name] = max(0.0, np.linalg.norm(gradient - right) - noise) / max(effect, noise)
    return shares


@pytest.mark.parametrize(
    ("name", "way"),
    [(name, way) for name in MODELS for way in (WAYS if name in ("numbers", "two layers") else WAYS[:1])],
    ids=str,
)  # fmt: skip
def test_gradients_are_those_of_the_reference_that_rounds_alike(name, way, monkeypatch):
    """Exactly, but for an operand between two neighbours now and then, which a float32 sum puts to the other side."""
    monkeypatch.setattr(precision.isa, "fastest", lambda: way)
    draws = [missed(MODELS[name], seed) for seed in range(5)]
    for each in draws[0]:
        shares = sorted(draw[each] for draw in draws)
        assert shares[2] < 0.03, (each, shares)


def test_sequences_of_several_tiles_differ_by_the_weights_that_are_rounded_before_their_sum_is_known():
    """As far from the reference as that is from what is not rounded."""
    shares = missed(replace(TOKENS, train_length=150), 0)
    assert max(shares.values()) < 3.0
    assert np.median(list(shares.values())) < 1.0


def test_dropout_is_the_same_as_in_float32():
    config = replace(TOKENS, dropout=0.3)
    x, y = batch(config, 4)
    found = [Transformer(replace(config, precision=each)).loss_and_grads(x, y) for each in ("float32", "bfloat16")]
    assert found[0][0] != found[1][0]
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-3)
    for name, gradient in found[0][1].items():
        if not name.endswith("key.bias"):  # zero in theory
            np.testing.assert_allclose(found[1][1][name], gradient, atol=0.05 * np.abs(gradient).max())


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.name)
def test_bits_do_not_depend_on_threads(way, monkeypatch):
    monkeypatch.setattr(precision.isa, "fastest", lambda: way)
    config, results = replace(TOKENS, width=48, layers=2, train_length=40), []
    for threads in (1, 2, 3):
        model = Transformer(config)
        adam, (x, y) = Adam(model), batch(config, 10)
        losses = [adam.step(x, y, threads=threads) for _ in range(3)]
        outputs = model(x, threads=threads), model.loss(x, y, threads=threads)
        results.append(b"".join(np.asarray(each).tobytes() for each in (losses, *model.parameters.values(), *outputs)))
    assert results[0] == results[1] == results[2]


def test_loss_and_outputs_agree_with_training():
    model, (x, y) = Transformer(TOKENS), batch(TOKENS, 3)
    loss, _ = model.loss_and_grads(x, y)
    assert model.loss(x, y) == pytest.approx(loss, rel=1e-4)
    logits = model(x).astype(np.float64)
    picked = np.take_along_axis(logits - np.log(np.exp(logits).sum(-1, keepdims=True)), y[..., None], -1)
    assert -picked.mean() == pytest.approx(model.loss(x, y), rel=1e-6)


def test_writing_one_token_at_a_time_gives_the_logits_of_the_whole():
    model = Transformer(TOKENS)
    model.vocabulary = None
    tokens = model.generate([3, 1, 2], 6, temperature=0)
    again = list(tokens[:3])
    while len(again) < len(tokens):
        again.append(int(model(again)[-1].argmax()))
    assert again == list(tokens)


def test_parameters_and_moments_stay_float32():
    model = Transformer(TOKENS)
    adam, (x, y) = Adam(model), batch(TOKENS, 3)
    adam.step(x, y)
    weight = model.parameters["layers.0.attention.out.weight"]
    assert weight.dtype == np.float32
    assert (reference.bfloat16(weight) != weight).any()
    assert "products in bfloat16" in repr(model)


def test_it_needs_float32():
    with pytest.raises(ValueError, match=r"^precision 'bfloat16' needs dtype 'float32'.* not 'float64'$"):
        ModelConfig("alibi", dtype="float64", precision="bfloat16")
    with pytest.raises(ValueError, match=r"^precision must be float32 or bfloat16, not 'float16'"):
        ModelConfig("alibi", precision="float16")


def test_a_cpu_without_instructions_is_told_of_once(monkeypatch):
    monkeypatch.setattr(precision.isa, "fastest", lambda: way.SHIFTS)
    (said,) = precision.remarks(TINY)
    assert "not faster" in said
    assert precision.remarks(replace(TINY, precision="float32")) == ()
