"""All checks of one encoding. `fastpe check` runs them on encodings of users, and the tests on those of fastpe.

options        defaults are valid values, and invalid values are rejected
parameters     initial values have the stated shapes; the same seed gives the same bits
fill           the fill is within the stated error of the reference, with every option, at integer and real positions
arrays         exactly the entries of the arrays are written, with any strides; equal calls give equal bits
pull           gradients agree with those of the reference
adding         gradients are added to the given arrays, and the inputs are not changed
beyond         past the training length, the encoding does what `beyond` and `moves` state
far            slots are finite at 64 times the training length, with every option, or an error names the limit
needs          slots depend on several coordinates, a graph or places of digits, if `needs` states one of these
direction      a model without a mask distinguishes left and right exactly if `direction` states so
model          outputs, loss and all gradients of a whole model agree with `fastpe.reference`
"""

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.doctor import diagnosis
from fastpe.doctor.allowed_error import Difference
from fastpe.doctor.diagnosis import DTYPES, Check, Request
from fastpe.encodings import build, combined, encoding, needed, registry
from fastpe.encodings.encoding import BeyondTrainingLength, Encoding, Part
from fastpe.encodings.slots import SLOTS, Spec, make_spec
from fastpe.model.config import ModelConfig
from fastpe.model.transformer import Transformer

Array = np.ndarray[Any, Any]

LENGTH, LONG, FAR = 12, 36, 2601
TRAINED, FARTHEST = 50, 64 * 50
"""The training length of `fastpe.TrainConfig`, and the length of the check `far`."""
# every encoding accepts heads of 12 channels
SIZES: Mapping[str, Any] = {"dim": 24, "heads": 2, "train_length": LENGTH}
_MARK, _WORDS = 7, 16
_MOST = 2**22  # elements of all slots that the check `far` fills at once
_GRIDS = {2: (3, 4), 3: (2, 2, 3)}  # of LENGTH cells
_SPARSE = (0, 1, 2, 5, 12, 50, 51, 100, 200, 400, 700, 1000, 1400, 1800, 2400, 3000, FARTHEST - 1)
_STALE = 12345  # the value of all entries of an array before it is filled
_OK = Difference(0.0, 0.0)


class CheckFailed(AssertionError):
    """An encoding fails a check. The message states the failure, its place, the value found and the expected value."""


def checks(key: str) -> tuple[Check, ...]:
    """Return the checks of one encoding, in the order of the module docstring. Some run in both dtypes."""
    own = registry.get(key)
    once: dict[str, Callable[[str], Iterator[Difference]]] = {"options": options, "parameters": parameters}
    both = {"fill": diagnosis.fill_differences, "arrays": arrays}
    if own.parameters is not Encoding.parameters:
        both |= {"pull": diagnosis.pull_differences, "adding": adding}
    last = {"beyond": beyond, "needs": needs, "direction": direction}
    return (
        *(Check(name, "float64", partial(run, key)) for name, run in once.items()),
        *(Check(name, dtype, partial(run, key, dtype)) for name, run in both.items() for dtype in DTYPES),
        Check("far", "float32", partial(far, key)),  # in the dtype with the smaller range
        *(Check(name, "float64", partial(run, key)) for name, run in last.items()),
        *(Check("model", dtype, partial(model, key, dtype)) for dtype in DTYPES),
    )


def remarks(key: str) -> list[str]:
    """Return remarks on facts that an encoding does not state."""
    own, page = registry.get(key), registry.page(key)
    found = [f"the page (the docstring) does not mention {word}" for word in _unsaid(own, page)]
    found += [f"ENCODING has no {name}" for name in ("summary", "source") if not getattr(own, name)]
    if len(own.summary) > encoding.SUMMARY:
        found.append(f"the summary has {len(own.summary)} characters, but lists have room for only {encoding.SUMMARY}")
    unsaid = {
        "unknown": "ENCODING has no direction",
        "causal": "direction is 'causal', but models without a mask accept the encoding, too" if own.file else "",
    }
    if words := unsaid.get(own.direction):
        with suppress(ValueError, ArithmeticError):  # the checks report such errors
            told = "distinguishes" if _tells_direction(key) else "does not distinguish"
            found.append(f"{words}; a tested model without a mask {told} left from right")
    return found


