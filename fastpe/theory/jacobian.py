"""Measured derivatives (not bounds) of a single attention, and of a model at the inputs of a batch."""

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from fastpe import reference
from fastpe.base.random import Stream
from fastpe.base.validation import array, at_least_zero, finite, positive, whole
from fastpe.model.transformer import Transformer
from fastpe.theory.layers import FeedForward, Head, Layer
from fastpe.theory.lipschitz import stack_bounds
from fastpe.theory.model_lipschitz import opened, slots_of, weights_of
from fastpe.theory.value import Value, certified, exact

Array = np.ndarray[Any, Any]

_MOST_BLOCKS = 2**24
_MOST_ROWS = 8  # number of positions whose slopes are measured in the token norm
_SURE = 1.0 - 1e-9  # factor that covers the rounding errors of float64 many times


def attention_jacobian(tokens: Array, score: Array, bias: Any = 0.0) -> Array:
    """Return the derivative of softmax(z A z^T + bias) z with respect to z.

    Parameters
    ----------
    tokens : (N, d)
    score : (d, d)
        The matrix A.
    bias : (N, N) or number
        Bias of each score; -inf hides a key.

    Returns
    -------
    (N, d, N, d) array
        Entry [i, a, j, b] is the derivative of channel a of output i with respect to channel b of token j.

    Examples
    --------
    The slope of attention grows with the norms of the tokens, without bound. At tokens 0, R, -R the slope is
    1/3 + 2 R^2 / 3.

    >>> r = 10.0
    >>> round(float(attention_jacobian(np.array([[0.0], [r], [-r]]), np.eye(1))[0, 0, 0, 0]), 9)
    67.0
    """
    tokens = array("tokens", tokens).astype(np.float64)
    if tokens.ndim != 2 or tokens.size == 0 or tokens.size**2 > _MOST_BLOCKS:
        raise ValueError(f"tokens must have shape (N, d) with N d from 1 to 4096, not {tokens.shape}")
    count, width = tokens.shape
    score = array("score", score).astype(np.float64)
    if score.shape != (width, width):
        raise ValueError(f"score must have shape {(width, width)}, not {score.shape}")
    logits = tokens @ score @ tokens.T + bias
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    weights /= weights.sum(axis=1, keepdims=True)
    centred = tokens[None] - (weights @ tokens)[:, None]  # (query, key, channel)
    spread = weights[..., None] * centred
    jacobian = np.einsum("ij,ab->iajb", weights, np.eye(width))
    jacobian += np.einsum("ija,ib->iajb", spread, tokens @ score)
    own = np.arange(count)
    jacobian[own, :, own] += np.einsum("ija,jb->iab", spread, tokens @ score.T)
    return jacobian


def unbounded_example(radius: float) -> Value:
    """Return the slope of attention at tokens 0, R, -R with unit weights.

    The slope grows with R without bound, so a bound on the weights does not bound the slope (claim C38).

    Parameters
    ----------
    radius : float
        R, at least 0.

    Returns
    -------
    Value
        Exact: 1/3 + 2 R^2 / 3.

    Examples
    --------
    >>> round(unbounded_example(1000.0).value, 6)
    666667.0
    """
    radius = at_least_zero("radius", radius)
    slope = attention_jacobian(np.array([[0.0], [radius], [-radius]]), np.eye(1))[0, 0, 0, 0]
    return exact(float(slope), "d out_0 / d z_0 = 1/3 + 2 R^2 / 3 for tokens 0, R, -R and unit weights", radius=radius)


def attained_share(draws: int = 300, tokens: int = 8, width: int = 4, radius: float = 1.0, seed: int = 0) -> Value:
    """Return the largest quotient, over random draws, of the slope of attention and its Lipschitz constant (C54).

    Both are measured in the token norm. Tokens, weights and biases are random. Biases are normal with standard
    deviations up to 20, and thus far larger than the biases alpha (N' - 1) of the paper.

    Parameters
    ----------
    draws : int
        Number of random draws.
    tokens, width : int
        Number of tokens and of channels.
    radius : float
        Largest norm of a token, above 0.
    seed : int
        Seed of the draws.

    Returns
    -------
    Value
        A certified lower bound of the largest possible quotient. A quotient above 1 would refute the constant.

    Examples
    --------
    >>> 0.0 < attained_share(10).value <= 1.0
    True
    """
    draws, tokens, width = whole("draws", draws, 1), whole("tokens", tokens, 1), whole("width", width, 1)
    radius, share = positive("radius", radius), 0.0
    for draw in range(draws):
        stream = Stream(seed, "attained share", draw)
        normal = stream.normal(tokens * width + width * width + tokens * tokens + 2)
        z, score, bias, (size, loud) = np.split(normal, np.cumsum([tokens * width, width * width, tokens * tokens]))
        z, score = z.reshape(tokens, width), score.reshape(width, width)
        z *= radius / np.linalg.norm(z, axis=1).max()
        score *= math.exp(size) / np.linalg.norm(score, 2)
        jacobian = attention_jacobian(z, score, 20.0 * math.tanh(loud) * bias.reshape(tokens, tokens))
        blocks = np.linalg.norm(jacobian.transpose(0, 2, 1, 3), 2, axis=(2, 3))
        bound = stack_bounds([_alone(math.exp(size))], radius).product.value
        share = max(share, float(blocks.sum(axis=1).max()) / bound)
    return certified(
        "largest share over random draws, P5", low=share, draws=draws, tokens=tokens, width=width, seed=seed
    )


