"""What `fastpe bench frameworks` compares with, checks before it times, and prints. No test here looks at a timing."""

import contextlib
import json
from dataclasses import replace

import numpy as np
import pytest
from bench_checks import TORCH, TRANSFORMERS, needs_torch, silent

from fastpe.benchmarks import decoding, features, framework_cases, frameworks, jobs, turns
from fastpe.benchmarks.attention_cases import BOTH, FORWARD, Problem
from fastpe.benchmarks.figures import WrongResult, goals_in
from fastpe.functional import decode

SMALL = Problem(70, heads=2, width=16)


def asked(**changed):
    return {"way": "fastpe", "kind": "packed", "length": 70, "part": FORWARD, "threads": 2} | changed


# ---------------------------------------------------------------------------------------------------------------------
# Features


@pytest.mark.parametrize("name", features.FEATURES)
def test_features_are_right_before_they_are_timed(name):
    found = features.errors(name, SMALL)
    assert {"out", "q", "k", "v"} <= set(found)
    assert ("sinks" in found) is (name == "sinks")
    assert max(found.values()) < 2e-5


@pytest.mark.parametrize("name", sorted(set(features.FEATURES) - {features.PLAIN}))
def test_features_change_what_is_computed(name):
    dout = features.inputs(features.PLAIN, SMALL)[3]
    plain, _ = features.calls(features.PLAIN, SMALL, exact=True).both(dout)
    own, gradients = features.calls(name, SMALL, exact=True).both(features.inputs(name, SMALL)[3])
    same = own.shape == plain.shape and np.allclose(own, plain)
    assert same is (name in ("spans", "lse"))  # these cost alone
    if name == "lse":
        assert not np.allclose(gradients["q"], features.calls(features.PLAIN, SMALL, exact=True).both(dout)[1]["q"])


def test_a_wrong_feature_is_not_timed(monkeypatch):
    right = features.attention_vjp

    def wrong(*arguments, **settings):
        out, pullback = right(*arguments, **settings)
        return out, lambda dout: {name: 1.001 * gradient for name, gradient in pullback(dout).items()}

    monkeypatch.setattr(features, "attention_vjp", wrong)
    with pytest.raises(WrongResult, match=r"fastpe, softcap, Problem.*: q is off by 0\.001"):
        jobs.feature("softcap", 64, BOTH, 2)


# ---------------------------------------------------------------------------------------------------------------------
# Beside the peers


def test_results_that_differ_are_seen():
    right = framework_cases.sampled([np.linspace(-1, 1, 1000), np.ones(5)])
    assert framework_cases.disagreement(right, right) is None
    assert framework_cases.disagreement(right[:1], right) == "1 results, but should be 2"
    off = framework_cases.sampled([np.linspace(-1, 1, 1000), np.full(5, 1.001)])
    assert framework_cases.disagreement(off, right).startswith("result 1 is off by 0.001 of the largest entry, bound")
    nothing = framework_cases.sampled([np.full(1000, np.nan), np.ones(5)])
    assert framework_cases.disagreement(nothing, right).startswith("result 0 is off by nan")


