"""Writing: the same with keys and values kept as with all read anew, for every encoding; how tokens are drawn."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpe import BeyondTrainingLength, ModelConfig, Transformer, list_encodings
from fastpe.encodings import registry
from fastpe.model.generation import Generation, Sampling, begins_alike
from fastpe.text.vocabulary import UnknownSymbols, Vocabulary

CONFIG = ModelConfig(
    "alibi", width=16, heads=2, hidden=24, layers=2, causal=True, vocabulary=11, train_length=64, norm="layernorm",
    final_norm=True,
)  # fmt: skip
ANEW = {
    "axial", "beit_bias", "clex", "crossformer_bias", "factorised_st", "graphormer", "irpe", "laplacian", "learned_2d",
    "learned_2d_detr", "magnetic", "moirai", "rope_2d", "rope_dinov3", "rope_dynamic", "rope_linear",
    "rope_longrope", "rope_mixed", "rope_mixed_radix", "rope_ntk", "rope_ntk_mixed", "rope_yarn", "rrwp", "rwse",
    "signnet", "sincos_2d_detr", "sincos_2d_mae", "sincos_3d", "swin_bias", "swinv2_cpb",
}  # fmt: skip
"""What they fill for a longer sequence begins with something else: their positions are those of a grid, or are scaled
by the length."""
ROWS = {"rows": 1024}
BEYOND = {"learned": {"beyond": "clip"}, "abacus": ROWS, "clex": {"original_length": 21}, "tupe": ROWS}  # 105 is five
UNDEFINED = {"axial", "beit_bias", "learned_2d_detr", "swin_bias"}
"""At twice the training length."""
PROMPT = np.arange(100) * 7 % 11


def made(name, **changes):
    """A model whose encoding has learned something."""
    model = Transformer(replace(CONFIG, encoding=name, **changes))
    for number, (key, array) in enumerate(model.parameters.items()):
        if "encoding" in key:
            array[...] = 0.3 * np.random.default_rng(number).standard_normal(array.shape)
    return model


def written(model, prompt, length, cache=True, **how):
    return model.generate(prompt, length, cache=cache, **how).tolist()


@pytest.mark.parametrize("name", list_encodings())
def test_the_same_is_written_with_and_without_a_cache(name):
    options = BEYOND.get(name, {})
    model = made(name, options=options, dtype="float64")
    if name in UNDEFINED:
        with pytest.raises(BeyondTrainingLength):
            model.generate(PROMPT, 10)
        return
    generation = Generation(model, PROMPT, 10, Sampling(seed=3))
    assert generation.cached == (name not in ANEW)
    assert list(generation) == written(model, PROMPT, 10, cache=False, seed=3)


@pytest.mark.parametrize("name", sorted(set(list_encodings()) - ANEW))
def test_what_is_kept_is_the_same_at_every_length(name):
    """Not only at those that are looked at."""
    model = made(name, options=BEYOND.get(name, {}), dtype="float64", layers=1)
    for last in (9, 70, 131):
        assert all(begins_alike(model, first, last) for first in range(1, last, 1 if last < 10 else 13))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "changes",
    [
        {"name": "rope,nope"}, {"name": "shaw"}, {"name": "wavelet+t5"}, {"tied": True, "bias": False},
        {"norm": "none", "final_norm": False, "residual": False}, {"activation": "swiglu", "norm": "rmsnorm"},
        {"name": "conv"}, {"heads": 1, "layers": 1}, {"dropout": 0.5}, {"train_length": 3},
    ],
    ids=str,
)  # fmt: skip
def test_logits_are_those_of_the_whole_sequence(changes, dtype):
    """After every token, and for prompts of more rows than go through the model at a time."""
    model = made(**{"name": "rope", "dtype": dtype, **changes})
    prompt = np.random.default_rng(0).integers(0, 11, 401)
    steps = Generation(model, prompt, 4, Sampling(temperature=0.0))
    text = prompt.tolist()
    for logits in steps._kept(text):
        whole = model(np.array(text))[-1]
        tolerance = {"float32": 2e-5, "float64": 1e-13}[dtype] * max(1.0, np.abs(whole).max())
        np.testing.assert_allclose(logits, whole, rtol=0, atol=tolerance)
        text.append(int(np.argmax(logits)))
        if len(text) > 404:
            break


@pytest.mark.full("compiles fills of many encodings")
def test_most_encodings_give_the_same_bits():
    for name in ("alibi", "rope", "sinusoidal", "t5", "legendre", "fire", "wavelet"):
        model = made(name)
        text = PROMPT.tolist()
        for logits in Generation(model, PROMPT, 3, Sampling())._kept(text):
            np.testing.assert_array_equal(logits, model(np.array(text))[-1])
            text.append(1)
            if len(text) > len(PROMPT) + 2:
                break


def test_the_same_seed_writes_the_same_and_another_does_not():
    model = made("rope")
    first = written(model, PROMPT, 60, seed=1)
    assert first == written(model, PROMPT, 60, seed=1, threads=1)
    assert first[:20] == written(model, PROMPT, 20, seed=1)
    assert first != written(model, PROMPT, 60, seed=2)


def test_every_token_is_told_as_it_is_drawn():
    told = []
    assert made("rope").generate([1, 2], 9, progress=told.append).tolist() == told


def test_a_text_gives_a_text():
    model = made("alibi", vocabulary=4)
    model.vocabulary = Vocabulary.of("abcd")
    text = model.generate("bad", 30, seed=5)
    assert len(text) == 30
    assert set(text) <= set("abcd")
    assert model.vocabulary.encode(text).tolist() == model.generate([1, 0, 3], 30, seed=5).tolist()
    with pytest.raises(UnknownSymbols, match="prompt: the vocabulary has no 'x'"):
        model.generate("axb", 3)
    with pytest.raises(ValueError, match="prompt must be text that can be encoded as UTF-8"):
        model.generate("a\udcfe", 3)
    assert model.generate("a", 3, temperature=1e-320) == model.generate("a", 3, temperature=0)
    with pytest.raises(ValueError, match="prompt must not be empty"):
        model.generate("", 3)


# How tokens are drawn ------------------------------------------------------------------------------------------------

LOGITS = st.lists(st.floats(-20, 20), min_size=1, max_size=12).map(np.array)


@given(LOGITS, st.integers(0, 2**32))
def test_temperature_0_is_the_likeliest(logits, place):
    assert Sampling(temperature=0.0).draw(logits, place) == np.argmax(logits)
    assert logits[Sampling(top_k=1).draw(logits, place)] == logits.max()


@given(LOGITS, st.integers(1, 12), st.floats(0.01, 1.0), st.integers(0, 99))
def test_only_the_likeliest_are_drawn(logits, top_k, top_p, place):
    token = Sampling(top_k=top_k, top_p=top_p).draw(logits, place)
    order = np.sort(logits)[::-1][:top_k]
    assert logits[token] >= order[-1]
    chances = np.exp(order - order[0])
    chances /= chances.sum()
    before = chances[order > logits[token]].sum()
    assert before < top_p + 1e-9


@pytest.mark.parametrize("how", [{}, {"temperature": 2.0}, {"top_k": 2}, {"top_p": 0.75}, {"temperature": 0.5}])
def test_shares_are_those_of_the_softmax(how):
    logits, count = np.log([0.1, 0.4, 0.2, 0.3]), 4000
    drawn = np.bincount([Sampling(**how).draw(logits, place) for place in range(count)], minlength=4) / count
    chances = np.exp(logits / how.get("temperature", 1.0))
    kept = {"top_k": [1, 3], "top_p": [1, 2, 3]}.get(next(iter(how), ""), [0, 1, 2, 3])
    expected = np.where(np.isin(np.arange(4), kept), chances, 0)
    expected /= expected.sum()
    np.testing.assert_allclose(drawn, expected, atol=4 * np.sqrt(0.25 / count))
    assert (drawn[expected == 0] == 0).all()


# What is refused -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": -1}, "temperature must be .*, not -1"),
        ({"temperature": float("nan")}, "temperature must be finite, not nan"),
        ({"top_p": 0}, r"top_p must lie in \(0, 1\], not 0"),
        ({"top_p": 1.5}, r"top_p must lie in \(0, 1\], not 1.5"),
        ({"top_k": 0}, "top_k must be at least 1, not 0"),
        ({"length": 0}, "length must be at least 1, not 0"),
        ({"length": 2**28}, r"prompt and length must be at most 2\*\*27 tokens in all"),
        ({"seed": -1}, "seed must"),
        ({"prompt": [11]}, r"prompt must lie in \[0, 10\], not 11 at index 0"),
        ({"prompt": []}, "prompt must have the shape"),
        ({"prompt": [[1]]}, r"prompt must have the shape \(n,\) with at least one token, not \(1, 1\)"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"prompt": "text"}, "prompt must be tokens, not text: this model was not trained on text"),
    ],
)
def test_bad_requests(changes, message):
    request = {"prompt": [1], "length": 3, **changes}
    with pytest.raises((ValueError, TypeError), match=message):
        Transformer(CONFIG).generate(request.pop("prompt"), request.pop("length"), **request)


def test_models_that_cannot_write():
    with pytest.raises(ValueError, match="model must be causal"):
        Transformer(replace(CONFIG, causal=False)).generate([1], 3)
    with pytest.raises(ValueError, match="model must have a vocabulary"):
        Transformer(ModelConfig("alibi")).generate([1], 3)
    with pytest.raises(BeyondTrainingLength, match="'learned' has no row for position 64"):
        made("learned").generate([1], 65)
    assert len(made("learned").generate([1], 64)) == 64  # the last one is never read
    model = made("alibi")
    model.parameters["head.bias"][0] = np.inf
    with pytest.raises(ArithmeticError, match="not finite: there is no token to draw"):
        model.generate([1], 3)


def test_an_option_that_scales_by_the_length_is_seen():
    """The edges that are looked at lie around the training length."""
    assert registry.get("rope_dynamic")
    assert begins_alike(made("rope_dynamic"), 3, 64)
    assert not begins_alike(made("rope_dynamic"), 3, 66)
    assert begins_alike(made("alibi"), 3, 66)
    adaptive = made("alibi", options={"schedule": "log"})
    assert begins_alike(adaptive, 3, 64)
    assert not begins_alike(adaptive, 3, 66)
