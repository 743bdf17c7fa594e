"""Table 1 of Li (2025): the 30 cells on expressiveness."""

import math

import numpy as np

from fastpe.paper_claims import background, claim, expressiveness, polynomial_values
from fastpe.paper_claims.cell import Cell, On, Own, row
from fastpe.paper_claims.rules import Holds, HoldsIf, Needs, Readings, Sentences, Values, high, low
from fastpe.paper_claims.setting import SLOPE, TRAINED, falling, known, slots, table
from fastpe.theory.kernel import toeplitz_share
from fastpe.theory.softmax import weights
from fastpe.theory.symmetry import symmetry
from fastpe.theory.tables import collision_radius, norms, separation
from fastpe.theory.value import Value, exact

COLUMNS = ("absolute information", "relative information", "universal (fixed N)", "universal (any N)", "extrapolation")
_ZERO = 256  # all wavelet rows from this position on are zero
_LATER = (_ZERO, 300)


def _turned() -> Values:
    share = known(toeplitz_share(table("sinusoidal"), (0, TRAINED)))
    return {"share": share, "residual": background.shifts()["residual"]}


def _bounded() -> Values:
    return {"most": norms(table("sinusoidal"))["most"]}


def _learned() -> Values:
    return {"apart": known(separation(slots("learned")["table"]))}


def _implicit() -> Values:
    return {"share": known(toeplitz_share(slots("learned")["table"]))}


def _of_shaw() -> Values:
    keys = symmetry("shaw", use_values=False).const.spread
    return {"spread": expressiveness.spread("shaw"), "keys": keys}


def _equal_tokens() -> Values:
    keys = symmetry("shaw", use_values=False).const.spread
    return {"keys": keys, "error": expressiveness.same_outputs()["error"]}


def untrained_offsets() -> Values:
    """Count Shaw's offset vectors for K = 16, and those of them that 50 positions never use (Tables 1 and 3)."""
    vectors = slots("shaw", 200)["rel_key"].shape[-2]
    reach = vectors // 2
    return {
        "vectors": exact(float(vectors), "number of vectors of offsets for K = 16"),
        "untrained": exact(float(2 * max(0, reach - (TRAINED - 1))), "number of these vectors for offsets beyond 49"),
    }


def _start_token() -> Values:
    """Return the weight on the first token at positions 1, 10 and 50 in causal attention with equal contents."""
    found = {"spread": expressiveness.spread("alibi", True)}
    for name, slope in (("steep", 0.5), ("own", SLOPE)):
        for i in (1, 50, 10):
            share = float(weights(falling(i + 1, slope))[-1])
            found[f"{name}_{i}"] = exact(share, f"weight on the first token at place {i}", slope=slope)
    return found


def _falls() -> Values:
    row_of = falling(TRAINED)
    return {"step": exact(float(-np.diff(row_of).max()), "the least fall of the bias from one distance to the next")}


def _kernel(name: str, **options: str) -> Value:
    return known(toeplitz_share(table(name, **options), (0, TRAINED)))


def _collision(name: str) -> Values:
    rows, radius = table(name), known(collision_radius(table(name), (0, TRAINED)))
    i, j = known(separation(table(name), (0, TRAINED))).inputs["pair"]
    move = (rows[j] - rows[i]) / 2.0
    apart = float(np.linalg.norm((rows[i] + move) - (rows[j] - move)))
    return {"radius": radius, "apart": exact(apart, "|z_i - z_j| for x_i = (T[j] - T[i]) / 2 = -x_j", pair=[i, j])}


def _wavelet_rows() -> Values:
    rows = table("wavelet", 400)
    return {
        "inside": known(separation(rows, (0, TRAINED))), "later": known(separation(rows, _LATER)),
    }  # fmt: skip


def _legendre_rows() -> Values:
    return {
        "inside": known(separation(table("legendre"), (0, TRAINED))),
        "first": polynomial_values.rounding()["float32_first"],
    }


