"""What `fastpe show` makes of grids, of pairs that are masked, of what is not learned yet, and of several heads."""

import numpy as np

import fastpe
from fastpe.pictures.look import look

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
