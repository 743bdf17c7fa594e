"""Angles that a layer computes from its input, for the slot `angles` of `fastpe.attention`, with their gradients.

    selective       running sums of a function of the content: Selective RoPE
    repo            a position that a network computes for each token: RePo
    carope          running sums of powers of a number of each token: CARoPE
    grape_m         running sums of a gate: contextual GRAPE-M

Models can be trained with `selective` (the encoding "selective_rope"). The others are for calls of `fastpe.attention`.

A function whose name ends in `_vjp` returns the same array as the function without `_vjp`, and a pullback. The pullback
maps the gradient of this array to a dict of the gradients of the arguments.

>>> x, frequencies = np.ones((3, 4)), 500000.0 ** (-np.arange(0, 4, 2) / 4)
>>> maps = {"down": np.eye(4)[:, :1], "up": np.ones((1, 2)), "taps": np.eye(4)[3:].T * [1.0, 1.0]}
>>> angles = selective(x, **maps, frequencies=frequencies)
>>> angles.shape, angles[0, :, 0].round(6).tolist()
((1, 3, 2), [0.5, 1.0, 1.5])
>>> import fastpe
>>> q = np.ones((1, 3, 4))
>>> fastpe.attention(q, q, q, causal=True, angles=angles, pairs="half").shape
(1, 3, 4)
"""

from typing import Any

import numpy as np

from fastpe.base.pulled import Array, Pullback, given, like
from fastpe.base.validation import whole

__all__ = [
    "carope", "carope_vjp", "grape_m", "grape_m_vjp", "repo", "repo_vjp", "selective", "selective_vjp",
]  # fmt: skip

_TAPS = 4
_LEAST = 1e-6
_TURN = 2 * np.pi
_SOFTER = 16.0  # the gate of contextual GRAPE-M divides by it


def selective(x: Any, down: Any, up: Any, taps: Any, *, frequencies: Any, before: Any = None) -> Array:
    """Return the angles of Selective RoPE. A small network has outputs for each token; the angles are the frequencies
    times the running sums of these outputs.

    First x is normalised to x^: the channels of each head are divided by the square root of (the sum of their squares
    + 1e-6). Then the angles of token t, modulo 2 pi, are::

        p = x^ @ down @ up
        f_t = taps[0] * p_{t-3} + ... + taps[3] * p_t
        angles_t = frequencies * (f_0 + ... + f_t)

    Parameters
    ----------
    x : (B, N, C) or (N, C) floats
        The input of a layer, after its normalisation.
    down : (C, rank) floats
        Learned map from channels to `rank` numbers.
    up : (rank, C/2) floats
        Learned map from the `rank` numbers to one number for each pair of channels. The pairs of the first head come
        first.
    taps : (4, C/2) floats
        Learned taps of a causal depthwise convolution, oldest first.
    frequencies : (D/2,) floats
        The angle of each pair of channels, in radians, for a running sum of 1. The authors use
        ``500000 ** (-np.arange(0, D, 2) / D)``. The length of this array determines the width D of a head, and thereby
        the number of heads, C / D.
    before : pair of arrays, optional
        The state after the preceding tokens, if x continues a sequence. The first array has the inputs x of the last n
        preceding tokens, (B, n, C). The second array has the angles of the last one, (B, H, 1, D/2). n is at least 3,
        or the number of preceding tokens if there are fewer. No gradient of the state is computed.

    Returns
    -------
    (B, H, N, D/2) or (H, N, D/2) float64
        Angles in [-pi, pi]. The pairs of channels are those of ``pairs="half"`` in the authors' code.

    Raises
    ------
    TypeError, ValueError
        If an argument does not hold finite real numbers, or has the wrong shape.

    References
    ----------
    Movahedi, Carstensen et al. 2026, "Selective Rotary Position Embedding" (ICLR), and its code, SelectiveRoPE.

    Examples
    --------
    >>> eye, taps = np.eye(2), np.array([[0.0], [0.0], [0.0], [1.0]])
    >>> selective(2 * eye, eye[:, :1], [[0.5]], taps, frequencies=[1.0]).round(6).tolist()
    [[[0.5], [0.5]]]
    """
    return selective_vjp(x, down, up, taps, frequencies=frequencies, before=before)[0]


