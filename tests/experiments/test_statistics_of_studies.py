"""Statistics of studies: intervals and tests are those of their definitions, of SciPy and of other packages."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fastpe.experiments import aggregate, comparison, statistics
from fastpe.experiments.statistics import geometric, share

NUMBERS = st.lists(st.floats(-5, 5).map(lambda x: round(x, 3)), min_size=1, max_size=8)


# One cell ------------------------------------------------------------------------------------------------------------


def test_a_geometric_mean_and_its_interval_are_scipys():
    values = [0.5, 2.0, 7.0]
    found, logs = geometric(values), stats.ttest_1samp(np.log(values), 0.0).confidence_interval(0.95)
    assert found.mean == pytest.approx(stats.gmean(values), rel=1e-14)
    assert (found.low, found.high) == pytest.approx((np.exp(logs.low), np.exp(logs.high)), rel=1e-12)
    with pytest.raises(ValueError, match="values must be positive, not 0"):
        geometric([1.0, 0.0])


@pytest.mark.parametrize("of", [1, 3, 5, 10])
def test_the_interval_of_a_share_is_exact(of):
    for count in range(of + 1):
        found, exact = share(count, of), stats.binomtest(count, of).proportion_ci(method="exact")
        assert (found.low, found.high) == pytest.approx((exact.low, exact.high), abs=1e-12)


def test_more_than_all_is_no_share():
    with pytest.raises(ValueError, match=r"count must lie in \[0, 3\], not 4"):
        share(4, 3)


# Beside a baseline ---------------------------------------------------------------------------------------------------


@given(NUMBERS)
def test_the_sign_flip_test_tries_all_signs(values):
    sums = [abs(math.fsum(s * v for s, v in zip(signs, values, strict=True)))
            for signs in itertools.product((1, -1), repeat=len(values))]  # fmt: skip
    expected = np.mean(np.array(sums) >= abs(math.fsum(values)) - 1e-9)
    assert comparison.sign_flip(values) == pytest.approx(expected, abs=1e-12)


def test_the_sign_flip_test_is_scipys():
    for number, count in enumerate((4, 8, 12)):
        values = np.random.default_rng(number).normal(0.4, 1, count)
        theirs = stats.permutation_test((values,), np.mean, permutation_type="samples", n_resamples=np.inf)
        assert comparison.sign_flip(values) == pytest.approx(theirs.pvalue, abs=1e-9)


def test_many_differences_are_drawn():
    values = np.random.default_rng(5).normal(0.5, 1, 20)
    exact = stats.ttest_1samp(values, 0).pvalue
    assert comparison.sign_flip(values) == pytest.approx(exact, rel=0.3)
    assert comparison.sign_flip(values) == comparison.sign_flip(values)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holms_adjustment(p_values):
    found = comparison.holm(p_values)
    order = np.argsort(p_values, kind="stable")
    steps = [min(1.0, (len(p_values) - rank) * p_values[place]) for rank, place in enumerate(order)]
    assert [found[place] for place in order] == pytest.approx(np.maximum.accumulate(steps).tolist())


def test_differences_are_adjusted_for_the_family():
    """Nine encodings are compared with a baseline. Tested one at a time, some would seem to differ from it."""
    base, *others = np.random.default_rng(2).normal(np.arange(10)[:, None] / 3, 1.0, (10, 10))
    found = comparison.compare_paired([(each, base) for each in others], larger_is_better=True)
    assert [each.p for each in found] == [comparison.sign_flip(each - base) for each in others]
    assert [each.adjusted for each in found] == comparison.holm([each.p for each in found])
    assert [each.verdict == "better" for each in found] == [each.adjusted <= 0.05 for each in found]
    assert sum(each.p <= 0.05 for each in found) > sum(each.adjusted <= 0.05 for each in found)


def test_the_same_encoding_under_two_names_is_not_told_apart():
    values = [0.1, 0.5, 0.7, 0.3, 0.9, 0.2]
    (found,) = comparison.compare_paired([(values, values)], larger_is_better=True)
    assert (found.verdict, found.p, found.difference.mean, found.needed) == ("inconclusive", 1.0, 0.0, None)


@pytest.mark.parametrize(("larger", "verdict"), [(True, "better"), (False, "worse")])
def test_a_clear_difference_is_better_or_worse(larger, verdict):
    base = np.random.default_rng(3).normal(0, 1, 8)
    (found,) = comparison.compare_paired([(base + 3 + 0.1 * np.arange(8), base)], larger_is_better=larger, margin=0.5)
    assert (found.verdict, found.adjusted) == (verdict, 2.0**-7)


@given(NUMBERS, st.floats(0.01, 3).map(lambda x: round(x, 3)))
def test_equivalence_tries_all_signs_at_both_ends_of_the_margin(values, margin):
    expected = []
    for shifted in ([v + margin for v in values], [margin - v for v in values]):
        sums = [math.fsum(s * v for s, v in zip(signs, shifted, strict=True))
                for signs in itertools.product((1, -1), repeat=len(values))]  # fmt: skip
        expected.append(np.mean(np.array(sums) >= math.fsum(shifted) - 1e-9))
    assert comparison.equivalence(values, margin) == pytest.approx(max(expected), abs=1e-12)
    assert comparison.equivalence([-v for v in values], margin) == pytest.approx(max(expected), abs=1e-12)


def test_the_one_sided_tests_are_scipys():
    for number, count in enumerate((4, 8, 12)):
        values = np.random.default_rng(number).normal(0.1, 1, count)
        theirs = [
            stats.permutation_test(
                (shifted,), np.mean, permutation_type="samples", n_resamples=np.inf, alternative="greater"
            ).pvalue
            for shifted in (values + 0.7, 0.7 - values)
        ]
        assert comparison.equivalence(values, 0.7) == pytest.approx(max(theirs), abs=1e-9)
    many = np.random.default_rng(5).normal(0.2, 1, 20)
    exact = stats.ttest_1samp(many, 0.7, alternative="less").pvalue
    assert comparison.equivalence(many, 0.7) == pytest.approx(exact, rel=0.5)


def test_equivalence_is_adjusted_for_the_family():
    """Nine encodings of which each by itself would be: not all of them are, as the interval alone would have it."""
    values = [0.0, 0.01, -0.01, 0.02, -0.02]
    pairs = [(values, [0.0] * 5)]
    assert comparison.compare_paired(pairs, larger_is_better=True, margin=0.1)[0].verdict == "equivalent"
    for each in comparison.compare_paired(9 * pairs, larger_is_better=True, margin=0.1):
        assert (each.within, each.verdict) == (9 / 32, "inconclusive")
        assert -0.1 < each.difference.low < each.difference.high < 0.1
    assert comparison.compare_paired(pairs, larger_is_better=True)[0].within is None


def test_a_difference_from_zero_may_lie_within_the_margin():
    values = [0.02, 0.021, 0.019, 0.02, 0.02, 0.021]
    (found,) = comparison.compare_paired([(values, [0.0] * 6)], larger_is_better=True, margin=0.05)
    assert (found.adjusted, found.within, found.verdict) == (0.03125, 0.015625, "equivalent")


@pytest.mark.parametrize("family", [1, 5])
@pytest.mark.parametrize("seeds", [8, 12])
def test_what_could_have_been_found_is_found_four_times_of_five(seeds, family):
    """By the t test that it is computed for."""
    effect = comparison.detectable(2.0, seeds, family)
    rng = np.random.default_rng(4)
    draws = rng.normal(effect, 2.0, (3000, seeds))
    found = np.mean(stats.ttest_1samp(draws, 0, axis=1).pvalue <= 0.05 / family)
    assert found == pytest.approx(0.8, abs=0.03)
    needed = comparison.seeds_needed(effect * (1 + 1e-9), 2.0, family)
    assert needed == seeds


def test_ends_of_the_number_of_seeds_needed():
    assert comparison.seeds_needed(0.0, 1.0) is None
    assert comparison.seeds_needed(1.0, 0.0, family=50) == 11  # 2^(1 - n) <= 0.05 / 50
    assert comparison.detectable(1.0, 10, family=50) is None
    assert comparison.detectable(0.0, 10) == 0.0


@pytest.mark.parametrize("values", [[], [math.nan], [math.inf, 1.0]])
def test_differences_must_be_finite_numbers(values):
    with pytest.raises(ValueError, match="differences must be finite numbers, at least one"):
        comparison.sign_flip(values)


# Across tasks --------------------------------------------------------------------------------------------------------


def test_the_interval_of_the_interquartile_mean_covers():
    """Ten tasks of their own level, five and ten seeds: 93 % and 94.5 % were measured elsewhere."""
    rng, levels = np.random.default_rng(6), np.linspace(0.1, 0.9, 10)[:, None]
    many = levels + 0.2 * (rng.random((10, 20_000)) - 0.5)
    truth = aggregate.interquartile_mean(many)
    for seeds, least in ((5, 0.87), (10, 0.9)):
        found = [aggregate.aggregate(levels + 0.2 * (rng.random((10, seeds)) - 0.5)) for _ in range(150)]
        assert least < np.mean([each.low <= truth <= each.high for each in found]) <= 1.0
    assert aggregate.aggregate(rng.random((10, 4))).low is None


def test_the_interquartile_mean_is_scipys():
    scores = np.random.default_rng(7).random((8, 5))
    assert aggregate.interquartile_mean(scores) == pytest.approx(stats.trim_mean(scores, 0.25, axis=None), rel=1e-14)


def test_improvement_is_that_of_mann_and_whitney():
    rng = np.random.default_rng(8)
    first, second = rng.integers(0, 4, (5, 6)), rng.integers(0, 4, (5, 6))
    expected = [stats.mannwhitneyu(a, b).statistic / 36 for a, b in zip(first, second, strict=True)]
    assert aggregate.improvement(first, second) == pytest.approx(np.mean(expected), rel=1e-14)
    assert aggregate.improvement(first, second) + aggregate.improvement(second, first) == pytest.approx(1.0)


@given(st.dictionaries(st.integers(1, 99), st.floats(0, 1), min_size=1), st.floats(0, 1))
def test_effective_lengths_have_no_gap(scores, threshold):
    found = aggregate.effective_length(scores, threshold)
    lengths = sorted(scores)
    if found is None:
        assert scores[lengths[0]] < threshold
    else:
        assert all(scores[length] >= threshold for length in lengths if length <= found)
        beyond = [length for length in lengths if length > found]
        assert not beyond or scores[beyond[0]] < threshold


@pytest.mark.parametrize("count", [1, 2, 5, 6, 9, 10, 20])
def test_the_interval_of_a_median_is_that_of_order_statistics(count):
    values = np.random.default_rng(count).permutation(count) + 1.0
    found = statistics.median_interval(values)
    below = np.arange(count + 1)  # of the values, where the median lies in a continuous distribution
    inside = (below >= found.low) & (below < found.high)
    assert found.coverage == pytest.approx(stats.binom.pmf(below, count, 0.5)[inside].sum(), abs=1e-12)
    theirs = stats.quantile_test(values, p=0.5).confidence_interval(0.95)
    if count < 6:
        assert (found.low, found.high) == (1, count)
        assert found.coverage < 0.95
    else:
        assert (found.low, found.high) == (theirs.low, theirs.high)
        assert found.coverage >= 0.95


def test_nothing_has_no_median():
    with pytest.raises(ValueError, match="values must hold at least one number"):
        statistics.median_interval([])


def test_a_profile_falls_from_the_share_above_nothing():
    scores = np.random.default_rng(9).random((4, 5))
    found = aggregate.profile(scores, np.linspace(0, 1, 21))
    assert (np.diff(found) <= 0).all()
    assert found[-1] == 0.0
    area = np.sum(aggregate.profile(scores, np.linspace(0, 1, 20_001))) * 5e-5
    assert area == pytest.approx(scores.mean(), abs=1e-3)


def test_critical_differences_are_the_published_ones():
    """Demsar 2006, table 5: q(0.05) of 2, 5 and 10 classifiers is 1.960, 2.728, 3.164."""
    for count, quantile in ((2, 1.960), (5, 2.728), (10, 3.164)):
        expected = quantile * math.sqrt(count * (count + 1) / (6 * 12))
        assert aggregate.critical_difference(count, 12) == pytest.approx(expected, abs=2e-3)
    assert aggregate.critical_difference(10, 9) is None
    assert aggregate.critical_difference(11, 10) is None


# Beside other packages -----------------------------------------------------------------------------------------------


def test_adjusted_p_values_and_rank_tests_are_those_of_other_packages():
    posthocs = pytest.importorskip("scikit_posthocs", reason="an oracle: pip install scikit-posthocs")
    rng = np.random.default_rng(10)
    scores = [rng.random((12, 5)) for _ in range(6)]
    means = np.array([each.mean(axis=1) for each in scores])
    ranks = aggregate.ranks(scores)
    assert ranks == pytest.approx(np.mean(stats.rankdata(-means, axis=0), axis=1))
    theirs = posthocs.posthoc_nemenyi_friedman(means.T).to_numpy()
    apart = np.abs(ranks[:, None] - ranks) > aggregate.critical_difference(6, 12)
    np.testing.assert_array_equal(apart, (theirs < 0.05) & ~np.eye(6, dtype=bool))


def test_differences_within_a_margin_are_those_of_baycomp():
    """Where the interval lies within the margin, so does nearly all of the posterior of the correlated t test of runs
    that share nothing."""
    baycomp = pytest.importorskip("baycomp", reason="an oracle: pip install baycomp")
    rng = np.random.default_rng(11)
    base = rng.normal(0.5, 0.1, 12)
    for shift, verdict in ((0.0, "equivalent"), (0.4, "better"), (-0.4, "worse")):
        values = base + shift + rng.normal(0, 0.01, 12)
        (found,) = comparison.compare_paired([(values, base)], larger_is_better=True, margin=0.05)
        left, within, right = baycomp.CorrelatedTTest.probs(base, values, rope=0.05, runs=1)
        assert found.verdict == verdict
        assert {"equivalent": within, "better": right, "worse": left}[verdict] > 0.95
