"""What a model's memory is laid out by cannot be replaced; assigned parameters are checked and copied."""

import copy

import numpy as np
import pytest

from fastpe import ModelConfig, TrainConfig, Transformer
from fastpe.model.adam import Adam

CONFIG = ModelConfig("learned", width=8, hidden=8, train_length=6)
TABLE = "encoding.learned.table"
X = np.linspace(-1, 1, 12).reshape(2, 6)


@pytest.fixture
def model():
    return Transformer(CONFIG)


@pytest.fixture
def other():
    return Transformer(ModelConfig("learned", width=8, hidden=8, train_length=6, seed=1))


def flat(model):
    return model._layout.flat.copy()


@pytest.mark.parametrize("name", [TABLE, "embed.weight", "layers.1.attention.key.weight"])
def test_an_array_that_is_assigned_is_copied_into_place(model, name):
    expected = Transformer(CONFIG)
    values = np.random.default_rng(0).standard_normal(model.parameters[name].shape)
    expected.parameters[name][...] = values
    view = model.parameters[name]
    model.parameters[name] = values
    values[...] = 0
    assert model.parameters[name] is view
    np.testing.assert_array_equal(model(X), expected(X))
    model.parameters[name] += 1
    expected.parameters[name][...] += 1
    np.testing.assert_array_equal(model(X), expected(X))


@pytest.mark.parametrize(
    ("name", "value", "error", "says"),
    [
        (TABLE, np.zeros((1, 1)), ValueError, rf"parameters\['{TABLE}'\] must have shape \(6, 8\), not \(1, 1\)"),
        (TABLE, 0.0, ValueError, rf"parameters\['{TABLE}'\] must have shape \(6, 8\), not \(\)"),
        ("head.bias", [np.inf], ValueError, r"parameters\['head.bias'\] must be finite in float32"),
        ("head.bias", [1e39], ValueError, r"parameters\['head.bias'\] must be finite in float32"),
        ("head.bias", ["a"], TypeError, r"parameters\['head.bias'\] must hold real numbers, not <U1"),
        ("head.bia", [1.0], ValueError, r"parameters has no 'head.bia': did you mean 'head.bias'"),
        (3, [1.0], ValueError, r"parameters has no 3: "),
    ],
)
def test_whatever_does_not_fit_is_an_error_and_changes_nothing(model, name, value, error, says):
    before = flat(model)
    changes = [
        lambda: model.parameters.__setitem__(name, value),
        lambda: model.parameters.update({"embed.weight": np.zeros((1, 8)), name: value}),
        lambda: model.parameters.__ior__({"embed.weight": np.zeros((1, 8)), name: value}),
    ]
    for change in changes:
        with pytest.raises(error, match=f"^{says}"):
            change()
    np.testing.assert_array_equal(flat(model), before)


@pytest.mark.parametrize(
    "remove",
    [lambda p: p.pop("head.bias"), lambda p: p.popitem(), lambda p: p.clear(), lambda p: p.__delitem__("head.bias")],
)
def test_nothing_can_be_taken_away(model, remove):
    with pytest.raises(TypeError, match=r"^an array of parameters cannot be removed"):
        remove(model.parameters)
    assert "head.bias" in model.parameters
    assert model.parameters.setdefault("head.bias") is model.parameters["head.bias"]
    with pytest.raises(ValueError, match=r"^parameters has no 'more'"):
        model.parameters.setdefault("more", np.zeros(1))


def test_the_parameters_of_another_model_can_be_taken_over_at_once(model, other):
    model.parameters.update(other.parameters)
    np.testing.assert_array_equal(flat(model), flat(other))
    query, key = (f"layers.0.attention.{name}.weight" for name in ("query", "key"))
    model.parameters.update({query: model.parameters[key], key: model.parameters[query]})
    np.testing.assert_array_equal(model.parameters[query], other.parameters[key])
    np.testing.assert_array_equal(model.parameters[key], other.parameters[query])


