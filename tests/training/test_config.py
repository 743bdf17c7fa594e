"""The settings of a model and of a run."""

import json
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace

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

# the others are refused: a running sum has no digits, no coordinates
DEFINED = [name for name in list_encodings() if all(n.needs.what != "digits" and n.needs.default for n in needed(name))]
small = st.integers(1, 300)
configs = st.builds(
    lambda heads, head_width, **rest: TrainConfig(heads=heads, width=heads * head_width, **rest),
    heads=st.integers(1, 16),
    head_width=small,
    encoding=st.sampled_from(DEFINED),
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
    lr=st.floats(1e-44, 1e38),
    beta1=st.floats(0, 1, exclude_max=True),
    beta2=st.floats(0, 1, exclude_max=True),
    eps=st.floats(1e-44, 1e38),
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
        "encoding": "wavelet", "options": {}, "width": 64, "heads": 1, "layers": 2, "hidden": 128, "causal": False,
        "sight": "all", "activation": "relu", "norm": "none", "residual": True, "vocabulary": None, "train_length": 50,
        "dtype": "float32", "precision": "float32", "seed": 0, "task": "running_sum", "samples": 10_000, "epochs": 20,
        "batch": 32, "lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "test_lengths": [50, 100, 200],
        "test_sequences": 1000, "init": "uniform", "table_scale": "defined", "start": 0.0, "data": "fixed",
        "target_scale": "one", "positions": "usual", "task_options": {}, "lengths": "fixed", "final_norm": False,
        "bias": True, "tied": False, "dropout": 0.0, "init_by_depth": False, "weight_decay": 0.0, "clip": None,
        "warmup": 0, "decay": "constant", "min_lr": 0.0, "validation": 0, "patience": 0, "stop_solved": False,
        "keep": "last", "digest": None, "alphabet": None,
    }  # fmt: skip
    assert config.steps == 6260


@pytest.mark.parametrize("name", ["width", "samples", "epochs", "batch"])  # the model's: tests/model/test_config.py
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
        ({"lr": 0}, ValueError, "lr must be above 0"),
        ({"lr": float("nan")}, ValueError, "lr must be finite, not nan"),
        ({"lr": "1e-3"}, TypeError, "lr must be a number"),
        ({"eps": -1e-8}, ValueError, "eps must be above 0"),
        ({"beta1": 1.0}, ValueError, r"beta1 must lie in \[0, 1\)"),
        ({"beta2": -0.1}, ValueError, "beta2"),
        ({"test_lengths": 50}, TypeError, "test_lengths must be a sequence"),
        ({"test_lengths": (50, 0)}, ValueError, "test_lengths must be at least 1, not 0"),
        ({"test_lengths": (50, 50)}, ValueError, "distinct"),
        ({"test_lengths": range(1, 1002)}, ValueError, "test_lengths must have at most 1000 entries, not 1001"),
        ({"epochs": 10**21}, ValueError, f"epochs must be at most 2\\*\\*40, not {10**21}"),
        ({"task": "runing_sum"}, ValueError, "did you mean 'running_sum'"),
        ({"vocabulary": 10}, ValueError, "vocabulary must be None for task 'running_sum', which sets it, not 10"),
        ({"task": "mine.py"}, ValueError, "mine.py cannot be read: No such file"),
        ({"task": 3}, TypeError, "task must be a name, not 3"),
        ({"task": "sort", "task_options": {"symbol": 3}}, ValueError, "'symbol' of task 'sort' is unknown; did you"),
        ({"task": "sort", "task_options": 3}, TypeError, "options of a task must be a mapping of names to values, not"),
        ({"task": "flip_flop"}, ValueError, "task 'flip_flop' is made for causal models: it needs causal=True"),
        ({"task": "mqar", "train_length": 14}, ValueError, "train_length must be at least 16 for task 'mqar', not 14"),
        ({"task": "sort", "target_scale": "train"}, ValueError, "target_scale must be 'one' for task 'sort' of tokens"),
        ({"lengths": "uniform"}, ValueError, "lengths must be 'fixed' for task 'running_sum', not 'uniform'"),
        ({"test_lengths": ("51-100",)}, ValueError, "test_lengths must be an integer, not '51-100'"),
        ({"task": "sort", "test_lengths": ("51-40",)}, ValueError, "or ranges of them such as '51-100', not '51-40'"),
        ({"task": "sort", "test_lengths": ("-40",)}, ValueError, "or ranges of them such as '51-100', not '-40'"),
        ({"task": "sort", "test_lengths": ("151-160",)}, ValueError, "'sort' can have, and 151-160 contains none"),
        ({"task": "sort", "test_lengths": (151,)}, ValueError, "must be 1 to 150 for task 'sort', not 151"),
        ({"task": "mqar", "test_lengths": ("17-17",)}, ValueError, "every 2 from 16 to"),
        ({"encoding": "wavlet"}, ValueError, "'wavlet' is unknown; did you mean 'wavelet'"),
        ({"encoding": "alibi+alibi"}, ValueError, "twice"),
        ({"encoding": "alibi", "options": {"slop": 2}}, ValueError, "did you mean 'slope'"),
        ({"encoding": "alibi", "options": {"slope": float("nan")}}, ValueError, "'slope'"),
    ],
)
def test_bad_settings_are_named(setting, error, words):
    with pytest.raises(error, match=words):
        TrainConfig(**{"encoding": "nope", **setting})


def test_a_configuration_does_not_change():
    options = {"slope": 0.5}
    config = ModelConfig("alibi", options)
    options["slope"] = 2.0
    assert config.options == {"slope": 0.5}
    with pytest.raises(FrozenInstanceError):
        config.width = 3
    assert hash(config) == hash(replace(config))
    assert replace(config, seed=1) != config


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
            "config must be a ModelConfig, as in Transformer(ModelConfig('wavelet'))",
        ),
        (lambda: Transformer(ModelConfig), "config must be a ModelConfig"),
        (lambda: Adam(ModelConfig("nope")), "model must be a Transformer"),
        (lambda: train(None), "config must be a TrainConfig, as in train(TrainConfig('wavelet')), not None"),
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
