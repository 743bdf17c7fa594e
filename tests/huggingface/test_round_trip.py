"""A model written for transformers and read again, without PyTorch: equal bit by bit. What is refused, and why."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from hf_models import CASES, architecture, config, made

import fastpe
from fastpe.huggingface import tokenizer, weights
from fastpe.huggingface.checkpoint import Checkpoint
from fastpe.huggingface.families import FAMILIES
from fastpe.text.vocabulary import Vocabulary

TOKENS = np.random.default_rng(1).integers(0, 65, (2, 40))


def without_entry(folder):
    """Remove what only fastpe writes into config.json."""
    found = json.loads((folder / "config.json").read_text())
    del found["fastpe"]
    (folder / "config.json").write_text(json.dumps(found))


@pytest.mark.parametrize("name", CASES)
def test_bit_by_bit(name, tmp_path):
    model = made(name)
    fastpe.to_hf(model, tmp_path / "model", architecture=architecture(name))
    again = fastpe.load_hf(tmp_path / "model")
    assert again.config == model.config
    assert again.parameters.keys() == model.parameters.keys()
    for key, value in model.parameters.items():
        assert np.array_equal(value, again.parameters[key]), key
    assert np.array_equal(again(TOKENS), model(TOKENS))


@pytest.mark.parametrize("name", CASES)
def test_without_the_entry_of_fastpe(name, tmp_path):
    """The model is described by what transformers knows; written again, it has the same tensors, and biases of 0."""
    model = made(name)
    fastpe.to_hf(model, tmp_path / "one", architecture=architecture(name))
    without_entry(tmp_path / "one")
    again = fastpe.load_hf(tmp_path / "one")
    outputs = model(TOKENS)
    assert np.abs(again(TOKENS) - outputs).max() <= 2e-6 * np.abs(outputs).max()
    fastpe.to_hf(again, tmp_path / "two", architecture=architecture(name))
    one, two = (Checkpoint(tmp_path / each) for each in ("one", "two"))
    for key in one.shapes:
        assert np.array_equal(one.read(key), two.read(key)), key
    for key in two.shapes.keys() - one.shapes:  # transformers' setting covers fewer biases than fastpe's
        assert key.endswith(".bias")
        assert not two.read(key).any()


def test_the_architecture_that_is_chosen():
    for name in CASES:
        if architecture(name) != "bloom":
            assert fastpe.huggingface.export.chosen(made(name)).model_type == architecture(name), name


def test_an_entry_of_another_model_is_ignored(tmp_path):
    """If the entry does not give the tensors of the file, the model is read as if there were no entry."""
    model = made("llama")
    fastpe.to_hf(model, tmp_path)
    path = tmp_path / "config.json"
    for own in (
        {**model.config.to_dict(), "options": {"pairs": "half"}},  # other channels are pairs: allowed, the same file
        {**model.config.to_dict(), "encoding": "nope"},
        {**model.config.to_dict(), "layers": 3},
        {**model.config.to_dict(), "layers": 10_000_000},
        {**model.config.to_dict(), "width": 2**40},
        {**model.config.to_dict(), "encoding": "./own.py"},
        {"layers": []}, [], 3,
    ):  # fmt: skip
        path.write_text(json.dumps({**json.loads(path.read_text()), "fastpe": own}))
        again = fastpe.load_hf(tmp_path)
        assert again.config.layers == 2
        assert again.config.encoding == "rope"
        assert again.config.options["pairs" if "pairs" in again.config.options else "rope.pairs"] == "half"
        assert np.abs(again(TOKENS) - model(TOKENS)).max() <= 2e-6 * np.abs(model(TOKENS)).max()


def test_float64_is_rounded(tmp_path):
    model = made("gpt2", dtype="float64")
    for value in model.parameters.values():
        value *= 1 + 2.0**-40
    fastpe.to_hf(model, tmp_path)
    again = fastpe.load_hf(tmp_path)
    assert again.config == model.config
    for key, value in model.parameters.items():
        assert np.array_equal(value.astype(np.float32), again.parameters[key]), key
    assert any((value != again.parameters[key]).any() for key, value in model.parameters.items())


def test_all_architectures_are_documented():
    for name in FAMILIES:
        assert f"``{name}``" in fastpe.to_hf.__doc__, name


def test_an_encoding_with_parameters_becomes_a_learned_table(tmp_path):
    model = fastpe.Transformer(config("gpt2", options={"scale": 2.0}))
    fastpe.to_hf(model, tmp_path / "model")
    again = fastpe.load_hf(tmp_path / "model")
    assert again.config.options == {}
    assert np.array_equal(again.slots(48)["table"], model.slots(48)["table"])
    assert np.array_equal(again(TOKENS), model(TOKENS))


def test_the_same_bytes_twice(tmp_path):
    for name in ("one", "two"):
        model = made("llama", vocabulary=256)
        model.vocabulary = Vocabulary()
        fastpe.to_hf(model, tmp_path / name)
    files = sorted(path.name for path in (tmp_path / "one").iterdir())
    assert files == [
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    ]  # fmt: skip
    for name in files:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


@pytest.mark.parametrize("vocabulary", [Vocabulary(), Vocabulary.of("a\n\u0100\u4e2d")], ids=["bytes", "characters"])
@pytest.mark.parametrize("eos", [None, "\n", "a"])
def test_the_vocabulary_is_read_again(vocabulary, eos, tmp_path):
    model = made("gpt2", vocabulary=vocabulary.size)
    model.vocabulary = vocabulary
    fastpe.to_hf(model, tmp_path / "model", eos=eos)
    assert fastpe.load_hf(tmp_path / "model").vocabulary == vocabulary


def test_the_end_of_a_text_must_be_one_token():
    with pytest.raises(ValueError, match="eos must be one token of the model, not 'é', which is 2"):
        tokenizer.end_token(Vocabulary(), "é")
    with pytest.raises(ValueError, match="the vocabulary has no 'c'"):
        tokenizer.end_token(Vocabulary.of("ab"), "c")


def test_neither_torch_nor_transformers_is_needed(tmp_path):
    program = (
        "import sys\nfor name in ('torch', 'transformers', 'tokenizers'): sys.modules[name] = None\n"
        "import fastpe, hf_models\nmodel = hf_models.made('gpt2', vocabulary=256)\n"
        "model.vocabulary = fastpe.text.vocabulary.Vocabulary()\n"
        "fastpe.to_hf(model, 'model')\nprint(fastpe.load_hf('model').vocabulary.kind)"
    )
    own = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=tmp_path, env=own)
    assert done.stdout == "bytes\n", done.stderr


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"encoding": "t5"}, "the nearest, MptForCausalLM, needs encoding 'alibi', not 't5'"),
        ({"encoding": "rope+alibi"}, r"needs encoding 'rope', not 'rope\+alibi'"),
        ({"residual": False}, "the nearest, GPTNeoXForCausalLM, needs residual True, not False"),
        ({"final_norm": False}, "needs final_norm True, not False"),
        ({"causal": False}, "needs causal True, not False"),
        ({"sight": "chunks:8"}, "needs sight 'all', not 'chunks:8'"),
        ({"positions": "random:60"}, "needs positions 'usual', not 'random:60'"),
        (
            {"tied": False},
            r"nearest, GPTNeoXForCausalLM, needs parameter 'head\.bias' 0 \(bias=False or tied=True\), not 1\.0",
        ),
        ({"encoding": "rope_ntk"}, "needs encoding 'rope', not 'rope_ntk'"),
        ({"encoding": "rope_linear"}, "needs option 'factor' of rope_linear a number, not None"),
        ({"vocabulary": None, "tied": False}, "model must have a vocabulary"),
        (
            {"activation": "swiglu", "norm": "rmsnorm", "encoding": "alibi", "bias": False},
            "MptForCausalLM, needs norm 'layernorm', not 'rmsnorm' and activation 'gelu', not 'swiglu'",
        ),
    ],
)
def test_what_no_architecture_has_is_named(changed, reason, tmp_path):
    model = fastpe.Transformer(config("gpt_neox", **changed))
    if "head.bias" in model.parameters:
        model.parameters["head.bias"][...] = 1
    with pytest.raises(ValueError, match=reason):
        fastpe.to_hf(model, tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_what_a_named_architecture_lacks_is_named(tmp_path):
    with pytest.raises(ValueError, match="LlamaForCausalLM needs norm 'rmsnorm', not 'layernorm'"):
        fastpe.to_hf(made("gpt2"), tmp_path / "model", architecture="llama")
    with pytest.raises(ValueError, match="architecture 'lama' is unknown; did you mean"):
        fastpe.to_hf(made("gpt2"), tmp_path / "model", architecture="lama")
    model = made("gpt2", dtype="float64")
    model.parameters["final_norm.weight"][0] = 1e300
    with pytest.raises(ValueError, match=r"must be finite in float32, but tensor 'transformer\.ln_f\.weight' is not"):
        fastpe.to_hf(model, tmp_path / "model")
    with pytest.raises(ValueError, match="a model with bands cannot be exported"):
        fastpe.to_hf(fastpe.Banded(made("llama"), "rerope:window=9"), tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_a_folder_with_files_is_refused(tmp_path, monkeypatch):
    (tmp_path / "notes").write_text("")
    monkeypatch.setattr(weights, "pack", None)  # before any work
    with pytest.raises(ValueError, match="folder must be new or empty, not"):
        fastpe.to_hf(made("gpt2"), tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]
