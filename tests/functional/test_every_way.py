"""What holds for attention whatever terms its scores have: plain, with any slot, bands, reflections or a network."""

import tracemalloc

import numpy as np
import pytest
from array_kinds import gapped, read_only, stepped, transposed, unaligned
from attention_problems import SLOTS, problem, random_bands
from guards import guarded_allocations
from network_problems import TERMS as NETWORK_TERMS
from reflected_problems import TERMS as REFLECTED_TERMS

import fastpe
from fastpe import reference
from fastpe.functional import attention as host
from fastpe.functional.slots import NETWORK, REFLECTIONS
from fastpe.kernels.attention.slots import SLOTS as TABLE
from fastpe.kernels.attention.tile import FEW
from fastpe.kernels.threads import team as threads_of_kernels

WAYS = {
    "plain": (),
    "bias": ("bias", "sinks"),
    "all slots": SLOTS,
    "columns": ("key_offset", "key_slope", "query_slope", "row_scale"),
    "rotors": ("rotors",),
    "rotors of all positions": ("rotors",),
    "polar": ("polar", "angles"),
    "counts": ("counts", "bias"),
    "bands": ("bias", "theta"),
    "reflections": REFLECTIONS,
    "reflections and all terms": (*REFLECTIONS, *REFLECTED_TERMS, "key_offset", "scale", "sinks"),
    "network": (*NETWORK, "bias"),
    "network and all terms": (*NETWORK, *NETWORK_TERMS, "bias", "scores", "angles", "scale", "sinks"),
}
LAYOUTS = (gapped, stepped, read_only, unaligned, transposed, np.asfortranarray)
DROPPED = {"dropout": 0.3, "dropout_seed": 7}
every_way = pytest.mark.parametrize("way", WAYS)


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def arguments_of(way, rng, **sizes):
    """Arguments of causal attention; with all terms a soft cap and a mask of floats too."""
    sizes = {"b": 2, "h": 4, "hk": 2, "d": 8, **sizes}
    names = [name for name in WAYS[way] if sizes["d"] > 1 or name not in ("angles", "growth")]
    given = problem(rng, names, taps=3, **sizes) | {"causal": True}
    (b, _, n, _), m = given["q"].shape, given["k"].shape[2]
    if way == "rotors of all positions":
        given["rotors"] = given["rotors"][..., :1, :, :, :]
    if way == "bands":
        given["bands"] = random_bands(rng, b, n, m)
    if "terms" in way:
        mask = np.where(rng.random((b, 1, n, m)) < 0.7, rng.standard_normal((b, 1, n, m)), -np.inf)
        given |= {"mask": mask.astype(given["q"].dtype), "softcap": 3.0}
    return given


def results(given, **options):
    """Outputs, and the gradients of outputs."""
    out, pullback = fastpe.attention_vjp(**given, **options)
    return {"out": out, **pullback(out)}


def assert_same_bits(found, expected):
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].tobytes() == array.tobytes(), name


@pytest.mark.parametrize(("shared", "dropout"), [(False, {}), (True, DROPPED)], ids=["own", "shared, dropped"])
@pytest.mark.parametrize("n", [2, 300])
@every_way
def test_any_number_of_threads_gives_the_same_bits(rng, way, n, shared, dropout, monkeypatch):
    sizes = {"h": 2, "hk": 1, "n": n, "m": 400, "reach": 50, "dtype": np.float32, "shared": shared}
    given = arguments_of(way, rng, **sizes) | dropout
    found = []
    for threads in (1, 2, 3, 8):
        monkeypatch.setattr(threads_of_kernels, "default_threads", lambda threads=threads: threads)
        found.append(results(given))
    for other in found[1:]:
        assert_same_bits(other, found[0])


