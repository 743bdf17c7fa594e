"""The atlas: every encoding is there, as its record has it; the page is whole, and loads and runs nothing of it."""

import os
import re
import struct
import subprocess
import sys
import zlib
from html.parser import HTMLParser
from importlib import resources

import numpy as np
import pytest
from own_encodings import write

import fastpe
from fastpe.encodings import catalogue
from fastpe.encodings.encoding import USES
from fastpe.encodings.registry import get, list_encodings
from fastpe.pictures.atlas import drawing, findings, prose
from fastpe.pictures.atlas.page import atlas
from fastpe.pictures.panels import Axis, Curves, Map

VOID = {"meta", "input", "br", "image", "line", "polyline"}
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


def test_every_encoding_has_a_card_in_the_group_of_its_use(page, text):
    assert sorted(cards(page)) == sorted(list_encodings())
    groups = re.findall(r"<h2>(.*?)</h2>|<article class=\"card\" id=\"(\w+)\"", text)
    of, title = {}, ""
    for heading, key in groups:
        title = heading or title
        of |= {key: title} if key else {}
    assert of == {key: USES[get(key).use] for key in list_encodings()}


def test_the_page_is_whole_small_and_has_no_identity_twice(page, text):
    assert page.faults == []
    assert len(text.encode()) < 5_000_000
    identities = [attributes["id"] for _, attributes, _ in page.tags if "id" in attributes]
    assert len(identities) == len(set(identities))
    assert {link["href"][1:] for link, _ in page.all("a") if link["href"].startswith("#")} == set(list_encodings())


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


def test_what_filters_ask_is_what_the_record_says(page):
    for key, (data, _) in cards(page).items():
        own = get(key)
        assert data["data-slots"].split() == list(own.slots)
        assert data["data-learned"] == catalogue.learned(own)
        assert (data["data-beyond"], data["data-use"]) == (own.beyond, own.use)
        assert data["data-reported"] == (own.reported.outcome if own.reported else "none")
        assert data["data-plain"] == ("yes" if catalogue.suits_sequences(own) else "no")
        assert data["data-year"] == "" if "own construction" in own.source else data["data-year"] in own.source
    assert {data["data-place"] for data, _ in cards(page).values()} == set(catalogue.GROUPS)


def test_the_script_and_the_page_know_the_same_fields(page):
    script = resources.files("fastpe.pictures.atlas").joinpath("atlas.js").read_text()
    fields = {attributes["name"] for attributes, _ in page.all("input", "select") if "name" in attributes}
    asked = set(re.findall(r"wanted\.(\w+)", script)) | set(
        re.findall(r'"(\w+)"(?=[,\]])', script.split("for (const name")[1][:60])
    )
    assert asked == fields
    known = {name.removeprefix("data-") for name in cards(page)["rope"][0] if name.startswith("data-")}
    assert set(re.findall(r"data\.(\w+)", script)) <= known
    offered = {value for attributes, _ in page.all("option") if (value := attributes["value"])}
    assert {"bias", "place:bias", "optional", "tuned", "images", "undefined"} <= offered
    assert "none" in offered  # reported: nothing found
    labels = "".join(said for _, said in page.all("label"))
    assert all(word in labels for word in ("Search", "Use", "Acts on", "Learns", "From", "To"))


def test_a_card_says_formula_options_source_theory_and_studies(page):
    found = cards(page)
    for key, (_, said) in found.items():
        own = get(key)
        assert own.summary in said
        assert own.source in said
        for option, each in own.options.items():
            assert (
                f"{option}{str(each.default).lower() if each.default in (None, True, False) else each.default}" in said
            )
            assert each.expected() in said
            assert each.doc in said
        if own.reported:
            assert own.reported.evidence.replace("`", "") in said
        assert "In theory" in said
    assert "S_ij = s q_i . k_j - slope_h |j - i|" in found["alibi"][1]
    assert "keys used of 100 at equal content: 99.37" in found["alibi"][1]
    assert "running_sum 12.25" in found["alibi"][1]  # (N - 1) / 4 at 50, by symmetry
    assert "first lag of negative score: 725" in found["rope"][1]
    assert "parameters that it adds: 3,200" in found["learned"][1]
    assert "characters read" in found["t5"][1]
    assert {key for key, (_, said) in found.items() if "of this repository" in said} == {
        key for study in findings.studies() for key in study["of"]
    }


