"""The single operations in plain NumPy: each forward, then its vector-Jacobian product (`op_vjp`)."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import erfc

Array = np.ndarray[Any, Any]
Pullback = Callable[[Array], Array]


def linear(x: Array, weight: Array, bias: Array) -> Array:
    """Return x @ weight + bias for x (..., in), weight (in, out), bias (out,).

    Examples
    --------
    >>> linear(np.array([[1.0, 2.0]]), np.eye(2), np.array([0.0, 1.0])).tolist()
    [[1.0, 3.0]]
    """
    return x @ weight + bias


def linear_vjp(x: Array, weight: Array, bias: Array) -> tuple[Array, Callable[[Array], tuple[Array, Array, Array]]]:
    """Return `linear` and its pullback, dy -> (dx, dweight, dbias)."""

    def pullback(dy: Array) -> tuple[Array, Array, Array]:
        rows, drows = x.reshape(-1, x.shape[-1]), dy.reshape(-1, dy.shape[-1])
        return dy @ weight.T, rows.T @ drows, drows.sum(axis=0)

    return linear(x, weight, bias), pullback


def relu(x: Array) -> Array:
    """Return max(x, 0).

    Examples
    --------
    >>> relu(np.array([-1.0, 2.0])).tolist()
    [0.0, 2.0]
    """
    return np.maximum(x, 0)


def relu_vjp(x: Array) -> tuple[Array, Pullback]:
    """Return `relu` and its pullback, dy -> dx; the slope at 0 is 0."""
    return relu(x), lambda dy: np.where(x > 0, dy, 0)


def gelu(x: Array) -> Array:
    """Return x Phi(x), Phi the normal distribution function (Hendrycks and Gimpel 2016), by erfc: the exact form.

    Examples
    --------
    >>> gelu(np.array([-1.0, 0.0, 1.0])).round(6).tolist()
    [-0.158655, 0.0, 0.841345]
    """
    return x * _normal_cdf(x)


def gelu_vjp(x: Array) -> tuple[Array, Pullback]:
    """Return `gelu` and its pullback, dy -> dx."""
    slope = _normal_cdf(x) + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return gelu(x), lambda dy: dy * slope


def _normal_cdf(x: Array) -> Array:
    cdf: Array = erfc(-x * math.sqrt(0.5)) / 2
    return cdf


def layer_norm(x: Array, weight: Array, bias: Array, eps: float = 1e-5) -> Array:
    """Return weight (x - mean) / sqrt(var + eps) + bias, moments over the last axis (Ba, Kiros, Hinton 2016, eq. 4).

    Examples
    --------
    >>> layer_norm(np.array([1.0, 3.0]), np.ones(2), np.zeros(2), eps=0.0).tolist()
    [-1.0, 1.0]
    """
    centred = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + eps)
    return weight * (centred / deviation) + bias


def layer_norm_vjp(
    x: Array, weight: Array, bias: Array, eps: float = 1e-5
) -> tuple[Array, Callable[[Array], tuple[Array, Array, Array]]]:
    """Return `layer_norm` and its pullback, dy -> (dx, dweight, dbias)."""
    centred = x - x.mean(axis=-1, keepdims=True)
    deviation = np.sqrt(np.mean(centred * centred, axis=-1, keepdims=True) + eps)
    normal = centred / deviation

    def pullback(dy: Array) -> tuple[Array, Array, Array]:
        dnormal = dy * weight
        along = np.mean(dnormal * normal, axis=-1, keepdims=True)
        dx = (dnormal - dnormal.mean(axis=-1, keepdims=True) - normal * along) / deviation
        rows = tuple(range(x.ndim - 1))
        return dx, np.sum(dy * normal, axis=rows), np.sum(dy, axis=rows)

    return weight * normal + bias, pullback


def softmax(x: Array) -> Array:
    """Return exp(x) / sum exp(x) over the last axis.

    Examples
    --------
    >>> softmax(np.array([1000.0, 1000.0])).tolist()
    [0.5, 0.5]
    """
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    y: Array = powers / powers.sum(axis=-1, keepdims=True)
    return y


def softmax_vjp(x: Array) -> tuple[Array, Pullback]:
    """Return `softmax` and its pullback, dy -> dx."""
    y = softmax(x)
    return y, lambda dy: y * (dy - np.sum(y * dy, axis=-1, keepdims=True))


def embedding(tokens: Array, weight: Array) -> Array:
    """Return the rows of weight (V, C) that tokens (...), integers in [0, V), name.

    Examples
    --------
    >>> embedding(np.array([2, 0]), np.array([[0.0], [1.0], [2.0]])).tolist()
    [[2.0], [0.0]]
    """
    rows: Array = weight[tokens]
    return rows


def embedding_vjp(tokens: Array, weight: Array) -> tuple[Array, Pullback]:
    """Return `embedding` and its pullback, dy -> dweight."""

    def pullback(dy: Array) -> Array:
        dweight = np.zeros_like(weight)
        np.add.at(dweight, tokens, dy)
        return dweight

    return embedding(tokens, weight), pullback


def _shares(weights: Array | None, shape: tuple[int, ...]) -> Array:
    """Return what each target has of a mean: its weight over the sum of weights, or the same for all."""
    weights = np.ones(shape) if weights is None else np.asarray(weights, np.float64)
    shares: Array = weights / weights.sum()
    return shares


def cross_entropy(logits: Array, tokens: Array, weights: Array | None = None) -> Any:
    """Return the mean of -log softmax(logits)[token], natural logarithm; logits (..., V), tokens (...) in [0, V).

    weights (...): those of a weighted mean; where one is 0, nobody looks at the token, nor at its logits.

    Examples
    --------
    >>> float(cross_entropy(np.array([[0.0, 0.0], [1000.0, 0.0]]), np.array([1, 0])).round(6))
    0.346574
    """
    return cross_entropy_vjp(logits, tokens, weights)[0]


def cross_entropy_vjp(
    logits: Array, tokens: Array, weights: Array | None = None
) -> tuple[Any, Callable[[float], Array]]:
    """Return `cross_entropy` and its pullback, dloss -> dlogits."""
    shares = _shares(weights, np.shape(tokens))
    counts = shares[..., None] > 0
    logits, tokens = np.where(counts, logits, 0), np.where(shares > 0, tokens, 0)
    centred = logits - logits.max(axis=-1, keepdims=True)
    target = np.arange(logits.shape[-1]) == tokens[..., None]
    losses = np.log(np.sum(np.exp(centred), axis=-1)) - centred[target].reshape(target.shape[:-1])

    def pullback(dloss: float) -> Array:
        return (softmax(logits) - target) * (dloss * shares[..., None]).astype(logits.dtype)

    return np.sum(shares * losses).astype(logits.dtype), pullback


def mean_squared_error(prediction: Array, target: Array, weights: Array | None = None) -> Any:
    """Return the mean of (prediction - target)^2 over all elements, weighted where there are weights.

    Where a weight is 0, nobody looks at the prediction, nor at the target.

    Examples
    --------
    >>> float(mean_squared_error(np.array([1.0, 2.0]), np.array([1.0, 4.0])))
    2.0
    """
    return mean_squared_error_vjp(prediction, target, weights)[0]


def mean_squared_error_vjp(
    prediction: Array, target: Array, weights: Array | None = None
) -> tuple[Any, Callable[[float], Array]]:
    """Return `mean_squared_error` and its pullback, dloss -> dprediction."""
    shares = _shares(weights, prediction.shape)
    error = np.where(shares > 0, prediction, 0) - np.where(shares > 0, target, 0)

    def pullback(dloss: float) -> Array:
        return error * (2 * dloss * shares).astype(error.dtype)

    return np.sum(shares * error**2).astype(error.dtype), pullback
