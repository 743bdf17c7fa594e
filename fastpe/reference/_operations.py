"""Single operations in plain NumPy: each forward function is followed by its vector-Jacobian product (`op_vjp`)."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import erfc, expit

Array = np.ndarray[Any, Any]
Pullback = Callable[[Array], Array]


def linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    """Return x @ weight + bias for x (..., in), weight (in, out) and optional bias (out,).

    Examples
    --------
    >>> linear(np.array([[1.0, 2.0]]), np.eye(2), np.array([0.0, 1.0])).tolist()
    [[1.0, 3.0]]
    """
    product: Array = x @ weight
    return product if bias is None else product + bias


def linear_vjp(
    x: Array, weight: Array, bias: Array | None = None
) -> tuple[Array, Callable[[Array], tuple[Array, Array, Array]]]:
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


def relu2(x: Array) -> Array:
    """Return max(x, 0)^2 (So et al. 2021, arXiv:2109.08668).

    Examples
    --------
    >>> relu2(np.array([-1.0, 3.0])).tolist()
    [0.0, 9.0]
    """
    y: Array = relu(x) ** 2
    return y


def relu2_vjp(x: Array) -> tuple[Array, Pullback]:
    """Return `relu2` and its pullback, dy -> dx."""
    return relu2(x), lambda dy: dy * (2 * relu(x))


def gelu(x: Array) -> Array:
    """Return x Phi(x), where Phi is the normal distribution function, computed with erfc (Hendrycks and Gimpel 2016).

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


def gelu_tanh(x: Array) -> Array:
    """Return x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2, which is close to `gelu` (Hendrycks and Gimpel 2016).

    Examples
    --------
    >>> gelu_tanh(np.array([-1.0, 0.0, 1.0])).round(6).tolist()
    [-0.158808, 0.0, 0.841192]
    """
    y: Array = x * _logistic(_twice_inner(x))
    return y


def gelu_tanh_vjp(x: Array) -> tuple[Array, Pullback]:
    """Return `gelu_tanh` and its pullback, dy -> dx."""
    share, other = _logistic(_twice_inner(x)), _logistic(-_twice_inner(x))
    slope = share + x * share * other * 2 * math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
    return gelu_tanh(x), lambda dy: dy * slope


def _twice_inner(x: Array) -> Array:
    """Return 2u, where u is the argument of tanh: (1 + tanh(u)) / 2 is the logistic function of 2u."""
    return 2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)


def _logistic(x: Array) -> Array:
    share: Array = expit(x)
    return share


def swiglu(x: Array, y: Array) -> Array:
    """Return x y / (1 + exp(-x)): y times the sigmoid linear unit of x (Shazeer 2020).

    Examples
    --------
    >>> swiglu(np.array([0.0, 1.0]), np.array([3.0, 2.0])).round(6).tolist()
    [0.0, 1.462117]
    """
    return x * _logistic(x) * y


def swiglu_vjp(x: Array, y: Array) -> tuple[Array, Callable[[Array], tuple[Array, Array]]]:
    """Return `swiglu` and its pullback, d -> (dx, dy)."""
    share = _logistic(x)
    slope = share + x * share * _logistic(-x)
    return swiglu(x, y), lambda d: (d * y * slope, d * x * share)


def geglu(x: Array, y: Array) -> Array:
    """Return `gelu_tanh` of x, times y (Shazeer 2020).

    Examples
    --------
    >>> geglu(np.array([0.0, 1.0]), np.array([3.0, 2.0])).round(6).tolist()
    [0.0, 1.682384]
    """
    return gelu_tanh(x) * y


def geglu_vjp(x: Array, y: Array) -> tuple[Array, Callable[[Array], tuple[Array, Array]]]:
    """Return `geglu` and its pullback, d -> (dx, dy)."""
    active, pull = gelu_tanh_vjp(x)
    return active * y, lambda d: (pull(d * y), d * active)


def softcap(x: Array, cap: float) -> Array:
    """Return cap tanh(x / cap), which is close to x where x is small and never exceeds the cap.

    Examples
    --------
    >>> softcap(np.array([0.1, 100.0]), 30.0).round(6).tolist()
    [0.1, 29.923739]
    """
    y: Array = cap * np.tanh(x / cap)
    return y


