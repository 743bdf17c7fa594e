"""The option `on`: an encoding on some heads is that of a smaller model there, and nothing on the others."""

import numpy as np
import pytest
from encoding_variants import ENCODINGS, NAMES, is_causal

import fastpe
from fastpe.encodings import combined, registry
from fastpe.encodings.slots import SLOTS, make_spec, neutral

ON, CHOSEN, OTHERS = "0,2", [0, 2], [1, 3]
SIZES = {"dim": 48, "heads": 4, "train_length": 20, "dtype": "float64"}  # heads 12 wide
SMALL = {**SIZES, "dim": 24, "heads": 2}
LENGTH = 12


def allows(name: str) -> bool:
    """Whether all slots of an encoding have an axis of heads, or are an index or no array."""
    (part,) = registry.parse(name)
    spec = make_spec(LENGTH, **SMALL, causal=is_causal(name))
    shapes = combined.shapes_of(part, spec)
    headed = all(SLOTS[slot].axes.startswith("(H") or slot == "index" for slot in shapes)
    return headed and part.encoding.gate is None and "rectify" not in part.encoding.plain(spec, **part.options)


ALLOWED = [name for name in NAMES if allows(name)]
LEARNERS = [name for name in ALLOWED if ENCODINGS[name].pull and fastpe.init(name, **SMALL, causal=is_causal(name))]
REFUSED = [name for name in NAMES if name not in ALLOWED and name != "nope"]


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("name", ALLOWED)
def test_slots_are_those_of_the_chosen_heads_and_neutral_elsewhere(name, reference):
    causal = {"causal": is_causal(name)}
    params = fastpe.init(name, **SMALL, **causal)
    given = {"params": params} if params else {}
    small = fastpe.build(name, LENGTH, **SMALL, **causal, **given, reference=reference)
    found = fastpe.build(name, LENGTH, **SIZES, **causal, **given, reference=reference, on=ON)
    assert found.keys() == small.keys()
    for slot, array in small.items():
        if slot == "index" or not SLOTS[slot].axes.startswith(("(H", "float")):
            np.testing.assert_array_equal(found[slot], array)
        elif slot == "scale":
            np.testing.assert_array_equal(found[slot][OTHERS], 12**-0.5)
            np.testing.assert_array_equal(found[slot][CHOSEN], array)
        else:
            wide = np.broadcast_to(array, (2, *array.shape[1:]))
            np.testing.assert_array_equal(found[slot][CHOSEN], wide)
            rest = found[slot][OTHERS]
            np.testing.assert_array_equal(rest, neutral(slot, rest.shape, rest.dtype))


@pytest.mark.parametrize("name", LEARNERS)
def test_gradients_are_those_of_the_chosen_heads(name):
    causal = {"causal": is_causal(name)}
    params = fastpe.init(name, **SIZES, **causal, on=ON)
    assert {key: x.shape for key, x in params.items()} == {
        key: x.shape for key, x in fastpe.init(name, **SMALL, **causal).items()
    }
    slots = fastpe.build(name, LENGTH, **SIZES, **causal, params=params, on=ON)
    small = fastpe.build(name, LENGTH, **SMALL, **causal, params=params)
    rng = np.random.default_rng(0)
    arrays = [slot for slot, x in slots.items() if slot not in ("index", "scale") and isinstance(x, np.ndarray)]
    d = {slot: rng.standard_normal(slots[slot].shape) for slot in arrays}
    own = {slot: d[slot][CHOSEN].sum(axis=0, keepdims=True) if len(small[slot]) == 1 else d[slot][CHOSEN] for slot in d}
    found = fastpe.pull(name, LENGTH, d, params=params, **SIZES, **causal, on=ON)
    expected = fastpe.pull(name, LENGTH, own, params=params, **SMALL, **causal)
    for key in params:
        np.testing.assert_allclose(found[key], expected[key], rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", REFUSED)
def test_encodings_that_act_on_all_heads_refuse_it(name):
    with pytest.raises(ValueError, match=r"^option 'on' must not be set for this encoding, because "):
        fastpe.build(name, LENGTH, **SIZES, causal=is_causal(name), on=ON)


def test_slopes_of_alibi_are_those_of_the_heads_that_have_them():
    bias = fastpe.build("alibi", 3, heads=4, on="first:2", dtype="float64")["bias"]
    np.testing.assert_array_equal(bias[:, 0], [-0.125, -0.0078125, 0, 0])  # at distance 2
    last = fastpe.build("rope", 3, dim=16, heads=4, on="last:1")["angles"]
    np.testing.assert_array_equal(np.flatnonzero(last.any(axis=(1, 2))), [3])


def test_a_model_with_an_encoding_on_all_heads_by_name_is_the_plain_model():
    config = {"width": 24, "heads": 3, "hidden": 8, "causal": True, "train_length": 8, "dtype": "float64"}
    plain = fastpe.Transformer(fastpe.ModelConfig("rope+alibi", **config))
    options = {"rope.on": "first:3", "alibi.on": "0,1,2"}
    chosen = fastpe.Transformer(fastpe.ModelConfig("rope+alibi", options=options, **config))
    x = np.random.default_rng(1).standard_normal((2, 12))
    np.testing.assert_allclose(chosen(x), plain(x), rtol=1e-12, atol=1e-14)
    some = fastpe.Transformer(fastpe.ModelConfig("rope+alibi", options={**options, "alibi.on": "last:1"}, **config))
    assert np.abs(some(x) - plain(x)).max() > 1e-6


def test_values_are_recorded_only_if_they_are_given():
    assert "on" not in registry.option_values("alibi")
    assert registry.option_values("alibi", {"on": None}) == registry.option_values("alibi")
    assert registry.option_values("alibi", {"on": "first:1"})["on"] == "first:1"
    assert registry.parse_option("rope+alibi", "alibi.on", "0,2") == "0,2"
    assert registry.parse("alibi", {"on": "first:1"})[0].encoding.column(
        make_spec(3, heads=2), **registry.parse("alibi", {"on": "first:1"})[0].options
    ) == (2.0**-8, 0.0)


@pytest.mark.parametrize("value", ["first:0", "first:5", "first", "last:x", "2,0", "0,0", "4", "", "middle:2", "-1"])
def test_wrong_heads_are_one_clear_error(value):
    text = "^option 'on' must be first:N or last:N with N from 1 to 4, or ascending numbers of heads from 0 to 3"
    with pytest.raises(ValueError, match=text):
        fastpe.build("rope", 3, dim=16, heads=4, on=value)
