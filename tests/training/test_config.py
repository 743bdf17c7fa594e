"""The settings of a model and of a run."""

import json
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpe.encodings.needed import needed
from fastpe.encodings.registry import list_encodings
from fastpe.model.adam import Adam
from fastpe.model.config import ModelConfig
from fastpe.model.transformer import Transformer
from fastpe.training.config import TrainConfig
from fastpe.training.evaluation import evaluate
from fastpe.training.loop import train

small = st.integers(1, 300)
configs = st.builds(
    lambda heads, head_width, **rest: TrainConfig(heads=heads, width=heads * head_width, **rest),
    heads=st.integers(1, 16),
    head_width=small,
    # the others are refused: a running sum has no digits, no coordinates
    encoding=st.sampled_from(
        [
            name
            for name in list_encodings()
            if all(each.needs.what != "digits" and each.needs.default for each in needed(name))
        ]
    ),
    layers=small,
    hidden=small,
    causal=st.booleans(),
    activation=st.sampled_from(["relu", "gelu"]),
    norm=st.sampled_from(["none", "layernorm"]),
    residual=st.booleans(),
    train_length=small,
    dtype=st.sampled_from(["float32", "float64"]),
    seed=st.integers(0, 2**64 - 1),
    samples=small,
    epochs=small,
    batch=small,
    lr=st.floats(1e-44, 1e300),
    beta1=st.floats(0, 1, exclude_max=True),
    beta2=st.floats(0, 1, exclude_max=True),
    eps=st.floats(1e-44, 1e300),
    test_lengths=st.lists(small, unique=True).map(tuple),
    test_sequences=small,
)


@given(configs)
def test_every_configuration_survives_json(config):
    assert TrainConfig.from_dict(json.loads(json.dumps(config.to_dict(), allow_nan=False))) == config
    assert ModelConfig.from_dict(config.model.to_dict()) == config.model
    assert config.steps == config.epochs * config.steps_per_epoch
    assert (config.steps_per_epoch - 1) * config.batch < config.samples <= config.steps_per_epoch * config.batch


