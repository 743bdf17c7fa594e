"""What every encoding must do, driven by the registry: a new encoding is tested here without a line being added."""

import subprocess
import sys

import numpy as np
import pytest
from encoding_requests import (
    ENCODINGS,
    LEARNERS,
    LENGTH,
    NAMES,
    axes_of,
    parts_of,
    refuses_positions,
    requests,
    sizes_of,
    spec_of,
)
from hypothesis import given
from hypothesis import strategies as st

import fastpe
from fastpe.doctor import encoding_checks
from fastpe.doctor.allowed_error import fill_bound, fill_error
from fastpe.doctor.diagnosis import judge
from fastpe.encodings import catalogue, combined, registry
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.slots import SLOTS, make_spec, misfit

# the reference solves a differential equation for each difference
_SLOW = {"clex": pytest.mark.full("takes ten seconds")}


@pytest.mark.unsampled
@pytest.mark.parametrize("name", NAMES)
@given(data=st.data())
def test_fill_keeps_its_stated_error(name: str, data: st.DataObject) -> None:
    request = data.draw(requests(name))
    spec, (part,) = spec_of(request, name), parts_of(request, name)
    try:
        part.encoding.check(spec, **part.options)
    except ValueError:
        with pytest.raises(ValueError, match=r"\w"):
            fastpe.build(name, **request)
        return
    expected = fastpe.build(name, **request, reference=True)
    out = combined.allocate((part,), spec)
    for array in out.values():
        array.fill(np.nan if array.dtype.kind == "f" else -1)
    got = fastpe.build(name, **request, out=out)
    assert got is out
    assert set(got) == set(expected) <= set(part.encoding.slots)
    plain = part.encoding.plain(spec, **part.options)
    assert {slot: got[slot] for slot in plain} == {slot: expected[slot] for slot in plain} == plain
    expected = {slot: array for slot, array in expected.items() if slot not in plain}
    bounds = fill_bound(part, spec, expected)
    for slot in expected:
        kind = "float64" if slot == "rotors" and got[slot].shape[-1] == 1 else SLOTS[slot].dtype
        assert got[slot].dtype == (request["dtype"] if kind == "same" else kind)
        if kind == "int32":
            np.testing.assert_array_equal(got[slot], expected[slot])
            continue
        assert expected[slot].dtype == np.float64
        np.testing.assert_array_less(fill_error(slot, got[slot], expected[slot]), bounds[slot] + 1e-300, err_msg=slot)


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("name", NAMES)
def test_it_passes_what_a_user_checks_an_own_encoding_by(name: str) -> None:
    for check in encoding_checks.checks(name):
        verdict = judge(check)
        assert verdict.passed, f"{verdict.name} {verdict.dtype}: {verdict.error} > {verdict.bound}; {verdict.note}"
    assert encoding_checks.remarks(name) == []


@pytest.mark.parametrize("name", NAMES)
def test_given_positions_agree_with_the_implied_ones_row_by_row(name: str) -> None:
    if axes_of(name, {}) or refuses_positions(name):
        return
    slots = fastpe.build(name, LENGTH, **sizes_of(name), start=3)
    order = np.array([[5, 0, 11, 7], [1, 1, 2, 3]])
    moved = fastpe.build(name, 4, **sizes_of(name), start=3, positions=order)
    for slot in set(slots) & {"table", "qk_table", "growth"}:
        np.testing.assert_array_equal(moved[slot], slots[slot][order])
    if "angles" in slots:
        np.testing.assert_array_equal(moved["angles"], slots["angles"][:, order].transpose(1, 0, 2, 3))
    if "rotors" in slots and slots["rotors"].shape[1] == LENGTH:  # not one map for all positions
        expected = slots["rotors"][:, order].swapaxes(0, 1)
        np.testing.assert_allclose(moved["rotors"], expected, atol=1e-6)
    if "bias" in slots:
        offsets = order[:, None, :] - order[:, :, None]
        np.testing.assert_array_equal(moved["scores"], slots["bias"][:, offsets + LENGTH - 1].transpose(1, 0, 2, 3))


def has_gradient(slot: str) -> bool:
    return SLOTS[slot].dtype in ("same", "float64")


def learning_requests(name: str) -> list:
    cases = []
    switches = {key: True for key, option in ENCODINGS[name].options.items() if option.kind is bool}
    choices = {key: option.choices for key, option in ENCODINGS[name].options.items() if option.choices}
    variants = [{key: value} for key, values in choices.items() for value in values] or [{}]
    for variant in variants:
        axes = axes_of(name, {**switches, **variant})
        for positions in (None, [[3, 0, 4, 4, 1, 2]], [[9, 0, 2, 2, 6, 7], [1, 2, 3, 4, 5, 0]]):
            if positions is not None:
                positions = np.array(positions).reshape(-1, 6, *[1 for _ in axes]) * np.ones(axes)
            request = {**sizes_of(name), "length": 6, "dim": 12, "train_length": 6, "positions": positions}
            cases.append({**request, "dtype": np.float64, **switches, **variant})
    return cases