def selective_vjp(
    x: Any, down: Any, up: Any, taps: Any, *, frequencies: Any, before: Any = None
) -> tuple[Array, Pullback]:
    """Return the output of `selective`, and its pullback, which returns a dict of gradients.

    The gradients are those of `x`, `down`, `up` and `taps`.

    >>> eye, taps = np.eye(2), np.array([[0.0], [0.0], [0.0], [1.0]])
    >>> pull = selective_vjp(eye, eye[:, :1], [[0.5]], taps, frequencies=[1.0])[1]
    >>> pull([[[1.0], [1.0]]])["up"].round(3).tolist()
    [[2.0]]
    """
    inputs, narrow, wide = given("x", x), given("down", down), given("up", up)
    kernel, tau = given("taps", taps), given("frequencies", frequencies)
    heads = _heads(inputs, narrow, wide, kernel, tau)
    last, start = _before(before, inputs, heads, tau)
    rows = np.concatenate([last, inputs], axis=-2)
    split = rows.reshape(*rows.shape[:-1], heads, -1)
    norm = np.sqrt(np.sum(split**2, axis=-1, keepdims=True) + _LEAST)
    unit = (split / norm).reshape(rows.shape)
    low = unit @ narrow
    steps = low @ wide
    older = last.shape[-2]
    sums = np.cumsum(_convolved(steps, kernel)[..., older:, :], axis=-2).reshape(*inputs.shape[:-1], heads, len(tau))
    angles = np.moveaxis(sums * tau, -2, -3) + start

    def pullback(dangles: Any) -> dict[str, Array]:
        d = _gradient(dangles, angles)
        later = np.moveaxis(np.flip(np.cumsum(np.flip(d, -2), axis=-2), -2) * tau, -3, -2)
        df = np.zeros(steps.shape)
        df[..., older:, :] = later.reshape(*inputs.shape[:-1], -1)
        dsteps, dtaps = _convolved_back(df, steps, kernel)
        dlow = dsteps @ wide.T
        dunit = (dlow @ narrow.T).reshape(split.shape)
        along = np.sum(dunit * split, axis=-1, keepdims=True) / norm**2
        dx = ((dunit - along * split) / norm).reshape(rows.shape)[..., older:, :]
        return {
            "x": like(dx, x), "down": like(_product(unit, dlow), down), "up": like(_product(low, dsteps), up),
            "taps": like(dtaps, taps),
        }  # fmt: skip

    return _wrapped(angles), pullback


def repo(x: Any, gate: Any, down: Any, up: Any, *, frequencies: Any) -> Array:
    """Return the angles of RePo: frequencies times a position that a small network computes for each token and head.

    The position z of head h, which takes the place of the token's index, and the angles are::

        z_h = (silu(x @ gate) * (x @ down)) @ up[:, h]
        angles_ht = z_h frequencies_t

    There is no sum over tokens, so the order of the tokens comes from the causal mask and from lower layers. The
    authors use RePo from layer 5 of 16 on, and ordinary RoPE below. Their option to mix z with the index is left out.

    Parameters
    ----------
    x : (B, N, C) or (N, C) floats
        The input of a layer, after its normalisation.
    gate, down : (C, M) floats
        Learned maps; M = C/8 in the authors' code. Initially normal with a standard deviation of 0.02.
    up : (M, H) floats
        Learned map from M numbers to one for each head; initially as the others.
    frequencies : (R/2,) floats
        As for `selective`; the authors use those of `rope`.

    Returns
    -------
    (B, H, N, R/2) or (H, N, R/2) float64
        Angles in [-pi, pi].

    Raises
    ------
    TypeError, ValueError
        As `selective` does.

    References
    ----------
    Li et al. 2025, "RePo: Language Models with Context Re-Positioning" (arXiv:2512.14391); SakanaAI/repo,
    modeling_olmo2.py.

    Examples
    --------
    >>> repo([[2.0], [-1.0]], [[0.5]], [[1.0]], [[1.0]], frequencies=[1.0]).round(6).tolist()
    [[[1.462117], [0.18877]]]
    """
    return repo_vjp(x, gate, down, up, frequencies=frequencies)[0]


