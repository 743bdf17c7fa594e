"""The atlas: every encoding is there, as its record has it; the page is whole, and loads and runs nothing of it."""

import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import resources

import pytest
from own_encodings import write

import fastpe
from fastpe.encodings import catalogue
from fastpe.encodings.encoding import USES
from fastpe.encodings.registry import get, list_encodings
from fastpe.pictures.atlas import findings
from fastpe.pictures.atlas.card import card
from fastpe.pictures.atlas.page import atlas

VOID = {"meta", "input", "br", "wbr"}
SOME = ("alibi", "fox", "learned_2d", "nope", "xpos")


class Page(HTMLParser):
    """A page in elements: it notes what is not closed, and every tag with its attributes and the text within it."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.faults = [], [], []
        self.feed(text)
        self.close()
        self.faults += [f"{tag} is open at the end" for tag, _, _ in self.open]

    def handle_starttag(self, tag, attrs):
        found = (tag, dict(attrs), [])
        self.faults += [f"{tag} has an attribute twice"] * (len(dict(attrs)) < len(attrs))
        self.tags.append(found)
        if tag not in VOID:
            self.open.append(found)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs), []))

    def handle_endtag(self, tag):
        if not self.open or self.open[-1][0] != tag:
            self.faults.append(f"{tag} is closed at {self.getpos()}, and {self.open[-1:]} is open")
        else:
            self.open.pop()

    def handle_data(self, data):
        for _, _, texts in self.open:
            texts.append(data)

    def all(self, *names):
        return [(attributes, "".join(texts)) for tag, attributes, texts in self.tags if tag in names]


@pytest.fixture(scope="module")
def text():
    return atlas([catalogue.entry(name) for name in list_encodings()])


@pytest.fixture(scope="module")
def page(text):
    return Page(text)


def cards(page):
    return {attributes["id"]: (attributes, said) for attributes, said in page.all("article")}


def tiles(page):
    """The attributes of each tile, by key."""
    links = [attributes["href"][1:] for attributes, _ in page.all("a") if attributes["href"].startswith("#")]
    found = [attributes for attributes, _ in page.all("li") if attributes.get("class") == "tile"]
    return dict(zip((key for key in links if key != "gallery"), found, strict=True))


@pytest.mark.full("takes seconds")
def test_every_encoding_has_a_card_and_a_tile_in_the_group_of_its_use(page, text):
    assert sorted(cards(page)) == sorted(tiles(page)) == sorted(list_encodings())
    gallery = text.partition('<section id="gallery"')[2].partition("<article")[0]
    groups = re.findall(r"<h2>(.*?)</h2>|<a href=\"#(\w+)\"", gallery)
    of, title = {}, ""
    for heading, key in groups:
        title = heading or title
        of |= {key: title} if key else {}
    assert of == {key: USES[get(key).use] for key in list_encodings()}


@pytest.mark.full("needs the whole atlas")
def test_a_tile_has_a_thumbnail_evidence_and_cost(page, text):
    shown = dict(re.findall(r'<li class="tile".*?<a href="#(\w+)">(.*?)</a></li>', text, re.S))
    for key, content in shown.items():
        assert ("<svg" in content) == (key != "nope")
        own = get(key).reported
        evidence = own.outcome if own else "untested"
        assert f'<span class="chip {evidence}">{evidence}</span>' in content
        cost = findings.costs().get(key)
        assert not cost or f"\N{MULTIPLICATION SIGN} {cost:.2f}" in content
    assert len(findings.costs()) > 85


@pytest.mark.full("takes seconds")
def test_the_page_is_whole_small_and_has_no_identity_twice(page, text):
    assert page.faults == []
    assert len(text.encode()) < 5_000_000
    identities = [attributes["id"] for _, attributes, _ in page.tags if "id" in attributes]
    assert len(identities) == len(set(identities))
    assert {link["href"][1:] for link, _ in page.all("a") if link["href"].startswith("#")} == {
        *list_encodings(),
        "gallery",
    }


@pytest.mark.full("needs the whole atlas")
def test_the_page_loads_nothing(page, text):
    for tag, attributes, _ in page.tags:
        assert tag not in ("link", "iframe", "object", "embed", "base", "img")
        assert "src" not in attributes
        for name, value in attributes.items():
            assert not name.startswith("on")
            if name == "href" and tag != "a":
                assert value.startswith("data:image/png;base64,")
            elif "://" in (value or ""):
                assert (tag, name) == ("a", "href")
                assert re.fullmatch(r"https://arxiv\.org/abs/\d{4}\.\d{4,5}(v\d+)?", value)
    style = resources.files("fastpe.pictures.atlas").joinpath("atlas.css").read_text()
    assert "url(" not in style
    assert "@import" not in style
    assert not re.search(r"fetch|import|XMLHttp|innerHTML|eval", (text.rpartition("<script>")[2]))


@pytest.mark.full("needs the whole atlas")
def test_filter_data_of_cards_are_those_of_the_records(page):
    for key, data in tiles(page).items():
        own = get(key)
        assert data["data-slots"].split() == list(own.slots)
        assert data["data-learned"] == catalogue.learned(own)
        assert (data["data-beyond"], data["data-use"]) == (own.beyond, own.use or "none")
        assert data["data-reported"] == (own.reported.outcome if own.reported else "untested")
        assert data["data-plain"] == ("yes" if catalogue.suits_sequences(own) else "no")
        assert data["data-year"] == "" if "own construction" in own.source else data["data-year"] in own.source
    assert {data["data-place"] for data in tiles(page).values()} == set(catalogue.GROUPS)


@pytest.mark.full("needs the whole atlas")
def test_the_script_and_the_page_know_the_same_fields(page):
    script = resources.files("fastpe.pictures.atlas").joinpath("atlas.js").read_text()
    fields = {attributes["name"] for attributes, _ in page.all("input", "select") if "name" in attributes}
    asked = {*re.findall(r"wanted\.(\w+)", script)}
    asked |= {*re.findall(r'"(\w+)"(?=[,\]])', script.split("for (const name")[1][:80])}
    assert asked == fields
    known = {name.removeprefix("data-") for name in tiles(page)["rope"] if name.startswith("data-")}
    assert set(re.findall(r"data\.(\w+)", script)) <= known
    offered = {value for attributes, _ in page.all("option") if (value := attributes["value"])}
    assert {"bias", "place:bias", "optional", "tuned", "images", "undefined"} <= offered
    assert "untested" in offered


@pytest.mark.full("needs the whole atlas")
def test_a_card_says_formula_options_source_theory_and_studies(page):
    found = cards(page)
    for key, (_, said) in found.items():
        own = get(key)
        assert own.summary in said
        assert own.source in said
        assert f"Use it when {own.use_when.replace('`', '')}." in said
        for option, each in own.options.items():
            default = str(each.default).lower() if each.default in (None, True, False) else each.default
            assert f"{option}{default}" in said
            assert each.expected() in said
            assert each.doc in said
        if own.reported:
            assert own.reported.evidence.replace("`", "") in said
        assert "In theory" in said
    assert "S_ij = s q_i . k_j - slope_h |j - i|" in found["alibi"][1]
    assert "keys used at equal content, at 50" in found["alibi"][1]
    assert "Use it when a causal model must read far beyond its training length" in found["alibi"][1]
    assert 'fastpe.build(\n    "alibi", 100, dim=64, heads=4, train_length=50, causal=True\n)' in found["alibi"][1]
    assert "fastpe train --encoding alibi --causal" in found["alibi"][1]
    assert 'x = x + encoding(100)["table"]' in found["sinusoidal"][1]
    assert 'fastpe.ModelConfig(\n    "fox", vocabulary=256, width=64' in found["fox"][1]  # it has no slots to build
    assert "running_sum 12.25" in found["geodesic"][1]  # (N - 1) / 4 at 50, by symmetry
    assert "first lag of negative similarity725 positions" in found["rope"][1]
    assert "learned parameters3,200 numbers" in found["learned"][1]
    assert "block length" in found["t5"][1]
    assert {key for key, (_, said) in found.items() if "in this repository" in said} == {
        key for study in findings.studies() for key in study["of"]
    }


@pytest.mark.full("needs the whole atlas")
def test_every_card_has_a_picture_but_for_what_fills_nothing(text):
    parts = {part.partition('"')[0]: part for part in text.split('<article class="card" id="')[1:]}
    without = {key for key, part in parts.items() if "<svg" not in part}
    assert without == {"nope"}
    assert "Nothing to draw" in parts["nope"]
    for part in parts.values():
        assert "nan" not in re.sub(r"base64,[^\"]*|<[^>]*>", "", "".join(re.findall(r"<svg.*?</svg>", part)))
        assert not re.search(r' (points|[xy][12]?)="[^"]*(nan|inf)', part)


@pytest.mark.full("needs the whole atlas")
def test_prose_contains_no_markup_characters(text):
    shown = re.sub(r"<(pre|code|style|script)[ >].*?</\1>", "", text, flags=re.S)
    assert not re.search(r"(?<!\w)\*\*|\*\*(?!\w)", shown)
    assert "`" not in re.sub(r'="[^"]*"', "", shown)


@pytest.mark.full("starts processes")
def test_the_same_encodings_give_the_same_bytes(text, tmp_path):
    """In another process too, whatever its order of sets; and a page of some has their cards as that of all."""
    flags = [word for name in SOME for word in ("--encoding", name)]
    files = [tmp_path / "one.html", tmp_path / "other.html"]
    for file, seed in zip(files, ("1", "2"), strict=True):
        command = [sys.executable, "-m", "fastpe", "atlas", "--out", str(file), *flags]
        subprocess.run(command, check=True, capture_output=True, env={**os.environ, "PYTHONHASHSEED": seed})
    one, other = (file.read_text() for file in files)
    assert one == other
    own = re.findall(r"<article.*?</article>", one, re.S)
    assert len(own) == len(SOME)
    assert all(each in text for each in own)


# Encodings of one's own ----------------------------------------------------------------------------------------------

EVIL = "<script>alert(1)</script>"


def test_nothing_of_an_own_encoding_is_run_or_breaks_the_page(tmp_path):
    changes = [
        ("a penalty by a power of the distance", EVIL),
        ("Root penalty:", f"Root {EVIL} & penalty:"),
        ("S_ij = s", f"{EVIL} S_ij = s"),
        ('"power of the distance"', f"'''of \"the\" {EVIL}'''"),
        ('source="an own construction"', f"source='by \"me\" {EVIL} 2024'"),
    ]
    key = fastpe.register(write(tmp_path, *changes))
    text = atlas([catalogue.entry(key), catalogue.entry("nope")])
    page = Page(text)
    assert page.faults == []
    assert EVIL not in text
    assert text.count("<script>") == 1
    data, said = tiles(page)[key], cards(page)[key][1]
    assert said.count(EVIL) == 6  # the summary, the page's first sentence (2), its formula, an option, the source
    assert (data["data-use"], data["data-year"], data["data-learned"]) == ("none", "2024", "yes")
    assert data["data-text"].count("<script>") >= 2
    assert "No use stated" in text
    assert ("none", "none stated") in [(a["value"], words) for a, words in page.all("option")]


def test_formula_use_and_names_of_an_own_encoding_are_shown_and_escaped(tmp_path):
    facts = f"formula=r'a < \\text{{{EVIL}}}', use_when={EVIL!r}, also_called=({EVIL!r},), not_to_be_confused="
    key = fastpe.register(write(tmp_path, ("ulp=4.0", f"{facts}{{{EVIL!r}: {EVIL!r}}}")))
    text = atlas([catalogue.entry(key)])
    page = Page(text)
    assert page.faults == []
    assert EVIL not in text
    said = cards(page)[key][1]
    assert f"Use it when {EVIL}." in said
    assert f"a<{EVIL}" in said
    assert f"Also called{EVIL}" in said
    assert f"Not to be confused with{EVIL}: {EVIL}" in said


def test_an_own_encoding_that_cannot_be_filled_has_a_card_that_says_why(tmp_path):
    key = fastpe.register(write(tmp_path, ("spec.length, spec.length)", "spec.length, 3 * spec.length)")))
    said = cards(Page(atlas([catalogue.entry(key)])))[key][1]
    assert "This encoding cannot be drawn: mine.py: reference gives slot 'bias' the shape" in said
    assert "Not available: the encoding cannot be filled: mine.py: reference gives slot 'bias'" in said
    assert "power" in said


@pytest.mark.parametrize("key", ["alibi", "kerple_log", "t5"])
def test_symmetric_biases_of_text_are_drawn_for_causal_models(key):
    drawn = card(catalogue.entry(key)).drawn
    assert drawn.spec.causal == (get(key).direction != "yes")
    assert max(drawn.views["bias"][0].x.values) == (0 if drawn.spec.causal else 99)
