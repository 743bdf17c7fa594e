"""What `fastpe doctor` checks: everything is checked, and faults are found wherever they are."""

import inspect
from dataclasses import replace

import numpy as np
import pytest

import fastpe
from fastpe import reference
from fastpe.doctor import allowed_error, attention_checks, diagnosis, kernel_checks
from fastpe.doctor.allowed_error import Difference
from fastpe.encodings import encoding, registry
from fastpe.encodings.bias import alibi
from fastpe.encodings.input import learned
from fastpe.encodings.registry import built_in, get
from fastpe.kernels import arrays
from fastpe.kernels.attention.slots import SLOTS
from fastpe.model.adam import Adam
from fastpe.reference import _model

NAMES = {check.name for check in diagnosis.checks()}


def judged(word, dtype="float32"):
    """The verdicts of the checks with a word in their name, by name."""
    return {
        check.name: diagnosis.judge(check)
        for check in diagnosis.checks()
        if word in check.name and check.dtype == dtype
    }


@pytest.fixture
def altered(monkeypatch):
    """Gives the encoding of a module other functions."""

    def alter(module, **functions):
        def of_module(each):
            return replace(encoding.of_module(each), **(functions if each is module else {}))

        monkeypatch.setattr(registry.ENCODINGS, "_of_module", of_module)

    return alter


# ------------------------------------------------------------------------------------------------ all is checked, once


def test_every_kernel_on_arrays_is_checked():
    functions = inspect.getmembers(
        arrays, lambda value: inspect.isfunction(value) and value.__module__ == arrays.__name__
    )
    names = {name for name, _ in functions if not name.startswith("_")}
    assert names | {"build", *attention_checks.CHECKS} == set(kernel_checks.KERNELS)
    assert {f"attention with {slot}" for slot in SLOTS} < attention_checks.CHECKS.keys()
    assert {f"kernel {name}" for name in kernel_checks.KERNELS} <= NAMES


@pytest.mark.parametrize("name", kernel_checks.KERNELS)
def test_a_check_calls_the_kernel_that_it_is_named_after(name, monkeypatch):
    def broken(*arguments, **keywords):
        raise RuntimeError("out of\n order")

    called = "attention" if name in ("attention", "attention of few queries") else name
    called = "attention_vjp" if "attention with" in name else called
    places = [module for module in (arrays, kernel_checks, attention_checks) if hasattr(module, called)]
    monkeypatch.setattr(places[0], called, broken)
    verdict = judged(f"kernel {name}")[f"kernel {name}"]
    assert not verdict.passed
    assert verdict.note == "RuntimeError: out of order"


def test_every_fill_and_every_pull_is_checked_in_both_types():
    for name in built_in():
        assert f"fill {name}" in NAMES
        assert (f"pull {name}" in NAMES) == (get(name).pull is not None)
    dtypes = [check.dtype for check in diagnosis.checks()]
    rounded = [name for name in NAMES if "bfloat16" in name]  # float32 numbers are
    assert dtypes.count("float32") == dtypes.count("float64") + len(rounded) == len(NAMES)
    assert len(rounded) == 2


def test_requests_reach_every_option_with_choices_and_both_kinds_of_slots():
    asked = list(diagnosis.requests("wavelet", "float32", length=9, train_length=9, dim=4, heads=1))
    assert {"layout", "functions", "select", "pad", "normalise"} <= set().union(*asked)
    of_alibi = diagnosis.requests("alibi", "float32", length=4)
    assert {tuple(fastpe.build("alibi", **request)) for request in of_alibi} == {("bias",), ("scores",)}
    assert any(request.get("learned") for request in diagnosis.requests("legendre", "float32", length=4))


def test_no_relu_of_a_checked_step_is_near_its_kink(monkeypatch):
    """Else rounding, which differs between machines, could switch a unit and fail the check."""
    nearest, relu_vjp = [], _model.relu_vjp
    watched = {**_model._ACTIVATIONS, "relu": lambda x: (nearest.append(np.abs(x).min()), relu_vjp(x))[1]}
    monkeypatch.setattr(_model, "_ACTIVATIONS", watched)
    for config in diagnosis.STEPS.values():
        list(diagnosis.step_differences(config, "float32"))
    assert len(nearest) >= 8
    assert min(nearest) > 5e-5


# ------------------------------------------------------------------------------------------------- it passes, it fails


@pytest.mark.parametrize(
    "word", ["gelu", "exp", "adam", "embed", "head", "transpose", "column", "squared", "entropy", "layer_norm"]
)
@pytest.mark.parametrize("dtype", diagnosis.DTYPES)
def test_kernels_pass_within_their_bounds(word, dtype, monkeypatch):
    shares = []

    def measured(result, exact, *others):
        found = allowed_error.difference(result, exact, *others)
        shares.append(found.bound / np.abs(exact).max())
        return found

    monkeypatch.setattr(kernel_checks, "difference", measured)
    found = judged(word, dtype)
    assert found
    for verdict in found.values():
        assert verdict.passed, verdict
        assert 0 <= verdict.error <= verdict.bound
    assert max(shares) < 128 * np.finfo(dtype).eps  # of a result's largest entry


