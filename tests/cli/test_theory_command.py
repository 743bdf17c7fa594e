"""`fastpe theory`: one page, several side by side, JSON, runs and their probes, and what a mistake costs."""

import json
import math
import shutil

import pytest
from command_line import fastpe, refused
from damage import with_record
from own_encodings import write

from fastpe.theory import page
from fastpe.training.config import TrainConfig
from fastpe.training.loop import train

pytestmark = pytest.mark.usefixtures("folder")

RUN = TrainConfig(
    "alibi", width=8, hidden=8, layers=1, heads=2, train_length=6, samples=16, batch=8, epochs=1, causal=True,
    test_lengths=(6,), test_sequences=5,
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    path = tmp_path_factory.mktemp("theory") / "run"
    train(RUN, out=path)
    return path


def shown(*arguments):
    found = fastpe("theory", *arguments)
    assert found.exit_code == 0, found.output
    return found.stdout


def row(text, label):
    """The cells of the line that begins with a label."""
    (line,) = (line.strip() for line in text.splitlines() if line.strip().startswith(f"{label}  "))
    return [each.strip() for each in line.removeprefix(label).split("  ") if each.strip()]


def unit(text, label):
    """The unit of a key quantity, with which the line below it begins."""
    lines = text.splitlines()
    (place,) = (number for number, line in enumerate(lines) if line.startswith(f"{label}  "))
    return lines[place + 1].strip().partition(":")[0]


# Key quantities ------------------------------------------------------------------------------------------------------


def test_the_key_quantities_have_value_unit_and_meaning():
    text = shown("rope")
    lines = text.splitlines()
    assert lines[0] == "rope   rotates query and key   d 64, training length 50"
    assert lines[2].split() == ["quantity", "value"]
    assert row(text, "first lag of negative similarity") == ["725"]
    assert unit(text, "first lag of negative similarity") == "positions"
    assert row(text, "reversal: difference of outputs") == [">= 2.00"]  # three digits; a lower bound is rounded down
    assert "learned parameters 0 numbers: The encoding adds this many parameters to the model." in " ".join(
        text.split()
    )
    assert lines[-1] == "These quantities decide a choice of encoding. --all prints all quantities."
    assert "score gap for 90 % on one key" not in text
    assert max(map(len, lines)) <= 80


@pytest.mark.full("takes seconds")
def test_key_quantities_are_those_of_the_page():
    text = shown("sinusoidal", "--length", "70")
    assert row(text, "nearest two positions, in [0,50)") == ["1.47"]
    assert row(text, "farthest from trained rows, in [50,70)") == [f"{drift('sinusoidal', 70):.3g}"]
    assert unit(text, "farthest from trained rows, in [50,70)") == "rms row norm"
    assert row(text, "effective rank")[0] == "4.23"
    assert "keys used" not in text
    heads = shown("alibi", "--causal", "--heads", "4")
    assert row(heads, "keys used at equal content, at 50")[0] == "10.9-49.9"
    short = shown("alibi", "--length", "20")
    assert "weight beyond the training length" not in short  # no length is longer
    assert "not defined at 100 positions" in shown("learned")


def drift(name, length):
    return page(name, length=length)[f"drift.relative@{length}"].value


@pytest.mark.full("takes seconds")
def test_key_quantities_of_several_encodings_are_side_by_side():
    text = shown("sinusoidal", "alibi", "learned", "--causal")
    assert text.splitlines()[4].split() == ["quantity", "sinusoidal", "alibi", "learned"]
    assert row(text, "effective rank") == ["4.23", "-", "33.2"]
    assert row(text, "99 % of the weight within, in endless text") == ["-", "1,179", "-"]
    assert row(text, "learned parameters") == ["0", "0", "3,200"]


# One page ------------------------------------------------------------------------------------------------------------


@pytest.mark.full("takes seconds")
def test_the_page_of_a_table():
    text = shown("--all", "sinusoidal")
    lines = text.splitlines()
    assert lines[0] == "sinusoidal   adds to the input   d 64, training length 50"
    assert lines[1].split() == ["[0,50)", "[50,100)", "[100,200)"]
    assert row(text, "row norm") == ["5.65685"] * 3
    assert row(text, "nearest two positions") == ["1.47185"] * 3
    assert row(text, "noise for 1 % confusion") == ["0.286474", "0.286474", "0.286082"]
    assert row(text, "farthest from any trained row") == ["-", "5.1402", "5.63248"]
    assert all("+-" in each for each in row(text, "position information at signal-to-noise ratio 1 (nats)"))
    assert "  rank 24 (float32 18, bfloat16 16) of 50, effective 4.229, stable 1.514" in text
    assert "  kernel exactly Toeplitz: it depends only on the distance | " in text
    assert "  different rows of 4,096: float32 4,096, bfloat16 4,096\n" in text
    assert "  embeddings of norm below 0.735924 never collide; larger ones can\n" in text
    assert "  symmetry: none\n" in text
    assert row(shown("--all", "legendre"), "row norm") == ["1.47207-1.76035", "1.77155-2.54987", "2.57101-5.52053"]


def test_the_page_of_a_bias():
    text = shown("--all", "alibi", "--causal", "--option", "alpha0=0.1")
    assert text.splitlines()[0] == "alibi   bias on scores   d 64, training length 50, causal, alpha0=0.1"
    assert text.splitlines()[1].split() == ["at", "50", "at", "100", "at", "200"]
    assert row(text, "keys used at zero content") == ["49.9792", "99.8337", "198.676"]
    assert row(text, "largest effect on any row, any content (TV)")[0] == "<= 0.0244951"
    assert "in an endless text: 1359.14 keys used, 99 % of the weight within 2,303 (finite: " in text
    assert "information on the distance, content of deviation 1: 0.000416327 of 3.91 nats" in text
    assert "certified window at 2^-24: 8,318 keys (content up to 5: 13,318); 2^-8: 2,773 keys " in text
    assert "symmetry: equal tokens have equal outputs\n" in text
    both = shown("--all", "alibi", "--option", "alpha0=0.1")
    assert "certified window at 2^-24: 16,637 keys (content up to 5: 26,637)" in both  # 2 w + 1: both sides
    assert "symmetry: equal tokens have equal outputs; a reversed text has reversed outputs\n" in both
    assert "least error, at any size of model: running_sum 12.25, 24.75, 49.75;" in both


def test_the_page_of_a_rotation():
    text = shown("--all", "rope", "--causal")
    assert row(text, "channels with unseen angles (chord > 0.1)") == ["-", "17", "22"]
    assert row(text, "largest unseen chord") == ["-", "1.73901", "1.94405"]
    assert (
        "8 of 32 channels turned at least once | one turn at channel 7.206 | first negative similarity at lag 725"
        in text
    )
    assert "least error on constant inputs: running_sum 208.25" in text


@pytest.mark.full("takes seconds")
def test_what_is_undefined_is_a_dash_and_said():
    text = shown("--all", "learned")
    assert row(text, "largest norm of a token, content of norm 1") == ["1.18167"]
    assert "  parameters of the encoding: initial values of seed 0\n" in text
    assert "  not defined at 100 positions: 'learned' has no row for position 99" in text
    assert "causal models only" in shown("--all", "xpos", "--length", "60")
    text = shown("--all", "learned", "nope")
    assert row(text, "largest norm of a token, content of norm 1, at 100") == ["-", "1"]
    assert "learned: not defined at 100 positions" in text


# Side by side --------------------------------------------------------------------------------------------------------


def test_several_stand_side_by_side():
    text = shown("--all", "sinusoidal", "alibi", "--causal", "--option", "alpha0=0.1")
    assert text.splitlines()[0].split() == ["sinusoidal,", "causal", "alibi,", "causal"]
    assert row(text, "nearest two positions, in [50,100)") == ["1.47185", "-"]
    assert row(text, "keys used at zero content, at 200") == ["-", "198.676"]
    assert row(text, "rank") == ["24", "-"]


def test_an_option_goes_to_all_that_have_it():
    text = shown("--all", "rope", "xpos", "nope", "--causal", "--option", "base=100")
    first, second, third = row(text, "first lag of negative similarity")
    assert first != "725" and second != "725" and third == "-"  # noqa: PT018 - one row
    assert "did you mean 'slope'" in refused(2, "theory", "rope", "alibi", "--option", "slop=1")


# JSON ----------------------------------------------------------------------------------------------------------------


@pytest.mark.full("takes seconds")
def test_json_holds_all_records_in_full_precision():
    found = json.loads(shown("nope", "legendre", "--length", "60", "--json"))
    assert found["schema"] == 1
    for name, each in zip(("nope", "legendre"), found["pages"], strict=True):
        wanted = page(name, length=60)
        assert each["records"] == {key: record.to_dict() for key, record in wanted.items()}
        assert (each["encoding"], each["lengths"], each["causal"]) == (name, [50, 60], False)
    assert found["pages"][0]["records"]["limit.perplexity.most"]["value"] == "inf"
    nearest = found["pages"][1]["records"]["nearest@50"]
    assert (nearest["id"], nearest["kind"]) == ("Q2", "exact")
    assert nearest["value"] == page("legendre")["nearest@50"].value


# Runs ----------------------------------------------------------------------------------------------------------------


def test_a_run_has_its_own_sizes_and_weights(run):
    text = shown("--run", run, "--all")
    assert text.splitlines()[0] == "alibi   bias on scores   d 8, training length 6, 2 heads, causal"
    assert len(row(text, "Lipschitz constant of the trained model")) == 3
    assert "largest spectral norm of a map: " in text
    records = json.loads(shown("alibi", "--run", run, "--length", "9", "--json"))["pages"][0]["records"]
    assert records["run.lipschitz@9"]["kind"] == "certified"
    assert records["run.lipschitz@9"]["high"] > 0
    assert "probe.1.classifier@6" not in records


def test_layers_are_probed_on_held_out_sequences(run):
    arguments = ("--run", run, "--probe", "--sequences", "240", "--length", "9", "--bins", "3", "--json")
    records = json.loads(shown(*arguments))["pages"][0]["records"]
    assert records["probe.0.classifier@6"]["value"] == 0
    assert records["probe.1.binned@9"]["kind"] == "estimate"
    assert records["probe.1.upper@9"]["high"] == math.log(9)
    text = shown("--run", run, "--probe", "--sequences", "60", "--length", "6")
    assert "+-" in row(text, "position known after layer 1 (nats), by a classifier, at least, at 6")[0]
    assert "Lipschitz constant of the trained model, at 6" in text


def test_a_probe_refuses_what_it_could_not_tell(run):
    probe = ("theory", "--run", run, "--probe", "--length", "6")
    assert "--sequences must be at least 30, not 20" in refused(2, *probe, "--sequences", "20")
    assert "bins=50 needs " in refused(2, *probe, "--sequences", "60", "--bins", "50")


def test_a_run_of_another_version_is_refused(run, folder):
    other = shutil.copytree(run, folder / "other")
    with_record(other, lambda record: record.update(schema=99))
    assert "was written by another version of fastpe (schema 99)" in refused(2, "theory", "--run", other)


# Mistakes ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("", "name an ENCODING, or give --run RUN"),
        ("sinusoida", "'sinusoida' is unknown; did you mean 'sinusoidal'"),
        ("alibi --option slope", "--option must be NAME=VALUE, not 'slope'"),
        ("alibi --length 0", "--length must be at least 1, not 0"),
        ("alibi --train-length 20000", "--train-length must be at most 16384 on a page"),
        ("alibi --run x --dim 8", "--run uses the sizes and options of the run: leave out --dim"),
        ("alibi nope --run x", "--run uses the encoding of the run: leave out ENCODING"),
        ("--run none", "there is no run folder or model file none"),
        ("alibi --probe", "--probe needs --run"),
        ("alibi --bins 4", "--bins needs --probe"),
    ],
)
def test_a_mistake_is_one_line(arguments, words):
    assert words in refused(2, "theory", *arguments.split())


def test_an_own_encoding_has_a_page(folder):
    write(folder)
    assert shown("./mine.py", "--causal").startswith("mine   ")
