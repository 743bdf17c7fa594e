"""Numbers that a tutorial prints ("18-03 Positional Encodings", its worked examples and problems)."""

import math

import numpy as np
import pytest

import fastpe
from fastpe.theory.biases import last_row
from fastpe.theory.kernel import kernel_by_lag
from fastpe.theory.rotations import frequencies
from fastpe.theory.softmax import weights


def table(dim, length):
    return fastpe.build("sinusoidal", length, dim=dim, dtype="float64")["table"]


def wavelengths(dim):
    """Those of the sinusoidal table, whose frequencies RoPE has as well."""
    return 2.0 * math.pi / frequencies(fastpe.build("rope", 2, dim=dim)["angles"])[0]


def test_rows_of_the_sinusoidal_table():
    np.testing.assert_allclose(table(4, 2), [[0, 1, 0, 1], [0.8415, 0.5403, 0.0100, 0.99995]], atol=5e-5)
    row = [-0.5064, 0.8623, -0.5440, -0.8391, 0.8415, 0.5403, 0.0998, 0.9950]
    np.testing.assert_allclose(table(8, 101)[100], row, atol=5e-5)


def test_wavelengths_and_products_of_rows():
    np.testing.assert_allclose(wavelengths(8), [6.28, 62.8, 628.3, 6283.2], rtol=8e-4)
    assert wavelengths(512)[-1] / wavelengths(512)[0] == pytest.approx(9647, abs=0.5)
    assert kernel_by_lag(table(2, 15))[4] == pytest.approx(-0.6536, abs=5e-5)


@pytest.mark.parametrize(
    ("slope", "printed"), [(0.5, [0.058, 0.096, 0.158, 0.260, 0.429]), (0.1, [0.162, 0.179, 0.198, 0.219, 0.242])]
)
def test_attention_of_the_last_of_five_equal_tokens_with_alibi(slope, printed):
    slots = fastpe.build("alibi", 5, slope=slope, causal=True, dtype="float64")
    shares = weights(last_row(slots, 5)[0, ::-1])
    np.testing.assert_allclose(shares, printed, atol=5e-4)
    same = np.zeros((1, 1, 5, 5))
    shown = fastpe.attention(same, same, np.eye(5)[None, None], causal=True, **slots)[0, 0, 4]
    np.testing.assert_allclose(shown, shares, rtol=1e-12)


@pytest.mark.parametrize(("dim", "wavelength"), [(8, 6283.185307), (512, 60611.4772)])
def test_the_longest_wave_is_62832_in_the_variant_of_tensor2tensor_alone(dim, wavelength):
    """The tutorial prints 62,832 for the original table, whose last pair has the frequency 10000^-((d - 2) / d)."""
    assert wavelengths(dim)[-1] == pytest.approx(wavelength, rel=1e-8)
    variant = fastpe.build("sinusoidal_t2t", 2, dim=dim, dtype="float64")["table"]
    assert 2.0 * math.pi / math.asin(variant[1, : dim // 2].min()) == pytest.approx(62832, abs=0.5)
