"""What callers hand in: arrays of any maker, numbers that are not finite, sizes that no machine has."""

import array

import numpy as np
import pytest
from foreign_arrays import Convertible, CudaTensor, Dlpack

import fastpe
from fastpe.base import validation

TABLE = np.arange(12, dtype=np.float32).reshape(3, 4)
SIZES = {"length": 3, "dim": 4, "name": "learned"}


def uses(make):
    """Every function with array arguments, given them by `make`."""
    model = fastpe.Transformer(fastpe.ModelConfig("nope", width=8, hidden=8, train_length=4))
    learned = {"table": TABLE}
    return {
        "positions": lambda: fastpe.build("sinusoidal", 4, positions=make(TABLE[0]))["table"],
        "params['table']": lambda: fastpe.build(**SIZES, params={"table": make(TABLE)})["table"],
        "dslots['table']": lambda: fastpe.pull(**SIZES, dslots={"table": make(TABLE)}, params=learned)["table"],
        "x": lambda: model(make(TABLE)),
        "y": lambda: np.float64(model.loss_and_grads(TABLE, make(TABLE))[0]),
        "q": lambda: fastpe.reference.attention(make(TABLE[None]), TABLE[None], TABLE[None]),
        "bias": lambda: fastpe.reference.attention(TABLE[None], TABLE[None], TABLE[None], bias=make(TABLE[:1, :3])),
    }


@pytest.mark.parametrize("make", [Dlpack, Convertible, memoryview, np.ndarray.tolist])
@pytest.mark.parametrize("argument", uses(np.asarray))
def test_every_array_argument_takes_every_kind_of_array(argument, make):
    if argument in ("q", "bias") and make is np.ndarray.tolist:  # a list is float64, and attention keeps dtypes
        make = Convertible
    given = uses(lambda values: make(np.ascontiguousarray(values)))[argument]()
    np.testing.assert_array_equal(given, uses(np.asarray)[argument]())


@pytest.mark.parametrize("argument", uses(np.asarray))
def test_memory_of_another_device_is_refused_by_name(argument):
    with pytest.raises(TypeError) as caught:
        uses(CudaTensor)[argument]()
    assert str(caught.value) == f"{argument} must be in CPU memory, not on device 0 of DLPack's type 2"


def test_a_device_that_dlpack_does_not_know_is_refused_by_name():
    class MetaTensor(CudaTensor):
        def __dlpack_device__(self):
            raise ValueError("Unknown device type meta for Dlpack")

    with pytest.raises(TypeError, match="positions must be in CPU memory: Unknown device type meta"):
        uses(MetaTensor)["positions"]()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda _: [[1.0], [1.0, 2.0]], "must be an array or a sequence of real numbers"),
        (lambda _: object(), "must hold real numbers, not object"),
        (lambda _: "text", "must hold real numbers, not <U4"),
        (lambda values: values > 0, "must hold real numbers, not bool"),
    ],
)
@pytest.mark.parametrize("argument", uses(np.asarray))
def test_what_is_no_array_of_numbers_is_refused_by_name(argument, make, words):
    with pytest.raises(TypeError) as caught:
        uses(make)[argument]()
    assert str(caught.value).startswith(f"{argument} {words}")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39])
@pytest.mark.parametrize("argument", ["params['table']", "dslots['table']", "x"])
def test_numbers_that_are_not_finite_are_refused_by_name(argument, bad):
    def spoil(values):
        spoilt = values.astype(np.float64)
        spoilt[-1, 2] = bad
        return spoilt

    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the whole message is compared below
        uses(spoil)[argument]()
    assert str(caught.value) == f"{argument} must be finite in float32, but 1 of its 12 values are not"


