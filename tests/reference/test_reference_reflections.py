"""What a layer makes reflections of: token by token, and gradients by differences."""

import numpy as np
import pytest
from content_checks import differences
from scipy.special import expit

from fastpe import reference


def problem(heads=2, n=6, front=()):
    rng = np.random.default_rng(0)
    shapes = {"x": (*front, n, 4), "down": (4, 3), "up": (3, 4), "taps": (3, 4), "weight": (heads, 4), "bias": (heads,)}
    return {name: rng.normal(size=shape) for name, shape in shapes.items()}


def test_reflections_agree_with_the_formula_token_by_token():
    given = problem()
    w, beta = reference.reflections(**given)
    x, taps = given["x"], given["taps"]
    p = x @ given["down"] @ given["up"]
    for t in range(6):
        c = sum(taps[k] * p[t - 2 + k] for k in range(3) if t - 2 + k >= 0)
        y = (c * expit(c)).reshape(2, 2)
        np.testing.assert_allclose(w[:, t], y / np.sqrt(np.sum(y**2, axis=1, keepdims=True) + 1e-6), rtol=1e-12)
        far = 2 * expit(given["weight"] @ x[t] + given["bias"])
        np.testing.assert_allclose(beta[:, t], far, rtol=1e-12)


def test_large_inputs_do_not_overflow():
    given = problem()
    w, beta = reference.reflections(**given | {"bias": np.array([-1000.0, 1000.0]), "taps": 1e4 * given["taps"]})
    assert np.isfinite(w).all()
    np.testing.assert_array_equal(beta, [[0.0] * 6, [2.0] * 6])


def test_reflections_do_not_cross_documents():
    """Of one, three and two tokens."""
    given = problem()
    w, beta = reference.reflections(**given, places=np.array([0, 0, 1, 2, 0, 1]))
    for part in (slice(0, 1), slice(1, 4), slice(4, 6)):
        alone = reference.reflections(**given | {"x": given["x"][part]})
        np.testing.assert_allclose(w[:, part], alone[0], rtol=1e-12)
        np.testing.assert_allclose(beta[:, part], alone[1], rtol=1e-12)


@pytest.mark.parametrize("own", [{}, {"places": np.array([[0, 1, 2, 3, 4], [0, 0, 1, 2, 0]])}])
def test_gradients_are_the_central_differences(own):
    given, rng = problem(n=5, front=(2,)), np.random.default_rng(1)
    (w, beta), pullback = reference.reflections_vjp(**given, **own)
    dw, dbeta = rng.normal(size=w.shape), rng.normal(size=beta.shape)
    found = pullback(dw, dbeta)
    assert found.keys() == given.keys()
    for name, value in given.items():

        def weighed(x, name=name):
            w, beta = reference.reflections(**given | {name: x}, **own)
            return np.sum(w * dw) + np.sum(beta * dbeta)

        np.testing.assert_allclose(found[name], differences(weighed, value), rtol=1e-6, atol=1e-8, err_msg=name)


def test_attention_with_reflections_is_path():
    """As the layer of a model does."""
    given, rng = problem(), np.random.default_rng(2)
    w, beta = reference.reflections(**given)
    q, k, v = rng.normal(size=(3, 2, 6, 2))
    found = reference.attention(q, k, v, causal=True, reflectors=w, reflect=beta)
    np.testing.assert_allclose(found, reference.path(q, k, v, w, beta), rtol=1e-12)
