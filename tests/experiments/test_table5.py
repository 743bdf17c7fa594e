"""What Table 5 is made of: statistics, the settings that the paper leaves open, verdicts, reports."""

from dataclasses import replace

import numpy as np
import pytest
from outcomes import PAPER, summary
from running_sums import sample
from scipy import stats

from fastpe.experiments import claims, claims_report, statistics, study_report, table5, table5_facts
from fastpe.experiments.sections import as_markdown, as_text
from fastpe.experiments.study import Study
from fastpe.model.encoding import ModelEncoding
from fastpe.model.transformer import Transformer
from fastpe.tasks.frame import sequences
from fastpe.training import data
from fastpe.training.config import TrainConfig
from fastpe.training.loop import train

SMALL = TrainConfig("sinusoidal", width=8, hidden=8, train_length=5, samples=64, epochs=3, test_lengths=(5, 10))


# Statistics ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
@pytest.mark.parametrize("values", [[2.5, 3.5], [0.1, 0.25, 0.7, 0.3, 0.2], [1e9, 1e9 + 1, 1e9 + 2]])
def test_the_interval_is_scipy_s(values, confidence):
    found = statistics.estimate(values, confidence)
    theirs = stats.ttest_1samp(values, 0.0).confidence_interval(confidence)
    np.testing.assert_allclose((found.low, found.high), (theirs.low, theirs.high), rtol=1e-12)
    np.testing.assert_allclose(found.sd, stats.tstd(values), rtol=1e-12)


def test_the_paired_interval_is_scipy_s():
    first, second = [3.1, 2.9, 3.6, 3.3, 2.7], [2.0, 2.1, 2.2, 2.3, 2.9]
    found = statistics.paired_difference(first, second)
    theirs = stats.ttest_rel(first, second).confidence_interval()
    np.testing.assert_allclose((found.low, found.high), (theirs.low, theirs.high), rtol=1e-12)


