"""`fastpe encodings`: the list, what chooses from it, and the pages."""

import json
import re

import pytest
from command_line import fastpe, refused

from fastpe.encodings import catalogue
from fastpe.encodings.encoding import USES
from fastpe.encodings.registry import get, list_encodings
from fastpe_cli import encodings


def listed(*filters):
    """The keys that a list with these filters has, in its order."""
    result = fastpe("encodings", *filters)
    assert result.exit_code == 0, result.output
    return [line.split()[0] for line in result.stdout.splitlines()[1:] if line.startswith("  ")]


def titles_by_year():
    """Years from the latest on, and what has none."""
    years = sorted({each.year for each in catalogue.entries()[0] if each.year}, reverse=True)
    return [*map(str, years), "Own constructions, and sources without a year"]


TITLES = {
    "use": lambda: [*USES.values()],
    "year": titles_by_year,
    "place": lambda: [title for title, _ in catalogue.GROUPS.values()],
}
GROUP_OF = {
    "use": lambda found: USES[found.use],
    "year": lambda found: str(found.year or "Own constructions, and sources without a year"),
    "place": lambda found: catalogue.GROUPS[found.group][0],
}


@pytest.mark.parametrize(("by", "flags"), [("use", []), *((by, ["--by", by]) for by in TITLES)])
def test_the_list_has_every_encoding_in_its_group(by, flags):
    titles = TITLES[by]()
    head, *lines = fastpe("encodings", *flags).stdout.splitlines()
    assert head.split() == ["name", "what", "it", "is", "learns", "beyond", "reported"]
    assert [line for line in lines if line in titles] == titles
    group = None
    for line in lines:
        group = line if line in titles else group
        if line.startswith("  "):
            key, found = line.split()[0], catalogue.entry(line.split()[0])
            assert group == GROUP_OF[by](found)
            learns, outcome = found.learned.replace("optional", "opt"), found.outcome.replace("none", "-")
            assert line.split() == [key, *found.summary.split(), learns, found.beyond, outcome]
    assert sorted(listed(*flags)) == sorted(list_encodings())


def test_a_list_by_needs_says_what_each_needs():
    head, *lines = fastpe("encodings", "--by", "needs").stdout.splitlines()
    assert head.split() == ["name", "what", "it", "is", "needs"]
    assert [line for line in lines if line in catalogue.NEEDS.values()] == list(catalogue.NEEDS.values())
    group, seen = "", {}
    for line in lines:
        group = next((word for word, title in catalogue.NEEDS.items() if title == line), group)
        if line.startswith("  "):
            key, *words = line.replace(",", "").split()
            seen[key] = group
            needed = words[len(get(key).summary.split()) :]
            assert needed == (list(catalogue.needs(key)) or ["-"])
            assert group == (needed[-1] if needed != ["-"] else "")
    assert sorted(seen) == sorted(list_encodings())
    assert [seen[key] for key in ("nope", "t5", "learned", "fire", "abacus", "rope_2d", "rwse")] == list(
        catalogue.NEEDS
    )


def test_the_list_alone_says_what_to_try_for_a_causal_model_of_longer_sequences():
    assert set(listed("--causal", "--reported", "holds")) >= {"alibi", "kerple_log", "sandwich", "transformer_xl"}
    assert "--causal --reported holds" in fastpe("encodings").stdout
    assert "fastpe encodings NAME" in fastpe("encodings").stdout


