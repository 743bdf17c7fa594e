"""Trained models that read by bands: compared with the dense reference, and without bands where nothing is far."""

import copy
from dataclasses import replace

import numpy as np
import pytest
from layer_checks import moved

import fastpe
from fastpe import Adam, Banded, ModelConfig, bands, reference
from fastpe.model.banded import parsed

BASE = ModelConfig(
    "rope", width=24, heads=3, layers=3, hidden=20, causal=True, norm="layernorm", train_length=20, vocabulary=7,
    dtype="float64",
)  # fmt: skip
TOKENS = np.random.default_rng(0).integers(0, 7, (3, 50))


def model_of(**own):
    return moved(replace(BASE, **own))


OWN = [
    {}, {"encoding": "rope+log_n"}, {"encoding": "rope*2,nope"}, {"encoding": "rope+fox"}, {"encoding": "rope+alibi"},
    {"encoding": "rope@a,rope@b", "options": {"rope@a.base": 100.0}}, {"sight": "window:9,all"},
    {"encoding": "rope_yarn", "options": {"pairs": "half"}}, {"encoding": "rope+t5", "activation": "swiglu"},
    {"key_heads": 1, "score_softcap": 2.0, "score_scale": 0.3, "sinks": True, "norm_placement": "both"},
    {"key_heads": 1, "head_dim": 10, "qk_norm": "head", "parallel": True, "logit_softcap": 2.0, "embedding_scale": 3.0},
]  # fmt: skip


@pytest.mark.parametrize("own", OWN, ids=lambda own: " ".join(map(str, own.values())) or "rope")
def test_where_nothing_is_far_it_is_the_model(own):
    model = model_of(**own)
    near, far = Banded(model, "self_extend:group=4,window=50"), Banded(model, "self_extend:group=4,window=8")
    np.testing.assert_allclose(near(TOKENS), model(TOKENS), rtol=1e-9, atol=1e-11)
    assert np.abs(far(TOKENS) - model(TOKENS)).max() > 1e-4


@pytest.mark.parametrize(
    "scheme",
    ["self_extend:group=3,window=7", "rerope:window=9", "leaky_rerope:window=9,step=4", "dual_chunk:chunk=16,local=4",
     "shifted:shift=9,window=3", "lampe:near=9,far=4,length=20",
     "lm_infinite:window=12,start=2", "streaming:start=2,recent=12"],
)  # fmt: skip
def test_it_is_the_dense_reference(scheme):
    name, options = parsed(scheme)
    model = model_of()
    slots = {"bands": getattr(bands, name)(50, **options), "theta": bands.frequencies("rope", 50, dim=24, heads=3)}
    exact = reference.model_forward(model.config, model.parameters, slots, TOKENS)
    np.testing.assert_allclose(Banded(model, scheme)(TOKENS), exact, rtol=1e-9, atol=1e-11)


def test_numbers_and_sequences_of_their_own_lengths():
    model = model_of(vocabulary=None)
    banded, x = Banded(model, "rerope:window=9"), np.random.default_rng(0).normal(size=(3, 50))
    found = banded(x, lengths=[50, 7, 30])
    for row, length, own in zip(x, (50, 7, 30), found, strict=True):
        np.testing.assert_allclose(own[:length], banded(row[:length]), rtol=1e-9, atol=1e-11)
        assert not own[length:].any()


def test_logits_by_rows_are_those_of_a_call():
    banded, found = Banded(model_of(), "rerope:window=9"), []
    wanted = np.random.default_rng(1).random(TOKENS.shape) < 0.3
    banded.logits_by_rows(TOKENS, wanted, lambda rows, logits: found.append((rows, logits)))
    ((rows, logits),) = found
    assert rows == slice(0, wanted.sum())
    np.testing.assert_array_equal(logits, banded(TOKENS)[wanted])
    nothing = np.zeros(TOKENS.shape, bool)
    banded.logits_by_rows(TOKENS, nothing, lambda rows, logits: pytest.fail("there are no rows"))


def test_models_that_see_both_ways():
    model = model_of(causal=False, vocabulary=None)
    x = np.random.default_rng(0).normal(size=(2, 30))
    np.testing.assert_allclose(Banded(model, "rerope:window=30")(x), model(x), rtol=1e-9, atol=1e-11)
    with pytest.raises(ValueError, match=r"^bands 'self_extend:group=2' need a causal model"):
        Banded(model, "self_extend:group=2")


def test_it_is_a_copy_and_stays_what_it_is():
    model = model_of()
    banded = Banded(model, "rerope:window=9")
    before = banded(TOKENS)
    model.parameters["head.weight"][...] = 0
    np.testing.assert_array_equal(banded(TOKENS), before)
    np.testing.assert_array_equal(copy.deepcopy(banded)(TOKENS), before)
    assert repr(banded).endswith("bands rerope:window=9>")


def test_it_is_tested_as_models_are():
    text = np.random.default_rng(0).integers(0, 7, 400)
    model = model_of()
    plain, far = (fastpe.length_curve(each, text, [20, 60]) for each in (model, Banded(model, "rerope:window=20")))
    assert plain.points[0].loss == pytest.approx(far.points[0].loss, rel=1e-9)
    assert plain.points[1].loss != pytest.approx(far.points[1].loss, rel=1e-6)
    numbers = model_of(vocabulary=None)
    found = fastpe.evaluate(Banded(numbers, "rerope:window=20"), [20, 40], 8)
    assert found["20"]["mse"] == pytest.approx(fastpe.evaluate(numbers, [20], 8)["20"]["mse"], rel=1e-9)


def test_it_neither_learns_nor_writes_nor_is_saved(folder):
    banded = Banded(model_of(), "rerope:window=9")
    for call in (
        lambda: Adam(banded).step(TOKENS, TOKENS), lambda: banded.loss(TOKENS, TOKENS),
        lambda: banded.loss_and_grads(TOKENS, TOKENS), lambda: banded.generate([1, 2], 3),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="use the model that it was made from"):
            call()
    with pytest.raises(ValueError, match="save the model that it was made from"):
        banded.save(folder / "model.safetensors")
    assert not list(folder.iterdir())


@pytest.mark.parametrize(
    ("scheme", "error", "said"),
    [("self", ValueError, "bands must be one of self_extend, .*, not 'self'"), (5, TypeError, "bands must be a scheme"),
     ("self_extend:groups=3", ValueError, "options of 'self_extend' are group=NUMBER, window=NUMBER, not 'groups=3'"),
     ("self_extend:group=0", ValueError, "group must be at least 1, not 0"),
     ("rerope:window=x", ValueError, "window of 'rerope' must be an integer in digits, not 'x'"),
     ("rerope:window=2,window=3", ValueError, "window of 'rerope' is given twice"),
     ("rerope:", ValueError, "options of 'rerope'")],
)  # fmt: skip
def test_wrong_schemes(scheme, error, said):
    with pytest.raises(error, match=f"^{said}"):
        Banded(model_of(), scheme)


@pytest.mark.parametrize(
    ("own", "said"),
    [({"encoding": "alibi"}, "bands need an encoding that rotates queries and keys, not 'alibi'"),
     ({"encoding": "xpos"}, "growth cannot be given with bands"),
     ({"encoding": "rope_mixed"}, "bands need angles that are positions times frequencies"),
     ({"encoding": "learned+rope", "positions": "random:100"}, "bands need the usual positions")],
)  # fmt: skip
def test_models_that_cannot_have_bands(own, said):
    with pytest.raises(ValueError, match=f"^{said}"):
        Banded(model_of(**own), "rerope:window=9")
