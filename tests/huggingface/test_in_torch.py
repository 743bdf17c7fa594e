"""`fastpe evaluate --hf` with models that `fastpe.load_hf` does not read: transformers runs them in PyTorch."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="PyTorch is a peer: pip install -e '.[peers]' from a clone of fastpe")
transformers = pytest.importorskip("transformers", minversion="5", reason="a peer: pip install -e '.[peers]'")

from command_line import fastpe, refused  # noqa: E402 - only where the peers are
from safetensors.numpy import load_file, save_file  # noqa: E402
from torch.nn.functional import cross_entropy  # noqa: E402

import fastpe as library  # noqa: E402
from fastpe.huggingface import tokenizer  # noqa: E402
from fastpe.text.vocabulary import Vocabulary  # noqa: E402

# what transformers and PyTorch warn of on their way
pytestmark = pytest.mark.filterwarnings("ignore")

TEXT = "the cat sat on the mat, the dog sat on the cat\n" * 4
SIZES = {
    "vocab_size": 256, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": None,
}  # fmt: skip
SPECIAL = {
    "cohere2": {"sliding_window": 5, "head_dim": 8},  # logits are scaled behind the head
    "falcon": {"alibi": True, "multi_query": False},
    "gemma3_text": {"sliding_window": 5, "head_dim": 8, "final_logit_softcapping": 3.0},
    "gptj": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "rotary_dim": 4},
    "mamba": {"state_size": 4},
    "opt": {"ffn_dim": 48, "word_embed_proj_dim": 32},
}
EVALUATE = ("evaluate", "--data", "text", "--hf")


@pytest.fixture(autouse=True)
def _text(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text").write_text(TEXT)


def saved(family, **changed):
    """A small random model of bytes in a folder with the name of its family."""
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **{**SIZES, **SPECIAL.get(family, {}), **changed})
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # sharper attention than with initial weights
            parameter.add_(0.2 * torch.randn_like(parameter))
    model.save_pretrained(family)
    vocabulary = Vocabulary()
    tokenizer.write(Path(family), vocabulary, 64, (0, "<0x00>"))
    return model


def loss_in_blocks(model, length):
    """The mean loss on the text, by the plainest way."""
    tokens = torch.tensor([*TEXT.encode()])
    nats = []
    with torch.no_grad():
        for start in range(0, len(tokens) - 1, length):
            end = min(start + length, len(tokens) - 1)
            logits = model(tokens[None, start:end]).logits[0]
            nats.append(cross_entropy(logits, tokens[start + 1 : end + 1], reduction="none"))
    return float(torch.cat(nats).double().mean())


@pytest.mark.full("PyTorch and transformers take seconds")
@pytest.mark.parametrize("family", SPECIAL)
def test_losses_are_those_of_transformers(family):
    model = saved(family)
    done = fastpe(*EVALUATE, family, "--lengths", "8,32", "--json")
    found = json.loads(done.stdout)
    assert "it runs in PyTorch" in done.stderr
    assert found["encoding"] is None
    for length in (8, 32):
        assert found["test"][str(length)]["loss"] == pytest.approx(loss_in_blocks(model, length), rel=1e-5)


@pytest.mark.full("compiles attention with bands")
def test_bands_are_those_of_rotated():
    model = saved("cohere2")
    command = (*EVALUATE, "cohere2", "--length-curve", "--lengths", 32, "--bands", "none", "--bands")
    plain, changed = json.loads(fastpe(*command, "rerope:window=3", "--json").stdout)
    assert plain["blocks"]["points"][0]["loss"] == pytest.approx(loss_in_blocks(model, 32), rel=1e-5)
    with library.torch.rotated(model, "rerope", window=3):
        right = loss_in_blocks(model, 32)
    assert changed["bands"] == "rerope:window=3"
    assert changed["blocks"]["points"][0]["loss"] == pytest.approx(right, rel=1e-5)
    assert changed["blocks"]["points"][0]["loss"] != pytest.approx(plain["blocks"]["points"][0]["loss"], rel=1e-4)
    table = fastpe(*command, "rerope:window=3", "--out", "curve.svg")
    assert table.exit_code == 0
    assert "rerope:window=3" in Path("curve.svg").read_text()


def test_bands_that_do_not_fit_are_refused_before_any_work():
    saved("falcon")
    told = refused(2, *EVALUATE, "falcon", "--length-curve", "--bands", "none", "--bands", "streaming:recent=4")
    assert "FalconForCausalLM computes attention itself" in told
    assert "reading the text" not in told


def test_a_length_beyond_a_table_of_positions():
    saved("opt")
    found = json.loads(fastpe(*EVALUATE, "opt", "--lengths", "64,100", "--json").stdout)["test"]
    assert found["64"]["loss"] is not None
    assert found["100"]["reason"] == "OPTForCausalLM has no positions for length 100"


def test_without_pytorch(monkeypatch):
    saved("opt")
    monkeypatch.setitem(sys.modules, "torch", None)
    told = refused(2, *EVALUATE, "opt", "--lengths", 8)
    assert "model_type 'opt' is not supported" in told
    assert "if the packages torch and transformers are installed" in told


def test_other_commands_need_a_model_that_fastpe_reads():
    saved("opt")
    for command in ((*EVALUATE, "opt", "--receptive-field"), ("generate", "--hf", "opt", "the ")):
        assert "model_type 'opt' is not supported" in refused(2, *command)


def test_folders_that_transformers_cannot_run():
    saved("opt")
    tensors = load_file("opt/model.safetensors")
    name = "model.decoder.layers.1.fc1.weight"
    save_file({key: value for key, value in tensors.items() if key != name}, "opt/model.safetensors", {"format": "pt"})
    assert f"no safetensors file holds {name}" in refused(2, *EVALUATE, "opt", "--lengths", 8)
    save_file({**tensors, "other": np.zeros(2)}, "opt/model.safetensors", {"format": "pt"})
    assert "tensor other has the dtype F64" in refused(2, *EVALUATE, "opt", "--lengths", 8)
    save_file({**tensors, name: np.zeros((4, 32), np.float32)}, "opt/model.safetensors", {"format": "pt"})
    assert "opt: transformers cannot run the model: " in refused(2, *EVALUATE, "opt", "--lengths", 8)
    config = json.loads(Path("opt/config.json").read_text())
    for changed, reason in (
        ({"quantization_config": {"bits": 4}}, "quantised weights are not supported"),
        ({"model_type": "mine", "auto_map": {"AutoModel": "x.Y"}}, "the model needs code from its folder"),
        ({"model_type": "mine"}, "transformers cannot run the model"),
    ):
        Path("opt/config.json").write_text(json.dumps({**config, **changed}))
        assert reason in refused(2, *EVALUATE, "opt", "--lengths", 8)


def test_a_model_that_reads_later_tokens_is_refused():
    saved("bert")
    assert "BertLMHeadModel reads later tokens" in refused(2, *EVALUATE, "bert", "--lengths", 8)
