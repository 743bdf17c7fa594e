"""Integers given to attention: of any type that holds them, or one error that names the argument; on every path."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from integer_kinds import as_int, equal_to, far_off, no_integers

import fastpe

KEYS = 12
FORMS = ["numpy", "vjp", "reference", "torch", "jax"]


def values(rows: int) -> np.ndarray:
    return np.random.default_rng(rows).normal(size=(1, 2, rows, 4)).astype("f4")


def attend(form: str, queries: int = 1, **given: Any) -> np.ndarray:
    """What attention gives."""
    q, k, v = values(queries), values(KEYS), values(KEYS)[..., ::-1].copy()
    if form == "vjp":
        return fastpe.attention_vjp(q, k, v, **given)[0]
    if form == "reference":
        return fastpe.reference.attention(q, k, v, **given)
    if form == "torch":
        torch = pytest.importorskip("torch")
        tensors = [torch.from_numpy(x) for x in (q, k, v)]
        given = {name: torch.from_numpy(x) if name == "values" else x for name, x in given.items()}
        return fastpe.torch.attention(*tensors, **given).numpy()
    if form == "jax":
        pytest.importorskip("jax")
        return np.asarray(fastpe.jax.attention(q, k, v, **given))
    return fastpe.attention(q, k, v, **given)


VALUES = values(9)[0, :, :9, 0].copy()
ARGUMENTS: dict[str, tuple[Callable[[Any], dict[str, Any]], str, int, int]] = {
    "query_start": (lambda x: {"query_start": x, "causal": True}, "query_start", 0, 2**40),
    "query_start of samples": (lambda x: {"query_start": row(x), "causal": True}, "query_start", 0, 2**40),
    "lengths": (lambda x: {"lengths": row(x)}, "lengths of keys", 0, KEYS),
    "lengths of queries": (lambda x: {"lengths": (row(x), None)}, "lengths of queries", 0, 1),
    "window": (lambda x: {"window": x}, "window", 1, 2**63 - 1),
    "index": (lambda x: {"index": table(x), "values": VALUES}, "index", 0, 8),
    "dropout_seed": (lambda x: {"dropout": 0.5, "dropout_seed": x}, "dropout_seed", 0, 2**64 - 1),
}


def row(x: Any) -> Any:
    """One sample's."""
    return x.reshape(-1) if hasattr(x, "dtype") else [x]


def table(x: Any) -> Any:
    """The same number for each key."""
    if isinstance(x, np.ndarray | np.generic):
        return np.repeat(np.reshape(x, -1), KEYS)[None]
    return x.reshape(1, 1).expand(1, KEYS) if hasattr(x, "dtype") else [[x] * KEYS]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [name for name in ARGUMENTS if name != "lengths of queries"])
def test_integers_of_any_type_are_the_int_that_they_equal(name, form):
    make, *_ = ARGUMENTS[name]
    expected = attend(form, **make(3))
    kinds = equal_to(3)
    if form == "jax":  # which compiles every call
        kinds = {kind: kinds[kind] for kind in ("numpy Q", "array uint64", "big-endian", "object")}
    for kind, value in kinds.items():
        np.testing.assert_allclose(attend(form, **make(value)), expected, rtol=1e-5, atol=1e-6, err_msg=kind)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ARGUMENTS)
def test_everything_else_is_refused_by_name(name, form):
    make, says, low, high = ARGUMENTS[name]
    for value in far_off():
        if not low <= as_int(value) <= high:
            with pytest.raises(ValueError, match=f"^{says}.* must (lie in|be at)"):
                attend(form, **make(value))
    for value in no_integers().values():
        with pytest.raises((TypeError, ValueError), match=f"^{says}"):
            attend(form, **make(value))


