"""What is shown of maps of channels: a block's entries, and how alike the maps of two positions are."""

import numpy as np
import pytest

import fastpe
from fastpe.pictures.look import look

SIZES = {"dim": 16, "heads": 2, "train_length": 20}


def test_maps_show_a_block_and_how_alike_they_stay():
    *maps, decay = look("comrope", 12, **SIZES, block=4).views["rotors"]
    rotors = fastpe.build("comrope", 12, **SIZES, block=4, dtype=np.float64)["rotors"]
    assert [each.title for each in maps] == ["maps of block 0, head 0", "maps of block 0, head 1"]
    np.testing.assert_allclose(maps[1].values, rotors[1, :, 0].reshape(12, 16), rtol=1e-12)
    first, fourth = rotors[1, 0], rotors[1, 3]
    product = sum(np.trace(a.T @ b) for a, b in zip(first, fourth, strict=True)) / 8
    assert decay.lines["head 1"][3] == pytest.approx(product)
    assert decay.lines["head 1"][0] == pytest.approx(1.0)


def test_a_map_that_all_positions_share_is_one_matrix():
    maps = look("string", 12, **SIZES).views["rotors"]
    assert [each.values.tolist() for each in maps] == [np.eye(8).tolist()] * 2


def test_factors_of_single_channels_are_one_curve():
    options = {"rotated": 4, "factor": 4.0}
    [curves] = look("rope_yarn", 12, **SIZES, **options).views["rotors"]
    mscale = 1 + 0.1 * np.log(4)
    assert curves.title == "factors of channels of query and key"
    [line] = curves.lines.values()
    np.testing.assert_allclose(line, [mscale] * 4 + [1.0] * 4, rtol=1e-12)
