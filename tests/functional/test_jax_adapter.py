"""`fastpe.jax.attention` beside JAX's own attention and its gradient checker; needs the extra `jax`."""

import doctest

import numpy as np
import pytest
from attention_problems import SLOTS, problem

import fastpe
from fastpe.functional.passes import Pass
from fastpe.functional.slots import NETWORK, REFLECTIONS

jax = pytest.importorskip("jax", reason="JAX is a peer: pip install -e '.[peers]' from a clone of fastpe")

import jax.numpy as jnp  # noqa: E402 - only where JAX is
from jax.test_util import check_grads  # noqa: E402

from fastpe.jax import attention  # noqa: E402


@pytest.fixture(autouse=True)
def _float64():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def drawn(names=(), **sizes):
    arguments = problem(np.random.default_rng(1), names, **{"n": 4, "m": 5, "d": 4, "reach": 2, **sizes})
    return {name: jnp.asarray(array) for name, array in arguments.items()}


@pytest.mark.parametrize(
    "names",
    [
        (), *((name,) for name in (*SLOTS, "counts")), SLOTS, ("polar", "angles"), REFLECTIONS,
        (*REFLECTIONS, "dropout"), (*NETWORK, "bias"),
    ],
    ids="+".join,
)  # fmt: skip
def test_outputs_are_those_of_numpy_and_gradients_those_of_jaxs_checker(names):
    given = drawn([name for name in names if name != "dropout"], h=2, hk=1)
    index = {name: given.pop(name) for name in ("index",) if name in given}
    options = {"causal": True, "window": 3}
    if "dropout" in names:
        options |= {"dropout": 0.3, "dropout_seed": 3}

    def function(given):
        return attention(**given, **index, **options, lengths=jnp.array([5, 4]))

    plain = {name: np.asarray(x) for name, x in {**given, **index}.items()}
    expected = fastpe.attention(**plain, **options, lengths=np.array([5, 4]))
    for call in (function, jax.jit(function)):
        np.testing.assert_array_equal(call(given), expected)
        check_grads(call, (given,), order=1, modes=["rev"])


def test_bands_are_constants_and_theta_has_a_gradient():
    given = drawn(("bias", "key_bias"), n=6, m=6, d=4) | {"theta": jnp.array([1.0, 0.1])}
    own = fastpe.bands.self_extend(6, group=2, window=2)

    def function(given):
        return attention(**given, bands=own, causal=True)

    check_grads(function, (given,), order=1, modes=["rev"])
    expected = fastpe.attention(**{name: np.asarray(x) for name, x in given.items()}, bands=own, causal=True)
    for call in (function, jax.jit(function)):
        np.testing.assert_array_equal(call(given), expected)
    as_jax = tuple(fastpe.bands.Band(*map(jnp.asarray, band)) for band in own)
    np.testing.assert_array_equal(attention(**given, bands=as_jax, causal=True), expected)
    with pytest.raises(TypeError, match=r"bands\[0\].queries must be known"):
        jax.jit(lambda bands: attention(**given, bands=bands))(as_jax)


@pytest.mark.full("takes seconds")
@pytest.mark.parametrize("causal", [False, True])
def test_it_is_jaxs_attention(causal):
    """In float32: theirs takes the softmax in float32 always."""
    given = drawn(h=4, hk=2, n=70, m=70, d=16, dtype=np.float32)

    def theirs(q, k, v):
        by_position = (x.swapaxes(1, 2) for x in (q, k, v))
        return jax.nn.dot_product_attention(*by_position, is_causal=causal).swapaxes(1, 2)

    found, expected = (
        jax.vjp(function, *given.values()) for function in (lambda *x: attention(*x, causal=causal), theirs)
    )
    assert found[0].dtype == np.float32
    np.testing.assert_allclose(found[0], expected[0], rtol=0, atol=1e-5)
    for ours, exact in zip(found[1](given["q"]), expected[1](given["q"]), strict=True):
        np.testing.assert_allclose(ours, exact, rtol=0, atol=1e-4)


NEW = {
    "mask": lambda rng: {"mask": rng.standard_normal((2, 1, 4, 5))},
    "mask of bool": lambda rng: {"mask": rng.random((2, 1, 4, 5)) < 0.7},
    "spans": lambda rng: {"spans": np.array([[[0, 3], [1, 4], [2, 2], [0, 5]]])},
    "query_start": lambda rng: {"query_start": np.array([0, 3])},
    "sinks": lambda rng: {"sinks": rng.standard_normal(2)},
    "softcap": lambda rng: {"softcap": 1.5},
    "dropout": lambda rng: {"dropout": 0.4, "dropout_seed": np.array(3)},
    "lse": lambda rng: {"return_lse": True},
    "width": lambda rng: {"v": rng.standard_normal((2, 1, 5, 3))},
}


