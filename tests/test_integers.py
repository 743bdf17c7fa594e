"""Integers of all public functions but attention's: as the int that they equal, or one error that names them."""

from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
from integer_kinds import as_int, equal_to, far_off, no_integers

import fastpe
from fastpe import bands, spans, temperatures
from fastpe.base.draws import Draws
from fastpe.base.random import Stream
from fastpe.experiments.study import Study
from fastpe.model.generation import Sampling
from fastpe.training.length_curve import checked_lengths

SEEDS, SIZES = 2**64 - 1, 2**27


class Argument(NamedTuple):
    """An integer of a function: how it is given, what errors call it, and its limits."""

    call: Callable[[Any], Any]
    name: str
    low: int
    high: int


def config(**settings: Any) -> Any:
    return fastpe.ModelConfig("alibi", width=8, hidden=8, causal=True, vocabulary=9, **settings).to_dict()


def training(**settings: Any) -> Any:
    return fastpe.TrainConfig("alibi", width=8, hidden=8, **settings).to_dict()


# 2**40 stands for a limit that depends on the memory of the machine: smaller values could be allocated here
ARGUMENTS = {
    "spans.causal queries": Argument(spans.causal, "queries|spans of queries", 0, 2**40),
    "spans.causal keys": Argument(lambda x: spans.causal(3, x), "keys", 0, 2**40),
    "spans.causal offset": Argument(lambda x: spans.causal(3, offset=x), "offset", 0, 2**40),
    "spans.window back": Argument(lambda x: spans.window(3, back=x), "back", 0, 2**63 - 1),
    "spans.window ahead": Argument(lambda x: spans.window(3, back=0, ahead=x), "ahead", 0, 2**63 - 1),
    "spans.prefix lengths": Argument(lambda x: spans.prefix(x, 4), "lengths", 0, 2**63 - 1),
    "spans.padding left": Argument(lambda x: spans.padding(9, left=x), "left", 0, 9),
    "spans.documents": Argument(lambda x: spans.documents(cu_seqlens=[0, x]), "cu_seqlens|spans of queries", 0, 2**40),
    "bands.self_extend group": Argument(lambda x: bands.self_extend(9, group=x), "group", 1, 2**40),
    "bands.self_extend window": Argument(lambda x: bands.self_extend(9, window=x), "window", 1, 2**40),
    "bands.leaky_rerope step": Argument(lambda x: bands.leaky_rerope(9, step=x, causal=False), "step", 1, 2**40),
    "bands.dual_chunk chunk": Argument(lambda x: bands.dual_chunk(9, chunk=x, local=1), "chunk", 1, 2**40),
    "bands.shifted window": Argument(lambda x: bands.shifted(9, shift=2**40, window=x), "window", 0, 2**40),
    "bands.lampe length": Argument(lambda x: bands.lampe(9, near=3, far=1, length=x), "length", 1, 2**22),
    "bands.lm_infinite start": Argument(lambda x: bands.lm_infinite(9, window=2, start=x), "start", 0, 2**40),
    "bands.streaming recent": Argument(lambda x: bands.streaming(9, recent=x), "recent", 1, 2**40),
    "bands.frequencies": Argument(lambda x: bands.frequencies("rope", x, dim=4), "length", 1, SIZES),
    "temperatures.log_n": Argument(lambda x: temperatures.log_n(x, 4), "positions|factors of positions", 1, 2**40),
    "temperatures.llama4": Argument(lambda x: temperatures.llama4(9, every=x), "every", 1, 2**63 - 1),
    "build length": Argument(lambda x: fastpe.build("alibi", x, reference=True), "length", 1, SIZES),
    "build dim": Argument(lambda x: fastpe.build("alibi", 3, dim=x, reference=True), "dim", 1, 2**40),
    "build heads": Argument(lambda x: fastpe.build("rope", 3, dim=12, heads=x, reference=True), "heads|dim", 1, 12),
    "build train_length": Argument(lambda x: fastpe.build("alibi", 3, train_length=x), "train_length", 1, SIZES),
    "build seed": Argument(lambda x: fastpe.build("learned", 3, dim=4, seed=x), "seed", 0, SEEDS),
    "init train_length": Argument(lambda x: fastpe.init("t5", heads=2, train_length=x), "train_length", 1, SIZES),
    "option": Argument(lambda x: fastpe.build("wavelet", 3, dim=4, scales=x), "option 'scales", 1, 30),
    "Stream": Argument(lambda x: Stream(x, "a").uniform(2), "seed", 0, SEEDS),
    "Stream step": Argument(lambda x: Stream(0, "a", x).uniform(2), "step", 0, SEEDS),
    "Draws": Argument(lambda x: Draws(Stream(x, "a")).integers(9, (2,)), "seed", 0, SEEDS),
    "Sampling top_k": Argument(lambda x: Sampling(top_k=x).draw(np.zeros(9), 0), "top_k", 1, 2**63 - 1),
    "Sampling seed": Argument(lambda x: Sampling(seed=x).draw(np.zeros(9), 0), "seed", 0, SEEDS),
    "ModelConfig width": Argument(lambda x: config(heads=1, layers=x), "layers", 1, 2**63 - 1),
    "ModelConfig seed": Argument(lambda x: config(seed=x), "seed", 0, SEEDS),
    "ModelConfig train_length": Argument(lambda x: config(train_length=x), "train_length", 1, 2**63 - 1),
    "TrainConfig epochs": Argument(lambda x: training(epochs=x), "epochs", 1, 2**40),
    "TrainConfig batch": Argument(lambda x: training(batch=x), "batch", 1, 2**40),
    "TrainConfig warmup": Argument(lambda x: training(warmup=x), "warmup", 0, 6260),
    "TrainConfig test_lengths": Argument(lambda x: training(test_lengths=[x]), "test_lengths", 1, SIZES),
    "length_curve lengths": Argument(lambda x: checked_lengths([x], 9, 99), "lengths", 1, 98),
}


