"""Arguments of attention with a network over its scores (DAPE), at random, and the comparison with the reference."""

import numpy as np
from beside_reference import assert_agrees_in
from hypothesis import strategies as st

from fastpe.functional.together import BESIDE_NETWORK, NETWORK


@st.composite
def cases(draw):
    """Sizes, what goes with a network, and settings; values come from a seed."""
    b, h, hk = draw(st.sampled_from([(1, 1, 1), (2, 2, 1), (2, 4, 2), (3, 3, 3)]))
    return {
        "b": b, "h": h, "hk": hk, "n": draw(st.sampled_from([1, 2, 5, 33, 65])),
        "m": draw(st.sampled_from([1, 3, 30, 31, 64, 97])), "d": 2 * draw(st.integers(1, 5)),
        "dv": draw(st.integers(1, 17)), "dtype": draw(st.sampled_from(["float64", "float32"])),
        "w": draw(st.sampled_from([1, 4, 9, 13])), "taps": draw(st.sampled_from([1, 3, 7])),
        "beside": sorted(draw(st.sets(st.sampled_from([*BESIDE_NETWORK, "scale"])))),
        "causal": draw(st.booleans()), "window": draw(st.sampled_from([None, 1, 8])), "spans": draw(st.booleans()),
        "lengths": draw(st.sampled_from([None, "keys", "queries", "both"])), "seed": draw(st.integers(0, 2**31)),
        "dropout": draw(st.sampled_from([0.0, 0.0, 0.3, 0.9])),
    }  # fmt: skip


def arguments_of(case):
    """Arrays and settings of a case."""
    rng = np.random.default_rng(case["seed"])
    sizes = {name: case[name] for name in ("b", "h", "hk", "n", "m", "d", "dv", "w", "taps", "beside")}
    b, n, m = (case[name] for name in "bnm")
    keys, queries = rng.integers(0, m + 1, b), rng.integers(0, n + 1, b)
    lengths = {None: None, "keys": keys, "queries": (queries, None), "both": (queries, keys)}[case["lengths"]]
    options = {"causal": case["causal"], "window": case["window"], "lengths": lengths}
    if case["dropout"]:
        options |= {"dropout": case["dropout"], "dropout_seed": case["seed"]}
    if case["spans"]:
        first = rng.integers(0, m + 1, (b, n))
        options["spans"] = np.stack([first, np.minimum(first + rng.integers(0, 40, (b, n)), m)], axis=-1)
    return problem(rng, **sizes, dtype=np.dtype(case["dtype"])), options


def problem(rng, *, b=2, h=2, hk=None, n=6, m=None, d=4, dv=5, w=3, taps=1, dtype=np.float64, beside=()):
    """q, k, v, a network, and what goes with it."""
    m, hk = n if m is None else m, hk or h
    shapes = {
        "q": (b, h, n, d), "k": (b, hk, m, d), "v": (b, hk, m, dv), "mlp_in": (w, 2 * h, taps), "mlp_bias": (w,),
        "mlp_out": (h, w, taps), "bias": (h, 9), "scores": (h, n, m), "sinks": (h,),
    }  # fmt: skip
    names = ("q", "k", "v", *NETWORK, *(name for name in beside if name not in ("angles", "scale")))
    made = {name: (rng.standard_normal(shapes[name]) / (1 + (name in NETWORK))).astype(dtype) for name in names}
    if "scale" in beside:
        made["scale"] = np.linspace(0.2, 0.5, h)
    if "angles" in beside:
        made["angles"] = rng.standard_normal((1, max(n, m), d // 2))
    return made


def agrees(arguments, **options):
    """As `assert_agrees_in`, of sums over units and taps as well."""
    (b, h, n, d), (m, dv) = arguments["q"].shape, arguments["v"].shape[2:]
    terms = (n + m + d + dv) * len(arguments["mlp_bias"]) * arguments["mlp_in"].shape[-1]
    return assert_agrees_in(terms, terms * n * m * h, arguments, cells=b * h * n * m, **options)