def test_entries_are_of_many_rows_and_columns():
    (found,) = framework_cases.sampled([np.arange(512.0 * 64)])
    places = np.array(found["entries"]).astype(int)
    assert found["largest"] == 512 * 64 - 1
    assert (len(set(places // 64)), len(set(places % 64))) == (509, 64)


def test_a_difference_ends_the_measuring(monkeypatch):
    case = frameworks.Case("Llama", "llama", (64,), {"sdpa": {FORWARD: 1.0}})
    right = framework_cases.sampled([np.ones(9)])
    wrong = framework_cases.sampled([np.full(9, 1.5)])

    def made_up(way, results, absent=None):
        return turns.Candidate(way, None, "framework", {}, absent, {"results": results})

    found = {("fastpe", FORWARD): made_up("fastpe", wrong), ("sdpa", FORWARD): made_up("sdpa", right)}
    with pytest.raises(WrongResult, match=r"Llama, N 64, forward: fastpe differs from sdpa: result 0 is off by 0\.5"):
        frameworks._check(case, 64, found)
    frameworks._check(case, 64, found | {("sdpa", FORWARD): made_up("sdpa", None, "not installed")})


@needs_torch
@pytest.mark.parametrize("kind", ["packed", "alibi"])
def test_attention_alone_is_that_of_pytorch(kind, monkeypatch):
    monkeypatch.setattr(framework_cases, "DOCUMENT", 20)
    for part in (FORWARD, BOTH):
        found, right = (framework_cases.call(kind, 70, way, part, 1)() for way in ("fastpe", "sdpa"))
        assert len(found) == (1 if part == FORWARD else 4)
        assert found[0].shape[2] == 70
        assert framework_cases.disagreement(*map(framework_cases.sampled, (found, right))) is None


@pytest.mark.skipif(not TRANSFORMERS, reason="transformers is a peer: pip install -e '.[peers]'")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "way"),
    [("bloom", "eager"), ("t5", "eager"), ("t5", "sdpa"), ("mistral", "sdpa"), ("llama", "sdpa"),
     ("llama packed", "sdpa"), ("llama decode", "sdpa")],
)  # fmt: skip
def test_models_are_those_of_transformers(kind, way, monkeypatch):
    monkeypatch.setattr(framework_cases, "DOCUMENT", 20)
    kind_of, settings = framework_cases.MODELS["mistral"]
    monkeypatch.setitem(framework_cases.MODELS, "mistral", (kind_of, {**settings, "sliding_window": 20}))
    for part in (FORWARD, BOTH) if kind in ("t5", "llama") else (FORWARD,):
        found, right = (framework_cases.call(kind, 70, each, part, 1) for each in ("fastpe", way))
        for _ in range(2):  # a cache is then as it was
            results = list(map(framework_cases.sampled, (found(), right())))
            assert framework_cases.disagreement(*results) is None
        assert len(results[0]) > 1 or part == FORWARD


# ---------------------------------------------------------------------------------------------------------------------
# One query and a cache


@needs_torch
@pytest.mark.parametrize("case", decoding.CASES)
def test_one_query_is_right_before_it_is_timed(case):
    import torch

    given = decoding.arguments(case, 70, heads=4, width=16)
    out, sdpa = (decoding.call(way, case, given)() for way in ("fastpe", "sdpa"))
    assert out.shape == sdpa.shape == (1, 4, 1, 16)
    assert decoding.error(out, given) < decoding.TOLERANCE
    assert (decoding.error(sdpa, given) < decoding.TOLERANCE) is (case in decoding._OF_SDPA)
    plain = {name: given[name] for name in "qkv"}
    same = torch.allclose(out, decoding.call("fastpe", "none", plain)())
    assert same is (case in ("none", "causal", decoding.GROUPED))


@pytest.mark.parametrize("case", decoding.CASES)
def test_the_short_path_takes_every_case(case):
    settings = {"causal": False, "window": None, "return_lse": False}
    given = decoding.arguments(case, 70, heads=4, width=16)
    assert decode.attend(**{**settings, **given}) is not None


@needs_torch
def test_a_wrong_result_of_one_query_is_not_timed(monkeypatch):
    monkeypatch.setattr(decoding, "error", lambda *given: 0.00002)
    with pytest.raises(WrongResult, match=r"one query and a cache, bias, 64 keys: off by 2e-05 of the largest entry"):
        jobs.one_query("fastpe", "bias", 64, 1)


@pytest.mark.skipif(not TRANSFORMERS, reason="transformers is a peer: pip install -e '.[peers]'")
@pytest.mark.parametrize("way", ["fastpe", "sdpa"])
@pytest.mark.filterwarnings("ignore:.past_key_values.:FutureWarning")  # Llama's own, of a release to come
def test_a_cache_grows_and_begins_anew(way, monkeypatch):
    monkeypatch.setattr(framework_cases, "_TOKENS", 2)
    call = framework_cases._decoded(8, way)
    first, second, third = (np.asarray(call()[0]) for _ in range(3))
    np.testing.assert_array_equal(third, first)
    assert (second != first).any()


def test_without_pytorch_there_is_no_table_of_one_query(monkeypatch):
    monkeypatch.setattr(decoding, "find_spec", lambda name: None)
    found = decoding.measure(turns.QUICK, silent, 1)
    assert (found["rows"], found["absent"][:13]) == ([], "not installed")


@pytest.mark.full("takes seconds")
def test_the_table(monkeypatch):
    """Of two cases of models and two of one query; the others are tested above."""
    queries = {case: decoding.CASES[case] for case in ("bias", "softcap")}
    monkeypatch.setattr(decoding, "CASES", queries)
    few = [replace(case, lengths=case.lengths[:1]) for case in frameworks.CASES if case.kind in ("packed", "llama")]
    monkeypatch.setattr(frameworks, "CASES", few)
    table = json.loads(json.dumps(frameworks.measure(turns.QUICK, silent, 2, 64, ("sdpa",)), allow_nan=False))
    there = [case for case in few if (TORCH if case.kind == "packed" else TRANSFORMERS)]
    assert set(table["absent"]) == {case.name for case in few} - {case.name for case in there}
    assert [(row["case"], row["part"]) for row in table["beside"]] == [
        (case.name, part) for case in there for part in (FORWARD, BOTH)
    ]
    assert all(set(row["peers"]) == {"sdpa"} for row in table["beside"])
    rows = [(row["case"], row["length"]) for row in table["decoding"]["rows"]]
    assert rows == [(case, length) for case in queries for length in (64, 128)] * TORCH
    assert len(list(goals_in(table))) == 2 * len(there) + 4 * TORCH
    assert [(row["feature"], row["part"]) for row in table["features"]] == [
        (name, part) for name in features.FEATURES for part in (FORWARD, BOTH)
    ]
    assert all((row["times"] is None) is (row["feature"] == "none") for row in table["features"])


@pytest.mark.parametrize(("effort", "processes"), [(turns.Effort(), 3), (turns.QUICK, 1)])
def test_short_calls_are_timed_in_several_processes(monkeypatch, effort, processes):
    made, times = [], {"fastpe": iter([3.0, 2.0, 4.0]), "sdpa": iter([6.0, 8.0, 5.0])}

    def time(candidates, _):
        for each in candidates:
            each.seconds = [next(times[each.label.partition(" ")[0]])]

    def prepare(candidates):
        for each in candidates:
            each.facts = {"results": framework_cases.sampled([np.ones(3)]), "seconds": 0.0}

    monkeypatch.setattr(frameworks, "Worker", lambda *given: contextlib.nullcontext(made.append(given)))
    monkeypatch.setattr(frameworks, "prepare", prepare)
    monkeypatch.setattr(frameworks, "take_turns", time)
    monkeypatch.setattr(
        frameworks, "CASES", [frameworks.Case("short", "llama decode", (64,), {"sdpa": {FORWARD: 1}}, 3)]
    )
    for rest in (decoding, features):
        monkeypatch.setattr(rest, "measure", lambda *_: None)
    (row,) = frameworks.measure(effort, silent, 1)["beside"]
    ours, theirs = (2.0, 5.0) if processes == 3 else (3.0, 6.0)
    assert len(made) == 2 * processes
    assert (row["ms"], row["peers"]["sdpa"]["ms"]) == (1e3 * ours, 1e3 * theirs)


def test_calls_of_seconds_take_few_turns():
    def taken(seconds, absent=None):
        return turns.Candidate("", None, "framework", {}, absent, {"seconds": seconds} if absent is None else {})

    whole = turns.Effort()
    assert frameworks._effort(whole, {1: taken(0.5), 2: taken(0.0, "not installed")}) == whole
    few = frameworks._effort(whole, {1: taken(0.5), 2: taken(1.5)})
    assert (few.turns, few.most) == (2, 2)
    assert frameworks._effort(turns.QUICK, {1: taken(9.0)}) == turns.QUICK
