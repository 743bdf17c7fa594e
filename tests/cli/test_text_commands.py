"""Texts on the command line: train, evaluate, generate; a mistake costs one clear line and writes nothing."""

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import TINY, fastpe, refused

from fastpe_cli import curves, generate
from fastpe_cli.output import Source
from fastpe_cli.tables import aligned

TEXT = "the cat sat on the mat. the dog sat on the log. " * 20
SMALL = ["--task", "text"]
for name, size in {"width": 8, "hidden": 8, "layers": 1, "length": 8, "samples": 16, "batch": 8, "epochs": 2}.items():
    SMALL += [f"--{name}", str(size)]
SMALL += ["--validation", "3"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a text, and two runs on it."""
    root = tmp_path_factory.mktemp("texts")
    (root / "text.txt").write_text(TEXT)
    for number, encoding in enumerate(("alibi", "rope")):
        found = fastpe(
            "train", "--encoding", encoding, *SMALL, "--data", root / "text.txt", "--tokens", "characters",
            "--out", root / f"run{number}",
        )  # fmt: skip
        assert found.exit_code == 0, found.output
    return root


@pytest.fixture
def inside(made, monkeypatch):
    monkeypatch.chdir(made)
    return made


def test_bands_change_what_a_model_reads(inside):
    def losses(*flags):
        found = fastpe("evaluate", "run1", "--test-lengths", "8,32", *flags, "--json")
        return json.loads(found.stdout)

    def curve(*flags):
        found = fastpe("evaluate", "run1", "--length-curve", "--test-lengths", "32", "--json", *flags)
        return json.loads(found.stdout)[0]["blocks"]

    plain, far = losses(), losses("--bands", "rerope:window=1")
    assert far["bands"] == "rerope:window=1"
    assert far["test"] != plain["test"]
    assert curve("--bands", "rerope:window=1") != curve()


def test_train_prints_losses_and_tokens_per_second(inside, tmp_path):
    found = fastpe("train", "--encoding", "rope", *SMALL, "--data", "text.txt", "--out", tmp_path / "run")
    assert found.exit_code == 0, found.output
    assert re.search(
        r"epoch 2/2  loss [\d.]+ +validation loss [\d.]+  validation bits per byte [\d.]+  [\d,]+ tokens/s",
        found.stderr,
    )
    assert re.search(r"length +loss +bits/byte +tokens\n +8 ", found.stdout)
    assert re.search(
        r"validation, all 95 tokens in blocks of 8: [\d.]+ nats per token, [\d.]+ bits per byte", found.stdout
    )
    result = json.loads((tmp_path / "run" / "result.json").read_text())
    assert sorted(result["validation"]) == ["bits_per_byte", "loss", "tokens"]


def test_evaluate_gives_what_training_gave(inside):
    found = fastpe("evaluate", "run0", "--json")
    result = json.loads((inside / "run0" / "result.json").read_text())
    assert json.loads(found.stdout)["test"] == result["test"]
    assert fastpe("evaluate", "run0", "--test-lengths", "4").stdout.splitlines()[1].split()[0] == "4"


@pytest.mark.full("takes seconds")
def test_length_curves_stand_side_by_side(inside, tmp_path):
    found = fastpe(
        "evaluate", "run0", "run1", "--length-curve", "--test-lengths", "8, 16", "--out", tmp_path / "curve.png"
    )
    assert found.exit_code == 0, found.output
    rows = [" ".join(line.split()[:2]) for line in found.stdout.splitlines() if line.strip().startswith("run")]
    assert [row for row in rows if row[-1].isdigit() and " " in row] == ["run0 8", "run0 16", "run1 8", "run1 16"]
    assert "blocks: the text is cut into blocks that the model reads separately" in found.stdout
    assert re.search(r"position +run0 +run1\n +1 ", found.stdout)
    assert (tmp_path / "curve.png").read_bytes().startswith(b"\x89PNG")
    facts = json.loads(fastpe("evaluate", "run0", "run1", "--length-curve", "--test-lengths", "8", "--json").stdout)
    assert [(each["run"], each["encoding"]) for each in facts] == [("run0", "alibi"), ("run1", "rope")]
    result = json.loads((inside / "run0" / "result.json").read_text())
    assert facts[0]["blocks"]["points"][0]["loss"] == result["validation"]["loss"]
    assert facts[0]["sliding"]["sliding"] is True


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("kind", [Terminal, io.StringIO])
@pytest.mark.parametrize("show", [curves.print_curves, curves.print_fields])
def test_measuring_says_on_a_terminal_which_run_and_length_it_is_at(inside, monkeypatch, capsys, show, kind):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "200")
    found = curves.on_texts([Source(Path("run0")), Source(Path("run1"))], None)
    lengths = (8, 16) if show is curves.print_curves else (8,)
    with contextlib.redirect_stderr(kind()) as stderr:
        show(found, lengths, None, None, False)
    shown = [f"run{run}, length {length} " for run in (0, 1) for length in lengths]
    shown = shown if show is curves.print_curves else ["run0 ", "run1 "]
    text = stderr.getvalue()
    if kind is Terminal:
        assert all(each in text for each in shown), text
    else:
        assert not any(each in text for each in shown)
    assert "run0" in capsys.readouterr().out


def test_a_run_is_evaluated_on_another_text(inside, tmp_path):
    (tmp_path / "other.txt").write_text("the mat sat on the cat. " * 5)
    found = fastpe("evaluate", "run0", "--data", tmp_path / "other.txt", "--test-lengths", "8", "--json")
    assert json.loads(found.stdout)["test"]["8"]["tokens"] == 24 * 5 - 1
    (tmp_path / "unknown.txt").write_text("zzz")
    for flags in ([], ["--length-curve"], ["--receptive-field"]):
        line = refused(2, "evaluate", "run0", "--data", tmp_path / "unknown.txt", *flags)
        assert line.endswith("unknown.txt has characters that are not in the vocabulary: 'z'")


def test_receptive_fields(inside, tmp_path):
    found = fastpe(
        "evaluate", "run0", "run1", "--receptive-field", "--test-lengths", "16", "--out", tmp_path / "field.svg"
    )
    assert found.exit_code == 0, found.output
    assert re.search(r"run +length +99% in the +last 1 +last 4", found.stdout)
    assert (tmp_path / "field.svg").read_text().startswith("<svg")
    (facts, _) = json.loads(fastpe("evaluate", "run0", "run1", "--receptive-field", "--json").stdout)
    assert (facts["length"], len(facts["shares"])) == (16, 16)


def test_generate_writes_the_prompt_and_what_follows(inside):
    found = fastpe("generate", "run0", "the ", "--length", 30, "--seed", 3)
    assert found.exit_code == 0, found.output
    assert found.stdout.startswith("the ")
    assert len(found.stdout) == 4 + 30 + 1
    assert re.search(r"30 tokens, [\d,]+ tokens/s, with cached keys and values", found.stderr)
    for flags in ([], ["--no-cache"]):
        facts = json.loads(fastpe("generate", "run0", "the ", "--length", 30, "--seed", 3, "--json", *flags).stdout)
        assert "the " + facts["text"] + "\n" == found.stdout
        assert facts["cached"] == (not flags)
    assert fastpe("generate", "run0", "the ", "--length", 30, "--temperature", 0, "--top-k", 3).exit_code == 0


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs POSIX signals")
def test_control_characters_are_spelled_out_for_a_terminal(monkeypatch):
    for kind, shown in ((Terminal, "a\\x1b[2J\\x9b\tb\n"), (io.StringIO, "a\x1b[2J\x9b\tb\n")):
        monkeypatch.setattr(sys, "stdout", kind())
        generate._tell("a\x1b[2J\x9b\tb\n")
        assert sys.stdout.getvalue() == shown
    monkeypatch.undo()
    assert r"a\x1b[2J\u202eb" in refused(2, "evaluate", "a\x1b[2J\u202eb")
    assert aligned(("run", "loss"), [("a\x1b[2J", "1")]) == ["run       loss", r"a\x1b[2J  1"]


@pytest.mark.full("starts processes")
def test_ctrl_c_while_writing_is_one_line(inside):
    command = [sys.executable, "-m", "fastpe", "generate", "run0", "the ", "--length", "10000000"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout.read(50).startswith("the ")  # it is streamed
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert re.fullmatch(r"fastpe: interrupted after \d+ of 10000000 tokens", err.splitlines()[-1])
    assert out.endswith("\n")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("generate run0 thx", "prompt: the vocabulary has no 'x'"),
        ("generate run0 the --top-k 0", "--top-k must be at least 1, not 0"),
        ("generate none the", "there is no run folder or model file none"),
        ("evaluate none --length-curve", "there is no run folder or model file none"),
        ("evaluate run1 --receptive-field --bands rerope:window=8", "--bands cannot be combined with --receptive-fi"),
        ("evaluate run0 run1", "several runs need --length-curve or --receptive-field"),
        ("evaluate run0 --out a.png", "--out needs --length-curve or --receptive-field"),
        ("evaluate run0 --length-curve --receptive-field", "exclude each other: give one"),
        ("evaluate run0 --length-curve --test-lengths 8,x", "--test-lengths must be integers >= 1 on a text, not 'x'"),
        ("evaluate run0 --length-curve --seed 1", "--seed cannot be combined with --length-curve"),
        ("evaluate run0 --length-curve --out a.txt", "--out must end in one of .svg, .png, .pdf, not 'a.txt'"),
        ("evaluate run0 --length-curve --out none/a.png", "--out: folder none does not exist"),
        ("evaluate run0 --receptive-field --test-lengths 8,16", "uses blocks of one length"),
        ("evaluate run0 --length-curve --data short1", "--data short1 must have at least two tokens, not 1"),
        ("train --encoding rope --task text --data short", "--train-length must be below the 9 tokens that"),
        ("train --encoding rope --task sort --tokens bytes", "--tokens of task 'sort' is unknown"),
        ("check text", "task 'text' cannot be checked"),
    ],
)
def test_mistakes_cost_one_line(inside, arguments, line):
    for name, content in (("short1", "t"), ("short", "0123456789")):
        (inside / name).write_text(content)
    before = sorted(path.name for path in inside.rglob("*"))
    assert line in refused(2, *arguments.split())
    assert sorted(path.name for path in inside.rglob("*")) == before


def test_a_run_of_numbers_writes_nothing(inside, tmp_path):
    assert fastpe("train", "--encoding", "nope", *TINY, "--out", tmp_path / "numbers").exit_code == 0
    for command in (["generate", tmp_path / "numbers", "x"], ["evaluate", tmp_path / "numbers", "--length-curve"]):
        assert "contains no model of a text: train one with --task text --data FILE" in refused(2, *command)
    assert "--data needs a model of a text" in refused(2, "evaluate", tmp_path / "numbers", "--data", "text.txt")


def test_runs_on_different_texts_need_one_for_all(inside, tmp_path):
    (tmp_path / "b.txt").write_text(TEXT + "the end")
    run = tmp_path / "run"
    data = ["--data", tmp_path / "b.txt", "--tokens", "characters"]
    assert fastpe("train", "--encoding", "nope", *SMALL, *data, "--out", run).exit_code == 0
    assert "these runs were trained on different texts" in refused(2, "evaluate", "run0", run, "--length-curve")
    found = fastpe("evaluate", "run0", run, "--length-curve", "--test-lengths", "8", "--data", "text.txt")
    assert found.exit_code == 0, found.output


def test_a_run_whose_text_was_moved(inside, tmp_path, monkeypatch):
    """It is named with --data, and is the part that the run is validated on."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.txt").write_text(TEXT)
    arguments = ["train", "--encoding", "rope", *SMALL, "--data", "text.txt", "--out", "run"]
    assert fastpe(*arguments).exit_code == 0
    (tmp_path / "text.txt").rename(tmp_path / "moved.txt")
    assert "text.txt does not exist. Give its path with --data" in refused(2, "evaluate", "run")
    found = json.loads(fastpe("evaluate", "run", "--data", "moved.txt", "--json").stdout)
    assert found["test"] == json.loads((tmp_path / "run" / "result.json").read_text())["test"]


def test_the_page_of_the_task():
    found = fastpe("tasks", "text")
    assert found.exit_code == 0
    assert "The next token of a text" in found.stdout
    assert re.search(r"tokens +bytes +a name +bytes, characters, bpe:N or a", found.stdout)
    assert "text: tokens of a file, with the next token as the target" in fastpe("tasks").stdout
