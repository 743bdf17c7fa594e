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
    """Return the distance of the nearest two sinusoidal rows (C13, C62)."""
    return {
        "nearest": nearest_lag(),
        "lag": exact(float(nearest_lag().inputs["lag"]), "where it is attained", lags=MANY_LAGS),
        "squared": lags.lag_distance(WIDTH, 1, squared=True),
    }


def collision() -> Values:
    """Return two embeddings, with norms of half the least distance, that make two tokens equal (P4, C15)."""
    rows, inside = table("sinusoidal"), (0, TRAINED)
    move = (rows[1] - rows[0]) / 2.0
    apart = float(np.linalg.norm((rows[0] + move) - (rows[1] - move)))
    found = {name: collision_radius(table(name), inside) for name in ("sinusoidal", "wavelet", "legendre")}
    radii = {name: value for name, value in found.items() if value is not None}
    why = "|z_0 - z_1|, x_0 = (T[1] - T[0]) / 2 = -x_1"
    return {"radius": radii["sinusoidal"], "apart": exact(apart, why, norm=float(np.linalg.norm(move)))} | {
        name: radii[name] for name in ("wavelet", "legendre")
    }


def period() -> Values:
    """Return the first sine after one printed period, 10000^0 = 1 (C16, C60)."""
    sines = table("sinusoidal")[:2, 0]
    return {
        "start": exact(float(sines[0]), "sin(0)"),
        "after": exact(float(sines[1]), "sin(1), 10000^(2i/d) = 1 position later"),
        "period": exact(2.0 * np.pi, "of the first pair of channels, 2 pi 10000^0"),
    }


def _rows_beyond() -> Values:
    beyond = table("sinusoidal")[TRAINED:]
    count = float(np.isfinite(beyond).all(axis=1).sum())
    return {"beyond": exact(count, "finite rows in [50, 200)")}


def _channels() -> Values:
    """Return the distance of the two nearest entries of one channel, in units of the largest rounding error."""
    ordered = np.sort(table("sinusoidal"), axis=0)
    gaps = np.diff(ordered, axis=0)
    return {"gap": exact(float(gaps.min()), "the least |T[p, c] - T[q, c]| over all c and p < q < 200", rows=200)}


def learned_rows() -> Values:
    """Return the number of rows of the learned table beyond the training length (C21)."""
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
    return {"shared": exact(float(len(shaw & eq5)), "slots that both fill", shaw=sorted(shaw), li_eq5=sorted(eq5))}


def _offsets() -> Values:
    offsets = {i - j for i in range(TRAINED) for j in range(TRAINED)}
    why = "offsets i - j of 50 positions"
    return {
        "count": exact(float(len(offsets)), why), "least": exact(float(min(offsets)), why),
        "most": exact(float(max(offsets)), why),
    }  # fmt: skip


@cache
def spread(name: str, causal: bool = False) -> Value:
    """Return the difference of the outputs of identical tokens, in units of the largest output (P2)."""
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
    """Return the least error that equal outputs for identical tokens cost ALiBi, and their spread (P2, C29)."""
    return {
        "error": least_error("position_index", "const", TRAINED), "spread": spread("alibi"),
        "causal": spread("alibi", True),
    }  # fmt: skip


def _takeaways() -> Values:
    found = {**collision(), **_first_quarter(), **same_outputs()}
    return {name: found[name] for name in ("radius", "apart", "constant", "spread", "error")}


UNIVERSAL = HoldsIf(
    lambda apart: low(apart) > 1e-12, lambda radius: low(radius) > 0.0,
    "embeddings lie in a set of diameter below twice the collision radius (P4)",
)  # fmt: skip
TRAINABLE = Quoted({"table": "trainable", "length": "fixed"}, {"table": "trainable", "length": "fixed"}, _YUN)
NO_UNIVERSALITY = Holds(lambda error, spread: not (low(error) > 0.0 and high(spread) == 0.0))
COPIES_FIRST = Holds(lambda at_25: high(at_25) >= 0.5)
FIRST_QUARTER = Holds(lambda constant, spread: low(constant) > 0.0 and high(spread) == 0.0)