@pytest.mark.parametrize("name", NEW)
def test_what_beside_slots_may_be_given(name):
    plain = problem(np.random.default_rng(1), ("bias",), n=4, m=5, d=4, reach=2, h=2, hk=1)
    plain |= NEW[name](np.random.default_rng(2))
    fixed = {key: plain.pop(key) for key in ("softcap", "dropout", "return_lse") if key in plain}
    given = {key: jnp.asarray(x) for key, x in plain.items()}
    real = {key: x for key, x in given.items() if jnp.issubdtype(x.dtype, jnp.floating)}
    whole = {key: x for key, x in given.items() if key not in real}
    right = fastpe.attention(**plain, **fixed)
    for found in (attention(**given, **fixed), jax.jit(lambda given: attention(**given, **fixed))(given)):
        jax.tree.map(np.testing.assert_array_equal, found, right)
    check_grads(lambda real: attention(**real, **whole, **fixed), (real,), order=1, modes=["rev"])


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    half = {name: x.astype(dtype) for name, x in drawn(("bias",)).items()}
    single = {name: x.astype(jnp.float32) for name, x in half.items()}
    found, pull = jax.vjp(lambda given: attention(**given), half)
    right, right_pull = jax.vjp(lambda given: attention(**given), single)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, right.astype(dtype))
    for name, gradient in pull(found)[0].items():
        np.testing.assert_array_equal(gradient, right_pull(found.astype(jnp.float32))[0][name].astype(dtype))


@pytest.mark.parametrize("name", ["t5", "transformer_xl", "rope_mixed", "graphormer", "kerple_log+learned"])
def test_encodings_with_a_tree_of_parameters(name):
    request = {"dim": 24, "heads": 2, "train_length": 9}
    params = fastpe.jax.init(name, **request, dtype="float64")
    plain = {key: np.asarray(value) for key, value in params.items()}
    sizes = request | {"dtype": "float64"}
    right = fastpe.build(name, 6, **sizes, params=plain)
    built = jax.jit(lambda params: {key: x for key, x in fastpe.jax.build(name, 6, params=params, **request).items()
                                    if isinstance(x, jax.Array)})  # fmt: skip
    found = built(params)
    for slot, value in found.items():
        np.testing.assert_array_equal(value, right[slot])
    weights = {slot: np.cos(np.arange(x.size)).reshape(x.shape) for slot, x in found.items() if x.dtype == np.float64}

    def loss(params):
        return sum((built(params)[slot] * weight).sum() for slot, weight in weights.items())

    exact = fastpe.pull(name, 6, weights, params=plain, **sizes)
    for key, gradient in jax.grad(loss)(params).items():
        np.testing.assert_allclose(gradient, exact[key], rtol=1e-12, atol=1e-14)


def test_encodings_are_what_attention_takes():
    q = jnp.ones((1, 2, 6, 12), jnp.float32)
    for name in ("alibi", "rope", "t5"):
        params = fastpe.jax.init(name, dim=24, heads=2, train_length=9)
        slots = fastpe.jax.build(name, 6, dim=24, heads=2, params=params)
        right = fastpe.build(name, 6, dim=24, heads=2, params={key: np.asarray(x) for key, x in params.items()})
        found = attention(q, q, q, **slots)
        np.testing.assert_array_equal(found, fastpe.attention(*[np.asarray(q)] * 3, **right))
    with pytest.raises(TypeError, match=r"out is not an argument of fastpe.jax.build"):
        fastpe.jax.build("alibi", 6, out={})
    with pytest.raises(TypeError, match="params must have one dtype, not float32, float64"):
        fastpe.jax.build("kerple_log", 6, params={"r1": jnp.ones(1), "r2": jnp.ones(1, jnp.float32)})
    with pytest.raises(TypeError, match="start must be known when the function is traced"):
        jax.jit(lambda start: fastpe.jax.build("alibi", 6, start=start))(3)


def test_pairs_of_lengths_and_traced_integers():
    given = drawn(("values",), n=5)
    lengths = (np.array([5, 2]), np.array([0, 4]))
    plain = {name: np.asarray(x) for name, x in given.items()}
    expected = fastpe.attention(**plain, lengths=lengths)
    np.testing.assert_array_equal(attention(**given, lengths=lengths), expected)
    traced = jax.jit(lambda given, lengths: attention(**given, lengths=lengths))
    np.testing.assert_array_equal(traced(given, tuple(map(jnp.asarray, lengths))), expected)
    loss = jax.grad(lambda given: attention(**given, lengths=lengths).sum(), allow_int=True)
    assert loss(given)["index"].dtype == jax.dtypes.float0