@pytest.mark.parametrize(
    ("filters", "meets"),
    [
        (("--slot", "bias", "--slot", "taps"), lambda own: {"bias", "taps"} & set(own["slots"])),
        (("--beyond", "undefined", "--beyond", "resized"), lambda own: own["beyond"] in ("undefined", "resized")),
        (("--learned", "optional"), lambda own: own["learned"] == "optional"),
        (("--reported", "none"), lambda own: own["reported"] is None),
        (("--reported", "tuned"), lambda own: own["reported"] and own["reported"]["outcome"] == "tuned"),
        (("--axes", "2"), lambda own: own["axes"] == 2),
        (("--use", "arithmetic", "--use", "study"), lambda own: own["use"] in ("arithmetic", "study")),
        (("--causal", "--learned", "no", "--slot", "table"),
         lambda own: own["causal"] and own["learned"] == "no" and "table" in own["slots"]),
    ],
)  # fmt: skip
def test_filters_combine(filters, meets):
    every = json.loads(fastpe("encodings", "--json").stdout)
    expected = {own["name"] for own in every if meets(own)}
    assert expected
    assert set(listed(*filters)) == expected
    assert {own["name"] for own in json.loads(fastpe("encodings", *filters, "--json").stdout)} == expected


def test_a_filter_that_nothing_meets_says_so():
    assert fastpe("encodings", "--axes", "9").stdout == "no encoding matches these filters\n"
    assert json.loads(fastpe("encodings", "--axes", "9", "--json").stdout) == []


def test_wrong_filters_are_one_line():
    assert "'tabel' is not one of 'table'" in refused(2, "encodings", "--slot", "tabel")
    assert "--by cannot be combined with --json" in refused(2, "encodings", "--by", "year", "--json")
    for filters in (["--slot", "bias"], ["--causal"], ["--axes", "1"], ["--by", "use"], ["--use", "images"]):
        assert "give either them or NAME" in refused(2, "encodings", "alibi", *filters)


@pytest.mark.parametrize("by", catalogue.ORDERS)
@pytest.mark.parametrize("room", [72, 80, 100, 10**4])
def test_a_list_fits_its_terminal(room, by):
    lines = encodings.listing(catalogue.entries()[0], room, by)
    assert max(map(len, lines)) <= room
    words = " ".join(" ".join(lines).split())
    for each in catalogue.entries()[0]:
        assert each.key in words
        assert all(word in words for word in each.summary.split())


def test_the_widest_line_has_100_characters():
    assert max(map(len, fastpe("encodings").stdout.splitlines())) <= 100


def test_a_page_begins_with_use_and_names_which_its_json_has_too():
    own = get("alibi")
    first, _, when, called, confused, *rest = fastpe("encodings", "alibi").stdout.splitlines()
    assert (first, when) == ("alibi", f"use it when {own.use_when}")
    assert called == f"also called: {', '.join(own.also_called)}"
    assert confused == "not to be confused with:"
    assert rest[: len(own.not_to_be_confused)] == [
        f"  {name}: {difference}" for name, difference in own.not_to_be_confused.items()
    ]
    found = json.loads(fastpe("encodings", "alibi", "--json").stdout)
    assert (found["use_when"], found["formula"]) == (own.use_when, own.formula)
    assert (found["also_called"], found["not_to_be_confused"]) == ([*own.also_called], {**own.not_to_be_confused})


def test_a_name_of_the_papers_is_answered_by_the_key():
    assert "encoding 'RoFormer' is unknown; did you mean 'rope'?" in refused(2, "encodings", "RoFormer")


@pytest.mark.parametrize("name", list_encodings())
def test_every_encoding_has_a_page_and_its_evidence(name):
    facts, text = json.loads(fastpe("encodings", name, "--json").stdout), fastpe("encodings", name).stdout
    assert facts["page"] in text
    assert re.findall(r"^slot (\w+) .*: \w", text, re.M) == facts["slots"]
    assert f"\nuse: {USES[facts['use']]}\nsource: {facts['source']}\n" in text
    assert facts["year"] is None or str(facts["year"]) in facts["source"]
    assert set(facts["needs"]) < set(catalogue.NEEDS)
    for option, entry in facts["options"].items():
        assert re.search(rf"^{option} .*{re.escape(entry['doc'])}$", text, re.M)
    _, _, evidence = text.partition("\nPublished results on longer sequences: ")
    found = get(name).reported
    if found is None:
        assert evidence == "none found in the sources that were read.\n"
        assert facts["reported"] is None
    else:
        assert evidence == f"{found.outcome}\n{found.evidence}\n({found.source})\n"
        assert facts["reported"] == found._asdict()
