"""DAPE, data-adaptive biases, in plain NumPy: attention with a small network that corrects the scores of all heads."""

from typing import Any

import numpy as np

from fastpe.reference._attention import attention_vjp
from fastpe.reference._causal import Array, Pullback, doubles, scale_of


def dape(
    q: Any, k: Any, v: Any, bias: Any, w1: Any, b1: Any, w2: Any, *, scale: float | None = None
) -> Array:  # fmt: skip
    """Causal attention with data-adaptive biases, in float64.

    Head h has the products C_h = s q_h k_h^T and the biases b_h. For every query and key, the scores S of the H heads
    are::

        x = [C_1 .. C_H, b_1 .. b_H],    S = C + b + W2 lrelu(W1 x + b1)

    lrelu is the leaky ReLU with slope 0.01. In version 2 (DAPE V2), W1 and W2 are convolutions along the keys, with
    three taps in the paper. Their input x is 0 for keys after the query.

    Parameters
    ----------
    q, k, v : (..., H, N, D) array
        Queries, keys and values.
    bias : (H, 2N-1) or (H, N, N) array
        b, the biases that do not depend on the content. With shape (H, 2N-1), as in the slot ``bias``, a head has a
        value for every offset: query i and key j use element j - i + N - 1. With shape (H, N, N), as in the slot
        ``scores``, a head has a value for every query and key.
    w1 : (W, 2H) or (W, 2H, T) array
        W1. The second shape is that of version 2. The number T of taps is odd, and the middle tap is at the key itself.
    b1 : (W,) array
        The bias of the hidden units.
    w2 : (H, W) or (H, W, T) array
        W2.
    scale : float, optional
        s, by default 1/sqrt(D).

    Returns
    -------
    (..., H, N, D) float64

    Raises
    ------
    ValueError
        If the shapes do not match.

    Notes
    -----
    The authors use W = 32, and initial values uniform in +-1/sqrt(fan-in). Their second map also has a bias. It is left
    out here, because it adds the same number to all scores of a row, which does not change the softmax.

    DAPE is defined beyond the training length. At larger distances, the network gets larger biases than in training.

    The result equals `attention` with ``causal=True`` and the slots ``mlp_in``, ``mlp_bias`` and ``mlp_out``.
    `fastpe.attention` has compiled kernels for these, which the encoding ``dape`` uses.

    References
    ----------
    Zheng et al. 2024, "DAPE: Data-Adaptive Positional Encoding for Length Extrapolation" (arXiv:2405.14722), and "DAPE
    V2: Process Attention Score as Feature Map for Length Extrapolation" (arXiv:2410.04798); chuanyang-Zheng/DAPE,
    DAPE.py, AliBi_DAPE, and megatron/model/positional_embeddings.py, Alibi_DAPEV2.

    Examples
    --------
    >>> q = k = np.zeros((1, 3, 2))
    >>> v = np.array([[[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]]])
    >>> dape(q, k, v, np.zeros((1, 5)), np.ones((4, 2)), np.zeros(4), np.ones((1, 4)))[0].tolist()
    [[0.0, 1.0], [1.0, 2.0], [2.0, 3.0]]
    """
    return dape_vjp(q, k, v, bias, w1, b1, w2, scale=scale)[0]


def dape_vjp(
    q: Any, k: Any, v: Any, bias: Any, w1: Any, b1: Any, w2: Any, *, scale: float | None = None
) -> tuple[Array, Pullback]:
    """Return the output of `dape`, and its pullback, which returns a dict of the gradients of all arrays by name.

    >>> one, maps = np.ones((1, 2, 3)), np.ones((1, 2))
    >>> out, pullback = dape_vjp(one, one, one, np.zeros((1, 3)), maps, np.ones(1), np.ones((1, 1)))
    >>> sorted(pullback(np.ones_like(out)))
    ['b1', 'bias', 'k', 'q', 'v', 'w1', 'w2']
    """
    given = {"q": q, "k": k, "v": v, "bias": bias, "w1": w1, "b1": b1, "w2": w2}
    q, k, v, bias, w1, b1, w2 = doubles(given)
    _check(q, bias, w1, b1, w2)
    rows = (x.reshape(-1, *x.shape[-3:]) for x in (q, k, v))
    slot, taps = "bias" if bias.ndim == 2 else "scores", w1.shape[2:] or (1,)
    slots = {slot: bias, "mlp_in": w1.reshape(*w1.shape[:2], *taps), "mlp_bias": b1}
    slots["mlp_out"] = w2.reshape(*w2.shape[:2], *taps)
    names = {"bias": slot, "w1": "mlp_in", "b1": "mlp_bias", "w2": "mlp_out"}
    out, back = attention_vjp(*rows, causal=True, scale=scale_of(q, scale), wrt=("q", "k", "v", *slots), **slots)

    def pullback(dout: Array) -> dict[str, Array]:
        found = back(np.reshape(dout, out.shape))
        return {name: found[names.get(name, name)].reshape(np.shape(value)) for name, value in given.items()}

    return out.reshape(v.shape), pullback


def _check(q: Array, bias: Array, w1: Array, b1: Array, w2: Array) -> None:
    if q.ndim < 3:
        raise ValueError(f"q, k and v must have heads, (..., H, N, D), not {q.shape}")
    heads, n = q.shape[-3:-1]
    if bias.shape not in ((heads, 2 * n - 1), (heads, n, n)):
        raise ValueError(f"bias must have shape {(heads, 2 * n - 1)} or {(heads, n, n)}, not {bias.shape}")
    if w1.ndim not in (2, 3) or w1.shape[1] != 2 * heads:
        raise ValueError(f"w1 must have shape (W, {2 * heads}) or (W, {2 * heads}, T), not {w1.shape}")
    if w1.shape[2:] and w1.shape[2] % 2 == 0:
        raise ValueError(f"w1 must have an odd number of taps, not {w1.shape[2]}")
    if b1.shape != w1.shape[:1]:
        raise ValueError(f"b1 must have shape {w1.shape[:1]}, not {b1.shape}")
    if w2.shape != (heads, len(w1), *w1.shape[2:]):
        raise ValueError(f"w2 must have shape {(heads, len(w1), *w1.shape[2:])}, not {w2.shape}")