APART_INSIDE = Holds(lambda inside: low(inside) > 0.0)
TOEPLITZ = Holds(lambda share: share.value < 1e-6)
NO_ROWS = Holds(lambda error: error.value == 0.0)
ROWS_OR_NOT = Readings({"beyond='error'": NO_ROWS, "beyond='clip'": Holds(lambda clip: clip.value == 0.0)})
NO_VALUES = Own(
    ROWS_OR_NOT,
    "Beyond the training length there are {error:.0f} rows with beyond='error' and {clip:.0f} with beyond='clip'",
    expressiveness.learned_rows, {"error": "0", "clip": "150"},
)  # fmt: skip
_CONDITIONAL = Own(
    Needs(("the condition",)),
    "With vectors on keys alone the statement is false: identical tokens have identical outputs (spread {keys:.2g}), "
    "which costs {error:.6g} for the target y_i = i. With vectors on values it is not decided here",
    _equal_tokens, {"keys": "0 .. 0", "error": "208.25"}, ("keys", "error"),
)  # fmt: skip

CELLS: tuple[Cell, ...] = (
    *row(1, 1, "Sinusoidal", COLUMNS, (
        ("Yes", On(claim("C13"), (), ("nearest",))),
        ("Yes", Own(
            Holds(lambda share, residual: share.value < 1e-12 and residual.value < 1e-12),
            "The product of two rows depends only on their distance (the share of the kernel that depends on more is "
            "{share:.2g}), and one rotation maps every row to the row k positions later (residual {residual:.2g})",
            _turned, {"share": "0 .. 1e-14", "residual": "0 .. 1e-14"},
        )),
        ("Yes", On(claim("C15"))),
        ("No", Own(
            Holds(lambda most: high(most) < math.inf),
            "All rows lie in a ball of radius {most:.7g}. So with enough rows the smallest distance is arbitrarily "
            "small, and so is the radius below which no tokens collide (P4)",
            _bounded, {"most": "5.656854249"}, (),
            "one network for all lengths, with embeddings in a ball of any radius",
        )),
        ("Limited (cyclic)", On(claim("C19"))),
    )),
    *row(1, 2, "Learned", COLUMNS, (
        ("Yes", Own(Holds(lambda apart: low(apart) > 0.0),
            "In the initial table the smallest distance between two rows is {apart:.6g}",
                    _learned, {"apart": "0.159460"})),
        ("Implicit", Own(Needs(("implicit",)),
            "In the initial table a share of {share:.6g} of the products of rows depends on more than the distance",
                         _implicit, {"share": "0.652324"}, ("share",))),
        ("Yes", On(claim("C20"))),
        ("No", Own(NO_ROWS, "The table ends at 50: there are {error:.0f} rows beyond", lambda: {
            "error": expressiveness.learned_rows()["error"]}, {"error": "0"})),
        ("No", NO_VALUES),
    )),
    *row(1, 3, "Relative (Shaw et al.)", COLUMNS, (
        ("No", Own(
            HoldsIf(lambda spread: high(spread) == 0.0, lambda keys: high(keys) == 0.0, "there are no vectors on "
            "values"),
            "The outputs of identical tokens differ by {spread:.4g} times the largest output, because windows of "
            "offsets on values end at the edges of the sequence. With vectors on keys alone they differ by {keys:.2g}",
            _of_shaw, {"spread": "0.1516231", "keys": "0 .. 0"},
        )),
        ("Yes", Own(
            HoldsIf(
                lambda vectors: vectors.value >= 2 * TRAINED - 1, lambda vectors: vectors.value > 1.0, "|i - j| <= K"
            ),
            "The 99 offsets have {vectors:.0f} vectors",
            untrained_offsets, {"vectors": "33", "untrained": "0"}, ("untrained",),
        )),
        ("Conditional", _CONDITIONAL),
        ("Conditional", _CONDITIONAL),
        ("No", Own(
            Readings({
                "vectors appear that training never used": Holds(lambda untrained: untrained.value > 0.0),
                "one layer confuses distances": Holds(lambda vectors: vectors.value < 399.0),
            }),
            "{untrained:.0f} of the {vectors:.0f} vectors are untrained. 200 positions have 399 offsets",
            untrained_offsets, {"vectors": "33", "untrained": "0"},
        )),
    )),
    *row(1, 4, "ALiBi", COLUMNS, (
        ("No", Own(
            HoldsIf(
                lambda steep_1, steep_50: steep_1.value <= steep_50.value, lambda spread: high(spread) == 0.0,
                "no token marks the start",
            ),
            "With a causal mask identical tokens have identical outputs (spread {spread:.2g}). But a token that marks "
            "the start gets the weight {steep_1:.9g} at position 1, {steep_10:.9g} at 10 and {steep_50:.6g} at 50 "
            "with slope 1/2. With slope 0.002 it gets {own_1:.4g}, {own_10:.7g} and {own_50:.8g}",
            _start_token,
            {
                "spread": "0 .. 0", "steep_1": "0.377540669", "steep_50": "5.46448e-12", "steep_10": "0.00266205477",
                "own_1": "0.499500", "own_50": "0.018643477", "own_10": "0.09000273",
            },
            ("steep_10", "own_1", "own_50", "own_10"),
        )),
        ("Yes", Own(Holds(lambda step: step.value > 0.0),
                    "The bias falls by at least {step:.6g} with each step of distance, on both sides of the query",
                    _falls, {"step": "0.002000000"})),
        ("Yes", On(claim("C29"))),
        ("Yes", On(claim("C30"))),
        ("Yes", On(claim("C7"))),
    )),
    *row(1, 5, "Wavelet", COLUMNS, (
        ("Yes / No", Own(
            Sentences({"inside N: yes": APART_INSIDE, "beyond: no": Holds(lambda later: high(later) == 0.0)}),
            "Inside N the smallest distance between two rows is {inside:.6g}. From position 256 on it is {later:.2g}, "
            "because all rows are zero",
            _wavelet_rows, {"inside": "0.425790", "later": "0 .. 0"},
        )),
        ("Yes", Own(TOEPLITZ, "A share of {share:.6g} of the products of rows depends on more than the distance",
                    lambda: {"share": _kernel("wavelet")}, {"share": "0.360839"})),
        ("To analyze", Own(expressiveness.UNIVERSAL, "Tokens of norm {radius:.9g} collide (distance {apart:.2g})",
                           lambda: _collision("wavelet"), {"radius": "0.212894968", "apart": "0 .. 1e-15"},
                           reading="universal at fixed N")),
        ("To analyze", Own(Holds(lambda later: low(later) > 0.0),
                           "From position 256 on all rows are zero, so their distances are {later:.2g}",
                           lambda: {"later": _wavelet_rows()["later"]}, {"later": "0 .. 0"},
                           reading="universal at any N")),
        ("To analyze", On(claim("C107"), (), ("at_53",))),
    )),
    *row(1, 6, "Polynomial", COLUMNS, (
        ("Yes / No", Own(
            Sentences({
                "inside N: yes": APART_INSIDE, "far beyond: no": Holds(lambda first: high(first) < math.inf),
            }),
            "Inside N the smallest distance between two rows is {inside:.6g}. In float32 neighbouring rows are equal "
            "from position {first:.0f} on",
            _legendre_rows, {"inside": "0.410356", "first": "616"},
        )),
        ("Yes", Own(
            TOEPLITZ,
            "A share of {share:.6g} of the products of rows depends on more than the distance, and {clamp:.6g} with "
            "the clamp",
            lambda: {"share": _kernel("legendre"), "clamp": _kernel("legendre", map="clamp")},
            {"share": "0.108116", "clamp": "0.723089"}, ("clamp",),
        )),
        ("To analyze", Own(expressiveness.UNIVERSAL, "Tokens of norm {radius:.9g} collide (distance {apart:.2g})",
                           lambda: _collision("legendre"), {"radius": "0.205177807", "apart": "0 .. 1e-15"},
                           reading="universal at fixed N")),
        ("To analyze", Own(Holds(lambda float32_first: math.isinf(float32_first.value)),
                           "Neighbouring rows are equal from position {float32_first:.0f} on in float32 and "
                           "{bfloat16_first:.0f} on in bfloat16",
                           lambda: {name: value for name, value in polynomial_values.rounding().items()
                                    if name in ("float32_first", "bfloat16_first")},
                           {"float32_first": "616", "bfloat16_first": "340"}, ("bfloat16_first",),
                           reading="universal at any N, in floating point")),
        ("To analyze", On(claim("C119"), (), ("claimed", "trivial"))),
    )),
)  # fmt: skip
