"""Claims of section 3 of Li (2025), C10 to C32: functions that transformers with an encoding can compute."""

from functools import cache

import numpy as np

from fastpe.encodings.encoding import BeyondTrainingLength
from fastpe.paper_claims.record import Claim
from fastpe.paper_claims.rules import Holds, HoldsIf, Needs, Quoted, Sentences, Values, high, low
from fastpe.paper_claims.setting import (
    MANY_LAGS,
    SLOPE,
    TRAINED,
    WIDTH,
    falling,
    learned_numbers,
    nearest_lag,
    slots,
    table,
)
from fastpe.theory import biases, lags, lipschitz
from fastpe.theory.attention_information import offset_information
from fastpe.theory.layers import equal_layers
from fastpe.theory.orbits import least_error
from fastpe.theory.symmetry import symmetry
from fastpe.theory.tables import collision_radius
from fastpe.theory.value import Value, exact

_YUN = "Yun et al. 2020, arXiv:1912.10077, Theorem 3"
_ATTENTION = ("queries", "keys", "values", "1/sqrt(dk)", "softmax over keys")


def _added_numbers() -> Values:
    return {name: learned_numbers(name) for name in ("sinusoidal", "learned", "alibi")}


def nearest_rows() -> Values:
    """Return the least distance between two sinusoidal rows, its lag, and the squared distance at lag 1 (C13, C62)."""
    return {
        "nearest": nearest_lag(),
        "lag": exact(float(nearest_lag().inputs["lag"]), "the lag of the nearest two rows", lags=MANY_LAGS),
        "squared": lags.lag_distance(WIDTH, 1, squared=True),
    }


def collision() -> Values:
    """Return the collision radii of three tables (P4), and the distance of two tokens that collide (C15).

    The embeddings of the two tokens have the norm of the sinusoidal radius and make the tokens equal, so the distance
    is 0 up to rounding.
    """
    rows, inside = table("sinusoidal"), (0, TRAINED)
    move = (rows[1] - rows[0]) / 2.0
    apart = float(np.linalg.norm((rows[0] + move) - (rows[1] - move)))
    found = {name: collision_radius(table(name), inside) for name in ("sinusoidal", "wavelet", "legendre")}
    radii = {name: value for name, value in found.items() if value is not None}
    why = "|z_0 - z_1| for x_0 = (T[1] - T[0]) / 2 = -x_1"
    return {"radius": radii["sinusoidal"], "apart": exact(apart, why, norm=float(np.linalg.norm(move)))} | {
        name: radii[name] for name in ("wavelet", "legendre")
    }


def period() -> Values:
    """Return the first sine at position 0 and at position 1, and the true period of the first channel (C16, C60).

    The period that the paper prints for this channel is 10000^0 = 1.
    """
    sines = table("sinusoidal")[:2, 0]
    return {
        "start": exact(float(sines[0]), "sin(0)"),
        "after": exact(float(sines[1]), "sin(1), one printed period of 10000^(2i/d) = 1 position later"),
        "period": exact(2.0 * np.pi, "2 pi 10000^0, the period of the first pair of channels"),
    }


def _rows_beyond() -> Values:
    beyond = table("sinusoidal")[TRAINED:]
    count = float(np.isfinite(beyond).all(axis=1).sum())
    return {"beyond": exact(count, "number of finite rows in [50, 200)")}


def _channels() -> Values:
    """Return the least difference between two entries of the same sinusoidal channel (C19)."""
    ordered = np.sort(table("sinusoidal"), axis=0)
    gaps = np.diff(ordered, axis=0)
    return {"gap": exact(float(gaps.min()), "the least |T[p, c] - T[q, c]| over all c and p < q < 200", rows=200)}


def learned_rows() -> Values:
    """Return, for each option `beyond`, how many rows the learned table has beyond the training length (C21)."""
    found = {}
    for beyond in ("error", "clip"):
        try:
            rows = len(slots("learned", 200, beyond=beyond)["table"]) - TRAINED
        except BeyondTrainingLength:
            rows = 0
        found[beyond] = exact(float(rows), f"rows in [50, 200), beyond={beyond!r}")
    return found


def _slots_of_scores() -> Values:
    shaw, eq5 = set(slots("shaw")), set(slots("li_eq5"))
    return {
        "shared": exact(
            float(len(shaw & eq5)), "number of slots that both encodings fill", shaw=sorted(shaw), li_eq5=sorted(eq5)
        )
    }


def _offsets() -> Values:
    offsets = {i - j for i in range(TRAINED) for j in range(TRAINED)}
    why = "over the offsets i - j of 50 positions"
    return {
        "count": exact(float(len(offsets)), why), "least": exact(float(min(offsets)), why),
        "most": exact(float(max(offsets)), why),
    }  # fmt: skip


