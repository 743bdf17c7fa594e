"""A model's settings: each is checked by itself, kept as a plain value, and found again in JSON."""

import copy
import json
import pickle
import re
from dataclasses import fields, replace

import numpy as np
import pytest

from fastpe import ModelConfig
from fastpe.model.config import ACTIVATIONS, DTYPES, INITS, NORMS, TABLE_SCALES

GOOD = ModelConfig("wavelet+alibi", {"alibi.alpha0": 0.5}, width=12, heads=3)


@pytest.mark.parametrize(
    ("settings", "error", "says"),
    [
        *(
            (settings, error, says)
            for name in ("width", "heads", "layers", "hidden", "train_length")
            for settings, error, says in (
                ({name: 0}, ValueError, f"{name} must be at least 1, not 0"),
                ({name: -3}, ValueError, f"{name} must be at least 1, not -3"),
                ({name: 4.0}, TypeError, f"{name} must be an integer, not 4.0"),
                ({name: "4"}, TypeError, f"{name} must be an integer, not '4'"),
                ({name: True}, TypeError, f"{name} must be an integer, not True"),
                ({name: None}, TypeError, f"{name} must be an integer, not None"),
            )
        ),
        ({"heads": 5}, ValueError, "width must be divisible by heads, but 12 is not divisible by 5"),
        ({"layers": 10_001}, ValueError, "layers must be at most 10000, not 10001"),
        ({"causal": 1}, TypeError, "causal must be True or False, not 1"),
        ({"residual": None}, TypeError, "residual must be True or False, not None"),
        ({"vocabulary": 1}, ValueError, "vocabulary must be at least 2, not 1"),
        ({"vocabulary": 2**24 + 1}, ValueError, "vocabulary must be at most 2**24, not 16777217"),
        ({"vocabulary": 2.0}, TypeError, "vocabulary must be an integer, not 2.0"),
        ({"seed": -1}, ValueError, "seed must be at least 0, not -1"),
        ({"seed": 2**64}, ValueError, "seed must be at most 2**64 - 1, not 18446744073709551616"),
        ({"seed": 0.0}, TypeError, "seed must be an integer, not 0.0"),
        ({"start": float("inf")}, ValueError, "start must be finite, not inf"),
        ({"start": "0"}, TypeError, "start must be a number, not '0'"),
        ({"positions": "random"}, ValueError, "positions must be 'random:L' with L a number of positions"),
        ({"positions": "random:\u0661\u0660"}, ValueError, "positions must be 'random:L' with L a number of positions"),
        ({"positions": 50}, ValueError, "positions must be one of 'usual', 'random:L', 'float:L'"),
        ({"positions": "random:49"}, ValueError, "positions 'random:L' need L from train_length=50 to 2**27, not"),
        ({"positions": f"random:{2**27 + 1}"}, ValueError, "positions 'random:L' need L from train_length=50 to 2**27"),
        ({"encoding": 3}, TypeError, "encoding must be a name, not 3"),
        ({"encoding": "alibi", "options": {"alpha": 1}}, ValueError, "option 'alpha' of"),
        ({"options": {"alibi.alpha0": "big"}}, TypeError, "option 'alibi.alpha0' must be a finite number"),
        ({"options": [("alpha0", 1)]}, TypeError, "options must be a mapping of names to values, not [('alpha0', 1)]"),
        ({"options": {3: 1}}, TypeError, "the name of an option must be a string, not 3"),
    ],
)  # fmt: skip
def test_a_wrong_setting_is_named_with_its_value(settings, error, says):
    with pytest.raises(error, match=rf"^{re.escape(says)}"):
        replace(GOOD, **settings)


