"""What `fastpe bench attention` compares with, checks before it times, and prints. No test here looks at a timing."""

import dataclasses
import json
import math
import mmap

import numpy as np
import pytest
from bench_checks import TORCH, needs_torch, numbers_in, silent

import fastpe
from fastpe import reference
from fastpe.benchmarks import attention, attention_cases, attention_peers, jobs, memory, turns
from fastpe.benchmarks.attention_cases import BACKWARD, BOTH, FORWARD, Problem
from fastpe.benchmarks.figures import WrongResult, goals_in

TERMS = ("none", "alibi", "learned", "rope", "toeplitz", "shaw", "shaw values")


def asked(problem, library="fastpe", part=BOTH, **more):
    return {"library": library, "problem": dataclasses.asdict(problem), "part": part, "threads": 2, **more}


# ---------------------------------------------------------------------------------------------------------------------
# Problems


def test_useful_flops_are_those_of_cells_that_are_not_masked():
    whole = Problem(5, causal=False, batch=2, heads=3, width=8)
    assert whole.flop(FORWARD) == 2 * 3 * 25 * (2 * 8 + 2 * 8)
    assert whole.flop(BOTH) == whole.flop(FORWARD) + whole.flop(BACKWARD) == 2 * 3 * 25 * 8 * 14
    assert dataclasses.replace(whole, causal=True).flop(FORWARD) == 2 * 3 * 15 * 4 * 8


def test_standard_slopes():
    np.testing.assert_array_equal(Problem(4).slope_per_head(), 2.0 ** -np.arange(1, 9))
    bias = Problem(3, term="alibi", heads=1, slopes=(0.5,)).slots()["bias"]
    np.testing.assert_array_equal(bias, [[-1.0, -0.5, 0.0, -0.5, -1.0]])


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("term", TERMS)
def test_exact_results_in_blocks_are_the_references(term, causal, monkeypatch):
    monkeypatch.setattr(attention_cases, "_CHUNK", 7)
    problem = Problem(23, causal, term, batch=2, heads=3, width=8)
    exact = attention_cases.exact(problem)
    q, k, v, _ = problem.inputs()
    out, pullback = reference.attention_vjp(q, k, v, causal=causal, wrt=problem.wanted(), **problem.slots())
    right = {"out": out, **pullback(exact.dout)}
    assert exact.heads == [0, 2]
    assert set(exact.results) == set(right)
    assert max(exact.errors(right).values()) < 1e-13


def test_exact_results_of_some_rows(monkeypatch):
    monkeypatch.setattr(attention_cases, "_LONGEST", 50)
    problem = Problem(60, term="alibi", heads=1, width=8, slopes=(0.125,))
    exact = attention_cases.exact(problem)
    assert exact.rows[0] == 0
    assert exact.rows[-1] == 59
    assert len(exact.rows) == 8
    q, k, v, _ = problem.inputs()
    out, pullback = reference.attention_vjp(q, k, v, causal=True, wrt=problem.wanted(), **problem.slots())
    assert max(exact.errors({"out": out, **pullback(exact.dout)}).values()) < 1e-13


# ---------------------------------------------------------------------------------------------------------------------
# Checked before timed


@pytest.mark.parametrize("term", TERMS)
def test_right_attention_is_timed(term):
    job = jobs.attention(**asked(Problem(70, term=term, heads=2, width=16), tolerance=0))
    assert set(job.facts["errors"]) == {"out", *Problem(70, term=term).wanted()}
    out, gradients = job.call()
    assert out.shape == gradients["q"].shape == (1, 2, 70, 16)


@pytest.mark.parametrize("name", ["out", "k", "bias"])
def test_wrong_attention_is_not_timed(name, monkeypatch):
    right = fastpe.attention_vjp

    def wrong(*arguments, **settings):
        out, pullback = right(*arguments, **settings)

        def pull(dout):
            gradients = pullback(dout)
            if name != "out":
                gradients[name] = gradients[name] * np.float32(1.0005)
            return gradients

        return (out * np.float32(1.0005) if name == "out" else out), pull

    monkeypatch.setattr(attention_cases, "attention_vjp", wrong)
    problem = Problem(33, term="learned", heads=1, width=8, slopes=(0.5, float(len(name))))  # none that was checked
    with pytest.raises(
        WrongResult, match=rf"fastpe, Problem.*: {name} is off by 0\.0005.* of the largest entry, bound"
    ):
        jobs.attention(**asked(problem))


