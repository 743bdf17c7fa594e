"""Requests of every encoding, driven by the registry."""

import math

import numpy as np
from encoding_variants import ENCODINGS, NAMES, is_causal
from hypothesis import strategies as st

import fastpe
from fastpe.base.option import Option
from fastpe.encodings import registry
from fastpe.encodings.encoding import Part
from fastpe.encodings.slots import Spec, make_spec

LEARNERS = [name for name in NAMES if ENCODINGS[name].pull is not None]
SIZES = {"dim": 24, "heads": 2, "train_length": 20}  # sizes that every encoding takes: heads 12 wide
LENGTH = 12


def sizes_of(name: str) -> dict:
    """Those sizes, for the kind of model that the encoding is made for."""
    return {**SIZES, "causal": is_causal(name)}


def values_of(option: Option) -> st.SearchStrategy:
    if option.samples:
        strategy = st.sampled_from(option.samples)
    elif option.kind in (str, tuple) and not option.choices:
        strategy = st.just(option.default)
    elif option.choices:
        strategy = st.sampled_from(option.choices)
    elif option.kind is bool:
        strategy = st.booleans()
    elif option.kind is int:
        strategy = st.integers(int(max(option.minimum, 0)), 6)
    else:
        strategy = st.floats(max(option.minimum, option.above, 0) + 0.1, 3.0)
    return st.just(option.default) | strategy


def axes_of(name: str, options: dict) -> tuple[int, ...]:
    """The last axis of positions, where they have several coordinates."""
    count = registry.parse(name, options)[0].encoding.axes(**registry.parse(name, options)[0].options)
    return () if count == 1 else (count,)


def refuses_positions(name: str) -> bool:
    """Whether the encoding knows offsets alone, and says so."""
    axes = axes_of(name, {})
    positions = np.ones((4, *axes)) * np.arange(4).reshape(4, *(1 for _ in axes))
    try:
        fastpe.build(name, 4, **sizes_of(name), positions=positions)
    except ValueError as error:
        if "positions" not in str(error):
            raise
        return True
    return False


@st.composite
def requests(draw: st.DrawFn, name: str) -> dict:
    length = draw(st.integers(1, 20))
    whole = st.integers(0, 60)
    number = draw(st.sampled_from([whole, whole, st.integers(-60, 60), st.floats(-60, 60)]))
    options = {key: draw(values_of(option)) for key, option in ENCODINGS[name].options.items()}
    axes = axes_of(name, options)
    shape = draw(st.sampled_from([None, (length, *axes), (2, length, *axes)]))
    positions = None
    if shape is not None:
        count = math.prod(shape)
        positions = np.array(draw(st.lists(number, min_size=count, max_size=count))).reshape(shape)
    return {
        "length": length,
        "dim": draw(st.sampled_from([1, 2, 3, 4, 5, 16, 24, 48, 70])),
        "heads": draw(st.sampled_from([1, 3, 4])),
        "train_length": draw(st.sampled_from([64, 64, 20, 7, 1])),
        "causal": draw(st.booleans()),
        "positions": positions,
        "start": draw(st.sampled_from([0, 3, 3, 100])),
        "dtype": draw(st.sampled_from([np.float32, np.float64])),
        **options,
    }


def spec_of(request: dict, name: str) -> Spec:
    sizes = {key: value for key, value in request.items() if key not in ENCODINGS[name].options}
    axes = axes_of(name, {key: value for key, value in request.items() if key not in sizes})
    return make_spec(**sizes, axes=axes[0] if axes else 1)


def parts_of(request: dict, name: str) -> tuple[Part, ...]:
    return registry.parse(name, {key: request[key] for key in ENCODINGS[name].options if key in request})
