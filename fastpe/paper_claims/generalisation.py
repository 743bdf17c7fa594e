"""Claims of sections 4.2 and 4.3 of Li (2025), C44 to C59: effects of encodings on the capacity of models."""

from functools import cache

from fastpe.paper_claims.complexity import AT_THE_RATE, FACTORS, SAMPLES, at_the_rate, factors
from fastpe.paper_claims.expressiveness import bias_sizes, grows_by_the_slope
from fastpe.paper_claims.nominal import logit_bounds, nominal_complexity, random_rows_norm, smallest_slope, token_norms
from fastpe.paper_claims.record import Claim
from fastpe.paper_claims.rules import Holds, HoldsIf, Measured, Needs, Readings, Sentences, Values, high, low
from fastpe.paper_claims.setting import SLOPE, TRAINED, WIDTH, learned_numbers, slots, table
from fastpe.theory import biases, capacity, reach
from fastpe.theory.jacobian import attained_share
from fastpe.theory.layers import equal_layers
from fastpe.theory.lipschitz import stack_bounds
from fastpe.theory.tables import norms
from fastpe.theory.value import Value, exact


def fixed_table() -> Values:
    """Return the learned numbers and the nominal complexity that the sinusoidal table adds (C44)."""
    size = norms(table("sinusoidal"))["most"]
    return {"learned": learned_numbers("sinusoidal"), "shift": nominal_complexity(size.value, SAMPLES)}


def learned_tokens() -> Values:
    """Return token norms with the initial learned table, for B_x = 1 (C45)."""
    return token_norms("learned", slots("learned"))


def linear_class() -> Values:
    """Return the complexity of readouts of rows to which a learned vector is added, and the claimed one (C46).

    The claimed complexity is `B_w * (B_x + B_p) / sqrt(m)`.
    """
    found = capacity.shifted_complexity(table("sinusoidal")[:TRAINED])
    claimed = (float(norms(table("sinusoidal"))["most"].value) + 1.0) / TRAINED**0.5
    return {
        **factors(), "linear": found, "claimed": exact(claimed, "(B_x + B_p) / sqrt m, m = 50"),
        "signs": capacity.mean_absolute_sum(TRAINED),
    }  # fmt: skip


def _larger_tables() -> Values:
    small, large = (nominal_complexity(1.0 + each, SAMPLES) for each in (0.2, 0.4))
    return {
        "small": small, "large": large, "rows_50": random_rows_norm(50, WIDTH),
        "rows_200": random_rows_norm(200, WIDTH), "width_256": random_rows_norm(50, 256),
    }  # fmt: skip


def logits() -> Values:
    """Return the largest attained logits, the claimed C_W B_0 + B_r, and their ratios (C48)."""
    found, far = logit_bounds(9.0, 1.0), logit_bounds(900.0, 1.0)
    ratios = {
        name: exact(
            each["attained_scaled"].value / each["claimed"].value,
            "the attained logit divided by the claimed one",
            content=content,
        )
        for name, each, content in (("ratio", found, 9.0), ("ratio_far", far, 900.0))
    }
    return ratios | {"claimed": found["claimed"], "attained": found["attained"], "scaled": found["attained_scaled"]}


def _offsets() -> Values:
    return {f"k_{k}": random_rows_norm(2 * k + 1, WIDTH) for k in (16, 64)}


def _slopes() -> Values:
    released = smallest_slope(slots("alibi", 2, heads=8, slope=None))
    return {"released": released, "own": smallest_slope(slots("alibi", 2))}


@cache
def _column(length: int) -> Value:
    return biases.worst(biases.column_maxima(slots("alibi", length, slope=0.5), length, causal=False))


def lipschitz_at_lengths() -> Values:
    """Return Lipschitz constants of one layer with slope 1/2 and R = 1, and the values that the paper claims (C54).

    The constants are those of the Frobenius norm.
    """
    found: dict[str, Value] = {}
    for length in (50, 800):
        bound = stack_bounds(equal_layers(1), 1.0, colmax=_column(length).value, length=length).product
        found[f"at_{length}"] = bound
        claimed = stack_bounds(equal_layers(1), 1.0).product.value * (1.0 + 0.5 * (length - 1))
        found[f"claimed_{length}"] = exact(claimed, "L_trans (B_x + alpha (N' - 1)), B_x = 1, alpha = 1/2")
    return found | {"column": _column(800), "share": attained_share()}


_AT_LENGTHS = {
    "at_50": "4.843424", "at_800": "4.843424", "claimed_50": "114.75", "claimed_800": "1802.25", "column": "1.034686",
    "share": "0 .. 1",
}  # fmt: skip


