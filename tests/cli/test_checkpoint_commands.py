"""Checkpoints of Hugging Face on the command line: export, losses at several lengths and with bands, generated text."""

import json
from pathlib import Path

import pytest
from command_line import fastpe, refused
from hf_models import made

from fastpe.huggingface import loading
from fastpe.text.vocabulary import Vocabulary
from fastpe_cli import curves
from fastpe_cli.output import Source

TEXT = "the cat sat on the mat, the dog sat on the cat\n" * 8


@pytest.fixture(autouse=True)
def _files(tmp_path, monkeypatch):
    """A model of bytes in a file, its checkpoint, and a text."""
    monkeypatch.chdir(tmp_path)
    model = made("llama", vocabulary=256, train_length=16)
    model.vocabulary = Vocabulary()
    model.save("model.safetensors")
    (tmp_path / "text").write_text(TEXT)
    assert fastpe("export", "model.safetensors", "--hf", "hf").exit_code == 0


def test_export_says_what_it_wrote(tmp_path):
    done = fastpe("export", "model.safetensors", "--hf", "again", "--architecture", "llama", "--eos", "\n")
    assert done.stdout == "written: again, a LlamaForCausalLM\n"
    assert json.loads((tmp_path / "again" / "config.json").read_text())["eos_token_id"] == 10


def test_mistakes_cost_one_line(tmp_path):
    assert "--hf must be new or empty" in refused(2, "export", "model.safetensors", "--hf", "hf")
    assert "MptForCausalLM needs norm 'layernorm', not 'rmsnorm'" in refused(
        2, "export", "model.safetensors", "--hf", "x", "--architecture", "mpt"
    )
    assert "Missing option '--hf'" in refused(2, "export", "model.safetensors")
    assert "Missing argument 'RUN...'" in refused(2, "evaluate", "--data", "text")
    assert "several --bands need --length-curve" in refused(
        2, "evaluate", "--hf", "hf", "--data", "text", "--bands", "none", "--bands", "streaming"
    )
    assert "give RUN and PROMPT, or --hf FOLDER and PROMPT" in refused(2, "generate", "--hf", "hf")
    assert "give RUN and PROMPT, or --hf FOLDER and PROMPT" in refused(2, "generate", "--hf", "hf", "a", "b")
    (tmp_path / "hf" / "tokenizer.json").unlink()
    told = "hf has no tokenizer.json, which the text needs: put that of the model into the folder"
    assert told in refused(2, "generate", "--hf", "hf", "the ")
    assert told in refused(2, "evaluate", "--hf", "hf", "--data", "text")
    assert not (tmp_path / "x").exists()


def test_a_checkpoint_is_loaded_once(monkeypatch):
    """Loading takes seconds, so it is not done before a mistake is found, nor twice."""
    loaded, load = [], loading.load_hf
    monkeypatch.setattr(loading, "load_hf", lambda folder: (loaded.append(str(folder)), load(folder))[1])
    for more in ([], ["--length-curve"], ["--receptive-field"]):
        assert "--hf needs --data FILE" in refused(2, "evaluate", "--hf", "hf", *more)
    assert loaded == []
    assert fastpe("evaluate", "--hf", "hf", "--data", "text", "--lengths", "8").exit_code == 0
    assert loaded == ["hf"]


def test_no_bands():
    """The scheme `none` changes nothing, also if it is the only one."""
    for more in ([], ["--length-curve"]):
        command = ("evaluate", "--hf", "hf", "--data", "text", "--lengths", "8", *more, "--json")
        assert json.loads(fastpe(*command, "--bands", "none").stdout) == json.loads(fastpe(*command).stdout)


def test_tokens_without_a_text(tmp_path):
    """Their checkpoint has no tokenizer, so text cannot be generated with it."""
    model = made("llama", vocabulary=65)
    model.vocabulary = Vocabulary("ids", tokens=65)
    model.save("ids.safetensors")
    assert fastpe("export", "ids.safetensors", "--hf", "ids").output == "written: ids, a LlamaForCausalLM\n"
    assert not (tmp_path / "ids" / "tokenizer.json").exists()
    assert "the text of this model's tokens is unknown" in refused(
        2, "export", "ids.safetensors", "--hf", "x", "--eos", "a"
    )


