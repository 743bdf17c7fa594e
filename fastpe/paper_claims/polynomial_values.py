"""Values and conditions for claims on Legendre encodings, costs and other topics (Li 2025, sections 5.4, 6.2 to 8)."""

import math

import numpy as np
from numpy.polynomial.legendre import leggauss, legvander

from fastpe.paper_claims import legendre_encoding as legendre
from fastpe.paper_claims.expressiveness import same_outputs
from fastpe.paper_claims.rules import Bounds, Holds, OfOrder, Values, high, low
from fastpe.paper_claims.setting import TRAINED, WIDTH, slots, table
from fastpe.theory.information import position_information
from fastpe.theory.kernel import ranks
from fastpe.theory.orbits import least_error
from fastpe.theory.precision import horizon
from fastpe.theory.tables import norms, separation
from fastpe.theory.value import Value, exact

_MANY = 4096
_COVERED = 0.99
PAPER_ALIBI = 0.0023  # Table 5 at length 50


def _or_infinite(value: Value | None) -> Value:
    return exact(math.inf, "there is no such position") if value is None else value


def growth() -> Values:
    """Return P_63 and x^63 at x = 3, and the quotient of both at a large x (C78)."""
    here, far = legendre.growth(63, 3.0), legendre.growth(63, 1e4)
    return {
        "value": here["value"], "power": here["power"], "coefficient": here["coefficient"], "rate": here["rate"],
        "limit": exact(far["value"].value / far["power"].value, "P_63(x) / x^63 at x = 10^4"),
    }  # fmt: skip


def logarithm() -> Values:
    """Return ln(1 + p) / ln(1 + N) at two positions beyond N (C79)."""
    why = "ln(1 + p) / ln(1 + N)"
    return {f"at_{p}": exact(math.log1p(p) / math.log1p(TRAINED), why, position=p) for p in (200, 10**6)}


def clamped() -> Values:
    """Return entries beyond N, the jump at N and the information beyond N, for the rows of eq. (10) (C83, C84)."""
    rows = table("legendre", map="clamp")
    apart = float(np.abs(rows[TRAINED:] - 1.0).max())
    return {
        "ones": exact(apart, "the largest |entry - 1| from position 50 on"),
        "jump": exact(float(np.linalg.norm(rows[TRAINED] - rows[TRAINED - 1])), "|T[50] - T[49]|"),
        "information": position_information(rows, window=(TRAINED, 100), draws=2).upper,
    }


def rounding() -> Values:
    """Return the first neighbouring rows that are equal after rounding, and the number of different rows (C85).

    Also return the positions from which on rows are all ones, and the least distance of exact rows.
    """
    rows = table("legendre", _MANY)
    found = {f"{name}_{what}": _or_infinite(value) for name in ("float32", "bfloat16")
             for what, value in horizon(rows, name).items()}  # fmt: skip
    saturated = {f"ones_{name}": legendre.saturation(TRAINED, precision=name) for name in ("float64", "float32")}
    return found | saturated | {"apart": _or_infinite(separation(table("legendre"), (100, 200)))}


ROUNDING = {
    "float32_first": "616", "float32_distinct": "640", "bfloat16_first": "340", "bfloat16_distinct": "363",
    "ones_float64": "950", "ones_float32": "451", "apart": "0.120940",
}  # fmt: skip


def converging() -> Values:
    """Return the positions from which on rows are near the all-ones vector (C86)."""
    rows = table("legendre", _MANY)
    limits = {"within_4": 4.0, "within_0_8": 0.8, "close": 1e-3}
    return {name: _or_infinite(legendre.near_ones(rows, limit)) for name, limit in limits.items()}


CONVERGING = {"within_4": "199", "within_0_8": "245", "close": "413"}


def products() -> Values:
    """Return the largest cosine of two of P_0 .. P_63 on [-1, 1] (C108). Gauss's rule is exact for the integrals."""
    points, mass = leggauss(WIDTH)
    values = np.sqrt(mass)[:, None] * legvander(points, WIDTH - 1)
    values /= np.linalg.norm(values, axis=0)
    off = np.abs(values.T @ values - np.eye(WIDTH)).max()
    return {"off": exact(float(off), "the largest cosine of two polynomials on [-1, 1]", degrees=WIDTH)}


def entries() -> Values:
    """Return the largest absolute entry, and the distance of the last row from all ones, the limit of rows (C109)."""
    rows = table("legendre", _MANY)
    return {
        "largest": exact(float(np.abs(rows).max()), "the largest |entry| of 4096 rows"),
        "end": exact(float(np.abs(rows[-1] - 1.0).max()), "the largest distance of an entry of the last row from 1"),
    }


def bends() -> Values:
    """Return how far the map x is from linear, with gamma = 1 and with tanh gamma = 0.99 (C110)."""
    return {"one": legendre.bend(1.0), "most": legendre.bend(math.atanh(_COVERED))}


def covered() -> Values:
    """Return the end of the range of x for two choices of gamma (C111)."""
    gamma = math.atanh(_COVERED)
    return {
        "own": exact(math.tanh(1.0), "tanh gamma, gamma = 1 of section 7"),
        "chosen": exact(math.tanh(gamma), "tanh gamma", gamma=gamma), "gamma": exact(gamma, "artanh 0.99"),
    }  # fmt: skip


def inside() -> Values:
    """Return the least distance and the rank of the rows inside the training length (C113)."""
    found = ranks(table("legendre"), (0, TRAINED))
    return {
        "apart": _or_infinite(separation(table("legendre"), (0, TRAINED))),
        "rank": _or_infinite(found["float64"]), "rank_float32": _or_infinite(found["float32"]),
    }  # fmt: skip