@cache
def spread(name: str, causal: bool = False) -> Value:
    """Return the largest difference between outputs of identical tokens, divided by the largest output (P2)."""
    return symmetry(name, causal=causal).const.spread


def _first_quarter() -> Values:
    return {
        "constant": least_error("first_quarter", "const", TRAINED), "spread": spread("alibi"),
        "reversal": least_error("first_quarter", "rev", TRAINED),
        "divisible": least_error("first_quarter", "const", 52),
    }  # fmt: skip


def bias_sizes() -> Values:
    """Return sup |b| of ALiBi at the lengths of the paper (C26, C52, C53)."""
    return {f"at_{n}": biases.worst(biases.largest_sizes(slots("alibi", n), n, causal=True)) for n in (50, 100, 200)}


def grows_by_the_slope(at_50: Value, at_100: Value, at_200: Value) -> bool:
    """Return whether sup |b| = alpha (N' - 1) at the lengths of the paper."""
    sizes = {50: at_50, 100: at_100, 200: at_200}
    return all(abs(size.value - SLOPE * (length - 1)) < 1e-12 for length, size in sizes.items())


def _is_fixed_and_grows(learned: Value, at_50: Value, at_100: Value, at_200: Value) -> bool:
    return learned.value == 0.0 and grows_by_the_slope(at_50, at_100, at_200)


def _bias_facts() -> Values:
    return {**bias_sizes(), "learned": learned_numbers("alibi")}


def influence() -> Values:
    """Return bounds on the influence of the first token on the last (P8, C27, C30)."""
    layers = equal_layers(2)
    return {
        "at_25": lipschitz.influence_bound(layers, 1.0, 0.5, 25),
        "constant": lipschitz.influence_constant(layers, 1.0),
        "steep": lipschitz.influence_length(layers, 1.0, 0.5),
        "released": lipschitz.influence_length(layers, 1.0, 2.0**-8),
        "own": lipschitz.influence_length(layers, 1.0, SLOPE),
    }


_INFLUENCE = {
    "at_25": "0.398361871", "constant": "2593.412126574351", "steep": "25", "released": "4335", "own": "8821",
}  # fmt: skip


def _heard() -> Values:
    flat, own = (offset_information(falling(TRAINED, slope)) for slope in (0.0, SLOPE))
    return {"flat": flat, "own": own}


def same_outputs() -> Values:
    """Return the least error of models with equal outputs for identical tokens, and the spread for ALiBi (P2, C29)."""
    return {
        "error": least_error("position_index", "const", TRAINED), "spread": spread("alibi"),
        "causal": spread("alibi", True),
    }  # fmt: skip


def _takeaways() -> Values:
    found = {**collision(), **_first_quarter(), **same_outputs()}
    return {name: found[name] for name in ("radius", "apart", "constant", "spread", "error")}


UNIVERSAL = HoldsIf(
    lambda apart: low(apart) > 1e-12, lambda radius: low(radius) > 0.0,
    "the embeddings lie in a set whose diameter is below twice the collision radius (P4)",
)  # fmt: skip
TRAINABLE = Quoted({"table": "trainable", "length": "fixed"}, {"table": "trainable", "length": "fixed"}, _YUN)
NO_UNIVERSALITY = Holds(lambda error, spread: not (low(error) > 0.0 and high(spread) == 0.0))
COPIES_FIRST = Holds(lambda at_25: high(at_25) >= 0.5)
FIRST_QUARTER = Holds(lambda constant, spread: low(constant) > 0.0 and high(spread) == 0.0)