def _unsaid(own: Encoding, page: str) -> list[str]:
    wanted = {"Source:": "its source", "**Past the training length**": "what happens past the training length"}
    wanted |= {f"`{option}`": f"option {option!r}" for option in own.options}
    return (
        [meaning for word, meaning in wanted.items() if word not in page] if page else ["anything, because it is empty"]
    )


# ---------------------------------------------------------------------------------------------------------------------
# Requests and comparisons


def _request(key: str, dtype: str = "float64", **changed: Any) -> Request:
    """Return arguments of `fastpe.build` with sizes that every encoding accepts, causal if the encoding needs it."""
    causal = registry.get(key).direction == "causal"
    return {"length": LENGTH, **SIZES, "causal": causal, "dtype": dtype, **changed}


def _learning(key: str) -> dict[str, Any]:
    """Return the option that makes the encoding learn, if it has such an option."""
    own = registry.get(key).options
    return {"learned": True} if "learned" in own and own["learned"].kind is bool else {}


def _drawn(key: str, dtype: str = "float64", seed: int = 0, **options: Any) -> dict[str, Array]:
    request = {name: value for name, value in _request(key, dtype).items() if name != "length"}
    return build.init(key, **request, seed=seed, **options)


def _away(key: str, **options: Any) -> dict[str, Array]:
    """Return parameter values that differ from the initial ones, because many initial values are zero or one."""
    rng = np.random.default_rng(5)
    return {name: value + rng.uniform(0.1, 0.5, value.shape) for name, value in _drawn(key, **options).items()}


