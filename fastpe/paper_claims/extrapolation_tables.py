"""Table 3 of Li (2025): the 18 cells on extrapolation."""

from fastpe.paper_claims import claim, extrapolation
from fastpe.paper_claims import wavelet_encoding as waves
from fastpe.paper_claims.cell import Cell, On, Own, row
from fastpe.paper_claims.expressiveness import learned_rows
from fastpe.paper_claims.expressiveness_tables import NO_VALUES, untrained_offsets
from fastpe.paper_claims.rules import Holds, HoldsIf, Needs, Readings, Values, high, low
from fastpe.paper_claims.setting import MANY_LAGS, SLOPE, TRAINED, WIDTH, known, table
from fastpe.theory import lags
from fastpe.theory.tables import norms, separation
from fastpe.theory.value import Value, exact

COLUMNS = ("|PE(pos) - PE(N)|, pos > N", "effective range", "notes")
_WINDOWS = ((0, TRAINED), (TRAINED, 100), (100, 200))


def separations(name: str) -> Values:
    """Return the least distance of two rows in the windows [0, 50), [50, 100) and [100, 200)."""
    found = zip(("inside", "twice", "fourfold"), _WINDOWS, strict=True)
    return {word: known(separation(table(name), window)) for word, window in found}


def _farthest() -> Values:
    twice = 2.0 * norms(table("sinusoidal"))["most"].value
    return {
        "farthest": lags.scan_lags(WIDTH, MANY_LAGS)["farthest"],
        "bound": exact(twice, "2 sqrt(d/2), the largest possible distance of two rows"),
    }  # fmt: skip


def _clipped() -> Values:
    return {**learned_rows(), "apart": extrapolation.clipped()["apart"]}


def _growth() -> Values:
    found = extrapolation.saturation()
    return {
        "bias": exact(SLOPE * (200 - TRAINED), "alpha (N' - N)"),
        "half": exact(SLOPE * (125 - TRAINED), "alpha (N' - N) for half the distance"),
        "near": found["near"], "far": found["far"],
    }  # fmt: skip


def _wavelet_ends() -> Values:
    """Return the largest difference of a row from row N, times 2^(J/2), for raw rows and for unit rows."""
    found: dict[str, Value] = {}
    for n in (50, 800, 200):
        for word, normalise in (("raw", "none"), ("unit", "unit")):
            rows = table("wavelet", 8 * n, n, normalise=normalise)
            found[f"{word}_{n}"] = waves.end_difference(rows, n)["scaled"]
    return found


KEPT = Holds(lambda fourfold, inside: low(fourfold) >= 0.1 * inside.value)
FLAT = 1.2  # factor by which the constant in O(2^(-J/2)) may grow from N = 50 to N = 800

