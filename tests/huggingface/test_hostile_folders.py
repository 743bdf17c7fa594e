"""Damaged and hostile folders: each is refused in one line that names the file and the reason, before much is read."""

import json
import os
import struct
import tracemalloc

import numpy as np
import pytest
from hf_models import made
from safetensors.numpy import load_file, save_file

import fastpe
from fastpe.text.vocabulary import Vocabulary


@pytest.fixture
def folder(tmp_path):
    """A good checkpoint of a Llama of bytes."""
    model = made("llama", vocabulary=256)
    model.vocabulary = Vocabulary()
    fastpe.to_hf(model, tmp_path / "model")
    return tmp_path / "model"


def changed(name, **values):
    """A change of a JSON file; None removes a key."""

    def change(folder):
        found = {**json.loads((folder / name).read_text()), **values}
        (folder / name).write_text(json.dumps({key: value for key, value in found.items() if value is not None}))

    return change


def config(**values):
    return changed("config.json", **values)


def tensors(edit):
    """A change of the tensors."""

    def change(folder):
        found = load_file(folder / "model.safetensors")
        edit(found)
        save_file(found, folder / "model.safetensors")

    return change


def replaced(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def header(entries, data=b""):
    """A safetensors file with any header."""
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return replaced("model.safetensors", struct.pack("<Q", len(text)) + text + data)


def not_finite(found):
    found["model.layers.1.mlp.up_proj.weight"][3, 4] = np.nan


def transposed(found):
    found["model.layers.0.mlp.up_proj.weight"] = np.ascontiguousarray(found["model.layers.0.mlp.up_proj.weight"].T)


def only_pickles(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(b"\x80\x04")


def shard_elsewhere(folder):
    (folder / "model.safetensors").rename(folder.parent / "outside.safetensors")
    index = {"metadata": {}, "weight_map": {"model.norm.weight": "../outside.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def shard_missing(folder):
    (folder / "model.safetensors").unlink()
    index = {"weight_map": {"model.norm.weight": "model-00001-of-00002.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def index_lies(folder):
    (folder / "model.safetensors").rename(folder / "one.safetensors")
    index = {"weight_map": {"model.norm.weight": "one.safetensors", "model.more.weight": "one.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))


def linked_to_a_pipe(folder):
    (folder / "model.safetensors").unlink()
    os.mkfifo(folder.parent / "pipe")
    (folder / "model.safetensors").symlink_to(folder.parent / "pipe")


def linked_to_itself(folder):
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to(folder / "config.json")


def truncated(folder):
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:-100])


def other_tokenizer(folder):
    model = made("llama", vocabulary=5)
    model.vocabulary = Vocabulary.of("abcde")
    fastpe.to_hf(model, folder.parent / "other")
    (folder / "tokenizer.json").write_bytes((folder.parent / "other" / "tokenizer.json").read_bytes())


ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
REFUSED = {
    "no config": (lambda folder: (folder / "config.json").unlink(), "config.json"),
    "config is no JSON": (replaced("config.json", b"{"), "config.json is damaged: it is not JSON"),
    "config is a list": (replaced("config.json", b"[]"), "config.json is damaged: it is [], where an object"),
    "config is deep": (replaced("config.json", b"[" * 10**5), "config.json is damaged: it is nested"),
    "config is large": (replaced("config.json", b" " * (2**22 + 1)), "config.json is damaged: it is larger than"),
    "config is binary": (replaced("config.json", b"\xff\xfe"), "config.json is damaged: it is not JSON: its bytes"),
    "another architecture": (config(model_type="mamba2"), "config.json: model_type 'mamba2' is not supported"),
    "architecture is a number": (config(model_type=3), "config.json is damaged: model_type is 3, where a text"),
    "width is text": (config(hidden_size="32"), "config.json is damaged: hidden_size is '32', where a whole number"),
    "width is true": (config(hidden_size=True), "config.json is damaged: hidden_size is True, where a whole number"),
    "width is negative": (config(hidden_size=-32), "config.json is damaged: hidden_size is -32, where a whole number"),
    "width is a fraction": (config(hidden_size=32.5), "config.json is damaged: hidden_size is 32.5, where a whole"),
    "width is missing": (config(hidden_size=None), "config.json is damaged: hidden_size is missing"),
    "width is huge": (config(hidden_size=2**27, head_dim=None), "tensor model.embed_tokens.weight has shape"),
    "layers are huge": (config(num_hidden_layers=2**27), "config.json is damaged: num_hidden_layers is 134217728, but"),
    "layers are more": (config(num_hidden_layers=5), "no safetensors file holds model.layers.2.self_attn.q_proj"),
    "layers are fewer": (config(num_hidden_layers=1), "LlamaForCausalLM has no tensor model.layers.1.input_layernorm"),
    "heads do not divide": (config(num_attention_heads=5), "is damaged: 5 heads cannot share 4 heads of keys"),
    "heads are odd": (config(num_attention_heads=5, num_key_value_heads=5, head_dim=None), "width must be divisible"),
    "rope is text": (config(rope_parameters="default"), "config.json is damaged: rope_parameters is 'default'"),
    "rope is unknown": (
        config(rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4}),
        "config.json: rope_parameters.rope_type 'dynamic' is not supported",
    ),
    "base is NaN": (
        lambda folder: (folder / "config.json").write_text(
            (folder / "config.json").read_text().replace("10000.0", "NaN")
        ),
        "config.json is damaged: it holds NaN",
    ),
    "activation is unknown": (config(hidden_act="tanh"), "config.json: hidden_act 'tanh' is not supported"),
    "code from the folder": (
        config(model_type="own", auto_map={"AutoModel": "x.Y"}), "config.json: the model needs code"
    ),
    "quantised": (config(quantization_config={"bits": 4}), "config.json: quantised weights are not supported"),
    "another vocabulary": (config(vocab_size=300), "tensor model.embed_tokens.weight has shape (256, 32) where"),
    "another tokenizer": (other_tokenizer, "tokenizer.json is damaged: it has 5 tokens, and the model 256"),
    "tokenizer is no JSON": (replaced("tokenizer.json", b"{"), "tokenizer.json is damaged: it is not JSON"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors"),
    "pickles only": (only_pickles, "pytorch_model.bin is a pickle, which can run any code"),
    "weights are a link to a pipe": (linked_to_a_pipe, "model.safetensors is damaged: it is a pipe or a device"),
    "config is a link to itself": (linked_to_itself, "config.json"),
    "shard outside": (shard_elsewhere, "is not the name of a safetensors file in the same folder"),
    "shard missing": (shard_missing, "model-00001-of-00002.safetensors"),
    "index names a tensor that is not there": (index_lies, "one.safetensors does not hold model.more.weight"),
    "weights are short": (replaced("model.safetensors", b"1234"), "model.safetensors is damaged: it states a header"),
    "weights are truncated": (truncated, "model.safetensors is damaged: it has"),
    "header is huge": (
        replaced("model.safetensors", struct.pack("<Q", 2**60) + b"{}"), "model.safetensors is damaged: it states a"
    ),
    "header is no JSON": (header(b"{]"), "model.safetensors is damaged: it is not JSON"),
    "header is a list": (header([]), "model.safetensors is damaged: its header is [], where an object"),
    "tensors overlap": (
        header({"a": ENTRY, "b": {**ENTRY, "data_offsets": [4, 12]}}, bytes(12)), "b.data_offsets is [4, 12], where"
    ),
    "tensor ends outside": (header({"a": {**ENTRY, "shape": [2**61]}}, bytes(8)), "a.data_offsets is [0, 8], where"),
    "offsets are negative": (header({"a": {**ENTRY, "data_offsets": [-8, 0]}}), "a.data_offsets[0] is -8, where a"),
    "dtype is unknown": (header({"a": {**ENTRY, "dtype": "F31"}}, bytes(8)), "a.dtype is 'F31', where"),
    "dtype is an integer": (header({"a": {**ENTRY, "dtype": "I32"}}, bytes(8)), "tensor a has the dtype I32, and only"),
    "tensor is missing": (
        tensors(lambda found: found.pop("model.norm.weight")), "no safetensors file holds model.norm.weight"
    ),
    "tensor is transposed": (
        tensors(transposed), "tensor model.layers.0.mlp.up_proj.weight has shape (32, 88) where config.json"
    ),
    "tensor is new": (
        tensors(lambda found: found.update({"model.gate": np.zeros(3, np.float32)})),
        "LlamaForCausalLM has no tensor model.gate",
    ),
    "tensor is not finite": (
        tensors(not_finite), "tensor model.layers.1.mlp.up_proj.weight has numbers that are not finite"
    ),
    "a name with control characters": (
        header({"a\x1b[2J\n": {**ENTRY, "dtype": "I32"}}, bytes(8)), "tensor a\\x1b[2J"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_in_one_line(name, folder):
    change, reason = REFUSED[name]
    change(folder)
    before = sorted(path.name for path in folder.iterdir())
    with pytest.raises((ValueError, OSError)) as caught:
        fastpe.load_hf(folder)
    message = str(caught.value)
    assert reason in message
    assert str(folder) in message
    assert "\n" not in message
    assert message.isprintable()
    assert len(message) < 700
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.parametrize("name", ["width is huge", "layers are huge", "header is huge", "tensor ends outside"])
def test_nothing_large_is_allocated(name, folder):
    REFUSED[name][0](folder)
    tracemalloc.start()
    try:
        with pytest.raises(ValueError, match="is damaged"):
            fastpe.load_hf(folder)
        assert tracemalloc.get_traced_memory()[1] < 20 * 2**20
    finally:
        tracemalloc.stop()


def test_links_to_files_are_followed(folder, tmp_path):
    """The cache of Hugging Face's hub has links to its files."""
    (tmp_path / "linked").mkdir()
    for path in folder.iterdir():
        (tmp_path / "linked" / path.name).symlink_to(path)
    assert fastpe.load_hf(tmp_path / "linked").config == fastpe.load_hf(folder).config
