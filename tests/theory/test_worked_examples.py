"""The worked examples and problems of a tutorial's chapter ("18-03 Positional Encodings"), printed beside computed.

Printed numbers stand as text: they are right where the computed one rounds to them. The last tests are of what the
chapter has wrong, and say what is right instead.
"""

import itertools
import math
from decimal import Decimal

import numpy as np
import pytest

import fastpe
from fastpe.theory.biases import last_row
from fastpe.theory.kernel import kernel, kernel_by_lag, toeplitz_share
from fastpe.theory.reach import reaches
from fastpe.theory.rotations import frequencies
from fastpe.theory.softmax import weights
from fastpe.theory.tables import norms


def is_printed_as(computed, printed):
    """Whether each number rounds to the one printed, to the last digit there."""
    words = printed.split()
    assert np.shape(computed) == (len(words),)
    for number, word in zip(np.asarray(computed).tolist(), words, strict=True):
        half = Decimal(10) ** Decimal(word).as_tuple().exponent / 2
        if abs(Decimal(number) - Decimal(word)) > half:
            return False
    return True


def table(dim, length):
    return fastpe.build("sinusoidal", length, dim=dim, dtype="float64")["table"]


def wavelengths(dim):
    """Those of the sinusoidal table, whose frequencies RoPE has as well."""
    return 2.0 * math.pi / frequencies(fastpe.build("rope", 2, dim=dim)["angles"])[0]


# What is right -------------------------------------------------------------------------------------------------------


def test_the_check_of_digits_is_sharp():
    assert is_printed_as([0.84147], "0.8415")
    assert not is_printed_as([0.84144], "0.8415")
    assert not is_printed_as([0.99996], "0.99995")


@pytest.mark.parametrize(
    ("dim", "position", "printed"),
    [
        (4, 0, "0 1 0 1"),  # example 1
        (4, 1, "0.8415 0.5403 0.0100 0.99995"),  # example 1
        (8, 100, "-0.5064 0.8623 -0.5440 -0.8391 0.8415 0.5403 0.0998 0.9950"),  # problem 1
    ],
)
def test_rows_of_the_sinusoidal_table(dim, position, printed):
    assert is_printed_as(table(dim, 101)[position], printed)


def test_wavelengths_of_eight_channels():  # problem 1
    assert is_printed_as(wavelengths(8), "6.28 62.8 628.3 6283.2")


def test_products_of_rows_depend_on_the_offset_alone():  # example 2
    rows = table(2, 15)
    products = kernel(rows)
    assert is_printed_as([products[3, 7], products[10, 14], kernel_by_lag(rows)[4]], "-0.6536 -0.6536 -0.6536")
    assert toeplitz_share(rows).value < 1e-14


@pytest.mark.parametrize(
    ("slope", "scores", "exponentials", "printed"),
    [
        (0.5, "-2.0 -1.5 -1.0 -0.5 0", "0.135 0.223 0.368 0.607 1.0", "0.058 0.096 0.158 0.260 0.429"),
        (0.1, "-0.4 -0.3 -0.2 -0.1 0", "0.670 0.741 0.819 0.905 1.0", "0.162 0.179 0.198 0.219 0.242"),
    ],
)
def test_attention_of_the_last_of_five_tokens_with_alibi(slope, scores, exponentials, printed):  # example 3
    slots = fastpe.build("alibi", 5, slope=slope, causal=True, dtype="float64")
    row = last_row(slots, 5)[0, ::-1]
    assert is_printed_as(row, scores)
    assert is_printed_as(np.exp(row), exponentials)
    assert is_printed_as(weights(row), printed)
    same = np.zeros((1, 1, 5, 5))  # equal tokens: attention itself, and not only the softmax of the theory
    shown = fastpe.attention(same, same, np.eye(5)[None, None], causal=True, **slots)[0, 0, 4]
    np.testing.assert_allclose(shown, weights(row), rtol=1e-12)


@pytest.mark.parametrize(
    ("slope", "printed"),
    [(0.5, [0.058, 0.096, 0.158, 0.260, 0.429]), (0.1, [0.162, 0.179, 0.198, 0.219, 0.242])],
)
def test_the_smaller_slope_is_nearly_uniform(slope, printed):  # the observation of example 3: 4.03 and 4.95 keys of 5
    used = reaches(-slope * np.arange(5.0)[None])[0].perplexity.value
    shares = np.array(printed)
    assert used == pytest.approx(math.exp(-(shares * np.log(shares)).sum()), abs=0.005)
    assert (used > 4.9) == (slope == 0.1)