def test_a_checkpoint_generates_as_its_model_does():
    one = json.loads(fastpe("generate", "model.safetensors", "the ", "--length", 9, "--json").stdout)
    two = json.loads(fastpe("generate", "--hf", "hf", "the ", "--length", 9, "--json").stdout)
    assert one["tokens"] == two["tokens"]
    assert two["run"] == "hf"


def test_losses_of_a_checkpoint_and_of_its_model_are_equal():
    command = ("evaluate", "model.safetensors", "--hf", "hf", "--data", "text", "--lengths", "8,32")
    one, two = json.loads(fastpe(*command, "--length-curve", "--json").stdout)
    assert one["blocks"] == two["blocks"]
    assert [each["run"] for each in (one, two)] == ["model.safetensors", "hf"]
    losses = json.loads(fastpe("evaluate", "--hf", "hf", "--data", "text", "--lengths", "8,32", "--json").stdout)
    expected = [point["loss"] for point in one["blocks"]["points"]]
    assert [each["loss"] for each in losses["test"].values()] == pytest.approx(expected)
    fields = fastpe("evaluate", "--hf", "hf", "--data", "text", "--receptive-field", "--lengths", 8, "--json")
    assert [each["run"] for each in json.loads(fields.stdout)] == ["hf"]


def test_bands_are_compared_in_one_table():
    command = ("evaluate", "--hf", "hf", "--data", "text", "--length-curve", "--lengths", 32)
    bands = ("--bands", "none", "--bands", "rerope:window=8", "--bands", "self_extend:group=1,window=8")
    found = json.loads(fastpe(*command, *bands, "--json").stdout)
    assert [each.get("bands") for each in found] == [None, "rerope:window=8", "self_extend:group=1,window=8"]
    plain, changed, same = (each["blocks"]["points"][0]["loss"] for each in found)
    assert same == pytest.approx(plain, rel=1e-5)
    assert changed != pytest.approx(plain, rel=1e-4)
    table = fastpe(*command, *bands).stdout
    assert "rerope:window=8" in table
    assert "none" in table
    assert fastpe(*command, "--bands", "rerope:window=8").stdout.count("hf") >= 1
    assert "bands must be one of" in refused(2, *command, "--bands", "none", "--bands", "stretch")


def test_rows_are_named_by_what_differs(tmp_path):
    """By the model, by the bands, or by both; models in folders of the same name by their paths."""
    (tmp_path / "other").mkdir()
    (tmp_path / "hf").rename(tmp_path / "other" / "model.safetensors")
    one, two = Source(Path("model.safetensors")), Source(Path("other/model.safetensors"), hf=True)
    for sources, bands, labels in (
        ([one], (), ["model.safetensors"]),
        ([one], ("streaming:recent=4",), ["model.safetensors"]),
        ([one], ("none", "streaming:recent=4"), ["none", "streaming:recent=4"]),
        ([one, two], (), ["model.safetensors", "other/model.safetensors"]),
        (
            [one, two], ("none", "rerope:window=8"),
            ["model.safetensors, none", "model.safetensors, rerope:window=8",
             "other/model.safetensors, none", "other/model.safetensors, rerope:window=8"],
        ),
    ):  # fmt: skip
        found = curves.on_texts(sources, Path("text"), bands)
        assert [each.label for each in found] == labels
        assert [each.bands for each in found] == [*(bands or ["none"])] * len(sources)


def test_the_theory_of_a_checkpoint_is_that_of_its_model():
    one, two = (
        json.loads(fastpe("theory", *source, "--json").stdout)
        for source in (("--run", "model.safetensors"), ("--hf", "hf"))
    )
    assert one == two
    assert "run.spectral" in one["pages"][0]["records"]
    for more, reason in (
        (("--probe",), "--probe needs --run"),
        (("--run", "model.safetensors"), "--run and --hf exclude each other"),
        (("--heads", 2), "--hf uses the sizes and options of the model: leave out --heads"),
    ):
        assert reason in refused(2, "theory", "--hf", "hf", *more)
