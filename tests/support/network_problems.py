"""Arguments of attention with a network over its scores (DAPE), at random, and the comparison with the reference."""

import numpy as np
from guards import assert_error_law
from hypothesis import strategies as st

import fastpe
from fastpe.doctor.allowed_error import wider
from fastpe.functional.together import BESIDE_NETWORK, NETWORK
from fastpe.reference._attention import attention_vjp_in


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
    }  # fmt: skip


def arguments_of(case):
    """Arrays and settings of a case."""
    rng = np.random.default_rng(case["seed"])
    sizes = {name: case[name] for name in ("b", "h", "hk", "n", "m", "d", "dv", "w", "taps", "beside")}
    b, n, m = (case[name] for name in "bnm")
    keys, queries = rng.integers(0, m + 1, b), rng.integers(0, n + 1, b)
    lengths = {None: None, "keys": keys, "queries": (queries, None), "both": (queries, keys)}[case["lengths"]]
    options = {"causal": case["causal"], "window": case["window"], "lengths": lengths}
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
    """Outputs, logarithms and all gradients obey the error law beside the reference; returns the outputs."""
    dtype, (h, n, d), m = arguments["q"].dtype, arguments["q"].shape[1:], arguments["k"].shape[2]
    terms = (n + m + d) * len(arguments["mlp_bias"]) * arguments["mlp_in"].shape[-1]
    options |= {"return_lse": True}
    ours, pull = fastpe.attention_vjp(**arguments, **options)
    exact, exact_pull = attention_vjp_in(wider(dtype), **arguments, **options)
    plain, plain_pull = attention_vjp_in(dtype, **arguments, **options)
    hidden = exact[1] == -np.inf
    np.testing.assert_array_equal(ours[1][hidden], -np.inf)
    np.testing.assert_array_equal(ours[0][hidden], exact[0][hidden])
    rows = np.random.default_rng(3)
    douts = tuple(rows.standard_normal(x.shape).astype(dtype) for x in ours)
    found, expected, same = pull(douts), exact_pull(douts), plain_pull(douts)
    assert found.keys() == expected.keys()
    _assert_agrees(ours[0], exact[0], plain[0], terms)
    _assert_agrees(*(np.where(hidden, 0, x) for x in (ours[1], exact[1], plain[1])), terms)
    for name, gradient in found.items():
        assert gradient.shape == np.shape(arguments[name])
        assert gradient.dtype == (np.float64 if name in ("scale", "angles") else dtype)
        narrow = gradient.astype(dtype)  # that of scale is summed in float64, of terms that are not
        _assert_agrees(narrow, expected[name], same[name], terms * n * m * h)
    return ours


def _assert_agrees(result, exact, same_dtype, terms):
    """The error law, with no less than 0.25 for the largest entry: of what is next to nothing the terms are not."""
    ours, exact, numpys = (np.append(x, x.dtype.type(0.25)) for x in (result, exact, same_dtype.astype(result.dtype)))
    assert_error_law(ours, exact, numpys, terms)