def test_defaults_are_the_paper_s_protocol():
    config = TrainConfig("wavelet")
    assert config.to_dict() == {
        **{
            "encoding": "wavelet",
            "options": {},
            "width": 64,
            "heads": 1,
            "layers": 2,
            "hidden": 128,
            "causal": False,
            "sight": "all",
        },
        **{"activation": "relu", "norm": "none", "residual": True, "vocabulary": None, "train_length": 50},
        **{
            "dtype": "float32",
            "precision": "float32",
            "seed": 0,
            "task": "running_sum",
            "samples": 10_000,
            "epochs": 20,
            "batch": 32,
        },
        **{"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "test_lengths": [50, 100, 200]},
        **{"test_sequences": 1000, "init": "uniform", "table_scale": "defined", "start": 0.0, "data": "fixed"},
        **{"target_scale": "one", "positions": "usual", "task_options": {}, "lengths": "fixed"},
        **{"final_norm": False, "bias": True, "tied": False, "dropout": 0.0, "init_by_depth": False},
        **{"weight_decay": 0.0, "clip": None, "warmup": 0, "decay": "constant", "min_lr": 0.0},
        **{"validation": 0, "patience": 0, "stop_solved": False, "keep": "last", "digest": None, "alphabet": None},
    }
    assert config.steps == 6260


@pytest.mark.parametrize("name", ["width", "heads", "layers", "hidden", "train_length", "samples", "epochs", "batch"])
@pytest.mark.parametrize(
    ("value", "error"),
    [(0, ValueError), (-3, ValueError), (True, TypeError), (2.0, TypeError), ("2", TypeError), (None, TypeError)],
)
def test_sizes_are_positive_integers(name, value, error):
    with pytest.raises(error, match=name):
        TrainConfig("nope", **{name: value})


@pytest.mark.parametrize(
    ("setting", "error", "words"),
    [
        ({"heads": 3}, ValueError, "64 is not divisible by 3"),
        ({"causal": 1}, TypeError, "causal must be True or False, not 1"),
        ({"residual": "no"}, TypeError, "residual"),
        ({"activation": "tanh"}, ValueError, "activation must be relu or gelu or gelu_tanh or swiglu, not 'tanh'"),
        ({"norm": None}, ValueError, "norm must be none or layernorm"),
        ({"dtype": "float16"}, ValueError, "dtype must be float32 or float64, not 'float16'"),
        ({"seed": -1}, ValueError, "seed must be at least 0, not -1"),
        ({"seed": 2**64}, ValueError, "seed"),
        ({"seed": 0.5}, TypeError, "seed must be an integer, not 0.5"),
        ({"lr": 0}, ValueError, "lr must be above 0"),
        ({"lr": float("nan")}, ValueError, "lr must be finite, not nan"),
        ({"lr": float("inf")}, ValueError, "lr must be finite, not inf"),
        ({"lr": "1e-3"}, TypeError, "lr must be a number"),
        ({"eps": -1e-8}, ValueError, "eps must be above 0"),
        ({"beta1": 1.0}, ValueError, r"beta1 must lie in \[0, 1\)"),
        ({"beta2": -0.1}, ValueError, "beta2"),
        ({"test_lengths": 50}, TypeError, "test_lengths must be a sequence"),
        ({"test_lengths": (50, 0)}, ValueError, "test_lengths must be at least 1, not 0"),
        ({"test_lengths": (50, 50)}, ValueError, "distinct"),
        ({"test_sequences": 0}, ValueError, "test_sequences"),
        ({"epochs": 10**21}, ValueError, f"epochs must be at most 2\\*\\*40, not {10**21}"),
        ({"task": "runing_sum"}, ValueError, "did you mean 'running_sum'"),
        ({"vocabulary": 10}, ValueError, "vocabulary must be None for task 'running_sum', which sets it, not 10"),
        ({"task": "mine.py"}, ValueError, "mine.py cannot be read: No such file"),
        ({"task": 3}, TypeError, "task must be a name, not 3"),
        ({"task": "sort", "task_options": {"symbol": 3}}, ValueError, "'symbol' of task 'sort' is unknown; did you"),
        (
            {"task": "sort", "task_options": 3},
            TypeError,
            "options of a task must be a mapping of names to values, not 3",
        ),
        ({"task": "flip_flop"}, ValueError, "task 'flip_flop' is made for causal models: it needs causal=True"),
        ({"task": "mqar", "train_length": 14}, ValueError, "train_length must be at least 16 for task 'mqar', not 14"),
        ({"task": "sort", "target_scale": "train"}, ValueError, "target_scale must be 'one' for task 'sort' of tokens"),
        ({"lengths": "uniform"}, ValueError, "lengths must be 'fixed' for task 'running_sum', not 'uniform'"),
        ({"data": ""}, ValueError, "data must be fixed or fresh, not ''"),
        ({"lengths": False}, ValueError, "lengths must be fixed or uniform, not False"),
        ({"patience": -1}, ValueError, "patience must be at least 0, not -1"),
        ({"lengths": "long"}, ValueError, "lengths must be fixed or uniform, not 'long'"),
        ({"test_lengths": ("51-100",)}, ValueError, "test_lengths must be an integer, not '51-100'"),
        ({"task": "sort", "test_lengths": ("51-40",)}, ValueError, "or ranges of them such as '51-100', not '51-40'"),
        ({"task": "sort", "test_lengths": ("-40",)}, ValueError, "or ranges of them such as '51-100', not '-40'"),
        (
            {"task": "sort", "test_lengths": ("151-160",)},
            ValueError,
            "task 'sort' can have, and 151-160 contains none",
        ),
        (
            {"task": "sort", "test_lengths": (151,)},
            ValueError,
            "must be 1 to 150 for task 'sort', not 151",
        ),
        ({"task": "mqar", "test_lengths": ("17-17",)}, ValueError, "every 2 from 16 to"),
        ({"vocabulary": 1}, ValueError, "vocabulary must be at least 2, not 1"),
        ({"vocabulary": 2**24 + 1}, ValueError, r"vocabulary must be at most 2\*\*24, not 16777217"),
        ({"vocabulary": 65.0}, TypeError, "vocabulary must be an integer, not 65.0"),
        ({"vocabulary": True}, TypeError, "vocabulary must be an integer, not True"),
        ({"encoding": "wavlet"}, ValueError, "'wavlet' is unknown; did you mean 'wavelet'"),
        ({"encoding": "alibi+alibi"}, ValueError, "twice"),
        ({"encoding": 3}, TypeError, "encoding"),
        ({"options": ["slope"]}, TypeError, "options must be a mapping"),
        ({"options": {1: 2}}, TypeError, "name of an option"),
        ({"encoding": "alibi", "options": {"slop": 2}}, ValueError, "did you mean 'slope'"),
        ({"encoding": "alibi", "options": {"slope": "steep"}}, TypeError, "'slope'"),
        ({"encoding": "alibi", "options": {"slope": float("nan")}}, ValueError, "'slope'"),
    ],
)
def test_bad_settings_are_named(setting, error, words):
    with pytest.raises(error, match=words):
        TrainConfig(**{"encoding": "nope", **setting})


def test_options_take_the_type_their_encoding_states():
    config = ModelConfig("alibi", {"slope": np.float32(0.5)})
    assert config.options == {"slope": 0.5}
    assert type(config.options["slope"]) is float
    assert type(ModelConfig("alibi", {"slope": 1}).options["slope"]) is float
    assert ModelConfig("nope + alibi", {"alibi.slope": 2}).encoding == "nope+alibi"


def test_numpy_numbers_become_plain_ones():
    config = TrainConfig("nope", seed=np.uint64(2**63), width=np.int32(8), lr=np.float32(0.5), dtype=np.float64)
    assert json.loads(json.dumps(config.to_dict()))["seed"] == 2**63
    assert (config.width, config.lr, config.dtype) == (8, 0.5, "float64")
    assert ModelConfig("nope", dtype=np.dtype("float64")).dtype == "float64"


def test_a_configuration_does_not_change():
    options = {"slope": 0.5}
    config = ModelConfig("alibi", options)
    options["slope"] = 2.0
    assert config.options == {"slope": 0.5}
    with pytest.raises(FrozenInstanceError):
        config.width = 3
    assert hash(config) == hash(replace(config))
    assert replace(config, seed=1) != config


def test_dictionaries_are_checked_strictly():
    settings = TrainConfig("nope").to_dict()
    with pytest.raises(ValueError, match="setting 'widht' is unknown; did you mean 'width'"):
        TrainConfig.from_dict({**settings, "widht": 3})
    del settings["seed"]
    with pytest.raises(ValueError, match="lacks seed"):
        TrainConfig.from_dict(settings)
    with pytest.raises(TypeError, match="mapping"):
        TrainConfig.from_dict([])


def test_importing_settings_imports_no_heavy_package():
    code = (
        "import sys, fastpe.training.config; print('numpy' in sys.modules)\n"
        "fastpe.training.config.TrainConfig('alibi'); print('numba' in sys.modules)"
    )
    assert (
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "False\n" * 2
    )


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: Transformer("wavelet"),
            "config must be a ModelConfig, as in Transformer(ModelConfig('wavelet')), not",
        ),
        (lambda: Transformer(None), "config must be a ModelConfig"),
        (lambda: Transformer(ModelConfig), "config must be a ModelConfig"),
        (lambda: Adam(ModelConfig("nope")), "model must be a Transformer"),
        (lambda: train(None), "config must be a TrainConfig, as in train(TrainConfig('wavelet')), not None"),
        (lambda: train("wavelet"), "config must be a TrainConfig"),
        (lambda: train(ModelConfig("wavelet")), "config must be a TrainConfig"),
        (lambda: evaluate("runs/wavelet-0", [50], 10), "model must be a Transformer"),
    ],
)
def test_what_is_no_configuration_or_model_is_named(call, words):
    with pytest.raises(TypeError) as caught:
        call()
    assert str(caught.value).startswith(words)


@pytest.mark.parametrize("encoding", ["xpos+alibi", "alibi+fire", "alibi"])
@pytest.mark.parametrize("causal", [False, True])
def test_what_one_part_of_a_sum_refuses_costs_another_no_option_of_the_paper(encoding, causal):
    key = "alibi.alpha0" if "+" in encoding else "alpha0"
    assert TrainConfig.paper(encoding, causal=causal).options == {key: 0.1}
    given = {key.replace("alpha0", "slope"): 0.5}
    assert TrainConfig.paper(encoding, given, causal=causal).options == given
