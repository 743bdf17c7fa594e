"""Values and conditions for the claims on wavelets (Li 2025, sections 5.4 and 6.1)."""

import math
from functools import cache

import numpy as np

from fastpe.encodings.parts.daubechies import evaluate
from fastpe.paper_claims import wavelet_encoding as waves
from fastpe.paper_claims.nominal import token_norms
from fastpe.paper_claims.rules import Holds, HoldsIf, Values, high, low
from fastpe.paper_claims.setting import TRAINED, WIDTH, known, slots, table
from fastpe.paper_claims.wavelet_functions import edge_product, support_length, supremum
from fastpe.theory.kernel import ranks
from fastpe.theory.tables import coherence, norms, separation
from fastpe.theory.value import Value, certified, exact

_SCALES, _PER_SCALE, _BETA = TRAINED.bit_length() - 1, 10, 0.5
_BETAS = (0.1, 0.5, 1.0, 2.0)
_LEVEL = 14
_FAR = 400


def columns() -> Values:
    """Return the numbers of columns that the paper's three definitions give at J = 5 and ten shifts per scale (C80)."""
    scales = _SCALES + 1
    return {
        "section_5": exact(
            float(scales * (_PER_SCALE + 1)), "number of columns for k = 0 .. K_j at every scale, without phi"
        ),
        "section_6": exact(
            float(scales * _PER_SCALE + _PER_SCALE), "number of columns for k = 0 .. K_j - 1, and K_0 columns of phi"
        ),
        "sum": exact(float(scales * _PER_SCALE), "the sum of K_j for j = 0 .. J"),
    }


@cache
def _envelope(beta: float) -> Value:
    return supremum("db4", beta=beta, level=_LEVEL)


def _needed(scale: int) -> Value:
    """Return the least C for which C81 holds at scale j: 2^(j/2) |psi(u)| <= C 2^(-j/2) e^(-beta u)."""
    found, times = _envelope(_BETA), 2.0**scale
    return certified("2^j sup |psi(u)| e^(beta u)", low=times * low(found), high=times * high(found), scale=scale)


def envelopes() -> Values:
    """Return the least C of C81 at scales 0 and 5, and the least C of envelopes C e^(-beta u) of psi (C81, C105)."""
    found = {"scale_0": _needed(0), "scale_5": _needed(_SCALES)}
    return found | {f"beta_{beta:g}".replace(".", "_"): _envelope(beta) for beta in _BETAS}


ENVELOPES = {
    "scale_0": "8.2402 .. 8.2422", "scale_5": "263.68 .. 263.75", "beta_0_1": "1.9483 .. 1.9485",
    "beta_0_5": "8.2402 .. 8.2422", "beta_1": "50.576 .. 50.601", "beta_2": "3283.9 .. 3287.1",
}  # fmt: skip


def after_the_end() -> Values:
    """Return the distances of rows of norm 1 from the row at N (C82, C107)."""
    rows = table("wavelet", _FAR)
    differences = waves.end_differences(rows, TRAINED)
    found = {f"at_{p}": exact(float(differences[p - TRAINED]), f"|T[{p}] - T[50]|") for p in (51, 53, 60, 100, 199)}
    largest = waves.end_difference(rows, TRAINED)
    return {"norm": largest["norm"], "sup": largest["sup"], **found}


AFTER = {
    "norm": "1.000000", "sup": "1.627943", "at_51": "0.419135", "at_53": "1.627943", "at_60": "1.448327",
    "at_100": "1.414068", "at_199": "1.410937",
}  # fmt: skip


def daubechies() -> Values:
    """Return the number of taps of the two wavelets that are called Daubechies-4 (C87)."""
    return {
        "db4": exact(support_length("db4").value + 1.0, "number of taps for four vanishing moments (db4)"),
        "db2": exact(support_length("db2").value + 1.0, "number of taps of D4, which is named after it (db2)"),
    }


