"""Wavelets: exact evaluation, and every reading of the paper's definition, against printed values and identities."""

from fractions import Fraction

import mpmath
import numpy as np
import pytest
import pywt
from exact_wavelets import exact_filter, exact_values

import fastpe
from fastpe.encodings.combined import remarks
from fastpe.encodings.input.wavelet import Columns, columns
from fastpe.encodings.parts.daubechies import (
    evaluate,
    evaluate_reference,
    orthogonal_filter,
    reference_values,
    scaling_filter,
)
from fastpe.encodings.registry import parse
from fastpe.encodings.slots import make_spec

ORTHOGONAL = [name for name in pywt.wavelist(kind="discrete") if not name.startswith(("bior", "rbio", "dmey"))]


def table(length: int, train_length: int = 50, **keywords: object) -> np.ndarray:
    return fastpe.build("wavelet", length, train_length=train_length, **{"dtype": np.float64, **keywords})["table"]


def chosen(train_length: int, dim: int, **options: object) -> Columns:
    (part,) = parse("wavelet", options)
    return columns(make_spec(train_length, dim=dim), **part.options)


# ---------------------------------------------------------------------------------------------------------------------
# phi and psi


@pytest.mark.parametrize("evaluator", [evaluate, evaluate_reference])
def test_printed_values(evaluator: object) -> None:
    def check(wavelet: str, psi: bool, points: object, printed: object) -> None:
        np.testing.assert_allclose(evaluator(wavelet, points, psi=psi), printed, rtol=3e-13, atol=6e-15)

    check("db2", False, [1, 2, 0.5, 1.5], [1.36602540378444, -0.366025403784439, 0.933012701892219, 0])
    check("db2", False, [2.5, 1 / 3], [0.066987298107781, 0.70467701635662])
    check("db2", True, [1, 2, 0.5, 1.5, 2.5], [-0.366025403784439, -1.36602540378444, -0.25, 1.7320508075689, 0.25])
    check("db2", True, [1 / 3], [-0.18881763745753])
    integers = [1.0071699777256, -0.033836954052835, 0.039610462715903, -0.011764358205727, -0.001197957596177]
    check("db4", False, [1, 2, 3, 4, 5, 6], [*integers, 1.8829413233543e-5])
    integers = [-0.046329916785459, 0.26326211826677, -0.88723853436568, -0.39753768771238, -0.023730279300024]
    check("db4", True, [1, 2, 3, 4, 5, 6], [*integers, 4.0933420612069e-4])
    check("db4", False, [0.5, 0.25, np.pi], [0.32813943137335, 0.10690895162024, 0.11002666137312])
    check("db4", True, [3.5, 0.25, np.pi], [1.0436510401545, -0.0049178221568633, -0.79507479170276])
    check("db1", False, [-0.5, 0, 0.5, 1 - 2**-53, 1], [0, 1, 1, 1, 0])
    check("db1", True, [-0.5, 0, 0.25, 0.5, 0.75, 1], [0, 1, 1, -1, -1, 0])


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("moments", [2, 4, 10, 20])
def test_values_against_mpmath_from_the_exact_filter(moments: int) -> None:
    name = f"db{moments}"
    with mpmath.workdps(80):
        h = exact_filter(moments)
        np.testing.assert_allclose(scaling_filter(name), np.array(h, dtype=np.float64), rtol=2.3e-16)
        for fraction in (0.0, 0.5, 0.3, 1 / 3, 0.001):
            for psi, exact in enumerate(exact_values(h, Fraction(fraction))):
                points = fraction + np.arange(2 * moments - 1)
                shifted = evaluate(name, fraction + np.zeros(1), psi=bool(psi))  # the fraction itself is exact
                values = reference_values(orthogonal_filter(name), Fraction(fraction))[psi]
                expected = np.array(exact, dtype=np.float64)
                np.testing.assert_allclose(values, expected, rtol=0, atol=1e-14)
                np.testing.assert_allclose(shifted, expected[:1], rtol=0, atol=1e-14)
                if fraction in (0.0, 0.5):
                    np.testing.assert_allclose(evaluate(name, points, psi=bool(psi)), expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("name", ORTHOGONAL)
def test_every_orthogonal_wavelet(name: str) -> None:
    h = scaling_filter(name)
    own = pywt.Wavelet(name)
    np.testing.assert_array_equal(h, own.rec_lo)
    np.testing.assert_allclose(orthogonal_filter(name).high, np.sqrt(2) * np.array(own.rec_hi), rtol=2e-11)
    accuracy = 2e-11 if name.startswith("sym") else 1e-12
    np.testing.assert_allclose(h.sum(), np.sqrt(2), rtol=accuracy)
    for shift in range(len(h) // 2):
        np.testing.assert_allclose(h[2 * shift :] @ h[: len(h) - 2 * shift], float(shift == 0), atol=accuracy)
    # the shifts of phi sum to 1 everywhere, and those of psi by halves to 0
    for fraction in (0.0, 0.3125):
        halves = fraction + np.arange(2 * len(h) - 2) / 2
        np.testing.assert_allclose(evaluate(name, halves[::2]).sum(), 1, rtol=1e-12)
        np.testing.assert_allclose(evaluate(name, halves, psi=True).sum(), 0, atol=1e-12)


@pytest.mark.parametrize("name", ["db1", "db3", "sym4", "coif2"])
def test_orthonormal_and_close_to_the_cascade(name: str) -> None:
    width, step = len(scaling_filter(name)) - 1, 2.0**-6
    x = np.arange(-width, 2 * width, step)
    functions = [evaluate(name, x - k, psi=psi) for psi in (False, True) for k in (0, 1)]
    np.testing.assert_allclose(np.array(functions) @ np.array(functions).T * step, np.eye(4), atol=2e-3)
    phi, psi, grid = (array[::256] for array in pywt.Wavelet(name).wavefun(level=12))
    if name != "db1":  # the cascade is first-order accurate, and shifts Haar by one sample
        np.testing.assert_allclose(evaluate(name, grid), phi, atol=3e-3)
        np.testing.assert_allclose(evaluate(name, grid, psi=True), psi, atol=1e-2)


def test_evaluate_refuses_what_is_no_number() -> None:
    with pytest.raises(ValueError, match="x must be finite"):
        evaluate("db4", [0.0, np.inf])


# ---------------------------------------------------------------------------------------------------------------------
# The table


def test_coverage_takes_the_printed_columns() -> None:
    got = chosen(50, 64)
    assert np.bincount(got.level).tolist() == [0, 21, 15, 11, 9, 8]
    first = [(5, -5), (5, -4), (5, -3), (5, -2), (5, -1), (5, 0), (4, -3), (4, -2), (4, -1), (4, 0), (3, 0), (4, -4)]
    assert list(zip(got.level[:12].tolist(), got.shift[:12].tolist(), strict=True)) == first
    everything = chosen(50, 139, pad="zeros")
    assert np.bincount(everything.level).tolist() == [57, 32, 19, 13, 10, 8]
    assert (everything.kind == 2).all()


def test_even_selection_in_full() -> None:
    """db2 at training length 9: shifts -2 .. floor(9 / 2^j); four of a level, coarsest first, rounded half up."""
    got = chosen(9, 20, select="even", per_scale=4, wavelet="db2", pad="zeros")
    expected = [(3, -2), (3, -1), (3, 0), (3, 1), (2, -2), (2, -1), (2, 1), (2, 2), (1, -2), (1, 0), (1, 2), (1, 4)]
    expected += [(0, -2), (0, 2), (0, 5), (0, 9)]
    assert list(zip(got.level[:16].tolist(), got.shift[:16].tolist(), strict=True)) == expected
    assert got.kind.tolist() == [2] * 16 + [0] * 4
    fine = chosen(2, 9, select="even", per_scale=3, wavelet="db2", layout="fine", functions="phi+psi")
    expected = [(1, -2), (1, 0), (1, 2), (1, -2), (1, 0), (1, 2), (0, -2), (0, 1), (0, 4)]
    assert list(zip(fine.level.tolist(), fine.shift.tolist(), strict=True)) == expected
    assert fine.kind.tolist() == [1] * 3 + [2] * 6


@pytest.mark.parametrize("away", [0.5, 0.25, 2.0**-20, -3.75])
def test_positions_one_apart_need_not_be_integers(away: float) -> None:
    """Values are kept for whole numbers; in the same table stand rows between them."""
    positions = np.concatenate([np.arange(40), np.arange(40) + away, np.arange(40)])
    got = table(120, 40, wavelet="db3", normalise="none", positions=positions)
    np.testing.assert_array_equal(got[80:], got[:40])
    expected = fastpe.build("wavelet", 40, train_length=40, wavelet="db3", normalise="none",
                            positions=positions[40:80], reference=True)["table"]  # fmt: skip
    np.testing.assert_allclose(got[40:80], expected, rtol=0, atol=1e-14)


def test_fewer_functions_than_columns() -> None:
    got = chosen(8, 64)
    assert [(got.kind == kind).sum() for kind in (2, 1, 0)] == [43, 8, 13]
    (remark,) = remarks(parse("wavelet"), make_spec(8))
    assert "there are only 43 functions for 64 columns: 8 columns are filled up" in remark
    assert "13 with zeros" in remark
    np.testing.assert_array_equal(table(8, 8)[:, 51:], 0)
    assert remarks(parse("wavelet"), make_spec(50)) == ()


def test_printed_entries_coarse() -> None:
    rows = table(200, normalise="none")
    printed = [0.001246627, -0.076384516, -0.027056262, 0.028424832, -0.001735713, -0.001236529, 0.334155744]
    np.testing.assert_allclose(rows[10, :8], [*printed, -0.053147706], rtol=0, atol=5.1e-10)
    norms = np.linalg.norm(rows, axis=1)[[0, 1, 10, 49, 50, 199]]
    printed = [0.691206221, 0.659351024, 0.988471314, 0.664180048, 0.694403491, 0.006013318]
    np.testing.assert_allclose(norms, printed, rtol=0, atol=5.1e-10)
    every, full = chosen(50, 139), table(51, dim=139, normalise="none")
    entries = [(5, -5, 0), (5, 0, 50), (3, 2, 30), (0, 3, 6), (1, 0, 7)]
    printed = [-0.004194960353, 0.01178928742, 0.04801246934, -0.8872385344, 0.7379727277]
    for (level, shift, position), value in zip(entries, printed, strict=True):
        column = np.flatnonzero((every.level == level) & (every.shift == shift))
        np.testing.assert_allclose(full[position, column], value, rtol=5.1e-10)


def test_printed_entries_fine() -> None:
    rows = table(50, dim=64, layout="fine", select="listed", shifts=range(10), normalise="none")
    np.testing.assert_allclose(rows[1, 2 * 10 + 3], -0.09265983357, rtol=6e-11)
    np.testing.assert_allclose(rows[2, 1 * 10 + 0], -0.5622031895, rtol=6e-11)


def test_all_shifts_give_an_orthogonal_basis() -> None:
    rows = table(50, dim=3249, layout="fine", functions="phi+psi", normalise="none")
    assert (chosen(50, 3249, layout="fine", functions="phi+psi").kind > 0).all()
    np.testing.assert_allclose(rows @ rows.T, 8.06868565387498**2 * np.eye(50), atol=1e-12)


def test_unit_rows_and_where_they_end() -> None:
    rows = table(200)
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, rtol=1e-14)
    difference = np.linalg.norm(rows - rows[50], axis=1)[[51, 52, 53, 60, 100, 199]]
    np.testing.assert_allclose(difference, [0.419, 1.481, 1.628, 1.448, 1.414, 1.411], atol=6e-4)
    short = np.linalg.norm(table(200, wavelet="db2"), axis=1)
    np.testing.assert_allclose(short[:128], 1, rtol=1e-14)
    np.testing.assert_array_equal(short[128:], 0)
    np.testing.assert_allclose(table(9, scale=3.0), 3 * rows[:9], rtol=1e-15)


def test_a_large_scale_times_a_row_of_small_values_does_not_overflow() -> None:
    options = {"wavelet": "db2", "scales": 2, "shifts": (-3, 2, 70), "positions": np.array([-1.6e-99])}
    whole = table(1, 64, dim=4, **options)
    np.testing.assert_allclose(np.linalg.norm(whole), 1, rtol=1e-14)
    np.testing.assert_allclose(table(1, 64, dim=4, scale=-1e300, **options), -1e300 * whole, rtol=1e-15)


def test_real_and_negative_positions_are_evaluated_exactly() -> None:
    positions = np.array([0.1, -0.1, -1e-20, 1e-20, 17.3, -31.999999999])
    for layout, sign in (("coarse", -1), ("fine", 1)):
        got = chosen(16, 60, layout=layout, wavelet="db3", scales=3)
        rows = table(6, 16, dim=60, layout=layout, wavelet="db3", scales=3, normalise="none", positions=positions)
        j = got.level if layout == "coarse" else 3 - got.level
        for i in (0, 1, 4, 5):
            argument = 2.0 ** (sign * j) * positions[i] - got.shift
            expected = 2.0 ** (sign * j / 2) * evaluate("db3", argument, psi=True)
            # the argument rounds; phi of db3 has a bounded derivative
            np.testing.assert_allclose(rows[i], np.where(got.kind == 2, expected, rows[i]), atol=1e-13)
        reference = fastpe.build(
            "wavelet",
            6,
            train_length=16,
            dim=60,
            layout=layout,
            wavelet="db3",
            scales=3,
            normalise="none",
            positions=positions,
            reference=True,
        )
        np.testing.assert_allclose(rows, reference["table"], atol=1e-14)


@pytest.mark.parametrize(("name", "nearest"), [("db2", 1e-120), ("db2", -1e-120), ("db2", -1e-177), ("db2", 5e-324)])
def test_tiny_values_at_the_end_of_the_support_are_exact(name: str, nearest: float) -> None:
    """What is tiny there is as exact as all else, and it is the only entry; -1e-177 from the end it underflows."""
    positions = nearest * np.array([1.0, 0.7])
    shift = 0 if nearest > 0 else -3
    options = {"wavelet": name, "scales": 0, "shifts": (shift,), "functions": "phi+psi", "positions": positions}
    got = table(2, 7, dim=2, normalise="none", **options)
    with mpmath.workdps(400):
        exact = [exact_values(exact_filter(2), Fraction(x) + (x < 0)) for x in positions]
        expected = [[float(function[-1 if nearest < 0 else 0]) for function in each] for each in exact]
    np.testing.assert_allclose(got, expected, rtol=1e-12, atol=1e-300)
    assert np.abs(got).max() < 1e-60
    (reference,) = fastpe.build(
        "wavelet", 2, train_length=7, dim=2, normalise="none", reference=True, **options
    ).values()
    np.testing.assert_allclose(got, reference, rtol=1e-13, atol=1e-300)