CLAIMS = (
    Claim(
        "C10", "section 3.1", "A class F is universal if it is dense in G in a suitable norm as L, H -> infinity.",
        Needs(("L", "H", "domain", "norm", "width", "bounds of weights"), ("L", "H")),
        "The paper defines two of the six notions that the statement needs",
        reading=
        "X is compact in R^d, d is fixed, and all L, H and hidden sizes are allowed; impossibility is judged in the "
        "sup norm, possibility in L^p as in Yun et al.",
    ),
    Claim(
        "C11", "section 3.1 (a)", "The encoding affects the size of F for fixed L, H.",
        Needs(("L", "H", "size of a class of functions"), ("L", "H")),
        "What can be computed instead: the number of parameters that the encoding learns in the paper's model, which "
        "is {sinusoidal:.0f} (sinusoidal), {learned:.0f} (learned table) and {alibi:.0f} (ALiBi), and the symmetry "
        "classes",
        _added_numbers, {"sinusoidal": "0", "learned": "3200", "alibi": "0"}, ("sinusoidal", "learned", "alibi"),
    ),
    Claim(
        "C12", "equation (4)", "Equation (4) defines the attention of one head.", Needs(_ATTENTION, _ATTENTION),
        "This is a definition, without WO. Equations (5) and (6) omit the factor 1/sqrt(dk), which section 5.3 uses "
        "again",
    ),
    Claim(
        "C13", "section 3.2", "PE(i) of the sinusoidal encoding is injective in i.",
        Holds(lambda nearest: low(nearest) > 0.0),
        "The smallest distance between two rows is {nearest:.16g}, at lag {lag:.0f}. All lags up to 1e6 were tried, "
        "with interval arithmetic for the smallest distances. On all integers every single channel is injective (P1)",
        nearest_rows, {"nearest": "1.471848048122478", "lag": "1", "squared": "2.166336676761948"},
        ("lag", "squared"),
    ),
    Claim(
        "C14", "section 3.2", "Yun et al. show universality with sinusoidal encodings, given width and depth.",
        Quoted({"table": "sinusoidal", "grows": "width and depth"}, {"table": "trainable", "grows": "depth"}, _YUN),
        "Only the attribution is checked, not the theorem",
    ),
    Claim(
        "C15", "section 3.2", "A transformer with added sinusoidal encodings is universal at fixed N.", UNIVERSAL,
        "The embeddings x_0 = (T[1] - T[0]) / 2 = -x_1 of norm {radius:.9g} make tokens 0 and 1 equal up to "
        "{apart:.2g}, and so their outputs. The radius is {wavelet:.9g} for wavelets and {legendre:.9g} for Legendre "
        "rows",
        collision,
        {"radius": "0.735924024", "apart": "0 .. 1e-15", "wavelet": "0.212894968", "legendre": "0.205177807"},
        ("wavelet", "legendre"),
    ),
    Claim(
        "C16", "section 3.2", "The sinusoidal basis has the periods 10000^(2i/d).",
        Holds(lambda after, start: abs(after.value - start.value) < 1e-9),
        "For i = 0 the printed period is 10000^0 = 1, but sin(0) = {start:.0f} and sin(1) = {after:.15g}. The period "
        "is {period:.9f}",
        period, {"start": "0 .. 0", "after": "0.841470984807897", "period": "6.283185307"}, ("period",),
    ),
    Claim(
        "C17", "section 3.2", "A sufficiently wide transformer computes arbitrary Boolean functions (Yun et al.).",
        Quoted(
            {"functions": "Boolean", "grows": "width"},
            {"functions": "continuous of compact support, L^p", "grows": "depth"}, _YUN,
        ),
        "Only the attribution is checked. At fixed N, for inputs whose tokens all differ, the statement is true for "
        "networks of growing depth",
    ),
    Claim(
        "C18", "section 3.2", "Expressiveness is restricted to positions for which PEs were computed.",
        Holds(lambda beyond: beyond.value == 0.0),
        "The formula also gives {beyond:.0f} rows in [50, 200)", _rows_beyond, {"beyond": "150"},
    ),
    Claim(
        "C19", "section 3.2", "Sinusoidal encodings repeat after 2 pi in each frequency dimension.",
        Holds(lambda gap: low(gap) <= 1e-15),
        "No channel repeats at integer positions (P1). The two nearest entries of one channel below position 200 "
        "differ by {gap:.6g}",
        _channels, {"gap": "4.28682e-9"}, reading="positions are integers",
    ),
    Claim(
        "C20", "section 3.3", "Learned absolute encodings are universal up to N.", TRAINABLE,
        "The theorem is about a learned table",
    ),
    Claim(
        "C21", "section 3.3", "Learned encodings cannot generalise to i > N, as no embedding exists.",
        HoldsIf(lambda clip: clip.value == 0.0, lambda error: error.value == 0.0, "beyond='error'"),
        "With beyond='error' there are {error:.0f} rows in [50, 200). With beyond='clip' there are {clip:.0f}, all "
        "equal to the last trained row",
        learned_rows, {"error": "0", "clip": "150"},
    ),
    Claim(
        "C22", "equation (5)", "The scores z_i WQ (z_j WK)^T + a^T R_{i-j} are the formulation of Shaw et al.",
        Holds(lambda shared: shared.value > 0.0),
        "The scores of Shaw et al. are q_i . (k_j + R_(j-i)), and they also add vectors to the values. With a fixed "
        "vector a, equation (5) adds one number for each offset, as the encoding li_eq5 does. Both encodings share "
        "{shared:.0f} slots",
        _slots_of_scores, {"shared": "0"},
    ),
    Claim(
        "C23", "section 3.4", "Offsets range in [-(N - 1), N - 1].",
        Holds(lambda count, least, most: (count.value, least.value, most.value) == (99.0, -49.0, 49.0)),
        "50 positions have {count:.0f} offsets, from {least:.0f} to {most:.0f}",
        _offsets, {"count": "99", "least": "-49", "most": "49"},
    ),
    Claim(
        "C24", "section 3.4", "Relative encodings are as expressive as absolute ones for relative tasks (Yao et al.).",
        Needs(("tasks that depend on relative structure", "as expressive as")),
        "The cited paper, 'Efficient attention', does not treat this question",
    ),
    Claim(
        "C25", "section 3.4", "On labels of the first quarter a purely relative encoding may struggle.", FIRST_QUARTER,
        "A stronger statement holds: an encoding that acts only on scores gives identical tokens identical outputs "
        "(spread {spread:.2g}). So the error is at least {constant:.6g} on constant inputs, {divisible:.6g} if 4 "
        "divides N. With a symmetric bias it is at least {reversal:.6g} on any input",
        _first_quarter, {"constant": "0.1924000", "spread": "0 .. 0", "reversal": "0.1300000",
        "divisible": "0.1875000"},
        ("reversal", "divisible"),
    ),
    Claim(
        "C26", "equation (6)", "ALiBi's bias is relative, not learned, and unbounded in |i - j|.",
        Holds(_is_fixed_and_grows),
        "sup |b| = alpha (N' - 1) is {at_50:.6g}, {at_100:.6g} and {at_200:.6g} at lengths 50, 100 and 200. The bias "
        "has {learned:.0f} learned numbers",
        _bias_facts, {"at_50": "0.09800000", "at_100": "0.1980000", "at_200": "0.3980000", "learned": "0"},
    ),
    Claim(
        "C27", "section 3.5", "With ALiBi the model retains the same expressiveness for sequences of any length.",
        COPIES_FIRST,
        "One task is to copy the first token to the last position. From length {steep:.0f} on, no network of the "
        "class (slope 1/2, two layers, unit norms) changes its last output by more than {at_25:.9g} times the change "
        "of the first token (P8)",
        influence, _INFLUENCE, ("constant", "steep", "released", "own"),
    ),
    Claim(
        "C28", "section 3.5", "The bias lets the model, in principle, distinguish token distances.",
        HoldsIf(lambda flat: low(flat) > 0.0, lambda own: low(own) > 0.0, "alpha > 0"),
        "One score contains {own:.12g} nats about the distance, of ln 50 = 3.912023, if its content is noise of "
        "standard deviation 1. Without a slope it contains {flat:.2g}",
        _heard, {"flat": "0 .. 0", "own": "0.000416326624"},
    ),
    Claim(
        "C29", "section 3.5", "A transformer with ALiBi is universal at fixed N.", NO_UNIVERSALITY,
        "Identical tokens have identical outputs (P2; spread {spread:.2g}, with a causal mask {causal:.2g}). So on a "
        "constant input the target y_i = i costs at least {error:.6g}. Section 3.4 of the paper says the same (C25)",
        same_outputs, {"error": "208.25", "spread": "0 .. 0", "causal": "0 .. 0"}, ("causal",),
    ),
    Claim(
        "C30", "section 3.5", "A sufficiently wide and deep transformer with ALiBi is universal for any length.",
        COPIES_FIRST,
        "It is false at a fixed length by C29. It is false for one network at all lengths by P8: with c = "
        "{constant:.13g} the influence of the first token is below 1/2 from length {steep:.0f} on at slope 1/2 "
        "({at_25:.9g} there), {released:.0f} at slope 2^-8 and {own:.0f} at slope 0.002",
        influence, _INFLUENCE, ("constant", "steep", "released", "own"),
    ),
    Claim(
        "C31", "section 3.5", "The linear bias might under-emphasise absolute positions for shorter sequences.",
        Needs(("emphasis on absolute positions", "shorter")), "The paper names no quantity that could be compared",
    ),
    Claim(
        "C32", "section 3.6", "The four key takeaways hold.",
        Sentences({
            "sinusoidal and learned encodings are universal at fixed length": UNIVERSAL,
            "relative encodings may miss absolute position": FIRST_QUARTER,
            "ALiBi is universal over any length": NO_UNIVERSALITY,
            "proposed encodings are potentially universal and extrapolate well": Needs(("potentially", "good")),
        }),
        "The sentences are judged like C15 (radius {radius:.9g}, tokens {apart:.2g} apart), C25 (error "
        "{constant:.6g}) and C29 (error {error:.6g})",
        _takeaways,
        {"radius": "0.735924024", "apart": "0 .. 1e-15", "constant": "0.1924000", "spread": "0 .. 0",
         "error": "208.25"},
    ),
)  # fmt: skip