def literally() -> Values:
    """Return support lengths, nonzero rows and ranks of the encoding as printed (C88)."""
    found, both = waves.literal_reading(TRAINED), waves.literal_reading(TRAINED, "phi+psi")
    length = support_length("db4").value
    return {
        "width_0": exact(length, "length of the support of psi(2^j x - k) at j = 0"),
        "width_5": exact(length / 2.0**_SCALES, "the same length at j = J = 5"),
        "first": found["first"], "last": found["last"], "rank": found["rank"], "rank_phi": both["rank"],
    }  # fmt: skip


def jumps() -> Values:
    """Return the jump of phi at 0. The product <delta, phi> would need a value of phi at this point (C89)."""
    step = np.array([-(2.0**-40), 2.0**-40])
    found = {name: np.diff(evaluate(name, step))[0] for name in ("haar", "db4")}
    return {name: exact(float(abs(jump)), "|phi(2^-40) - phi(-2^-40)|", wavelet=name) for name, jump in found.items()}


def scales() -> Values:
    """Return J, and the range 2^J that the coarsest scale covers (C90)."""
    return {
        "scales": exact(float(len(waves.scale_counts(TRAINED)) - 1), "J, for scales 0 .. J"),
        "reach": exact(2.0 ** (len(waves.scale_counts(TRAINED)) - 1), "2^J"),
    }


def dimension() -> Values:
    """Return the number of functions, and the different width that section 7 states (C91)."""
    return {
        "sum": exact(float((_SCALES + 1) * _PER_SCALE), "6 scales of 10 functions"),
        "width": exact(float(WIDTH), "d"),
    }


def beyond() -> Values:
    """Return the position from which on rows are zero, and distances between neighbouring rows near N (C92, C101)."""
    step = waves.steps(table("wavelet", _FAR))
    ends = {name: known(waves.zero_from(TRAINED, wavelet=name)) for name in ("db4", "db2", "haar")}
    return ends | {f"step_{p}": exact(float(step[p]), f"|T[{p + 1}] - T[{p}]|") for p in (49, 50, 51)}


BEYOND = {"db4": "256", "db2": "128", "haar": "64", "step_49": "1.217954", "step_50": "0.419135", "step_51": "1.226980"}


def cut() -> Values:
    """Return the integrals of products of two wavelets that an end of [0, N] cuts (C93)."""
    return {"cross": edge_product(3, 4), "norm_3": edge_product(3, 3), "norm_4": edge_product(4, 4)}


def rows() -> Values:
    """Return how similar rows are, with 64 columns and with the whole basis (C94)."""
    whole = waves.fine_basis(TRAINED)
    return {
        "coherence": known(coherence(table("wavelet"), (0, TRAINED))), "off": whole["off_diagonal"],
        "least": whole["least"], "most": whole["most"], "columns": whole["columns"],
    }  # fmt: skip


def distinct() -> Values:
    """Return the least distance and the rank of the rows inside the training length (C95)."""
    return {
        "apart": known(separation(table("wavelet"), (0, TRAINED))),
        "rank": known(ranks(table("wavelet"), (0, TRAINED))["float64"]),
    }


def suprema() -> Values:
    """Return the largest values of phi and psi (C96, C97)."""
    return {
        "phi": supremum("db4", psi=False, level=_LEVEL), "psi": supremum("db4", level=_LEVEL),
        "support": support_length("db4"),
    }  # fmt: skip


SUPREMA = {"phi": "1.121796 .. 1.121802", "psi": "1.359177 .. 1.359219", "support": "7"}


def fine_norms() -> Values:
    """Return norms of rows of the whole basis, the paper's bounds, and norms for the coarse layout (C98, C100)."""
    bounds, raw = waves.norm_bounds(TRAINED), norms(table("wavelet", normalise="none"), (0, TRAINED))
    return {
        "actual": waves.fine_basis(TRAINED)["most"], "paper": bounds["paper"], "order": bounds["order"],
        "raw_least": raw["least"], "raw_most": raw["most"],
    }  # fmt: skip