def test_every_card_has_a_picture_but_for_what_fills_nothing(text):
    parts = {part.partition('"')[0]: part for part in text.split('<article class="card" id="')[1:]}
    without = {key for key, part in parts.items() if "<svg" not in part}
    assert without == {"nope"}
    assert "nothing" in parts["nope"]
    for part in parts.values():
        assert "nan" not in re.sub(r"base64,[^\"]*|<[^>]*>", "", "".join(re.findall(r"<svg.*?</svg>", part)))
        assert not re.search(r' (points|[xy][12]?)="[^"]*(nan|inf)', part)


def test_prose_leaves_no_marks_behind(text):
    shown = re.sub(r"<(pre|code|style|script)[ >].*?</\1>", "", text, flags=re.S)
    assert not re.search(r"(?<!\w)\*\*|\*\*(?!\w)", shown)
    assert "`" not in re.sub(r'="[^"]*"', "", shown)


def test_headings_go_down_one_by_one(page):
    levels = [int(tag[1]) for tag, _, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in zip(levels, levels[1:], strict=False))


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


@pytest.mark.usefixtures("unregistered")
def test_nothing_of_an_own_encoding_is_run_or_breaks_the_page(tmp_path):
    changes = [
        ("a learned penalty, a power of the distance", EVIL),
        ("Root penalty:", f"Root {EVIL} & penalty:"),
        ("S_ij = s", f"{EVIL} S_ij = s"),
        ('"of the distance"', f"'''of \"the\" {EVIL}'''"),
        ('source="an own construction"', f"source='by \"me\" {EVIL} 2024'"),
    ]
    key = fastpe.register(write(tmp_path, *changes))
    text = atlas([catalogue.entry(key), catalogue.entry("nope")])
    page = Page(text)
    assert page.faults == []
    assert EVIL not in text
    assert text.count("<script>") == 1
    data, said = cards(page)[key]
    assert said.count(EVIL) == 5  # the summary, the page's first sentence, its formula, an option, the source
    assert (data["data-use"], data["data-year"], data["data-learned"]) == ("", "2024", "yes")
    assert "No use stated" in text
    assert ("none", "none stated") in [(a["value"], words) for a, words in page.all("option")]


@pytest.mark.usefixtures("unregistered")
def test_an_own_encoding_that_cannot_be_filled_has_a_card_that_says_why(tmp_path):
    key = fastpe.register(write(tmp_path, ("spec.length, spec.length)", "spec.length, 3 * spec.length)")))
    said = cards(Page(atlas([catalogue.entry(key)])))[key][1]
    assert "It cannot be drawn: mine.py: reference gives slot 'bias' the shape" in said
    assert "as it cannot be filled: mine.py: reference gives slot 'bias'" in said
    assert "power" in said
    text = """import fastpe

def reference(spec, params):
    raise RuntimeError("no luck")

ENCODING = fastpe.Encoding(slots=("rel_key",), shapes=lambda spec: {"rel_key": (1, 3, spec.head_dim)})
"""
    key = fastpe.register(write(tmp_path, text=text, name="luckless.py"))
    said = cards(Page(atlas([catalogue.entry(key)])))[key][1]
    assert "It cannot be drawn: luckless.py, line 4: RuntimeError: no luck" in said
    assert "as it cannot be filled: luckless.py, line 4: RuntimeError: no luck" in said


# Drawings ------------------------------------------------------------------------------------------------------------


def pixels(png):
    """The colours of a PNG of a palette, read by its specification: None where it is transparent."""
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    at, chunks = 8, {}
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        kind, content = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        assert struct.unpack(">I", png[at + 8 + size : at + 12 + size])[0] == zlib.crc32(kind + content)
        chunks[kind] = content
        at += 12 + size
    columns, rows, depth, colour, *_ = struct.unpack(">IIBBBBB", chunks[b"IHDR"])
    assert (depth, colour) == (8, 3)
    data = zlib.decompress(chunks[b"IDAT"])
    lines = [data[row * (columns + 1) : (row + 1) * (columns + 1)] for row in range(rows)]
    assert all(line[0] == 0 for line in lines)
    palette, opaque = chunks[b"PLTE"], chunks[b"tRNS"]
    return [[palette[3 * i : 3 * i + 3].hex() if opaque[i] else None for i in line[1:]] for line in lines]


def test_an_image_has_the_colour_of_every_value():
    axis = Axis("position", np.arange(3))
    values = np.array([[-2.0, 0.0, 2.0], [np.nan, -2.0, np.inf]])
    shown = Map("table", Axis("position", np.arange(2)), axis, values, "value")
    blue, white, red = "2166ac", "f7f7f7", "b2182b"
    assert pixels(drawing.image(shown)) == [[blue, white, red], [None, blue, None]]
    plain = Map("table", axis, axis, np.array([[1.0, 3.0, 2.0]]), "value")
    assert pixels(drawing.image(plain)) == [["440154", "fde725", "21918c"]]
    assert pixels(drawing.image(Map("table", axis, axis, np.zeros((1, 2)), "value"))) == [["440154"] * 2]