def softcap_vjp(x: Array, cap: float) -> tuple[Array, Pullback]:
    """Return `softcap` and its pullback, dy -> dx."""
    turned = np.tanh(x / cap)
    return cap * turned, lambda dy: dy * (1 - turned * turned)


def layer_norm(x: Array, weight: Array, bias: Array | None = None, eps: float = 1e-5) -> Array:
    """Return weight (x - mean) / sqrt(var + eps) + bias (Ba, Kiros, Hinton 2016, eq. 4).

    Mean and variance are taken over the last axis. The bias is optional.

    Examples
    --------
    >>> layer_norm(np.array([1.0, 3.0]), np.ones(2), np.zeros(2), eps=0.0).tolist()
    [-1.0, 1.0]
    """
    return layer_norm_vjp(x, weight, bias, eps)[0]


def layer_norm_vjp(
    x: Array, weight: Array, bias: Array | None = None, eps: float = 1e-5
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

    scaled = weight * normal
    return scaled if bias is None else scaled + bias, pullback


def rms_norm(x: Array, weight: Array, eps: float = 1e-5) -> Array:
    """Return weight x / sqrt(mean(x^2) + eps), with the mean over the last axis (Zhang and Sennrich 2019, eq. 4).

    Examples
    --------
    >>> rms_norm(np.array([3.0, 3.0]), np.array([1.0, 2.0]), eps=0.0).tolist()
    [1.0, 2.0]
    """
    return rms_norm_vjp(x, weight, eps)[0]


def rms_norm_vjp(x: Array, weight: Array, eps: float = 1e-5) -> tuple[Array, Callable[[Array], tuple[Array, Array]]]:
    """Return `rms_norm` and its pullback, dy -> (dx, dweight)."""
    size = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)
    normal = x / size

    def pullback(dy: Array) -> tuple[Array, Array]:
        dnormal = dy * weight
        dx = (dnormal - normal * np.mean(dnormal * normal, axis=-1, keepdims=True)) / size
        return dx, np.sum(dy * normal, axis=tuple(range(x.ndim - 1)))

    return weight * normal, pullback


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
    """Return weight[tokens]: the row of weight (V, C) for each token (...), an integer in [0, V).

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
    """Return the share of each target in a mean: its weight divided by the sum of weights; by default, equal shares."""
    weights = np.ones(shape) if weights is None else np.asarray(weights, np.float64)
    shares: Array = weights / weights.sum()
    return shares


def cross_entropy(logits: Array, tokens: Array, weights: Array | None = None) -> Any:
    """Return the mean of -log softmax(logits)[token] (natural logarithm), for logits (..., V) and tokens (...).

    With `weights` (...), the mean is weighted. Where a weight is 0, the token and its logits are ignored.

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
    if weights is not None:
        logits, tokens = np.where(shares[..., None] > 0, logits, 0), np.where(shares > 0, tokens, 0)
    centred = logits - logits.max(axis=-1, keepdims=True)
    target = np.arange(logits.shape[-1]) == np.asarray(tokens)[..., None]
    losses = np.log(np.sum(np.exp(centred), axis=-1)) - centred[target].reshape(target.shape[:-1])

    def pullback(dloss: float) -> Array:
        return (softmax(logits) - target) * (dloss * shares[..., None]).astype(logits.dtype)

    return np.sum(shares * losses).astype(logits.dtype), pullback


def mean_squared_error(prediction: Array, target: Array, weights: Array | None = None) -> Any:
    """Return the mean of (prediction - target)^2 over all elements, a weighted mean if `weights` are given.

    Where a weight is 0, the prediction and the target are ignored.

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
    if weights is not None:
        prediction, target = np.where(shares > 0, prediction, 0), np.where(shares > 0, target, 0)
    error = prediction - target

    def pullback(dloss: float) -> Array:
        return error * (2 * dloss * shares).astype(error.dtype)

    return np.sum(shares * error**2).astype(error.dtype), pullback
