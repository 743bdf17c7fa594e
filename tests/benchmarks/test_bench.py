"""What `fastpe bench` counts, checks before it times, and prints. No test here looks at a timing."""

import json
import math

import numpy as np
import pytest
from bench_checks import TORCH, numbers_in, silent

import fastpe
from fastpe.benchmarks import encodings, fills, jobs, models, numpy_ways, products, scaling, step, turns
from fastpe.benchmarks.figures import WrongResult
from fastpe.encodings import registry
from fastpe.model.adam import Adam
from fastpe.model.transformer import Transformer

PAPER = models.CASES["paper"]


# ---------------------------------------------------------------------------------------------------------------------
# Checked before timed


@pytest.mark.full("compares whole training steps")
@pytest.mark.parametrize("name", ["paper", "causal", "learned"])
def test_a_right_step_passes(name):
    losses = jobs.expected_losses(models.CASES[name])
    assert len(losses) == jobs.STEPS
    assert jobs.step("fastpe", name, 2, losses).call() < losses[-1]
    jobs.step_by_threads(name, 2, losses)


@pytest.mark.full("compares whole training steps")
def test_a_wrong_step_is_not_timed(monkeypatch):
    right, losses = Adam.step, jobs.expected_losses(PAPER)
    monkeypatch.setattr(Adam, "step", lambda self, *rest, **kept: right(self, *rest, **kept) * (1 + 3e-5))
    with pytest.raises(WrongResult, match=r"fastpe, paper: the loss of step 1 is 2.*should be"):
        jobs.step("fastpe", "paper", 1, losses)


def test_a_step_with_a_wrong_gradient_is_not_timed(monkeypatch):
    losses, right = jobs.expected_losses(PAPER), Adam._update

    def wrong(self, t):
        update = right(self, t)
        update.numbers[0] *= -1  # uphill
        return update

    monkeypatch.setattr(Adam, "_update", wrong)
    with pytest.raises(WrongResult, match="the loss of step 2"):
        jobs.step("fastpe", "paper", 1, losses)


@pytest.mark.full("multiplies matrices of whole training steps")
@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("product", models.products(PAPER.config), ids=lambda product: product.name)
def test_products_are_right_in_both_forms(product, fused):
    jobs.product("fastpe", product, fused)
    jobs.product("numpy", product)


@pytest.mark.full("multiplies matrices of whole training steps")
def test_a_wrong_product_is_not_timed(monkeypatch):
    product = models.products(PAPER.config)[0]
    monkeypatch.setattr(np, "dot", lambda a, b, out: np.matmul(a, b * np.float32(1.001), out=out))
    with pytest.raises(WrongResult, match=r"numpy, qkv: relative error .* bound"):
        jobs.product("numpy", product)


def test_a_fused_product_without_its_bias_or_of_nans_is_not_timed():
    product = models.products(PAPER.config)[0]
    call, _, plain = products.product_call("fastpe", product, fused=False)
    call()
    products.check_product("fastpe", product, False, plain())
    with pytest.raises(WrongResult, match="fastpe, qkv"):
        products.check_product("fastpe", product, True, plain())
    with pytest.raises(WrongResult):
        products.check_product("fastpe", product, False, np.full((product.m, product.n), np.nan, np.float32))


@pytest.mark.parametrize("name", fills.names(1500, 32))
def test_fills_are_right_and_a_wrong_one_is_not_timed(name):
    jobs.fill("fastpe", name, 1500, 32)
    _, result = fills.fill_call("fastpe", name, 1500, 32)
    wrong = result()
    wrong[..., -1, -1] += 0.02
    with pytest.raises(WrongResult, match=f"fastpe, {name}: off by"):
        fills.check_fill("fastpe", name, 1500, 32, wrong)
    with pytest.raises(WrongResult, match="shape"):
        fills.check_fill("fastpe", name, 1500, 32, wrong[:, :-1])


def test_every_table_that_grows_is_filled():
    tables = {name for name in fastpe.list_encodings() if registry.get(name).slots in (("table",), ("qk_table",))}
    assert set(fills.names(1500, 32)) >= tables


@pytest.mark.parametrize("name", fastpe.list_encodings())
def test_the_first_losses_of_every_encodings_step_are_right(name):
    case = jobs.encoding_case(name, registry.get(name).direction == "causal", batch=1)
    x, y = models.batch_of(case)
    adam = Adam(Transformer(case.config))
    jobs._checked(lambda: adam.step(x, y, threads=1), "fastpe", name, jobs.expected_losses(case))


@pytest.mark.parametrize("name", numpy_ways.numpy_tables())
def test_numpys_ways_are_right(name):
    jobs.fill("numpy", name, 3000, 32)


# ---------------------------------------------------------------------------------------------------------------------
# The tables


@pytest.mark.full("takes seconds")
def test_every_table_has_finite_figures_and_prints():
    measured = {
        "step": step.measure(turns.QUICK, silent, [1, 2], models=("paper", "causal"), peers=("eager",)),
        "encodings": encodings.measure(turns.QUICK, silent, names=("swin_bias", "shaw", "xpos")),
        "gemm": products.measure(turns.QUICK, silent, models=("paper",)),
        "tables": fills.measure(turns.QUICK, silent, length=1024, dim=32),
        "scaling": scaling.measure(turns.QUICK, silent, 2),
    }
    for name, table in json.loads(json.dumps(measured, allow_nan=False)).items():
        figures = numbers_in(table)
        assert len(figures) > 5, name
        assert all(math.isfinite(figure) for figure in figures), name
        assert name == "scaling" or table["rows"], name
    rows = measured["step"]["rows"]
    assert [(row["model"], row["threads"]) for row in rows] == [
        (name, n) for n in (1, 2) for name in ("paper", "causal")
    ]
    assert [row["fastpe"]["of_peak_masked_too"] is None for row in rows] == [True, False] * 2
    for row in rows:
        for peer in row["peers"].values():
            assert ("times" in peer) is TORCH
            assert TORCH or peer["absent"].startswith("not installed: pip")
    assert measured["gemm"]["rows"][0]["gflops"].keys() >= {"fastpe", "fused", "numpy"}
    assert [row["encoding"] for row in measured["tables"]["rows"]] == fills.names(1024, 32)
    rows = measured["encodings"]["rows"]
    assert [(row["encoding"], row["slots"], row["times"]["goal"], row["pull_us"] is None) for row in rows] == [
        ("swin_bias", ["index", "values"], 1.25, False),
        ("shaw", ["rel_key", "rel_value"], 2.5, False),
        ("xpos", ["angles", "growth"], 1.25, True),
    ]
    assert [row["causal"] for row in rows] == [False, False, True]
    assert set(measured["scaling"]["fixed"]) == {"1", "2"}


def test_a_step_with_a_group_per_thread_is_the_same_step():
    config = fastpe.ModelConfig("sinusoidal", width=16, hidden=16, train_length=9)
    x, y = models.batch_of(models.Case(config, 12, 0.0, {}, 0.0))
    own, fixed = jobs._GroupPerThread(config), Transformer(config)
    own.threads = 2
    loss, gradients = own.loss_and_grads(x, y, threads=2)
    expected_loss, expected = fixed.loss_and_grads(x, y, threads=2)
    assert own._groups(12, np.array([9])).tolist() == [0, 6, 12]
    np.testing.assert_allclose(loss, expected_loss, rtol=1e-5)
    np.testing.assert_allclose(gradients["head.weight"], expected["head.weight"], rtol=1e-4, atol=1e-5)