def test_a_map_has_its_training_end_between_cells_and_its_scale_in_words():
    axis = Axis("position", np.arange(4), (1.5,))
    figure = drawing.drawn(Map("a < b", axis, Axis("channel", np.arange(2)), np.arange(8.0).reshape(4, 2), "value"))
    assert 'aria-label="a &lt; b: position down, channel across, from 0 to 7"' in figure
    box = {
        name: float(value) for name, value in re.findall(r'(y|height)="([\d.]+)"', figure.partition("<image")[2])[:2]
    }
    (end,) = re.findall(r'class="end" .*? y1="([\d.]+)"', figure)
    assert float(end) == pytest.approx(box["y"] + box["height"] / 2, abs=0.1)
    marks = re.findall(r'y="(\d+)" text-anchor="end">(\d)<', figure)
    heights = [int(y) for y, _ in sorted(marks, key=lambda mark: mark[1])]
    assert len(heights) >= 2
    assert heights == sorted(heights)  # rows go down, as the image's do


def test_curves_go_where_their_values_are_and_have_gaps_where_there_is_none():
    x = Axis("offset", np.arange(5), (2.5,))
    lines = {"one": np.array([0.0, 1.0, np.nan, 3.0, 4.0]), "other": np.array([4.0, 3.0, 2.0, 1.0, 0.0])}
    figure = drawing.drawn(Curves("bias", x, lines, "added"))
    drawn = re.findall(r'<polyline class="(c\d)" points="([^"]*)"', figure)
    assert [kind for kind, _ in drawn] == ["c1", "c0", "c0"]
    points = [[tuple(map(float, point.split(","))) for point in own.split()] for _, own in drawn]
    other, first, second = points
    assert [len(own) for own in points] == [5, 2, 2]
    assert first == [(other[0][0], other[4][1]), (other[1][0], other[3][1])]
    assert second == [(other[3][0], other[1][1]), (other[4][0], other[0][1])]
    assert other[0][1] < other[4][1]  # larger values stand higher
    (end,) = re.findall(r'class="end" x1="([\d.]+)"', figure)
    assert float(end) == pytest.approx((other[2][0] + other[3][0]) / 2, abs=0.1)
    assert "one" in figure.partition("<figcaption>")[2]


def test_a_logarithmic_curve_leaves_out_what_has_no_logarithm():
    lines = {"": np.array([0.0, 1.0, 10.0, np.inf, 100.0])}
    figure = drawing.drawn(Curves("wavelength", Axis("pair", np.arange(5)), lines, "positions", log=True, level=10.0))
    runs = [own.split() for own in re.findall(r'points="([^"]*)"', figure)]
    assert [len(run) for run in runs] == [2, 1]
    heights = [float(point.split(",")[1]) for run in runs for point in run]
    assert heights[1] == pytest.approx((heights[0] + heights[2]) / 2, abs=0.1)
    (level,) = re.findall(r'class="end" .*? y1="([\d.]+)"', figure)
    assert float(level) == pytest.approx(heights[1], abs=0.1)
    empty = drawing.drawn(Curves("none", Axis("pair", np.arange(2)), {"": np.array([np.nan, -1.0])}, "x", log=True))
    assert "no finite value" in empty


TEXT = """Title `x < 1`.

    a < b
      c

Where
it is.

Source: A & B.

**Beside `x`**, up to 2**27 and 2**24, `a**b**`.

**Options**
- `p`: of
  it.
- q"""


def test_a_page_of_an_encoding_in_html():
    found = prose.parts(TEXT)
    assert found.title == "Title <code>x &lt; 1</code>."
    assert found.formula == "<pre>a &lt; b\n  c</pre>\n<p>Where it is.</p>\n"
    assert found.rest == (
        "<p>Source: A &amp; B.</p>\n"
        "<p><strong>Beside <code>x</code></strong>, up to 2**27 and 2**24, <code>a&#42;&#42;b&#42;&#42;</code>.</p>\n"
        "<p><strong>Options</strong></p>\n<ul><li><code>p</code>: of it.</li><li>q</li></ul>\n"
    )
    assert prose.parts("") == ("", "", "")
    assert prose.parts("Alone.") == ("Alone.", "", "")