def test_a_result_of_nans_is_wrong():
    exact = attention_cases.exact(Problem(9, heads=1, width=8))
    errors = exact.errors({"out": np.full((1, 1, 9, 8), np.nan, np.float32)})
    assert attention_cases.too_large(errors, "fastpe")


@needs_torch
@pytest.mark.parametrize(
    ("way", "problem"),
    [
        ("sdpa", Problem(70, heads=2)),
        ("sdpa", Problem(70, term="alibi", heads=2)),
        ("sdpa", Problem(70, causal=False, term="learned", heads=2)),
        ("flashbias", Problem(70, term="alibi", heads=2)),
    ],
)
def test_peers_are_right(way, problem):
    errors = attention_cases.exact(problem)
    calls = attention_peers.torch_calls(problem, 2, way)
    out, gradients = calls.both(errors.dout)
    assert set(gradients) == set(problem.wanted())
    found = errors.errors({"out": out, **gradients})
    assert attention_cases.too_large(found, way) is None
    assert set(calls.part(BACKWARD, errors.dout)()) == set(gradients)
    np.testing.assert_allclose(calls.part(FORWARD, None)(), out, rtol=0, atol=1e-5)


# ---------------------------------------------------------------------------------------------------------------------
# Memory, and the table


def test_memory_that_a_call_takes_counts():
    def call():
        with mmap.mmap(-1, 2**25) as fresh:  # numpy's may be memory that was freed before, which does not count
            return sum(fresh.write(b"1" * 2**12) for _ in range(2**13))

    try:
        result, grown = memory.peak_growth(call)
    except memory.Unknown as why:
        pytest.skip(str(why))
    assert result == 2**25
    assert 2**25 * 0.9 < grown < 2**26


def test_a_system_that_does_not_tell(monkeypatch, tmp_path):
    monkeypatch.setattr(memory, "_RESET", tmp_path / "missing" / "clear_refs")
    with pytest.raises(memory.Unknown, match="no peak of memory on this system: No such file"):
        memory.peak_growth(lambda: None)
    job = jobs.attention_memory(dataclasses.asdict(Problem(9, term="alibi", heads=1)), 2)
    assert job.facts == {"extra_bytes": None, "why": "no peak of memory on this system: No such file or directory"}


@pytest.mark.full("starts processes")
def test_the_table(monkeypatch):
    peers = ("sdpa", "flashbias")
    table = json.loads(json.dumps(attention.measure(turns.QUICK, silent, 2, 512, peers), allow_nan=False))
    assert all(math.isfinite(number) for number in numbers_in(table))
    assert [row["case"] for row in table["beside"]] == [case.name for case in attention.CASES for _ in case.parts]
    for row in table["beside"]:
        for peer in row["peers"].values():
            assert ("times" in peer) is TORCH
    assert {row["result"] for row in table["errors"]} == {"out", "dq", "dk", "dv", "dbias"}
    assert len(table["peak"]["rows"]) == 2 * 2 * len(attention.LENGTHS)
    assert {row["term"] for row in table["terms"]} == {"none", *attention.TERMS}
    assert [row["slope"] for row in table["long"]["rows"]] == [0.5, 2.0**-8]
    assert table["long"]["skipping"]["times"]["goal"] == attention.SKIPPING
    # goals: 12 shares of the peak, 3 terms twice, 2 memories where known, skipping; those beside PyTorch
    known = [row for row in table["long"]["rows"] if row["extra_mib"] is not None]
    own = 12 + 6 + len(known) + 1
    assert len(list(goals_in(table))) == own + (9 + 21 if TORCH else 0)
