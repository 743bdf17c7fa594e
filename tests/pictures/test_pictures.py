"""What `fastpe show` makes of grids, of pairs that are masked, of what is not learned yet, and of several heads."""

import re

import command_line
import numpy as np
import pytest

import fastpe
from fastpe.pictures import figure, text
from fastpe.pictures.look import look
from fastpe_cli import show

# Wavelengths on a grid -----------------------------------------------------------------------------------------------


def test_the_wavelength_of_a_wave_across_a_grid_is_that_of_its_own_direction():
    sizes = {"dim": 16, "heads": 2, "train_length": 6}
    wave = look("rope_mixed", 12, **sizes).views["angles"][0]
    learned = fastpe.init("rope_mixed", **sizes, dtype=np.float64)
    for h in range(2):
        expected = 2 * np.pi / np.hypot(learned["fx"][h], learned["fy"][h])
        np.testing.assert_allclose(wave.lines[f"head {h}"], expected, rtol=1e-12)
    np.testing.assert_allclose(wave.lines["head 1"], 2 * np.pi * np.tile([1, 10**0.5], 2), rtol=1e-12)  # eq. (14)
    assert (wave.unit, wave.level) == ("cells", None)


def test_each_pair_of_an_axial_rotation_has_the_wavelength_of_its_axis():
    wave = look("rope_2d", 7, dim=8, class_token=True, grid=(2, 3)).views["angles"][0]
    np.testing.assert_allclose(wave.lines[""], 2 * np.pi * np.tile([1, 10.0], 2), rtol=1e-12)
    frames = look("mrope", 12, dim=12, grid=(3, 2, 2)).views["angles"][0]
    np.testing.assert_allclose(frames.lines[""], 2 * np.pi * 10.0 ** np.arange(6), rtol=1e-8)
    assert (frames.unit, frames.level) == ("steps", None)


def test_a_text_is_a_line_though_its_positions_have_several_coordinates():
    wave, rope = (look(name, 12, dim=12, base=1e6).views["angles"][0] for name in ("mrope", "rope"))
    np.testing.assert_array_equal(wave.lines[""], rope.lines[""])
    assert (wave.unit, wave.level) == ("positions", 50.0)


def test_in_a_sum_only_what_rotates_has_wavelengths():
    wave = look("rope_2d+alibi", 4, dim=8, heads=1).views["angles"][0]
    np.testing.assert_allclose(wave.lines[""], 2 * np.pi * np.tile([1, 10.0], 2), rtol=1e-12)
    titles = [view.title for view in look("rope_2d+rope", 4, dim=8, heads=1).views["angles"]]
    assert not any("wavelength" in title for title in titles)


# What is never attended ----------------------------------------------------------------------------------------------


def test_pairs_that_are_masked_are_left_out_of_a_map_and_of_its_scale():
    found = look("graphormer", 20, heads=2, spatial_max=5, centrality=False)
    scores = fastpe.build("graphormer", 20, heads=2, train_length=50, dtype=np.float64, spatial_max=5, centrality=False)
    far = np.abs(np.subtract.outer(np.arange(20), np.arange(20))) >= 5  # a path: so many steps from node to node
    for h, view in enumerate(found.views["index"][:2]):
        exact = scores["values"][h, scores["index"]]
        np.testing.assert_array_equal(view.values, np.where(far, np.nan, exact))
        assert max(np.abs(view.limits())) < 1
    np.testing.assert_array_equal(found.views["index"][2].values, np.where(far, np.nan, scores["index"]))
    assert "left out: pairs that are never attended" in found.notes[0]
    assert "left out: pairs that are never attended" in " ".join(
        line.plain for line in text.render(found, 80, text.ASCII)
    )
    assert "left out: pairs that are never attended" in found.as_dict()["remarks"][-1]