def test_kernels_do_not_ask_what_users_can_reach(model):
    """A dict can be written past its methods, and a view's shape can be set; neither changes what a kernel reads."""
    expected, gradients = model(X), model.loss_and_grads(X, X)[1]
    dict.__setitem__(model.parameters, TABLE, np.zeros((1, 1), np.float32))
    dict.__delitem__(model.parameters, "head.bias")
    np.testing.assert_array_equal(model(X), expected)
    for name, gradient in model.loss_and_grads(X, X)[1].items():
        np.testing.assert_array_equal(gradient, gradients[name])


def test_copies_are_plain_dicts_of_their_own(model):
    for made in (copy.deepcopy(model.parameters), copy.copy(model.parameters), model.parameters.copy()):
        assert type(made) is dict
        assert made.keys() == model.parameters.keys()
    copy.deepcopy(model.parameters)[TABLE][...] = 7
    assert not (model.parameters[TABLE] == 7).any()


def test_all_parameters_are_assigned_as_each_of_them_is(model, other):
    with pytest.raises(ValueError, match=r"^parameters\['embed.weight'\] must have shape \(1, 8\), not \(1, 64\)$"):
        model.parameters = Transformer(ModelConfig("learned", width=64, hidden=8, train_length=6)).parameters
    for wrong, error, words in (
        ({}, ValueError, "parameters must be assigned all at once, or each by name: 'embed.bias' is missing"),
        ([("a", 1)], TypeError, "parameters must be a dict of arrays, not list"),
    ):
        with pytest.raises(error, match=f"^{words}"):
            model.parameters = wrong
    views = dict(model.parameters)
    model.parameters = other.parameters
    assert all(model.parameters[name] is view for name, view in views.items())
    assert all((view == other.parameters[name]).all() for name, view in views.items())


@pytest.mark.parametrize("name", ["config", "dtype"])
def test_what_memory_is_laid_out_by_stays(model, name):
    with pytest.raises(AttributeError):
        setattr(model, name, getattr(Transformer(ModelConfig("nope", width=64)), name))


def test_an_optimiser_keeps_its_model_and_its_moments(model, other):
    adam = Adam(model)
    for name, value in (("model", other), ("first", {}), ("second", {})):
        with pytest.raises(AttributeError):
            setattr(adam, name, value)
    with pytest.raises(ValueError, match=r"^second moments\['head.bias'\] must have shape \(1,\), not \(2,\)$"):
        adam.second["head.bias"] = np.zeros(2)
    adam.first["head.bias"] = [3]
    assert 3 in adam._moments[0]
    for wrong, error in ((-3, ValueError), (1.5, TypeError), ("x", TypeError)):
        with pytest.raises(error, match=r"^steps must be "):
            adam.steps = wrong


@pytest.mark.parametrize("encoding", ["swin_bias", "alibi", "learned"])
def test_the_slots_that_one_asks_for_are_copies(encoding):
    options = {"window": (2, 3)} if encoding == "swin_bias" else {}
    model = Transformer(ModelConfig(encoding, options, width=8, hidden=8, train_length=6))
    expected = model(X)
    found = model.slots(6)
    for name, slot in list(found.items()):
        if isinstance(slot, np.ndarray):
            slot[...] = 10**6
            found[name] = np.zeros(1)
    np.testing.assert_array_equal(model(X), expected)


def test_numbers_of_an_optimiser_count_in_its_models_type(model):
    for name in ("lr", "eps"):
        with pytest.raises(ValueError, match=f"^{name} must be above 0 in float32, not 1e-46$"):
            Adam(model, **{name: 1e-46})
        with pytest.raises(ValueError, match=f"^{name} must be above 0 in float32, not 1e-46$"):
            TrainConfig("nope", **{name: 1e-46})
        TrainConfig("nope", **{name: 1e-46}, dtype="float64")
        Adam(model, **{name: 2e-45})


def test_an_optimiser_of_many_steps_can_be_copied(model):
    adam = Adam(model)
    adam.steps = 2**53
    adam.step(np.ones((2, 6)), np.ones((2, 6)))
    assert copy.deepcopy(adam).steps == 2**53 + 1
