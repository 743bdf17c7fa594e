"""Claims of sections 5.1 to 5.3 of Li (2025), C60 to C76: extrapolation of earlier encodings to longer texts."""

import math

import numpy as np

from fastpe.paper_claims.expressiveness import nearest_rows, period, spread
from fastpe.paper_claims.locality import dominates_from, equation_9, normalised_difference, weight_ratio
from fastpe.paper_claims.record import Claim
from fastpe.paper_claims.rules import Holds, HoldsIf, Measured, Needs, Sentences, Values, high, low
from fastpe.paper_claims.setting import SLOPE, TRAINED, falling, nearest_lag, slots, table
from fastpe.theory import biases, lags, reach
from fastpe.theory.softmax import softmax_bounds, weights
from fastpe.theory.tables import separation
from fastpe.theory.value import Value, exact

_CLOSE = {2: 4272943, 4: 1146053, 6: 6413153, 8: 5730265, 16: 615746}  # lags of nearly equal rows, by width
_ARGUMENTS = ("query-key product", "bias", "the other scores of the row")


def _ratio() -> Values:
    """Return the period of channel i + 8 divided by that of channel i, for 64 channels: 10000^(16/64) = 10000^(1/4)."""
    return {"ratio": exact(10000.0 ** (16 / 64), "exactly 10, since 10^4 = 10000", channels=[0, 8])}


def far_lags() -> Values:
    """Return least distances of rows up to 9999 and up to 10^6 positions apart, and distances at smaller widths (C63).

    The distances at smaller widths are those at the lags of `_CLOSE`.
    """
    found = {"within": nearest_lag(9999), "beyond": nearest_lag()}
    return found | {f"d_{dim}": lags.lag_distance(dim, lag) for dim, lag in _CLOSE.items()}


def clipped() -> Values:
    """Return the least distances of rows of learned tables that are clipped or interpolated to 100 positions (C64)."""
    rows = table("learned", beyond="clip")
    between = table("learned", 100, beyond="interp")
    return {
        "apart": _or_infinite(separation(rows, (TRAINED, 100))), "interpolated": _or_infinite(separation(between)),
        "inside": _or_infinite(separation(rows, (0, TRAINED))),
    }  # fmt: skip


def _or_infinite(value: Value | None, instead: float = math.inf) -> Value:
    return exact(instead, "there are no two rows") if value is None else value


def windows_add_up() -> Values:
    """Return Shaw's number of vectors with clipped offsets, and the spread of outputs after two layers (C65)."""
    vectors = slots("shaw", reach=5)["rel_key"].shape[-2]
    return {
        "vectors": exact(float(vectors), "number of vectors of offsets for K = 5 and 50 positions"),
        "stack": spread("shaw"),
        "causal": spread("shaw", True),
    }  # fmt: skip


def _dominated() -> Values:
    why = "the distance from which on content scores of size at most 1 cannot outweigh the bias"
    found = {name: dominates_from(falling(n), 1.0) for name, n in (("tested", 200), ("long", 2048))}
    return {name: exact(_or_infinite(value).value, why) for name, value in found.items()}


def dilution() -> Values:
    """Return the number of keys that attention with equal contents uses at each length (C67)."""
    found = {f"at_{n}": reach.reaches(falling(n)[None])[0].perplexity for n in (50, 200, 100, 2048)}
    endless = reach.limit("alibi", slope=SLOPE)
    assert endless is not None
    return found | {"endless": endless.perplexity, "steep": reach.reaches(falling(200, 0.5)[None])[0].perplexity}


def _neighbours() -> Values:
    i, j = TRAINED + 1, TRAINED + 2
    return {
        "distance": exact(float(abs(i - j)), "|i - j| for i = 51, j = 52"),
        "trained": exact(TRAINED - 1.0, "the largest distance in training"),
    }


def _softmax() -> Values:
    """Return the largest slope of one weight, the bound of P6 and a change of two weights that attains this bound."""
    logits = np.linspace(-8.0, 8.0, 4001)
    share = 1.0 / (1.0 + np.exp(-logits))
    pair = weights(np.array([[-0.5, 0.5], [0.5, -0.5]]))
    return {
        "slope": exact(float((share * (1.0 - share)).max()), "the largest A (1 - A), attained at A = 1/2"),
        "attained": exact(
            float(np.abs(pair[0] - pair[1]).sum() / 2.0),
            "total variation between softmax(-1/2, 1/2) and softmax(1/2, -1/2)",
        ),
        "bound": softmax_bounds(np.array([1.0, -1.0]))["tv"],
    }


