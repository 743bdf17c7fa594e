"""What does not go with the slots `reflectors` and `reflect`, or does not fit."""

import numpy as np
import pytest
from attention_problems import problem

import fastpe
from fastpe import reference
from fastpe.bands import Band
from fastpe.functional import arguments

SLOTS = ("reflectors", "reflect")


@pytest.fixture
def rng():
    return np.random.default_rng(52)


BOTH = [fastpe.attention, reference.attention]
_BAND = Band(np.arange(4.0), np.arange(4.0), np.tile([0, 4], (4, 1)))
BESIDE = {
    "mask": np.ones((4, 4), bool), "softcap": 2.0,
    "bands": (_BAND,), "rectify": True, "bias": np.zeros((1, 3)), "values": np.zeros((1, 2)),
    "index": np.zeros((4, 4), int), "angles": np.zeros((1, 4, 1)),
    "counts": np.zeros((1, 2, 4)), "theta": np.ones(1),
}  # fmt: skip

GO = "key_offset, sinks, scale, window, spans, query_start, dropout and lengths"


@pytest.mark.parametrize("attention", BOTH)
def test_nothing_else_goes_with_it(rng, attention):
    given = problem(rng, SLOTS, b=1, h=1, n=4, d=4)
    others = {name: np.zeros((1,) * len(axes)) for name, axes in arguments.AXES.items()}
    for name, value in (others | BESIDE).items():
        if name in (*SLOTS, "sinks", "key_offset"):
            continue
        with pytest.raises(ValueError, match=f"^{name} cannot be given with reflectors: beside them go {GO}"):
            attention(**given, causal=True, **{name: value})
    attention(**given, causal=True, dropout=0.0, rectify=False, pairs="half", softcap=None)
    with pytest.raises(ValueError, match=r"^dropout needs dropout_seed"):
        attention(**given, causal=True, dropout=0.5)


@pytest.mark.parametrize("attention", BOTH)
def test_what_does_not_fit_is_refused(rng, attention):
    given = problem(rng, SLOTS, b=2, h=4, hk=2, n=4, m=5, d=3)
    for name in SLOTS:
        with pytest.raises(ValueError, match=r"^reflectors and reflect must be given together"):
            attention(**{**given, name: None}, causal=True)
    with pytest.raises(ValueError, match=r"^reflectors needs causal=True"):
        attention(**given)
    for shape in ((2, 5, 3), (4, 4, 3), (4, 5, 2), (5, 3), (3, 4, 5, 3)):
        with pytest.raises(ValueError, match=r"^reflectors must have the shape \(H or 1, M, D\)"):
            attention(**{**given, "reflectors": np.zeros(shape)}, causal=True)
        with pytest.raises(ValueError, match=r"^reflect must have the shape \(H or 1, M\)"):
            attention(**{**given, "reflect": np.zeros(shape[:-1] if shape != (4, 5, 2) else (4, 6))}, causal=True)


def test_values_and_types_that_are_refused(rng):
    given = problem(rng, SLOTS, n=4)
    for name in SLOTS:
        with pytest.raises(ValueError, match=f"^{name} must be finite"):
            fastpe.attention(**{**given, name: np.full_like(given[name], np.nan)}, causal=True)
        with pytest.raises(TypeError, match=f"^{name} must have the dtype of q"):
            fastpe.attention(**{**given, name: given[name].astype(np.float32)}, causal=True)