def repo_vjp(x: Any, gate: Any, down: Any, up: Any, *, frequencies: Any) -> tuple[Array, Pullback]:
    """Return the output of `repo`, and its pullback, which returns the gradients of `x`, `gate`, `down` and `up`.

    >>> repo_vjp([[0.0]], [[1.0]], [[1.0]], [[1.0]], frequencies=[1.0])[1]([[[1.0]]])["up"].tolist()
    [[0.0]]
    """
    inputs, first, second, last = given("x", x), given("gate", gate), given("down", down), given("up", up)
    tau = _frequencies(frequencies)
    width = _width(inputs)
    inner = first.shape[-1] if first.ndim == 2 else 0
    heads = last.shape[-1] if last.ndim == 2 else 0
    _shaped("gate", first, (width, inner), "(C, M)", inputs)
    _shaped("down", second, (width, inner), "(C, M)", inputs)
    _shaped("up", last, (inner, heads), "(M, H)", inputs)
    open_, other = inputs @ first, inputs @ second
    half = 1.0 / (1.0 + np.exp(-open_))
    hidden = open_ * half * other
    angles = np.moveaxis(hidden @ last, -1, -2)[..., None] * tau

    def pullback(dangles: Any) -> dict[str, Array]:
        dz = np.moveaxis(_gradient(dangles, angles) @ tau, -2, -1)
        dhidden = dz @ last.T
        dopen = dhidden * other * half * (1.0 + open_ * (1.0 - half))
        dother = dhidden * open_ * half
        return {
            "x": like(dopen @ first.T + dother @ second.T, x), "gate": like(_product(inputs, dopen), gate),
            "down": like(_product(inputs, dother), down), "up": like(_product(hidden, dz), up),
        }  # fmt: skip

    return _wrapped(angles), pullback


def carope(x: Any, weight: Any, *, pairs: int) -> Array:
    """Return the angles of CARoPE: running sums of powers of a number that each token's embedding determines.

    The number f of token u and head h, between 0 and 1, and the angle of pair t of token i are::

        f_uh = 1 / (1 + softplus(x_u @ weight[:, h]))
        angles_iht = f_0h^t + ... + f_ih^t

    Parameters
    ----------
    x : (B, N, C) or (N, C) floats
        The embeddings of the tokens, also in higher layers.
    weight : (C, H) floats
        Learned map.
    pairs : int
        The number R/2 of rotated pairs of channels.

    Returns
    -------
    (B, H, N, R/2) or (H, N, R/2) float64
        Angles in [-pi, pi]. The angle of the first pair, with f^0 = 1, is i + 1 for any content.

    Raises
    ------
    TypeError, ValueError
        As `selective` does.

    References
    ----------
    Veisi, Fartoot and Amirzadeh 2025, "Context-aware Rotary Position Embedding" (arXiv:2507.23083), section 2. No code
    of the authors was found. According to the paper, models start as with RoPE, but no weight gives the frequencies of
    RoPE: with weight = 0, f is 0.59.

    Examples
    --------
    >>> carope(np.zeros((2, 1)), [[1.0]], pairs=2).round(6).tolist()
    [[[1.0, 0.590616], [2.0, 1.181232]]]
    """
    return carope_vjp(x, weight, pairs=pairs)[0]


def carope_vjp(x: Any, weight: Any, *, pairs: int) -> tuple[Array, Pullback]:
    """Return the output of `carope`, and its pullback, which returns the gradients of `x` and `weight`.

    >>> carope_vjp([[1.0]], [[0.0]], pairs=2)[1]([[[5.0, 1.0]]])["weight"].round(6).tolist()
    [[-0.174414]]
    """
    inputs, matrix = given("x", x), given("weight", weight)
    powers = np.arange(float(whole("pairs", pairs, 1)))
    width = _width(inputs)
    _shaped("weight", matrix, (width, matrix.shape[-1] if matrix.ndim == 2 else 0), "(C, H)", inputs)
    z = np.moveaxis(inputs @ matrix, -1, -2)[..., None]
    base = 1.0 / (1.0 + np.logaddexp(0.0, z))
    angles = np.cumsum(base**powers, axis=-2)

    def pullback(dangles: Any) -> dict[str, Array]:
        later = np.flip(np.cumsum(np.flip(_gradient(dangles, angles), -2), axis=-2), -2)
        dbase = np.sum(later * powers * base ** np.maximum(powers - 1.0, 0.0), axis=-1)
        dz = -dbase * base[..., 0] ** 2 / (1.0 + np.exp(-z[..., 0]))
        dz = np.moveaxis(dz, -2, -1)
        return {"x": like(dz @ matrix.T, x), "weight": like(_product(inputs, dz), weight)}

    return _wrapped(angles), pullback


