"""What Table 5 is made of: statistics, the settings that the paper leaves open, verdicts, reports."""

import csv
import io
import json
from dataclasses import replace

import numpy as np
import pytest
from outcomes import PAPER, outcomes
from running_sums import sample
from scipy import stats

from fastpe.experiments import claims, plot, report, statistics, table5
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
        (lambda: statistics.paired_difference([1.0], [1.0, 2.0]), "as many values, not 1 and 2"),
    ],
)
def test_statistics_say_what_is_wrong(call, words):
    with pytest.raises(ValueError, match=words):
        call()


# Settings ------------------------------------------------------------------------------------------------------------


def test_reference_points_are_in_the_unit_of_the_targets():
    points = table5.reference_points(50, replace(SMALL, target_scale="length"))
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
    config = table5.configuration(scheme, "causal", 0, {})
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
    base, shifted = (
        ModelEncoding(TrainConfig("legendre").model),
        ModelEncoding(TrainConfig("legendre", start=1.0).model),
    )
    np.testing.assert_array_equal(shifted.slots(49, {})["table"], base.slots(50, {})["table"][1:])


def test_every_combination_is_a_variant():
    found = table5.variants(["batch=32,64", "wavelet.wavelet=db4,db2"])
    assert [list(one.values()) for one in found] == [["32", "db4"], ["32", "db2"], ["64", "db4"], ["64", "db2"]]
    config = table5.configuration("wavelet", "causal", 3, found[3])
    assert (config.batch, config.options["wavelet"], config.causal, config.seed) == (64, "db2", True, 3)
    assert table5.configuration("alibi", "bidirectional", 0, found[3]).options == {"alpha0": 0.1}


def test_learned_rows_have_no_index_base():
    assert table5.configuration("legendre", "causal", 0, {"start": "1"}).start == 1.0
    assert table5.configuration("learned", "causal", 0, {"start": "1"}).start == 0.0


# Verdicts ------------------------------------------------------------------------------------------------------------


def verdicts(found, reading):
    return {one["claim"]: one["verdict"] for one in found["verdicts"] if one["reading"] == reading}


def test_the_paper_s_own_numbers_satisfy_its_claims():
    found = verdicts(table5.summary({}, outcomes(PAPER), 3), "causal")
    assert set(found.values()) == {"holds"}
    assert len(found) == 11 + 2


def test_no_bidirectional_alibi_reaches_the_paper_s_error():
    found = verdicts(table5.summary({}, outcomes(PAPER), 3), "bidirectional")
    assert [claim for claim, verdict in found.items() if verdict == "impossible"] == [
        f"bidirectional ALiBi reaches {error:g} at {length}" for length, error in claims.PAPER["alibi"].items()
    ]


def test_a_reversed_order_fails_and_an_open_one_is_open():
    worse = {**PAPER, "wavelet": {50: 0.0024, 100: 0.5, 200: 0.5}}
    found = verdicts(table5.summary({}, outcomes(worse), 3), "causal")
    assert found["wavelet is best at 100"] == found["the errors at 100"] == "does not hold"
    assert next(v for c, v in found.items() if c.startswith("the order at 200")) == "does not hold"
    same = {scheme: {50: 0.002, 100: 0.005, 200: 0.01} for scheme in PAPER}
    found = verdicts(table5.summary({}, outcomes(same), 3), "causal")
    assert found["wavelet is best at 100"] == "undecided"
    assert found["all four are nearly equal at 50"] == "holds"


def test_an_interval_too_wide_does_not_make_the_levels_hold():
    found = table5.summary({}, outcomes({**PAPER, "wavelet": {50: 0.024, 100: 0.049, 200: 0.108}}, jitter=0.9), 3)
    assert verdicts(found, "causal")["the errors at 50"] == "undecided"


def test_variants_are_compared():
    better, worse = table5.summary({"init": "uniform"}, outcomes(PAPER), 3), table5.summary({}, outcomes(PAPER, 1), 1)
    whole = {"source": "x", "quick": False, "seeds": [0, 1, 2], "variants": [worse, better]}
    assert "The paper's order comes about, at all lengths, with: init=uniform (bidirectional), init=uniform" in (
        report.markdown(whole)
    )


def test_one_seed_decides_nothing_that_needs_an_interval():
    found = table5.summary({}, outcomes(PAPER, seeds=1), 1)
    assert verdicts(found, "causal")["wavelet is best at 200"] == "undecided"
    assert found["rows"][0]["mse"]["low"] is None


def test_a_run_that_diverged_is_reported_and_the_rest_is_judged():
    given = outcomes(PAPER)
    given["wavelet", "causal", 1] = {"failed": "the loss became infinite"}
    found = table5.summary({}, given, 3)
    row = next(row for row in found["rows"] if (row["encoding"], row["reading"]) == ("wavelet", "causal"))
    assert row["mse"] is None
    assert row["reason"] == "1 of 3 seeds have no result: the loss became infinite"
    assert verdicts(found, "causal")["wavelet is best at 100"] == "undecided"
    whole = {"source": "x", "quick": False, "seeds": [0, 1, 2], "variants": [found]}
    assert "1 of 3 seeds have no result" in report.text(whole)
    assert set(plot.draw(found, "x")) == {"png", "pdf"}


def test_tables_agree_in_all_formats():
    found = {"source": "x", "quick": True, "seeds": [0, 1, 2], "variants": [table5.summary({}, outcomes(PAPER), 3)]}
    rows = found["variants"][0]["rows"]
    lines = list(csv.DictReader(io.StringIO(report.rows_csv(found))))
    assert [float(line["mse"]) for line in lines] == [row["mse"]["mean"] for row in rows]
    assert json.loads(report.as_json(found)) == found
    assert len(list(csv.DictReader(io.StringIO(report.differences_csv(found))))) == 2 * 3 * 21
    for made in (report.text(found), report.markdown(found)):
        assert made.count("QUICK VERSION") >= 2
        assert "[0.01053, 0.01107]" in made  # wavelet at 200: 0.0108 ± 4.303 * 0.000108 / sqrt(3)
    assert all(one["name"] in report.markdown(found) for one in found["variants"][0]["settings"])
