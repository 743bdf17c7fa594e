"""Checkpoints that `to_hf` does not write: keys and tensors of earlier versions, and settings that are refused."""

import dataclasses
import json

import numpy as np
import pytest
from hf_models import config, made
from safetensors.numpy import load_file, save_file

import fastpe
from fastpe.huggingface.families import NEUTRAL, effective

TOKENS = np.random.default_rng(1).integers(0, 65, (2, 40))


def edited(folder, **values):
    """Change keys of config.json and remove those that are None, and fastpe's own."""
    path = folder / "config.json"
    found = {**json.loads(path.read_text()), **values, "fastpe": None}
    path.write_text(json.dumps({key: value for key, value in found.items() if value is not None}))


def with_tensors(folder, **tensors):
    path = folder / "model.safetensors"
    save_file({**load_file(path), **{name.replace("__", "."): array for name, array in tensors.items()}}, path)


def test_base_and_share_of_an_old_gpt_neox(tmp_path):
    """Before transformers 5, they were `rotary_emb_base` and `rotary_pct`."""
    model = made("gpt_neox, partial")
    fastpe.to_hf(model, tmp_path)
    edited(tmp_path, rope_parameters=None, rotary_emb_base=500, rotary_pct=0.5)
    again = fastpe.load_hf(tmp_path)
    assert dict(again.config.options) == {"rope.base": 500.0, "rope.pairs": "half", "rope.rotated": 4}
    assert np.abs(again(TOKENS) - model(TOKENS)).max() <= 2e-6 * np.abs(model(TOKENS)).max()


@pytest.mark.parametrize("name", ["rope_theta", "rope_scaling"])
def test_base_and_scaling_of_an_old_llama(name, tmp_path):
    model = made("llama, linear")
    fastpe.to_hf(model, tmp_path)
    rope = {"type": "linear", "factor": 2.0}
    edited(
        tmp_path, rope_parameters=None, rope_theta=10000.0, **{"rope_scaling": rope} if name == "rope_scaling" else {}
    )
    assert fastpe.load_hf(tmp_path).config.encoding == ("rope_linear" if name == "rope_scaling" else "rope")


