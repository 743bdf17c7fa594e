"""Arguments of attention with a network over its scores (DAPE), at random, and the comparison with the reference."""

import attention_problems
import numpy as np
import pytest
from beside_reference import assert_agrees_in
from hypothesis import strategies as st

from fastpe import reference
from fastpe.functional.slots import NETWORK, samples
from fastpe.reference import _mlp

_NEAR = 2e-5  # several times the error that a unit's input has in float32
OWN = ("angles", "bias", "scores", "scale", "sinks")
TERMS = (
    "rel_key", "rel_query", "rel_value", "key_bias", "gain", "values", "key_offset", "key_slope", "query_slope",
    "row_scale", "rotors",
)  # fmt: skip


@st.composite
def cases(draw):
    """Sizes, what goes with a network, and settings; values come from a seed."""
    b, h, hk = draw(st.sampled_from([(1, 1, 1), (2, 2, 1), (2, 4, 2), (3, 3, 3)]))
    return {
        "b": b, "h": h, "hk": hk, "n": draw(st.sampled_from([1, 2, 5, 33, 65])),
        "m": draw(st.sampled_from([1, 3, 30, 31, 64, 97])), "d": 2 * draw(st.integers(1, 5)),
        "dv": draw(st.integers(1, 17)), "dtype": draw(st.sampled_from(["float64", "float32"])),
        "w": draw(st.sampled_from([1, 4, 9, 13])), "taps": draw(st.sampled_from([1, 3, 7])),
        "beside": sorted(draw(st.sets(st.sampled_from(OWN)))),
        "terms": sorted(draw(st.sets(st.sampled_from(TERMS), max_size=draw(st.sampled_from([0, 1, 3, len(TERMS)]))))),
        "polar": draw(st.sampled_from([False] * 4 + [True])), "reach": draw(st.sampled_from([0, 4, 300])),
        "mask": draw(st.sampled_from([None, None, "bool", "floats"])), "shared": draw(st.booleans()),
        "softcap": draw(st.sampled_from([None, None, 0.5, 20.0])), "led": draw(st.booleans()),
        "rectify": draw(st.sampled_from([False, False, False, True])),
        "causal": draw(st.booleans()), "window": draw(st.sampled_from([None, 1, 8])), "spans": draw(st.booleans()),
        "lengths": draw(st.sampled_from([None, "keys", "queries", "both"])), "seed": draw(st.integers(0, 2**31)),
        "dropout": draw(st.sampled_from([0.0, 0.0, 0.3, 0.9])),
    }  # fmt: skip


def arguments_of(case):
    """Arrays and settings of a case."""
    rng = np.random.default_rng(case["seed"])
    # where products round to 0 a factor of the gradient is 0 or not as it happens
    dtype = np.dtype("float64" if case["rectify"] else case["dtype"])
    sizes = {name: case[name] for name in ("b", "h", "hk", "n", "m", "d", "dv", "w", "taps")}
    beside = [name for name in case["beside"] if not (case["polar"] and name == "angles")]
    arguments = problem(rng, **sizes, beside=beside, dtype=dtype)
    apart = {"rel_key", "rel_query", "key_bias", "rotors"} if case["polar"] else set()
    names = [name for name in case["terms"] if name not in apart] + ["polar"] * case["polar"]
    sizes = {name: case[name] for name in ("b", "h", "n", "m", "d", "dv", "shared", "led", "reach")}
    arguments |= samples(names, rng, **sizes, dtype=dtype)
    b, n, m = (case[name] for name in "bnm")
    keys, queries = rng.integers(0, m + 1, b), rng.integers(0, n + 1, b)
    lengths = {None: None, "keys": keys, "queries": (queries, None), "both": (queries, keys)}[case["lengths"]]
    options = {name: case[name] for name in ("causal", "window", "softcap", "rectify")} | {"lengths": lengths}
    seen = rng.random([rng.choice([1, size]) for size in (b, case["h"], n)] + [m]) < 0.7
    if case["mask"] == "bool":
        options["mask"] = seen
    elif case["mask"]:
        arguments["mask"] = np.where(seen, rng.standard_normal(seen.shape), -np.inf).astype(dtype)
    if case["dropout"]:
        options |= {"dropout": case["dropout"], "dropout_seed": case["seed"]}
    if case["spans"]:
        first = rng.integers(0, m + 1, (b, n))
        options["spans"] = np.stack([first, np.minimum(first + rng.integers(0, 40, (b, n)), m)], axis=-1)
    if dtype == np.float32 and _units_apart(arguments, options) < _NEAR:
        arguments = {name: x.astype(np.float64) if x.dtype == dtype else x for name, x in arguments.items()}
    return arguments, options


def _units_apart(arguments, options):
    """How far the nearest input of a unit is from 0, where its slope jumps and rounding decides on the side."""
    convolved, found = _mlp._convolved, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_mlp, "_convolved", lambda *given: found.append(convolved(*given)) or found[-1])
        reference.attention(**arguments, **options)
    return np.abs(found[0] + arguments["mlp_bias"][:, None, None]).min(initial=1.0)


def problem(rng, *, b=2, h=2, n=6, d=4, dv=5, beside=(), **sizes):
    """q, k, v, a network and other arguments."""
    names = (*NETWORK, *(name for name in beside if name != "angles"), *(name for name in beside if name == "angles"))
    return attention_problems.problem(rng, names, b=b, h=h, n=n, d=d, dv=dv, shared=True, **sizes)


def agrees(arguments, **options):
    """As `assert_agrees_in`, of sums over units and taps as well."""
    (_, h, n, d), (m, dv) = arguments["q"].shape, arguments["v"].shape[2:]
    more = 1 + len(arguments.keys() & {*TERMS, "polar", "mask"}) + (options.get("softcap") is not None)
    terms = more * (n + m + d + dv) * len(arguments["mlp_bias"]) * arguments["mlp_in"].shape[-1]
    return assert_agrees_in(terms, terms * n * m * h, arguments, **options)