@pytest.mark.unsampled
@pytest.mark.parametrize("name", [pytest.param(name, marks=_SLOW.get(name, ())) for name in LEARNERS])
def test_pull_is_the_gradient_of_the_reference(name: str) -> None:
    rng = np.random.default_rng(0)
    checked = 0
    for request in learning_requests(name):
        options = {key: value for key, value in request.items() if key in ENCODINGS[name].options}
        spec, (part,) = spec_of(request, name), registry.parse(name, options)
        try:
            part.encoding.check(spec, **part.options)
        except ValueError:
            continue
        sizes = {**sizes_of(name), "dim": 12, "train_length": 6, "dtype": np.float64}
        params = fastpe.init(name, **sizes, **options)
        params = {key: value + rng.uniform(0.1, 1, value.shape) for key, value in params.items()}
        slots = fastpe.build(name, **request, params=params, reference=True)
        dslots = {slot: rng.normal(size=array.shape) for slot, array in slots.items() if has_gradient(slot)}
        got = fastpe.pull(name, **request, dslots=dslots, params=params)
        noise = np.finfo(float).eps * sum(np.abs(slots[slot] * dslots[slot]).sum() for slot in dslots) / 1e-6
        assert set(got) == set(params) != set()
        for key, value in params.items():
            expected = np.zeros_like(value)
            places = list(np.ndindex(value.shape))
            chosen = [places[i] for i in sorted(rng.permutation(len(places))[:24])]
            for place in chosen:
                ends = []
                for step in (1e-6, -1e-6):
                    moved = {k: v.copy() for k, v in params.items()}
                    moved[key][place] += step
                    built = fastpe.build(name, **request, params=moved, reference=True)
                    ends.append(sum((built[slot] * dslots[slot]).sum() for slot in dslots))
                expected[place] = (ends[0] - ends[1]) / 2e-6
            scale, where = max(1.0, np.abs(expected).max()), tuple(np.array(chosen).T)
            np.testing.assert_allclose(
                got[key][where], expected[where], atol=2e-8 * scale + noise, err_msg=f"{name} {key} {request}"
            )
        checked += 1
    assert checked


@pytest.mark.parametrize("name", NAMES)
def test_what_the_registry_says_is_complete(name: str) -> None:
    own = ENCODINGS[name]
    page = registry.page(name)
    assert len(page.splitlines()[0]) <= 120
    assert "**Options**" in page
    assert own.beyond in ("defined", "clipped", "resized", "undefined")
    assert own.direction in ("yes", "no", "causal")
    assert len(own.summary) <= 50
    assert not own.summary.endswith(".")
    assert own.reported is None or own.reported.outcome in ("holds", "partly", "fails", "tuned")
    assert own.reported is None or all(own.reported)
    assert registry.file_of(name).parent.name == catalogue.group_of(own.slots, gated=own.gate is not None)
    assert set(own.slots) <= set(SLOTS)
    part, spec = registry.parse(name)[0], make_spec(LENGTH, **sizes_of(name))
    shapes = combined.shapes_of(part, spec)
    assert not any(misfit(slot, shape, spec, shapes) for slot, shape in shapes.items())
    assert (own.pull is None and own.gate is None) == (own.parameters is Encoding.parameters)
    registry.parse(name, own.paper)
    registry.parse(name, own.tested)


@pytest.mark.parametrize("name", LEARNERS)
def test_initial_values_come_in_the_order_of_the_stated_shapes(name: str) -> None:
    """A model's parameters lie in this order, and a process that unpickles the model must find them there."""
    options = {key: True for key, option in ENCODINGS[name].options.items() if option.kind is bool}
    sizes = {**sizes_of(name), "train_length": 8}
    shapes = combined.parameter_shapes(registry.parse(name, options), make_spec(8, **sizes))
    first = fastpe.init(name, **sizes, **options)
    assert [(key, value.shape) for key, value in first.items()] == list(shapes.items())


def test_listing_imports_neither_numpy_nor_numba() -> None:
    code = (
        "import sys, fastpe\n"
        "from fastpe.encodings.registry import page\n"
        "assert 'wavelet' in fastpe.list_encodings() and page('wavelet')\n"
        "assert not {'numpy', 'numba'} & set(sys.modules), 'heavy import'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
