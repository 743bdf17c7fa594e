"""Arguments of attention with reflections (PaTH), at random, and the comparison with the reference."""

import numpy as np
from attention_problems import problem
from beside_reference import assert_agrees_in
from hypothesis import strategies as st

from fastpe.functional.slots import REFLECTIONS, samples

TERMS = (
    "rel_key", "rel_query", "rel_value", "key_bias", "gain", "bias", "values", "scores", "angles", "key_slope",
    "query_slope", "row_scale", "rotors",
)  # fmt: skip
SLOPES = {"key_slope", "query_slope"}


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
        "terms": sorted(draw(st.sets(st.sampled_from(TERMS), max_size=draw(st.sampled_from([0, 1, 3, len(TERMS)]))))),
        "mask": draw(st.sampled_from([None, None, "bool", "floats"])), "reach": draw(st.sampled_from([0, 4, 300])),
        "softcap": draw(st.sampled_from([None, None, 0.5, 20.0])),
        "pairs": draw(st.sampled_from(["interleaved", "half"])),
        "rectify": draw(st.sampled_from([False, False, False, True])),
        "window": draw(st.sampled_from([None, None, 1, 2, 31, 50])),
        "sight": sorted(draw(st.sets(st.sampled_from(["spans", "query_start"])))),
        "dropout": draw(st.sampled_from([0.0, 0.1, 0.9])),
        "lengths": draw(st.sampled_from([None, "keys", "queries", "both"])), "seed": draw(st.integers(0, 2**31)),
    }  # fmt: skip


def arguments_of(case):
    """Arrays and settings of a case."""
    # where products round to 0 a factor of the gradient is 0 or not as it happens, and a path of one channel is as good
    # as 0 after a while
    rectify = case["rectify"] and case["d"] > 3
    rng, dtype = np.random.default_rng(case["seed"]), np.dtype("float64" if rectify else case["dtype"])
    b, n, m = (case[name] for name in "bnm")
    terms = [name for name in case["terms"] if name != "angles" or case["d"] > 1]
    names = [*REFLECTIONS, *case["beside"], *terms]
    sizes = {name: case[name] for name in ("b", "h", "n", "m", "d", "dv", "shared", "led", "reach")}
    arguments = problem(rng, names, hk=case["hk"], **sizes, dtype=dtype)
    keys, queries = rng.integers(0, m + 1, b), rng.integers(0, n + 1, b)
    lengths = {None: None, "keys": keys, "queries": (queries, None), "both": (queries, keys)}[case["lengths"]]
    options = {name: case[name] for name in ("window", "softcap", "pairs")} | {"lengths": lengths, "rectify": rectify}
    seen = rng.random([rng.choice([1, size]) for size in (b, case["h"], n)] + [m]) < 0.7
    if case["mask"] == "bool":
        options["mask"] = seen
    elif case["mask"]:
        arguments["mask"] = np.where(seen, rng.standard_normal(seen.shape), -np.inf).astype(dtype)
    if "spans" in case["sight"]:
        options["spans"] = np.sort(rng.integers(-3, m + 4, (rng.choice([1, b]), n, 2)), axis=-1)
    if "query_start" in case["sight"]:
        options["query_start"] = rng.integers(0, m + 20, b)
        longest = max(m, n + int(options["query_start"].max(initial=0)))
        sizes |= {"n": longest, "m": longest}
        arguments |= samples([name for name in terms if name in ("angles", "rotors")], rng, **sizes, dtype=dtype)
    if case["dropout"]:
        options |= {"dropout": case["dropout"], "dropout_seed": int(rng.integers(2**40))}
    return arguments, {"causal": True, **options}


def agrees(arguments, **options):
    """As `assert_agrees_in`; gradients are sums over all cells, and every term adds its own rounding.

    Those of slopes are sums of offsets, up to the length as large as others."""
    (n, d), (m, dv) = arguments["q"].shape[-2:], arguments["v"].shape[-2:]
    more = 1 + len(arguments.keys() & {*TERMS, "mask"}) + (options.get("softcap") is not None)
    return assert_agrees_in(more * (n + m + d + dv), more * n * m * (d + dv), arguments, by_sizes=SLOPES, **options)