def _alone(score: float) -> Layer:
    """Return a layer of one head without residuals, in which all parts after attention have the constant 1."""
    return Layer((Head(score, 1.0),), 1.0, FeedForward(1.0, 1.0), residual=False)


def entry_norms(model_or_run: Transformer | str | Path, x: Any) -> Array:
    """Return, for each layer, the largest norm of the tokens of a batch that enter it: a `radius` for `stack_bounds`.

    Parameters
    ----------
    model_or_run : Transformer, str or pathlib.Path
    x : (B, N) or (N,)
        Input numbers or tokens.

    Returns
    -------
    (layers,) float64

    Raises
    ------
    ValueError
        If x does not have this form, or is too large for plain NumPy.

    Examples
    --------
    >>> from fastpe import ModelConfig
    >>> entry_norms(Transformer(ModelConfig("nope", width=8, hidden=8, train_length=4)), np.ones((2, 4))).shape
    (2,)
    """
    measured = _Measured(opened(model_or_run), x)
    rows = [measured.rows(layer) for layer in range(measured.config.layers)]
    return np.array([np.linalg.norm(each, axis=-1).max() for each in rows])


def largest_jacobian(
    model_or_run: Transformer | str | Path, x: Any, *, iterations: int = 20, seed: int = 0
) -> dict[str, Value]:
    """Search for the steepest slopes of a model's outputs with respect to the tokens that enter the first layer.

    The slopes are measured at the inputs of a batch by power iteration on J J^T for every sequence, where J is the
    Jacobian. J^T u is a gradient from `fastpe.reference`. J v is a finite difference, and is used only to choose the
    next u. Each position has one output. For a model of tokens, this output is a combination of the logits, the one
    that the head amplifies most.

    Parameters
    ----------
    model_or_run : Transformer, str or pathlib.Path
    x : (B, N) or (N,)
        Input numbers or tokens.
    iterations : int
        Number of power iterations.
    seed : int
        Seed of the start vectors.

    Returns
    -------
    dict of str to Value
        - "frobenius": the largest |J^T u| / |u|;
        - "token": the largest, over the sequences and over outputs at up to 8 positions, of the sum over tokens of the
          norm of the output's gradient with respect to the token.

        Both slopes occur in the model, so they are certified lower bounds of the model's Lipschitz constants.

    Raises
    ------
    ValueError
        If x does not have this form, or is too large for plain NumPy.

    Examples
    --------
    >>> from fastpe import ModelConfig
    >>> slopes = largest_jacobian(Transformer(ModelConfig("nope", width=8, hidden=8, train_length=4)), np.ones((2, 4)))
    >>> slopes["token"].kind, slopes["frobenius"].high
    ('certified', None)
    """
    measured = _Measured(opened(model_or_run), x)
    z = measured.rows(0)
    batch, length, _ = z.shape
    u = Stream(seed, "largest jacobian").normal((batch, length))
    for _ in range(whole("iterations", iterations, 1)):
        back = measured.pull(z, u / _size(u))
        u = measured.push(z, back / _size(back))
        u = np.where(_size(u) > 0, u, 1.0)
    steepest = _size(measured.pull(z, u / _size(u)))
    by_token = 0.0
    for row in np.unique(np.linspace(0, length - 1, min(length, _MOST_ROWS)).astype(np.intp)):
        one = np.zeros((batch, length))
        one[:, row] = 1.0
        by_token = max(by_token, float(np.linalg.norm(measured.pull(z, one), axis=-1).sum(axis=1).max()))
    facts = {"batch": batch, "length": length, "iterations": iterations, "seed": seed}
    why = "a slope at one of the inputs, so the Lipschitz constant is at least this large"
    return {
        "frobenius": certified(f"power iteration: {why}", low=_SURE * float(steepest.max()), **facts),
        "token": certified(f"gradients of single outputs: {why}", low=_SURE * by_token, **facts),
    }


