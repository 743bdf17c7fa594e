"""Colours of lines can be read on a light and on a dark background, and are equal in all kinds of figures."""

import pytest

from fastpe.encodings.registry import built_in
from fastpe.pictures import drawing, plots, svg
from fastpe.pictures.canvas import available
from fastpe.pictures.colours import BLACK, PALETTE, WHITE, contrast, heads, in_order, of_encoding, of_lines, styles
from fastpe.pictures.look import look
from fastpe.pictures.svg import Line, Plot

LEAST = 3.0  # WCAG 2.2, 1.4.11


def test_contrast_is_that_of_wcag():
    assert contrast("#777777", "#ffffff") == pytest.approx(4.478, abs=1e-3)  # a well-known example, just below 4.5
    assert contrast("#ffffff", "#000000") == pytest.approx(21.0)


@pytest.mark.parametrize("place", range(len(PALETTE)))
def test_every_colour_and_each_of_its_heads_has_enough_contrast(place):
    own = PALETTE[place]
    for count in (1, 2, 4, 8):
        shades = heads(own, count)
        assert len(set(shades)) == count
        for light, dark in [own, *shades]:
            assert contrast(light, WHITE) >= LEAST
            assert contrast(dark, BLACK) >= LEAST
        strengths = [contrast(each.light, WHITE) for each in shades]
        assert strengths == sorted(strengths, reverse=True)


def test_an_encoding_has_one_colour_and_equal_colours_have_different_dashes():
    names = [*built_in()]
    found = styles(names)
    assert {name: colour for name, (colour, _) in found.items()} == {name: of_encoding(name) for name in names}
    some = styles(["rope", "alibi", "fire"])
    assert styles(["fire", "alibi", "rope"]) == some  # whatever the order and the company
    assert len({*styles({f"run {k}": "rope" for k in range(4)}).values()}) == 4


def test_lines_of_a_panel_are_shades_of_the_encoding_or_categories():
    assert of_lines("alibi", ["bias"])["bias"][0] == of_encoding("alibi")
    assert [colour for colour, _ in of_lines("alibi", ["head 0", "head 1"]).values()] == heads(of_encoding("alibi"), 2)
    assert of_lines("rope", ["first 50", "all 100"]) == in_order(["first 50", "all 100"])
    assert of_lines("rope", ["bias", "no bias"])["no bias"][0] == PALETTE[0]


def test_svg_and_matplotlib_and_a_thumbnail_use_the_same_colours():
    own = of_encoding("alibi")
    plot = Plot([Line("alibi", [(1, 1.0), (2, 2.0)]), Line("rope", [(1, 2.0), (2, 1.0)])], "x", "y")
    assert f"light-dark({own.light}, {own.dark})" in svg.element(plot)
    (view,) = look("alibi", 4, train_length=2, causal=True).views["bias"]
    assert own.light in drawing.thumbnail(view, "alibi")
    if available():
        drawn = plots.drawn([plot]).axes[0].get_lines()
        assert own.light in {line.get_color() for line in drawn}


def test_svg_files_have_a_dark_scheme_and_do_not_need_matplotlib(monkeypatch):
    monkeypatch.setattr("fastpe.pictures.canvas.find_spec", lambda name: None)
    plot = Plot([Line("a<b", [(1, 1.0), (2, 2.0)])], "x", "y", title="<one>")
    for made in (plots.draw([plot], "svg"), plots.draw([plot, plot], "svg")):
        assert b"color-scheme:light dark" in made
        assert b"a&lt;b" in made
        assert b"<one>" not in made
    with pytest.raises(ModuleNotFoundError, match=r"such as --out figure\.svg"):
        plots.draw([plot], "png")


def test_axes_say_that_they_are_logarithmic_and_have_three_digits():
    points = [(2.0**k, 10.0**-k / 3) for k in range(1, 12)]
    drawn = svg.element(Plot([Line("rope", points)], "sequence length", "loss (nats/token)", log_y=True, marked=16))
    assert ">sequence length (log scale)<" in drawn
    assert ">loss (nats/token, log scale)<" in drawn
    assert ">beyond training<" in drawn
    assert "0.166666" not in drawn
