"""`fastpe inspect` on runs, model files and checkpoints: the table, JSON, the page, and one line for each mistake."""

import json
import re
from dataclasses import replace

import pytest
from command_line import fastpe, refused
from hf_models import made

from fastpe.experiments import inspection_page
from fastpe.text.vocabulary import Vocabulary
from fastpe.training.inspection import inspect

SIZES = ["--samples", "2", "--test-sequences", "4"]
TRAIN = [
    "train", "--encoding", "rope", "--task", "reverse", "--causal", "--heads", "2", "--width", "16", "--layers", "2",
    "--train-length", "6", "--samples", "32", "--batch", "16", "--epochs", "1", "--test-lengths", "6,9",
]  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run, a model file of bytes, its checkpoint and a text."""
    folder = tmp_path_factory.mktemp("inspected")
    assert fastpe(*TRAIN, "--out", folder / "run").exit_code == 0
    model = made("llama", vocabulary=256, train_length=16)
    model.vocabulary = Vocabulary()
    model.save(folder / "model.safetensors")
    (folder / "text").write_text("the cat sat on the mat, the dog sat on <b> the cat\n" * 8)
    assert fastpe("export", folder / "model.safetensors", "--hf", folder / "hf").exit_code == 0
    return folder


@pytest.fixture(autouse=True)
def _inside(folder, monkeypatch):
    monkeypatch.chdir(folder)


def test_a_run_is_read_and_tested_on_its_task():
    text = fastpe("inspect", "run", *SIZES, "--greedy", "1").stdout
    rows = [line.split() for line in text.splitlines()]
    assert [row[0] for row in rows if row and re.fullmatch(r"\d\.\d", row[0])] == ["0.0", "0.1", "1.0", "1.1"]
    assert [row[:1] for row in rows].count(["drop"]) == 2  # exact answers and the loss
    assert "control:" in text
    assert "(greedy)" in text


def test_json_has_everything():
    command = [
        "inspect",
        "run",
        *SIZES,
        "--change",
        "drop",
        "--change",
        "pair:0=still",
        "--test-lengths",
        "6,9",
        "--json",
    ]
    found = json.loads(fastpe(*command).stdout)
    assert found["schema"] == 1
    assert [(each["change"], each["control"]) for each in found["curves"][:3]] == [
        ("", ""), ("drop", ""), ("pair:0=still", ""),
    ]  # fmt: skip
    assert found["curves"][3]["control"] == "pair:0=still"
    assert set(found["curves"][1]["test"]["9"]) == {"exact", "token", "loss", "sequences"}
    assert len(found["maps"][1][1]) == len(found["tokens"])
    assert found["tokens"][0] == "begin"
    assert len(found["wavelengths"]) == len(found["frequency_share"][0][0])


@pytest.mark.parametrize("path", ["model.safetensors", "hf"])
def test_models_of_text_are_read_on_data(path):
    command = ["inspect", path, *SIZES, "--data", "text", "--change", "drop", "--test-lengths", "16,32", "--json"]
    found = json.loads(fastpe(*command).stdout)
    assert found["metric"] == "loss"
    assert found["curves"][1]["test"]["32"]["loss"] > 0
    assert "".join(found["tokens"]).startswith("the cat sat")


def test_a_checkpoint_without_text_is_read_on_random_tokens():
    found = json.loads(fastpe("inspect", "hf", *SIZES, "--json").stdout)
    assert (found["own"], found["curves"]) == ({}, [])
    assert found["notes"]


def test_the_page_is_one_file(folder):
    done = fastpe("inspect", "hf", *SIZES, "--data", "text", "--test-lengths", "16,32", "--out", "page.html")
    assert done.exit_code == 0
    text = (folder / "page.html").read_text()
    assert not re.findall(r'(?:src|href)="(?!#|data:)', text)
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert 'id="hidden"' in text
    assert text.count("<h2") >= 5
    weights = json.loads(re.search(r'id="data">(.*?)</script>', text)[1])
    assert len(weights["words"]) == 16


def test_words_and_names_are_escaped(folder):
    found = inspect("run", samples=2, sequences=4, changes=[])
    text = inspection_page.page(replace(found, words=("<b>", "</script>", *found.words[2:])), "<i>")
    assert "<b>" not in text
    assert "<i>" not in text
    assert text.count("</script>") == 2
    assert json.loads(re.search(r'id="data">(.*?)</script>', text)[1])["words"][:2] == ["<b>", "</script>"]


def test_the_sentence_of_a_page_names_clear_heads():
    found = inspect("run", samples=2, sequences=4, changes=["drop"])
    said = inspection_page.answer(found)
    assert "there is no clear induction head" in said.lower()
    assert "Without its encoding, exact answers at length 6: " in said
    found.repeated["induction"][1, 0] = 0.9
    assert "head 1.0 is the strongest induction head (0.90)" in inspection_page.answer(found).lower()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "--out", "page.png"], "--out must end in .html, not 'page.png'"),
        (["run", "--out", "none/page.html"], "folder none does not exist"),
        (["run", "--change", "head:7.0"], "must name a head of the model, which has 2 layers of 2 heads"),
        (["run", "--change", "none", "--change", "drop"], "--change none cannot be combined"),
        (["run", "--change", "drp"], "must have one of the forms drop, swap:ENCODING"),
        (["run", "--change", "swap:alibi"], "cannot swap 'rope', which fills angles"),
        (["run", "--task", "sort"], "task must be one of the model's"),
        (["run", "--task-option", "a=b"], "--task-option needs --task"),
        (["hf", "--change", "drop"], "changes need test sequences"),
        (["hf", "--task", "reverse"], "256 tokens"),
        (["run", "--samples", "0"], "--samples must be at least 1"),
        (["none"], "there is no run folder or model file none"),
    ],
)
def test_a_mistake_costs_one_line(arguments, message):
    assert message in refused(2, "inspect", *arguments)


def test_other_models_are_refused():
    words = [word if word != "--causal" else "--bidirectional" for word in TRAIN]
    assert fastpe(*words, "--out", "both").exit_code == 0
    assert "model must be causal" in refused(2, "inspect", "both")
