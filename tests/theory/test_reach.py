"""How far attention reaches by the bias alone, in closed form where there is one, and certified windows."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy as scipy_entropy

import fastpe
from fastpe.theory import biases, reach
from fastpe.theory.decay import decay_of, head_parameters

LONG = 65536
DISTANCES = np.arange(float(LONG))


def test_reach_of_a_query_in_the_middle():
    distances = np.abs(np.arange(101) - 50)
    found = reach.reaches(-0.3 * distances[None], distances=distances, train_length=20)[0]
    shares = np.exp(-0.3 * distances) / np.exp(-0.3 * distances).sum()
    assert found.perplexity.value == pytest.approx(math.exp(scipy_entropy(shares)), rel=1e-12)
    assert found.beyond.value == pytest.approx(shares[distances >= 20].sum(), rel=1e-12)
    window = found.window.value
    assert shares[distances < window].sum() >= 0.99 > shares[distances < window - 1].sum()


def test_heads_one_by_one_and_a_length_of_one():
    slots = fastpe.build("alibi", 300, heads=8, dtype="float64")
    found = reach.reaches(biases.last_row(slots, 300))
    assert [each.perplexity.inputs["head"] for each in found] == list(range(8))
    assert all(a.perplexity.value < b.perplexity.value for a, b in itertools.pairwise(found))
    single = reach.reaches(np.zeros((1, 1)), train_length=1)[0]
    assert (single.perplexity.value, single.window.value, single.beyond.value) == (1.0, 1.0, 0.0)


def test_curves_over_length():
    curves = reach.reach_over_length(lambda n: np.stack([-0.002 * np.arange(n), np.zeros(n)]), (1, 50, 200), 50)
    assert curves["perplexity"][0] == pytest.approx((1.0, 49.979185, 198.676410), rel=1e-6)
    assert curves["perplexity"][1] == pytest.approx((1, 50, 200), rel=1e-12)
    assert curves["beyond"][1] == pytest.approx((0, 0, 0.75), abs=1e-12)
    assert curves["window"].shape == (2, 3)


def test_wrong_rows_and_distances_are_refused():
    with pytest.raises(ValueError, match=r"rows must have shape \(heads, n\), not \(3,\)"):
        reach.reaches(np.zeros(3))
    with pytest.raises(ValueError, match=r"distances must have shape \(3,\), not \(2,\)"):
        reach.reaches(np.zeros((1, 3)), distances=np.arange(2))
    with pytest.raises(ValueError, match="rows must be finite"):
        reach.reaches(np.full((1, 3), np.nan))


# ---------------------------------------------------------------------------------------------------------------------
# Limits


def summed(bias, length=2**19):
    """Total and moment by brute force."""
    row = bias(np.arange(float(length)))
    return math.fsum(np.exp(row)), math.fsum(np.exp(row) * -row)


FINITE = [
    ("alibi", {"slope": 0.002}, lambda d: -0.002 * d),
    ("alibi", {"slope": 0.5}, lambda d: -0.5 * d),
    ("kerple_log", {"r1": 6.0, "r2": 0.3}, lambda d: -6.0 * np.log1p(0.3 * d)),
    ("kerple_power", {"a": 1.0, "p": 1.0}, lambda d: -d),
    ("kerple_power", {"a": 0.1, "p": 0.5}, lambda d: -0.1 * np.sqrt(d)),
    ("kerple_power", {"a": 0.01, "p": 2.0}, lambda d: -0.01 * d**2),
    ("kerple_power", {"a": 3.0, "p": 0.2}, lambda d: -3.0 * d**0.2),
]


@pytest.mark.parametrize(("scheme", "parameters", "bias"), FINITE)
@pytest.mark.parametrize("both_sides", [False, True])
def test_limits_against_long_sums(scheme, parameters, bias, both_sides):
    row = bias(np.arange(2.0**19))
    if both_sides:
        row = np.concatenate([row[:0:-1], row])
    shares = np.exp(row) / math.fsum(np.exp(row))
    distances = np.abs(np.arange(len(row)) - (len(row) // 2 if both_sides else 0))
    found = reach.limit(scheme, train_length=50, both_sides=both_sides, **parameters)
    assert found.perplexity.value == pytest.approx(math.exp(scipy_entropy(shares)), rel=1e-9)
    assert found.beyond.value == pytest.approx(shares[distances >= 50].sum(), rel=1e-9)
    window = found.window.value
    assert shares[distances < window].sum() >= 0.99 > shares[distances < window - 1].sum()


@pytest.mark.parametrize("power", [0.3, 0.7, 1.3])
@pytest.mark.parametrize("far", [0, 900, 10**6])
def test_sums_of_powers_step_by_their_terms(power, far):
    """Each tail less the next is the term between, however far: nothing is lost between terms and integral."""
    decay, _ = decay_of("kerple_power", a=0.02, p=power)
    step = decay.tail(far) - decay.tail(far + 1)
    assert float(step) == pytest.approx(math.exp(-0.02 * far**power), rel=1e-8)


def test_reach_of_alibi_has_its_closed_form():
    """C67, and both sides of ALiBi: ln coth(a/2) + a / sinh a."""
    found = reach.limit("alibi", slope=0.002)
    alpha = 0.002
    assert found.perplexity.value == pytest.approx(
        math.exp(alpha / math.expm1(alpha) - math.log(-math.expm1(-alpha))), rel=1e-12
    )
    assert found.perplexity.value == pytest.approx(1359.141141, abs=5e-7)
    both = reach.limit("alibi", slope=0.7, both_sides=True)
    assert math.log(both.perplexity.value) == pytest.approx(-math.log(math.tanh(0.35)) + 0.7 / math.sinh(0.7))
    sides = decay_of("alibi", slope=0.7)[0].both_sides()
    assert float(sides.tail(0)) == pytest.approx(float(sides.total), rel=1e-15)
    assert reach.limit("kerple_log", r1=2.0, r2=1.0).window.value == 61


def test_whether_the_reach_is_finite():
    """Q7: ALiBi yes; KERPLE-power yes; KERPLE-log iff r1 > 1; Sandwich, T5, NoPE no."""
    for scheme, parameters in (
        ("alibi", {"slope": 1e-6}), ("kerple_power", {"a": 0.01, "p": 0.01}), ("kerple_log", {"r1": 1.0001, "r2": 1.0}),
        ("wavelet+alibi", {"slope": 0.1}),
    ):  # fmt: skip
        assert decay_of(scheme, **parameters)[1].startswith("finite: ")
    for scheme, parameters in (
        ("alibi", {"slope": 0.0}), ("alibi", {"slope": -1.0}), ("alibi", {"slope": 0.5, "schedule": "log"}),
        ("kerple_log", {"r1": 1.0, "r2": 0.5}), ("sandwich", {}), ("t5", {}), ("nope", {}), ("rope", {}),
        ("t5+sandwich", {}), ("da", {}), ("fire", {}),
    ):  # fmt: skip
        found = reach.limit(scheme, train_length=50, **parameters)
        assert found.perplexity.why.startswith("infinite: ")
        assert (found.perplexity.value, found.window.value, found.beyond.value) == (math.inf, math.inf, 1.0)
    assert reach.limit("alibi+t5", slope=0.5) is None


def test_every_encoding_of_the_registry_has_an_answer():
    """But for the network that may fall or grow without bound, as it has learned."""
    needed = {"alibi": {"slope": 0.5}, "kerple_log": {"r1": 2.0, "r2": 1.0}, "kerple_power": {"a": 1.0, "p": 1.0}}
    needed |= {"hard_alibi": {"seen": 3}}
    for scheme in fastpe.list_encodings():
        assert reach.limit(scheme, **needed.get(scheme, {})) is not None or scheme == "dynamic_bias", scheme


@pytest.mark.full("takes seconds")
def test_very_long_reaches_are_huge_or_infinite():
    found = reach.limit("kerple_log", r1=1.01, r2=0.01)
    assert found.perplexity.value > 1e40
    assert found.window.value > 1e200
    assert decay_of("kerple_power", a=0.01, p=0.01)[0].perplexity() == math.inf


def test_reach_of_hard_alibi_ends_at_its_window():
    """A window of three keys in an endless text, and none; the windows of hard-ALiBi are read off its bias."""
    found = reach.limit("hard_alibi", train_length=2, seen=3)
    assert (found.perplexity.value, found.window.value) == (pytest.approx(3.0, rel=1e-15), 3.0)
    assert found.beyond.value == pytest.approx(1 / 3, rel=1e-15)
    assert reach.limit("hard_alibi", seen=math.inf).window.value == math.inf
    bias = fastpe.build("hard_alibi", 9, heads=4, masked=3, causal=True)
    assert [each["seen"] for each in head_parameters("hard_alibi", bias, {})] == [1, 2, 3, math.inf]
    with pytest.raises(ValueError, match="seen must be at least 1, not 0"):
        decay_of("hard_alibi", seen=0)


def test_parameters_of_heads():
    slots = fastpe.build("alibi", 100, heads=2, train_length=50, schedule="linear", dtype="float64")
    assert head_parameters("alibi", slots, {}) == [{"slope": 2.0**-5}, {"slope": 2.0**-9}]
    params = {"r1": np.array([2.0, 0.001]), "r2": np.array([1.0, 0.5])}
    assert head_parameters("kerple_log", {}, params) == [{"r1": 2.0, "r2": 1.0}, {"r1": 0.001, "r2": 0.5}]
    assert head_parameters("t5", {}, {}) == [{}]
    with pytest.raises(ValueError, match="must be built for at least 2 positions"):
        head_parameters("alibi", fastpe.build("alibi", 1), {})
    with pytest.raises(ValueError, match=r"'kerple_log' needs the parameters \['r1', 'r2'\] of one head, not \['r1'\]"):
        decay_of("kerple_log", r1=2.0)
    with pytest.raises(ValueError, match=r"'t5' takes no parameters here, not \['slope'\]"):
        decay_of("t5", slope=2.0)
    with pytest.raises(ValueError, match="slope must be finite, not nan"):
        decay_of("alibi", slope=math.nan)


def test_parameters_of_kerple_give_the_sums_of_its_built_bias():
    """The clamps too."""
    for scheme, params in (
        ("kerple_log", {"r1": [2.0, 0.001], "r2": [1e-4, 0.5]}), ("kerple_power", {"a": [0.3, 1e-3], "p": [3.0, 1.0]}),
    ):  # fmt: skip
        values = {name: np.array(each) for name, each in params.items()}
        slots = fastpe.build(scheme, 4096, heads=2, dtype="float64", params=values)
        rows = biases.last_row(slots, 4096)
        for row, parameters in zip(rows, head_parameters(scheme, slots, values), strict=True):
            decay, _ = decay_of(scheme, **parameters)
            if decay is not None:
                assert float(decay.total - decay.tail(4096)) == pytest.approx(np.exp(row).sum(), rel=1e-9)


# ---------------------------------------------------------------------------------------------------------------------
# Windows

SLOPES = [2.0**-h for h in range(1, 9)] + [0.002]


@pytest.mark.parametrize(
    ("tolerance", "content", "windows"),
    [
        (2.0**-24, 0, (33, 66, 133, 266, 532, 1064, 2129, 4258, 8317)),
        (2.0**-24, 5, (53, 106, 213, 426, 852, 1704, 3409, 6818, 13317)),
        (2.0**-8, 0, (11, 22, 44, 88, 177, 354, 709, 1419, 2772)),
        (0.01, 0, (9, 18, 36, 73, 147, 294, 589, 1178, 2302)),
    ],
)
def test_certified_windows_of_alibi(tolerance, content, windows):
    """Q8; a long finite row needs the same."""
    found = [reach.endless_window("alibi", tolerance, content, slope=slope).value for slope in SLOPES]
    assert tuple(found) == windows
    for slope, window in zip(SLOPES, windows, strict=True):
        assert reach.certified_window(-slope * DISTANCES, tolerance, content).value == window


def test_endless_windows_without_end():
    assert reach.endless_window("t5", 0.01).high == math.inf
    assert reach.endless_window("alibi", 0.01, slope=0.0).high == math.inf
    assert reach.endless_window("alibi", 1e-9, 500.0, slope=0.5).value == math.ceil((1000 - math.log(1e-9)) / 0.5) - 1
    for wrong in (0.0, 1.0, -1.0, math.nan):
        with pytest.raises(ValueError, match="tolerance must"):
            reach.endless_window("alibi", wrong, slope=0.5)


@given(
    st.integers(2, 30), st.integers(0, 28), st.floats(0.0, 3.0), st.booleans(), st.integers(0, 2**32),
)  # fmt: skip
def test_dropped_weight_is_never_exceeded_and_attained(length, window, content, both_sides, seed):
    """P7."""
    rng = np.random.default_rng(seed)
    row = rng.standard_normal(length) * 2.0
    bound = reach.dropped_weight(row, window, content, both_sides=both_sides).high
    distances = np.abs(np.arange(1 - length, length)) if both_sides else np.arange(length)
    far = distances > window
    for _ in range(20):
        scores = row[distances] + rng.uniform(-content, content, len(distances))
        assert np.exp(scores)[far].sum() / np.exp(scores).sum() <= bound
    scores = row[distances] + np.where(far, content, -content)
    assert np.exp(scores)[far].sum() / np.exp(scores).sum() == pytest.approx(bound, rel=1e-12)


@given(st.integers(1, 40), st.floats(0.001, 0.9), st.floats(0.0, 2.0), st.booleans(), st.integers(0, 2**32))
def test_the_certified_window_is_the_least(length, tolerance, content, both_sides, seed):
    row = np.random.default_rng(seed).standard_normal(length) * 2.0
    window = int(reach.certified_window(row, tolerance, content, both_sides=both_sides).value)
    assert reach.dropped_weight(row, window, content, both_sides=both_sides).high <= tolerance
    if window:
        assert reach.dropped_weight(row, window - 1, content, both_sides=both_sides).high > tolerance * (1 - 1e-9)


def test_no_query_drops_more_than_the_endless_text():
    for both_sides in (False, True):
        window = int(reach.endless_window("alibi", 0.01, 1.0, slope=0.25, both_sides=both_sides).value)
        row = -0.25 * np.arange(400.0)
        for place in (0, 1, window, window + 1, 200, 399):
            offsets = np.arange(400) - place if both_sides else np.arange(-place, 1)
            distances = np.abs(offsets)
            scores = row[distances] + np.where(distances > window, 1.0, -1.0)
            assert np.exp(scores)[distances > window].sum() <= 0.01 * np.exp(scores).sum()
