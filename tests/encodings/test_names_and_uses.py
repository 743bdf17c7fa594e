"""Formula, use and other names of every encoding of fastpe: complete, within limits, without contradictions."""

import re
from pathlib import Path

import pytest

from fastpe.encodings import catalogue
from fastpe.encodings.encoding import USE_WHEN
from fastpe.encodings.registry import built_in, get, page
from fastpe.model.schedules import SCHEDULES

KEYS = built_in()
ENTRIES = {key: catalogue.entry(key) for key in KEYS}


def plain(name):
    return re.sub(r"[^a-z0-9]", "", name.casefold())


@pytest.mark.parametrize("key", KEYS)
def test_every_encoding_says_when_to_use_it_in_a_short_clause(key):
    when = ENTRIES[key].use_when
    assert 20 <= len(when) <= USE_WHEN
    assert when == when.strip()
    assert not when.endswith((".", "!", "?"))
    assert "\n" not in when


@pytest.mark.parametrize("key", KEYS)
def test_the_words_of_the_formula_are_those_of_the_page(key):
    formula, text = ENTRIES[key].formula, page(key)
    assert formula.strip()
    assert formula.count("{") == formula.count("}")
    for word in re.findall(r"\\mathrm\{(\w(?:\\_|\w)*)\}", formula):
        assert word.replace(r"\_", "_") in text
    for number in re.findall(r"\d+\.\d+|\d{2,}", formula):
        assert number in text or number == "10"  # powers of ten, as in 1e-5


def test_another_name_belongs_to_one_encoding_and_is_no_key():
    names = [(plain(name), key) for key, entry in ENTRIES.items() for name in entry.also_called]
    assert len({name for name, _ in names}) == len(names)
    for name, key in names:
        assert name not in map(plain, set(KEYS) - {key})


@pytest.mark.parametrize("key", KEYS)
def test_names_that_are_easily_confused_are_others(key):
    entry = ENTRIES[key]
    for name, difference in entry.not_to_be_confused.items():
        if re.fullmatch(r"[a-z0-9_]+", name):
            assert name in KEYS
        assert name != key
        assert name not in entry.also_called
        assert difference
        assert difference == difference.strip(". ")


def test_the_table_of_hugging_faces_models_names_encodings_and_schedules_that_are_there():
    text = (Path(__file__).parents[2] / "bench/results/positions.md").read_text("utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| ")][2:]
    counts = re.search(
        r"(\d+) types have a key, (\d+) are recurrences .*, (\d+) have a mechanism .* configuration: (\d+)", text
    )
    assert len(rows) == len({row[0] for row in rows}) == sum(map(int, counts.groups()))
    for _, keys, options, schedule, _ in rows:
        for key in re.findall(r"`(\w+)`", keys):
            names = {own.partition("=")[0] for own in options.split(", ") if "." not in own.partition("=")[0]} - {"-"}
            assert key in KEYS
            assert not key.startswith("rope") or names <= set(get(key).options)
        assert schedule == "-" or schedule.startswith("window") or schedule.partition(":")[0] in SCHEDULES


@pytest.mark.parametrize(
    ("name", "key"),
    [("RoFormer", "rope"), ("dynamic-NTK", "rope_dynamic"), ("ALiBi", "alibi"), ("Transformer-XL", "transformer_xl"),
     ("position interpolation", "rope_linear"), ("DPB", "crossformer_bias")],
)  # fmt: skip
def test_the_error_for_a_name_of_the_papers_offers_the_key(name, key):
    with pytest.raises(ValueError, match=f"encoding '{name}' is unknown; did you mean '{key}'"):
        get(name)
