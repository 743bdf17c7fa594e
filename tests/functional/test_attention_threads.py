"""Compiled attention on any number of threads, in bounded memory, and what its outputs and padding may hold."""

import importlib
import tracemalloc

import numpy as np
import pytest
from array_kinds import read_only, transposed
from attention_problems import SLOTS, problem
from guards import guarded_allocations

import fastpe
from fastpe.kernels.attention import calls
from fastpe.kernels.threads import team as threads_of_kernels

EDGES_N, EDGES_M = (1, 2, 31, 95, 96, 97, 193), (1, 2, 45, 127, 128, 129, 257)


@pytest.fixture
def rng():
    return np.random.default_rng(11)


COLUMNS = ("key_offset", "key_slope", "query_slope", "row_scale")


@pytest.mark.parametrize("names", [(), ("bias",), SLOTS, COLUMNS])
def test_any_number_of_threads_gives_the_same_bits(rng, names, monkeypatch):
    arguments = problem(rng, names, b=1, h=2, hk=1, n=300, m=400, d=8, dtype=np.float32, reach=50)
    found = []
    for threads in (1, 2, 3, 4, 8):
        monkeypatch.setattr(threads_of_kernels, "default_threads", lambda threads=threads: threads)
        out, pullback = fastpe.attention_vjp(**arguments, causal=True)
        found.append({"out": out, **pullback(arguments["q"])})
    for other in found[1:]:
        for name, array in found[0].items():
            assert array.tobytes() == other[name].tobytes(), name


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nothing_is_written_past_the_ends_of_scratch_memory(rng, dtype, monkeypatch):
    check = guarded_allocations(monkeypatch)
    for n, m, d in ((97, 129, 17), (96, 128, 16), (1, 1, 1), (200, 70, 3)):
        names = [name for name in SLOTS if d > 1 or name not in ("angles", "growth")]
        for chosen in (names, COLUMNS, ()):
            arguments = problem(rng, chosen, n=n, m=m, d=d, dtype=dtype)
            fastpe.attention_vjp(**arguments, causal=True)[1](arguments["q"])
            check()


@pytest.mark.parametrize("names", [(), ("bias", "angles"), ("rel_key", "rel_value", "gain", "key_bias"), COLUMNS])
def test_memory_grows_with_the_length_alone(rng, names, monkeypatch):
    """Far below the 256 MiB of 8192 x 8192 scores."""
    monkeypatch.setattr(threads_of_kernels, "default_threads", lambda: 2)
    arguments = problem(rng, names, b=1, h=1, n=8192, d=16, dtype=np.float32, reach=8191)
    fastpe.attention_vjp(**problem(rng, n=9, dtype=np.float32))[1](np.zeros((2, 2, 9, 8), np.float32))  # compiled now
    tracemalloc.start()
    try:
        out, pullback = fastpe.attention_vjp(**arguments, window=300)
        gradients = pullback(out)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    outputs = out.nbytes + sum(gradient.nbytes for gradient in gradients.values())
    assert peak - outputs < 12 * 2**20


def test_kernels_are_compiled_once_for_each_dtype(rng):
    """Whatever slots, strides and axes there are, read-only or not."""
    for names in ((), SLOTS, ("bias",), ("scale",), COLUMNS):
        for dtype in (np.float32, np.float64):
            arguments = problem(rng, names, n=5, d=4, dtype=dtype)
            for kind in (np.array, read_only, transposed):
                given = {name: kind(array) if name in "qkv" else array for name, array in arguments.items()}
                out, pullback = fastpe.attention_vjp(**given, causal=True)
                pullback(kind(np.ones_like(out)))
    for function in (calls.forward, calls.backward):
        # dropout is another kernel, and so are keys of half precision
        without = [each for each in function.signatures if str(each[3]) == "none" and "int16" not in str(each[2])]
        assert len(without) <= 8  # with slots other than a bias and columns, and without; with columns, and without
        assert sum("Columns" not in str(each[2]) for each in without) <= 4


def test_the_public_name_stays_a_function():
    for module in ("fastpe.functional.attention", "fastpe.kernels.attention", "fastpe.reference"):
        importlib.import_module(module)
    assert callable(fastpe.attention)


def test_growth_that_leaves_the_dtype_within_a_tile_is_refused():
    q = np.ones((1, 97, 16), np.float32)
    slots = fastpe.build("xpos", 97, dim=16, causal=True, scale_base=1)
    with pytest.raises(ValueError, match="growth must change by at most 80 within 96 positions in float32, not by 119"):
        fastpe.attention(q, q, q, causal=True, **slots)


def test_what_padding_holds_reaches_no_gradient():
    rng = np.random.default_rng(0)
    q, k, v = (rng.normal(size=(1, 1, 300, 16)) for _ in range(3))
    found = []
    for padding in (0.0, np.nan):
        k[:, :, 200:] = v[:, :, 200:] = padding
        out, pullback = fastpe.attention_vjp(q, k, v, lengths=np.array([200]))
        found.append((out, *pullback(np.ones_like(out)).values()))
    for zeros, nans in zip(*found, strict=True):
        np.testing.assert_array_equal(zeros, nans)


def test_outputs_may_be_written_to_before_gradients_are_asked_for():
    q, k, v = (np.random.default_rng(i).normal(size=(1, 20, 8)) for i in range(3))
    (out, lse), pullback = fastpe.attention_vjp(q, k, v, return_lse=True)
    before = pullback(v)
    out += 1
    lse[...] = 0
    for name, gradient in pullback(v).items():
        np.testing.assert_array_equal(gradient, before[name])


def test_a_bias_near_the_lowest_number_is_one_like_others():
    q, k, v = (np.random.default_rng(i).normal(size=(1, 300, 8)) for i in range(3))
    low = np.full((1, 599), -1.5e308)
    np.testing.assert_allclose(fastpe.attention(0 * q, k, v, bias=low), fastpe.attention(0 * q, k, v), atol=1e-12)
