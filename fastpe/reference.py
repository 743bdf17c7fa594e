"""Plain NumPy, nothing compiled: what every kernel is checked against, and readable as their specification.

``op_vjp`` takes the arguments of ``op`` and returns its value with a pullback, the function that takes the gradient of
the value to the gradients of the arguments. Everything is computed in the dtype of the arguments, except `attention`
and `attention_vjp`, which work in float64.

The whole training step of the model: `model_forward`, `model_loss_and_grads`, `adam_step`.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from scipy.special import erfc

from fastpe._reference_attention import attention, attention_vjp, attention_vjp_in

__all__ = [  # noqa: RUF022 - in the order of the model
    "attention", "attention_vjp", "linear", "linear_vjp", "relu", "relu_vjp", "gelu", "gelu_vjp", "layer_norm",
    "layer_norm_vjp", "softmax", "softmax_vjp", "mean_squared_error", "mean_squared_error_vjp",
    "model_forward", "model_loss_and_grads", "adam_step",
]  # fmt: skip

Array = np.ndarray[Any, Any]
Pullback = Callable[[Array], Array]
Gradients = dict[str, Array]
Arrays = Mapping[str, Array]
Slots = Mapping[str, Array | None]
# takes the gradient of its value to that of its input, and adds those of parameters and slots to the dicts
LayerPullback = Callable[[Array, Gradients, Gradients], Array]
NamedPullback = Callable[[Array, Gradients], Array]


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


def mean_squared_error(prediction: Array, target: Array) -> Any:
    """Return the mean of (prediction - target)^2 over all elements.

    Examples
    --------
    >>> float(mean_squared_error(np.array([1.0, 2.0]), np.array([1.0, 4.0])))
    2.0
    """
    return np.mean((prediction - target) ** 2)


def mean_squared_error_vjp(prediction: Array, target: Array) -> tuple[Any, Callable[[float], Array]]:
    """Return `mean_squared_error` and its pullback, dloss -> dprediction."""
    error = prediction - target
    return np.mean(error**2), lambda dloss: error * (2 * dloss / error.size)


def model_forward(config: Any, parameters: Arrays, slots: Slots, x: Array) -> Array:
    """Return the outputs of the small transformer (Li 2025, section 7.1) for a batch of scalar sequences.

    ``z = x embed + table``; in each layer ``z = z + Attention(norm1(z))``, ``z = z + FeedForward(norm2(z))``; then the
    linear head. Everything is computed in the dtype of the parameters.

    Parameters
    ----------
    config : object
        With the attributes heads, layers, causal, activation (``"relu"`` or ``"gelu"``), norm (``"none"`` or
        ``"layernorm"``) and residual, such as a `fastpe.ModelConfig`.
    parameters : mapping
        By name; every matrix is (in, out): ``embed.weight`` (1, C), ``embed.bias`` (C,),
        ``layers.{l}.attention.{query,key,value,out}``, ``layers.{l}.feedforward.{in,out}``, ``layers.{l}.norm{1,2}``
        where there are norms, ``head`` (C, 1), each with ``.weight`` and ``.bias``.
    slots : mapping
        ``table`` (N, C) or (B, N, C); all others, such as ``bias`` (H, 2N-1), go to the attention of every layer.
    x : (B, N)

    Returns
    -------
    (B, N) array

    Examples
    --------
    >>> from types import SimpleNamespace
    >>> config = SimpleNamespace(heads=1, layers=0, causal=False, activation="relu", norm="none", residual=True)
    >>> ends = {"embed.weight": np.ones((1, 2)), "embed.bias": np.zeros(2)}
    >>> ends |= {"head.weight": np.ones((2, 1)), "head.bias": np.array([0.5])}
    >>> model_forward(config, ends, {}, np.array([[1.0, 3.0]])).tolist()
    [[2.5, 6.5]]
    """
    return _model_vjp(config, parameters, slots, x)[0]


def model_loss_and_grads(
    config: Any, parameters: Arrays, slots: Slots, x: Array, y: Array
) -> tuple[Any, Gradients, Gradients]:
    """Return the mean squared error over batch and positions, and its gradients.

    Parameters
    ----------
    config, parameters, slots, x
        As for `model_forward`.
    y : (B, N), targets

    Returns
    -------
    loss : scalar
    gradients : dict of arrays by parameter
    slot_gradients : dict of arrays by slot
        Of every slot that is given and has a gradient; a slot that acts in every layer has the sum over layers.
    """
    prediction, pullback = _model_vjp(config, parameters, slots, x)
    loss, loss_pullback = mean_squared_error_vjp(prediction, np.asarray(y, dtype=prediction.dtype))
    gradients, slot_gradients = pullback(loss_pullback(1.0))
    return loss, gradients, slot_gradients


def _model_vjp(
    config: Any, parameters: Arrays, slots: Slots, x: Array
) -> tuple[Array, Callable[[Array], tuple[Gradients, Gradients]]]:
    given = {name: slot for name, slot in slots.items() if slot is not None}
    table = given.pop("table", None)
    x = np.asarray(x, dtype=parameters["embed.weight"].dtype)
    z, embed_pullback = _named(linear_vjp, parameters, "embed", x[..., None])
    if table is not None:
        z = z + np.asarray(table, dtype=z.dtype)
    pullbacks: list[LayerPullback] = []
    for layer in range(config.layers):
        for block, norm in ((_attention, "norm1"), (_feedforward, "norm2")):
            z, pullback = _block(block, config, parameters, f"layers.{layer}.", norm, given, z)
            pullbacks.append(pullback)
    y, head_pullback = _named(linear_vjp, parameters, "head", z)

    def pullback_all(dy: Array) -> tuple[Gradients, Gradients]:
        gradients, slot_gradients = Gradients(), Gradients()
        dz = head_pullback(dy[..., None], gradients)
        for pullback in reversed(pullbacks):
            dz = pullback(dz, gradients, slot_gradients)
        if table is not None:
            slot_gradients["table"] = dz.sum(axis=0) if table.ndim == 2 else dz
        embed_pullback(dz, gradients)
        return gradients, slot_gradients

    return y[..., 0], pullback_all


def _block(
    block: Callable[..., tuple[Array, LayerPullback]], config: Any, parameters: Arrays,
    prefix: str, norm: str, slots: Arrays, z: Array,
) -> tuple[Array, LayerPullback]:  # fmt: skip
    """z + block(norm(z)), or without the norm or the residual connection."""
    has_norm = config.norm == "layernorm"
    normed, norm_pullback = _named(layer_norm_vjp, parameters, prefix + norm, z) if has_norm else (z, None)
    out, block_pullback = block(config, parameters, prefix, slots, normed)

    def pullback(dz: Array, gradients: Gradients, slot_gradients: Gradients) -> Array:
        dnormed = block_pullback(dz, gradients, slot_gradients)
        dinput = norm_pullback(dnormed, gradients) if norm_pullback else dnormed
        return dz + dinput if config.residual else dinput

    return z + out if config.residual else out, pullback


def _attention(config: Any, parameters: Arrays, prefix: str, slots: Arrays, x: Array) -> tuple[Array, LayerPullback]:
    prefix += "attention."
    maps = [_named(linear_vjp, parameters, prefix + name, x) for name in ("query", "key", "value")]
    heads = [_split(projected, config.heads) for projected, _ in maps]
    mixed, mix_pullback = attention_vjp_in(x.dtype, *heads, causal=config.causal, **slots)
    out, out_pullback = _named(linear_vjp, parameters, prefix + "out", _merge(mixed))

    def pullback(dout: Array, gradients: Gradients, slot_gradients: Gradients) -> Array:
        found = mix_pullback(_split(out_pullback(dout, gradients), config.heads))
        dheads = [found.pop(name) for name in "qkv"]
        for name, gradient in found.items():
            slot_gradients[name] = slot_gradients.get(name, 0) + gradient
        dx: Any = sum(back(_merge(dhead), gradients) for (_, back), dhead in zip(maps, dheads, strict=True))
        return dx

    return out, pullback


def _feedforward(config: Any, parameters: Arrays, prefix: str, slots: Arrays, x: Array) -> tuple[Array, LayerPullback]:
    activation_vjp = {"relu": relu_vjp, "gelu": gelu_vjp}[config.activation]
    hidden, in_pullback = _named(linear_vjp, parameters, prefix + "feedforward.in", x)
    active, activation_pullback = activation_vjp(hidden)
    out, out_pullback = _named(linear_vjp, parameters, prefix + "feedforward.out", active)

    def pullback(dout: Array, gradients: Gradients, slot_gradients: Gradients) -> Array:
        return in_pullback(activation_pullback(out_pullback(dout, gradients)), gradients)

    return out, pullback


def _named(vjp: Callable[..., Any], parameters: Arrays, name: str, x: Array) -> tuple[Array, NamedPullback]:
    """The value of an operation of ``name.weight`` and ``name.bias``; the pullback files their gradients."""
    y, pull = vjp(x, parameters[f"{name}.weight"], parameters[f"{name}.bias"])

    def pullback(dy: Array, gradients: Gradients) -> Array:
        dx: Array
        dx, gradients[f"{name}.weight"], gradients[f"{name}.bias"] = pull(dy)
        return dx

    return y, pullback


def _split(x: Array, heads: int) -> Array:
    """(B, N, C) -> (B, H, N, D)."""
    return x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def _merge(x: Array) -> Array:
    """(B, H, N, D) -> (B, N, C)."""
    return x.transpose(0, 2, 1, 3).reshape(x.shape[0], x.shape[2], -1)


def adam_step(
    parameters: Arrays, gradients: Arrays, first: Arrays, second: Arrays, step: int, lr: float,
    beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8,
) -> None:  # fmt: skip
    """Update parameters and moments in place (Kingma and Ba 2015, algorithm 1, bias-corrected; eps as in PyTorch).

    Parameters
    ----------
    parameters, gradients, first, second : mapping of str to array
        Parameters without a gradient are left alone.
    step : int
        Number of this update, from 1.
    lr, beta1, beta2, eps : float

    Examples
    --------
    >>> parameters = {"w": np.array([1.0])}
    >>> first, second = {"w": np.zeros(1)}, {"w": np.zeros(1)}
    >>> adam_step(parameters, {"w": np.array([3.0])}, first, second, step=1, lr=0.1)
    >>> parameters["w"].round(6).tolist()
    [0.9]
    """
    if step < 1:
        raise ValueError(f"step must be at least 1, not {step}")
    for name, gradient in gradients.items():
        m, v = first[name], second[name]
        m *= beta1
        m += (1 - beta1) * gradient
        v *= beta2
        v += (1 - beta2) * gradient**2
        denominator = np.sqrt(v) / math.sqrt(1 - beta2**step) + eps
        parameters[name][...] -= (lr / (1 - beta1**step)) * m / denominator
