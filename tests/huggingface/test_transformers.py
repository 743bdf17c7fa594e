"""Exported models compared with transformers: logits, token by token with a cache, and generated text."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")
transformers = pytest.importorskip("transformers", minversion="5", reason="a peer: pip install -e '.[peers]'")

from hf_models import CASES, architecture, made  # noqa: E402 - only where the peers are

import fastpe  # noqa: E402
from fastpe.text.vocabulary import Vocabulary  # noqa: E402

# what transformers and PyTorch warn of on their way
pytestmark = pytest.mark.filterwarnings("ignore")
TEXT = "To be, or not to be: that is the question\n\u0100\u010a\u00e9\u4e2d 0123"


def read(folder):
    """The model as transformers reads it; nothing may be missing, left over or of another shape."""
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
    assert not any(found for key, found in info.items() if key != "error_msgs"), info
    return model.eval()


def logits(model, tokens, **more):
    with torch.no_grad():
        return model(torch.from_numpy(tokens), **more)


def within(found, expected):
    return np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("name", CASES)
def test_logits_and_cache(name, tmp_path):
    model, tokens = made(name), np.random.default_rng(1).integers(0, 65, (2, 40))
    written = fastpe.to_hf(model, tmp_path / "model", architecture=architecture(name))
    theirs, ours = read(tmp_path / "model"), model(tokens)
    assert type(theirs).__name__ == written
    assert within(logits(theirs, tokens).logits.numpy(), ours)
    past = logits(theirs, tokens[:1, :20], use_cache=True).past_key_values
    for place in (20, 21):
        step = logits(theirs, tokens[:1, place : place + 1], past_key_values=past, use_cache=True)
        past = step.past_key_values
        assert within(step.logits.numpy()[0, 0], ours[0, place])


@pytest.mark.full("transformers reads and writes every model")
@pytest.mark.parametrize("name", CASES)
def test_what_transformers_writes_is_read(name, tmp_path):
    """Also without fastpe's own entry in config.json."""
    model, tokens = made(name), np.random.default_rng(1).integers(0, 65, (2, 40))
    fastpe.to_hf(model, tmp_path / "model", architecture=architecture(name))
    read(tmp_path / "model").save_pretrained(tmp_path / "again", max_shard_size="20KB")
    assert (tmp_path / "again" / "model.safetensors.index.json").exists()
    again = fastpe.load_hf(tmp_path / "again")
    assert again.config == model.config
    assert np.array_equal(again(tokens), model(tokens))
    found = json.loads((tmp_path / "again" / "config.json").read_text())
    del found["fastpe"]
    (tmp_path / "again" / "config.json").write_text(json.dumps(found))
    assert within(fastpe.load_hf(tmp_path / "again")(tokens), model(tokens))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("tied", [False, True])
def test_a_llama_with_shared_heads(tied, dtype, tmp_path):
    config = transformers.LlamaConfig(
        vocab_size=65, hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2, rms_norm_eps=1e-5, tie_word_embeddings=tied, max_position_embeddings=64,
    )  # fmt: skip
    torch.manual_seed(0)
    transformers.LlamaForCausalLM(config).to(getattr(torch, dtype)).save_pretrained(tmp_path)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    tokens = np.random.default_rng(1).integers(0, 65, (2, 40))
    assert within(fastpe.load_hf(tmp_path)(tokens), logits(theirs, tokens).logits.numpy())


def test_an_old_gpt_neox(tmp_path):
    """Before transformers 5, a config.json had no `rope_parameters`."""
    fastpe.to_hf(made("gpt_neox, partial"), tmp_path)
    path = tmp_path / "config.json"
    found = {**json.loads(path.read_text()), "rotary_emb_base": 500, "rotary_pct": 0.5}
    path.write_text(json.dumps({key: found[key] for key in found.keys() - {"rope_parameters", "fastpe"}}))
    tokens = np.random.default_rng(1).integers(0, 65, (2, 40))
    assert within(fastpe.load_hf(tmp_path)(tokens), logits(read(tmp_path), tokens).logits.numpy())


def texted(name, vocabulary):
    model = made(name, vocabulary=vocabulary.size)
    model.vocabulary = vocabulary
    return model


@pytest.mark.parametrize("vocabulary", [Vocabulary(), Vocabulary.of(TEXT)], ids=["bytes", "characters"])
@pytest.mark.parametrize("eos", [None, "\n"], ids=["usual", "line"])
def test_tokens_and_generated_text(vocabulary, eos, tmp_path):
    model = texted("gpt2", vocabulary)
    fastpe.to_hf(model, tmp_path / "model", eos=eos)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    tokens = vocabulary.encode(TEXT).tolist()
    assert tokenizer(TEXT)["input_ids"] == tokens
    assert tokenizer.decode(tokens, skip_special_tokens=False) == TEXT
    if eos is None:
        assert tokenizer.decode(tokens, skip_special_tokens=True) == TEXT
    write = transformers.pipeline("text-generation", str(tmp_path / "model"))
    prompt = "To be"
    (found,) = write(prompt, do_sample=False, max_new_tokens=20, return_full_text=False)
    expected = model.generate(prompt, 20, temperature=0.0)
    end = {"bytes": "\0", "characters": None}[vocabulary.kind] if eos is None else eos
    cut = expected if end is None else expected.partition(end)[0]
    assert found["generated_text"] == cut


def test_an_unknown_character_is_an_error(tmp_path):
    fastpe.to_hf(texted("gpt2", Vocabulary.of(TEXT)), tmp_path / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model")
    with pytest.raises(Exception, match="UNK"):
        tokenizer("§")


def test_padding_on_the_left(tmp_path):
    model = texted("llama", Vocabulary())
    fastpe.to_hf(model, tmp_path / "model")
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "model", padding_side="left")
    given = tokenizer(["To be", "or not to be"], padding=True, return_tensors="pt")
    with torch.no_grad():
        found = read(tmp_path / "model")(**given).logits.numpy()[0, -5:]
    assert within(found, model(model.vocabulary.encode("To be").astype(int)))
