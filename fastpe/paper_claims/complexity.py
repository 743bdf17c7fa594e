"""Claims of sections 4.1 and 4.2 of Li (2025), C33 to C43: Rademacher complexities and Lipschitz constants."""

from functools import cache

from fastpe.paper_claims.nominal import token_norms
from fastpe.paper_claims.record import Claim
from fastpe.paper_claims.rules import Holds, HoldsIf, Needs, Quoted, Values, high, low
from fastpe.paper_claims.setting import TRAINED, WIDTH, slots, table
from fastpe.theory import capacity, gaps
from fastpe.theory.jacobian import unbounded_example
from fastpe.theory.layers import equal_layers
from fastpe.theory.lipschitz import stack_bounds
from fastpe.theory.tables import norms
from fastpe.theory.value import Value, exact

SAMPLES = 10_000
_READ_OUT = ("sinusoidal", "legendre", "wavelet")
_COMPLEXITY = ("class", "sample", "signs", "supremum", "mean")


def _read_outs() -> Values:
    """Return the complexity of linear readouts of ten rows, over all 2^10 choices of signs, and bounds on it."""
    found = {name: capacity.readout_complexity(table(name)[:10]) for name in _READ_OUT}
    return found | {f"{name}_bounds": capacity.readout_bounds(table(name)[:10]) for name in _READ_OUT}


def _within_bounds(
    sinusoidal: Value, sinusoidal_bounds: Value, legendre: Value, legendre_bounds: Value, wavelet: Value,
    wavelet_bounds: Value,
) -> bool:  # fmt: skip
    pairs = ((sinusoidal, sinusoidal_bounds), (legendre, legendre_bounds), (wavelet, wavelet_bounds))
    return all(low(bounds) <= complexity.value <= high(bounds) for complexity, bounds in pairs)


def _right_sides() -> Values:
    """Return the terms that eq. (8) adds to the mean loss, for the readouts of least and of largest complexity."""
    rest = gaps.slack(SAMPLES)["printed"].value
    small, large = (capacity.readout_complexity(table(name)[:10]) for name in ("wavelet", "sinusoidal"))
    why = "2 R + 3 sqrt(ln(2/delta) / 2m)"
    return {
        "small": small, "large": large, "of_small": exact(2.0 * small.value + rest, why, samples=SAMPLES),
        "of_large": exact(2.0 * large.value + rest, why, samples=SAMPLES),
    }  # fmt: skip


def _grow_together(small: Value, large: Value, of_small: Value, of_large: Value) -> bool:
    return small.value < large.value and of_small.value < of_large.value


def _slack() -> Values:
    shorter = gaps.slack(1000)
    return gaps.slack(SAMPLES) | {
        "loss": gaps.zero_predictor_loss(TRAINED), "printed_1000": shorter["printed"], "valid_1000": shorter["valid"],
    }  # fmt: skip


def _slopes() -> Values:
    return {f"at_{radius}": unbounded_example(float(radius)) for radius in (1, 10, 100, 1000)}


def _other_sizes() -> Values:
    wide, narrow = (stack_bounds(equal_layers(1, head_width=width), 9.0).product for width in (64, 16))
    return {
        "radius_1": unbounded_example(1.0), "radius_10": unbounded_example(10.0), "width_64": wide, "width_16": narrow,
    }  # fmt: skip


def _powers() -> Values:
    """Return the constant of two layers, and the square of the first layer's, both with and without residuals."""
    found: dict[str, Value] = {}
    for name, residual in (("growing", True), ("level", False)):
        bounds = stack_bounds(equal_layers(2, residual=residual), 9.0)
        found[name] = bounds.product
        found[f"{name}_power"] = exact(bounds.layers[0].value ** 2, "L_layer^2 of the first layer", radius=9.0)
        exact_radius = stack_bounds(equal_layers(2, residual=residual), 1.0 + 32.0**0.5)
        found[f"{name}_exact"] = exact_radius.product
    return found


def _norms() -> Values:
    return {"most": norms(table("sinusoidal"))["most"], "least": norms(table("sinusoidal"))["least"]}