def row_norms() -> Values:
    """Return the largest norm of a row, and the norms of some rows (C114)."""
    sizes = np.linalg.norm(table("legendre"), axis=1)
    at = {f"at_{p}": exact(float(sizes[p]), f"|T[{p}]|") for p in (0, 49, 100, 199)}
    return {"most": norms(table("legendre"))["most"], **at}


ROW_NORMS = {"most": "5.520529", "at_0": "1.472065", "at_49": "1.760348", "at_100": "2.571009", "at_199": "5.520529"}


def degrees() -> Values:
    """Return the change of each degree in one step beyond N (C117)."""
    last = legendre.degree_step(63, TRAINED)
    return {"paper_63": _or_infinite(last["paper"]), "actual_63": _or_infinite(last["actual"])} | {
        f"ratio_{degree}": _or_infinite(legendre.degree_step(degree, TRAINED)["ratio"]) for degree in (1, 3, 5)
    }


def steps() -> Values:
    """Return the distances of row N from the rows N + 1 and N + 50, and bounds on these distances (C118)."""
    found = legendre.step_bounds(WIDTH, TRAINED, 1)
    far = legendre.step_bounds(WIDTH, TRAINED, 50)
    narrow = legendre.step_bounds(8, TRAINED, 1)
    return found | {
        "actual_50": far["actual"], "paper_50": far["paper"], "narrow": narrow["actual"],
        "narrow_paper": narrow["paper"],
    }  # fmt: skip


STEPS = {
    "actual": "0.404521822", "sharp": "61.531758", "paper": "79.313587", "trivial": "16.00000",
    "actual_50": "2.592130244",
    "paper_50": "3965.679368", "narrow": "0.054134591", "narrow_paper": "0.432531226",
}  # fmt: skip


def costs() -> Values:
    """Count the numbers that each encoding needs for a position or a pair of positions, at widths 64 and 128 (C120)."""
    found: dict[str, Value] = {}
    for dim in (WIDTH, 2 * WIDTH):
        pair = {
            "alibi": slots("alibi", TRAINED, dim=dim)["bias"].size / (2 * TRAINED - 1),
            "shaw": slots("shaw", dim=dim)["rel_key"].shape[-1],
        }
        rows = slots("wavelet", dim=dim)["table"]
        each = {
            **{name: slots(name, dim=dim)["table"].shape[1] for name in ("sinusoidal", "learned", "legendre")},
            "wavelet": np.count_nonzero(rows, axis=1).max(),
            "naive": dim * (dim - 1) // 2,
        }
        numbers = {name: exact(float(count), "numbers per pair") for name, count in pair.items()}
        numbers |= {name: exact(float(count), "numbers per position") for name, count in each.items()}
        found |= {f"{name}_{dim}": value for name, value in numbers.items()}
    return found


COSTS = {
    "alibi_64": "1", "shaw_64": "64", "wavelet_64": "1 .. 64", "sinusoidal_64": "64", "learned_64": "64",
    "legendre_64": "64", "naive_64": "2016", "alibi_128": "1", "shaw_128": "128", "wavelet_128": "1 .. 128",
    "sinusoidal_128": "128", "learned_128": "128", "legendre_128": "128", "naive_128": "8128",
}  # fmt: skip


def of_order(name: str, power: float) -> OfOrder:
    """Return the rule that is TRUE if the cost of an encoding grows no faster than this power of the width."""
    return OfOrder(f"{name}_64", f"{name}_128", power)


def rest() -> Values:
    """Return values for the statements of sections 7 and 8 that are not in the tables (C121)."""
    places = np.tanh(np.arange(101.0, 200.0) / TRAINED)
    degrees, rows = np.arange(1.0, WIDTH - 1.0), table("legendre")[:TRAINED]
    x = np.tanh(np.arange(float(TRAINED)) / TRAINED)[:, None]
    bonnet = ((2 * degrees + 1) * x * rows[:, 1:-1] - degrees * rows[:, :-2]) / (degrees + 1) - rows[:, 2:]
    sinusoidal = (_or_infinite(separation(table("sinusoidal"), window)) for window in ((0, TRAINED), (100, 200)))
    wavelet = (_or_infinite(separation(table("wavelet"), window)) for window in ((0, TRAINED), (100, 200)))
    return {
        "x": exact(float(np.median(places)), "median of x(pos) for 100 < pos < 200"),
        "legendre": _or_infinite(separation(table("legendre"), (100, 200))),
        **dict(zip(("sinusoidal", "sinusoidal_far"), sinusoidal, strict=True)),
        **dict(zip(("wavelet", "wavelet_far"), wavelet, strict=True)),
        "error": same_outputs()["error"],
        "spread": same_outputs()["spread"],
        "bonnet": exact(float(np.abs(bonnet).max()), "the largest residual of the recurrence"),
        "least": least_error("running_sum", "rev", TRAINED),
    }


REST = {
    "x": "0.9950548", "legendre": "0.120940", "sinusoidal": "1.471848048", "sinusoidal_far": "1.471848048",
    "wavelet": "0.425790", "wavelet_far": "2.073457e-5", "error": "208.25", "spread": "0 .. 0", "bonnet": "0 .. 1e-13",
    "least": "12.25000",
}  # fmt: skip

CONSTANT = Holds(lambda ones: ones.value == 0.0)
BELOW_ROOT = Holds(lambda most: high(most) <= WIDTH**0.5)
STEP = Bounds(lambda actual, paper: actual.value <= paper.value, lambda paper, trivial: paper.value < trivial.value)
TELLS_APART = Holds(lambda apart: low(apart) > 0.0)