def test_offsets_that_are_masked_are_left_out_of_the_curves():
    found = look("alibi", 9, heads=4, form="one_sided")
    (bias,) = found.views["bias"]
    for h, slope in enumerate([2.0**-4, 2.0**-8]):  # of the heads that see the past, and of those that see the future
        seen, hidden = [-slope * distance for distance in range(9)], [np.nan] * 8
        np.testing.assert_allclose(bias.lines[f"head {h}"], seen[::-1] + hidden)
        np.testing.assert_allclose(bias.lines[f"head {h + 2}"], hidden + seen)
    assert found.notes


def test_a_large_bias_on_all_offsets_is_no_mask():
    found = look("alibi", 9, heads=1, slope=1e5)
    (bias,) = found.views["bias"]
    np.testing.assert_allclose(bias.lines["bias"], -1e5 * np.abs(np.arange(-8.0, 9)))
    assert found.notes == ()


# What is not learned yet, and heads ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "slot"), [("irpe", "values"), ("beit_bias", "values"), ("huang1", "gain")])
def test_equal_values_say_that_nothing_is_learned_yet(name, slot):
    assert look(name, 12, dim=16).notes == (f"{slot}: all values are equal, because nothing has been learned yet",)


def test_other_encodings_have_no_note_on_learning():
    for name in ("learned", "alibi", "nope", "rope_mixed"):
        assert look(name, 6, dim=16).notes == ()


def test_heads_that_are_alike_are_one_map_beside_the_buckets():
    values, buckets = look("irpe", 12, dim=16, heads=4).views["index"]
    assert (values.title, buckets.unit) == ("values, every head", "bucket")
    np.testing.assert_array_equal(buckets.values, fastpe.build("irpe", 12, dim=16, heads=4)["index"])


def test_maps_of_heads_share_one_scale():
    maps = look("fire", 12, dim=16, heads=4).views["scores"]
    every = np.concatenate([view.values[np.isfinite(view.values)] for view in maps])
    assert {view.span for view in maps} == {(every.min(), every.max())}
    assert len({(view.limits(), view.signed) for view in maps}) == 1


# Sizes that are not given ---------------------------------------------------------------------------------------------


def test_sizes_that_are_not_given_are_those_of_training():
    config = fastpe.TrainConfig("alibi")
    found = look("alibi", 4).spec
    assert (found.dim, found.heads, found.train_length) == (config.width, config.heads, config.train_length)
    assert found.causal == config.causal
    lines = command_line.fastpe("show", "--help").stdout
    for name, size in {"dim": config.width, "heads": config.heads, "train-length": config.train_length}.items():
        assert re.search(rf"--{name} INTEGER\s.*?\[default:\s+{size}\]", lines, re.DOTALL)


def test_what_is_made_for_causal_models_is_shown_as_it_is_trained():
    for name, options in (("xpos", {}), ("fire", {}), ("fire", {"symmetric": True}), ("alibi", {})):
        trained = fastpe.TrainConfig(name, options).causal_where_needed()
        assert look(name, 6, **options).spec.causal == trained.causal
    assert look("fire", 6, causal=False, symmetric=True).spec.causal is False


# Titles --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("glyphs", [text.ASCII, text.SHADES, text.COLOURS])
def test_no_number_of_a_scale_is_cut_off(glyphs):
    found = look("graphormer", 20, heads=2, spatial_max=5, centrality=False)  # two maps stand side by side
    low, high = found.views["index"][0].limits()
    words = [line.plain.split() for line in text.render(found, 80, glyphs)]
    assert [line.count(f"{high:.4g}") for line in words if f"{low:.4g}" in line] == [2]


# Nothing to draw, and what to draw with ------------------------------------------------------------------------------


def test_encodings_without_slots_have_nothing_to_show():
    assert "nothing to draw" in command_line.fastpe("show", "nope").stdout
    with pytest.raises(ValueError, match="nothing to draw for 'nope'"):
        figure.draw(look("nope"), "png")


def test_characters_depend_on_terminal_and_encoding():
    assert show._glyphs(False, "utf-8", False) is text.ASCII
    assert show._glyphs(True, "ascii", True) is text.ASCII
    assert show._glyphs(True, "UTF-8", False) is text.SHADES
    assert show._glyphs(True, "utf-8", True).colour
