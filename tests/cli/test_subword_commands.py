"""Subwords on the command line: training, measures and generation with tokenizers, and with files of tokens."""

import json
import sys

import numpy as np
import pytest
import tokenizer_files as made
from command_line import fastpe, refused

from fastpe.model.generation import Generation
from fastpe_cli import generate

SIZES = {"width": 8, "hidden": 8, "layers": 1, "train-length": 8, "samples": 16, "batch": 8, "epochs": 1}
SMALL = ["--task", "text", *(word for name, size in SIZES.items() for word in (f"--{name}", str(size)))]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a text, its tokens, a tokenizer, and two runs with different tokens."""
    root = tmp_path_factory.mktemp("subwords")
    (root / "text.txt").write_text(made.TEXT, "utf-8")
    (root / "tokenizer.json").write_bytes(made.byte_level())
    np.arange(600, dtype=np.uint16).tofile(root / "train.bin")
    for run, tokens in (("bpe", "bpe:280"), ("file", root / "tokenizer.json")):
        found = train(root, "--data", root / "text.txt", "--tokens", tokens, "--out", root / run)
        assert found.exit_code == 0, found.output
    return root


@pytest.fixture
def inside(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


def train(root, *arguments):
    return fastpe("train", "--encoding", "rope", *SMALL, *arguments)


def test_losses_stand_beside_bits_per_byte(inside):
    found = fastpe("evaluate", "bpe")
    assert [word for word in found.stdout.split("\n")[0].split() if word != "length"] == ["loss", "bits/byte", "tokens"]
    result = json.loads(fastpe("evaluate", "bpe", "--json").stdout)["test"]
    assert result == json.loads((inside / "bpe" / "result.json").read_text())["test"]
    curve = json.loads(fastpe("evaluate", "bpe", "--length-curve", "--test-lengths", "8", "--json").stdout)[0]
    assert curve["blocks"]["points"][0]["bits_per_byte"] == pytest.approx(result["8"]["bits_per_byte"], rel=1e-12)
    assert fastpe("evaluate", "bpe", "--receptive-field", "--test-lengths", "8").exit_code == 0


def test_another_text_is_encoded_with_the_tokens_of_the_run(inside, tmp_path):
    (tmp_path / "other.txt").write_text("The mat sat on the cat. " * 20)
    found = json.loads(fastpe("evaluate", "bpe", "--data", tmp_path / "other.txt", "--json").stdout)
    assert found["test"]["8"]["bits_per_byte"] > 0


def test_runs_with_different_tokens_are_not_compared(inside):
    line = refused(2, "evaluate", "bpe", "file", "--length-curve", "--test-lengths", "8")
    assert "these runs have different tokens: their losses per token and lengths cannot be compared" in line


def test_half_characters_are_held_back(inside, monkeypatch):
    """A token may end inside a character: its bytes are written with the rest of the character."""
    tokens, written = [], []
    for byte in "日😀é".encode():
        tokens += [next(t for t, piece in enumerate(generation_pieces(inside)) if piece == bytes([byte]))]
    monkeypatch.setattr(Generation, "__iter__", lambda self: iter(tokens))
    monkeypatch.setattr(generate, "_tell", written.append)
    assert fastpe("generate", "bpe", "The", "--length", str(len(tokens))).exit_code == 0
    assert written == ["The", "", "", "日", "", "", "", "😀", "", "é", "\n"]
    found = json.loads(fastpe("generate", "bpe", "The", "--length", str(len(tokens)), "--json").stdout)
    assert found["text"] == "日😀é"


def generation_pieces(folder):
    from fastpe import load

    return load(folder / "bpe").vocabulary.subwords.pieces


def test_a_file_of_tokens(inside, tmp_path):
    found = train(inside, "--data", "train.bin", "--out", tmp_path / "ids", "--vocabulary", "640")
    assert found.exit_code == 0, found.output
    assert json.loads((tmp_path / "ids" / "result.json").read_text())["validation"]["bits_per_byte"] is None
    assert "nats per token" in found.stdout
    assert "bits per byte" not in found.stdout
    line = refused(2, "generate", tmp_path / "ids", "The")
    assert "the text of these tokens is unknown: train the model with their tokenizer, --tokens FILE" in line
    assert fastpe("evaluate", tmp_path / "ids", "--length-curve", "--test-lengths", "8").exit_code == 0


def test_training_goes_on_without_positions(inside, tmp_path):
    found = fastpe("train", "--from", "bpe", "--encoding", "nope", "--train-length", "16", "--samples", "8",
                   "--epochs", "1", "--out", tmp_path / "dropped")  # fmt: skip
    assert found.exit_code == 0, found.output
    assert "weights of bpe: nope" in found.stderr
    assert "starts from" not in found.stderr
    told = fastpe("train", "--from", "bpe", "--encoding", "t5", "--samples", "8", "--epochs", "1", "--out",
                  tmp_path / "t5")  # fmt: skip
    assert "the model starts from bpe, but has initial values of encoding.t5.table" in " ".join(told.stderr.split())


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (
            "--data text.txt --tokens words",
            "--tokens of task 'text' must be bytes, characters, ids, bpe:N or the path of a tokenizer.json",
        ),
        (
            "--data text.txt --tokens bpe:10",
            "--tokens of task 'text' must be bpe:N with N from 257 to 1048576",
        ),
        ("--data text.txt --tokens text.txt", "text.txt is damaged: it is no tokenizer.json that the package"),
        (
            "--data text.txt --tokens ids",
            "--data must be a file of tokens, .bin or .npy, for --tokens ids, not text.txt",
        ),
        (
            "--data train.bin --tokens bpe:300",
            "--tokens bpe:300 are trained on a text, but data train.bin holds tokens",
        ),
        ("--data train.bin --vocabulary 500", "--vocabulary must be at least 600"),
        ("--data text.txt --vocabulary 500", "--vocabulary must be None for task 'text'"),
    ],
)
def test_a_mistake_costs_one_line(inside, tmp_path, arguments, line):
    told = refused(2, "train", "--encoding", "rope", *SMALL, *arguments.split(), "--out", tmp_path / "run")
    assert line in told
    assert not (tmp_path / "run").exists()


def test_a_missing_package_costs_one_line(inside, tmp_path, monkeypatch):
    from fastpe.text import subwords

    monkeypatch.setitem(sys.modules, "tokenizers", None)
    subwords.opened.cache_clear()
    told = refused(2, "train", "--encoding", "rope", *SMALL, "--data", "text.txt", "--tokens", "bpe:281")
    assert "tokens of subwords need the package tokenizers: pip install 'fastpe[hf]'" in told


@pytest.mark.full("starts processes")
@pytest.mark.parametrize(
    ("data", "tokens", "unit"),
    [
        ("text.txt", "bpe:280", "bits per byte"),
        ("text.txt", "tokenizer.json", "bits per byte"),
        ("train.bin", "ids", "nats per token"),
    ],
)
def test_a_study_of_tokens(inside, tmp_path, data, tokens, unit):
    """It is judged by bits per byte, and by the loss if the text of the tokens is unknown."""
    (tmp_path / "study.toml").write_text(
        f"""
        seeds = 2
        preset = "li2025"
        [encoding.alibi]
        encoding = "alibi"
        [encoding.nope]
        encoding = "nope"
        [task.text]
        task = "text"
        options = {{ tokens = "{tokens}" }}
        [settings]
        causal = true
        """
        + "".join(f"{name.replace('-', '_')} = {size}\n" for name, size in SIZES.items())
        + f'data = "{inside / data}"\n'
    )
    found = fastpe("compare", "--study", tmp_path / "study.toml", "--out", tmp_path / "out", "--workers", "1")
    assert found.exit_code == 0, found.output
    assert unit in " ".join(found.stdout.split())
    for run in (tmp_path / "out" / "runs").iterdir():
        assert (run / "tokenizer.json").exists() == (tokens != "ids")
    page = (tmp_path / "out" / "report.html").read_text()
    assert unit.replace("bits per byte", "bits/byte").replace("nats per token", "nats/token") in page
    assert (tmp_path / "out" / "results.csv").read_text().count("bits_per_byte") > 0
    again = fastpe("report", tmp_path / "out")
    assert again.exit_code == 0, again.output
