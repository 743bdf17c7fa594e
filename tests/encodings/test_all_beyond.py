"""What every encoding does past its training length: what the registry and its page say, and nothing else."""

import re

import numpy as np
import pytest
from encoding_variants import ENCODINGS, NAMES, SIZES, is_causal, label, variants

import fastpe
from fastpe.encodings import combined, registry
from fastpe.encodings.encoding import BeyondTrainingLength
from fastpe.encodings.parts.grids import sides
from fastpe.encodings.slots import make_spec

LENGTH, LONG, FAR = 20, 60, 1200
EDGE = 600  # no encoding tells distances apart from here on if it clips
WORDS = {"error": "undefined", "clip": "clipped", "interp": "resized", "resize": "resized"}
OF_POSITIONS = {"row_scale", "table", "qk_table", "growth", "angles", "rotors"}
OF_OFFSETS = {"bias", "gain", "rel_key", "rel_query", "rel_gain", "rel_value"}


def accepted(name: str, options: dict) -> bool:
    (part,) = registry.parse(name, options)
    try:
        part.encoding.check(make_spec(LENGTH, **SIZES, causal=is_causal(name)), **part.options)
    except ValueError:  # a switch that another one needs
        return False
    return True


CASES = [(name, options) for name in NAMES for options in variants(name) if accepted(name, options)]


def word(name: str, options: dict) -> str:
    """What happens past the training length with these options."""
    return WORDS.get(options.get("beyond"), ENCODINGS[name].beyond)


def of(*words: str) -> list[tuple[str, dict]]:
    return [case for case in CASES if word(*case) in words]


def build(name: str, length: int, options: dict, grid: tuple[int, ...] | None = None, **request: object) -> dict:
    """The slots, on the given grid if tokens are on one, with learned values away from the initial ones."""
    (part,) = registry.parse(name, options)
    on_a_grid = grid is not None and "grid" in options | dict(part.options) and part.encoding.axes(**part.options) > 1
    request = {
        **SIZES, "causal": is_causal(name), "train_length": LENGTH, "dtype": np.float64, **options,
        **({"grid": grid} if on_a_grid else {}), **request,
    }  # fmt: skip
    if "params" not in request:
        request["params"] = learned_values(name, options)
    slots = fastpe.build(name, length, **request)
    assert set(slots) <= set(ENCODINGS[name].slots)
    for array in slots.values():
        assert isinstance(array, str) or np.isfinite(array).all()
    return slots


def learned_values(name: str, options: dict) -> dict:
    rng = np.random.default_rng(5)
    first = fastpe.init(name, **SIZES, train_length=LENGTH, causal=is_causal(name), dtype=np.float64, **options)
    return {key: value + rng.uniform(0.1, 0.5, value.shape) for key, value in first.items()}


