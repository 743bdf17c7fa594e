"""`fastpe encodings`: the list, what chooses from it, and the pages."""

import json
import re
import subprocess
import sys

import pytest
from command_line import fastpe, refused

from fastpe.encodings import catalogue
from fastpe.encodings.registry import get, list_encodings
from fastpe_cli import encodings


def listed(*filters):
    """The keys that a list with these filters has, in its order."""
    result = fastpe("encodings", *filters)
    assert result.exit_code == 0, result.output
    return [line.split()[0] for line in result.stdout.splitlines()[1:] if line.startswith("  ")]


def test_the_list_has_every_encoding_in_its_group():
    titles = [title for title, _ in catalogue.GROUPS.values()]
    head, *lines = fastpe("encodings").stdout.splitlines()
    assert head.split() == ["name", "what", "it", "is", "learns", "beyond", "reported"]
    assert [line for line in lines if line in titles] == titles
    group = None
    for line in lines:
        group = line if line in titles else group
        if line.startswith("  "):
            key, found = line.split()[0], catalogue.entry(line.split()[0])
            assert group == catalogue.GROUPS[found.group][0]
            learns, outcome = found.learned.replace("optional", "opt"), found.outcome.replace("none", "-")
            assert line.split() == [key, *found.summary.split(), learns, found.beyond, outcome]
    assert sorted(listed()) == sorted(list_encodings())


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
    assert fastpe("encodings", "--axes", "9").stdout == "no encoding meets all of these\n"
    assert json.loads(fastpe("encodings", "--axes", "9", "--json").stdout) == []


def test_wrong_filters_are_one_line():
    assert "'tabel' is not one of 'table'" in refused(2, "encodings", "--slot", "tabel")
    assert "'ever' is not one of 'defined'" in refused(2, "encodings", "--beyond", "ever")
    assert "0 is not in the range x>=1" in refused(2, "encodings", "--axes", "0")
    for filters in (["--slot", "bias"], ["--causal"], ["--axes", "1"]):
        assert "give them or NAME" in refused(2, "encodings", "alibi", *filters)


@pytest.mark.parametrize("room", [72, 80, 100, 10**4])
def test_a_list_fits_its_terminal(room):
    lines = encodings.listing(catalogue.entries()[0], room)
    assert max(map(len, lines)) <= room
    words = " ".join(" ".join(lines).split())
    for each in catalogue.entries()[0]:
        assert each.key in words
        assert all(word in words for word in each.summary.split())


def test_the_widest_line_has_100_characters():
    assert max(map(len, fastpe("encodings").stdout.splitlines())) <= 100


def test_a_list_imports_nothing_heavy():
    code = (
        "import sys\nfrom fastpe_cli.main import main\nmain(sys.argv[1:], standalone_mode=False)\n"
        "assert not {'numpy', 'numba', 'rich'} & set(sys.modules)"
    )
    for filters in ([], ["--beyond", "defined", "--learned", "no", "--reported", "holds", "--slot", "bias"]):
        subprocess.run([sys.executable, "-c", code, "encodings", *filters], check=True, capture_output=True)


@pytest.mark.parametrize("name", list_encodings())
def test_every_encoding_has_a_page_and_its_evidence(name):
    facts, text = json.loads(fastpe("encodings", name, "--json").stdout), fastpe("encodings", name).stdout
    assert facts["page"] in text
    assert re.findall(r"^slot (\w+) .*: \w", text, re.M) == facts["slots"]
    for option, entry in facts["options"].items():
        assert re.search(rf"^{option} .*{re.escape(entry['doc'])}$", text, re.M)
    _, _, evidence = text.partition("\nReported on longer sequences: ")
    found = get(name).reported
    if found is None:
        assert evidence == "nothing was found in the sources read.\n"
        assert facts["reported"] is None
    else:
        assert evidence == f"{found.outcome}\n{found.evidence}\n({found.source})\n"
        assert facts["reported"] == found._asdict()