@pytest.mark.parametrize("form", FORMS)
def test_ends_of_spans_past_all_keys_are_the_last_key(form):
    everything = attend(form)
    for first, last in ((0, KEYS), (0, 2**31), (-1, 2**63 - 1), (-(2**63), 2**40)):
        for spans in (np.array([[first, last]]), [[first, last]]):
            np.testing.assert_allclose(attend(form, spans=spans), everything, rtol=1e-6, atol=1e-7)
    for last in (KEYS, 2**63 - 1, 2**63, 2**64 - 1):
        spans = np.array([[[0, last]]], np.uint64)
        np.testing.assert_allclose(attend(form, spans=spans), everything, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(attend(form, spans=spans.tolist()), everything, rtol=1e-6, atol=1e-7)
    assert not attend(form, spans=np.array([[2**64 - 2, 2**64 - 1]], np.uint64)).any()


@pytest.mark.parametrize("window", [1, 5, KEYS, 2**40, 2**41, 2**63 - 1])
def test_windows_of_any_width_at_any_position(window):
    q, k, v = values(1), values(KEYS), values(KEYS)
    for start in (0, 2, KEYS, KEYS + 7, 2**40):
        exact = fastpe.reference.attention(q, k, v, window=window, query_start=start)
        for given in (start, np.array([start])):
            out = fastpe.attention(q, k, v, window=window, query_start=given)
            np.testing.assert_allclose(out, exact, rtol=1e-5, atol=1e-6)


def test_a_window_beside_bands_is_one_of_positions():
    near = fastpe.bands.self_extend(1, KEYS, group=2, window=3)
    q, k, v = values(1), values(KEYS), values(KEYS)
    for start in (0, KEYS, 100):
        given = {"bands": near, "theta": np.array([1.0, 0.1]), "window": 60, "query_start": np.array([start])}
        exact = fastpe.reference.attention(q, k, v, **given)
        np.testing.assert_allclose(fastpe.attention(q, k, v, **given), exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_one_integer_is_no_spans(form):
    with pytest.raises(ValueError, match=r"^spans must have the shape .*, not \(\)$"):
        attend(form, spans=5)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("given", [range(10**12), (range(10**12), None)])
def test_lengths_without_end_are_refused_at_once(form, given):
    with pytest.raises(ValueError, match=r"^lengths of (keys|queries) must have at most 2\*\*27 elements, not 10{12}$"):
        attend(form, lengths=given)


@pytest.mark.parametrize("form", FORMS)
def test_integers_of_any_size_are_named_where_none_is_wanted(form):
    for name in ("causal", "pairs", "softcap", "rectify", "bands"):
        given = {name: [10**5000] if name == "softcap" else 10**5000}
        with pytest.raises((TypeError, ValueError), match=f"^{name} must "):
            attend(form, **given, theta=np.ones(2) if name == "bands" else None)
    with pytest.raises(TypeError, match=r"^wrt must be .*, not an integer of"):
        attend("vjp", wrt=10**5000)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["softcap", "tolerance", "dropout"])
def test_durations_are_no_numbers(form, name):
    if (name, form) == ("tolerance", "reference"):
        return  # which leaves nothing out, and ignores it
    with pytest.raises(TypeError, match=f"^{name} must be a number"):
        attend(form, **{name: np.timedelta64(1)})


@pytest.mark.parametrize("queries", [2, 20])
@pytest.mark.parametrize("given", [2**63, 2**64 - 1, np.uint64(2**63), np.array(2**64 - 1, np.ulonglong)])
def test_large_seeds_drop_the_same_weights_of_tensors(queries, given):
    pytest.importorskip("torch")
    exact = attend("numpy", queries, dropout=0.5, dropout_seed=int(given))
    np.testing.assert_array_equal(attend("torch", queries, dropout=0.5, dropout_seed=given), exact)


@pytest.mark.parametrize("queries", [1, 20])
def test_tensors_of_one_boolean_are_options(queries):
    torch = pytest.importorskip("torch")
    for form in ("numpy", "torch"):
        exact = attend(form, queries, causal=True)
        np.testing.assert_array_equal(attend(form, queries, causal=torch.tensor(True)), exact)
        with pytest.raises(TypeError, match=r"^causal must be True or False, not (tensor|array)\(1\)$"):
            attend(form, queries, causal=torch.tensor(1))


@pytest.mark.parametrize("queries", [1, 20])
@pytest.mark.parametrize("form", FORMS)
def test_spans_of_bands_are_integers_of_any_type(queries, form):
    (near, *rest), theta = fastpe.bands.rerope(queries, KEYS, window=3), np.array([1.0, 0.1])
    exact = attend(form, queries, bands=(near, *rest), theta=theta)
    for spans in (near.spans.tolist(), near.spans.astype(object), near.spans.astype("u8")):
        np.testing.assert_array_equal(
            attend(form, queries, bands=(near._replace(spans=spans), *rest), theta=theta), exact
        )
    with pytest.raises(TypeError, match=r"^bands\[0\].spans must hold integers"):
        attend(form, queries, bands=(near._replace(spans=near.spans + 0.0), *rest), theta=theta)


@pytest.mark.parametrize("name", ["dropout_seed", "query_start", "lengths", "spans", "mask", "scale"])
def test_random_keys_of_jax_are_refused_by_name(name):
    jax = pytest.importorskip("jax")
    key = jax.random.key(0)
    for given in (key, (key, None)) if name == "lengths" else (key,):
        with pytest.raises(TypeError, match=rf"^{name} must hold numbers, not random keys"):
            attend("jax", dropout=0.5, **{"dropout_seed": 1, name: given})
    with pytest.raises(TypeError, match=rf"^{name} must hold numbers, not random keys"):
        jax.jit(lambda own: attend("jax", dropout=0.5, **{"dropout_seed": 1, name: own}))(key)


def test_no_queries_with_dropout():
    assert attend("reference", 0, dropout=0.5, dropout_seed=1).shape == (1, 2, 0, 4)
