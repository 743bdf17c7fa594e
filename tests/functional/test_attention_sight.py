"""Masks, spans, positions of each sample, soft caps, sinks, dropout and widths of values: any combination of them,
beside the reference; and what each of them is, beside a few lines of NumPy."""

import numpy as np
import pytest
from attention_problems import SLOTS, assert_agrees, problem
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.fixture
def rng():
    return np.random.default_rng(7)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_combination(data):
    """With any slots, causal or not, windows, lengths."""
    draw = data.draw
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    b, h, hk = draw(st.sampled_from([(1, 1, 1), (2, 2, 1), (2, 4, 2), (3, 2, 2)]))
    n, m = draw(st.sampled_from([1, 2, 5, 97, 130])), draw(st.sampled_from([1, 3, 64, 129, 200]))
    d = draw(st.integers(2, 9))
    names = draw(st.lists(st.sampled_from(SLOTS), unique=True, max_size=3))
    dtype = draw(st.sampled_from([np.float64, np.float32]))
    starts = rng.integers(0, 2 * m, b) if draw(st.booleans()) else None
    arguments = problem(rng, names, b=b, h=h, hk=hk, n=n, m=m, d=d, dtype=dtype, reach=draw(st.sampled_from([2, 300])))
    if starts is not None:
        length = max(m, n + int(starts.max()))
        for name in ("angles", "growth"):
            if name in arguments:
                arguments[name] = problem(rng, [name], b=b, h=h, n=length, m=length, d=d)[name]
        arguments["query_start"] = starts
    width = draw(st.sampled_from([d, 1, 21]))
    if width != d:
        arguments["v"] = rng.standard_normal((b, hk, m, width)).astype(dtype)
        if "rel_value" in arguments:
            arguments["rel_value"] = rng.standard_normal((*arguments["rel_value"].shape[:-1], width)).astype(dtype)
    if draw(st.booleans()):
        arguments["sinks"] = rng.standard_normal(h).astype(dtype)
    options = drawn_sight(draw, rng, (b, h, n, m), dtype)
    if "mask" in options and options["mask"].dtype != bool:
        arguments["mask"] = options.pop("mask")
    assert_agrees(arguments, condition=4.0, causal="growth" in names or draw(st.booleans()),
                  window=draw(st.sampled_from([None, 1, 70])), tolerance=draw(st.sampled_from([None, 0])),
                  pairs=draw(st.sampled_from(["interleaved", "half"])), **options)  # fmt: skip


def drawn_sight(draw, rng, sizes, dtype):
    b, _, n, m = sizes
    options = {}
    kind = draw(st.sampled_from(["", "bool", "intervals", "float", "hiding"]))
    if kind:
        shape = tuple(draw(st.sampled_from([1, size])) for size in sizes)
        seen = rng.random(shape) < draw(st.sampled_from([0.1, 0.9]))
        if kind == "intervals":
            seen = np.arange(m) < rng.integers(0, m + 1, (b, 1, n, 1))
        added = np.where(seen, 0 if kind == "hiding" else rng.standard_normal(seen.shape), -np.inf).astype(dtype)
        options["mask"] = seen if kind in ("bool", "intervals") else added
    if draw(st.booleans()):
        options["spans"] = np.sort(rng.integers(-2, m + 3, (draw(st.sampled_from([1, b])), n, 2)), axis=-1)
    if draw(st.booleans()):
        options["softcap"] = draw(st.sampled_from([0.5, 5.0, 50.0]))
    if draw(st.booleans()):
        options |= {"dropout": draw(st.sampled_from([0.1, 0.9])), "dropout_seed": draw(st.integers(0, 2**40))}
    return options
