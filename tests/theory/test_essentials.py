"""The three numbers on the page of an encoding, beside those that others computed and the command that prints them."""

import json
import math

import numpy as np
import pytest
from command_line import fastpe as run_command

import fastpe
from fastpe.theory.essentials import SIZES, essentials
from fastpe.training.config import TrainConfig


def numbers(name, **sizes):
    return [each and each.value for each in essentials(name, **sizes).values()]


def test_the_sizes_are_those_of_the_papers_model():
    assert dict(SIZES) == {"dim": TrainConfig.width, "heads": TrainConfig.heads, "train_length": 50}
    assert SIZES["train_length"] == TrainConfig.train_length


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("sinusoidal", [1.471848, 0.286474, 5.140201]),
        ("wavelet", [0.425790, 0.1582265, 1.414554]),
        ("legendre", [0.410356, 0.0891489, 2.578122]),
        ("rope", [8, 17, 725]),
    ],
)
def test_numbers_of_tables_and_rotations(name, expected):
    assert numbers(name) == pytest.approx(expected, rel=4e-6)


def test_a_bias_at_twice_the_training_length():
    slope = 2.0**-8  # ALiBi's own, of one head
    used, effect, window = numbers("alibi")
    shares = np.exp(-slope * np.arange(100.0))
    shares /= shares.sum()
    assert used == pytest.approx(math.exp(-(shares * np.log(shares)).sum()))
    assert effect == pytest.approx(math.tanh(slope * 99 / 4))
    assert window == 4258


def test_the_largest_value_of_several_heads_is_given():
    used, effect, window = numbers("alibi", heads=8)  # slopes 1/2 .. 2^-8
    assert (used, window) == (numbers("alibi")[0], 4258)
    assert effect == pytest.approx(math.tanh(0.5 * 99 / 4))


def test_windows_without_end_are_infinite_and_meaningless_numbers_are_none():
    assert numbers("t5")[2] == math.inf
    nearest, noise, farthest = numbers("learned")
    assert (nearest, farthest) == (pytest.approx(0.159460, abs=1e-6), None)
    assert noise > 0
    turn, unseen, negative = numbers("rope_2d")
    assert (turn, negative, unseen > 0) == (None, None, True)
    assert essentials("nope") == essentials("shaw") == essentials("swin_bias") == {}


def test_the_words_name_the_lengths():
    assert list(essentials("alibi", train_length=30)) == [
        "keys used of 60 at equal content", "effect on a row of 60, at most", "window for all but 2^-24 of the weight",
    ]  # fmt: skip
    assert next(iter(essentials("rope", dim=16))) == "channels that turn, of 8"


@pytest.mark.full("takes seconds")
def test_every_encoding_has_three_numbers_or_none():
    for name in fastpe.list_encodings():
        assert len(essentials(name)) in (0, 3), name


def page(*arguments):
    return run_command("encodings", *arguments)


def test_the_command_shows_the_numbers():
    lines = page("alibi").stdout.splitlines()
    at = lines.index("In theory (width 64, 1 head, training length 50)")
    assert [line.removeprefix(" • ") for line in lines[at + 2 : at + 5]] == [
        "keys used of 100 at equal content: 99.37",
        "effect on a row of 100, at most: 0.09638",
        "window for all but 2^-24 of the weight: 4,258",
    ]
    learned = page("learned").stdout
    assert "In theory (width 64, 1 head, training length 50, initial values)\n" in learned
    assert "farthest from trained rows up to 100: -\n" in learned
    assert "2^-24 of the weight: endless\n" in page("t5").stdout
    assert "In theory" not in page("nope").stdout


def test_json_has_the_numbers_in_full_precision():
    found = json.loads(page("wavelet", "--json").stdout)["theory"]
    assert {name: found[name] for name in SIZES} == dict(SIZES)
    expected = {what: each.to_dict() for what, each in essentials("wavelet").items()}
    assert found["numbers"] == json.loads(json.dumps(expected))


def test_a_file_of_ones_own_that_cannot_be_filled_has_a_page(tmp_path):
    file = tmp_path / "broken.py"
    file.write_text(
        '"""Broken."""\nimport fastpe\n\n\ndef reference(spec, params):\n    raise ValueError("no such graph")\n\n\n'
        'ENCODING = fastpe.Encoding(slots=("table",), summary="broken")\n'
    )
    done = page(file)
    assert done.exit_code == 0, done.output
    assert "no such graph" in done.stdout
    assert "in theory: not available, because the encoding cannot be built" in done.stdout