def cells(length: int, name: str, options: dict) -> tuple[int, ...]:
    """A grid whose first cells are those of the training length's, in the same order."""
    (part,) = registry.parse(name, options)
    apart = int(options.get("class_token", 0)) + options.get("prefix_tokens", 0)
    if apart:
        return (1,) * (part.encoding.axes(**part.options) - 1) + (length - apart,)
    first, *rest = sides(LENGTH, max(2, part.encoding.axes(**part.options)))
    return (first * length // LENGTH, *rest)


def row_of(slots: dict, query: int, length: int) -> dict:
    """What the pairs of one query and every key get, keys first."""
    found, offsets = {}, np.arange(length) - query
    for slot, array in slots.items():
        if slot in OF_OFFSETS:
            reach = array.shape[1] // 2
            found[slot] = array[:, np.clip(offsets, -reach, reach) + reach].swapaxes(0, 1)
        elif slot == "scores":
            found[slot] = array[:, query].T
        elif slot == "values":
            found[slot] = array[:, slots["index"][query]].T
    return found


def rows_of(slots: dict) -> dict:
    """What every position gets."""
    return {
        slot: array.swapaxes(0, 1) if slot in ("angles", "rotors", "row_scale") else array
        for slot, array in slots.items()
        if slot in OF_POSITIONS
    }


def everything(slots: dict, length: int) -> list:
    """What the positions of the training length, and their pairs, get."""
    found = [array[:LENGTH] for array in rows_of(slots).values()]
    found += [array[:LENGTH] for query in range(LENGTH) for array in row_of(slots, query, length).values()]
    return found + [slots[slot] for slot in ("taps", "key_bias", "scale") if slot in slots]


@pytest.mark.parametrize(("name", "options"), of("defined", "clipped", "resized"), ids=label)
def test_earlier_positions_move_only_where_the_registry_says_so(name: str, options: dict) -> None:
    short = build(name, LENGTH, options, cells(LENGTH, name, options))
    longer = build(name, LONG, options, cells(LONG, name, options))
    (part,) = registry.parse(name, options)
    pairs = zip(everything(short, LENGTH), everything(longer, LONG), strict=True)
    same = all(np.allclose(one, other, rtol=1e-12, atol=1e-12) for one, other in pairs)
    assert part.encoding.moves(**part.options) == (not same)


@pytest.mark.parametrize(("name", "options"), of("clipped"), ids=label)
def test_clipped_encodings_do_not_tell_far_positions_apart(name: str, options: dict) -> None:
    slots = build(name, FAR, options, (1, FAR - bool(options.get("class_token"))))
    if "counts" in slots:  # whose last vector is that of all counts beyond
        np.testing.assert_array_equal(slots["counts"], build(name, LENGTH, options)["counts"])
        return
    told_apart = False
    for query, keys in ((1, slice(EDGE, None)), (FAR - 2, slice(None, FAR - EDGE))):
        for slot, array in row_of(slots, query, FAR).items():
            far = array[keys][1:-1]  # the ends of a path, and class tokens, apart
            np.testing.assert_array_equal(far, np.broadcast_to(far[:1], far.shape), err_msg=slot)
            told_apart |= (array != far[0]).any()
    for slot, array in rows_of(slots).items():
        np.testing.assert_array_equal(array[EDGE:-1], np.broadcast_to(array[EDGE], array[EDGE:-1].shape), err_msg=slot)
        told_apart |= (array != array[EDGE]).any()
    assert told_apart


@pytest.mark.parametrize(("name", "options"), of("resized"), ids=label)
def test_resized_encodings_stretch_their_tables(name: str, options: dict) -> None:
    """A constant stays one; what is not made for a training length is what the new length alone gives."""
    (part,) = registry.parse(name, options)
    params = learned_values(name, options)
    shapes = combined.parameter_shapes((part,), make_spec(LONG, **SIZES))
    if {key: value.shape for key, value in params.items()} == shapes:
        for slot, array in build(name, LONG, options).items():
            np.testing.assert_array_equal(array, build(name, LONG, options, train_length=LONG, params=params)[slot])
        return
    constant = {key: np.full(value.shape, 0.25) for key, value in params.items()}
    long = build(name, LONG, options, cells(LONG, name, options), params=constant)
    short = build(name, LENGTH, options, cells(LENGTH, name, options), params=constant)
    for slot in set(long) - {"index"}:
        first = long[slot].flat[-1]
        np.testing.assert_allclose(long[slot][..., 1:, :], first, rtol=1e-12)
        np.testing.assert_allclose(short[slot][..., 1:, :], first, rtol=1e-12)


@pytest.mark.parametrize(("name", "options"), of("undefined"), ids=label)
def test_undefined_lengths_are_refused_with_an_option_that_helps(name: str, options: dict) -> None:
    with pytest.raises(BeyondTrainingLength, match=name) as caught:
        build(name, FAR, options, (1, FAR - bool(options.get("class_token"))))
    helps = re.search(r"option (\w+)", str(caught.value))
    assert helps
    assert helps[1] in ENCODINGS[name].options


@pytest.mark.parametrize("name", NAMES)
def test_the_page_states_what_happens_past_the_training_length(name: str) -> None:
    said = re.search(r"^\*\*Past the training length\*\*: (\w+)(.*?)(\n\n|\Z)", registry.page(name), re.M | re.S)
    assert said
    assert said[1] == ENCODINGS[name].beyond
    assert "beyond" not in ENCODINGS[name].options or "`beyond`" in said[2]
