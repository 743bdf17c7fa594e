"""Numbers of every size for every option: a result that is the reference's, or an error that names the option."""

import contextlib
import math

import numpy as np
import pytest
from encoding_variants import ENCODINGS, NAMES, is_causal
from extreme_values import extremes

import fastpe
from fastpe.base.option import Option
from fastpe.doctor.allowed_error import fill_bound, fill_error
from fastpe.encodings import build, combined, registry
from fastpe.encodings.slots import make_spec

SIZES = {"dim": 24, "heads": 2}


def built(name: str, options: dict, **more: object) -> dict | Exception:
    try:
        return fastpe.build(name, 4, **SIZES, causal=is_causal(name), **more, **options)
    except (ValueError, TypeError) as error:
        return error


def differences(name: str, options: dict, dtype: type) -> None:
    """Assert that fill and reference give the same, or refuse the same."""
    found, exact = (built(name, options, dtype=dtype, reference=reference) for reference in (False, True))
    if isinstance(found, Exception):
        assert any(key in str(found) for key in options), found
        assert isinstance(exact, Exception) or "not finite in float32" in str(found), found
        return
    assert isinstance(exact, dict), exact
    (part,) = registry.parse(name, options)
    spec = make_spec(4, **SIZES, dtype=dtype, causal=is_causal(name))
    arrays = {slot: array for slot, array in exact.items() if isinstance(array, np.ndarray)}
    with np.errstate(under="ignore"):
        bounds = fill_bound(part, spec, arrays)
    for slot, value in found.items():
        if slot not in arrays:
            assert value == exact[slot]
            assert isinstance(value, str) or math.isfinite(value)
            continue
        assert np.isfinite(value).all()
        off = fill_error(slot, value, arrays[slot])
        assert (off <= bounds[slot] + 1e-300).all(), (slot, off.max())


@pytest.mark.parametrize("name", NAMES)
def test_every_option_bears_every_number_or_refuses_it_by_name(name):
    for key, option in ENCODINGS[name].options.items():
        for learned in ({}, {"learned": True}) if "learned" in ENCODINGS[name].options else ({},):
            for value in extremes(option):
                for dtype in (np.float64, np.float32):
                    differences(name, {**learned, key: value}, dtype)


def test_large_integers_are_refused_before_memory_is_asked_for():
    for value in (2**27 + 1, 10**400):
        with pytest.raises(ValueError, match=r"^option 'kernel' must be .*at most 2\*\*27, not "):
            fastpe.build("conv", 4, kernel=value)
    with pytest.raises(ValueError, match=r"with length=4, dim=64, .*, option grid=\(134217728, 134217728\) needs"):
        fastpe.build("axial", 4, grid=(2**27, 2**27))
    assert fastpe.build("fourier", 4, draw=2**59)["table"].shape == (4, 64)  # a seed


@pytest.mark.parametrize("name", NAMES)
def test_shapes_beyond_any_memory_are_known_without_making_what_they_hold(name):
    """What refuses a request must first hear its shapes; were they counted one by one, this would not end."""
    learned = {"learned": True} if "learned" in ENCODINGS[name].options else {}
    parts = registry.parse(name, learned)
    for sizes in ({"length": 8, "dim": 2**40, "train_length": 8}, {"length": 2**40, "dim": 8, "train_length": 2**40}):
        with contextlib.suppress(ValueError):  # the encoding has no such width or length
            spec = make_spec(**sizes, heads=1, axes=combined.axes(parts, given=False))
            shapes = {**combined.slot_shapes(parts, spec), **combined.parameter_shapes(parts, spec)}
            assert all(side >= 0 for shape in shapes.values() for side in shape)


def test_a_wrong_grid_is_refused_before_parameters_are_drawn(monkeypatch):
    monkeypatch.setattr(build, "_seeded", lambda *_: pytest.fail("drawn"))
    with pytest.raises(ValueError, match="option 'grid' must be 2 sides whose product is 4"):
        fastpe.build("swin_bias", 4, train_length=2**27, grid=(1, 5))


def test_errors_state_the_maximum_of_an_option():
    option = Option(2.0, "", float, minimum=1.0, maximum=8.0)
    assert option.expected() == "a finite number >= 1 and <= 8"
    assert option.validate("a", 8) == 8
    with pytest.raises(ValueError, match=r"^option 'a' must be a finite number >= 1 and <= 8, not 8\.5$"):
        option.validate("a", 8.5)
    with pytest.raises(ValueError, match=r"^option 'mscale' must be a finite number > 0 and <= 1e\+15 or none, not 1e"):
        fastpe.build("rope_longrope", 4, mscale=1e300)


@pytest.mark.parametrize("reference", [False, True])
def test_initial_values_that_overflow_float32_are_refused(reference):
    for name, options in (("alibi", {"slope": 1e300}), ("geodesic", {"slope": 1e300}), ("chebyshev", {"gamma": 1e300})):
        with pytest.raises(ValueError, match=rf"the initial '\w+' of '{name}' is not finite in float32: see option "):
            fastpe.build(name, 4, learned=True, **options, reference=reference)
        with pytest.raises(ValueError, match="is not finite in float32"):
            fastpe.init(name, train_length=4, learned=True, **options)