@pytest.mark.parametrize(
    ("name", "changed", "reason"),
    [
        ("llama", {"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5 is not supported, only 1"),
        (
            "mistral", {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
            "partial_rotary_factor 0.5 is not supported, only 1",
        ),
        (
            "phi3", {"rope_parameters": {"rope_type": "linear", "factor": 2.0}},
            "rope_parameters.rope_type 'linear' is not supported, only 'default'",
        ),
        ("stablelm", {"use_parallel_residual": True}, "use_parallel_residual True is not supported, only False"),
        ("stablelm", {"qk_layernorm": True}, "qk_layernorm True is not supported, only False"),
        ("llama", {"max_position_embeddings": None}, "max_position_embeddings is missing"),
        ("llama", {"model_type": "other", "auto_map": {"AutoModel": "x.Y"}}, "the model needs code from its folder"),
    ],
)  # fmt: skip
def test_settings_that_fastpe_lacks_are_refused(name, changed, reason, tmp_path):
    fastpe.to_hf(made(name), tmp_path)
    edited(tmp_path, **changed)
    with pytest.raises(ValueError, match=r"config\.json") as caught:
        fastpe.load_hf(tmp_path)
    assert reason in str(caught.value)


def test_code_of_a_known_architecture_is_not_needed(tmp_path):
    """Published Phi-3 files name code in `auto_map`; transformers has the architecture itself."""
    model = made("phi3")
    fastpe.to_hf(model, tmp_path)
    edited(tmp_path, auto_map={"AutoModelForCausalLM": "modeling_phi3.Phi3ForCausalLM"})
    assert np.abs(fastpe.load_hf(tmp_path)(TOKENS) - model(TOKENS)).max() <= 2e-6 * np.abs(model(TOKENS)).max()


@pytest.mark.parametrize("dtype", [np.bool_, np.uint8, np.float32])
@pytest.mark.parametrize(
    ("name", "layer"), [("gpt2", "transformer__h__0__attn"), ("gpt_neox", "gpt_neox__layers__0__attention")]
)
def test_old_buffers_are_ignored(name, layer, dtype, tmp_path):
    """Whatever their dtype, because they follow from config.json."""
    model = made(name)
    fastpe.to_hf(model, tmp_path)
    buffers = {"bias": np.tri(48, dtype=dtype)[None, None], "masked_bias": np.zeros((), dtype)}
    with_tensors(tmp_path, **{f"{layer}__{buffer}": array for buffer, array in buffers.items()})
    assert np.array_equal(fastpe.load_hf(tmp_path)(TOKENS), model(TOKENS))


@pytest.mark.parametrize("name", ["embed_out__weight", "lm_head__weight"])
def test_a_tied_head_may_be_stored(name, tmp_path):
    model = made("gpt_neox")
    fastpe.to_hf(model, tmp_path)
    with_tensors(tmp_path, **{name: np.array(model.parameters["embed.weight"])})
    assert np.array_equal(fastpe.load_hf(tmp_path)(TOKENS), model(TOKENS))


def test_a_head_is_stored_once(tmp_path):
    model = made("gpt_neox, halves, untied")
    fastpe.to_hf(model, tmp_path)
    with_tensors(tmp_path, lm_head__weight=np.array(model.parameters["head.weight"].T))
    with pytest.raises(ValueError, match=r"GPTNeoXForCausalLM has no tensor lm_head\.weight"):
        fastpe.load_hf(tmp_path)


LENGTH_DEPENDENT = [
    "laplacian", "magnetic", "signnet", "rwse", "learned_2d", "factorised_st", "sincos_2d_mae", "sincos_3d",
]  # fmt: skip


@pytest.mark.parametrize("encoding", LENGTH_DEPENDENT)
def test_a_table_that_depends_on_the_length_is_refused(encoding, tmp_path):
    """GPT-2 has one row for each position, whatever the length of the sequence."""
    model = made("gpt2", encoding=encoding)
    with pytest.raises(
        ValueError, match=f"needs encoding with rows that do not depend on the length, not '{encoding}'"
    ):
        fastpe.to_hf(model, tmp_path / "model", architecture="gpt2")
    assert not (tmp_path / "model").exists()


@pytest.mark.parametrize("encoding", ["fox", "path", "grape_a", "ssd_decay"])
def test_a_gate_is_no_table(encoding, tmp_path):
    """These encodings fill no slot, but their gates change attention."""
    with pytest.raises(ValueError, match=f"GPT2LMHeadModel needs encoding with only a table, not '{encoding}'"):
        fastpe.to_hf(made("gpt2", encoding=encoding), tmp_path / "model", architecture="gpt2")


def test_all_rows_of_a_table_are_written(tmp_path):
    """`encoding_length` may state more rows than there are positions in training."""
    model = made("gpt2", encoding_length=60)
    fastpe.to_hf(model, tmp_path)
    assert load_file(tmp_path / "model.safetensors")["transformer.wpe.weight"].shape == (60, 32)
    again = fastpe.load_hf(tmp_path)
    assert again.config == model.config
    assert np.array_equal(again.parameters["encoding.learned.table"], model.parameters["encoding.learned.table"])
    edited(tmp_path)
    longer = np.random.default_rng(2).integers(0, 65, (1, 60))
    assert np.array_equal(fastpe.load_hf(tmp_path)(longer), model(longer))


def test_phi3_has_no_scaled_rotations(tmp_path):
    own = {"encoding": "rope_linear", "options": {"factor": 2.0}}
    with pytest.raises(ValueError, match="Phi3ForCausalLM needs encoding 'rope', not 'rope_linear'"):
        fastpe.to_hf(fastpe.Transformer(config("phi3", **own)), tmp_path / "model", architecture="phi3")


@pytest.mark.parametrize("eps", [1e-5, 1e-12])
def test_all_embeddings_of_a_bloom_are_small(eps, tmp_path):
    """Also of a token whose embedding is much larger than the others, so that the norm behind them is a factor."""
    model = made("bloom", norm_eps=eps)
    model.parameters["embed.weight"][3] *= 1000
    fastpe.to_hf(model, tmp_path, architecture="bloom")
    stored = load_file(tmp_path / "model.safetensors")["transformer.word_embeddings.weight"].astype(np.float64)
    assert np.square(stored).mean(axis=1).max() <= 1e-8 * eps
    again = fastpe.load_hf(tmp_path)
    assert again.config == model.config
    assert np.array_equal(again.parameters["embed.weight"], model.parameters["embed.weight"])


def test_the_factor_of_a_bloom_is_any_number(tmp_path):
    """`to_hf` writes a power of two; other software need not."""
    model = made("bloom")
    fastpe.to_hf(model, tmp_path, architecture="bloom")
    edited(tmp_path)
    norm = "transformer.word_embeddings_layernorm.weight"
    with_tensors(tmp_path, **{norm.replace(".", "__"): 1.3 * load_file(tmp_path / "model.safetensors")[norm]})
    found = fastpe.load_hf(tmp_path).parameters["embed.weight"]
    np.testing.assert_allclose(found, 1.3 * model.parameters["embed.weight"], rtol=1e-6)


@pytest.mark.parametrize("stored", [True, False, None])
def test_biases_that_are_null_are_those_of_the_default(stored, tmp_path):
    """GPT-NeoX has biases in attention unless config.json says that it has none."""
    model = made("gpt_neox", bias=stored is not False)
    fastpe.to_hf(model, tmp_path)
    found = json.loads((tmp_path / "config.json").read_text())
    assert found["attention_bias"] is (stored is not False)
    (tmp_path / "config.json").write_text(json.dumps({**found, "attention_bias": stored}))
    assert np.array_equal(fastpe.load_hf(tmp_path)(TOKENS), model(TOKENS))


def test_optional_settings_have_a_neutral_value():
    """`effective` replaces a setting that a model leaves out, so it needs a value for each of them."""
    optional = {each.name for each in dataclasses.fields(fastpe.ModelConfig) if each.metadata}
    assert optional - {"encoding_length"} == set(NEUTRAL)  # the classes of `positions` have the lengths
    usual = fastpe.ModelConfig("nope", width=48, heads=4)
    for name in NEUTRAL:
        assert getattr(usual, name) in (None, effective(usual)[name]), name
