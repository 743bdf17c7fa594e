"""Models whose layers have gates: what is measured of them sees the gates, and what is not known is not said.

Factors of queries multiply what content can do to a score.
"""

import numpy as np
import pytest

from fastpe import ModelConfig, Transformer
from fastpe.theory.jacobian import largest_jacobian
from fastpe.theory.model_lipschitz import layers_of, model_bounds
from fastpe.theory.pages import collect as pages
from fastpe.theory.pages import of_run, words
from fastpe.theory.pages.collect import subject_of
from fastpe.theory.pages.subject import of_run as subject_of_run

SMALL = {"width": 8, "heads": 2, "hidden": 8, "layers": 1, "train_length": 5, "causal": True, "dtype": "float64"}


def drawn(name):
    model, rng = Transformer(ModelConfig(name, **SMALL)), np.random.default_rng(0)
    for each in model.parameters.values():
        each[...] = 2 * rng.normal(size=each.shape)
    return model


@pytest.mark.parametrize("name", ["fox", "grape_a", "cope", "path", "selective_rope"])
def test_models_with_gates_have_no_lipschitz_bound(name):
    model = drawn(name)
    for bound in (layers_of, model_bounds):
        with pytest.raises(ValueError, match=rf"^model must have no gates .* '{name}'"):
            bound(model, 5)
    subject = subject_of_run(model, None)
    assert [record.name for record in of_run.records(subject)] == ["run.spectral"]
    assert subject.remarks[-1].startswith("Lipschitz constants: model must have no gates")


SAYS = {
    "fox": "lets content decide", "cable": "lets content decide", "alibi+fox": "lets content decide",
    "path": "lets content reflect queries",
    "alibi+cope": "counts keys by content", "alibi+selective_rope": "lets content rotate query and key",
}  # fmt: skip


@pytest.mark.parametrize("name", SAYS)
def test_a_page_claims_nothing_that_content_decides(name):
    """What it says without gates would be that of a model that forgets nothing."""
    gated, plain = (subject_of(each, train_length=8, dim=16, causal=True) for each in (name, "alibi"))
    found, others = pages.records(gated), pages.records(plain)
    absent = {key.partition("@")[0] for key in others.keys() - found.keys()}
    assert {"perplexity.most", "within.most", "effect", "lipschitz", "lipschitz.frobenius"} <= absent
    assert {"symmetry.const", "token_norm@8"} <= found.keys()
    assert "depend on gates, so on the content" in gated.remarks[-1]
    assert SAYS[name] in words.heading(gated, found)
    assert "content" not in words.heading(plain, others)


def test_rotations_by_position_are_not_all_that_turns():
    options = {"rope.pairs": "half"}
    both = subject_of("rope+selective_rope", train_length=8, dim=16, causal=True, **options)
    plain = subject_of("rope", train_length=8, dim=16, causal=True, pairs="half")
    absent = {key.partition("@")[0] for key in pages.records(plain).keys() - pages.records(both).keys()}
    assert {"similarity", "turned", "unseen.channels", "lipschitz"} <= absent
    assert "rotates query and key, lets content rotate query and key" in words.heading(both, {})


def test_measured_slopes_depend_on_the_gates():
    """The slopes of two models that differ in their gates alone are not the same."""
    x = np.random.default_rng(1).normal(size=(2, 5))
    model = drawn("fox")
    first = largest_jacobian(model, x)["token"].low
    for key, each in model.parameters.items():
        each *= 0.0 if "encoding" in key else 1.0
    assert abs(largest_jacobian(model, x)["token"].low - first) > 1e-3 * first


@pytest.mark.parametrize("name", ["", "rope+"])
def test_factors_of_queries_make_content_as_much_steeper(name):
    plain, scaled = (Transformer(ModelConfig(own, **SMALL)) for own in (name + "nope", name + "ssmax"))
    for model in (plain, scaled):
        for number, (key, each) in enumerate(plain.parameters.items()):
            model.parameters[key][...] = np.random.default_rng(number).normal(size=each.shape)
    scaled.parameters["layers.0.encoding.ssmax.scale"][...] = [0.5, -3.0]
    usual, sharp = (layers_of(model, 5)[0].heads for model in (plain, scaled))
    for head, factor in enumerate((0.5, 3.0)):
        assert sharp[head].score == pytest.approx(factor * np.log(5) * usual[head].score)
        assert sharp[head].key == pytest.approx(factor * np.log(5) * usual[head].key)
        assert sharp[head].added == usual[head].added
