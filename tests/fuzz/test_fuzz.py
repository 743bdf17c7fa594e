"""The fuzz run: mistakes put in on purpose are found, and found again by the line they name. CI runs real cases."""

import re
import sys
from dataclasses import replace

import attention_apart
import attention_calls
import builds
import damaged_runs
import numpy as np
import pytest
from run import main
from worker import found

from fastpe.encodings import registry
from fastpe.encodings.bias import alibi
from fastpe.functional.dape import Networked
from fastpe.functional.passes import Pass

WORKER = """
import os, signal, time, warnings
from hypothesis import strategies as st
from worker import work

def judge(number):
    if number % 7 == 1:
        {mistake}

work({{"numbers": (st.integers(0, 10**6), judge)}})
"""


@pytest.fixture
def fuzz(capfd, monkeypatch):
    """Run cases of which some make a mistake; returns the exit status and what was said."""
    monkeypatch.setenv("PYTHONPATH", str(main.__globals__["_SUPPORT"].parent / "fuzz"))

    def run(mistake, *arguments):
        status = main(["--patience", "60", *arguments], (sys.executable, "-c", WORKER.format(mistake=mistake)))
        return status, capfd.readouterr().out

    return run


@pytest.mark.parametrize(
    ("mistake", "says"),
    [
        ("assert number < 0, 'wrong'", r"numbers \d+: AssertionError: wrong \(<string>, line 8\)"),
        ("warnings.warn('look', stacklevel=1)", r"numbers \d+: UserWarning: look"),
        ("raise KeyError(number)", r"numbers \d+: KeyError: \d+"),
        ("os.kill(os.getpid(), signal.SIGSEGV)", r"the process ended: signal SIGSEGV"),
        ("os._exit(3)", r"the process ended: exit status 3"),
    ],
)
@pytest.mark.full("takes seconds")
def test_every_kind_of_mistake_is_found_and_found_again(fuzz, mistake, says):
    status, said = fuzz(mistake, "--cases", "60", "--seed", "4")
    numbers = re.findall(rf"case (\d+): {says}", said)
    assert (status, len(numbers) > 1) == (1, True)
    assert re.search(rf"\n(60|\d+) cases, {len(numbers)} findings\n", said)
    status, again = fuzz(mistake, "--seed", "4", "--case", numbers[-1])
    assert status == 1
    assert re.findall(rf"case {numbers[-1]}: (.*)", again) == re.findall(rf"case {numbers[-1]}: (.*)", said)


@pytest.mark.full("takes seconds")
def test_a_case_that_does_not_end_is_found(fuzz):
    status, said = fuzz("time.sleep(1000)", "--cases", "6", "--seed", "4", "--patience", "1")
    assert (status, bool(re.search(r"case \d+: it did not end in 1 s\n  again: ", said))) == (1, True)
    assert said.endswith(f"\n6 cases, {said.count('again')} findings\n")


@pytest.mark.full("starts processes")
def test_without_a_mistake_nothing_is_found_for_the_time_given(fuzz):
    status, said = fuzz("pass", "--seconds", "2")
    assert (status, bool(re.fullmatch(r"seed \d+\n[\d,]+ cases, 0 findings\n", said))) == (0, True)


BUILD = {
    "name": "alibi", "request": {"length": 5, "heads": 2, "dtype": np.float64}, "changed": [], "layout": "plain",
    "seed": 0,
}  # fmt: skip
CALL = {
    "b": 1, "h": 2, "hk": 1, "n": 5, "m": 7, "d": 4, "names": ["bias", "gain"], "reach": 4, "led": False,
    "shared": False, "sharp": 1.0, "most": 5, "dtype": "float32", "rectify": False, "pairs": "half", "causal": False,
    "window": None, "lengths": None, "width": None, "mask": None, "mask axes": [True] * 4, "spans": False,
    "bands": None, "sinks": False, "softcap": None, "dropout": 0.0, "tolerance": None, "batched": True,
    "kinds": [None] * 4, "wild": None, "mistake": None, "seed": 0, "polar": False,
}  # fmt: skip
NETWORK = {
    "b": 1, "h": 2, "hk": 1, "n": 5, "m": 3, "d": 4, "dv": 3, "dtype": "float64", "w": 4, "taps": 3, "beside": ["bias"],
    "causal": False, "window": None, "spans": False, "lengths": None, "seed": 0, "dropout": 0.25, "terms": ["gain"],
    "polar": False, "reach": 2, "mask": None, "shared": False, "softcap": None, "led": False, "rectify": False,
}  # fmt: skip
REFLECTED = {
    "b": 1, "h": 2, "hk": 1, "n": 5, "m": 5, "d": 4, "dv": None, "dtype": "float64", "shared": False, "led": False,
    "beside": ["key_offset"], "window": None, "sight": [], "lengths": None, "dropout": 0.1, "seed": 0,
    "terms": ["bias"], "mask": None, "reach": 2, "softcap": None, "rectify": False, "pairs": "half",
}  # fmt: skip
RUN = {"epochs": 3, "lost": None, "seed": 0}


