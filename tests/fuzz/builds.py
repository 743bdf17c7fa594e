"""Random requests of `build` and `pull`: every encoding, its options at and past their limits."""

import math
from typing import Any

import numpy as np
from encoding_requests import ENCODINGS, NAMES, parts_of, requests, spec_of
from extreme_values import SIZES, extremes
from guards import LAYOUTS, fenced
from hypothesis import strategies as st
from refusals import attempt

import fastpe
from fastpe.doctor.allowed_error import fill_bound, fill_error
from fastpe.encodings import combined, registry
from fastpe.encodings.slots import make_spec

_MOST = 2**22  # entries of what is built: larger ones take long, and are not other code
_SEVERAL = {"dim", "heads", "length", "train_length", "positions", "start", "dtype", "causal", "params", "encoding"}


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """A name, what `build` is asked, how its outputs lie in memory, and a seed of gradients."""
    name = draw(st.sampled_from(NAMES))
    request = draw(requests(name))
    limits = {**{key: extremes(option) for key, option in ENCODINGS[name].options.items()}, **SIZES}
    chosen = draw(st.lists(st.sampled_from(sorted(limits)), max_size=2, unique=True))
    request |= {key: draw(st.sampled_from(limits[key])) for key in chosen}
    second = draw(st.sampled_from([None] * 8 + NAMES_OF_SUMS))
    if second is not None and second != name:
        options = ENCODINGS[name].options
        request = {f"{name}.{key}" if key in options else key: value for key, value in request.items()}
        name, chosen = f"{name}+{second}", [f"{name}.{key}" if key in options else key for key in chosen]
    return {
        "name": name, "request": request, "changed": chosen, "layout": draw(st.sampled_from(LAYOUTS)),
        "seed": draw(st.integers(0, 99)),
    }  # fmt: skip


NAMES_OF_SUMS = ["alibi", "learned", "rope", "t5", "sinusoidal", "shaw", "swin_bias", "huang1"]


def judge(case: dict[str, Any]) -> None:
    """The result agrees with the reference, in arrays of any layout; or both refuse."""
    name, request = case["name"], case["request"]
    if _too_large(name, request):
        return
    options = {key for part in name.split("+") for key in ENCODINGS[part].options}
    named = {key.rpartition(".")[2] for key in request} | options | _SEVERAL | {name}
    got, error = attempt(lambda: fastpe.build(name, **request), named)
    exact, other = attempt(lambda: fastpe.build(name, **request, reference=True), named)
    if error is not None:
        assert other is not None or "is not finite in float32" in str(error), f"the reference does not refuse: {error}"
        return
    assert other is None, f"the reference alone refuses: {other}"
    _compare(name, request, got, exact)
    _fill_in_place(case, got)
    _pull(case, got)


def _too_large(name: str, request: dict[str, Any]) -> bool:
    try:
        options = {key: value for key, value in request.items() if key not in SIZES}
        sizes = {key: value for key, value in request.items() if key in SIZES and key != "seed"}
        parts = registry.parse(name, options)
        axes = combined.axes(parts, given=sizes.get("positions") is not None)
        spec = make_spec(**sizes, axes=axes)
        shapes = [*combined.slot_shapes(parts, spec).values(), *combined.parameter_shapes(parts, spec).values()]
    except Exception:  # what is wrong with it is said when it is built
        return False
    return max(map(math.prod, shapes), default=0) > _MOST and math.prod(max(shapes, key=math.prod)) < 2**40


def _compare(name: str, request: dict[str, Any], got: dict[str, Any], exact: dict[str, Any]) -> None:
    assert list(got) == list(exact)
    bounds = None
    if "+" not in name:
        sized = {key: value for key, value in request.items() if key != "seed"}
        (part,), spec = parts_of(request, name), spec_of(sized, name)
        with np.errstate(under="ignore"):
            arrays = {slot: array for slot, array in exact.items() if isinstance(array, np.ndarray)}
            bounds = fill_bound(part, spec, arrays)
    for slot, value in got.items():
        if not isinstance(value, np.ndarray):
            assert value == exact[slot], slot
            assert not isinstance(value, float) or math.isfinite(value), slot
            continue
        assert np.isfinite(value).all(), slot
        if bounds is not None:
            off = fill_error(slot, value, exact[slot])
            assert (off <= bounds[slot] + 1e-300).all(), f"{slot} is off by {off.max():.3g}"


def _fill_in_place(case: dict[str, Any], got: dict[str, Any]) -> None:
    arrays = {slot: array for slot, array in got.items() if isinstance(array, np.ndarray)}
    fences = {slot: fenced(array.shape, array.dtype, case["layout"]) for slot, array in arrays.items()}
    out = fastpe.build(case["name"], **case["request"], out={slot: array for slot, (array, _) in fences.items()})
    for slot, array in arrays.items():
        np.testing.assert_array_equal(out[slot], array, err_msg=slot)
        fences[slot][1]()


def _pull(case: dict[str, Any], got: dict[str, Any]) -> None:
    request = {key: value for key, value in case["request"].items() if key != "seed"}
    seed = case["request"].get("seed", 0)
    sizes = {key: value for key, value in request.items() if key not in ("length", "positions", "start")}
    sizes["train_length"] = request.get("train_length") or request["length"]
    try:
        params = fastpe.init(case["name"], **sizes, seed=seed)
    except ValueError:  # at its training length it would not be
        return
    rng = np.random.default_rng(case["seed"])
    dslots, fences = {}, []
    for slot, array in got.items():
        if isinstance(array, np.ndarray) and array.dtype.kind == "f":
            dslots[slot], check = fenced(array.shape, array.dtype, case["layout"])
            dslots[slot][...] = rng.standard_normal(array.shape)
            fences.append(check)
    before = {slot: array.copy() for slot, array in dslots.items()}
    dparams = fastpe.pull(case["name"], dslots=dslots, params=params, **request)
    assert {key: (x.shape, x.dtype) for key, x in dparams.items()} == {
        key: (x.shape, x.dtype) for key, x in params.items()
    }
    for slot, array in dslots.items():
        np.testing.assert_array_equal(array, before[slot], err_msg=slot)
    for check in fences:
        check()
    for key, gradient in dparams.items():
        assert np.isfinite(gradient).all() or _is_extreme(case), key


def _is_extreme(case: dict[str, Any]) -> bool:
    """Whether products of what was asked may leave the dtype."""
    return bool(case["changed"])


BUILDS = (cases(), judge)
