"""The kernels on NumPy arrays, for tests, benchmarks and `fastpe doctor`.

Each function allocates its outputs, calls one kernel on one sequence, and returns NumPy arrays. Arrays are
C-contiguous, float32 or float64, all of one dtype. The loops over a batch, which run in threads, are in
`model.transformer`."""

import math
from typing import Any

import numpy as np

from fastpe.kernels import simd
from fastpe.kernels.compile.decorators import entry
from fastpe.kernels.model import adam, loss
from fastpe.kernels.model import embedding_and_head as ends
from fastpe.kernels.products import float_gemm
from fastpe.kernels.products import gemm as products
from fastpe.kernels.rows import activation, dropout, norm
from fastpe.kernels.simd import lanes, load_first, pointer, store_first

Array = np.ndarray[Any, Any]


@entry
def _gemm(a, turned, b, c, mode, d, e):
    ai, aj = a.strides[0] // a.itemsize, a.strides[1] // a.itemsize
    if turned:
        ai, aj = aj, ai
    products.gemm(
        pointer(a), ai, aj, pointer(b), b.shape[1], pointer(c), c.shape[1], c.shape[0], c.shape[1], b.shape[0], mode,
        pointer(d), d.shape[1] if d.shape[0] > 1 else 0, pointer(e), e.shape[1] if e.shape[0] > 1 else 0,
    )  # fmt: skip


def gemm(a: Array, b: Array, mode: Any = 0, d: Array | None = None, e: Array | None = None) -> Array:
    """Return f(start + a b), where `mode` selects f and the start (see `kernels.products.float_gemm`). a (m, k) is
    C-contiguous or the transpose of such an array; b is (k, n); d and e are (m, n) or (1, n).
    """
    c = np.full((a.shape[0], b.shape[1]), np.nan, a.dtype)
    turned = a.flags.f_contiguous and not a.flags.c_contiguous  # a flag: memory order is part of an array's type
    a, b, d, e = a.T if turned else a, np.ascontiguousarray(b), c if d is None else d, c if e is None else e
    _gemm(a, turned, b, c, np.int64(mode), d, e)
    return c


@entry
def _transpose(source, target):
    float_gemm.transpose(pointer(source), source.shape[1], pointer(target), target.shape[1], *source.shape)


def transpose(x: Array) -> Array:
    """Return the transpose of x, contiguous."""
    target = np.full(x.shape[::-1], np.nan, x.dtype)
    _transpose(x, target)
    return target


@entry
def _column_sums(x, out):
    float_gemm.add_column_sums(pointer(x), x.shape[1], x.shape[0], x.shape[1], pointer(out))


def column_sums(x: Array) -> Array:
    """Return the sum of each column of x."""
    out = np.zeros(x.shape[1], x.dtype)
    _column_sums(x, out)
    return out


@entry
def _exp(x, y):
    source, target, n = pointer(x), pointer(y), x.size
    for j in range(0, n, lanes(source)):
        store_first(target, j, simd.exp(load_first(source, j, n - j)), n - j)


def exp(x: Array) -> Array:
    """Return exp(x) for a one-dimensional x <= 0."""
    y = np.full(x.shape, np.nan, x.dtype)
    _exp(x, y)
    return y


@entry
def _norm(x, weight, bias, y, stats, eps, centred, biased):
    norm.norm_forward(
        pointer(x), pointer(weight), pointer(bias), pointer(y), pointer(stats), x.shape[0], x.shape[1], eps, centred,
        biased,
    )  # fmt: skip


@entry
def _norm_backward(dy, x, weight, stats, dx, dweight, dbias, centred, biased):
    norm.norm_backward(
        pointer(dy), pointer(x), pointer(weight), pointer(stats), pointer(dx), pointer(dweight), pointer(dbias),
        x.shape[0], x.shape[1], False, centred, biased,
    )  # fmt: skip