@pytest.mark.parametrize("layout", LAYOUTS)
@every_way
def test_arrays_may_have_any_strides(rng, way, layout):
    plain = arguments_of(way, rng, n=60, m=130)
    strange = dict(plain)
    for name, x in plain.items():
        if isinstance(x, np.ndarray) and x.dtype.kind == "f":
            strange[name] = layout(x) if x.ndim > 1 else stepped(x)
    (out, pullback), (same, back) = (fastpe.attention_vjp(**given) for given in (plain, strange))
    dout = rng.standard_normal(out.shape)
    assert_same_bits({"out": same, **back(layout(dout))}, {"out": out, **pullback(dout)})


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
@pytest.mark.parametrize(("way", "n"), [*((way, 40) for way in WAYS), ("plain", 1), ("bias", 1), ("all slots", 1)])
def test_half_precision_is_computed_in_float32(rng, way, n, name):
    dtype = np.dtype(name if name == "float16" else pytest.importorskip("ml_dtypes").bfloat16)
    given = arguments_of(way, rng, n=n, m=60, dtype=np.float32)
    halves = {key: x.astype(dtype) for key, x in given.items() if getattr(x, "dtype", None) == np.float32}
    singles = {key: x.astype(np.float32) for key, x in halves.items()}
    out, pullback = fastpe.attention_vjp(**given | halves)
    wide, back = fastpe.attention_vjp(**given | singles)
    assert out.dtype == dtype
    found, expected = {"out": out, **pullback(out)}, {"out": wide, **back(out.astype(np.float32))}
    for key, array in expected.items():
        assert found[key].dtype == (dtype if key in (*halves, "out") else array.dtype)
        rounding = 2.0**-10 if name == "float16" else 2.0**-7
        near = {"rtol": rounding, "atol": 1e-5 * (1 + abs(array).max(initial=0))}
        np.testing.assert_allclose(found[key].astype(np.float64), array, **near, err_msg=key)
    alone = fastpe.attention(**given | halves).astype(np.float64)
    np.testing.assert_allclose(alone, wide, rtol=rounding, atol=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@every_way
def test_nothing_is_written_past_the_ends_of_scratch_memory(rng, way, dtype, monkeypatch):
    check = guarded_allocations(monkeypatch)
    for n, m, d, most in ((97, 129, 17, 31), (96, 128, 16, 32), (1, 1, 1, 0), (3, 200, 3, 300), (200, 70, 3, 1)):
        if way == "bands" and d == 1:
            continue
        given = arguments_of(way, rng, h=2, hk=2, n=n, m=m, d=d, dtype=dtype, most=most)
        for dropout in ({}, DROPPED):
            results(given | dropout)
            check()


@every_way
def test_nothing_is_read_before_it_is_written(rng, way, monkeypatch):
    """Fresh memory happens to be zero: here it is not."""
    given = arguments_of(way, rng, n=140, m=150) | {"lengths": (np.array([140, 50]), np.array([0, 150]))}
    expected, empty = results(given), np.empty

    def dirty(*arguments, **options):
        found = empty(*arguments, **options)
        found.view(np.uint8)[...] = 0xFF
        return found

    monkeypatch.setattr(np, "empty", dirty)
    assert_same_bits(results(given), expected)


@every_way
def test_gradients_are_the_same_alone_and_once_more_and_of_outputs_that_were_kept(rng, way):
    """What nobody asks for is not written, and of what is asked for nothing is missing."""
    given = arguments_of(way, rng, n=40, m=50)
    both, pullback = fastpe.attention_vjp(**given, return_lse=True)
    every = pullback(both)
    assert_same_bits(pullback(both), every)
    for wrt in ((), *((name,) for name in every), tuple(every)[::-2]):
        some = fastpe.attention_vjp(**given, return_lse=True, wrt=wrt)[1](both)
        assert list(some) == list(wrt)
        assert_same_bits(some, {name: every[name] for name in wrt})
    rest = {"window": None, "lengths": None, "tolerance": None, "wrt": tuple(every)}
    for name, gradient in host.gradients(*both, both, **given, **rest).items():
        near = 1e-12 * abs(every[name]).max()
        np.testing.assert_allclose(gradient, every[name], rtol=0, atol=near, err_msg=name)


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("dropout", [{}, DROPPED], ids=["whole", "dropped"])
@pytest.mark.parametrize("way", [way for way in WAYS if way != "all slots" and "all terms" not in way])
def test_memory_grows_with_the_length_alone(rng, way, dropout, monkeypatch):
    """Scores would take 64 MiB, as some slots do that are left out here."""
    monkeypatch.setattr(threads_of_kernels, "default_threads", lambda: 2)
    sizes = {"b": 1, "h": 1, "hk": 1, "dtype": np.float32}
    few, given = (arguments_of(way, rng, n=n, reach=n - 1, **sizes) | dropout for n in (300, 4096))
    results(few)  # compiled now
    tracemalloc.start()
    try:
        found = results(given)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak - sum(array.nbytes for array in found.values()) < 12 * 2**20


@pytest.mark.parametrize("sizes", [{"n": 0}, {"m": 0}, {"b": 0}])
@every_way
def test_no_queries_or_no_keys_give_zeros(rng, way, sizes):
    given = arguments_of(way, rng, **{"n": 3, "m": 3, **sizes})
    for vjp in (fastpe.attention_vjp, reference.attention_vjp):
        out, pullback = vjp(**given)
        np.testing.assert_array_equal(out, np.zeros(given["q"].shape))
        for name, gradient in pullback(np.ones_like(out)).items():
            np.testing.assert_array_equal(gradient, np.zeros(np.shape(given[name])), err_msg=name)


def of_one_query(given, i, keys):
    """Query i and the first keys alone, as decoding has them."""
    found = dict(given)
    axes = {"q": ("N", "D"), "k": ("M", "D"), "v": ("M", "Dv"), "mask": ("N", "M")}
    parts = {"N": slice(i, i + 1), "M": slice(keys), "L": slice(keys), "L1": slice(keys)}
    for name, array in given.items():
        own = axes.get(name, TABLE[name].axes if name in TABLE else ())
        if isinstance(array, np.ndarray) and own:
            found[name] = array[(..., *(parts.get(axis, slice(None)) for axis in own))]
    return found


@pytest.mark.parametrize("way", [way for way in WAYS if way != "bands"])  # which tests/test_bands.py has
def test_a_query_at_a_time_gives_what_all_queries_give(rng, way):
    given = arguments_of(way, rng, n=200, most=30)
    whole = fastpe.attention(**given)
    for i in (0, 1, 31, 32, 150, 199):
        keys = min(i + 2, 200)  # the taps of a network reach the next key
        found = fastpe.attention(**of_one_query(given, i, keys), query_start=i)
        np.testing.assert_allclose(found[:, :, 0], whole[:, :, i], rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [1, int(FEW) + 1, 70])
@pytest.mark.parametrize("way", ["columns", "reflections", "network"])
def test_sums_over_a_long_text_lose_nothing(rng, way, n):
    """In float32 as if they had begun with the first key: 2^22 is taken off before anything is rounded."""
    given = arguments_of(way, rng, n=n, m=90, dtype=np.float32)
    offsets, found = np.round(np.cumsum(rng.exponential(size=(4, 90)), axis=-1) * 1024) / 1024, []
    for before in (0, 2**22):
        own = {**given, "key_offset": offsets + before, "sinks": np.full(4, before, np.float32)}
        (out, lse), pullback = fastpe.attention_vjp(**own, window=30, return_lse=True)
        assert lse.dtype == np.float32
        found.append({"out": out, "lse": lse - before, **pullback((out, np.ones_like(lse)))})
    assert found[0]["key_offset"].dtype == np.float64
    for name, array in found[0].items():
        atol = 1.0 if name == "lse" else 1e-6
        np.testing.assert_allclose(found[1][name], array, rtol=0, atol=atol, err_msg=name)