def tokens() -> Values:
    """Return token norms with the sinusoidal encoding, for B_x = 1 (C42)."""
    return token_norms("sinusoidal", slots("sinusoidal"))


@cache
def _factor(width: int) -> Value:
    return capacity.nuclear_complexity(width)["factor"]


def factors() -> Values:
    """Return the complexity of a single map of norm at most 1, divided by B / sqrt(m) (P10, C43)."""
    return {f"d_{width}": _factor(width) for width in (4, 64, 2, 3)} | {
        "limit": capacity.nuclear_complexity(64)["limit"]
    }


FACTORS = {
    "d_4": "1.689851", "d_64": "6.78 .. 6.81", "d_2": "1.207107", "d_3": "1.460582", "limit": "6.790611",
}  # fmt: skip
GROWTH = 3.0  # ln 64^2 / ln 4^2: the factor by which the logarithm of a map's size, d^2, grows from d = 4 to 64


def at_the_rate(d_4: Value, d_64: Value) -> bool:
    """Return whether the complexity divided by B / sqrt(m) grows no faster than the logarithm of the map's size."""
    return low(d_64) <= GROWTH * high(d_4)


AT_THE_RATE = Holds(at_the_rate)

CLAIMS = (
    Claim(
        "C33", "equation (7)", "Equation (7) defines the empirical Rademacher complexity.",
        Holds(_within_bounds),
        "This is a definition. For readouts |w| <= 1 of ten rows, with all choices of signs, it is {sinusoidal:.10g} "
        "(sinusoidal), {legendre:.9g} (Legendre) and {wavelet:.9g} (wavelet). Each lies within the bounds of "
        "Khintchine and Jensen",
        _read_outs,
        {
            "sinusoidal": "1.577573448", "legendre": "0.4214258", "wavelet": "0.312914724",
            "sinusoidal_bounds": "1.526883", "legendre_bounds": "0.398529", "wavelet_bounds": "0.269917",
        },
    ),
    Claim(
        "C34", "section 4.1", "A smaller Rademacher complexity implies tighter generalisation bounds.",
        Holds(_grow_together),
        "The right side of (8) grows with the complexity: complexities of {small:.6g} and {large:.6g} give "
        "{of_small:.6g} and {of_large:.6g}",
        _right_sides, {"small": "0.312914724", "large": "1.577573448", "of_small": "0.6665725", "of_large": "3.1959"},
    ),
    Claim(
        "C35", "equation (8)", "With probability 1 - delta the loss is at most its mean on the sample + 2 R_m + slack.",
        HoldsIf(
            lambda loss, printed, valid: loss.value <= 1.0 and printed.value >= valid.value,
            lambda printed, valid: printed.value >= valid.value, "the loss lies in [0, 1]",
        ),
        "The slack belongs to the empirical complexity: it is {printed:.9g}, while {valid:.9g} is enough with the "
        "expected complexity (m = 10,000, delta = 0.05; for m = 1000: {printed_1000:.9g} and {valid_1000:.9g}). The "
        "squared errors of the paper are not in [0, 1]: always answering 0 has the mean error {loss:.6g}",
        _slack,
        {
            "printed": "0.0407430455", "valid": "0.0122387342", "loss": "25.50000", "printed_1000": "0.1288408225",
            "valid_1000": "0.0387022756",
        },
        ("printed_1000", "valid_1000"),
    ),
    Claim(
        "C36", "sections 4.1, 7", "Equation (8) applies to the paper's squared errors.",
        Needs(("loss", "a bound M of the loss"), ("loss",)),
        "Always answering 0 for running sums of normal numbers has the mean loss {loss:.6g}, and the loss has no "
        "bound. A valid bound needs losses clipped at M and the slack multiplied by M",
        lambda: {"loss": gaps.zero_predictor_loss(TRAINED)}, {"loss": "25.50000"}, ("loss",),
    ),
    Claim(
        "C37", "equation (8)", "The loss has to be Lipschitz in its first argument.",
        Quoted(
            {"values": "in [0, 1]", "sample": "independent", "loss": "Lipschitz"},
            {"values": "in [0, 1]", "sample": "independent"}, "Bartlett and Mendelson 2002, Theorem 8",
        ),
        "This is needed only to derive the complexity of the losses from the complexity of the functions",
    ),
    Claim(
        "C38", "section 4.2", "Each layer is Lipschitz in its input if |W| <= C_W.",
        Holds(lambda at_1000, at_100: at_1000.value <= at_100.value),
        "For tokens 0, R, -R and unit weights, d out_0 / d z_0 = 1/3 + 2 R^2/3 is {at_1:.6g}, {at_10:.6g}, "
        "{at_100:.6g} and {at_1000:.6g} at R = 1, 10, 100 and 1000. So it has no bound (Kim, Papamakarios, Mnih 2021)",
        _slopes, {"at_1": "1.000000", "at_10": "67.00000", "at_100": "6667.0", "at_1000": "666667.0"}, ("at_1",
        "at_10"),
    ),
    Claim(
        "C39", "section 4.2", "L_layer depends on C_W and H alone.",
        Holds(lambda radius_1, radius_10: radius_1.value == radius_10.value),
        "With the same weights the slope is {radius_1:.6g} for tokens of norm 1 and {radius_10:.6g} for tokens of "
        "norm 10. The bound of P5 also depends on dk: it is {width_64:.6g} at dk = 64 and {width_16:.6g} at dk = 16",
        _other_sizes, {"radius_1": "1.000000", "radius_10": "67.00000", "width_64": "44.50000", "width_16": "85.00000"},
        ("width_64", "width_16"),
    ),
    Claim(
        "C40", "section 4.2", "L_trans = L_layer^L.",
        HoldsIf(
            lambda growing, growing_power: growing.value <= growing_power.value * (1.0 + 1e-12),
            lambda level, level_power: level.value <= level_power.value * (1.0 + 1e-12),
            "the radius of the ball that holds the tokens does not grow from layer to layer, as without residuals at "
            "C_W = 1",
        ),
        "Two layers on tokens of norm R = 9 with residuals have the constant {growing:.9g}, but L_layer^2 = "
        "{growing_power:.9g}. Without residuals these are {level:.9g} and {level_power:.9g}. For R = 1 + sqrt 32 the "
        "constants are {growing_exact:.10g} with and {level_exact:.9g} without residuals",
        _powers,
        {
            "growing": "29014", "growing_power": "1980.25", "level": "451.5625", "level_power": "451.5625",
            "growing_exact": "9377.485133", "level_exact": "145.888402",
        },
        ("growing_exact", "level_exact"),
    ),
    Claim(
        "C41", "section 4.2", "|PE(i)| <= sqrt d for the sinusoidal encoding.",
        Holds(lambda most: high(most) <= WIDTH**0.5),
        "Every row has norm sqrt(d/2) = {most:.10g} (the smallest is {least:.10g}), so the bound is loose by a factor "
        "of sqrt 2",
        _norms, {"most": "5.656854249", "least": "5.656854249"}, ("least",),
    ),
    Claim(
        "C42", "section 4.2", "|z_i| <= B_x + sqrt d = B_0.",
        Holds(lambda exact, paper: high(exact) <= paper.value),
        "With B_x = 1 the largest norm is {exact:.10g}, and the bound is {paper:.6g}",
        tokens, {"exact": "6.656854249", "paper": "9.000000"},
    ),
    Claim(
        "C43", "section 4.2", "R_m = O(L_trans B_0 / sqrt m) up to logarithmic factors in model size.",
        AT_THE_RATE,
        "On m = d^2 inputs on a grid, the complexity of one map of spectral norm at most 1 exceeds B / sqrt m by the "
        "factor {d_2:.7g}, {d_3:.7g} and {d_4:.7g} for d = 2, 3 and 4 (all choices of signs) and {d_64:.5g} for d = "
        "64. The factor approaches (8 / 3 pi) sqrt d, which is {limit:.7g} at d = 64 (P10). A logarithm of d^2 only "
        "grows by a factor of 3 from d = 4 to 64",
        factors, FACTORS, ("d_2", "d_3", "limit"),
        "the class has all weights of bounded spectral norm, as stated",
    ),
)  # fmt: skip