def grape_m(x: Any, weight: Any, bias: Any, log_freq: Any) -> Array:
    """Return the angles of contextual GRAPE-M: learned frequencies times running sums of a gate of the earlier tokens.

    The gate w of token u and head h, and the angle of pair t of token i are::

        w_uh = sigmoid((x_u @ weight[:, h] + bias_h) / 16)
        angles_iht = -exp(log_freq_t) (w_0h + ... + w_{i-1,h})

    Parameters
    ----------
    x : (B, N, C) or (N, C) floats
        The input of a layer, after its normalisation.
    weight : (C, H) floats
        Learned map, initially 0. With H = 1, all heads have the same angles.
    bias : (H,) floats
        Learned; initially -6.907 in the authors' code, which gives a gate of 0.394. A comment there promises a gate
        near 0.001, which softplus without the division by 16 would give.
    log_freq : (R/2,) floats
        Learned, as for the encoding "grape_m"; initially the logarithms of the frequencies of `rope`.

    Returns
    -------
    (B, H, N, R/2) or (H, N, R/2) float64
        Angles in [-pi, pi]. The sign is that of the authors' code; the opposite one would give other scores, because
        queries and keys are rotated the other way round.

    Raises
    ------
    TypeError, ValueError
        As `selective` does.

    References
    ----------
    Zhang et al. 2025, "Group Representational Position Encoding" (arXiv:2512.07805); model-architectures/GRAPE,
    model/llama-mha-grape-m-ctx.py.

    Examples
    --------
    >>> grape_m(np.zeros((3, 1)), [[1.0]], [0.0], [0.0]).tolist()
    [[[0.0], [-0.5], [-1.0]]]
    """
    return grape_m_vjp(x, weight, bias, log_freq)[0]


def grape_m_vjp(x: Any, weight: Any, bias: Any, log_freq: Any) -> tuple[Array, Pullback]:
    """Return the output of `grape_m`, and its pullback, which returns the gradients of all arguments.

    >>> grape_m_vjp(np.zeros((2, 1)), [[1.0]], [0.0], [0.0])[1]([[[1.0], [1.0]]])["log_freq"].tolist()
    [-0.5]
    """
    inputs, matrix, added = given("x", x), given("weight", weight), given("bias", bias)
    logs = given("log_freq", log_freq)
    width, heads = _width(inputs), matrix.shape[-1] if matrix.ndim == 2 else 0
    _shaped("weight", matrix, (width, heads), "(C, H)", inputs)
    _shaped("bias", added, (heads,), "(H,)", inputs)
    tau = np.exp(_frequencies(logs, "log_freq"))
    gates = np.moveaxis(1.0 / (1.0 + np.exp(-(inputs @ matrix + added) / _SOFTER)), -1, -2)
    sums = (np.cumsum(gates, axis=-1) - gates)[..., None]
    angles = -sums * tau

    def pullback(dangles: Any) -> dict[str, Array]:
        d = _gradient(dangles, angles)
        dsums = -(d @ tau)
        dgates = np.flip(np.cumsum(np.flip(dsums, -1), axis=-1), -1) - dsums
        dz = np.moveaxis(dgates * gates * (1.0 - gates) / _SOFTER, -2, -1)
        return {
            "x": like(dz @ matrix.T, x), "weight": like(_product(inputs, dz), weight),
            "bias": like(dz.reshape(-1, heads).sum(axis=0), bias),
            "log_freq": like(np.sum((d * angles).reshape(-1, len(tau)), axis=0), log_freq),
        }  # fmt: skip

    return _wrapped(angles), pullback


def _wrapped(angles: Array) -> Array:
    """Return the angles without whole turns, in [-pi, pi]."""
    found: Array = angles - _TURN * np.round(angles / _TURN)
    return found


