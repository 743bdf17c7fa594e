"""What does not go with the slots `reflectors` and `reflect`, or does not fit."""

import numpy as np
import pytest
from attention_problems import problem
from pullbacks import slope

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
WITHOUT_MEANING = {
    "rel_gain": "reflections mix the channels that rel_gain scales",
    "growth": "reflections mix the channels that growth scales",
    "polar": "reflectors has D channels, but rows in polar form have 2 D",
    "bands": "reflections depend on the tokens between query and key, not on positions in a band",
    "theta": "theta needs bands, which cannot be given with reflectors",
}
WITHOUT_KERNEL = {
    "counts": "the backward pass of counts loops over blocks of keys, that of reflections over blocks of queries",
    "mlp_in": "a network reads the scores of all heads at once, and reflections are computed head by head",
}


@pytest.mark.parametrize("attention", BOTH)
@pytest.mark.parametrize("name", WITHOUT_MEANING)
def test_slots_without_a_formula_are_refused(rng, attention, name):
    given = problem(rng, SLOTS, b=1, h=1, n=4, d=4)
    value = (_BAND,) if name == "bands" else np.zeros((1,) * len(arguments.SLOTS[name].axes))
    with pytest.raises(ValueError, match=f"^{name} cannot be given with reflectors: {WITHOUT_MEANING[name]}$"):
        attention(**given, causal=True, **{name: value})


def test_all_other_arguments_are_taken(rng):
    others = (*arguments.SLOTS, "softcap", "mask", "rectify", "window", "spans", "query_start", "dropout", "scale")
    own = {*SLOTS, *WITHOUT_MEANING, *WITHOUT_KERNEL, "mlp_bias", "mlp_out"}
    known = problem(rng, [name for name in arguments.SLOTS if name not in own | {"index", "sinks"}], b=1, n=4, d=4)
    known |= {"sinks": np.zeros(2), "softcap": 2.0, "mask": np.ones((4, 4), bool), "rectify": True, "window": 2}
    known |= {"spans": np.tile([0, 4], (4, 1)), "query_start": 0, "dropout": 0.0, "scale": 1.0}
    given = problem(rng, SLOTS, b=1, n=4, d=4)
    for name in set(others) - own:
        pair = {each: known[each] for each in ("index", "values")} if name in ("index", "values") else {}
        fastpe.attention(**given, causal=True, **(pair or {name: known[name]}))


@pytest.mark.parametrize("name", WITHOUT_KERNEL)
def test_combinations_without_a_kernel_are_refused_and_the_reference_has_their_gradients(rng, name):
    given = problem(rng, [*SLOTS, *(["counts"] if name == "counts" else [])], b=1, n=4, d=4)
    if name != "counts":
        given |= {"mlp_in": rng.standard_normal((3, 4, 1)), "mlp_bias": np.zeros(3)}
        given["mlp_out"] = rng.standard_normal((2, 3, 1))
    with pytest.raises(ValueError, match=f"cannot be given with reflectors, except to .*: {WITHOUT_KERNEL[name]}$"):
        fastpe.attention(**given, causal=True)
    out, pull = reference.attention_vjp(**given, causal=True)
    found = pull(np.ones_like(out))
    for slot in (name, *SLOTS, "k"):
        expected = slope(lambda x, slot=slot: reference.attention(**{**given, slot: x}, causal=True).sum(), given[slot])
        assert found[slot].flat[1] == pytest.approx(expected, rel=1e-5, abs=1e-8), slot


@pytest.mark.parametrize("attention", BOTH)
def test_shapes_that_do_not_fit_are_refused(rng, attention):
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