OF_SAMPLES = ("spans.causal offset", "spans.prefix lengths", "spans.padding left", "temperatures.log_n")
"""Those that may be one integer, or one for each sample."""
OR_NAMES = ("Stream step",)
"""Those that may be a string instead."""


def same(found: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key, value in expected.items():
            same(found[key], value)
    elif isinstance(expected, tuple | list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            same(one, other)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_integers_of_any_type_are_the_int_that_they_equal(name):
    argument = ARGUMENTS[name]
    expected = argument.call(3)
    for value in equal_to(3).values():
        same(argument.call(value), expected)


@pytest.mark.parametrize("name", ARGUMENTS)
def test_everything_else_is_refused_by_name(name):
    call, called, low, high = ARGUMENTS[name]
    for value in far_off():
        if not low <= as_int(value) <= high:
            with pytest.raises(ValueError, match=rf"^({called})\b"):
                call(value)
    for kind, value in no_integers().items():
        allowed = (kind == "two" and name in OF_SAMPLES) or (kind == "str" and name in OR_NAMES)
        if not allowed:
            with pytest.raises((TypeError, ValueError), match=rf"^({called})\b"):
                call(value)


def test_spans_past_all_keys_and_documents_of_any_number():
    ends = np.array([[[0, 2**64 - 1]]], np.uint64)
    assert spans.intersect(ends, [[[0, 7]]]).tolist() == [[[0, 7]]]
    assert spans.documents(np.array([2**64 - 1, 2**64 - 1, 5], np.uint64)).tolist() == [[[0, 2], [0, 2], [2, 3]]]


@pytest.mark.parametrize("dtype", ["uint8", "int16", "uint64", ">i4"])
def test_tokens_and_targets_of_any_type(dtype):
    model = fastpe.Transformer(fastpe.ModelConfig("nope", width=8, hidden=8, causal=True, vocabulary=9, train_length=4))
    tokens = np.arange(8).reshape(2, 4)
    same(model(tokens.astype(dtype)), model(tokens))
    loss = model.loss(tokens, tokens, lengths=[3, 4])
    assert model.loss(tokens.astype(dtype), tokens.astype(dtype), lengths=np.array([3, 4], dtype)) == loss
    same(model.generate(tokens[0].astype(dtype), 3, cache=False), model.generate(tokens[0], 3, cache=False))
    wrong = tokens.astype(dtype)
    wrong[1, 2] = np.iinfo(dtype).max
    for call, name in (
        (lambda: model(wrong), "x"), (lambda: model.loss(tokens, wrong), "y"),
        (lambda: model.generate(wrong[1], 3), "prompt"),
        (lambda: model.loss(tokens, tokens, lengths=wrong[1, 2:]), "lengths"),
        (lambda: fastpe.length_curve(model, wrong.reshape(-1), [2]), "tokens"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=rf"^{name} must "):
            call()


def test_collections_without_end_are_refused_at_once():
    model = fastpe.Transformer(fastpe.ModelConfig("alibi", width=8, hidden=8))
    many = range(1, 10**12)
    for call, name in (
        (lambda: training(test_lengths=many), "test_lengths"), (lambda: fastpe.evaluate(model, many, 2), "lengths"),
        (lambda: checked_lengths(many, 9, 99), "lengths"), (lambda: Study(["nope"], ["sort"], seeds=many), "seeds"),
        (lambda: Study(many, ["sort"]), "encodings"), (lambda: spans.documents(many), "ids"),
        (lambda: fastpe.build("rope", 3, positions=many), "positions"), (lambda: model(many), "x"),
        (lambda: fastpe.build("sandwich", 3, divisors=many), "option 'divisors"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=rf"^{name}\b"):
            call()


def test_durations_are_no_settings():
    for call, name in (
        (lambda x: training(lr=x), "lr"), (lambda x: fastpe.build("rope", 3, start=x), "start"),
        (lambda x: fastpe.build("wavelet", 3, dim=4, scale=x), "option 'scale"),
        (lambda x: Sampling(temperature=x), "temperature"), (lambda x: Sampling(top_p=x), "top_p"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=rf"^{name}\b"):
            call(np.timedelta64(1, "ns"))


def test_sampling_computes_with_floats():
    logits = np.log([0.5, 0.3, 0.2])
    half = Sampling(temperature=Fraction(1, 2), top_p=Fraction(3, 4), seed=3)
    assert half == Sampling(0.5, top_p=0.75, seed=3)
    assert half.draw(logits, 0) == Sampling(0.5, top_p=0.75, seed=3).draw(logits, 0)


def test_integers_of_any_size_are_named_where_none_is_wanted():
    for name in ("encoding", "task", "positions", "dtype", "norm", "options", "task_options", "sight", "final_norm"):
        with pytest.raises((TypeError, ValueError), match=r"not an integer of 16610 bits$"):
            fastpe.TrainConfig(**{"encoding": "nope", name: 10**5000})


def test_tokens_and_documents_in_sequences_and_object_arrays():
    model = fastpe.Transformer(fastpe.ModelConfig("nope", width=8, hidden=8, causal=True, vocabulary=9, train_length=4))
    tokens = np.array([[1, 2, 2]])
    for given in (tokens.tolist(), tokens.astype(object)):
        same(model(given), model(tokens))
        assert model.loss(given, given) == model.loss(tokens, tokens)
        same(spans.documents(given), spans.documents(tokens))
        same(fastpe.length_curve(model, given[0], [2]).points, fastpe.length_curve(model, tokens[0], [2]).points)
    for given in ([1, 2**63], [2**63, -1], np.array([2**70, 1], object)):
        for call, name in (
            (lambda own: model([own]), "x"), (lambda own: model.loss([[1, 2]], [own]), "y"), (spans.documents, "ids"),
            (lambda own: fastpe.length_curve(model, own, [1]), "tokens"),
        ):  # fmt: skip
            with pytest.raises(ValueError, match=rf"^{name} must lie in .*, not \d+ at index "):
                call(given)
    with pytest.raises(ValueError, match=r"^x must lie in \[0, 8\], not 9223372036854775808 at index \[0, 1\]$"):
        model([[1, 2**63]])
    with pytest.raises(TypeError, match=r"^x must hold tokens, .*, not bool$"):
        model([[1, True]])
