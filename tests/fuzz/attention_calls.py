"""Random calls of attention: every combination of slots, masks and layouts, numbers of all kinds, and mistakes."""

from typing import Any

import numpy as np
import pytest
from array_kinds import gapped, read_only, stepped, transposed, unaligned
from attention_problems import SLOTS, assert_agrees, problem, random_bands
from guards import guarded, guarded_allocations, guarded_results
from hypothesis import strategies as st
from refusals import attempt

import fastpe
from fastpe.functional import decode, passes, slot_arrays
from fastpe.functional.slots import REFUSED

_SIZES = (1, 2, 3, 4, 5, 8, 16, 17, 31, 33)
_EDGES = (63, 64, 65, 95, 96, 97, 128, 130, 193)  # of tiles: with one sample and one head
_LAST_AXIS = (  # along which another size is wrong
    "q", "gain", "bias", "theta", "counts", "polar", "key_offset", "key_slope", "query_slope", "row_scale",
)  # fmt: skip
_WILD = {"nan": np.nan, "inf": np.inf, "minus inf": -np.inf, "large": 3e38, "small": 1e-40}


def between_nan(x: np.ndarray) -> np.ndarray:
    """x between two strips that no kernel may read."""
    return guarded(x.shape, x.dtype, x, mark=np.nan if x.dtype.kind == "f" else 2**30)[0]


def lays_out(kind: Any, array: np.ndarray) -> bool:
    """Whether a kind of layout, most of which have NaN between their elements, can have this array's."""
    return array.dtype.kind == "f" or kind in (between_nan, unaligned)


KINDS = {kind.__name__: kind for kind in (between_nan, gapped, stepped, read_only, unaligned, transposed)}


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """Sizes, slots, settings, layouts, a mistake perhaps; values come from a seed."""
    large = draw(st.integers(0, 3)) == 3
    sizes = st.sampled_from(_SIZES + _EDGES if large else _SIZES)
    h = 1 if large else draw(st.sampled_from([1, 2, 3, 4]))
    slots = (*SLOTS, "counts")
    most = draw(st.sampled_from([1, 3, len(slots)]))
    return {
        "b": 1 if large else draw(st.sampled_from([1, 2, 3])),
        "h": h,
        "hk": draw(st.sampled_from([each for each in (1, 2, 3, 4) if h % each == 0])),
        "n": draw(sizes),
        "m": draw(st.none() | sizes),
        "d": draw(st.sampled_from([1, 2, 3, 4, 7, 8, 12, 16, 17, 24, 40])),
        "names": draw(st.lists(st.sampled_from(slots), unique=True, max_size=most)),
        "reach": draw(st.sampled_from([0, 1, 4, 32, 300])),
        "led": draw(st.booleans()),
        "shared": draw(st.booleans()),
        "sharp": draw(st.sampled_from([1.0, 1.0, 1.0, 0.0, 1e-6, 30.0])),
        "dtype": draw(st.sampled_from(["float32", "float64"])),
        "most": draw(st.sampled_from([0, 1, 5, 40, 300])),
        "rectify": draw(st.sampled_from([False, False, True])),
        "pairs": draw(st.sampled_from(["interleaved", "half"])),
        "causal": draw(st.booleans()),
        "window": draw(st.sampled_from([None, None, 1, 2, 40])),
        "lengths": draw(st.sampled_from([None, None, "keys", "both"])),
        "width": draw(st.sampled_from([None, None, 1, 5, 33])),
        "mask": draw(st.sampled_from([None, None, "bool", "intervals", "floats"])),
        "mask axes": draw(st.lists(st.booleans(), min_size=4, max_size=4)),
        "spans": draw(st.sampled_from([False, False, True])),
        "sinks": draw(st.sampled_from([False, False, True])),
        "bands": draw(st.sampled_from([None, None, None, None, 1, 2, 3])),
        "polar": draw(st.sampled_from([False, False, False, True])),
        "softcap": draw(st.sampled_from([None, None, 0.1, 2.0, 50.0])),
        "dropout": draw(st.sampled_from([0.0, 0.0, 0.25])),
        "tolerance": draw(st.sampled_from([None, None, 0, 1e-3])),
        "batched": draw(st.booleans()),
        "kinds": draw(st.lists(st.sampled_from([None, *KINDS]), min_size=4, max_size=4)),
        "wild": draw(st.sampled_from([None] * 10 + list(_WILD))),
        "mistake": draw(st.sampled_from([None] * 30 + list(MISTAKES))),
        "seed": draw(st.integers(0, 2**16)),
    }