@pytest.mark.parametrize(("factor", "passes"), [(1.0, True), (1 + 1e-4, False), (np.nan, False), (np.inf, False)])
def test_a_wrong_kernel_fails(factor, passes, monkeypatch):
    right = arrays.gelu_backward
    monkeypatch.setattr(arrays, "gelu_backward", lambda x, dy: right(x, dy) * np.float32(factor))
    found = judged("gelu")
    assert found["kernel gelu_backward"].passed == passes
    assert found["kernel gelu_forward"].passed


def test_one_wrong_entry_of_one_output_fails(monkeypatch):
    right = arrays.layer_norm_backward

    def wrong(*arguments):
        dx, dweight, dbias = right(*arguments)
        dbias[-1] += 1e-3
        return dx, dweight, dbias

    monkeypatch.setattr(arrays, "layer_norm_backward", wrong)
    assert not judged("kernel layer_norm_backward")["kernel layer_norm_backward"].passed


def test_a_missing_output_or_another_shape_fails(monkeypatch):
    right = arrays.embed_backward
    monkeypatch.setattr(arrays, "embed_backward", lambda dz, x: right(dz, x)[:2])
    monkeypatch.setattr(arrays, "embed_forward", lambda *inputs: np.zeros(3, np.float32))
    assert [verdict.passed for verdict in judged("embed_forward").values()] == [False]
    assert [verdict.passed for verdict in judged("embed_backward").values()] == [False]


def test_a_wrong_reference_fails(monkeypatch):
    monkeypatch.setattr(reference, "layer_norm", lambda x, weight, bias: weight * x + bias)
    assert not judged("layer_norm_forward")["kernel layer_norm_forward"].passed


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("field", ["fill", "pull"])
def test_a_wrong_fill_and_a_wrong_pull_fail(field, altered):
    right = getattr(learned, field)

    def wrong(spec, params, *others, **options):
        right(spec, params, *others, **options)
        for array in others[-1].values():  # what is filled, or the gradients
            array[..., -1] *= 1 + 2e-4

    altered(learned, **{field: wrong})
    assert not judged(f"{field} learned")[f"{field} learned"].passed
    assert judged(f"{field} alibi")[f"{field} alibi"].passed


def test_an_encoding_that_refuses_everything_is_no_success(altered):
    def refuse(spec, **options):
        raise ValueError("not today")

    altered(alibi, check=refuse)
    assert judged("fill alibi")["fill alibi"].note == "nothing could be compared"


def test_a_wrong_gradient_of_the_whole_step_fails(monkeypatch):
    assert judged("step learned")["step learned"].passed
    right = fastpe.Transformer.loss_and_grads

    def wrong(self, x, y):
        loss, gradients = right(self, x, y)
        gradients["encoding.learned.table"][3] += 1e-4
        return loss, gradients

    monkeypatch.setattr(fastpe.Transformer, "loss_and_grads", wrong)
    assert not judged("step learned")["step learned"].passed
    monkeypatch.setattr(fastpe.Transformer, "loss_and_grads", lambda self, x, y: (right(self, x, y)[0], {}))
    assert "the model has the gradients []" in judged("step learned")["step learned"].note


@pytest.mark.full("takes seconds")
def test_bits_that_depend_on_the_threads_fail(monkeypatch):
    assert judged("threads")["threads"] == diagnosis.Verdict("threads", "float32", True, 0.0, 0.0)
    right = Adam.step

    def wrong(self, x, y, *, threads):
        return right(self, x, y, threads=threads) + (1e-15 if threads > 1 else 0)

    monkeypatch.setattr(Adam, "step", wrong)
    verdict = judged("threads")["threads"]
    assert not verdict.passed
    assert 0 < verdict.error < 1e-14


def test_the_error_law_as_a_sum_by_hand():
    # NumPy's error 0.25; 8 eps log2(16) max|ref| = 8 * 2^-23 * 4 * 4 = 2^-16
    found = allowed_error.difference(np.float32([1, 3]), np.array([1.0, 4.0]), np.float32([1, 3.75]), terms=16)
    assert found[:2] == (1.0, 0.5 + 2.0**-16)
    assert not found.allowed
    assert found.share == pytest.approx(2, rel=1e-4)
    ours, exact = {"a": np.ones(2), "b": 1e9}, {"a": np.array([1.0, -3.0]), "b": 1e9}
    gradients = allowed_error.gradient_differences(ours, exact, {"a": np.array([2.0, 5.0]), "b": 1e9}, "float32")
    assert gradients["a"][:2] == (4.0, pytest.approx(1e-4 * 3.005))  # whatever the size of b
    assert gradients["b"].allowed
    assert Difference(0, 0).allowed
    assert not any(Difference(*pair).allowed for pair in ((np.nan, 1), (1, np.nan), (np.inf, np.inf)))