@pytest.mark.parametrize("value", [None, 3, True, b"run", ["run"], object(), np.float32(2)])
def test_what_is_no_path_is_refused_by_name(value, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = fastpe.TrainConfig("nope", samples=2, epochs=1, train_length=4)
    with pytest.raises(TypeError) as caught:
        fastpe.load(value)
    assert str(caught.value) == f"path must be a path, as a str or pathlib.Path, not {value!r}"
    if value is not None:  # which is none at all
        with pytest.raises(TypeError) as caught:
            fastpe.train(config, out=value)
        assert str(caught.value) == f"out must be a path, as a str or pathlib.Path, not {value!r}"
        with pytest.raises(TypeError, match=r"progress must (be a function|hold functions) of one event.*, not "):
            fastpe.train(config, out="run", progress=value)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("make", [Dlpack, memoryview])
def test_out_may_be_any_memory(make):
    expected = fastpe.build("sinusoidal", 3, dim=4)["table"]
    memory = np.full((3, 4), np.nan, np.float32)
    out = {"table": make(memory)}
    assert fastpe.build("sinusoidal", 3, dim=4, out=out) is out
    np.testing.assert_array_equal(memory, expected)
    with pytest.raises(ValueError, match=r"out\['bias'\] must be an array, float32 \(1, 1\), not float64 \(1,\)"):
        fastpe.build("alibi", 1, out={"bias": array.array("d", [0.0])})
    with pytest.raises(ValueError, match=r"out\['table'\] must be writeable"):
        fastpe.build("sinusoidal", 3, dim=4, out={"table": memoryview(expected).toreadonly()})
    with pytest.raises(ValueError, match=r"out\['table'\] must be an array, float32 \(3, 4\), not Convertible"):
        fastpe.build("sinusoidal", 3, dim=4, out={"table": Convertible(memory)})
    with pytest.raises(TypeError, match=r"out\['table'\] must be in CPU memory"):
        fastpe.build("sinusoidal", 3, dim=4, out={"table": CudaTensor(memory)})


def test_arrays_are_shared_where_they_can_be():
    for make in (np.asarray, Dlpack, Convertible, memoryview):
        assert np.shares_memory(validation.array("x", make(TABLE)), TABLE)


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"length": 10**12}, "length must be at most 2**27, not 1000000000000"),
        ({"train_length": 10**12}, "train_length must be at most 2**27, not 1000000000000"),
        ({"dim": 10**12}, "slot 'table' of 'sinusoidal' with length=4, dim=1000000000000, heads=1, train_length=4 "
                          "needs 16,000.0 GB, and this machine has "),
        ({"dim": 10**30}, "dim must be at most 2**40, not 1000000000000000000000000000000"),
        ({"dim": 10**12, "name": "legendre", "map": "linear"}, "slot 'table' of 'legendre' with length=4, dim=10000"),
        ({"heads": 10**12, "name": "alibi"}, "slot 'bias' of 'alibi' with length=4, dim=64, heads=1000000000000"),
        ({"dim": 10**12, "name": "learned"}, "parameter 'table' of 'learned' with length=4, dim=1000000000000"),
        ({"name": "alibi", "length": 2**25, "positions": np.zeros(2**25)}, "slot 'scores' of 'alibi' with length=33"),
    ],
)  # fmt: skip
def test_sizes_that_no_machine_has_are_refused_before_memory_is_taken(request_, words):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the message is compared below
        fastpe.build(**{"name": "sinusoidal", "length": 4, **request_})
    assert str(caught.value).startswith(words)


def test_a_model_that_no_machine_can_hold_is_refused():
    config = fastpe.ModelConfig("nope", width=10**7)
    with pytest.raises(ValueError, match=r"the model's parameters with width=10000000, .* need 3,2[0-9,.]+ GB"):
        fastpe.Transformer(config)


@pytest.mark.parametrize("call", [lambda model, x: model(x), lambda model, x: model.loss_and_grads(x, x)])
def test_a_length_for_which_there_is_no_memory_is_refused(call, monkeypatch):
    model = fastpe.Transformer(fastpe.ModelConfig("nope", width=8, hidden=8, heads=2, train_length=4))
    monkeypatch.setattr(validation, "_memory", lambda: 2_000_000)
    says = r"^a (call|training step) with length=20000, heads=2, threads=1 needs [0-9,.]+ GB, and this machine has "
    with pytest.raises(ValueError, match=says):
        call(model, np.zeros((1, 20_000)))


def test_outputs_that_no_machine_can_hold_are_refused(monkeypatch):
    model = fastpe.Transformer(fastpe.ModelConfig("nope", width=8, hidden=8, train_length=4, vocabulary=3))
    tokens = np.zeros((1000, 4), int)
    assert model(tokens[:1]).shape == (1, 4, 3)
    monkeypatch.setattr(validation, "_memory", lambda: 40_000)
    with pytest.raises(ValueError, match=r"^outputs of 1000 sequences with length=4 need 0.0 GB, and this machine has"):
        model(tokens, threads=1)


def test_a_start_past_every_float_is_refused_in_a_configuration_too():
    with pytest.raises(ValueError, match=r"^start must be finite, but it is larger than any float64$"):
        fastpe.ModelConfig("nope", start=-(10**400))


def test_out_must_be_a_dict():
    for out, kind in ((np.zeros((4, 64)), "ndarray"), ([], "list"), ("table", "str")):
        with pytest.raises(TypeError, match=rf"^out must be a dict with the keys \['table'\], not {kind}$"):
            fastpe.build("sinusoidal", 4, out=out)


@pytest.mark.parametrize("strides", [(0, 4), (12, 4), (-12, 4), (4, 4), (16, 0), (16, 2)])
def test_out_whose_elements_share_memory_is_refused(strides):
    memory = np.zeros(40, np.float32)[20:]
    out = np.lib.stride_tricks.as_strided(memory, (3, 4), strides)
    with pytest.raises(ValueError, match=r"^out\['table'\] must not have two elements in the same memory, but its"):
        fastpe.build("sinusoidal", 3, dim=4, out={"table": out})
    assert not memory.any()


def test_out_may_step_as_it_likes_where_nothing_overlaps():
    expected = fastpe.build("sinusoidal", 3, dim=4)["table"]
    whole = np.zeros((4, 5, 6), np.float32)
    for view in (whole[0, :3, :4], whole[::-1, ::-2, ::-1][1, :, :4], whole[0].T[:3, :4], whole[:3, 2, 1:5]):
        fastpe.build("sinusoidal", 3, dim=4, out={"table": view})
        np.testing.assert_array_equal(view, expected)
    one = np.lib.stride_tricks.as_strided(np.zeros(4, np.float32), (1, 4), (0, 4))  # one row overlaps with none
    fastpe.build("sinusoidal", 1, dim=4, out={"table": one})
    np.testing.assert_array_equal(one, expected[:1])
