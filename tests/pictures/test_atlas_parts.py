"""What cards of the atlas are made of: small drawings, beside the places where their values belong, and prose."""

import re
import struct
import zlib

import numpy as np
import pytest

from fastpe.pictures import drawing
from fastpe.pictures.atlas import prose
from fastpe.pictures.panels import Axis, Curves, Map


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
    view = Map("a < b", axis, Axis("channel", np.arange(2)), np.arange(8.0).reshape(4, 2), "value")
    figure = drawing.element(view, "learned")
    assert 'aria-label="a &lt; b: position down, channel across, from 0 to 7"' in figure
    box = {
        name: float(value) for name, value in re.findall(r'(y|height)="([\d.]+)"', figure.partition("<image")[2])[:2]
    }
    (end,) = re.findall(r'stroke-dasharray="4 3" .*? y1="([\d.]+)"', figure)
    assert float(end) == pytest.approx(box["y"] + box["height"] / 2, abs=0.1)
    marks = re.findall(r'y="([\d.]+)" fill="currentColor" text-anchor="end">(\d)<', figure)
    heights = [float(y) for y, _ in sorted(marks, key=lambda mark: mark[1])]
    assert len(heights) >= 2
    assert heights == sorted(heights)  # rows go down, as the image's do


def polylines(figure):
    """The points of each line, by name."""
    found = {}
    for name, content in re.findall(r'<g class="line" data-name="([^"]*)".*?>(.*?)</g>', figure):
        runs = re.findall(r'<polyline [^>]*points="([^"]*)"', content)
        found[name] = [[tuple(map(float, point.split(","))) for point in run.split()] for run in runs]
    return found


def test_curves_go_where_their_values_are_and_have_gaps_where_there_is_none():
    x = Axis("offset", np.arange(5), (2.5,))
    lines = {"one": np.array([0.0, 1.0, np.nan, 3.0, 4.0]), "other": np.array([4.0, 3.0, 2.0, 1.0, 0.0])}
    figure = drawing.element(Curves("bias", x, lines, "added"), "alibi")
    found = polylines(figure)
    (other,), (first, second) = found["other"], found["one"]
    assert [len(own) for own in (other, first, second)] == [5, 2, 2]
    assert first == [(other[0][0], other[4][1]), (other[1][0], other[3][1])]
    assert second == [(other[3][0], other[1][1]), (other[4][0], other[0][1])]
    assert other[0][1] < other[4][1]  # larger values stand higher
    (end,) = re.findall(r'stroke-dasharray="5 4" x1="([\d.]+)"', figure)
    assert float(end) == pytest.approx((other[2][0] + other[3][0]) / 2, abs=0.1)
    assert ">one</text>" in figure  # the name at the end of the line


def test_a_logarithmic_curve_leaves_out_what_has_no_logarithm():
    lines = {"": np.array([0.0, 1.0, 10.0, np.inf, 100.0])}
    view = Curves("wavelength", Axis("pair", np.arange(5)), lines, "positions", log=True, level=10.0)
    figure = drawing.element(view, "rope")
    runs = polylines(figure)[""]
    assert [len(run) for run in runs] == [2, 1]
    heights = [y for run in runs for _, y in run]
    assert heights[1] == pytest.approx((heights[0] + heights[2]) / 2, abs=0.1)
    (level,) = re.findall(r'stroke-dasharray="2 3" .*? y1="([\d.]+)"', figure)
    assert float(level) == pytest.approx(heights[1], abs=0.1)
    assert "positions (log scale)" in figure
    empty = Curves("none", Axis("pair", np.arange(2)), {"": np.array([np.nan, -1.0])}, "x", log=True)
    assert "no finite value" in drawing.element(empty, "rope")


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
    start = '<pre tabindex="0" role="group" aria-label="formula">'
    assert found.formula == f"{start}a &lt; b\n  c</pre>\n<p>Where it is.</p>\n"
    assert found.rest == (
        "<p>Source: A &amp; B.</p>\n"
        "<p><strong>Beside <code>x</code></strong>, up to 2**27 and 2**24, <code>a&#42;&#42;b&#42;&#42;</code>.</p>\n"
        "<p><strong>Options</strong></p>\n<ul><li><code>p</code>: of it.</li><li>q</li></ul>\n"
    )
    typeset = prose.parts(TEXT, "a < b")
    assert typeset.formula.startswith('<div class="formula" role="group" aria-label="formula" tabindex="0"><math ')
    assert typeset.formula.endswith("</math></div>\n<p>Where it is.</p>\n")
    assert typeset.rest == f"{start}a &lt; b\n  c</pre>\n{found.rest}"
    assert prose.parts("") == ("", "", "")
    assert prose.parts("Alone.") == ("Alone.", "", "")