def layer_norm_forward(x: Array, weight: Array, bias: Array, eps: float = 1e-5) -> tuple[Array, Array]:
    """Return the normalised rows of x (m, n), and (mean, rstd) of each row (m, 2)."""
    y, stats = np.full(x.shape, np.nan, x.dtype), np.full((x.shape[0], 2), np.nan, x.dtype)
    _norm(x, weight, bias, y, stats, eps, True, True)
    return y, stats


def layer_norm_backward(dy: Array, x: Array, weight: Array, stats: Array) -> tuple[Array, Array, Array]:
    """Return the gradients of x, weight and bias."""
    dx, dweight, dbias = np.full(x.shape, np.nan, x.dtype), np.zeros_like(weight), np.zeros_like(weight)
    _norm_backward(dy, x, weight, stats, dx, dweight, dbias, True, True)
    return dx, dweight, dbias


def rms_norm_forward(x: Array, weight: Array, eps: float = 1e-5) -> tuple[Array, Array]:
    """Return the rows of x (m, n) divided by their root mean square, times weight, and (0, rstd) of each row (m, 2)."""
    y, stats = np.full(x.shape, np.nan, x.dtype), np.full((x.shape[0], 2), np.nan, x.dtype)
    _norm(x, weight, weight[:0], y, stats, eps, False, False)
    return y, stats


def rms_norm_backward(dy: Array, x: Array, weight: Array, stats: Array) -> tuple[Array, Array]:
    """Return the gradients of x and of weight. The gradient of x overwrites dy."""
    dx, dweight = dy.copy(), np.zeros_like(weight)
    _norm_backward(dx, x, weight, stats, dx, dweight, dweight[:0], False, False)
    return dx, dweight


@entry
def _activate(x, y, which):
    activation.activate(pointer(x), pointer(y), y.shape[0], y.shape[1], which)


@entry
def _activate_backward(slopes, dy, n, which):
    activation.activate_backward(pointer(slopes), pointer(dy), slopes.shape[0], n, which)


def _activated(x: Array, n: int, which: Any) -> tuple[Array, Array]:
    """Return the values (m, n) of an activation, and its derivatives in the shape of x."""
    slopes, y = x.copy(), np.full((x.shape[0], n), np.nan, x.dtype)
    _activate(slopes, y, which)
    return y, slopes


def _activated_backward(x: Array, dy: Array, which: Any) -> Array:
    dx, n = np.full(x.shape, np.nan, x.dtype), dy.shape[1]
    dx[:, x.shape[1] - n :] = dy
    _activate_backward(_activated(x, n, which)[1], dx, n, which)
    return dx


def _of_one_map(x: Array, which: Any) -> Array:
    """Return the values of an activation with a single input (not a gated one such as SWIGLU)."""
    return _activated(x.reshape(1, -1), x.size, which)[0].reshape(x.shape)


def _of_one_map_backward(x: Array, dy: Array, which: Any) -> Array:
    return _activated_backward(x.reshape(1, -1), dy.reshape(1, -1), which).reshape(x.shape)


def gelu_forward(x: Array) -> Array:
    """Return x Phi(x), where Phi is the standard normal distribution function."""
    return _of_one_map(x, activation.GELU)


def gelu_backward(x: Array, dy: Array) -> Array:
    """Return the gradient of x, given dy, the gradient of the result of `gelu_forward`."""
    return _of_one_map_backward(x, dy, activation.GELU)


def gelu_tanh_forward(x: Array) -> Array:
    """Return x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2."""
    return _of_one_map(x, activation.GELU_TANH)


def gelu_tanh_backward(x: Array, dy: Array) -> Array:
    """Return the gradient of x, given dy, the gradient of the result of `gelu_tanh_forward`."""
    return _of_one_map_backward(x, dy, activation.GELU_TANH)


