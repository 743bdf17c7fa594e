"""Attention beside its formula in NumPy, in any precision: `reference.attention` has no longdouble."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.special import expit

from fastpe import reference
from fastpe.doctor.case import Array, Case, Draw
from fastpe.functional.attention import attention, attention_vjp
from fastpe.functional.bands import Band

_APART = 1e-5  # more than counts of float32 are wrong by


def _attention_weights(q: Array, k: Array, bias: Array | float, causal: bool) -> tuple[Array, Callable[[Array], Array]]:
    """Weights (n, n) of one head, and their pullback to the scores."""
    ahead = _offsets(len(q)) > 0
    scores = q @ k.T * _scale(q) + (bias[_offsets(len(q)) + len(q) - 1] if isinstance(bias, np.ndarray) else bias)
    return reference.softmax_vjp(np.where(ahead, -np.inf, scores) if causal else scores)


def _offsets(n: int) -> Array:
    return np.arange(n)[None, :] - np.arange(n)[:, None]


def _scale(q: Array) -> Any:
    return q.dtype.type(q.shape[1] ** -0.5)


def attention_forward(draw: Draw, n: int, d: int) -> Iterator[Case]:
    q, k, v, bias = draw(n, d), draw(n, d), draw(n, d), draw(2 * n - 1)
    for causal in (False, True):

        def formula(q: Array, k: Array, v: Array, bias: Array, causal: bool = causal) -> Array:
            return _attention_weights(q, k, bias, causal)[0] @ v

        ours = attention(q[None], k[None], v[None], bias=bias[None], causal=causal)[0]
        yield Case(ours, formula, (q, k, v, bias), n * d)
    plain = attention(q[None], k[None], v[None])[0]
    yield Case(plain, lambda q, k, v: _attention_weights(q, k, 0.0, False)[0] @ v, (q, k, v), n * d)


def attention_backward(draw: Draw, n: int, d: int) -> Iterator[Case]:
    do, q, k, v, bias = draw(n, d), draw(n, d), draw(n, d), draw(n, d), draw(2 * n - 1)
    for causal in (False, True):

        def formula(do: Array, q: Array, k: Array, v: Array, bias: Array, causal: bool = causal) -> tuple[Array, ...]:
            weights, pullback = _attention_weights(q, k, bias, causal)
            dscores = pullback(do @ v.T)
            dbias = np.array([np.trace(dscores, offset) for offset in range(1 - n, n)], q.dtype)
            return _scale(q) * dscores @ k, _scale(q) * dscores.T @ q, weights.T @ do, dbias

        _, pull = attention_vjp(q[None], k[None], v[None], bias=bias[None], causal=causal)
        found = pull(do[None])
        ours = tuple(found[name][0] for name in ("q", "k", "v", "bias"))
        yield Case(ours, formula, (do, q, k, v, bias), n * d)


def attention_of_all(draw: Draw, n: int, d: int) -> Iterator[Case]:
    """A mask with holes, spans, a soft cap, a sink and dropout at once, and values of another width."""
    do, q, k, v, bias, sink = draw(n, d + 3), draw(n, d), draw(n, d), draw(n, d + 3), draw(2 * n - 1), draw(1)
    seen = (np.abs(draw(n, n)) < 1.0) | np.eye(n, dtype=bool)
    spans = np.stack([np.maximum(np.arange(n) - 20, 0), np.full(n, n)], axis=-1)
    visible = seen & (np.arange(n) >= spans[:, :1])
    rate, cap, seed = 0.25, 2.0, 3
    options: dict[str, Any] = {"spans": spans[None], "softcap": cap, "dropout": rate, "dropout_seed": seed}
    eye = np.broadcast_to(np.eye(n, dtype=q.dtype), (1, 1, n, n))
    flat = np.zeros((1, 1, n, d), q.dtype)
    kept = attention(flat, flat, eye, dropout=rate, dropout_seed=seed)[0, 0] > 0

    def formula(do: Array, q: Array, k: Array, v: Array, bias: Array, sink: Array) -> tuple[Array, ...]:
        scores = q @ k.T * _scale(q) + bias[_offsets(n) + n - 1]
        turned = np.tanh(scores / cap)
        capped = np.where(visible, cap * turned, -np.inf)
        weights, pullback = reference.softmax_vjp(np.concatenate([capped, np.broadcast_to(sink, (n, 1))], axis=1))
        factors = kept / q.dtype.type(1 - rate)
        dcolumns = pullback(np.concatenate([factors * (do @ v.T), np.zeros((n, 1), q.dtype)], axis=1))
        dscores = dcolumns[:, :-1] * (1 - turned**2)
        dbias = np.array([np.trace(dscores, offset) for offset in range(1 - n, n)], q.dtype)
        mixing = factors * weights[:, :-1]
        dq, dk = _scale(q) * dscores @ k, _scale(q) * dscores.T @ q
        return mixing @ v, dq, dk, mixing.T @ do, dbias, dcolumns[:, -1].sum(keepdims=True)

    led = (each[None, None] for each in (q, k, v))
    out, pull = attention_vjp(*led, bias=bias[None], mask=seen, sinks=sink, **options)
    found = pull(do[None, None])
    ours = out[0, 0], *(found[name][0, 0] for name in "qkv"), found["bias"][0], found["sinks"]
    yield Case(ours, formula, (do, q, k, v, bias, sink), n * d)


def attention_of_columns(draw: Draw, n: int, d: int) -> Iterator[Case]:
    """Offsets and slopes of keys, slopes and factors of queries, at once."""
    do, q, k, v, offset, of_key, of_query, factor = (draw(*size) for size in [(n, d)] * 4 + [(n,)] * 4)
    of_key, of_query = of_key / q.dtype.type(n), of_query / q.dtype.type(n)

    def formula(
        do: Array, q: Array, k: Array, v: Array, offset: Array, of_key: Array, of_query: Array, factor: Array
    ) -> tuple[Array, ...]:
        o, products, rows = _offsets(n).astype(q.dtype), q @ k.T * _scale(q), factor[:, None]
        scores = rows * products + offset + o * (of_key + of_query[:, None])
        weights, pullback = reference.softmax_vjp(np.where(o > 0, -np.inf, scores))
        dscores = pullback(do @ v.T)
        slopes = o * dscores
        dq, dk = _scale(q) * rows * (dscores @ k), _scale(q) * dscores.T @ (rows * q)
        columns = dscores.sum(axis=0), slopes.sum(axis=0), slopes.sum(axis=1), (dscores * products).sum(axis=1)
        return weights @ v, dq, dk, weights.T @ do, *columns

    named = {"key_offset": offset, "key_slope": of_key, "query_slope": of_query, "row_scale": factor}
    columns = {name: column[None] for name, column in named.items()}
    out, pull = attention_vjp(q[None], k[None], v[None], causal=True, **columns)
    found = pull(do[None])
    ours = out[0], *(found[name][0] for name in (*"qkv", *named))
    yield Case(ours, formula, (do, q, k, v, *named.values()), n * d)


def attention_of_counts(draw: Draw, n: int, d: int) -> Iterator[Case]:
    """Keys that are counted by their gates, up to half as many as there may be."""
    do, v, vectors = draw(n, d), draw(n, d), draw(n // 4 + 2, d)
    q, k = draw(n, d), draw(n, d)
    while _distance_from_whole(_counts(q, k)[1]) < _APART:
        q, k = draw(n, d), draw(n, d)

    def formula(do: Array, q: Array, k: Array, v: Array, vectors: Array) -> tuple[Array, ...]:
        gates, counts = _counts(q, k)
        places = np.minimum(counts, len(vectors) - 1)
        below, above = np.floor(places).astype(int), np.ceil(places).astype(int)
        share, z = places - below, q @ vectors.T
        at_below, at_above = (np.take_along_axis(z, rows, -1) for rows in (below, above))
        scores = q @ k.T * _scale(q) + (1 - share) * at_below + share * at_above
        weights, pullback = reference.softmax_vjp(np.where(_offsets(n) > 0, -np.inf, scores))
        dscores = pullback(do @ v.T)
        dgates, dz = np.cumsum(dscores * (at_above - at_below), axis=-1), np.zeros_like(z)
        np.add.at(dz, (np.arange(n)[:, None], below), dscores * (1 - share))
        np.add.at(dz, (np.arange(n)[:, None], above), dscores * share)
        dproducts = (dscores + dgates * gates * (1 - gates)) * _scale(q)
        return weights @ v, dproducts @ k + dz @ vectors, dproducts.T @ q, weights.T @ do, dz.T @ q

    out, pull = attention_vjp(q[None], k[None], v[None], causal=True, counts=vectors[None])
    found = pull(do[None])
    ours = out[0], *(found[name][0] for name in (*"qkv", "counts"))
    yield Case(ours, formula, (do, q, k, v, vectors), n * d)


def _counts(q: Array, k: Array) -> tuple[Array, Array]:
    """The gates of keys, and their sums from the query back."""
    gates = np.where(_offsets(len(q)) > 0, 0, 1 / (1 + np.exp(-q @ k.T * _scale(q))))
    return gates, np.cumsum(gates[:, ::-1], axis=-1)[:, ::-1]


def _distance_from_whole(counts: Array) -> float:
    """Of the nearest count; there slopes jump, and rounding decides on which side it is."""
    seen = counts[np.tri(len(counts), dtype=bool)].astype(np.float64)
    return float(np.abs(seen - np.round(seen)).min())


def attention_of_bands(draw: Draw, n: int, d: int) -> Iterator[Case]:
    """Two bands at places of their own, the keys from the third query back on in the second, and a sink."""
    do, q, k, v, sink, theta = draw(n, d), draw(n, d), draw(n, d), draw(n, d), draw(1), draw(d // 2)
    numbers = np.arange(n)
    edges = np.stack([np.zeros(n, int), np.maximum(numbers - 2, 0), numbers + 1], axis=-1)
    own = (
        Band(numbers.astype(float), numbers.astype(float), edges[:, 1:]),
        Band(numbers / 4 + 1, numbers / 4, edges[:, :2]),
    )

    def formula(do: Array, q: Array, k: Array, v: Array, sink: Array, theta: Array) -> tuple[Array, ...]:
        turned, scores = [], np.full((n, n), -np.inf, q.dtype)
        for band in own:
            pair = [
                reference.rotate_vjp(x, places[:, None] * theta.astype(float))
                for x, places in ((q, band.queries), (k, band.keys))
            ]
            held = (band.spans[:, :1] <= numbers) & (numbers < band.spans[:, 1:])
            scores = np.where(held, pair[0][0] @ pair[1][0].T * _scale(q), scores)
            turned.append((pair, held, band))
        weights, pullback = reference.softmax_vjp(np.concatenate([scores, np.broadcast_to(sink, (n, 1))], axis=1))
        dcolumns = pullback(np.concatenate([do @ v.T, np.zeros((n, 1), q.dtype)], axis=1))
        dq, dk, dtheta = np.zeros_like(q), np.zeros_like(k), np.zeros(theta.size, q.dtype)
        for ((qr, back), (kr, back_of_keys)), held, band in turned:
            dscores = np.where(held, dcolumns[:, :-1], 0) * _scale(q)
            found, of_keys = back(dscores @ kr), back_of_keys(dscores.T @ qr)
            dq, dk = dq + found["x"], dk + of_keys["x"]
            dtheta += band.queries.astype(q.dtype) @ found["angles"] + band.keys.astype(q.dtype) @ of_keys["angles"]
        return weights[:, :-1] @ v, dq, dk, weights[:, :-1].T @ do, dcolumns[:, -1].sum(keepdims=True), dtheta

    out, pull = attention_vjp(q[None], k[None], v[None], sinks=sink, bands=own, theta=theta)
    found = pull(do[None])
    ours = out[0], *(found[name][0] for name in "qkv"), found["sinks"], found["theta"]
    yield Case(ours, formula, (do, q, k, v, sink, theta), n * d)


def attention_of_maps(draw: Draw, n: int, d: int) -> Iterator[Case]:
    """Blocks of channels of queries and keys through maps, one for each position or one for all."""
    b = max(size for size in range(1, 9) if d % size == 0)
    for count in (n, 1):
        do, q, k, v = (draw(n, d) for _ in range(4))
        maps = draw(count, d // b, b, b) / q.dtype.type(np.sqrt(b))

        def formula(do: Array, q: Array, k: Array, v: Array, maps: Array, count: int = count) -> tuple[Array, ...]:
            qr, kr = ((maps @ x.reshape(n, -1, b, 1)).reshape(n, d) for x in (q, k))
            weights, pullback = reference.softmax_vjp(qr @ kr.T * _scale(q))
            dscores = _scale(q) * pullback(do @ v.T)
            dmaps, rows = np.zeros((n, *maps.shape[1:]), q.dtype), []
            for x, dy in ((q, dscores @ kr), (k, dscores.T @ qr)):
                column = dy.reshape(n, -1, b, 1)
                rows.append((np.swapaxes(maps, -1, -2) @ column).reshape(n, d))
                dmaps += column * x.reshape(n, -1, 1, b)
            return weights @ v, *rows, weights.T @ do, dmaps if count > 1 else dmaps.sum(axis=0, keepdims=True)

        out, pull = attention_vjp(q[None], k[None], v[None], rotors=maps[None])
        found = pull(do[None])
        ours = out[0], *(found[name][0] for name in (*"qkv", "rotors"))
        yield Case(ours, formula, (do, q, k, v, maps), n * d)


def attention_of_radii(draw: Draw, n: int, d: int) -> Iterator[Case]:
    """Channels as radii at angles of every position, those of keys with phases of their own."""
    do, q, k, v, phases, angles = draw(n, d), draw(n, d), draw(n, d), draw(n, d), draw(1, d), draw(n, d)

    def formula(do: Array, q: Array, k: Array, v: Array, phases: Array, angles: Array) -> tuple[Array, ...]:
        turns, rows, found = (angles, angles + phases), [], []
        radii = [np.logaddexp(0, x, dtype=x.dtype) for x in (q, k)]
        for radius, turn in zip(radii, turns, strict=True):
            rows.append(np.concatenate([radius * np.cos(turn), radius * np.sin(turn)], axis=1))
        weights, pullback = reference.softmax_vjp(rows[0] @ rows[1].T * _scale(q))
        dscores = _scale(q) * pullback(do @ v.T)
        drows = dscores @ rows[1], dscores.T @ rows[0]
        for x, radius, turn, drow in zip((q, k), radii, turns, drows, strict=True):
            along, across = drow[:, :d], drow[:, d:]
            dturn = radius * (across * np.cos(turn) - along * np.sin(turn))
            found.append((expit(x) * (along * np.cos(turn) + across * np.sin(turn)), dturn))
        (dq, of_queries), (dk, of_keys) = found
        return weights @ v, dq, dk, weights.T @ do, of_keys.sum(axis=0, keepdims=True), of_queries + of_keys

    out, pull = attention_vjp(q[None], k[None], v[None], polar=phases, angles=angles[None])
    found = pull(do[None])
    ours = out[0], *(found[name][0] for name in "qkv"), found["polar"], found["angles"][0]
    yield Case(ours, formula, (do, q, k, v, phases, angles), n * d)


def attention_of_reflections(draw: Draw, n: int, d: int) -> Iterator[Case]:
    """Queries that every token up to a key reflects."""
    do, q, k, v, w, beta = draw(n, d), draw(n, d), draw(n, d), draw(n, d), draw(n, d), 2 * expit(draw(n))
    w /= np.sqrt((w * w).sum(axis=1, keepdims=True))

    def formula(do: Array, q: Array, k: Array, v: Array, w: Array, beta: Array) -> tuple[Array, ...]:
        x, scores, seen = q * _scale(q), np.full((n, n), -np.inf, q.dtype), {}
        for j in reversed(range(n)):
            seen[j] = x[j:].copy()
            scores[j:, j] = seen[j] @ k[j]
            x[j:] -= beta[j] * np.outer(seen[j] @ w[j], w[j])
        weights, pullback = reference.softmax_vjp(scores)
        dscores, y = pullback(do @ v.T), np.zeros_like(q)
        dk, dw, dbeta = np.zeros_like(k), np.zeros_like(w), np.zeros_like(beta)
        for j in range(n):
            u, t, e = y[j:] @ w[j], seen[j] @ w[j], dscores[j:, j]
            dk[j], dw[j], dbeta[j] = e @ seen[j], -beta[j] * (u @ seen[j] + t @ y[j:]), -(u @ t)
            y[j:] += np.outer(e, k[j]) - beta[j] * np.outer(u, w[j])
        return weights @ v, y * _scale(q), dk, weights.T @ do, dw, dbeta

    out, pull = attention_vjp(q[None], k[None], v[None], causal=True, reflectors=w[None], reflect=beta[None])
    found = pull(do[None])
    ours = out[0], *(found[name][0] for name in (*"qkv", "reflectors", "reflect"))
    yield Case(ours, formula, (do, q, k, v, w, beta), n * d)


def attention_through_network(draw: Draw, n: int, d: int) -> Iterator[Case]:
    """Two heads whose scores a network corrects that reads a key on either side."""
    do, q, k, v = (draw(2 * n, d).reshape(2, n, d) for _ in range(4))
    bias, into, offsets, readout = draw(2, 2 * n - 1), draw(3, 12), draw(3), draw(2, 9)
    taps, seen = range(-1, 2), np.tri(n, dtype=bool)

    def moved(x: Array, by: int) -> Array:
        there = np.pad(x, ((0, 0), (0, 0), (1, 1)))
        return there[..., 1 + by : n + 1 + by]

    def formula(
        do: Array, q: Array, k: Array, v: Array, bias: Array, into: Array, offsets: Array, readout: Array
    ) -> tuple[Array, ...]:
        first, second = into.reshape(3, 4, 3), readout.reshape(2, 3, 3)
        turned = np.swapaxes(k, 1, 2)
        x = np.where(seen, np.concatenate([_scale(q[0]) * q @ turned, bias[:, _offsets(n) + n - 1]]), 0)
        z = sum(np.einsum("wc,cij->wij", first[..., 1 + t], moved(x, t)) for t in taps) + offsets[:, None, None]
        slope = np.where(z > 0, 1, 0.01).astype(z.dtype)
        added = sum(np.einsum("hw,wij->hij", second[..., 1 + t], moved(slope * z, t)) for t in taps)
        weights, pullback = reference.softmax_vjp(np.where(seen, x[:2] + x[2:] + added, -np.inf))
        e = pullback(do @ np.swapaxes(v, 1, 2))
        dz = slope * sum(moved(np.einsum("hw,hij->wij", second[..., 1 + t], e), -t) for t in taps)
        dx = np.where(seen, sum(moved(np.einsum("wc,wij->cij", first[..., 1 + t], dz), -t) for t in taps), 0)
        dcontent, dcells, dbias = _scale(q[0]) * (e + dx[:2]), e + dx[2:], np.zeros_like(bias)
        for own, cells in zip(dbias, dcells, strict=True):
            np.add.at(own, _offsets(n) + n - 1, cells)
        dfirst = np.stack([np.einsum("wij,cij->wc", dz, moved(x, t)) for t in taps], axis=-1)
        dsecond = np.stack([np.einsum("hij,wij->hw", e, moved(slope * z, t)) for t in taps], axis=-1)
        rows = weights @ v, dcontent @ k, np.swapaxes(dcontent, 1, 2) @ q, np.swapaxes(weights, 1, 2) @ do
        return *rows, dbias, dfirst.reshape(3, 12), dz.sum(axis=(1, 2)), dsecond.reshape(2, 9)

    network: dict[str, Any] = {
        "mlp_in": into.reshape(3, 4, 3),
        "mlp_bias": offsets,
        "mlp_out": readout.reshape(2, 3, 3),
    }
    out, pull = attention_vjp(q, k, v, causal=True, bias=bias, **network)
    found = pull(do)
    ours = out, *(found[name] for name in (*"qkv", "bias"))
    ours += found["mlp_in"].reshape(3, 12), found["mlp_bias"], found["mlp_out"].reshape(2, 9)
    yield Case(ours, formula, (do, q, k, v, bias, into, offsets, readout), n * n * d)