CLAIMS = (
    Claim(
        "C10", "section 3.1", "Universal: the class F is dense in G in a suitable norm as L, H -> infinity.",
        Needs(("L", "H", "domain", "norm", "width", "bounds of weights"), ("L", "H")),
        "two of six notions are there",
        reading="X compact in R^d, d fixed, all L, H and hidden sizes; the sup norm for what is impossible, L^p as in "
        "Yun et al. for what is possible",
    ),
    Claim(
        "C11", "section 3.1 (a)", "How the encoding affects the size of F for fixed L, H.",
        Needs(("L", "H", "size of a class of functions"), ("L", "H")),
        "instead: numbers that the encoding learns in the paper's model, {sinusoidal:.0f} of sinusoidal, "
        "{learned:.0f} of a learned table, {alibi:.0f} of ALiBi; and symmetry classes",
        _added_numbers, {"sinusoidal": "0", "learned": "3200", "alibi": "0"}, ("sinusoidal", "learned", "alibi"),
    ),
    Claim(
        "C12", "equation (4)", "Attention of one head.", Needs(_ATTENTION, _ATTENTION),
        "a definition, without WO; equations (5) and (6) leave out the 1/sqrt(dk) that section 5.3 has again",
    ),
    Claim(
        "C13", "section 3.2", "PE(i) of the sinusoidal encoding is injective in i.",
        Holds(lambda nearest: low(nearest) > 0.0),
        "the nearest two rows are {nearest:.16g} apart, at lag {lag:.0f}: all lags to 1e6, by interval arithmetic "
        "where it matters; on all integers each channel alone is injective (P1)",
        nearest_rows, {"nearest": "1.471848048122478", "lag": "1", "squared": "2.166336676761948"},
        ("lag", "squared"),
    ),
    Claim(
        "C14", "section 3.2", "Yun et al. show universality with sinusoidal encodings, given width and depth.",
        Quoted({"table": "sinusoidal", "grows": "width and depth"}, {"table": "trainable", "grows": "depth"}, _YUN),
        "the attribution is checked, not the theorem",
    ),
    Claim(
        "C15", "section 3.2", "A transformer with added sinusoidal encodings is universal at fixed N.", UNIVERSAL,
        "x_0 = (T[1] - T[0]) / 2 = -x_1 of norm {radius:.9g} make tokens 0 and 1 equal up to {apart:.2g}, and with "
        "them their outputs; radii of wavelet {wavelet:.9g}, Legendre {legendre:.9g}",
        collision,
        {"radius": "0.735924024", "apart": "0 .. 1e-15", "wavelet": "0.212894968", "legendre": "0.205177807"},
        ("wavelet", "legendre"),
    ),
    Claim(
        "C16", "section 3.2", "The sinusoidal basis has the periods 10000^(2i/d).",
        Holds(lambda after, start: abs(after.value - start.value) < 1e-9),
        "i = 0 has 10000^0 = 1, but sin(0) = {start:.0f} and sin(1) = {after:.15g}; the period is {period:.9f}",
        period, {"start": "0 .. 0", "after": "0.841470984807897", "period": "6.283185307"}, ("period",),
    ),
    Claim(
        "C17", "section 3.2", "A sufficiently wide transformer computes arbitrary Boolean functions (Yun et al.).",
        Quoted(
            {"functions": "Boolean", "grows": "width"},
            {"functions": "continuous of compact support, L^p", "grows": "depth"}, _YUN,
        ),
        "the attribution is checked; at fixed N, with tokens that differ, it is true of networks that grow deep",
    ),
    Claim(
        "C18", "section 3.2", "Expressiveness is restricted to positions for which PEs were computed.",
        Holds(lambda beyond: beyond.value == 0.0),
        "the formula has {beyond:.0f} rows in [50, 200) as well", _rows_beyond, {"beyond": "150"},
    ),
    Claim(
        "C19", "section 3.2", "Sinusoidal encodings repeat after 2 pi in each frequency dimension.",
        Holds(lambda gap: low(gap) <= 1e-15),
        "on integers no channel ever repeats (P1); the nearest entries of one channel below 200 differ by {gap:.6g}",
        _channels, {"gap": "4.28682e-9"}, reading="positions are integers",
    ),
    Claim(
        "C20", "section 3.3", "Learned absolute encodings are universal up to N.", TRAINABLE,
        "the table of the theorem is a learned one",
    ),
    Claim(
        "C21", "section 3.3", "Learned encodings cannot generalise to i > N, as no embedding exists.",
        HoldsIf(lambda clip: clip.value == 0.0, lambda error: error.value == 0.0, "beyond='error'"),
        "with beyond='error' there are {error:.0f} rows in [50, 200), with 'clip' {clip:.0f}, at distance 0 from the "
        "last",
        learned_rows, {"error": "0", "clip": "150"},
    ),
    Claim(
        "C22", "equation (5)", "The scores z_i WQ (z_j WK)^T + a^T R_{i-j} are the formulation of Shaw et al.",
        Holds(lambda shared: shared.value > 0.0),
        "Shaw has q_i . (k_j + R_(j-i)), and vectors on the values too; one vector a makes it a number for each "
        "offset, which is the encoding li_eq5: they share {shared:.0f} slots",
        _slots_of_scores, {"shared": "0"},
    ),
    Claim(
        "C23", "section 3.4", "Offsets range in [-(N - 1), N - 1].",
        Holds(lambda count, least, most: (count.value, least.value, most.value) == (99.0, -49.0, 49.0)),
        "50 positions have {count:.0f} offsets, {least:.0f} to {most:.0f}",
        _offsets, {"count": "99", "least": "-49", "most": "49"},
    ),
    Claim(
        "C24", "section 3.4", "Relative encodings are as expressive as absolute ones for relative tasks (Yao et al.).",
        Needs(("tasks that depend on relative structure", "as expressive as")),
        "the paper that is cited, 'Efficient attention', does not treat it",
    ),
    Claim(
        "C25", "section 3.4", "On labels of the first quarter a purely relative encoding may struggle.", FIRST_QUARTER,
        "stronger: whatever acts on scores alone gives identical tokens identical outputs (spread {spread:.2g}), so "
        "the error is at least {constant:.6g} on a constant input, {divisible:.6g} where 4 divides N; with a "
        "symmetric bias {reversal:.6g} on any input",
        _first_quarter, {"constant": "0.1924000", "spread": "0 .. 0", "reversal": "0.1300000",
        "divisible": "0.1875000"},
        ("reversal", "divisible"),
    ),
    Claim(
        "C26", "equation (6)", "ALiBi's bias is relative, not learned, and unbounded in |i - j|.",
        Holds(_is_fixed_and_grows),
        "sup |b| = alpha (N' - 1): {at_50:.6g}, {at_100:.6g}, {at_200:.6g}; {learned:.0f} learned numbers",
        _bias_facts, {"at_50": "0.09800000", "at_100": "0.1980000", "at_200": "0.3980000", "learned": "0"},
    ),
    Claim(
        "C27", "section 3.5", "With ALiBi the model retains the same expressiveness for sequences of any length.",
        COPIES_FIRST,
        "copying the first token to the last place: from length {steep:.0f} on no network of the class (slope 1/2, "
        "two layers, unit norms) changes its output by more than {at_25:.9g} times what changes there (P8)",
        influence, _INFLUENCE, ("constant", "steep", "released", "own"),
    ),
    Claim(
        "C28", "section 3.5", "The bias lets the model, in principle, distinguish token distances.",
        HoldsIf(lambda flat: low(flat) > 0.0, lambda own: low(own) > 0.0, "alpha > 0"),
        "one score in content noise of deviation 1 tells {own:.12g} nats of the distance, of ln 50 = 3.912023; "
        "without a slope {flat:.2g}",
        _heard, {"flat": "0 .. 0", "own": "0.000416326624"},
    ),
    Claim(
        "C29", "section 3.5", "A transformer with ALiBi is universal at fixed N.", NO_UNIVERSALITY,
        "identical tokens have identical outputs (spread {spread:.2g}, causal {causal:.2g}; P2), so on a constant "
        "input the target y_i = i costs at least {error:.6g}; section 3.4 says so itself (C25)",
        same_outputs, {"error": "208.25", "spread": "0 .. 0", "causal": "0 .. 0"}, ("causal",),
    ),
    Claim(
        "C30", "section 3.5", "A sufficiently wide and deep transformer with ALiBi is universal for any length.",
        COPIES_FIRST,
        "per length by C29; one network for all lengths by P8: c = {constant:.13g}, influence below 1/2 from length "
        "{steep:.0f} (slope 1/2: {at_25:.9g}), {released:.0f} (2^-8), {own:.0f} (0.002)",
        influence, _INFLUENCE, ("constant", "steep", "released", "own"),
    ),
    Claim(
        "C31", "section 3.5", "The linear bias might under-emphasise absolute positions for shorter sequences.",
        Needs(("emphasis on absolute positions", "shorter")), "no quantity is named that could be compared",
    ),
    Claim(
        "C32", "section 3.6", "The four key takeaways.",
        Sentences({
            "sinusoidal and learned encodings are universal at fixed length": UNIVERSAL,
            "relative encodings may miss absolute position": FIRST_QUARTER,
            "ALiBi is universal over any length": NO_UNIVERSALITY,
            "proposed encodings potentially universal, with good extrapolation": Needs(("potentially", "good")),
        }),
        "as C15 (radius {radius:.9g}, tokens {apart:.2g} apart), C25 (error {constant:.6g}) and C29 ({error:.6g})",
        _takeaways,
        {"radius": "0.735924024", "apart": "0 .. 1e-15", "constant": "0.1924000", "spread": "0 .. 0",
         "error": "208.25"},
    ),
)  # fmt: skip