def judge(case: dict[str, Any]) -> None:
    """Results and gradients agree with the reference, whatever lies around the arrays; or what is wrong is refused."""
    rng = np.random.default_rng(case["seed"])
    arguments, options = _arguments(rng, case)
    before = {name: np.copy(array) for name, array in arguments.items()}
    with pytest.MonkeyPatch.context() as patch:
        checks = guarded_allocations(patch, some=False), guarded_results(patch, decode, passes, slot_arrays)
        if case["mistake"] is not None:
            _refused(case["mistake"], rng, arguments, options)
        elif case["wild"] is not None or case["tolerance"] == 1e-3:
            _does_not_break(case, rng, arguments, options)
        else:
            condition = max(1.0, case["sharp"])
            assert_agrees(arguments, condition=condition, tolerance=case["tolerance"], **options)
            _agrees_alone(case, arguments, options)
        for check in checks:
            check()
    for name, array in arguments.items():
        if case["wild"] is None:
            np.testing.assert_array_equal(array, before[name], err_msg=name)


def _agrees_alone(case: dict[str, Any], arguments: dict[str, Any], options: dict[str, Any]) -> None:
    """Without gradients, where few queries take a path of their own, the output is that of the other path."""
    given = {**arguments, **options, "tolerance": case["tolerance"], "return_lse": True}
    (out, lse), _ = fastpe.attention_vjp(**given, wrt=())
    near = 1e-4 if out.dtype == np.float32 else 1e-11
    for found, expected in zip(fastpe.attention(**given), (out, lse), strict=True):
        np.testing.assert_allclose(found, expected, rtol=near * max(1.0, case["sharp"]), atol=near)


