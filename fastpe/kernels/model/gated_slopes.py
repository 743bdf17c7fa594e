"""Gated slopes: how fast scores fall with distance, depending on the content of the key, the query, or both.

    S_h,ij += (j - i) (s_h(k_j) + s_h(q_i)),      s_h(x) = sigma_h softplus(w_h) softplus(u_h . x / (|u_h| sqrt(D)))

q and k are taken before rotation; sigma is fixed; w and u are learned, separately for keys and queries (GRAPE, gated
ALiBi). In layers without gated slopes, all slopes are 0. `model.gates` says where a layer's activations hold them.
"""

import math

import numpy as np

from fastpe.kernels.attention.tile import add_scaled, clear, dot
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.model.content import projection_of
from fastpe.kernels.model.gates import (
    FACTOR,
    KEY_DIRECTION,
    KEY_SLOPES,
    NONE,
    ONE,
    QUERY_DIRECTION,
    QUERY_SLOPES,
    add_number,
    gradients_of_head,
    of_head,
    softplus,
)
from fastpe.kernels.model.pack import pass_on, rows_of, take_turn
from fastpe.kernels.simd import at, get, put, scalar

_LEAST_NORM = 1e-6


@inner
def _inverse_norm(u, n):
    return 1.0 / max(math.sqrt(np.float64(dot(u, u, n))), _LEAST_NORM)


@inner
def _steepness(gates, layer, sigma, h, w):
    """Return sigma_h softplus(w_h)."""
    return get(sigma, h) * softplus(np.float64(get(w, gates[layer, FACTOR] + h)))


@inner
def make_slopes(gates, layer, sigma, w, act, pack, sizes, a):
    """Compute the slopes of a pack from its queries and keys. w: the parameters of the whole model, not only of the
    layer."""
    if gates is None:
        return
    if not sizes.gated:
        return
    for of_keys in range(2):
        first = gates[layer, KEY_DIRECTION if of_keys else QUERY_DIRECTION]
        _make(first, np.int64(of_keys), gates, layer, sigma, w, act, pack, sizes, a)


@inner
def _make(first, of_keys, gates, layer, sigma, w, act, pack, sizes, a):
    """Compute the slopes of keys or of queries; first: start of their directions in w."""
    wide, head, start = sizes.projected, sizes.head, NONE
    which = KEY_SLOPES if of_keys else QUERY_SLOPES
    for sequence in range(pack.first, pack.last):
        own = rows_of(pack, sequence, start)
        for h in range(sizes.heads):
            slopes = at(of_head(which, h, act, sizes, a), own.start)
            if first < 0:
                clear(slopes, own.before + own.length)
                continue
            u, x = at(w, first + h * head), at(act, a.qkv + projection_of(of_keys, own.start, h, sizes))
            factor, share = _steepness(gates, layer, sigma, h, w), _inverse_norm(u, head) / math.sqrt(head)
            for i in range(own.before, own.before + own.length):
                z = np.float64(dot(at(x, i * wide), u, head)) * share
                put(slopes, i, scalar(slopes, factor * softplus(z)))
        start += own.length


@inner
def slopes_backward(gates, layer, sigma, w, g, act, workspace, pack, sizes, a):
    """Given the gradients of slopes, add to the gradients of queries and keys. Also add to g, which holds the gradients
    of all parameters.
    """
    if gates is None:
        return
    if not sizes.gated:
        return
    take_turn(pack)
    for of_keys in range(2):
        first = gates[layer, KEY_DIRECTION if of_keys else QUERY_DIRECTION]
        if first >= 0:
            _backward(first, np.int64(of_keys), gates, layer, sigma, w, g, act, workspace, pack, sizes, a)
    pass_on(pack)


@inner
def _backward(first, of_keys, gates, layer, sigma, w, g, act, workspace, pack, sizes, a):
    """Do the work of `slopes_backward` for the slopes of keys or of queries.

    Slopes do not depend on |u|, so the gradient of u has no component along u. What each row adds to du has one; these
    components are summed as a scalar, `along`, and subtracted at the end.
    """
    wide, head, start = sizes.projected, sizes.head, NONE
    which = ONE + ONE - of_keys
    for sequence in range(pack.first, pack.last):
        own = rows_of(pack, sequence, start)
        for h in range(sizes.heads):
            u, du, dslopes = (
                at(w, first + h * head),
                at(g, first + h * head),
                gradients_of_head(which, h, workspace, own, sizes, a),
            )
            first_row = projection_of(of_keys, own.start, h, sizes)
            x, dx = at(act, a.qkv + first_row), at(workspace, a.dqkv + first_row)
            inverse, root = _inverse_norm(u, head), math.sqrt(head)
            factor, of_factor, along = _steepness(gates, layer, sigma, h, w), 0.0, 0.0
            for i in range(own.length):
                row, d = at(x, i * wide), np.float64(get(dslopes, i))
                met = np.float64(dot(row, u, head)) * inverse
                of_factor += d * softplus(met / root)
                dmet = d * factor / (root * (1.0 + math.exp(-met / root)))
                along += dmet * met
                add_scaled(at(dx, i * wide), scalar(dx, dmet * inverse), u, head)
                add_scaled(du, scalar(du, dmet * inverse), row, head)
            if inverse * _LEAST_NORM < 1.0:
                add_scaled(du, scalar(du, -along * inverse * inverse), u, head)
            z = np.float64(get(w, gates[layer, FACTOR] + h))
            add_number(g, gates[layer, FACTOR] + h, of_factor * get(sigma, h) / (1.0 + math.exp(-z)))
        start += own.length