def test_vmap_is_a_loop():
    given = drawn(("bias",))
    queries = jnp.stack([given.pop("q"), jnp.ones((2, 2, 4, 4))])

    def loss(q):
        return attention(q, **given).sum()

    for mapped, single in ((jax.vmap(loss), loss), (jax.vmap(jax.grad(loss)), jax.grad(loss))):
        np.testing.assert_array_equal(mapped(queries), jnp.stack([single(q) for q in queries]))


def test_arrays_of_numpy_keep_their_precision():
    """Angles in float64 beside queries in float32, also where JAX has no float64."""
    jax.config.update("jax_enable_x64", False)
    plain = problem(np.random.default_rng(2), ("angles", "bias"), n=50, d=8, dtype=np.float32)
    plain["angles"] *= 1000
    given = {name: x if name == "angles" else jnp.asarray(x) for name, x in plain.items()}
    expected, pullback = fastpe.attention_vjp(**plain)
    np.testing.assert_array_equal(attention(**given), expected)
    gradient = jax.jit(jax.grad(lambda bias: attention(**{**given, "bias": bias}).sum()))(given["bias"])
    np.testing.assert_array_equal(gradient, pullback(np.ones_like(expected))["bias"])
    mixed = {**plain, "bias": plain["bias"].astype(np.float64)}  # to JAX's float32, as all its arrays
    np.testing.assert_array_equal(attention(**mixed), expected)


def test_a_call_too_large_for_the_host_to_wait_in_line():
    """Large operands that are still being computed when the callback asks for them."""
    x = jnp.ones((1, 4, 3000, 16), jnp.float32)

    def loss(x):
        return attention(jnp.sin(x), x * 2, x @ jnp.ones((16, 16), x.dtype), causal=True).sum()

    value, gradient = jax.jit(jax.value_and_grad(loss))(x)
    assert np.isfinite(value)
    assert gradient.shape == x.shape
    np.testing.assert_allclose(value, loss(x), rtol=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("q", lambda x: x.astype(jnp.bfloat16), "k must have the dtype of q, bfloat16, not float64"),
        ("q", lambda x: x.astype(int), "q must be an array of float32 or float64, or of half precision, not of int64"),
        ("k", lambda x: x.astype(jnp.float32), "k must have the dtype of q, float64, not float32"),
        ("v", lambda x: x[:, :, 1:], "v must have the shape of k"),
        ("bias", lambda x: x[:, 1:], "bias must have the shape"),
    ],
)
def test_arrays_that_are_refused(name, change, words, compiled):
    given = drawn(("bias",))
    function = jax.jit(lambda given: attention(**given)) if compiled else lambda given: attention(**given)
    with pytest.raises((TypeError, ValueError)) as caught:
        function({**given, name: change(given[name])})
    assert words in str(caught.value)


@pytest.mark.parametrize("name", ["q", "v", "bias", "index", "lengths"])
def test_masked_arrays_are_refused_by_name(name):
    given = drawn(("bias", "values")) | {"lengths": np.array([5, 4])}
    for hidden in (np.ma.array(given[name]), [np.ma.array(row) for row in np.atleast_2d(given[name])]):
        with pytest.raises(TypeError, match=rf"^{name}.* must not be a masked array"):
            attention(**{**given, name: hidden})


def test_arguments_that_are_refused():
    given = drawn()
    with pytest.raises(TypeError, match=r"wrt is not an argument of fastpe.jax.attention"):
        attention(**given, wrt=None)
    with pytest.raises(TypeError, match="slope is not an argument"):
        attention(**given, slope=1.0)
    with pytest.raises(ValueError, match=r"tolerance must lie in \[0, 1\), not 2"):
        attention(**given, tolerance=2)
    with pytest.raises(TypeError, match="window must be known when the function is traced"):
        jax.jit(lambda window: attention(**given, window=window))(3)
    with pytest.raises(ValueError, match="bias must be finite"):
        attention(**given, bias=jnp.full((2, 3), jnp.nan))
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(lambda q: attention(**{**given, "q": q}), (given["q"],), (given["q"],))


def test_the_examples_run():
    failed, attempted = doctest.testmod(fastpe.jax)
    assert attempted >= 5
    assert failed == 0


def test_only_what_is_asked_for_is_computed(monkeypatch):
    wanted, passes = [], []
    gradients, forward = fastpe.functional.attention.gradients, Pass._forward
    monkeypatch.setattr(
        fastpe.functional.attention,
        "gradients",
        lambda *x, wrt, **y: (wanted.append(wrt), gradients(*x, wrt=wrt, **y))[1],
    )
    monkeypatch.setattr(Pass, "_forward", lambda self: (passes.append(self.sizes), forward(self))[1])
    given = drawn(("bias", "scores"))
    jax.jit(jax.grad(lambda bias: attention(**{**given, "bias": bias}).sum()))(given["bias"])
    assert wanted == [("bias",)]
    assert len(passes) == 1  # the backward pass goes on from it
