"""What a model is given: every kind of array, converted without allocating, and refused by name."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numba
import numpy as np
import pytest

from fastpe import ModelConfig, Transformer
from fastpe.kernels.compile.switches import CHECK_BOUNDS
from fastpe.model.adam import Adam
from fastpe.model.scratch import Scratch

PAPER = ModelConfig("wavelet")


def batch_of(config, sequences=8, seed=0):
    x = np.random.default_rng(seed).standard_normal((sequences, config.train_length)).astype(config.dtype)
    return x, np.cumsum(x, 1, dtype=np.float64).astype(config.dtype)


def read_only(array):
    array.flags.writeable = False
    return array


@pytest.mark.parametrize(
    ("vocabulary", "given_as"),
    [
        (None, np.asarray),
        (None, np.float64),
        (None, read_only),
        (None, lambda array: np.repeat(array, 2, 1)[:, ::2]),
        (11, lambda array: (array > 0).astype(np.int64)),
        (11, lambda array: read_only((array > 0).astype(np.uint8))),
    ],
    ids=["plain", "float64", "read-only", "strided", "tokens", "read-only tokens"],
)
@pytest.mark.skipif(CHECK_BOUNDS, reason="pointers that know their ends are larger")
def test_a_step_allocates_nothing_after_the_first(vocabulary, given_as):
    import tracemalloc

    adam = Adam(Transformer(replace(PAPER, vocabulary=vocabulary)))
    x, y = map(given_as, batch_of(PAPER, 128))
    adam.step(x, y)
    adam.step(x, y)
    tracemalloc.start()
    for _ in range(5):
        adam.step(x, y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20 * 1024  # a few Python objects; x and y in the model's dtype hold 25,600 bytes each


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


def test_targets_must_have_the_inputs_shape_and_threads_must_be_positive():
    model = Transformer(PAPER)
    with pytest.raises(ValueError, match=r"y must have the shape of x, \(2, 50\), not \(2, 49\)"):
        model.loss_and_grads(np.ones((2, 50)), np.ones((2, 49)))
    with pytest.raises(ValueError, match="threads must be at least 1, not 0"):
        model(np.ones(50), threads=0)
    with pytest.raises(TypeError, match="threads must be an integer"):
        model(np.ones(50), threads=1.5)


def test_other_array_types_and_views_are_taken():
    model = Transformer(PAPER)
    x, _ = batch_of(PAPER)
    expected = model(x)
    np.testing.assert_array_equal(model(x.tolist()), expected)
    np.testing.assert_array_equal(model(memoryview(x)), expected)
    np.testing.assert_array_equal(model(np.repeat(x, 2, 1)[:, ::2]), expected)
    np.testing.assert_array_equal(model(np.asfortranarray(x)), expected)
    np.testing.assert_array_equal(model(x.astype(x.dtype.newbyteorder())), expected)
    unaligned = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    unaligned[...] = x
    np.testing.assert_array_equal(model(unaligned), expected)


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
