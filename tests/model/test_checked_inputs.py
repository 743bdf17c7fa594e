"""What a model is given: every kind of array, converted without allocating, and refused by name."""

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numba
import numpy as np
import pytest
from array_kinds import read_only, stepped, unaligned
from model_cases import PAPER, SMALL, batch_of, pair_of

from fastpe import ModelConfig, Transformer
from fastpe.kernels.compile.switches import CHECK_BOUNDS
from fastpe.model.adam import Adam
from fastpe.model.scratch import Scratch


def peak_of_steps(config, *given, **named):
    """The most memory that a step takes after the first two, in bytes."""
    adam = Adam(Transformer(config))
    adam.step(*given, **named)
    adam.step(*given, **named)
    tracemalloc.start()
    for _ in range(5):
        adam.step(*given, **named)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


@pytest.mark.parametrize(
    ("vocabulary", "given_as"),
    [
        (None, np.asarray),
        (None, np.float64),
        (None, read_only),
        (None, stepped),
        (11, lambda array: (array > 0).astype(np.int64)),
        (11, lambda array: read_only((array > 0).astype(np.uint8))),
    ],
    ids=["plain", "float64", "read-only", "strided", "tokens", "read-only tokens"],
)
@pytest.mark.skipif(CHECK_BOUNDS, reason="pointers that know their ends are larger")
def test_a_step_allocates_nothing_after_the_first(vocabulary, given_as):
    x, y = map(given_as, batch_of(PAPER, 128))
    peak = peak_of_steps(replace(PAPER, vocabulary=vocabulary), x, y)
    assert peak < 20 * 1024  # a few Python objects; x and y in the model's dtype hold 25,600 bytes each


@pytest.mark.parametrize("kind", [np.float32, np.float64, bool])
def test_a_step_with_weights_allocates_no_large_array_after_the_first(kind):
    config = replace(PAPER, width=8, hidden=8, train_length=20)
    x, y = batch_of(config, 4096)
    peak = peak_of_steps(config, x, y, weights=(x > 0).astype(kind))
    assert peak < y.nbytes / 2  # NumPy's own buffers for casts hold 8,192 numbers


@pytest.mark.parametrize("encoding", ["wavelet", "rope", "alibi", "shaw"])
def test_models_of_all_sizes_share_what_is_compiled(monkeypatch, encoding):
    """Kernels are compiled for types: an array that may not be written to is of another."""
    taken, position = [], Scratch.position

    def take(self, slots, spans=None):
        taken.append(position(self, slots, spans))
        return taken[-1]

    monkeypatch.setattr(Scratch, "position", take)
    for layers, heads in ((2, 2), (1, 2), (1, 1)):
        model = Transformer(replace(PAPER, encoding=encoding, layers=layers, heads=heads))
        model(np.zeros((1, 5), np.float32))
    assert len({numba.typeof(each) for each in taken}) == 1


@pytest.mark.parametrize(
    ("x", "error", "says"),
    [
        (np.full((2, 50), np.nan), ValueError, "x must be finite"),
        (np.full((2, 50), 1e300), ValueError, "x must be finite"),
        (np.array([["a"]]), TypeError, "x must hold real numbers"),
        (np.ones((2, 3, 4)), ValueError, r"x must have the shape .* not \(2, 3, 4\)"),
        (np.ones((0, 4)), ValueError, "x must have the shape"),
        (np.ones((2, 50), complex), TypeError, "x must hold real numbers, not complex128"),
    ],
)
def test_bad_input_gets_one_clear_error(x, error, says):
    with pytest.raises(error, match=says):
        Transformer(PAPER)(x)