@pytest.mark.parametrize(
    ("name", "choices"),
    [("activation", ACTIVATIONS), ("norm", NORMS), ("dtype", DTYPES), ("init", INITS), ("table_scale", TABLE_SCALES)],
)
def test_choices_are_these_and_no_others(name, choices):
    for choice in choices:
        assert getattr(replace(GOOD, **{name: choice}), name) == choice
    for wrong in ("none of them", None, 1):
        with pytest.raises((ValueError, TypeError), match=rf"^{name} must be .*{re.escape(choices[0])}"):
            replace(GOOD, **{name: wrong})


def test_limits_themselves_will_do():
    config = replace(
        GOOD, width=1, heads=1, layers=1, hidden=1, train_length=1, vocabulary=2, seed=2**64 - 1, positions="random:1"
    )
    assert config.head_width == config.position_range == 1
    assert replace(config, vocabulary=2**24, positions=f"random:{2**27}").position_range == 2**27
    assert GOOD.position_range is None


def test_settings_are_kept_as_plain_values():
    """NumPy's numbers and dtypes are taken, and what is kept is Python's own."""
    given = {
        "width": np.int64(12), "heads": np.int8(3), "causal": np.True_, "vocabulary": np.uint16(7),
        "start": np.float32(2), "seed": np.uint64(2**64 - 1), "dtype": np.float64, "positions": "random:00060",
    }  # fmt: skip
    config = replace(GOOD, **given)
    kept = {name: getattr(config, name) for name in given}
    assert kept == {**given, "dtype": "float64", "positions": "random:60"}
    assert [type(value) for value in kept.values()] == [int, int, bool, int, float, int, str, str]
    assert replace(GOOD, dtype=np.dtype("float32")).dtype == "float32"
    assert type(replace(GOOD, options={"alibi.alpha0": 1}).options["alibi.alpha0"]) is float


def test_what_is_built_is_what_was_asked_for():
    config = replace(GOOD, causal=True, start=3.0, dtype="float64", train_length=7)
    spec = config.spec(5)
    assert (spec.length, spec.dim, spec.heads, spec.train_length, spec.causal, spec.start, spec.dtype) == (
        5, 12, 3, 7, True, 3.0, np.dtype("float64"),
    )  # fmt: skip
    assert replace(config, positions="random:90").spec(5, [1, 2, 3, 4, 6]).train_length == 90


def test_options_of_a_configuration_stay_as_they_are():
    config = replace(GOOD)
    changes = (
        lambda options: options.update(alpha0=1), lambda options: options.pop("alibi.alpha0"),
        lambda options: options.__setitem__("alibi.alpha0", 1), lambda options: options.clear(),
        lambda options: options.__delitem__("alibi.alpha0"), lambda options: options.setdefault("a", 1),
        lambda options: options.__ior__({"a": 1}), lambda options: options.popitem(),
    )  # fmt: skip
    for change in changes:
        with pytest.raises(TypeError, match="options of a configuration cannot be changed"):
            change(config.options)
    for copied in (copy.deepcopy(config), pickle.loads(pickle.dumps(config)), replace(config)):
        assert copied == config == GOOD
        with pytest.raises(TypeError, match="options of a configuration cannot be changed"):
            copied.options["alibi.alpha0"] = 1


def test_json_and_back():
    config = replace(
        GOOD, causal=True, positions="random:60", vocabulary=9, encoding="axial", options={"grid": (5, 10)}
    )
    stored = json.loads(json.dumps(config.to_dict()))
    assert stored == config.to_dict()
    assert set(stored) == {each.name for each in fields(ModelConfig) if not each.metadata}  # others: if they are set
    assert ModelConfig.from_dict(stored) == config
    with pytest.raises(ValueError, match=r"^setting 'widht' is unknown; did you mean 'width'\?$"):
        ModelConfig.from_dict({**stored, "widht": 4})
    del stored["norm"], stored["heads"]
    with pytest.raises(ValueError, match=r"^a configuration lacks heads, norm$"):
        ModelConfig.from_dict(stored)
    with pytest.raises(TypeError, match=r"^a configuration must be a mapping of names to values, not \[\]$"):
        ModelConfig.from_dict([])