NORMS = {
    "actual": "8.068685654", "paper": "356.2789", "order": "98.89417", "raw_least": "0.6567672",
    "raw_most": "0.9977586",
}  # fmt: skip


def sums() -> Values:
    """Return the sum of 4^j over j = 1 .. J, and `N * J`, for N = 50 and N = 500 (C99)."""
    found: dict[str, Value] = {}
    for n in (50, 500):
        bounds = waves.norm_bounds(n)
        found |= {f"sum_{n}": bounds["sum"], f"claimed_{n}": bounds["claimed"]}
    return found


def in_proportion(sum_50: Value, sum_500: Value, claimed_50: Value, claimed_500: Value) -> bool:
    """Return whether the sum grows no faster than `N * J` from N = 50 to N = 500 (C99)."""
    return sum_500.value * claimed_50.value <= sum_50.value * claimed_500.value


def unit() -> Values:
    """Return the norms of the rows of a table with `normalise="unit"` and the position of the first zero row (C101)."""
    sizes = norms(table("wavelet", _FAR))
    return {"least": sizes["least"], "most": sizes["most"], "zero_from": known(waves.zero_from(TRAINED))}


def nominal() -> Values:
    """Return bounds of token norms, for B_x = 1 (C102)."""
    return {
        "wavelet": token_norms("wavelet", slots("wavelet"))["exact"],
        "sinusoidal": token_norms("sinusoidal", slots("sinusoidal"))["exact"],
    }


def outside() -> Values:
    """Return the largest entry beyond all supports (C103, C104)."""
    rows = table("wavelet", _FAR, normalise="none")
    end = int(known(waves.zero_from(TRAINED)).value)
    return {"outside": exact(float(np.abs(rows[end:]).max()), "the largest entry from position 256 on", first=end)}


def tail() -> Values:
    """Return the bound of C105 beyond N, with a C that depends on J, and the trivial bound."""
    found = envelopes()
    bound = high(found["scale_5"]) * math.exp(-_BETA)
    return {
        "scale_0": found["scale_0"], "scale_5": found["scale_5"],
        "bound": certified("C 2^(-j/2) e^(-beta (p - N) 2^j) at p = 51 and j = 0", high=bound),
        "trivial": supremum("db4", level=_LEVEL),
    }  # fmt: skip


def decay() -> Values:
    """Return |T[p] - T[N]| at p = 199 and p = 256, and the sum that should bound it at p = 256 according to C106."""
    far, near = 256, 199
    differences = waves.end_differences(table("wavelet", _FAR), TRAINED)
    terms = [2.0 ** (-j / 2) * math.exp(-_BETA * 2.0**j * (far - TRAINED)) for j in range(_SCALES + 1)]
    return {
        "left": exact(float(differences[far - TRAINED]), "|T[256] - T[50]| for unit rows"),
        "right": certified("the sum with the C of C105", high=high(_needed(_SCALES)) * math.fsum(terms)),
        "left_199": exact(float(differences[near - TRAINED]), "|T[199] - T[50]|"),
    }


STAYS_CLOSE = Holds(lambda at_53, norm: high(at_53) < low(norm))
DECAYS = Holds(lambda at_53, at_51: high(at_53) < low(at_51))
DISTINCT = Holds(lambda apart: low(apart) > 0.0)
UNIT_NORM = Holds(lambda least: abs(least.value - 1.0) < 1e-9)
WITHIN_SUM = Holds(lambda left, right: left.value <= high(right))
ONE_CONSTANT = HoldsIf(
    lambda scale_5, scale_0: high(scale_5) <= low(scale_0), lambda scale_5: high(scale_5) < math.inf,
    "C may depend on J: C = 2^J sup |psi(u)| e^(beta u)",
)  # fmt: skip