def _arguments(rng: np.random.Generator, case: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays as the case lays them out, and settings; what cannot go together is left out of the case."""
    names = [name for name in case["names"] if name not in ("growth", "counts") or case["causal"]]
    names = [name for name in names if name not in ("angles", "growth") or case["d"] > 1]
    bands = case["bands"] is not None and case["d"] > 1
    names = [name for name in names if not bands or name not in ("rotors", "angles", "growth", "rel_gain", "counts")]
    if case["polar"] and not bands:
        names = ["polar", *(name for name in names if name not in REFUSED["polar"])]
    names += ["theta"] * bands + ["sinks"] * case["sinks"]
    sizes = {key: case[key] for key in ("h", "hk", "n", "m", "d", "reach", "led", "shared", "sharp", "most")}
    # where scores are rounded to 0, or counts to a whole number, a factor of the gradient is 0 or not as it happens
    dtype = np.dtype("float64" if case["rectify"] or "counts" in names else case["dtype"])
    b = case["b"] if case["batched"] else 1
    arguments = problem(rng, names, b=b, dv=case["width"], dtype=dtype, **sizes)
    if case["mask"] == "floats":
        arguments["mask"] = _mask(rng, case, arguments)
    for place, (name, array) in enumerate(arguments.items()):
        if not case["batched"] and name in "qkv":
            arguments[name] = array = array[0]
        kind = KINDS.get(case["kinds"][min(place, 3)])
        if kind is not None and array.ndim > 1 and lays_out(kind, array):
            arguments[name] = kind(array)
    options = {key: case[key] for key in ("causal", "window", "rectify", "pairs", "softcap", "dropout")}
    options["dropout_seed"] = case["seed"] if case["dropout"] else None
    if case["mask"] in ("bool", "intervals"):
        options["mask"] = _mask(rng, case, arguments)
    if case["spans"]:
        n, m = (arguments[name].shape[-2] for name in "qk")
        options["spans"] = np.sort(rng.integers(-1, m + 2, (n, 2)), axis=-1)
    if bands:
        n, m = (arguments[name].shape[-2] for name in "qk")
        options["bands"] = random_bands(rng, b if case["led"] else 1, n, m, case["bands"])
    if case["lengths"] is not None:
        shape = (b,) if case["batched"] else ()
        n, m = (arguments[name].shape[-2] for name in "qk")
        queries, keys = (rng.integers(0, most + 1, shape) for most in (n, m))
        options["lengths"] = keys if case["lengths"] == "keys" else (queries, keys)
    return arguments, options


def _mask(rng: np.random.Generator, case: dict[str, Any], arguments: dict[str, Any]) -> np.ndarray:
    """A mask that is one for all along some axes."""
    (*led, n, _), m = arguments["q"].shape, arguments["k"].shape[-2]
    whole = (*led, n, m) if case["batched"] else (*led[-1:], n, m)
    kept = case["mask axes"][: len(whole)]
    seen = rng.random([size if keep else 1 for size, keep in zip(whole, kept, strict=True)]) < 0.7
    if case["mask"] == "intervals":
        seen = np.arange(m) < rng.integers(0, m + 1, (n, 1))
    if case["mask"] != "floats":
        return seen
    return np.where(seen, rng.standard_normal(seen.shape), -np.inf).astype(arguments["q"].dtype)


def _does_not_break(case: dict[str, Any], rng: np.random.Generator, arguments: Any, options: Any) -> None:
    dout = rng.standard_normal((*arguments["q"].shape[:-1], arguments["v"].shape[-1])).astype(arguments["q"].dtype)
    if case["wild"] is not None:
        target = [dout, *(arguments[name].copy() for name in "qkv")][case["seed"] % 4]
        target[(..., 0, 0)] = _WILD[case["wild"]]
        if target is not dout:
            arguments = {**arguments, "_qkv"[case["seed"] % 4]: target}
    out, pullback = fastpe.attention_vjp(**arguments, **options, tolerance=case["tolerance"])
    gradients = pullback(dout)
    assert out.shape == dout.shape
    for name, gradient in gradients.items():
        assert gradient.shape == np.shape(arguments[name]), name
        assert case["wild"] is not None or np.isfinite(gradient).all(), name


# ---------------------------------------------------------------------------------------------------------------------
# Mistakes: each gives arguments that are wrong, and the names of which one has to stand in the message


def _of_a_slot(rng: np.random.Generator, arguments: dict[str, Any]) -> str:
    names = sorted(set(arguments) - {"scale", "index", "values", "angles", "mask", "sinks"})
    return str(rng.choice(names))


def _shape(rng: Any, arguments: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    name = _of_a_slot(rng, arguments)
    axis = -3 if name == "scores" else -1 if name in _LAST_AXIS else -2
    return {name: np.concatenate([arguments[name]] * 2, axis=axis)}, (name, "k", "v")


def _dtype(rng: Any, arguments: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    name = str(rng.choice(sorted(set(arguments) - {"scale", "index", "mask"})))
    return {name: arguments[name].astype(rng.choice(["int64", "complex128", "bool"]))}, (name,)


def _not_finite(rng: Any, arguments: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    name = str(rng.choice(sorted(set(arguments) - {"q", "k", "v", "index", "mask"}) or ["scale"]))
    array = np.array(arguments.get(name, 1.0))
    array[(-1,) * array.ndim] = rng.choice([np.nan, np.inf, -np.inf])
    return {name: array}, (name,)


def _index(rng: Any, arguments: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    n, m, h = arguments["q"].shape[-2], arguments["k"].shape[-2], arguments["q"].shape[-3]
    index = rng.integers(0, 7, (n, m))
    index[-1, -1] = rng.choice([-1, 7, 2**31, 2**62, -(2**63)])
    return {"index": index, "values": np.zeros((h, 7), arguments["q"].dtype)}, ("index",)


def _one_of(name: str, *values: Any) -> Any:
    return lambda rng, arguments: ({name: values[rng.integers(len(values))]}, (name,))


MISTAKES = {
    "shape": _shape,
    "dtype": _dtype,
    "not finite": _not_finite,
    "index": _index,
    "axes": lambda rng, arguments: ({(name := _of_a_slot(rng, arguments)): arguments[name][None, None]}, (name, "k")),
    "text": lambda rng, arguments: ({(name := _of_a_slot(rng, arguments)): "abc"}, (name,)),
    "scale": _one_of("scale", np.ones(17), "a", np.inf, [[1.0]], 1j),
    "lengths": _one_of("lengths", -1, 10**6, 1.5, "a", [1, 2, 3, 4, 5], (1, 2, 3, 4), np.array([2**62]), (None, -1)),
    "softcap": _one_of("softcap", 0, -1.0, np.nan, "a", [1.0]),
    "sinks": _one_of("sinks", np.ones((2, 2, 2)), "a", 1.0),
    "dropout": _one_of("dropout", 1.0, -0.1, np.nan, "a"),
    "spans": _one_of("spans", 1, "a", np.zeros((1, 1, 1, 2), int), [[0.5, 1.0]]),
    "bands": _one_of("bands", (), 1, "ab", [(1, 2)], [np.ones((1, 1))] * 3),
    "mask": _one_of("mask", np.full((1, 1), np.nan), "a", np.ones((1, 1, 1, 1, 1)), np.ones((1, 1), int)),
    "window": _one_of("window", 0, -1, 1.5, "a", True),
    "tolerance": _one_of("tolerance", 1, -1e-9, np.nan, "a", True, [0.1]),
    "wrt": _one_of("wrt", "q", ("nope",), 3, ("q", 3), {"index": 1}),
    "causal": _one_of("causal", 1, None, "yes"),
    "pairs": _one_of("pairs", "whole", 3, b"half"),
    "rectify": _one_of("rectify", 1, "yes"),
    "return_lse": _one_of("return_lse", 1, "yes"),
    "name": _one_of("biass", 1.0),
}


def _refused(mistake: str, rng: np.random.Generator, arguments: Any, options: Any) -> None:
    wrong, named = MISTAKES[mistake](rng, arguments)
    given = {**options, **arguments, **wrong}
    # the reference does not look at a tolerance, nor through its arrays for numbers that are not finite
    unseen = mistake in ("tolerance", "not finite", "scale")
    for call in (fastpe.attention_vjp, *([] if unseen else [fastpe.reference.attention_vjp])):
        _, error = attempt(lambda call=call: call(**given), named)
        assert error is not None, f"{call.__module__} takes {wrong}"


ATTENTION = (cases(), judge)