def beyond(array):
    """Write the word after an array's last."""
    np.lib.stride_tricks.as_strided(array, (array.size + 1,), (array.itemsize,))[-1] = 0
    return array


def test_builds_that_are_wrong_are_found(monkeypatch):
    get, fill = registry.get, alibi.fill
    assert found(builds.judge, BUILD) is None

    def put_in(mistake):
        monkeypatch.setattr(registry, "get", lambda name: replace(get(name), fill=mistake))

    put_in(lambda spec, params, out, **options: (fill(spec, params, out, **options), out["bias"].__imul__(1 + 1e-12)))
    assert "bias is off by" in found(builds.judge, BUILD)
    put_in(lambda spec, params, out, **options: (fill(spec, params, out, **options), beyond(out["bias"])))
    assert "AssertionError" in found(builds.judge, BUILD)
    put_in(lambda spec, params, out, **options: {}["no"])
    assert "KeyError" in found(builds.judge, BUILD)
    put_in(lambda spec, params, out, **options: int("x"))
    assert "names no argument" in found(builds.judge, BUILD)


@pytest.mark.parametrize("what", ["gradient", "beyond", "input"])
def test_calls_that_are_wrong_are_found(monkeypatch, what):
    assert found(attention_calls.judge, CALL) is None
    pullback = Pass.pullback

    def wrong(self, dout):
        gradients = pullback(self, dout)
        match what:
            case "gradient":
                gradients["gain"][0, 3] *= 1.001
            case "beyond":
                beyond(self.lse)
            case "input":
                self.call.k[0, 0, 0, 0] += 1
        return gradients

    monkeypatch.setattr(Pass, "pullback", wrong)
    assert "AssertionError" in found(attention_calls.judge, CALL)


@pytest.mark.parametrize("what", ["gradient", "beyond", "input"])
@pytest.mark.parametrize(
    ("kind", "sizes", "way", "slot"),
    [("NETWORKS", NETWORK, Networked, "mlp_in"), ("REFLECTIONS", REFLECTED, Pass, "reflectors")],
)
def test_ways_apart_that_are_wrong_are_found(monkeypatch, kind, sizes, way, slot, what):
    (_, judge), case, gradients = getattr(attention_apart, kind), (sizes, [None] * 8), way.gradients
    assert found(judge, case) is None

    def wrong(self, dout, dlse):
        made = gradients(self, dout, dlse)
        match what:
            case "gradient":
                made[slot][0, 1] *= 1 + 1e-9  # the first token reflects nothing that counts
            case "beyond":
                beyond(self.lse)
            case "input":
                self.call.k[0, 0, 0, 0] += 1
        return made

    monkeypatch.setattr(way, "gradients", wrong)
    assert "AssertionError" in found(judge, case)


@pytest.mark.parametrize("mistake", sorted(attention_calls.MISTAKES))
def test_a_mistake_that_is_not_refused_is_found(monkeypatch, mistake):
    assert found(attention_calls.judge, {**CALL, "mistake": mistake}) is None
    monkeypatch.setattr(attention_calls, "attempt", lambda call, named: (None, None))
    assert "takes" in found(attention_calls.judge, {**CALL, "mistake": mistake})


def test_folders_that_are_read_wrongly_are_found(monkeypatch):
    assert found(damaged_runs.judge, RUN) is None

    def crash(folder):
        raise KeyError("step")

    monkeypatch.setattr(damaged_runs, "load", crash)
    assert "KeyError" in found(damaged_runs.judge, RUN)
