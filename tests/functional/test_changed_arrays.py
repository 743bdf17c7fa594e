"""What happens to the arrays of a call while it runs, or before its pullback, cannot lead a kernel out of bounds."""

import numpy as np
import pytest
from attention_problems import SLOTS, problem

import fastpe
from fastpe.encodings.slots import make_spec
from fastpe.functional import passes
from fastpe.model.checked_inputs import CheckedInputs

FAR = 2**30  # elements: where nobody's memory is


@pytest.fixture
def arguments():
    given = problem(np.random.default_rng(3), ("values", "bias", "rel_key", "angles"), b=2, n=70, m=90, d=8)
    return given | {"index": given["index"].astype(np.int32), "lengths": (np.array([70, 33]), np.array([90, 41]))}


def gradients(given, between=lambda: None):
    out, pullback = fastpe.attention_vjp(**given)
    between()
    return pullback(np.cos(out))


def spoil(given):
    """Everything that is whole numbers points far away."""
    given["index"][...] = FAR
    for lengths in given["lengths"]:
        lengths[...] = FAR


def test_an_index_or_lengths_that_change_before_the_pullback_change_nothing(arguments):
    expected = gradients(arguments)
    found = gradients(arguments, between=lambda: spoil(arguments))
    for name, gradient in expected.items():
        np.testing.assert_array_equal(found[name], gradient, err_msg=name)


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint16])
def test_an_index_that_changes_while_kernels_run_changes_nothing(arguments, monkeypatch, kind):
    """As another thread would change them, after they have been checked."""
    given = arguments | {"index": arguments["index"].astype(kind)}
    expected = gradients(given)
    work = passes.run_team

    def run_team(*work_arguments):
        given["index"][...] = np.iinfo(kind).max
        return work(*work_arguments)

    monkeypatch.setattr(passes, "run_team", run_team)
    for name, gradient in gradients(given).items():
        np.testing.assert_array_equal(gradient, expected[name], err_msg=name)


@pytest.mark.parametrize("name", ["q", "k", "v", *SLOTS, "counts"])
def test_numbers_that_change_before_the_pullback_harm_nobodys_memory(name):
    given = problem(np.random.default_rng(4), (*SLOTS, "counts"), n=70, m=90, d=8)
    kept = {key: array.copy() for key, array in given.items() if key != name}
    out, pullback = fastpe.attention_vjp(**given, causal=True)
    dout = np.ones_like(out)
    given[name][...] = np.nan if given[name].dtype.kind == "f" else FAR
    with np.errstate(invalid="ignore"):
        found = pullback(dout)
    assert {key: array.shape for key, array in found.items()} == {key: given[key].shape for key in found}
    for key, array in kept.items():
        np.testing.assert_array_equal(given[key], array)
    np.testing.assert_array_equal(dout, 1)


def test_more_values_than_an_index_can_name_are_refused():
    given = problem(np.random.default_rng(5), ("values",), b=1, h=1, n=3, m=3, d=4)
    given["values"] = np.broadcast_to(given["values"][..., :1], (*given["values"].shape[:-1], 2**31))
    with pytest.raises(ValueError, match=r"^values must have at most 2147483647 entries for index to choose from"):
        fastpe.attention(**given | {"index": np.full((3, 3), 2**31 - 1)})


def test_positions_are_copied_before_they_are_checked():
    given = np.arange(4.0)
    assert not np.shares_memory(make_spec(4, positions=given).positions, given)
    pairs = np.zeros((4, 2))
    assert not np.shares_memory(make_spec(4, positions=pairs, axes=2).positions, pairs)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_tokens_and_weights_are_copied_before_they_are_checked(dtype):
    tokens, weights = np.zeros((2, 3), int), np.ones((2, 3), dtype)
    x, y, shares, _ = CheckedInputs(5, np.dtype(dtype)).batch(tokens, tokens, weights)
    for ours in (x, y, shares):
        assert not any(np.shares_memory(ours, given) for given in (tokens, weights))
    numbers = np.ones((2, 3), dtype)
    x, y, shares, _ = CheckedInputs(None, np.dtype(dtype)).batch(numbers, numbers, weights)
    assert np.shares_memory(x, numbers)  # read where they lie: nothing is looked up with them
    assert not np.shares_memory(y, numbers)  # zeros go where nothing counts
    assert not np.shares_memory(shares, weights)
