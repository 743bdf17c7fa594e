"""Fills: errors against mpmath wherever rounding is hardest, and in place in arrays of any strides and alignment."""

import tracemalloc
from decimal import Decimal
from fractions import Fraction
from functools import cache

import mpmath
import numpy as np
import pytest
from exact_wavelets import exact_filter, exact_values

import fastpe
from fastpe.benchmarks import fills
from fastpe.doctor import accuracy
from fastpe.encodings import registry
from fastpe.encodings.input import wavelet
from fastpe.encodings.slots import SLOTS, make_spec
from fastpe.kernels.fills.table import LARGE
from fastpe.kernels.simd import aligned_zeros

FAR = 2**24


def decimals(values: list) -> list[Decimal]:
    return [Decimal(mpmath.nstr(value, 45)) for value in values]


def sinusoid(positions: np.ndarray, dim: int) -> list[Decimal]:
    with mpmath.workdps(60):
        omega = [mpmath.mpf(10000) ** (mpmath.mpf(-2 * t) / dim) for t in range(dim // 2)]
        angles = [mpmath.mpf(float(p)) * w for p in positions for w in omega]
        return decimals([f(angle) for angle in angles for f in (mpmath.sin, mpmath.cos)])


def hard_starts() -> list[int]:
    """Starts of runs of 64 positions that pass an integer very near to a zero of the first sine or cosine."""
    convergents = [355, 103993, 104348, 312689, 1146408, 5419351]  # numerators of pi's continued fraction
    return [*(n - 20 for n in convergents), -30, -312689 - 7, FAR - 64]


# ---------------------------------------------------------------------------------------------------------------------
# Errors


@pytest.mark.parametrize("start", hard_starts())
def test_sinusoidal_runs(start: int) -> None:
    right = sinusoid(np.arange(start, start + 64), 8)
    single = fastpe.build("sinusoidal", 64, dim=8, start=start)["table"]
    assert accuracy.ulps(single, right).max() <= 0.51
    double = fastpe.build("sinusoidal", 64, dim=8, start=start, dtype="float64")["table"]
    assert accuracy.ulps(double, right).max() <= 1.0


def test_real_starts_and_batches_of_windows() -> None:
    starts = np.array([0.0, 0.1, 5000.3, 2.0**20 + 0.7, -40.5])
    positions = starts[:, None] + np.arange(80)
    got = fastpe.build("sinusoidal", 80, dim=4, positions=positions)["table"]
    assert accuracy.ulps(got, sinusoid(positions.ravel(), 4)).max() <= 0.51
    for start, rows in zip(starts, got, strict=True):
        alone = fastpe.build("sinusoidal", 80, dim=4, start=float(start))["table"]
        np.testing.assert_array_max_ulp(alone, rows, 1)


def test_dynamic_scaling_of_real_positions_against_mpmath() -> None:
    positions, start, width, base, train = np.arange(64) + 1 / 3, -0.3, 32, 2.0, 64
    request = {"dim": width, "train_length": train, "base": base, "positions": positions, "start": start}
    got = fastpe.build("rope_dynamic", 64, **request)["angles"][0]
    with mpmath.workdps(60):
        places = [mpmath.mpf(float(p)) for p in positions + start]
        larger = base * ((places[-1] + 1) / train) ** (mpmath.mpf(width) / (width - 2))
        for row, p in zip(got, places, strict=True):
            for t, angle in enumerate(row):
                turned = p * larger ** (-mpmath.mpf(2 * t) / width)
                right = turned - 2 * mpmath.pi * mpmath.nint(turned / (2 * mpmath.pi))
                assert abs(mpmath.mpf(float(angle)) - right) <= 1.01 * np.spacing(abs(float(right)))


@pytest.mark.parametrize("kind", ["tanh", "clamp", "linear", "log"])
def test_legendre_to_degree_512(kind: str) -> None:
    length, dim = 41, 513
    degrees = np.array([0, 1, 2, 7, 63, 64, 200, 511, 512])
    with mpmath.workdps(40):
        right = np.empty((length, len(degrees)), dtype=object)
        for p in range(length):
            x = {
                "tanh": mpmath.tanh(mpmath.mpf(p) / 40),
                "clamp": 2 * mpmath.mpf(p) / 40 - 1,
                "linear": 2 * mpmath.mpf(p) / 40 - 1,
                "log": 2 * mpmath.log(1 + p) / mpmath.log(41) - 1,
            }[kind]
            right[p] = [mpmath.legendre(int(degree), x) for degree in degrees]
        for dtype in ("float32", "float64"):
            table = fastpe.build("legendre", length, dim=dim, train_length=40, map=kind, dtype=dtype)["table"]
            error = np.abs(table[:, degrees].astype(object) * mpmath.mpf(1) - right).astype(float)
            # the bound of the encoding's page: x to two units, times P', and the recurrence's own rounding
            bound = np.minimum((degrees * (degrees + 1.0) + 8 * degrees) * 2.0**-52, 2e-13)
            rounding = np.abs(right).astype(float) * 2.0**-24 if dtype == "float32" else 0.0
            assert (error <= bound + rounding).all()


@pytest.mark.parametrize("moments", [2, 3, 4, 5, 8, 12, 20])
def test_wavelets_db2_to_db20(moments: int) -> None:
    length, dim, train = 24, 12, 40
    (part,) = registry.parse("wavelet", {"wavelet": f"db{moments}", "normalise": "none"})
    spec = make_spec(length, dim=dim, train_length=train)
    chosen = wavelet.columns(spec, **part.options)
    right = np.zeros((length, dim))
    with mpmath.workdps(60):
        taps = exact_filter(moments)
        known = cache(lambda fraction: exact_values(taps, fraction))
        for p in range(0, length, 5):
            for c in range(dim):
                scale = 2 ** int(chosen.level[c])
                whole, part_of = divmod(p, scale)
                place = whole - int(chosen.shift[c])
                if 0 <= place < 2 * moments - 1:
                    values = known(Fraction(part_of, scale))[int(chosen.kind[c]) - 1]
                    right[p, c] = float(values[place] / mpmath.sqrt(scale))
    for dtype in ("float32", "float64"):
        options = {"wavelet": f"db{moments}", "normalise": "none", "dtype": dtype}
        table = fastpe.build("wavelet", length, dim=dim, train_length=train, **options)["table"]
        bound = 1e-14 + (np.abs(right) * 2.0**-24 if dtype == "float32" else 0)
        assert (np.abs(table - right)[::5] <= np.broadcast_to(bound, right.shape)[::5]).all()


# ---------------------------------------------------------------------------------------------------------------------
# The oracle of `fastpe doctor --accuracy`, by mpmath


def test_exact_sinusoids_and_legendre_polynomials() -> None:
    positions = np.array([0, 1, -5, 0.3, FAR - 1, -12345678.25])
    got = accuracy.exact("sinusoidal", {"length": 6, "dim": 6, "positions": positions})
    assert max(abs(a - b) for a, b in zip(got, sinusoid(positions, 6), strict=True)) < Decimal("1e-40")
    for kind in ("tanh", "log"):
        got = accuracy.exact("legendre", {"length": 5, "dim": 9, "train_length": 7, "map": kind, "gamma": 2.0})
        with mpmath.workdps(60):
            places = {
                "tanh": [mpmath.tanh(mpmath.mpf(2 * p) / 7) for p in range(5)],
                "log": [2 * mpmath.log(1 + p) / mpmath.log(8) - 1 for p in range(5)],
            }[kind]
            right = decimals([mpmath.legendre(degree, x) for x in places for degree in range(9)])
        assert max(abs(a - b) for a, b in zip(got, right, strict=True)) < Decimal("1e-40")


def test_exact_wavelets() -> None:
    with mpmath.workdps(60):
        for moments in (2, 4, 7):
            taps = decimals([mpmath.sqrt(2) * h for h in exact_filter(moments)])
            found = accuracy._daubechies(f"db{moments}")
            assert max(abs(a - b) for a, b in zip(found, taps, strict=True)) < Decimal("1e-25")
            # their own identities hold to the last digits
            assert abs(sum(found) - 2) < Decimal("1e-26")


@pytest.mark.parametrize("name", fastpe.list_encodings())
def test_every_fill_in_float32_is_within_one_unit(name: str) -> None:
    found = list(accuracy.histograms(name))
    assert bool(found) == any(SLOTS[slot].dtype for slot in registry.get(name).slots)
    for each in found:
        assert each.values >= 50  # those of one row
        if each.dtype == "float32":
            assert each.worst <= 1.0, each
            assert sum(each.counts[:2]) == each.values


# ---------------------------------------------------------------------------------------------------------------------
# In place


LONG, SIZES = 2**16, {"dim": 64, "heads": 2}


def options_of(name: str) -> dict:
    entries = {"entries": 256} if "entries" in registry.get(name).options else {}
    causal = registry.get(name).direction == "causal"
    keywords = {**SIZES, "train_length": LONG, "causal": causal, **entries}
    drawn = fastpe.init(name, **keywords)
    return {**keywords, "params": drawn} if drawn else keywords


@pytest.mark.parametrize("name", fills.names(LONG, SIZES["dim"]))
@pytest.mark.parametrize("kind", ["plain", "rows", "columns", "backwards"])
def test_out_needs_no_temporary_of_its_size(name: str, kind: str) -> None:
    keywords = options_of(name)
    (slot,) = registry.get(name).slots[:1]
    rows, columns = (2, 2 * LONG - 1) if slot == "bias" else (LONG, SIZES["dim"])
    buffer = {
        "plain": lambda: np.empty((rows, columns), np.float32),
        "rows": lambda: np.empty((rows, columns + 3), np.float32)[:, 1:-2],
        "columns": lambda: np.empty((rows, 2 * columns), np.float32)[:, ::2],
        "backwards": lambda: np.empty((rows, columns), np.float32)[::-1, ::-1],
    }[kind]()
    fastpe.build(name, LONG, **keywords, out={slot: buffer})
    tracemalloc.start()
    try:
        fastpe.build(name, LONG, **keywords, out={slot: buffer})
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < max(buffer.size * 4 / 8, 2**17)
    np.testing.assert_array_equal(buffer, fastpe.build(name, LONG, **keywords)[slot])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("dim", [1, 7, 16, 33])
@pytest.mark.parametrize("name", ["sinusoidal", "legendre", "wavelet", "learned"])
def test_no_fill_leaves_its_array(name: str, dim: int, dtype: type) -> None:
    for length in (1, 31, 64, 67):
        keywords = {"dim": dim, "train_length": 70, "dtype": dtype}
        expected = fastpe.build(name, length, **keywords)["table"]
        for shift in (0, 1, 3):
            guarded = np.full(length * dim + 40, 7, dtype)
            out = guarded[20 + shift : 20 + shift + length * dim].reshape(length, dim)
            fastpe.build(name, length, **keywords, out={"table": out})
            np.testing.assert_array_equal(out, expected)
            np.testing.assert_array_equal(guarded[: 20 + shift], 7)
            np.testing.assert_array_equal(guarded[20 + shift + length * dim :], 7)


@pytest.mark.parametrize("shift", [0, 1, 5, 15])
def test_tables_past_the_caches_hold_the_same_values(shift: int) -> None:
    dim = 48
    length = LARGE // (4 * dim) + 100
    guarded = aligned_zeros(length * dim + 64, np.float32)  # by 0 it begins a line of memory, by 15 one before it
    guarded[...] = 7
    out = guarded[32 + shift : 32 + shift + length * dim].reshape(length, dim)
    for name in ("sinusoidal", "legendre"):
        fastpe.build(name, length, dim=dim, out={"table": out})
        np.testing.assert_array_equal(guarded[: 32 + shift], 7)
        np.testing.assert_array_equal(guarded[32 + shift + length * dim :], 7)
        for start in (0, length // 2 // 32 * 32, length - 100):
            part = fastpe.build(name, 100, dim=dim, start=start, train_length=length)["table"]
            np.testing.assert_array_max_ulp(out[start : start + 100], part, 1)


@pytest.mark.parametrize("shift", [0, 16, 3])
@pytest.mark.parametrize("name", ["factorised_st", "sincos_2d_detr"])  # a sum of two rows, and two side by side
@pytest.mark.parametrize("dim", [64, 48])  # a row's pieces are whole lines of memory, or not
def test_grids_past_the_caches_are_those_in_cache(name: str, dim: int, shift: int) -> None:
    slot, length = registry.get(name).slots[0], 4096 * (LARGE // (4 * dim * 4096) + 1)
    params = {name: np.cos(np.arange(value.size, dtype=value.dtype)).reshape(value.shape)
              for name, value in fastpe.init(name, dim=dim, train_length=length).items()}  # fmt: skip
    apart = np.empty((length, dim + 1), np.float32)[:, :-1]  # its rows are not next to each other
    guarded = aligned_zeros(length * dim + 64, np.float32)
    guarded[...] = 7
    out = guarded[16 + shift : 16 + shift + length * dim].reshape(length, dim)
    for table in (apart, out):
        fastpe.build(name, length, dim=dim, params=params or None, out={slot: table})
    np.testing.assert_array_equal(out, apart)
    np.testing.assert_array_equal(guarded[: 16 + shift], 7)
    np.testing.assert_array_equal(guarded[16 + shift + length * dim :], 7)


def test_out_may_be_a_field_of_a_packed_record() -> None:
    records = np.zeros((5, 8), np.dtype([("flag", "u1"), ("value", "f4")]))
    fastpe.build("sinusoidal", 5, dim=8, out={"table": records["value"]})
    np.testing.assert_array_equal(records["value"], fastpe.build("sinusoidal", 5, dim=8)["table"])
    np.testing.assert_array_equal(records["flag"], 0)