CELLS: tuple[Cell, ...] = (
    *row(3, 1, "Sinusoidal", COLUMNS, (
        ("Unbounded periodic cycles", Own(
            Holds(lambda farthest, bound: low(farthest) > bound.value),
            "No two rows are farther apart than {bound:.8g}; up to lag 1e6 the largest distance is {farthest:.7g}. No "
            "row repeats (C19)",
            _farthest, {"farthest": "9.824901", "bound": "11.313708"},
        )),
        ("Poor beyond min{10000, d}", Own(
            Needs(("poor", "why a position is compared with a width")),
            "The least distance of two rows is the same in every window: {inside:.7g} in [0, 50), {twice:.7g} in [50, "
            "100) and {fourfold:.7g} in [100, 200)",
            lambda: separations("sinusoidal"),
            {"inside": "1.471848048", "twice": "1.471848048", "fourfold": "1.471848048"},
            ("inside", "twice", "fourfold"),
        )),
        ("Positional ambiguity after cycle", On(claim("C63"))),
    )),
    *row(3, 2, "Learned", COLUMNS, (
        ("Undefined / Constant (clipped)", Own(
            Holds(lambda error, clip, apart: error.value == 0.0 and clip.value > 0.0 and high(apart) == 0.0),
            "Beyond N there are {error:.0f} rows with beyond='error' and {clip:.0f} with beyond='clip', which are "
            "{apart:.2g} apart",
            _clipped, {"error": "0", "clip": "150", "apart": "0 .. 0"},
        )),
        ("None", NO_VALUES),
        ("Collapses beyond N", On(claim("C64"), ("clipping preserves no distinctions",))),
    )),
    *row(3, 3, "Relative", COLUMNS, (
        ("Clipped at K", Own(Holds(lambda vectors: vectors.value == 33.0), "K = 16 has {vectors:.0f} vectors",
                             untrained_offsets, {"vectors": "33", "untrained": "0"}, ("untrained",))),
        ("None if pos - N > K", Own(
            Holds(lambda untrained: untrained.value > 0.0),
            "The distance |i - j| matters, not pos - N: tokens N + 100 and N + 101 have distance 1. {untrained:.0f} "
            "of the {vectors:.0f} vectors are untrained",
            untrained_offsets, {"vectors": "33", "untrained": "0"}, ("vectors",),
        )),
        ("Distance clipping destroys distinction", On(claim("C65"))),
    )),
    *row(3, 4, "ALiBi", COLUMNS, (
        ("Linear growth; Lipschitz-boundable", Own(
            Readings({
                "of the bias": Holds(lambda bias, half: abs(bias.value - 2.0 * half.value) < 1e-12),
                "of the weight": extrapolation.LINEAR_ERROR,
            }),
            "The bias changes by alpha (N' - N) = {bias:.6g} at 200 and by {half:.6g} at half this distance beyond N. "
            "A weight changes by {near:.6g} over 1000 positions and by {far:.6g} over 10000 (C73)",
            _growth, {"bias": "0.3000000", "half": "0.1500000", "near": "1.5632e-3", "far": "1.80787e-3"},
        )),
        ("Good for N' <= c N", Own(Needs(("c", "good")), "The paper gives no value of c")),
        ("Bias ensures monotonic decrease", On(claim("C6"))),
    )),
    *row(3, 5, "Wavelet", COLUMNS, (
        ("Bounded difference: O(2^(-jmax/2))", Own(
            HoldsIf(
                lambda unit_800, unit_50: unit_800.value <= FLAT * unit_50.value,
                lambda raw_800, raw_50: raw_800.value <= FLAT * raw_50.value, "rows are not divided by their norm",
            ),
            "For raw rows the largest difference times 2^(J/2) is {raw_50:.4g} (N = 50), {raw_200:.4g} (N = 200) and "
            "{raw_800:.4g} (N = 800), but only because all raw rows shrink (P14). For unit rows it is {unit_50:.4g}, "
            "{unit_200:.4g} and {unit_800:.4g}",
            _wavelet_ends,
            {
                "raw_50": "6.234155", "raw_200": "6.856189", "raw_800": "6.877126", "unit_50": "9.209035",
                "unit_200": "18.68623", "unit_800": "37.37636",
            },
            ("raw_200", "unit_200"),
        )),
        ("Moderate", Own(Needs(("moderate",)), "The paper names no range")),
        ("Fine scales vanish; coarse distinction preserved", Own(
            KEPT,
            "The least distance of two rows is {inside:.6g} in [0, 50), {twice:.6g} in [50, 100) and {fourfold:.5g} "
            "in [100, 200)",
            lambda: separations("wavelet"),
            {"inside": "0.425790", "twice": "0.0499575", "fourfold": "2.073457e-5"}, ("twice",),
            "at four times the length at least a tenth of the least distance is left",
        )),
    )),
    *row(3, 6, "Legendre", COLUMNS, (
        ("Collapsed to constant if tanh saturates", On(claim("C86"))),
        ("Limited", Own(Needs(("limited",)), "The paper names no range")),
        ("Distinguishes moderately beyond N", Own(
            KEPT,
            "The least distance of two rows is {inside:.6g} in [0, 50), {twice:.6g} in [50, 100) and {fourfold:.6g} "
            "in [100, 200). It decreases less than for wavelets",
            lambda: separations("legendre"),
            {"inside": "0.410356", "twice": "0.263341", "fourfold": "0.120940"}, ("twice",),
            "at four times the length at least a tenth of the least distance is left",
        )),
    )),
)  # fmt: skip