def equation() -> Values:
    """Evaluate eq. (9) for two keys of several rows: with the paper's slope, and with a larger one (C71, C72)."""
    found: dict[str, Value] = {}
    rows = {
        "short": (falling(3, 0.1), 1, 2), "100": (falling(100), 50, 99), "200": (falling(200), 50, 199),
        "steep": (falling(200, 0.1), 50, 199),
    }  # fmt: skip
    for name, (row, trained, tested) in rows.items():
        for what, value in equation_9(row, trained, tested).items():
            found[f"{what}_{name}"] = value
    return found


def _of_equation(*names: str) -> Values:
    found = equation()
    return {name: found[name] for name in names}


def saturation() -> Values:
    """Return how much smaller the weights at the distances 1050 and 10050 are than at 50, in one long row (C73)."""
    row = falling(10051)
    found = {name: equation_9(row, TRAINED, TRAINED + far) for name, far in (("near", 1000), ("far", 10000))}
    return {
        "near": found["near"]["difference"], "far": found["far"]["difference"], "ceiling": found["far"]["near"],
        "ceiling_200": equation()["near_200"],
    }  # fmt: skip


def moved() -> Values:
    """Return the weight beyond the trained distances, for several slopes and lengths (C74)."""
    return {
        "own_100": biases.alibi_drift(SLOPE, TRAINED, 100), "own_200": biases.alibi_drift(SLOPE, TRAINED, 200),
        "steep": biases.alibi_drift(0.5, TRAINED, 100), "released_100": biases.alibi_drift(2.0**-8, TRAINED, 100),
        "released_200": biases.alibi_drift(2.0**-8, TRAINED, 200),
    }  # fmt: skip


def _logits() -> Values:
    row = biases.last_row(slots("alibi", 201, alpha0=0.1), 201)[0]
    apart = float(abs(row[TRAINED] - row[200]))
    return {
        "bound": normalised_difference(0.1, TRAINED, 200), "equal": exact(apart, "|b_50 - b_200|, alpha0 = 0.1"),
        "loud": exact(apart + 1.0, "the same difference if the products of query and key differ by 1"),
    }  # fmt: skip


def _locality() -> Values:
    weak, steep = (math.exp(-weight_ratio(falling(TRAINED, slope), 0, TRAINED - 1).value) for slope in (SLOPE, 0.5))
    why = "the farthest weight over the nearest"
    return {"weak": exact(weak, why), "steep": exact(steep, why)} | {
        f"effect_{n}": biases.worst(biases.effects(slots("alibi", n), n, causal=True)) for n in (50, 200)
    }


def _holds_at_small_weights(difference_100: Value, bound_100: Value, difference_200: Value, bound_200: Value) -> bool:
    return difference_100.value <= bound_100.value and difference_200.value <= bound_200.value


REPEATS = Holds(lambda after, start: abs(after.value - start.value) < 1e-9)
AMBIGUOUS = Holds(lambda beyond, within: high(beyond) < low(within))
COLLAPSED = Holds(lambda apart: high(apart) == 0.0)
EQUAL_BETWEEN = Holds(lambda interpolated: high(interpolated) == 0.0)
ONE_LAYER = HoldsIf(
    lambda stack: high(stack) == 0.0, lambda vectors: vectors.value == 11.0, "only the vectors of one layer are meant"
)
EQUATION_9 = HoldsIf(
    lambda difference_short, bound_short: difference_short.value <= bound_short.value,
    _holds_at_small_weights,
    "only one score of the row changes, or the nearer of the two keys has at most 1/4 of the weight",
)
LINEAR_ERROR = Holds(lambda far, near: far.value >= 5.0 * near.value)