def added_norm(name: str) -> Values:
    """Return the norm that an encoding adds to a token, and the norm that Table 2 adds to its bound (C55, C56)."""
    found = token_norms(name, slots(name, 200))
    return {
        "added": exact(found["exact"].value - 1.0, "the exact bound minus B_x = 1"), "exact": found["exact"],
        "paper": found["paper"],
    }  # fmt: skip


def dilution() -> Values:
    """Return the number of keys used in an endless text, for two slopes (C58)."""
    found = {"steep": reach.limit("alibi", slope=0.5), "gentle": reach.limit("alibi", slope=SLOPE)}
    return {name: each.perplexity for name, each in found.items() if each is not None}


def _capacities() -> Values:
    steep = lipschitz_at_lengths()
    return {"learned": learned_numbers("sinusoidal"), "at_50": steep["at_50"], "at_800": steep["at_800"]}


NOTHING_LEARNED = Holds(lambda learned: learned.value == 0.0)
GROWS_WITH_LENGTH = Holds(lambda at_800, at_50: high(at_800) > high(at_50) * (1.0 + 1e-6))
IN_THE_NORM = Holds(lambda added: low(added) > 0.0)

CLAIMS = (
    Claim(
        "C44", "section 4.2", "Sinusoidal encodings do not increase capacity beyond a bounded constant shift.",
        NOTHING_LEARNED,
        "They add {learned:.0f} learned numbers. The nominal complexity increases by {shift:.8g} at m = 10,000 and "
        "L_trans = 1",
        fixed_table, {"learned": "0", "shift": "0.05656854"}, ("shift",),
    ),
    Claim(
        "C45", "section 4.2", "|z_i| <= B_x + B_p with learned encodings.",
        Holds(lambda exact, paper: high(exact) <= paper.value),
        "For the initial table (N(0, 0.02^2), seed 0) and B_x = 1 the largest norm is {exact:.7g}, and the bound is "
        "{paper:.7g}",
        learned_tokens, {"exact": "1.181666", "paper": "1.181666"},
    ),
    Claim(
        "C46", "section 4.2", "R_m = O(L_trans (B_x + B_p) / sqrt m) with learned encodings.",
        HoldsIf(at_the_rate, lambda claimed, linear: low(claimed) >= linear.value, "the class is x -> <w, x + p>"),
        "The bound is not derived. The class contains the class of C43, whose complexity exceeds this rate by the "
        "factor {d_4:.7g} (d = 4) and {d_64:.5g} (d = 64). For linear functions the complexity is B_w (E|sum s x| + "
        "B_p E|sum s|) / m = {linear:.4g} and the bound {claimed:.6g}, with E|sum s| = {signs:.10g} at m = 50",
        linear_class,
        FACTORS | {"linear": "0.84 .. 0.86", "claimed": "0.941421", "signs": "5.613758633"},
        ("d_2", "d_3", "limit", "signs"),
    ),
    Claim(
        "C47", "section 4.2", "If B_p grows with N or d, generalisation may degrade.",
        Readings({
            "the bound degrades": Holds(lambda large, small: large.value > small.value),
            "the model degrades": Needs(("how the model's loss depends on B_p",)),
        }),
        "The nominal bound increases from {small:.6g} to {large:.6g} if B_p increases from 0.2 to 0.4. For random "
        "rows E max |p| is at most {rows_50:.6g} (50 rows) and {rows_200:.6g} (200 rows) at d = 64, and "
        "{width_256:.6g} (50 rows) at d = 256",
        _larger_tables,
        {"small": "0.01200000", "large": "0.01400000", "rows_50": "0.215943", "rows_200": "0.225105",
         "width_256": "0.375943"},
        ("rows_50", "rows_200", "width_256"),
    ),
    Claim(
        "C48", "section 4.2", "Logits with relative vectors are O(C_W B_0 + B_r).",
        Holds(lambda ratio_far, ratio: ratio_far.value <= ratio.value),
        "For z_i = z_j and unit weights the logit is {attained:.6g} (equation (5) has no factor 1/sqrt dk), or "
        "{scaled:.6g} with this factor. The claimed order is {claimed:g} at B_0 = 9, B_r = 1. The ratio increases "
        "from {ratio:.6g} to {ratio_far:.6g} at B_0 = 900, so the logit is quadratic in B_0",
        logits,
        {"ratio": "1.0125", "ratio_far": "112.37514", "claimed": "10.00000", "attained": "81.00000",
         "scaled": "10.125"},
        ("claimed", "attained", "scaled"),
    ),
    Claim(
        "C49", "section 4.2", "R_m = O(L_trans (B_x + B_r) / sqrt m) with relative encodings.",
        Needs(("L_trans", "B_x", "B_r", "|a|", "a covering argument"), ("L_trans", "B_x", "B_r"), AT_THE_RATE),
        "The bound is not derived. |a| of equation (5) is missing in it, and the norm of tokens is not bounded by B_x "
        "+ B_r (C56)",
    ),
    Claim(
        "C50", "section 4.2", "B_r typically scales with the size of the relative embedding matrix.",
        Holds(lambda k_64, k_16: 33.0 * k_64.value >= 129.0 * k_16.value),
        "For random rows it is {k_16:.6g} at K = 16 and {k_64:.6g} at K = 64, but the matrix is 3.9 times as large",
        _offsets, {"k_16": "0.212889", "k_64": "0.222353"},
    ),
    Claim(
        "C51", "section 4.2", "alpha typically lies in [0.01, 1].",
        Holds(lambda own: 0.01 <= own.value <= 1.0),
        "The released slopes of 8 heads go down to {released:.8g}, and the slope of the paper is {own:.6g}",
        _slopes, {"released": "0.00390625", "own": "0.002000000"}, ("released",),
    ),
    Claim(
        "C52", "section 4.2", "|b| <= alpha N in training.",
        Holds(lambda at_50: high(at_50) <= SLOPE * TRAINED),
        "The largest |b| is alpha (N - 1) = {at_50:.6g}", lambda: {"at_50": bias_sizes()["at_50"]},
        {"at_50": "0.09800000"},
    ),
    Claim(
        "C53", "section 4.2", "sup |b| = alpha (N' - 1) at inference.",
        Holds(grows_by_the_slope),
        "It is exactly {at_50:.6g}, {at_100:.6g} and {at_200:.6g} at the lengths 50, 100 and 200", bias_sizes,
        {"at_50": "0.09800000", "at_100": "0.1980000", "at_200": "0.3980000"},
    ),
    Claim(
        "C54", "section 4.2", "The Lipschitz constant at inference is L_trans (B_x + alpha (N' - 1)), linear in N'.",
        GROWS_WITH_LENGTH,
        "In the token norm the bias does not enter the constant; random biases attain a share of {share:.4g} of it "
        "(P5). In the Frobenius norm the bias enters only by the largest column sum, {column:.7g} at slope 1/2. The "
        "constant is {at_50:.7g} at N' = 50 and {at_800:.7g} at N' = 800, while {claimed_50:.6g} and "
        "{claimed_800:.7g} are claimed (R = 1)",
        lipschitz_at_lengths, _AT_LENGTHS, ("claimed_50", "claimed_800", "column", "share"),
    ),
    Claim(
        "C55", "Table 2", "ALiBi: |z_i| is bounded by B_x + alpha (N' - 1).", IN_THE_NORM,
        "Nothing is added to z. The bound is {exact:.6g}, and the paper says {paper:.6g} at N' = 200 and B_x = 1",
        lambda: added_norm("alibi"), {"added": "0 .. 0", "exact": "1.000000", "paper": "1.398000"}, ("exact", "paper"),
        "the encoding adds alpha (N' - 1) to the norm of a token",
    ),
    Claim(
        "C56", "Table 2", "Relative: |z_i| is bounded by B_x + B_r.", IN_THE_NORM,
        "Nothing is added to z. The bound is {exact:.6g}, and the paper says {paper:.6g} at B_x = 1",
        lambda: added_norm("shaw"), {"added": "0 .. 0", "exact": "1.000000", "paper": "2.280728"}, ("exact", "paper"),
        "the encoding adds B_r to the norm of a token",
    ),
    Claim(
        "C57", "section 4.2", "Empirically ALiBi generalises well up to several times N.", Measured(),
        "Only training can decide this",
    ),
    Claim(
        "C58", "section 4.2", "Arbitrarily long texts require alpha to be controlled: a small alpha helps.",
        Holds(lambda gentle, steep: gentle.value <= steep.value),
        "Lipschitz constants do not grow with N' (C54). To avoid dilution, alpha must be bounded from below: in an "
        "endless text attention uses {steep:.7g} keys at slope 1/2 and {gentle:.10g} at slope 0.002",
        dilution, {"steep": "5.493135", "gentle": "1359.141141"},
    ),
    Claim(
        "C59", "section 4.3", "The four bullets on generalisation hold.",
        Sentences({
            "sinusoidal: constant increase of capacity": NOTHING_LEARNED,
            "learned: hurts generalisation if B_p grows": Needs(("how the model's loss depends on B_p",)),
            "relative: B_r is often smaller": Needs(("the rows that are compared",)),
            "ALiBi: capacity grows with length": GROWS_WITH_LENGTH,
        }),
        "The sinusoidal encoding learns {learned:.0f} numbers. The constant of a layer with ALiBi is {at_50:.7g} at "
        "length 50 and {at_800:.7g} at 800. For learned and relative vectors the paper's statements are about bounds "
        "only",
        _capacities,
        {"learned": "0", "at_50": "4.843424", "at_800": "4.843424"},
    ),
)  # fmt: skip