def test_one_value_has_no_interval():
    assert statistics.estimate([3.0]) == statistics.Estimate(3.0, None, None, None, 1)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: statistics.estimate([]), "at least one"),
        (lambda: statistics.estimate([1.0, 2.0], 1.0), "confidence must lie in"),
        (lambda: statistics.paired_difference([1.0], [1.0, 2.0]), "equally many values, not 1 and 2"),
    ],
)
def test_statistics_say_what_is_wrong(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# Settings ------------------------------------------------------------------------------------------------------------


def test_reference_points_are_in_the_unit_of_the_targets():
    points = claims.reference_points(table5.study({"target_scale": "length"}), "causal", 50)
    assert points["zero_predictor"] == pytest.approx(25.5 / 50**2, rel=1e-12)
    assert points["reversal_bound"] == pytest.approx(12.25 / 50**2, rel=1e-12)


def test_scaled_targets_are_learned_and_tested_in_their_own_unit():
    plain = train(replace(SMALL, epochs=1, samples=8, lr=1e-12)).result["test"]["10"]
    scaled = train(replace(SMALL, epochs=1, samples=8, lr=1e-12, target_scale="train")).result["test"]["10"]
    model = Transformer(SMALL.model)
    x, y = sample(0, "test", SMALL.test_sequences, 10, np.float32, step=10)
    np.testing.assert_allclose(plain["mse"], np.mean((model(x) - y) ** 2), rtol=1e-5)
    np.testing.assert_allclose(scaled["mse"], np.mean((model(x) - y / 5) ** 2), rtol=1e-5)
    np.testing.assert_allclose(scaled["nmse"], scaled["mse"] / (5.5 / 25), rtol=1e-12)


def test_fresh_data_differ_from_epoch_to_epoch(monkeypatch):
    seen = []

    def record(chosen, stream, *rest):
        seen.append(stream.step)
        return sequences(chosen, stream, *rest)

    monkeypatch.setattr(data, "sequences", record)
    losses = {way: [line["loss"] for line in train(replace(SMALL, data=way)).history] for way in ("fixed", "fresh")}
    assert seen == [0, 0, 1, 2, 3]
    assert all(a != b for a, b in zip(losses["fixed"], losses["fresh"], strict=True))


@pytest.mark.parametrize(
    ("init", "sd"),
    [("uniform", 1 / np.sqrt(3 * 256)), ("xavier_uniform", np.sqrt(2 / 512)), ("xavier_normal", np.sqrt(2 / 512)),
     ("fan_in_normal", 1 / 16), ("small_normal", 0.02)],
)  # fmt: skip
def test_initial_weights_have_the_spread_of_their_rule(init, sd):
    model = Transformer(replace(TrainConfig("nope"), width=256, hidden=8, layers=1, init=init).model)
    weight = model.parameters["layers.0.attention.value.weight"]
    np.testing.assert_allclose(weight.std(), sd, rtol=0.02)
    np.testing.assert_allclose(weight.mean(), 0, atol=0.02 * sd)
    normal = stats.kurtosis(weight.ravel()) > -0.5  # 0 for a normal distribution, -1.2 for a uniform one
    assert normal == ("normal" in init)
    assert (model.parameters["head.bias"] == 0).all() == (init != "uniform")


@pytest.mark.parametrize(("table_scale", "norm"), [("rms", np.sqrt(32)), ("unit", 1.0)])
@pytest.mark.parametrize("scheme", ["sinusoidal", "legendre", "learned"])
def test_tables_are_rescaled_by_one_constant(scheme, table_scale, norm):
    config = table5.study({}).config_of("causal", scheme)
    plain, scaled = ModelEncoding(config.model), ModelEncoding(replace(config, table_scale=table_scale).model)
    table, before = scaled.slots(50, scaled.initial)["table"], plain.slots(50, plain.initial)["table"]
    np.testing.assert_allclose(np.sqrt(np.mean(np.sum(table.astype(float) ** 2, axis=1))), norm, rtol=1e-6)
    factor = np.abs(table).max() / np.abs(before).max()
    np.testing.assert_allclose(table, factor * before, rtol=1e-5, atol=1e-6)
    longer = scaled.slots(80, scaled.initial)["table"]
    np.testing.assert_array_equal(longer[:50], table)


def test_a_rescaled_table_that_learns_gets_the_gradient_of_what_it_is():
    """The same table, once as it is and once as a constant times another: the chain rule."""
    config = TrainConfig("learned", width=8, hidden=8, layers=1, train_length=4)
    plain, scaled = Transformer(config.model), Transformer(replace(config, table_scale="rms").model)
    name = "encoding.learned.table"
    factor = np.float32(2.0) / np.sqrt(np.sum(plain.parameters[name].astype(float) ** 2) / 4)
    plain.parameters[name][...] = factor * scaled.parameters[name]
    x, y = sample(0, "train", 3, 4)
    loss, gradients = plain.loss_and_grads(x, y)
    np.testing.assert_allclose(scaled.loss_and_grads(x, y)[0], loss, rtol=1e-5)
    expected = factor * gradients[name]
    atol = 1e-5 * np.abs(expected).max()
    np.testing.assert_allclose(scaled.loss_and_grads(x, y)[1][name], expected, rtol=1e-4, atol=atol)


def test_positions_may_start_at_one():
    base, shifted = (ModelEncoding(TrainConfig("legendre", start=start).model) for start in (0.0, 1.0))
    np.testing.assert_array_equal(shifted.slots(49, {})["table"], base.slots(50, {})["table"][1:])


def test_every_combination_is_a_variant():
    found = table5.variants(["batch=32,64", "wavelet.wavelet=db4,db2"])
    assert [list(one.varied.values()) for one in found] == [["32", "db4"], ["32", "db2"], ["64", "db4"], ["64", "db2"]]
    config = found[3].study.config_of("causal", "wavelet")
    assert (config.batch, config.options["wavelet"], config.causal) == (64, "db2", True)
    assert found[3].study.config_of("bidirectional", "alibi").options == {"alpha0": 0.1}
    assert found[3].study.config_of("bidirectional", table5.AUTHORS).options == {}
    assert [one.name for one in table5.variants([])] == ["as the paper has it"]


def test_what_is_varied_takes_the_place_of_what_the_paper_names():
    (one,) = table5.variants(["alibi.slope=0.5"])
    assert one.study.config_of("causal", "alibi").options == {"slope": 0.5}


def test_learned_rows_have_no_index_base():
    study = table5.study({"start": "1"})
    assert study.config_of("causal", "legendre").start == 1.0
    assert study.config_of("causal", "learned").start == 0.0


def test_a_study_with_claims_is_read_as_it_was_written():
    study = table5.study({"batch": "32"}, seeds=4)
    assert Study.from_toml(study.to_toml()) == study
    assert study.claims == "table5"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"claims": "table6"}, "claims must be table5, not 'table6'"),
        ({"encodings": {"wavelet": {}, "alibi": {}}, "baseline": "alibi"}, "'sinusoidal' is missing"),
        ({"tasks": {"causal": {"task": "running_sum"}}}, "'bidirectional' is missing"),
        ({"settings": {"test_lengths": [50, 100]}}, "need running_sum at the lengths 50, 100, 200"),
        ({"tasks": {key: {"task": "reverse"} for key in ("bidirectional", "causal")}}, "claims 'table5' need run"),
    ],
)
def test_claims_need_what_they_are_about(change, words):
    with pytest.raises(ValueError, match=words):
        replace(table5.study({}), **change)


# Verdicts ------------------------------------------------------------------------------------------------------------


def verdicts(study, found, reading):
    return {one["claim"]: one["verdict"] for one in claims.judge(study, found) if one["reading"] == reading}


