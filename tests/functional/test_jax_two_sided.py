"""`fastpe.jax.two_sided` beside `fastpe.columns.two_sided` and JAX's gradient checker; needs the extra `jax`."""

import numpy as np
import pytest

import fastpe

jax = pytest.importorskip("jax", reason="JAX is a peer: pip install -e '.[peers]' from a clone of fastpe")

import jax.numpy as jnp  # noqa: E402 - only where JAX is
from jax.test_util import check_grads  # noqa: E402

from fastpe.jax import two_sided  # noqa: E402


@pytest.fixture(autouse=True)
def _float64():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def drawn(n=5, dtype=np.float64):
    """Arguments, keys of one head for two of queries."""
    rng = np.random.default_rng(0)
    rows = {name: rng.standard_normal((2, heads, n, 4)) for name, heads in (("q", 2), ("k", 1), ("v", 1))}
    rows |= {"bias": rng.standard_normal((2, 3)), "sinks": np.array([0.3, -1.0])}
    gates = {name: rng.standard_normal(size) for name, size in (("before", (2, n)), ("after", (2, 1, n)))}
    sums = {name: fastpe.columns.forget_gate(logits) for name, logits in gates.items()}
    return {name: x.astype(dtype) for name, x in rows.items()} | sums


def test_it_is_that_of_numpy_with_its_gradients():
    plain = drawn()
    given, options = {name: jnp.asarray(x) for name, x in plain.items()}, {"window": 4, "return_lse": True}
    exact, pullback = fastpe.columns.two_sided_vjp(**plain, lengths=[5, 4], **options)

    def function(given):
        return two_sided(**given, lengths=jnp.array([5, 4]), **options)

    for call in (function, jax.jit(function)):
        found, pull = jax.vjp(call, given)
        for one, other in zip(found, exact, strict=True):
            np.testing.assert_array_equal(one, other)
        (gradients,), wanted = pull(found), pullback(exact)
        for name, gradient in wanted.items():
            np.testing.assert_array_equal(gradients[name], gradient, err_msg=name)
    check_grads(function, (given,), order=1, modes=["rev"])


@pytest.mark.full("takes seconds")
def test_vmap_constants_and_half_precision():
    plain = drawn(dtype=np.float32)
    given = {name: jnp.asarray(x) for name, x in plain.items()}
    both = jnp.stack([given["after"], 2 * given["after"]])
    mapped = jax.vmap(lambda after: two_sided(**{**given, "after": after}))(both)
    np.testing.assert_array_equal(mapped[1], two_sided(**{**given, "after": both[1]}))
    jax.config.update("jax_enable_x64", False)
    far = {name: plain[name] + 2.0**20 for name in ("before", "after")}  # which float32 does not hold
    rows = {name: x for name, x in given.items() if name not in far}
    np.testing.assert_array_equal(two_sided(**rows, **far), fastpe.columns.two_sided(**{**plain, **far}))
    half = {name: x.astype(jnp.float16) for name, x in rows.items()}
    exact = fastpe.columns.two_sided(**{name: np.asarray(x) for name, x in half.items()}, **far)
    np.testing.assert_array_equal(two_sided(**half, **far), exact)


def test_there_is_no_second_derivative():
    given = {name: jnp.asarray(x) for name, x in drawn().items()}

    def slope(before):
        return jax.grad(lambda before: two_sided(**{**given, "before": before}).sum())(before).sum()

    with pytest.raises(Exception, match="callbacks do not support JVP"):
        jax.grad(slope)(given["before"])


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("wrong", "named"), [
    ({"before": np.ones((2, 4))}, r"before must have the shape \(H or 1, N\)"), ({"after": None}, "after must"),
    ({"causal": True}, "causal cannot be given to two_sided"), ({"softcap": 1.0}, "softcap cannot be given"),
    ({"q": np.ones((2, 2, 3, 4))}, "q must have as many rows as k, 5, not 3"), ({"foo": 1}, "foo is not an argument"),
    ({"tolerance": 2}, "tolerance must"),
])  # fmt: skip
def test_mistakes_are_refused_by_name(wrong, named, compiled):
    given = drawn() | wrong
    traced = {name: given.pop(name) for name in ("q", "before")}
    function = jax.jit(lambda x: two_sided(**x, **given)) if compiled else lambda x: two_sided(**x, **given)
    with pytest.raises((TypeError, ValueError), match=f"^{named}"):
        function(traced)