@pytest.mark.parametrize(
    ("x", "error", "says"),
    [
        ([[0, 17]], ValueError, r"x must hold tokens, which are integers in \[0, 17\), but x\[0, 1\] is 17"),
        ([3, 4, -1], ValueError, r"x must hold tokens, which are integers in \[0, 17\), but x\[2\] is -1"),
        (np.array([2**64 - 1], np.uint64), ValueError, r"but x\[0\] is 18446744073709551615"),
        ([[1.0, 2.0]], TypeError, r"x must hold tokens, which are integers in \[0, 17\), not float64"),
        ([True, False], TypeError, r"x must hold tokens, which are integers in \[0, 17\), not bool"),
        (["a"], TypeError, r"x must hold tokens, which are integers in \[0, 17\), not <U1"),
        ([2**70], ValueError, r"x must lie in \[0, 16\], not 1180591620717411303424 at index 0"),
        ([[1], [2, 3]], TypeError, r"x must be an array or a sequence of tokens, which are integers in \[0, 17\): "),
        ([], ValueError, r"x must have the shape .* not \(0,\)"),
        (3, ValueError, r"x must have the shape .* not \(\)"),
        (np.ones((2, 3, 4), int), ValueError, r"x must have the shape .* not \(2, 3, 4\)"),
    ],
)
def test_bad_tokens_get_one_clear_error(x, error, says):
    model = Transformer(SMALL)
    with pytest.raises(error, match=says):
        model(x)
    right = np.zeros(np.shape(x), int) if "is " in says else [0]
    with pytest.raises(error, match=says.replace("x must", "y must").replace(r"x\[", r"y\[")):
        model.loss_and_grads(right, x)


def test_targets_must_have_the_inputs_shape_and_threads_must_be_positive():
    model = Transformer(PAPER)
    with pytest.raises(ValueError, match=r"y must have the shape of x, \(2, 50\), not \(2, 49\)"):
        model.loss_and_grads(np.ones((2, 50)), np.ones((2, 49)))
    with pytest.raises(ValueError, match="threads must be at least 1, not 0"):
        model(np.ones(50), threads=0)
    with pytest.raises(TypeError, match="threads must be an integer"):
        model(np.ones(50), threads=1.5)


@pytest.mark.parametrize("config", [PAPER, SMALL], ids=["numbers", "tokens"])
def test_other_array_types_and_views_are_taken(config):
    model, (x, _) = Transformer(config), pair_of(config)
    expected = model(x)
    same = [x.tolist(), memoryview(x), np.repeat(x, 2, 1)[:, ::2], np.asfortranarray(x)]
    same += [x.astype(x.dtype.newbyteorder()), unaligned(x)]
    if config.vocabulary:
        same += [x.astype(kind) for kind in (np.int8, np.uint8, np.uint64)]
    for each in same:
        np.testing.assert_array_equal(model(each), expected)
    np.testing.assert_array_equal(model(x[0]), expected[0])


def test_what_a_model_is_given_is_never_written_to_and_the_next_call_forgets_it():
    model = Transformer(PAPER)
    first, second = (np.random.default_rng(seed).standard_normal((3, 50)) for seed in (1, 2))
    expected = [model(first.astype(np.float32)), model(second.astype(np.float32))]
    kept = first.copy()
    for given, exact in zip((first, second, first[:1], first), [*expected, expected[0][:1], expected[0]], strict=True):
        np.testing.assert_array_equal(model(given), exact)
    np.testing.assert_array_equal(first, kept)
    loss, _ = model.loss_and_grads(first, second)
    assert loss == model.loss_and_grads(first.astype(np.float32), second.astype(np.float32))[0]
    with pytest.raises(ValueError, match=r"^x must be finite in float32, but 1 of its 150 values are not$"):
        model(np.where(first == first[1, 1], 1e300, first))
    np.testing.assert_array_equal(model(first), expected[0])


@pytest.mark.parametrize("dtype", ["float32", "float64"])  # float64 goes through memory of the model's own
def test_python_threads_may_share_a_model(dtype):
    model = Transformer(ModelConfig("learned", width=16, hidden=16, train_length=9))
    batches = [[each.astype(dtype) for each in batch_of(model.config, 4, seed=seed)] for seed in range(4)]
    outputs = [model(x) for x, _ in batches]
    expected = [model.loss_and_grads(x, y)[1]["encoding.learned.table"] for x, y in batches]

    def repeat(number):
        found = []
        for _ in range(50):
            found.append(model.loss_and_grads(*batches[number])[1]["encoding.learned.table"])
            np.testing.assert_array_equal(model(batches[number][0]), outputs[number])
        return found

    with ThreadPoolExecutor(4) as pool:
        for exact, found in zip(expected, pool.map(repeat, range(4)), strict=True):
            for gradient in found:
                np.testing.assert_array_equal(gradient, exact)