def test_slopes_of_eight_heads_are_halved_from_head_to_head():  # section 6
    bias = fastpe.build("alibi", 2, heads=8, dtype="float64")["bias"]
    np.testing.assert_array_equal(-bias[:, 0], 2.0 ** -np.arange(1.0, 9.0))


def test_the_frequencies_of_512_channels_span_four_orders_of_magnitude():  # problem 4
    omega = 2.0 * math.pi / wavelengths(512)
    assert is_printed_as([omega[0] / omega[255]], "9647")


def test_rows_are_shifted_by_a_matrix_that_does_not_know_where():  # problem 2, with its block [cos sin; -sin cos]
    rows, k = table(8, 40), 7
    shift = np.zeros((8, 8))
    for i, omega in enumerate(2.0 * math.pi / wavelengths(8)):
        cos, sin = math.cos(k * omega), math.sin(k * omega)
        shift[2 * i : 2 * i + 2, 2 * i : 2 * i + 2] = [[cos, sin], [-sin, cos]]
    np.testing.assert_allclose(rows[:-k] @ shift.T, rows[k:], atol=1e-14)


def test_alibi_without_a_slope_is_no_encoding():  # problem 3
    q, k, v = (np.sin(np.arange(24.0) + shift).reshape(1, 1, 6, 4) for shift in (0, 1, 2))
    flat = fastpe.build("alibi", 6, slope=0.0, dtype="float64")
    np.testing.assert_array_equal(fastpe.attention(q, k, v, **flat), fastpe.attention(q, k, v))


# What is wrong -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dim", "wavelength"), [(8, 6283.185307), (512, 60611.4772)])
def test_the_longest_wave_is_not_62832(dim, wavelength):
    """Section 2 prints w = 1/10000 and a wavelength of 62,832 for the last pair, which has 10000^-((d - 2) / d).

    Only the variant of tensor2tensor comes to 1/10000; problems 1 and 4 have it right.
    """
    assert wavelengths(dim)[-1] == pytest.approx(wavelength, rel=1e-8)
    assert not is_printed_as(wavelengths(dim)[-1:], "62832")
    variant = fastpe.build("sinusoidal_t2t", 2, dim=dim, dtype="float64")["table"]
    longest = 2.0 * math.pi / math.asin(variant[1, : dim // 2].min())
    assert is_printed_as([longest], "62832")


def test_scores_of_positions_know_the_offset_alone_only_for_special_maps():
    """Section 3 says that the products of rows give (x_i + PE_i) W (x_j + PE_j) a part that knows the offset alone.

    PE_i W PE_j is a function of j - i where W commutes with all rotations of the pairs, as the unit matrix does, and
    not for others: three pairs of tokens, all 4 apart.
    """
    rows = table(8, 25)
    pairs = [(0, 4), (10, 14), (20, 24)]
    some = np.sin(np.arange(64.0)).reshape(8, 8)
    of_unit, of_some = ([rows[i] @ w @ rows[j] for i, j in pairs] for w in (np.eye(8), some))
    assert of_unit == pytest.approx([2.26661] * 3, abs=1e-5)
    assert min(abs(a - b) for a, b in itertools.pairwise(of_some)) > 0.1


def test_close_positions_have_similar_rows():
    """The first pitfall says that rows of close positions "don't look similar", and only their product tells.

    All rows have one norm, so that distance and product tell the same: |PE(m) - PE(n)|^2 = d - 2 PE(m).PE(n).
    """
    rows = table(4, 60)
    size = norms(rows)
    assert size["least"].value == pytest.approx(size["most"].value) == pytest.approx(math.sqrt(2.0))
    apart, product = np.linalg.norm(rows[1] - rows[0]), kernel_by_lag(rows)[1]
    assert (apart, product) == pytest.approx((0.958903, 1.540252), abs=1e-6)
    distances = np.linalg.norm(rows[1:] - rows[0], axis=1)
    np.testing.assert_allclose(distances**2, 4.0 - 2.0 * kernel_by_lag(rows)[1:], rtol=1e-10)
