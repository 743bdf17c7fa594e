"""Wavelets of the distance: printed values, the attention they act in, PyWavelets, and where they end."""

import numpy as np
import pytest
import pywt
from fixture_attention import results

import fastpe


def rows(length: int, **request: object) -> np.ndarray:
    """p_m by m = i - j from -(length - 1) on, (2 length - 1, D)."""
    return fastpe.build("wavelet_relative", length, dtype=np.float64, **request)["rel_key"][0, ::-1]


def test_printed_values_of_the_authors_setting() -> None:
    p = rows(1001, dim=128)[1000:]
    unshifted = p[:, ::16]  # b = 0, a = 1, 2, .. 128
    printed = [0, 0.661872677, 0.908656157, 0.976714533, 0.994150153, 0.998535752, 0.999633826, 0.999908450]
    np.testing.assert_allclose(unshifted[1], printed, rtol=0, atol=5.1e-10)
    np.testing.assert_allclose(unshifted[2], [-0.406005850, *printed[:-1]], rtol=0, atol=5.1e-10)
    far = [-0.000000125, -0.066405548, -0.425247501, 0.287168488]
    np.testing.assert_allclose(unshifted[100, 4:], far, rtol=0, atol=5.1e-10)
    norms = np.linalg.norm(p[[0, 10, 100, 1000]], axis=1)
    np.testing.assert_allclose(norms, [7.946980417, 8.626803914, 2.179548782, 0], rtol=0, atol=5.1e-10)


def test_printed_values_of_two_scales_with_two_shifts() -> None:
    p = rows(4, dim=4, scales=2)
    for m, printed in {
        -1: [0, -0.406005850, 0.661872677, 0],
        1: [0, 1, 0.661872677, 1],
        3: [-0.088871972, -0.406005850, -0.405815584, 0],
    }.items():
        np.testing.assert_allclose(p[m + 3], printed, rtol=0, atol=5.1e-10)


def test_the_attention_it_acts_in() -> None:
    slots = fastpe.build("wavelet_relative", 4, dim=4, scales=2, dtype=np.float64)
    printed = [-0.480344470, -0.751308778, 0.093479812, 0.520079043, 0.637197150]
    np.testing.assert_allclose(results(slots, causal=False), printed, rtol=0, atol=6e-10)
    np.testing.assert_allclose(results(slots, causal=True)[2:4], [0.216771320, 0.356351277], rtol=0, atol=6e-10)


@pytest.mark.parametrize(
    ("wavelet", "ahead", "behind"),
    [("gaussian", 0.778800783, 0.569782825), ("morlet", -0.324095482, -0.564080721), ("haar", 0, -1)],
)
def test_printed_values_of_the_other_wavelets(wavelet: str, ahead: float, behind: float) -> None:
    p = rows(4, dim=2, scales=1, first_exponent=2, wavelet=wavelet)[:, 1]  # a = 4, b = 1
    np.testing.assert_allclose(p[[3 + 3, -2 + 3]], [ahead, behind], rtol=0, atol=5.1e-10)


def test_the_wavelets_of_pywavelets() -> None:
    values, places = pywt.ContinuousWavelet("mexh").wavefun(length=1025)
    ricker = rows(2049, dim=1, scales=1, first_exponent=7)[2048:, 0]  # at m / 128
    inside = (places >= 0) & (places <= 8) & (places * 128 == np.rint(places * 128))
    assert inside.sum() > 400
    theirs = values[inside] / (2 / (np.sqrt(3) * np.pi**0.25))
    np.testing.assert_allclose(ricker[np.rint(places[inside] * 128).astype(int)], theirs, rtol=0, atol=1e-15)


def test_scales_that_do_not_divide_the_width_and_more_of_them_than_channels() -> None:
    five = rows(9, dim=5, scales=2)
    np.testing.assert_array_equal(five[:, :3], rows(9, dim=3, scales=1))
    np.testing.assert_array_equal(five[:, 3:], rows(9, dim=2, scales=1, first_exponent=1))
    np.testing.assert_array_equal(rows(9, dim=3), rows(9, dim=3, scales=3))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_entry_is_subnormal_and_blocks_agree(dtype: type) -> None:
    table = fastpe.build("wavelet_relative", 5000, dim=24, dtype=dtype)["rel_key"]
    sizes = np.abs(table[table != 0])
    assert 2.0**-126 <= sizes.min() < 1e-37
    few = fastpe.build("wavelet_relative", 200, dim=24, dtype=dtype)["rel_key"]
    np.testing.assert_array_equal(table[:, 4800:5199], few)