def _same(what: str, got: Array, expected: Array) -> None:
    """Raise unless two arrays have the same bits."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        found, right = f"{got.dtype} {got.shape}", f"{expected.dtype} {expected.shape}"
        raise CheckFailed(f"{what}: found {found}, expected {right}")
    if got.tobytes() != expected.tobytes():
        bad = np.argwhere((got != expected) & ~(np.isnan(got) & np.isnan(expected)))
        where = tuple(map(int, bad[0])) if len(bad) else (0,) * got.ndim
        raise CheckFailed(f"{what}, entry {where}: found {got[where]!r}, expected exactly {expected[where]!r}")


# ---------------------------------------------------------------------------------------------------------------------
# The checks


def options(key: str) -> Iterator[Difference]:
    """Check defaults, their conversion from text of the command line, and the rejection of invalid values."""
    yield from option_differences(registry.get(key).options)


def option_differences(known: Mapping[str, Option]) -> Iterator[Difference]:
    """Check options in the same way, for encodings and tasks."""
    for name, option in known.items():
        default = option.default
        if not option.doc:
            raise CheckFailed(f"option {name!r} has no `doc`, the description of its meaning")
        text = ",".join(map(str, default)) if isinstance(default, tuple) else str(default)
        if option.validate(name, default) != default or option.parse(name, text) != default:
            raise CheckFailed(f"option {name!r}: the default {default!r} is not {option.expected()}")
        try:
            option.validate(name, object())
        except (TypeError, ValueError):
            continue
        raise CheckFailed(f"option {name!r} accepts any value: expected {option.expected()} only")
    yield _OK


def parameters(key: str) -> Iterator[Difference]:
    """Check initial values (shapes, dependence on the seed only) and the names in `per_layer`."""
    own, switches = registry.get(key), _learning(key)
    part = registry.parse(key, switches)
    stated = combined.parameter_shapes(part, make_spec(**_request(key), axes=combined.axes(part, given=False)))
    one, again = _drawn(key, **switches), _drawn(key, **switches)
    narrow, built = _drawn(key, "float32", **switches), build.build(key, **_request(key), **switches)
    given = build.build(key, **_request(key), **switches, params=one)
    shapes = {name: value.shape for name, value in one.items()}
    if shapes != stated:
        raise CheckFailed(f"initial values have the shapes {shapes}, expected {stated}")
    for name, value in one.items():
        _same(f"the initial {name!r} drawn twice with one seed", again[name], value)
        _same(f"the initial {name!r} in float32", narrow[name], value.astype(np.float32))
    for slot, array in diagnosis.arrays_of(built).items():
        _same(f"slot {slot!r} from given initial values", given[slot], array)
    asked = diagnosis.requests(key, "float64", length=LENGTH, **SIZES)
    learned = {name for request in asked for name in combined.parameter_shapes(*diagnosis.validated(key, request))}
    if missing := set(own.per_layer) - learned:
        raise CheckFailed(f"per_layer names {min(missing)!r}, which is not one of the parameters {sorted(learned)}")
    yield _OK


def arrays(key: str, dtype: str) -> Iterator[Difference]:
    """Check that fills overwrite arrays with various strides, write nothing around them, and give equal bits."""
    request = _request(key, dtype, **_learning(key))
    right = diagnosis.arrays_of(build.build(key, **request))
    for layout in ("as usual", "every second entry", "reversed", "by columns"):
        out, whole = {}, {}
        for slot, array in right.items():
            whole[slot] = np.full((2 * array.size + 4 * _WORDS,), _MARK, array.dtype)
            out[slot] = _laid_out(whole[slot], array.shape, layout)
            out[slot][...] = _STALE
        params = _drawn(key, dtype, **_learning(key))
        before = {name: value.copy() for name, value in params.items()}
        build.build(key, **request, params=params, out=dict(out))
        for slot, array in right.items():
            _same(f"slot {slot!r} in an array laid out {layout}", np.ascontiguousarray(out[slot]), array)
            out[slot][...] = _MARK
            if (touched := np.flatnonzero(whole[slot] != _MARK)).size:
                raise CheckFailed(
                    f"slot {slot!r} laid out {layout}: {touched.size} words outside the array were written"
                )
        for name, value in before.items():
            _same(f"parameter {name!r}, which fill must not change", params[name], value)
    yield _OK


def _laid_out(whole: Array, shape: tuple[int, ...], layout: str) -> Array:
    """Return a view of a flat array with this shape and memory layout."""
    size = int(np.prod(shape))
    if layout == "every second entry":
        return whole[_WORDS : _WORDS + 2 * size : 2].reshape(shape)
    inner = whole[_WORDS : _WORDS + size]
    if layout == "reversed":
        return inner[::-1].reshape(shape)
    return inner.reshape(shape[::-1]).T if layout == "by columns" else inner.reshape(shape)


def adding(key: str, dtype: str) -> Iterator[Difference]:
    """Check that gradients are added to the given arrays, and that gradients of slots and parameters stay unchanged."""
    switches, eps = _learning(key), float(np.finfo(dtype).eps)
    part = registry.parse(key, switches)
    spec = make_spec(**_request(key, dtype), axes=combined.axes(part, given=False))
    params = _drawn(key, dtype, **switches)
    slots = diagnosis.arrays_of(build.build(key, **_request(key, dtype, **switches)))
    dslots = {
        slot: np.cos(np.arange(array.size, dtype=array.dtype)).reshape(array.shape)
        for slot, array in slots.items()
        if SLOTS[slot].dtype != "int32"
    }
    once = build.pull(key, **_request(key, dtype, **switches), dslots=dslots, params=params)
    kept = {name: value.copy() for name, value in (params | dslots).items()}
    found = {name: np.full(value.shape, _MARK, value.dtype) for name, value in params.items()}
    combined.add_gradients(part, spec, params, dslots, found)
    for name, value in (params | dslots).items():
        _same(f"{name!r}, which pull must not change", value, kept[name])
    for name, value in found.items():
        size = float(np.abs(once[name]).max(initial=0.0))
        error = float(np.abs(value - _MARK - once[name]).max(initial=0.0))
        yield Difference(error, 8 * eps * (_MARK + size), f"parameter {name!r}, added to {_MARK}")


def beyond(key: str) -> Iterator[Difference]:
    """Check slots past the training length.

    If the encoding states that they are undefined, there must be an error. Otherwise the slots of earlier positions
    must change exactly if `moves` states so.
    """
    own, params = registry.get(key), _away(key)
    defaults = {name: option.default for name, option in own.options.items()}
    if own.beyond == "undefined":
        try:
            build.build(key, **_request(key, length=FAR), params=params)
        except BeyondTrainingLength:
            yield _OK
            return
        raise CheckFailed(
            f"beyond is 'undefined', but length {FAR} was filled with train_length={LENGTH}: expected "
            "fastpe.BeyondTrainingLength"
        )
    longer = build.build(key, **_request(key, length=LONG), params=params)
    if "grid" in own.options:  # the grid depends on the length, so slots differ; the tests of each encoding check them
        yield _OK
        return
    short = build.build(key, **_request(key), params=params)
    moved = ""
    for name, (one, other) in _earlier(short, longer).items():
        if not np.allclose(one, other, rtol=1e-12, atol=1e-12):
            moved = f"{name} changes by {float(np.abs(one - other).max()):.3g}"
    if bool(moved) != own.moves(**defaults):
        found = moved or "nothing changes"
        raise CheckFailed(f"from length {LENGTH} to length {LONG}, {found}, but `moves` is {not moved}")
    yield _OK


def far(key: str) -> Iterator[Difference]:
    """Check every variant at 64 times the training length: slots are finite, or the encoding rejects the length."""
    own = registry.get(key)
    for variant in diagnosis.variants(key) if own.beyond != "undefined" else ():
        (part,) = registry.parse(key, variant)
        spec = _farthest(part)
        if spec is None or not combined.slot_shapes((part,), spec):
            continue
        sizes: dict[str, Any] = {"dim": spec.dim, "heads": spec.heads, "train_length": TRAINED, "causal": spec.causal}
        params = build.init(key, **sizes, **variant)
        # for encodings of users, check the reference first: of what their fills write, the guards check only the first
        # and the last entry of each array
        for reference in (True, False) if own.file else (False,):
            out = combined.allocate((part,), spec)
            with np.errstate(all="ignore"):  # values that are not finite are reported below
                combined.fill((part,), spec, params, out, reference=reference, finite=False)
            for slot, array in out.items():
                _check_far(slot, array, spec, part)
    yield _OK


def _farthest(part: Part) -> Spec | None:
    """Return the request that reaches farthest without too large slots, or None if the encoding rejects the length.

    Slots for pairs of positions are requested at a few positions up to the farthest one. If the encoding takes no
    positions, these slots are requested at a shorter length.
    """
    causal = part.encoding.direction == "causal"
    request: Request = {"dim": SIZES["dim"], "heads": SIZES["heads"], "train_length": TRAINED, "causal": causal}
    axes = part.encoding.axes(**part.options)
    lengths = [FARTHEST >> halved for halved in range(6)]
    asked: list[Request] = [{"length": lengths[0]}]
    sparse = np.repeat(np.array(_SPARSE)[:, None], axes, axis=1)
    asked.append({"length": len(_SPARSE), "positions": sparse if axes > 1 else sparse[:, 0]})
    asked += [{"length": length} for length in lengths[1:]]
    for each in asked:
        spec = make_spec(**request, **each, axes=axes)
        try:
            part.encoding.check(spec, **part.options)
            shapes = combined.slot_shapes((part,), spec)
        except ValueError:
            if each is asked[0]:
                return None  # the encoding itself refuses this length
            continue
        if sum(math.prod(shape) for shape in shapes.values()) <= _MOST:
            return spec
    return None


def _check_far(slot: str, array: Array, spec: Spec, part: Part) -> None:
    """Raise unless all values are finite. The message names the first position or distance without one."""
    if array.dtype.kind != "f" or not (bad := np.argwhere(~np.isfinite(array))).size:
        return
    names = SLOTS[slot].axes.strip("()").split(", ")
    front, points = array.ndim - len(names), spec.points()
    where, far_off = "", np.zeros(len(bad))
    column = {name: bad[:, front + number] for number, name in enumerate(names)}
    if "2K+1" in column:
        where, far_off = "distance", np.abs(column["2K+1"] - array.shape[front + names.index("2K+1")] // 2)
    elif "N" in column and points.ndim == 1:
        where, far_off = "position", np.abs(points[column["N"]])
        if "M" in column:
            where, far_off = "distance", np.abs(points[column["N"]] - points[column["M"]])
    nearest = int(far_off.argmin())
    value, options = array[tuple(bad[nearest])], ", ".join(f"{name}={each}" for name, each in part.options.items())
    place = f"from {where} {far_off[nearest]:.0f} on" if where else f"at entry {tuple(map(int, bad[nearest]))}"
    raise CheckFailed(
        f"slot {slot!r} is {value} {place}, with train_length={spec.train_length}{options and f', options {options}'}: "
        f"expected finite values up to length {FARTHEST}, or a check that raises fastpe.BeyondTrainingLength"
    )


def needs(key: str) -> Iterator[Difference]:
    """Check that the slots depend on the inputs named in `ENCODING.needs`, and on each of several coordinates."""
    own = registry.get(key)
    defaults = {name: option.default for name, option in own.options.items()}
    special, params = needed.of(own, defaults), _away(key)
    axes = own.axes(**defaults)
    ways: list[dict[str, Any]] = []
    if special is not None and special.what == "coordinates":
        if axes == 1:
            raise CheckFailed("needs is coordinates, but axes() returns 1")
        places = np.stack([np.arange(LENGTH) // 2**axis % 2 for axis in range(axes)], axis=1)
        grid = {"grid": _GRIDS[axes]} if "grid" in own.options and axes in _GRIDS else {}
        shuffled = places[np.random.default_rng(3).permutation(LENGTH)]  # not reversed, which would keep the distances
        ways = [{"positions": places, **grid}, {"positions": shuffled, **grid}]
    elif special is not None and special.what == "graph":
        star = [node for leaf in range(1, LENGTH) for node in (0, leaf)]
        path = [node for first in range(LENGTH - 1) for node in (first, first + 1)]
        ways = [{"edges": tuple(path)}, {"edges": tuple(star)}]
    elif special is not None:
        if "table" not in own.slots:
            raise CheckFailed(
                "needs is digits, but there is no slot 'table', from which the places of digits select rows"
            )
        ModelConfig(key, positions=f"{special.default}:0-9", vocabulary=16)
        ways = [{"positions": np.arange(LENGTH)}, {"positions": np.arange(LENGTH)[::-1]}]
    if ways:
        one, other = (diagnosis.arrays_of(build.build(key, **_request(key), **way, params=params)) for way in ways)
        if all(np.array_equal(array, other[slot]) for slot, array in one.items()):
            raise CheckFailed(f"needs is {special.what if special else axes}, but the slots do not depend on it")
    yield _OK


def _earlier(short: Mapping[str, Any], longer: Mapping[str, Any]) -> dict[str, tuple[Array, Array]]:
    """Return, for each slot, its entries at the positions of the shorter sequence, in both sequences."""
    found, offsets = {}, np.arange(1 - LENGTH, LENGTH)
    for slot, array in short.items():
        other = longer[slot]
        if "2K+1" in SLOTS[slot].axes:
            one, two = (
                x[:, np.clip(offsets, -(x.shape[1] // 2), x.shape[1] // 2) + x.shape[1] // 2] for x in (array, other)
            )
        elif slot == "scores":
            one, two = array, other[..., :LENGTH, :LENGTH]
        elif slot in ("table", "qk_table", "growth", "angles"):
            one, two = array, other[..., :LENGTH, :]
        elif slot == "rotors":
            one, two = array, other[..., :LENGTH, :, :, :]
        elif slot == "row_scale":
            one, two = array, other[..., :LENGTH]
        elif slot == "index":
            one = short["values"][:, array]
            two = longer["values"][:, other[..., :LENGTH, :LENGTH]]
        elif slot in ("values", "pairs", "rectify"):
            continue
        else:
            one, two = array, other
        found[f"slot {slot!r}"] = (one, two)
    return found


def direction(key: str) -> Iterator[Difference]:
    """Check `direction`: a model cannot distinguish left and right if a reversed sequence gives reversed outputs."""
    own = registry.get(key)
    if own.direction in ("yes", "no") and _tells_direction(key) != (own.direction == "yes"):
        found = "differ from" if own.direction == "no" else "equal"
        raise CheckFailed(
            f"direction is {own.direction!r}, but the outputs for a reversed sequence {found} the reversed outputs"
        )
    yield _OK


def _tells_direction(key: str) -> bool:
    """Return whether a model without a mask, with changed initial parameters, distinguishes left and right."""
    config = ModelConfig(
        key, width=SIZES["dim"], heads=SIZES["heads"], layers=2, hidden=8, train_length=LENGTH, dtype="float64"
    )
    network, rng = Transformer(config), np.random.default_rng(2)
    for name, value in network.parameters.items():
        if "encoding." in name:
            # small changes, because some parameters have limits
            value += rng.uniform(0.1, 0.5, value.shape) * rng.choice([-1.0, 1.0], value.shape)
    x = rng.normal(size=(2, LENGTH))
    forth, back = network(x), network(x[:, ::-1])[:, ::-1]
    return bool(np.abs(forth - back).max() > 1e-9 * np.abs(forth).max())


def model(key: str, dtype: str) -> Iterator[Difference]:
    """Compare a whole model, forward and backward, with the reference."""
    causal = registry.get(key).direction == "causal"
    config = ModelConfig(
        key, _learning(key), width=SIZES["dim"], heads=SIZES["heads"], hidden=16, causal=causal, train_length=20
    )
    for difference in diagnosis.step_differences(config, dtype):
        yield difference._replace(where=difference.where or "a model's outputs, loss or gradients")
