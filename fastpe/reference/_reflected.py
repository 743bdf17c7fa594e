"""Products of queries and keys, where all tokens in between reflect the query (PaTH), in plain NumPy, with pullback."""

from collections.abc import Callable

import numpy as np

from fastpe.reference._case import Array, Case, Gradients

_Rows = tuple[Array, Callable[[Array, Gradients], None]]


def reflected(case: Case, queries: _Rows, keys: _Rows) -> tuple[Array, Callable[[Array, Gradients], None]]:
    """Return q_i . H_i H_(i-1) ... H_(j+1) k_j, with H_t = 1 - reflect_t reflectors_t reflectors_t^T, and its pullback.

    Padding does not reflect. `queries` and `keys` are content rows, with their pullbacks.
    """
    (q, q_pullback), (k, k_pullback) = queries, keys
    w, beta = case.slots["reflectors"], case.slots["reflect"][..., None, None]
    x, seen, products = q, {}, []
    for j in reversed(range(k.shape[-2])):
        seen[j] = x
        products.append(_along(x, k, j))
        step = beta[..., j, :, :] * _along(x, w, j) * w[..., j, None, :]
        x = np.where(_turned(case, j), x - step, x)
    inner = np.concatenate(products[::-1], axis=-1) if products else np.zeros((*x.shape[:-1], 0), x.dtype)

    def pullback(dinner: Array, gradients: Gradients) -> None:
        y, found = np.zeros_like(q), []
        for j in range(k.shape[-2]):
            rows, e, turned = seen[j], dinner[..., j, None], _turned(case, j)
            u, t = np.where(turned, _along(y, w, j), 0), np.where(turned, _along(rows, w, j), 0)
            dw = -beta[..., j, :, 0] * np.sum(u * rows + t * y, axis=-2)
            found.append((np.sum(e * rows, axis=-2), dw, -np.sum(t * u, axis=(-1, -2))))
            y = y + e * k[..., j, None, :] - beta[..., j, :, :] * u * w[..., j, None, :]
        q_pullback(y, gradients)
        if found:
            dk, dw, dbeta = zip(*found, strict=True)
            k_pullback(np.stack(dk, axis=-2), gradients)
            gradients.add("reflectors", np.stack(dw, axis=-2))
            gradients.add("reflect", np.stack(dbeta, axis=-1))

    return inner, pullback


def _along(rows: Array, others: Array, j: int) -> Array:
    """Return the dot products of rows (B, H, N, D) with row j of `others`, (B, H, N, 1)."""
    return np.asarray(np.sum(rows * others[..., j, None, :], axis=-1, keepdims=True))


def _turned(case: Case, j: int) -> Array:
    """Return whether token j reflects each query before the products with earlier keys: (B, 1, N, 1)."""
    queries = case.positions.first[:, None] + np.arange(case.positions.n)
    return ((queries >= j) & (j < case.call.key_lengths[:, None]))[:, None, :, None]