CLAIMS = (
    Claim(
        "C60", "section 5.1", "PE(pos + k 10000^(2i/d)) = PE(pos) in dimension 2i.", REPEATS,
        "For i = 0 and k = 1, sin(0) = {start:.0f} but sin(1) = {after:.15g}. The period is {period:.9f}, which is "
        "not an integer",
        period, {"start": "0 .. 0", "after": "0.841470984807897", "period": "6.283185307"}, ("period",),
    ),
    Claim(
        "C61", "section 5.1", "Different dimensions have incommensurate periods.",
        Holds(lambda ratio: 1e-9 < ratio.value % 1.0 < 1.0 - 1e-9),
        "At d = 64 the periods of the channels i + 8 and i have the ratio {ratio:.12g}, since 10^4 = 10000",
        _ratio, {"ratio": "10"},
    ),
    Claim(
        "C62", "section 5.1", "The vector is unique for pos in [0, 10000).",
        Holds(lambda nearest: low(nearest) > 0.0),
        "No two rows are closer than {nearest:.16g} at any lag up to 1e6. No two rows at integer positions are equal "
        "(P1)",
        nearest_rows, {"nearest": "1.471848048122478", "lag": "1", "squared": "2.166336676761948"}, ("lag", "squared"),
    ),
    Claim(
        "C63", "section 5.1", "From position 10000 on there is partial ambiguity, and the risk grows with "
        "pos.", AMBIGUOUS,
        "The least distance is {within:.10g} for lags below 10000 and {beyond:.10g} for lags up to 1e6. No channel "
        "repeats at integer positions, at any width (P1). But narrow rows come close to repeating: at some lags "
        "below 10^7 the distance is {d_2:.7g} at d = 2, {d_4:.7g} at d = 4, {d_6:.10g} at d = 6, {d_8:.7g} at d = 8 "
        "and {d_16:.9g} at d = 16",
        far_lags,
        {
            "within": "1.471848048122478", "beyond": "1.471848048122478", "d_2": "5.495795e-7", "d_4": "2.955805e-5",
            "d_6": "0.009521123175", "d_8": "1.485274e-4", "d_16": "0.881206604",
        },
        tuple(f"d_{dim}" for dim in _CLOSE),
    ),
    Claim(
        "C64", "section 5.1", "Clipping and interpolation perform poorly, as they do not preserve distinctions.",
        Sentences({
            "clipping preserves no distinctions": COLLAPSED, "interpolation preserves no distinctions": EQUAL_BETWEEN,
            "they perform poorly": Measured(),
        }),
        "Clipped rows beyond the end of the table are {apart:.2g} apart; inside it the least distance is "
        "{inside:.6g}. If the table is interpolated to 100 rows, the least distance is {interpolated:.6g}: rows are "
        "closer, but no two are equal",
        clipped, {"apart": "0 .. 0", "interpolated": "0.0475965", "inside": "0.159460"}, ("inside",),
    ),
    Claim(
        "C65", "section 5.2", "Clipped relative encodings cannot distinguish distances beyond K.", ONE_LAYER,
        "K = 5 leaves {vectors:.0f} vectors. But the windows of several layers add up, and vectors on values reveal "
        "the ends of the sequence: outputs of equal tokens differ by {stack:.4g} times the largest output, and by "
        "{causal:.4g} with a causal mask. R_K and R_-K also remain different",
        windows_add_up, {"vectors": "11", "stack": "0.1516231", "causal": "0.5227744"}, ("causal",),
    ),
    Claim(
        "C66", "section 5.3", "The bias dominates when |i - j| is large.",
        HoldsIf(lambda tested: tested.value < 200, lambda long: long.value < 2048, "|i - j| > 2 S / alpha"),
        "At the paper's slope, content scores of size S = 1 can outweigh every distance below {long:.0f}, which "
        "includes all distances of a text of length 200",
        _dominated, {"tested": "inf", "long": "1001"},
    ),
    Claim(
        "C67", "section 5.3", "Attention focuses on local context, which prevents its dilution.",
        Holds(lambda at_200, at_50: at_200.value <= 1.1 * at_50.value),
        "At the paper's slope and equal content, attention uses {at_50:.8g} keys of 50, {at_100:.8g} of 100, "
        "{at_200:.9g} of 200, {at_2048:.10g} of 2048 and {endless:.10g} of an endless text. At slope 1/2 it uses "
        "{steep:.7g} keys of 200",
        dilution,
        {
            "at_50": "49.979185", "at_200": "198.676410", "at_100": "99.833655", "at_2048": "1247.032774",
            "endless": "1359.141141", "steep": "5.493135",
        },
        ("at_100", "at_2048", "endless", "steep"),
        "the slope is 0.002 and the lengths are those of the paper",
    ),
    Claim(
        "C68", "section 5.3", "For i, j > N the distance |i - j| extends beyond the training range.",
        Holds(lambda distance, trained: distance.value > trained.value),
        "The positions i = 51 and j = 52 have the distance {distance:.0f}, and training has distances up to "
        "{trained:.0f}",
        _neighbours, {"distance": "1", "trained": "49"},
    ),
    Claim(
        "C69", "section 5.3", "A is an attention function of three real numbers, which the paper uses with two.",
        Needs(_ARGUMENTS, _ARGUMENTS[:2]),
        "A weight depends on all scores of its row", reading=
        "only one score changes, so that A is logistic; or the whole row of a text with equal content is meant",
    ),
    Claim(
        "C70", "sections 5.3, 8", "A is Lipschitz in its bias argument (which may fail for ReLU networks).",
        Holds(lambda slope, attained, bound: slope.value <= 0.25 and attained.value <= high(bound)),
        "This holds for any network: A (1 - A) is at most {slope:.6g}. If the scores of a row move by 1, the row "
        "moves by at most tanh(1/2) = {attained:.11g} in total variation, which two keys attain (P6)",
        _softmax, {"slope": "0.2500000", "attained": "0.46211715726", "bound": "0.46211715726"},
    ),
    Claim(
        "C71", "section 5.3", "Weights beyond N stay close to the limit as |i - j| -> N.",
        Holds(lambda difference_100, near_100: 0.0 <= difference_100.value <= near_100.value),
        "This holds for a trivial reason: A_50 = {near_100:.9g} and A_99 = {far_100:.9g} cannot differ by more than "
        "A_50",
        lambda: _of_equation("difference_100", "near_100", "far_100"),
        {"difference_100": "9.31025588e-4", "near_100": "0.00997337606", "far_100": "0.00904235047"}, ("far_100",),
    ),
    Claim(
        "C72", "equation (9)", "|A(-alpha d) - A(-alpha N)| <= L_A alpha (d - N), with L_A = 1/4.", EQUATION_9,
        "With slope 0.1, three keys, N = 1 and d = 2 it fails: {difference_short:.6g} > {bound_short:.6g}. With the "
        "paper's slope it holds: {difference_100:.9g} <= {bound_100:.6g} at d = 99 and {difference_200:.9g} <= "
        "{bound_200:.6g} at d = 199. With slope 0.1 and d = 199 the difference is {difference_steep:.9g}, and the "
        "bound {bound_steep:.6g} says nothing",
        lambda: _of_equation(
            "difference_short", "bound_short", "difference_100", "bound_100", "difference_200", "bound_200",
            "difference_steep", "bound_steep",
        ),
        {
            "difference_short": "0.0316154", "bound_short": "0.02500000", "difference_100": "9.31025588e-4",
            "bound_100": "0.02450000", "difference_200": "1.41314246e-3", "bound_200": "0.07450000",
            "difference_steep": "6.41200218e-4", "bound_steep": "3.725000",
        },
        ("difference_steep", "bound_steep"),
        "the two weights are those of two keys of one row of equal content",
    ),
    Claim(
        "C73", "sections 5.3, 8", "The extrapolation error grows linearly with (d - N).", LINEAR_ERROR,
        "Only the bound does. From d = 1050 to 10050 the difference grows from {near:.6g} to {far:.6g}, and it never "
        "exceeds A_N = {ceiling:.6g} ({ceiling_200:.7g} for a text of length 200)",
        saturation,
        {"near": "1.5632e-3", "far": "1.80787e-3", "ceiling": "1.80787e-3", "ceiling_200": "5.483701e-3"},
        ("ceiling", "ceiling_200"),
    ),
    Claim(
        "C74", "section 5.3", "Attention on longer texts approximates the patterns that were learned.",
        HoldsIf(
            lambda own_200: high(own_200) < 0.05, lambda steep: high(steep) < 0.05,
            "e^(-alpha N), the share of the weight that moves beyond the trained distances, is small",
        ),
        "With equal content, {own_100:.9g} of the weight of a row lies beyond the trained distances at length 100 and "
        "{own_200:.9g} at 200. With slope 2^-8 these are {released_100:.9g} and {released_200:.9g}. With slope 1/2 it "
        "is {steep:.3g}",
        moved,
        {
            "own_100": "0.475020813", "own_200": "0.711348595", "steep": "1.388794e-11", "released_100": "0.451326506",
            "released_200": "0.672752941",
        },
        ("own_100", "released_100", "released_200"),
        "approximates means up to 5 % in total variation, with keys aligned by distance",
    ),
    Claim(
        "C75", "section 5.3", "With alpha = alpha0 / N logits differ by at most alpha0 |(d - dmax) / N|.",
        HoldsIf(
            lambda loud, bound: loud.value <= bound.value + 1e-12,
            lambda equal, bound: equal.value <= bound.value + 1e-12, "content scores are equal",
        ),
        "At d = 200, N = 50 and alpha0 = 0.1 the logits differ by {equal:.6g}, and the bound is {bound:.6g}. They "
        "differ by {loud:.6g} if the products of query and key differ by 1",
        _logits, {"bound": "0.3000000", "equal": "0.3000000", "loud": "1.300000"}, (),
        "dmax, which the paper does not define, is N",
    ),
    Claim(
        "C76", "section 5.3", "A small alpha may weaken locality bias on shorter distances.",
        Holds(lambda weak, steep: weak.value > steep.value),
        "The farthest key in training has {weak:.6g} of the weight of the nearest key; with slope 1/2 it has "
        "{steep:.3g}. For any content, the bias changes the weights of a row by at most {effect_50:.5g} (N = 50) or "
        "{effect_200:.5g} (N = 200) in total variation (P6)",
        _locality, {"weak": "0.906649", "steep": "2.289735e-11", "effect_50": "0.024495", "effect_200": "0.099173"},
        ("effect_50", "effect_200"),
    ),
)  # fmt: skip
