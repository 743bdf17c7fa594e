"""Arguments of attention with reflections (PaTH), at random, and the comparison with the reference."""

import numpy as np
from attention_problems import problem
from beside_reference import assert_agrees_in
from hypothesis import strategies as st

from fastpe.functional.together import REFLECTIONS


@st.composite
def cases(draw):
    """Sizes, what goes with reflections, and settings; values come from a seed."""
    b, h, hk = draw(st.sampled_from([(1, 1, 1), (2, 2, 1), (2, 4, 2), (3, 2, 2)]))
    return {
        "b": b, "h": h, "hk": hk, "n": draw(st.sampled_from([1, 2, 5, 65, 97])),
        "m": draw(st.sampled_from([1, 3, 32, 64, 129])), "d": draw(st.integers(1, 9)),
        "dv": draw(st.sampled_from([None, 11])), "dtype": draw(st.sampled_from(["float64", "float32"])),
        "shared": draw(st.booleans()), "led": draw(st.booleans()),
        "beside": sorted(draw(st.sets(st.sampled_from(["scale", "key_offset", "sinks"])))),
        "window": draw(st.sampled_from([None, None, 1, 2, 31, 50])),
        "sight": sorted(draw(st.sets(st.sampled_from(["spans", "query_start"])))),
        "dropout": draw(st.sampled_from([0.0, 0.1, 0.9])),
        "lengths": draw(st.sampled_from([None, "keys", "queries", "both"])), "seed": draw(st.integers(0, 2**31)),
    }  # fmt: skip


def arguments_of(case):
    """Arrays and settings of a case."""
    rng, dtype = np.random.default_rng(case["seed"]), np.dtype(case["dtype"])
    b, n, m = (case[name] for name in "bnm")
    names = [*REFLECTIONS, *(name for name in case["beside"] if name != "sinks")]
    sizes = {name: case[name] for name in ("b", "h", "hk", "n", "m", "d", "shared", "led")}
    arguments = problem(rng, names, **sizes, dtype=dtype)
    if case["dv"]:
        arguments["v"] = rng.standard_normal((b, case["hk"], m, case["dv"])).astype(dtype)
    if "sinks" in case["beside"]:
        arguments["sinks"] = rng.standard_normal(case["h"]).astype(dtype)
    keys, queries = rng.integers(0, m + 1, b), rng.integers(0, n + 1, b)
    lengths = {None: None, "keys": keys, "queries": (queries, None), "both": (queries, keys)}[case["lengths"]]
    options = {"window": case["window"], "lengths": lengths}
    if "spans" in case["sight"]:
        options["spans"] = np.sort(rng.integers(-3, m + 4, (rng.choice([1, b]), n, 2)), axis=-1)
    if "query_start" in case["sight"]:
        options["query_start"] = rng.integers(0, m + 20, b)
    if case["dropout"]:
        options |= {"dropout": case["dropout"], "dropout_seed": int(rng.integers(2**40))}
    return arguments, {"causal": True, **options}


def agrees(arguments, **options):
    """As `assert_agrees_in`; gradients are sums over all cells."""
    (n, d), (m, dv) = arguments["q"].shape[-2:], arguments["v"].shape[-2:]
    return assert_agrees_in(n + m + d + dv, n * m * (d + dv), arguments, **options)
