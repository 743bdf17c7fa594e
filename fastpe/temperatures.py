"""Temperatures: factors on queries that depend on the position, for the slot `row_scale` of `fastpe.attention`.

Softmax over many keys is less sharp than over few. A factor that grows with the number of keys compensates for this.
The factor multiplies the products of queries and keys, but not biases. `dual_chunk` and `miniwin` are different: the
first returns the argument `scale` of `fastpe.attention`, the second one factor for all queries of a call.

>>> import fastpe
>>> q = np.ones((2, 8, 4))
>>> fastpe.attention(q, q, q, causal=True, row_scale=log_n(8, 4, dtype="float64")).shape
(2, 8, 4)
"""

import math
from typing import Any

import numpy as np

from fastpe.base import validation
from fastpe.base.pulled import Array, Pullback, given, like, summed_to
from fastpe.base.validation import floating, real, whole

__all__ = ["beam", "dual_chunk", "inkling2", "llama4", "log_n", "ministral", "miniwin", "ssmax", "ssmax_vjp"]


def log_n(positions: Any, train_length: int, *, dtype: Any = "float32") -> Array:
    """Return the factor max(ln(i + 1) / ln(train_length), 1) for a query at position i.

    With this factor, attention over more keys than in training is about as sharp as in training.

    Parameters
    ----------
    positions : int, or (N,) or (B, N) int
        Positions of the queries; an integer N stands for 0 .. N-1.
    train_length : int
        The training length, at least 2.
    dtype : float32 or float64
        The dtype of the result. Choose the dtype of the queries.

    Returns
    -------
    (1, N) or (B, 1, N), in `dtype`

    Raises
    ------
    TypeError, ValueError
        If positions are not integers of at least 0, or an argument is out of range.

    References
    ----------
    Su 2021, on the scale of the entropy of attention. Qwen 1 uses this factor for texts longer than in training.

    Examples
    --------
    >>> log_n(8, 4, dtype="float64").round(6).tolist()
    [[1.0, 1.0, 1.0, 1.0, 1.160964, 1.292481, 1.403677, 1.5]]
    """
    found = np.log1p(_positions(positions)) / np.log(whole("train_length", train_length, 2))
    return np.maximum(found, 1.0).astype(floating(dtype))


def llama4(positions: Any, *, strength: float = 0.1, every: int = 8192, dtype: Any = "float32") -> Array:
    """Return the factor 1 + strength ln(1 + floor((i + 1) / every)) for a query at position i.

    Llama 4 uses this factor in its layers without position encoding.

    Parameters
    ----------
    positions, dtype
        As for `log_n`.
    strength : float
        How fast the factor grows.
    every : int
        Number of consecutive positions with the same factor.

    Returns
    -------
    (1, N) or (B, 1, N), in `dtype`

    Raises
    ------
    TypeError, ValueError
        As `log_n` does.

    References
    ----------
    Llama 4 (Meta 2025); implemented from `Llama4TextAttention` of Hugging Face's transformers.

    Examples
    --------
    >>> llama4([8190, 8191], dtype="float64").round(6).tolist()
    [[1.0, 1.069315]]
    """
    return _by_steps(_positions(positions) + 1, strength, "every", every, dtype)


def ministral(positions: Any, train_length: int = 16384, *, strength: float = 0.1, dtype: Any = "float32") -> Array:
    """Return the factor 1 + strength ln(1 + floor(i / train_length)) for a query at position i.

    Ministral 3 and Mistral 4 use this factor.

    Parameters
    ----------
    positions, strength, dtype
        As for `llama4`.
    train_length : int
        Number of consecutive positions with the same factor. Mistral 4 uses 8192.

    Returns
    -------
    (1, N) or (B, 1, N), in `dtype`

    Raises
    ------
    TypeError, ValueError
        As `log_n` does.

    References
    ----------
    Ministral 3 (Mistral AI 2025); implemented from Hugging Face's transformers.

    Examples
    --------
    >>> ministral([16383, 16384], dtype="float64").round(6).tolist()
    [[1.0, 1.069315]]
    """
    return _by_steps(_positions(positions), strength, "train_length", train_length, dtype)


def beam(positions: Any, every: int = 2048, *, strength: float = 0.1, dtype: Any = "float32") -> Array:
    """Return the factor (1 + (i + 1) / every)^strength for a query at position i.

    Beam uses it in its layers without positions, which see all keys.

    Parameters
    ----------
    positions, strength, dtype
        As for `llama4`.
    every : int
        Number of positions after which the factor is 2^strength.

    Returns
    -------
    (1, N) or (B, 1, N), in `dtype`

    Raises
    ------
    TypeError, ValueError
        As `log_n` does.

    References
    ----------
    Implemented from Hugging Face's transformers 5.24, models/beam. Its docstring states i in place of i + 1.

    Examples
    --------
    >>> beam([0, 2047, 131071], dtype="float64").round(6).tolist()
    [[1.000049, 1.071773, 1.518068]]
    """
    places = np.log1p((_positions(positions) + 1) / whole("every", every, 1))
    return np.asarray(np.exp(real("strength", strength) * places).astype(floating(dtype)))


def inkling2(positions: Any, train_length: int = 128000, *, strength: float = 0.1, dtype: Any = "float32") -> Array:
    """Return the factor 1 + strength ln(max((i + 1) / train_length, 1)) for a query at position i.

    Inkling 2 uses it in its layers that see all keys.

    Parameters
    ----------
    positions, strength, dtype
        As for `llama4`.
    train_length : int
        The number of keys from which on the factor grows.

    Returns
    -------
    (1, N) or (B, 1, N), in `dtype`

    Raises
    ------
    TypeError, ValueError
        As `log_n` does.

    References
    ----------
    Implemented from Hugging Face's transformers 5.24, models/inkling2.

    Examples
    --------
    >>> inkling2([127999, 128000, 999999], dtype="float64").round(7).tolist()
    [[1.0, 1.0000008, 1.2055725]]
    """
    ratio = (_positions(positions) + 1) / whole("train_length", train_length, 1)
    return np.asarray((1.0 + real("strength", strength) * np.log(np.maximum(ratio, 1.0))).astype(floating(dtype)))


