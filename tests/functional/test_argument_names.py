"""Names of arguments that attention and others do not have: refused, whatever the value, with what was meant."""

import importlib
import inspect
import pickle
from dataclasses import replace

import numpy as np
import pytest

import fastpe
from fastpe.functional import arguments

Q = np.ones((1, 2, 5, 4))
CALLS = {"attention": fastpe.attention, "attention_vjp": fastpe.attention_vjp}
CALLS |= {f"reference.{name}": getattr(fastpe.reference, name) for name in CALLS}


@pytest.fixture(params=[*CALLS, "torch", "jax"])
def attend(request):
    """One of the functions, of arrays that it takes."""
    if request.param in CALLS:
        return lambda **given: CALLS[request.param](Q, Q, Q, **given)
    pytest.importorskip(request.param)
    module = importlib.import_module(f"fastpe.{request.param}")
    arrays = importlib.import_module({"torch": "torch", "jax": "jax.numpy"}[request.param])
    x = arrays.ones(Q.shape)
    return lambda **given: module.attention(x, x, x, **given)


@pytest.mark.parametrize("value", [None, 1])
@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("is_causal", "did you mean 'causal'?"), ("attn_mask", "did you mean 'mask' (True where a key is seen)?"),
        ("key_padding_mask", "did you mean 'lengths' or 'mask' (True"), ("dropout_p", "did you mean 'dropout'?"),
        ("softmax_scale", "did you mean 'scale'?"), ("window_size", "did you mean 'window'?"),
        ("biass", "did you mean 'bias'?"), ("causl", "did you mean 'causal'?"),
        ("xyzxyz", "help(fastpe.attention) lists"),
    ],
)  # fmt: skip
def test_a_name_that_attention_does_not_have(attend, name, meant, value):
    attend()  # a valid call before does not hide the name
    with pytest.raises(TypeError) as error:
        attend(**{name: value})
    assert str(error.value).startswith(f"{name} is not an argument of attention; {meant}")
    assert len(str(error.value)) < 120


@pytest.mark.parametrize(
    ("encoding", "begin"),
    [
        ("sinusoidal", "table is added to the embeddings: it is not an argument"),
        ("sincos_2d_detr", "qk_table is added to the input of every layer's"),
        ("conv", "taps is a depthwise convolution"),
    ],
)
def test_a_slot_that_acts_elsewhere_says_where(attend, encoding, begin):
    slots = fastpe.build(encoding, 4, dim=8)
    with pytest.raises(TypeError, match=f"^{begin}"):
        attend(**{name: value for name, value in slots.items() if name in arguments._ELSEWHERE})


def test_what_is_said_of_other_names_is_true():
    known = {*arguments.SLOTS, *arguments._OPTIONS, *arguments._OWN}
    assert known <= {*inspect.signature(fastpe.attention).parameters, *arguments.SLOTS, *arguments._OPTIONS}
    assert not known & {*arguments._SYNONYMS, *arguments._ELSEWHERE}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: fastpe.build("alibi", 4, head=2), "'head' of encoding 'alibi' is unknown; did you mean 'heads'"),
        (lambda: fastpe.build("alibi", 4, parms={}), "did you mean 'params'"),
        (lambda: fastpe.build("alibi", 4, zzz=2), "is unknown; known: slope, alpha0, "),
        (lambda: fastpe.init("alibi", train_length=4, sed=1), "did you mean 'seed'"),
        (lambda: fastpe.pull("alibi", 4, {}, params={}, casual=True), "did you mean 'causal'"),
        (lambda: fastpe.TrainConfig("alibi", epoch=3), "TrainConfig has no argument 'epoch'; did you mean 'epochs'"),
        (lambda: fastpe.ModelConfig("alibi", head=3), "ModelConfig has no argument 'head'; did you mean 'heads'"),
        (lambda: replace(fastpe.ModelConfig("alibi"), widht=3), "did you mean 'width'"),
        (lambda: fastpe.TrainConfig.paper("alibi", epoch=3), "did you mean 'epochs'"),
        (lambda: fastpe.Option(1, "doc", int, minimun=0), "Option has no argument 'minimun'; did you mean 'minimum'"),
        (lambda: fastpe.Encoding(slot=("bias",)), "Encoding has no argument 'slot'; did you mean 'slots'"),
        (lambda: fastpe.train(fastpe.TrainConfig("nope"), thread=1), "train has no argument 'thread'; did you mean"),
        (lambda: fastpe.evaluate(None, [10], sequence=1), "evaluate has no argument 'sequence'"),
        (lambda: fastpe.evaluate("runs/x", [10]), "model must be a Transformer, as in evaluate"),
        (lambda: fastpe.compare("alibi", out="x"), "tasks is missing: a study needs encodings and tasks"),
        (lambda: fastpe.compare("alibi", ["reverse"], out="x"), "encodings must be a list of names, as in"),
        (lambda: fastpe.compare(["alibi"], ["reverse"], out="x", zzz=1), "help.fastpe.TrainConfig. lists them"),
        (lambda: fastpe.compare(["alibi"], ["reverse"], out="x", worker=1), "unknown; did you mean 'workers'"),
        (lambda: fastpe.theory.page("alibi", lenght=5), "did you mean 'length'"),
        (lambda: fastpe.page("zzzzzz"), "encoding 'zzzzzz' is unknown; 'fastpe encodings' lists them"),
    ],
)  # fmt: skip
def test_other_functions_and_settings_offer_the_nearest_name(call, message):
    with pytest.raises((TypeError, ValueError), match=message) as error:
        call()
    assert len(str(error.value)) < 200


def test_signatures_are_as_they_were_written():
    assert list(inspect.signature(fastpe.ModelConfig).parameters)[:3] == ["encoding", "options", "width"]
    assert "progress" in inspect.signature(fastpe.train).parameters
    assert inspect.signature(fastpe.Option).parameters["choices"].default == ()


@pytest.mark.parametrize("name", ["__call__", "slots", "generate", "encoded", "loss", "save"])
def test_methods_of_base_classes_are_named_by_the_public_class(name):
    method = getattr(fastpe.Transformer, name)
    with pytest.raises(TypeError, match=rf"^Transformer\.{name}\(\) got an unexpected keyword argument 'zzz'"):
        method(None, zzz=1)
    assert pickle.loads(pickle.dumps(method)) is method