class _Measured:
    """A model that `fastpe.reference` runs in float64. Rows of any values can enter its first layer."""

    def __init__(self, model: Transformer, x: Any) -> None:
        self.config, self.weights = model.config, weights_of(model)
        if self.config.logit_softcap is not None:
            raise ValueError("model must have no logit_softcap: slopes are those of the outputs of the head")
        self.x = np.atleast_2d(array("x", x))
        if self.x.ndim != 2 or self.x.size == 0:
            raise ValueError(f"x must have shape (B, N) or (N,), not {self.x.shape}")
        batch, length = self.x.shape
        if batch * self.config.heads * length**2 > _MOST_BLOCKS:
            raise ValueError(
                f"x must have B H N^2 of at most 2**24, not B = {batch}, H = {self.config.heads}, N = {length}"
            )
        self._check(self.config.vocabulary)
        self.slots = slots_of(model, length)
        head = self.weights["embed.weight"].T if model.config.tied else self.weights["head.weight"]
        self._base: tuple[Array, Array] | None = None  # rows and their outputs
        strongest = np.linalg.svd(head, full_matrices=False)[2][0]
        self._layers = {name: each for name, each in self.weights.items() if name.startswith("layers.")}
        self._numbers = {
            **{name: each for name, each in self.weights.items() if not name.startswith(("embed.", "head."))},
            "embed.weight": np.zeros((1, self.config.width)),
            "head.weight": (head @ strongest)[:, None],
        }

    def _check(self, vocabulary: int | None) -> None:
        if vocabulary is None:
            finite("x", self.x, np.float64)
        elif self.x.dtype.kind == "f" or self.x.min() < 0 or self.x.max() >= vocabulary:
            raise ValueError(f"x must hold tokens, integers in [0, {vocabulary})")

    def rows(self, layers: int) -> Array:
        """Return the rows that enter layer number `layers`, (B, N, C).

        These rows are computed as the outputs of a model that has only the layers before, and an identity head.
        """
        weights, x = self.weights, self.x
        if self.config.vocabulary is None:
            embedded = x[..., None] * weights["embed.weight"] + weights.get("embed.bias", 0.0)
        else:
            embedded = weights["embed.weight"][x.astype(np.int64)] * self.config.embedding_scale
        width = embedded.shape[-1]
        ends = {"embed.weight": embedded.reshape(-1, width), "head.weight": np.eye(width)}
        config = self._config(layers=layers, final_norm=False, vocabulary=x.size)
        return reference.model_forward(config, self._layers | ends, self.slots, np.arange(x.size).reshape(x.shape))

    def push(self, z: Array, v: Array) -> Array:
        """Return J v, (B, N), by a central difference."""
        step = 1e-6 * max(1.0, float(np.abs(z).max()))
        return (self._outputs(z + step * v) - self._outputs(z - step * v)) / (2.0 * step)

    def pull(self, z: Array, u: Array) -> Array:
        """Return J^T u, (B, N, C)."""
        if self._base is None or self._base[0] is not z:
            self._base = z, self._outputs(z)
        # with this target, the gradient of the mean squared error with respect to the outputs is u
        target = self._base[1] - 0.5 * u.size * u
        config, nothing = self._config(vocabulary=None), np.zeros(u.shape)
        slot_gradients = reference.model_loss_and_grads(config, self._numbers, self._with(z), nothing, target)[2]
        return np.asarray(slot_gradients[0]["table"])

    def _outputs(self, z: Array) -> Array:
        nothing = np.zeros(z.shape[:2])
        return reference.model_forward(self._config(vocabulary=None), self._numbers, self._with(z), nothing)

    def _with(self, z: Array) -> list[dict[str, Any]]:
        """Return the slots of all layers with z in place of the table. Embeddings are 0, so taps have no effect."""
        return [{**self.slots[0], "table": z}, *self.slots[1:]]

    def _config(self, **changed: Any) -> SimpleNamespace:
        config = {**self.config.to_dict(), "tied": False, "embedding_scale": 1.0, **changed}
        return SimpleNamespace(**config)


def _size(u: Array) -> Array:
    """Return the norm of each sequence of a batch, (B, 1, ...)."""
    return np.sqrt(np.square(u).sum(axis=tuple(range(1, u.ndim)), keepdims=True))