def miniwin(keys: int, offset: int = 16) -> float:
    """Return the factor ln(a + n) / ln(a + 1) of all queries of a call with n keys, where a is `offset`.

    It multiplies queries in a model whose layers alternate between a window with periodic rotary positions and no
    positions. All queries of a call get the same factor. So a text that is read at once gives other results than one
    that is read token by token.

    Parameters
    ----------
    keys : int
        The number n of keys so far.
    offset : int
        The number a, at least 1.

    Returns
    -------
    float

    Raises
    ------
    TypeError, ValueError
        If an argument is out of range.

    References
    ----------
    Huo 2026 (arXiv:2605.27980); implemented from Cominder/miniwin, model/model_miniwin.py.

    Examples
    --------
    >>> round(miniwin(64), 6), round(miniwin(4096), 6)
    (1.546663, 2.937183)
    """
    start = whole("offset", offset, 1)
    return math.log(start + whole("keys", keys, 1)) / math.log(start + 1)


def dual_chunk(length: int, train_length: int, head_dim: int) -> float:
    """Return the argument ``scale`` for dual chunk attention: mscale^2 / sqrt(D).

    If the length n of the text is larger than the training length L0, mscale is 0.05 ln(n / L0) + 1. Otherwise it is 1.

    Parameters
    ----------
    length, train_length : int
        The length n of the text and the training length L0.
    head_dim : int
        The number D of channels of a head.

    Returns
    -------
    float

    Raises
    ------
    TypeError, ValueError
        If an argument is not an integer of at least 1.

    References
    ----------
    An et al. 2024 (arXiv:2402.17463); implemented from HKUNLP/ChunkLlama, chunkllama_attn_replace.py, which multiplies
    cosines and sines of queries and keys by mscale. The results in the paper do not use mscale.

    Examples
    --------
    >>> round(dual_chunk(12, 8, 4) * 2, 9)
    1.040957516
    """
    ratio = whole("length", length, 1) / whole("train_length", train_length, 1)
    return (0.05 * math.log(max(ratio, 1.0)) + 1) ** 2 / math.sqrt(whole("head_dim", head_dim, 1))


def ssmax(scale: Any, positions: Any, bias: Any = None) -> Array:
    """Return the factor scale_h ln(i + 1) + bias_h of Scalable-Softmax, for head h and a query at position i.

    With this factor, a peak of the attention weights stays sharp for any number of keys.

    Parameters
    ----------
    scale : (H,) floats
        A learned factor for each head.
    positions : int, or (N,) or (B, N) int
        As for `log_n`. A query at position i is assumed to see i + 1 keys. If a query sees n keys instead, pass n - 1
        as its position.
    bias : (H,) floats, optional
        A learned number for each head, by default 0. Mistral Large 4 has it.

    Returns
    -------
    (H, N) or (B, H, N)
        In scale's dtype.

    Raises
    ------
    TypeError, ValueError
        As `log_n` does; also if scale does not have the shape (H,), or bias not that of scale.

    References
    ----------
    Nakanishi 2025, "Scalable-Softmax Is Superior for Attention" (arXiv:2501.19399).

    Examples
    --------
    >>> ssmax([0.5], 3).round(6).tolist()
    [[0.0, 0.346574, 0.549306]]
    """
    return ssmax_vjp(scale, positions, bias)[0]


def ssmax_vjp(scale: Any, positions: Any, bias: Any = None) -> tuple[Array, Pullback]:
    """`ssmax`, and its pullback to `scale`, and to `bias` if it is given.

    >>> ssmax_vjp([0.5], 3)[1]([[1.0, 1.0, 1.0]])["scale"].round(6).tolist()
    [1.791759]
    """
    own, logs = given("scale", scale), np.log1p(_positions(positions))
    if own.ndim != 1:
        raise ValueError(f"scale must have the shape (H,), not {own.shape}")

    added = np.zeros(own.shape) if bias is None else given("bias", bias)
    if added.shape != own.shape:
        raise ValueError(f"bias must have the shape of scale, {own.shape}, not {added.shape}")

    def pullback(dfactor: Any) -> dict[str, Array]:
        d = given("dfactor", dfactor)
        found = {"scale": like(summed_to(d * logs, (own.size, 1))[:, 0], scale)}
        return found if bias is None else found | {"bias": like(summed_to(d, (own.size, 1))[:, 0], bias)}

    return like(own[:, None] * logs + added[:, None], scale), pullback


def _by_steps(places: Array, strength: Any, name: str, every: Any, dtype: Any) -> Array:
    """Return 1 + strength ln(1 + floor(places / every)). `name` is the name of the argument `every` in errors."""
    found = 1.0 + real("strength", strength) * np.log1p(places // whole(name, every, 1))
    return np.asarray(found.astype(floating(dtype)))


def _positions(positions: Any) -> Array:
    """Return the positions as a float64 array, (1, N) or (B, 1, N)."""
    array = validation.integers("positions", positions, 0)
    if array.ndim == 0:
        count = whole("positions", positions, 1)
        validation.room(f"factors of positions={count}", 8 * count, "need")
        return np.arange(float(count))[None]
    if array.ndim > 2:
        raise ValueError(f"positions must have the shape (N,) or (B, N), not {array.shape}")
    return np.asarray(array.astype(np.float64)[..., None, :])
