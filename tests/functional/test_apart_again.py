"""Calls through a network, through reflections or with bands that are made again: the bits of the whole way, and its
errors."""

from concurrent.futures import ThreadPoolExecutor

import network_problems
import numba
import numpy as np
import pytest
import reflected_problems
from array_kinds import gapped, read_only, stepped, transposed, unaligned
from attention_options import only_seen, qkv
from attention_problems import random_bands
from called_again import DTYPES, bits, dtype_of, in_dtype, only_again, reference_of
from hypothesis import given, settings

import fastpe
from fastpe.functional import again, networks, plans, reflections, seen

pytestmark = pytest.mark.usefixtures("nothing_kept")

WAYS = {"network": network_problems, "reflections": reflected_problems}


@pytest.fixture
def rng():
    return np.random.default_rng(12)


def anew(*arguments, **given):
    """The bits of the whole way, whatever is kept."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seen, "_kept", {})
        patch.setattr(again, "_kept", {})
        return bits(fastpe.attention(*arguments, **given))


def assert_same(found, expected):
    for one, exact in zip(bits(found), expected, strict=True):
        np.testing.assert_array_equal(one, exact)


def check(problems, run=only_seen):
    """Every problem after the first, of the same kind, gives the bits of the whole way."""
    for which, each in enumerate(problems):
        rows, rest = [each[name] for name in "qkv"], {name: x for name, x in each.items() if name not in "qkv"}
        assert_same((run if which else fastpe.attention)(*rows, **rest), anew(*rows, **rest))


def drawn(way, case):
    """Two problems of other values, the second with a longer cache where its arrays may be longer."""
    found = []
    for more in range(2):
        arguments, options = WAYS[way].arguments_of({**case, "seed": case["seed"] + more})
        found.append({**arguments, **options, "return_lse": True})
    return found


@pytest.mark.parametrize("way", WAYS)
def test_whatever_goes_beside_gives_the_same_bits(way):
    @settings(max_examples=60)
    @given(WAYS[way].cases())
    def try_it(case):
        seen._kept.clear()
        first, second = drawn(way, case)
        as_before = all(first[name].dtype == second[name].dtype for name in "qkv")
        if "query_start" in case.get("sight", ()):  # of what is longer than a cache, the length is drawn, too
            as_before = False
        check([first, second, first], only_seen if as_before and not case["mask"] else fastpe.attention)

    try_it()


def slots_of(rng, name, n, m, b=2, h=4, d=8):
    """Such calls, of numbers that differ from call to call."""

    def normal(*shape):
        return rng.standard_normal(shape).astype(np.float32)

    network = {"mlp_in": normal(5, 2 * h, 3), "mlp_bias": normal(5), "mlp_out": normal(h, 5, 3)}
    path = {"reflectors": normal(b, h, m, d) / 3, "reflect": normal(b, h, m), "causal": True}
    shared = {"reflectors": normal(1, m, d) / 3, "reflect": normal(1, m), "causal": True}
    bands = {"bands": random_bands(rng, b, n, m), "theta": rng.standard_normal(d // 2)}
    starts, seed = {"query_start": np.array([m - n, 3])}, int(rng.integers(2**40))
    keys, ends = np.arange(m), np.sort(rng.integers(0, m + 1, (2, b, 1, n, 1)), axis=0)
    interval, holes = (keys >= ends[0]) & (keys < ends[1]), rng.random((b, 1, n, m)) < 0.6
    hiding = np.where(interval[:, :, :1], 0.0, -np.inf)
    return {
        "network": network, "network of causal ones": {**network, "causal": True, "bias": normal(h, 9), **starts},
        "network and offsets": {**network, "key_offset": 9 * rng.random((h, m)), "sinks": normal(h), "window": 20},
        "network and values": {**network, "values": normal(h, 6), "index": rng.integers(0, 6, (n, m))},
        "network, turned": {**network, "angles": rng.random((1, m, d // 2)), "rel_key": normal(1, 5, d)},
        "network, turned from starts": {**network, "angles": rng.random((1, 340, d // 2)), **starts},
        "network of turned heads": {**network, "angles": rng.random((h, m, d // 2)), "query_start": m - n},
        "reflections of turned heads": {**path, "angles": rng.random((b, h, m, d // 2))},
        "reflections": path, "reflections in a window": {**path, "window": 9, "scale": 0.3},
        "reflections from starts": {**path, **starts, "window": 40, "lengths": np.array([m, 7])},
        "reflections and offsets": {**path, "key_offset": 30 * rng.random((h, m)), "sinks": normal(h)},
        "reflections, turned": {**path, "angles": rng.random((1, m, d // 2)), "row_scale": normal(1, n)},
        "reflections and a cap": {**path, "softcap": 2.0, "bias": normal(h, 9), "dropout": 0.3, "dropout_seed": seed},
        "reflections of mixed heads": {**path, "reflectors": normal(h, m, d) / 3, "reflect": normal(b, 1, m)},
        "reflections of all heads, dropped": {**shared, "dropout": 0.3, "dropout_seed": seed},
        "reflections and others": {**shared, "rel_value": normal(h, 9, d), "gain": normal(h, 9), "rectify": True},
        "reflections, mapped": {**shared, "rotors": normal(1, m, d // 2, 2, 2), "scale": normal(h)},
        "reflections of spans": {
            **shared, "spans": np.sort(rng.integers(-2, m + 3, (1, n, 2)), axis=-1), "window": 60, **starts,
        },
        "reflections of intervals": {**path, "mask": interval, "window": 60},
        "reflections of an interval and spans": {
            **shared, "mask": hiding, "spans": np.tile([m // 2, m - 9], (1, n, 1)),
        },
        "reflections with holes": {**path, "mask": holes},
        "reflections with holes of heads": {**path, "mask": rng.random((h, n, m)) < 0.6, "bias": normal(h, 9)},
        "reflections with added numbers": {**shared, "mask": normal(b, 1, 1, m), "sinks": normal(h)},
        "network of intervals": {**network, "mask": interval, "bias": normal(h, 9), "causal": True},
        "network of an interval and offsets": {
            **network, "mask": hiding, "key_offset": 9 * rng.random((h, m)), **starts,
        },
        "network with holes": {**network, "mask": holes, "gain": normal(h, 9)},
        "network with added numbers": {**network, "mask": normal(n, m)},
        "network, dropped": {**network, "dropout": 0.3, "dropout_seed": seed, "window": 40, "causal": True},
        "network, lifted": {**network, "polar": normal(1, d), "angles": rng.random((1, m, d)), "scale": normal(h)},
        "network and others": {
            **network, "scores": normal(b, h, n, m), "gain": normal(h, 9), "softcap": 2.0, "lengths": np.array([m, 7]),
        },
        "bands": bands, "bands and others": {**bands, "bias": normal(h, 9), "rel_key": normal(1, 5, d)},
        "bands and offsets": {**bands, "key_offset": 30 * rng.random((h, m)), "sinks": normal(h), "window": 30},
        "bands of spans": {**bands, "spans": np.sort(rng.integers(-2, m + 3, (1, n, 2)), axis=-1), "causal": True},
        "bands of halves": {**bands, "pairs": "half", "row_scale": normal(b, h, n), "lengths": np.array([m, 7])},
        "bands and a mask": {**bands, "mask": rng.random((b, h, n, m)) < 0.6, "scale": 0.4},
        "bands, dropped": {**bands, "dropout": 0.3, "dropout_seed": seed, **starts, "rectify": True},
    }[name]  # fmt: skip


BANDED = (
    "bands", "bands and others", "bands and offsets", "bands of spans", "bands of halves", "bands and a mask",
    "bands, dropped",
)  # fmt: skip
APART = (
    "network", "network of turned heads", "network of causal ones", "network and offsets", "network and values",
    "network, turned", "network, turned from starts", "reflections", "reflections of turned heads",
    "reflections in a window",
    "reflections from starts", "reflections and offsets", "reflections, turned", "reflections and a cap",
    "reflections of mixed heads", "reflections of all heads, dropped", "reflections and others",
    "reflections, mapped", "reflections of spans", "network, dropped", "network, lifted", "network and others",
    "reflections of intervals", "reflections of an interval and spans", "reflections with holes",
    "reflections with holes of heads", "reflections with added numbers", "network of intervals",
    "network of an interval and offsets", "network with holes", "network with added numbers",
)  # fmt: skip
LONG = {"network of turned heads", "reflections of turned heads", "reflections of mixed heads"}  # are never kept


def problem(rng, name, dtype, n=1, m=130, d=8):
    rows = [x.astype(dtype) for x in qkv(rng, 2, 4, 2, n, m, d)]
    return dict(zip("qkv", rows, strict=True)) | in_dtype(slots_of(rng, name, n, m, d=d), dtype) | {"return_lse": True}


@pytest.mark.parametrize("name", APART)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_cache_grows_within_one_kind(rng, dtype, name):
    for n in (1, 3, 33):
        seen._kept.clear()
        check([problem(rng, name, dtype_of(dtype), n, m) for m in (70, 71, 131, 70)])
        assert len(seen._kept) == 1


@pytest.mark.parametrize("name", APART)
@pytest.mark.parametrize("dtype", DTYPES)
def test_of_few_queries_calls_are_kept(rng, dtype, name):
    kept = name not in LONG
    for n, m in ((1, 130), (4, 300)):
        again._kept.clear()
        problems = [problem(rng, name, dtype_of(dtype), n, m) for _ in range(4)]
        check(problems[:2], fastpe.attention)
        assert len(again._kept) == kept
        for each in problems[2:] if kept else []:
            assert_same(only_again(**each), anew(**each))


@pytest.mark.parametrize("name", BANDED)
@pytest.mark.parametrize("dtype", DTYPES)
def test_bands_of_other_places_give_the_same_bits(rng, dtype, name):
    for n, m in ((1, 130), (3, 300)):
        again._kept.clear()
        check([problem(rng, name, dtype_of(dtype), n, m) for _ in range(3)], only_again)
        assert len(again._kept) == 1


def test_bands_without_keys_and_bands_that_turn_none(rng):
    """A band that nobody sees, before and after others; keys that all stand at 0."""
    q, k, v = qkv(rng, 2, 4, 2, 1, 300, 8)
    near, middle, far = random_bands(rng, 2, 1, 300)
    flat = near._replace(keys=np.zeros(300))
    for spans in ([[9, 9]], [[300, 310]], [[0, 300]], [[-5, 2]]):
        own = near._replace(spans=np.array(spans)), far._replace(spans=np.array([[299, 0]])), flat._replace(
            spans=np.array([[2, 2]])
        )  # fmt: skip
        check([
            {"q": q, "k": k, "v": v, "bands": bands, "theta": np.linspace(0, 1, 4), "return_lse": True}
            for bands in (own, own[::-1], tuple(each._replace(keys=middle.keys) for each in own), own)
        ], only_again)  # fmt: skip


@pytest.mark.parametrize("name", ["network", "reflections", "bands"])
def test_masks_of_one_interval_and_of_several(rng, name):
    """Those of one are spans, with which kernels do something else."""
    each = problem(rng, name, np.float32)
    one, several = np.arange(130) < 90, rng.random(130) < 0.6
    for masks in ([one, several, one], [several, one, several]):
        seen._kept.clear()
        again._kept.clear()
        check([{**each, "mask": mask} for mask in masks], fastpe.attention)


@pytest.mark.parametrize("name", ["network", "reflections", "bands"])
@pytest.mark.parametrize("layout", [gapped, stepped, read_only, unaligned, transposed])
def test_every_layout(rng, layout, name):
    first, second = (problem(rng, name, np.float32, 2) for _ in range(2))
    other = {key: layout(x) if key != "bands" and np.ndim(x) > 1 else x for key, x in second.items()}
    if name == "bands":
        other["bands"] = tuple(
            each._replace(queries=layout(each.queries), keys=stepped(each.keys), spans=read_only(each.spans))
            for each in other["bands"]
        )
    check([first, other, second, other], fastpe.attention)


@pytest.mark.parametrize("name", ["network and offsets", "reflections", "reflections and a cap", "bands and others"])
def test_lanes_change_no_bit(rng, monkeypatch, name):
    problems = [problem(rng, name, np.float32, 1, 700) for _ in range(2)]
    for lanes in range(1, numba.config.NUMBA_NUM_THREADS + 1):
        for module in (again, networks, plans, reflections):
            monkeypatch.setattr(module, "lanes_for", lambda work, tasks, lanes=lanes: lanes)
        check([*problems, *problems], fastpe.attention)


def test_threads_do_not_meet(rng):
    problems = [problem(rng, name, np.float32, 1, m) for name in (*APART, *BANDED) for m in (60, 61, 60)]
    expected = [anew(**each) for each in problems]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(3):
            for found, exact in zip(pool.map(lambda each: fastpe.attention(**each), problems), expected, strict=True):
                assert_same(found, exact)


def with_last(array, value):
    array = array.copy()
    array[(-1,) * array.ndim] = value
    return array


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("network", {"mlp_in": lambda x: with_last(x, np.nan)}, "mlp_in must be finite"),
        ("network", {"mlp_bias": lambda x: with_last(x, np.inf)}, "mlp_bias must be finite"),
        ("network", {"mlp_out": lambda x: with_last(x, -np.inf)}, "mlp_out must be finite"),
        ("network", {"mlp_out": lambda x: x[..., :1]}, "mlp_out must have"),
        ("network", {"mlp_in": lambda x: x[..., :1]}, "mlp_out must have"),
        ("network", {"mlp_in": lambda x: x[..., :2]}, "mlp_in must have"),
        ("network", {"mlp_bias": lambda x: x[:4]}, "mlp_bias must have"),
        ("network", {"mlp_in": lambda x: x.astype(np.float64)}, "mlp_in must have the dtype"),
        ("network and values", {"index": lambda x: with_last(x, 6)}, "index must lie"),
        ("network and offsets", {"key_offset": lambda x: with_last(x, np.nan)}, "key_offset must be finite"),
        ("reflections", {"reflectors": lambda x: with_last(x, np.nan)}, "reflectors must be finite"),
        ("reflections", {"reflect": lambda x: with_last(x, np.inf)}, "reflect must be finite"),
        ("reflections", {"reflect": lambda x: x[..., 1:]}, "reflect must have"),
        ("reflections", {"causal": lambda x: False}, "causal"),
        ("reflections", {"reflect": lambda x: None}, "reflectors and reflect"),
        ("reflections from starts", {"query_start": lambda x: -x}, "query_start must lie in"),
        ("reflections from starts", {"lengths": lambda x: x + 1}, "lengths of keys must lie"),
        ("network, turned from starts", {"query_start": lambda x: -x}, "query_start must lie in"),
        ("bands", {"theta": lambda x: with_last(x, np.nan)}, "theta must be finite"),
        ("bands", {"theta": lambda x: None}, "bands and theta"),
        ("bands", {"theta": lambda x: x[:, None]}, "theta must have"),
        ("bands", {"bands": lambda x: None}, "bands and theta"),
        ("bands", {"bands": lambda x: ()}, "bands must be"),
        ("bands", {"bands": lambda x: (x[0], x[0])}, "bands must have no key in common"),
        ("bands", {"bands": lambda x: (x[0], x[1], x[0])}, "bands must have no key in common"),
        ("bands", {"bands": lambda x: (*x[:2], x[2]._replace(spans=x[2].spans - 1))}, "both have key 40 of query 0"),
        (
            "bands", {"bands": lambda x: (x[0], x[1]._replace(keys=with_last(x[1].keys, np.nan)), x[2])},
            r"bands\[1\].keys",
        ),
        ("bands", {"bands": lambda x: (x[0]._replace(queries=x[0].queries * np.inf), *x[1:])}, r"bands\[0\].queries"),
        ("bands", {"bands": lambda x: (x[0]._replace(keys=x[0].keys[1:]), *x[1:])}, r"bands\[0\].keys must have"),
        ("bands", {"bands": lambda x: (x[0]._replace(spans=x[0].spans * 1.0), *x[1:])}, r"bands\[0\].spans must hold"),
        ("bands and offsets", {"key_offset": lambda x: with_last(x, np.inf)}, "key_offset must be finite"),
        ("bands and offsets", {"sinks": lambda x: with_last(x, np.inf)}, "sinks must be finite"),
    ],
)  # fmt: skip
def test_errors_are_those_of_ever(rng, name, change, words):
    good = problem(rng, name, np.float32)
    if "bands" in good:  # which all have keys
        ends = np.array([[0, 40], [40, 41], [41, 130]])
        good["bands"] = tuple(
            each._replace(spans=np.tile(own, (2, 1, 1))) for each, own in zip(good["bands"], ends, strict=True)
        )
    for _ in range(3):
        expected = bits(fastpe.attention(**good))
    bad = good | {key: make(good[key]) for key, make in change.items()}
    for _ in range(2):
        with pytest.raises((TypeError, ValueError), match=words):
            fastpe.attention(**bad)
    assert_same(fastpe.attention(**good), expected)


@pytest.mark.parametrize("name", ["network and offsets", "reflections and offsets", "bands and offsets"])
def test_nothing_of_a_call_is_kept(rng, name):
    """Neither what is read nor what was returned."""
    first, second = (problem(rng, name, np.float32) for _ in range(2))
    for each in (first, second):
        fastpe.attention(**each)
    expected, found = anew(**second), fastpe.attention(**second)
    for x in (*first.values(), *found):
        if isinstance(x, np.ndarray) and x.dtype.kind == "f":
            x[...] = np.nan
    assert_same(fastpe.attention(**second), expected)


def test_the_same_by_the_reference_of_calls(rng):
    for name in (*APART, *BANDED):
        each = problem(rng, name, np.float64)
        rows, rest = [each.pop(key) for key in "qkv"], each
        assert_same(fastpe.attention(*rows, **rest), bits(reference_of(*rows, rest)))