def _gradient(dangles: Any, angles: Array) -> Array:
    d = given("dangles", dangles)
    if d.shape != angles.shape:
        raise ValueError(f"dangles must have the shape of the angles, {angles.shape}, not {d.shape}")
    return d


def _frequencies(value: Any, name: str = "frequencies") -> Array:
    found = given(name, value)
    if found.ndim != 1 or not found.size:
        raise ValueError(f"{name} must have the shape (R/2,), not {found.shape}")
    return found


def _width(x: Array) -> int:
    if x.ndim not in (2, 3) or not x.shape[-1]:
        raise ValueError(f"x must have the shape (B, N, C) or (N, C), not {x.shape}")
    return x.shape[-1]


def _shaped(name: str, array: Array, shape: tuple[int, ...], said: str, x: Array) -> None:
    if array.shape != shape or not array.size:
        raise ValueError(f"{name} must have the shape {said} for x {x.shape}, not {array.shape}")


def _heads(x: Array, down: Array, up: Array, taps: Array, tau: Array) -> int:
    """Return the number of heads, after checking all shapes."""
    if tau.ndim != 1 or not tau.size:
        raise ValueError(f"frequencies must have the shape (D/2,), not {tau.shape}")
    if x.ndim not in (2, 3) or not x.shape[-1] or x.shape[-1] % (2 * len(tau)):
        raise ValueError(f"x must have the shape (B, N, C) or (N, C), C a multiple of D={2 * len(tau)}, not {x.shape}")
    width = x.shape[-1]
    rank = down.shape[1] if down.ndim == 2 else 0
    expected = {"down": (width, "rank"), "up": (rank, width // 2), "taps": (_TAPS, width // 2)}
    for name, array in (("down", down), ("up", up), ("taps", taps)):
        shape = tuple(rank if size == "rank" else size for size in expected[name])
        if array.shape != shape or not rank:
            said = ", ".join(map(str, expected[name]))
            raise ValueError(f"{name} must have the shape ({said}) for x {x.shape}, not {array.shape}")
    return width // 2 // len(tau)


def _before(before: Any, x: Array, heads: int, tau: Array) -> tuple[Array, Any]:
    """Return the inputs before x that the convolution reads, and the angles that the sums start from."""
    if before is None:
        return x[..., :0, :], 0.0
    if not isinstance(before, tuple | list) or len(before) != 2:
        raise TypeError(f"before must be a pair, the last inputs and the last angles, not {type(before).__name__}")
    last, angles = (given(f"before[{place}]", each) for place, each in enumerate(before))
    front = x.shape[:-2]
    if last.ndim != x.ndim or (*last.shape[:-2], last.shape[-1]) != (*front, x.shape[-1]):
        raise ValueError(
            f"before[0] must have the shape of x {x.shape}, except for the number of tokens, not {last.shape}"
        )
    if angles.shape != (shape := (*front, heads, 1, len(tau))):
        raise ValueError(f"before[1] must have the shape {shape}, not {angles.shape}")
    return last[..., max(0, last.shape[-2] - (_TAPS - 1)) :, :], angles


def _convolved(x: Array, taps: Array) -> Array:
    """Return an array whose row t is the sum of taps_k x_{t-3+k}, with zeros in place of rows before the first."""
    n, y = x.shape[-2], np.zeros(x.shape)
    for k, tap in enumerate(taps):
        ago = min(_TAPS - 1 - k, n)
        y[..., ago:, :] += tap * x[..., : n - ago, :]
    return y


def _convolved_back(d: Array, x: Array, taps: Array) -> tuple[Array, Array]:
    """Return the gradients of x and of the taps."""
    n, dx, dtaps = x.shape[-2], np.zeros(x.shape), np.zeros(taps.shape)
    for k, tap in enumerate(taps):
        ago = min(_TAPS - 1 - k, n)
        dx[..., : n - ago, :] += tap * d[..., ago:, :]
        dtaps[k] = np.sum((d[..., ago:, :] * x[..., : n - ago, :]).reshape(-1, x.shape[-1]), axis=0)
    return dx, dtaps


def _product(x: Array, y: Array) -> Array:
    """Return x^T y, summed over all rows."""
    product: Array = x.reshape(-1, x.shape[-1]).T @ y.reshape(-1, y.shape[-1])
    return product