def test_the_paper_s_own_numbers_satisfy_its_claims():
    found = verdicts(*summary(PAPER), "causal")
    assert set(found.values()) == {"holds"}
    assert len(found) == 11 + 2


def test_no_bidirectional_alibi_reaches_the_paper_s_error():
    found = verdicts(*summary(PAPER), "bidirectional")
    assert [claim for claim, verdict in found.items() if verdict == "impossible"] == [
        f"bidirectional ALiBi reaches {error:g} at {length}" for length, error in table5_facts.PAPER["alibi"].items()
    ]


def test_a_reversed_order_fails_and_an_open_one_is_open():
    worse = {**PAPER, "wavelet": {50: 0.0024, 100: 0.5, 200: 0.5}}
    found = verdicts(*summary(worse), "causal")
    assert found["wavelet is best at 100"] == found["the errors at 100"] == "does not hold"
    assert next(v for c, v in found.items() if c.startswith("the order at 200")) == "does not hold"
    same = {scheme: {50: 0.002, 100: 0.005, 200: 0.01} for scheme in PAPER}
    found = verdicts(*summary(same), "causal")
    assert found["wavelet is best at 100"] == "undecided"
    assert found["all four are nearly equal at 50"] == "holds"


def test_a_mean_far_from_the_paper_s_does_not_hold_and_a_wide_interval_decides_nothing():
    far = {**PAPER, "wavelet": {50: 0.024, 100: 0.049, 200: 0.108}}
    assert verdicts(*summary(far), "causal")["the errors at 50"] == "does not hold"
    assert verdicts(*summary(far, seeds=2, jitter=1.8), "causal")["the errors at 50"] == "undecided"


def test_intervals_of_errors_stay_above_zero():
    study, found = summary(PAPER, seeds=3, jitter=0.9)
    cell = claims.cells_at(found, "causal", 50)["wavelet"]
    assert cell["mean"]["low"] < 0 < cell["geometric"]["low"]
    assert "[-" not in as_text(claims_report.sections(study, found))


def test_few_seeds_tell_nothing_apart():
    """Of seven seeds p is 0.0156 at least, times six pairs."""
    assert verdicts(*summary(PAPER, seeds=7), "causal")["wavelet is best at 200"] == "undecided"
    study, found = summary(PAPER, seeds=1)
    assert verdicts(study, found, "causal")["wavelet is best at 200"] == "undecided"
    assert claims.cells_at(found, "causal", 50)["wavelet"]["geometric"]["low"] is None
    assert "holds 0" not in as_markdown(claims_report.sections(study, found))


def test_a_run_that_diverged_is_reported_and_the_rest_is_judged():
    study, found = summary(PAPER, failed=[("causal", "wavelet", 1)])
    assert claims.mean_of(claims.cells_at(found, "causal", 50)["wavelet"]) is None
    judged = verdicts(study, found, "causal")
    assert judged["wavelet is best at 100"] == "undecided"
    assert judged["alibi extrapolates to 100: better than answering zero, and than sinusoidal"] == "holds"
    assert any("1 of 112 runs failed" in line for line in study_report.verdict(study, found))


def test_variants_are_compared():
    variants = table5.variants(["init=uniform,small_normal"], seeds=8)
    worse = {**PAPER, "wavelet": {50: 0.0024, 100: 0.5, 200: 0.5}}

    class Found:
        def __init__(self, errors):
            self.summary = summary(errors)[1]

    told = table5.overview([(variants[0], Found(PAPER)), (variants[1], Found(worse))])
    order = "Variants with the paper's order at all lengths: init=uniform (bidirectional), init=uniform (causal)."
    assert told.lines == [order]


@pytest.mark.full("takes seconds")
def test_the_report_has_the_paper_s_numbers_beside_ours():
    study, found = summary(PAPER)
    files = study_report.files_of(study, found, [], {})
    page, words = files["report.html"].decode(), files["results.md"].decode()
    for claim in claims.judge(study, found):
        assert claim["claim"] in words
    assert "wavelet is best at 200" in page
    assert page.count("alibi, the paper") >= 2  # drawn into the plot of each reading
    assert "reversal bound" in files["task-bidirectional.svg"].decode()
    assert "reversal bound" not in files["task-causal.svg"].decode()
    assert files["task-causal.pdf"].startswith(b"%PDF")
    assert b'"verdict": "impossible"' in files["results.json"]


def test_short_runs_judge_nothing():
    study, found = summary(PAPER)
    short = replace(study, settings={**study.settings, **table5.QUICK})
    assert claims_report.facts(short, found)["verdicts"] == []
    assert claims_report.SMALL in as_text(claims_report.sections(short, found))
    assert "IMPOSSIBLE" not in as_text(claims_report.sections(short, found))
    assert "IMPOSSIBLE" in as_text(claims_report.sections(study, found))