def swiglu_forward(both: Array) -> Array:
    """Return x y / (1 + exp(-x)), (m, n), where `both` (m, 2 n) holds x in its first n columns and y in the others."""
    return _activated(both, both.shape[1] // 2, activation.SWIGLU)[0]


def swiglu_backward(both: Array, dy: Array) -> Array:
    """Return the gradient of `both`, given dy, the gradient of the result of `swiglu_forward`."""
    return _activated_backward(both, dy, activation.SWIGLU)


def relu2_forward(x: Array) -> Array:
    """Return max(x, 0)^2."""
    return _of_one_map(x, activation.RELU2)


def relu2_backward(x: Array, dy: Array) -> Array:
    """Return the gradient of x, given dy, the gradient of the result of `relu2_forward`."""
    return _of_one_map_backward(x, dy, activation.RELU2)


def geglu_forward(both: Array) -> Array:
    """Return `gelu_tanh_forward` of x, times y, (m, n), where `both` (m, 2 n) holds x, then y, as in
    `swiglu_forward`.
    """
    return _activated(both, both.shape[1] // 2, activation.GEGLU)[0]


def geglu_backward(both: Array, dy: Array) -> Array:
    """Return the gradient of `both`, given dy, the gradient of the result of `geglu_forward`."""
    return _activated_backward(both, dy, activation.GEGLU)


@entry
def _drop(x, dropped, place):
    dropout.drop_rows(dropped, pointer(x), x.shape[0], x.shape[1], place)


def drop(x: Array, dropped: "dropout.Dropout", place: int) -> Array:
    """Return x (m, n) after dropout, at the place in the model with the number `place`."""
    y = x.copy()
    _drop(y, dropped, place)
    return y


def _shares(weights: Array | None, targets: Array, dtype: Any) -> Array:
    """Return the factor of every target in the mean, or a single factor for all targets if there are no weights."""
    return np.full(1, 1 / targets.size, dtype) if weights is None else (weights / weights.sum()).astype(dtype)


@entry
def _squared_error(y, target, dy, shares):
    step = loss.step_of(shares)
    return loss.squared_error(pointer(y), pointer(target), pointer(dy), y.size, pointer(shares), step)


def mean_squared_error(y: Array, target: Array, weights: Array | None = None) -> tuple[float, Array]:
    """Return the mean of (y - target)^2 over all elements, and its gradient with respect to y. With weights (n,), the
    mean is weighted.
    """
    dy = np.full(y.shape, np.nan, y.dtype)
    return _squared_error(y, target, dy, _shares(weights, y, y.dtype)), dy


@entry
def _cross_entropy(logits, tokens, dlogits, shares):
    z, dz = pointer(logits), pointer(dlogits)
    return loss.cross_entropy(z, pointer(tokens), dz, *logits.shape, pointer(shares), loss.step_of(shares), 0.0)


def cross_entropy(logits: Array, tokens: Array, weights: Array | None = None) -> tuple[float, Array]:
    """Return the mean of -log softmax(logits)[token] over the rows, and its gradient with respect to the logits.

    logits: (n, V). tokens (n,): one for each row. weights (n,): the weights of the rows in the mean.
    """
    dlogits = np.full(logits.shape, np.nan, logits.dtype)
    shares = _shares(weights, tokens, logits.dtype)
    return _cross_entropy(logits, tokens.astype(logits.dtype), dlogits, shares), dlogits


@entry
def _adam(p, first, second, gradients, numbers, decays, clips):
    groups, stride = gradients.shape
    squares = np.zeros(1 if clips else 0)
    if clips:
        squares[0] = adam.add_up(pointer(gradients), stride, groups, 0, p.size)
        groups = 1
    share = adam.clipped_share(squares, numbers)
    adam.adam(
        pointer(p), pointer(first), pointer(second), pointer(gradients), stride, groups, 0, p.size, numbers, decays,
        share,
    )  # fmt: skip


def adam_step(
    p: Array, first: Array, second: Array, gradients: Array, step: int, lr: float = 1e-3, beta1: float = 0.9,
    beta2: float = 0.999, eps: float = 1e-8, weight_decay: float = 0.0, clip: float = math.inf,
) -> None:  # fmt: skip
    """Update p, first and second (n,) in place. Their gradient is the sum of the rows of `gradients` (groups, n).
    `step` counts from 1.
    """
    rate, correction2 = lr / (1 - beta1**step), 1 / (1 - beta2**step)
    numbers = (rate, beta1, beta2, 1 - beta1, 1 - beta2, correction2, eps, 1 - lr * weight_decay, clip)
    given = np.array(numbers, p.dtype)
    _adam(p, first, second, gradients.copy(), given, int(weight_decay > 0), math.isfinite(clip))


@entry
def _embed(x, weight, bias, table, has_table, z):
    ends.embed_forward(pointer(x), pointer(weight), pointer(bias), pointer(z), z.shape[0], z.shape[1], True)
    if has_table:
        ends.add(pointer(z), pointer(table), pointer(z), z.size)


def embed_forward(x: Array, weight: Array, bias: Array, table: Array | None = None) -> Array:
    """Return x weight + bias + table (n, c), for x (n,), weight and bias (c,), and table (n, c)."""
    z = np.full((x.size, weight.size), np.nan, x.dtype)
    _embed(x, weight, bias, z if table is None else table, table is not None, z)
    return z


@entry
def _embed_backward(dz, x, dweight, dbias, dtable):
    ends.embed_backward(pointer(dz), pointer(x), pointer(dweight), pointer(dbias), dz.shape[0], dz.shape[1], True)
    ends.add(pointer(dtable), pointer(dz), pointer(dtable), dz.size)


def embed_backward(dz: Array, x: Array) -> tuple[Array, Array, Array]:
    """Return the gradients of weight, bias and table."""
    dweight, dbias, dtable = np.zeros(dz.shape[1], x.dtype), np.zeros(dz.shape[1], x.dtype), np.zeros_like(dz)
    _embed_backward(dz, x, dweight, dbias, dtable)
    return dweight, dbias, dtable


@entry
def _embed_tokens(tokens, weight, table, has_table, z):
    ends.embed_tokens_forward(pointer(tokens), pointer(weight), pointer(z), *z.shape)
    if has_table:
        ends.add(pointer(z), pointer(table), pointer(z), z.size)


def embed_tokens_forward(tokens: Array, weight: Array, table: Array | None = None) -> Array:
    """Return weight[tokens] + table (n, c), for tokens (n,), weight (V, c) and table (n, c)."""
    z = np.full((tokens.size, weight.shape[1]), np.nan, weight.dtype)
    _embed_tokens(tokens.astype(weight.dtype), weight, z if table is None else table, table is not None, z)
    return z


@entry
def _embed_tokens_backward(dz, tokens, dweight, dtable):
    ends.embed_tokens_backward(pointer(dz), pointer(tokens), pointer(dweight), *dz.shape)
    ends.add(pointer(dtable), pointer(dz), pointer(dtable), dz.size)


def embed_tokens_backward(dz: Array, tokens: Array, vocabulary: int) -> tuple[Array, Array]:
    """Return the gradients of weight and table."""
    dweight, dtable = np.zeros((vocabulary, dz.shape[1]), dz.dtype), np.zeros_like(dz)
    _embed_tokens_backward(dz, tokens.astype(dz.dtype), dweight, dtable)
    return dweight, dtable


@entry
def _head(z, weight, bias, y):
    ends.head_forward(pointer(z), pointer(weight), pointer(bias), pointer(y), z.shape[0], z.shape[1], True, False)


def head_forward(z: Array, weight: Array, bias: Array) -> Array:
    """Return z weight + bias (n,), for z (n, c), weight (c,) and bias (1,)."""
    y = np.full(z.shape[0], np.nan, z.dtype)
    _head(z, weight, bias, y)
    return y


@entry
def _head_backward(dy, z, weight, dz, dweight, dbias):
    ends.head_backward(
        pointer(dy),
        pointer(z),
        pointer(weight),
        pointer(dz),
        pointer(dweight),
        pointer(dbias),
        z.shape[0],
        z.shape[1],
        True,
    )


def head_backward(dy: Array, z: Array, weight: Array) -> tuple[Array, Array, Array]:
    """Return the gradients of z, weight and bias."""
    dz, dweight, dbias = np.full(z.shape, np.nan, z.dtype), np.zeros_like(weight), np.zeros(1, z.dtype)
    _head_backward(dy, z, weight, dz, dweight, dbias)
    return dz, dweight, dbias
