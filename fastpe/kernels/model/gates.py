"""Gates: numbers, computed from a layer's input, by which each token lowers the scores of all earlier keys.

    z = u W^T + b;   K_h,j = rate_h sum over t <= j of softplus(sign z_h,t);   S_h,ij += K_h,j

u is the layer's input after its norm. In a causal model, the score of key j at query i is to be lowered by K_i - K_j.
K_i is left out, because the softmax does not depend on it, so K_j is added. The forget gate of Lin et al. 2025 has sign
-1, where softplus(-z) is -log sigmoid(z). The sign STEPS means K_h,j = slope_h s_j, where s_j is the number of the row
of the rotations that a rule selects for token j; in BiPE, s_j is the number of earlier segments. Sums are float64. In
layers without a gate, K is 0. A model without any gate and without `model.gated_slopes` is not `gated`, and may have
None as `gates` (see `model.memory.Position`).

A layer's activations hold for each head, in this order: z; K; the bases of its blocks of queries
(`attention.terms.key_query_offsets`); the slopes of keys, and those of queries (`model.gated_slopes`). The workspace
holds the gradients of K and of the two kinds of slopes.
"""

import math

import numpy as np

from fastpe.kernels.attention.slots import KEY_OFFSET, KEY_SLOPE, QUERY_SLOPE
from fastpe.kernels.attention.terms.key_query_offsets import ColumnGradients, HeadColumns
from fastpe.kernels.attention.tile import add_scaled, clear, dot
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.model.pack import pass_on, place_of, rows_of, take_turn
from fastpe.kernels.simd import at, get, put, scalar

WEIGHT, BIAS, RATE, SIGN, FACTOR, KEY_DIRECTION, QUERY_DIRECTION = (np.int64(number) for number in range(7))
"""Columns of `Position.gates`, which has a row for each layer. SIGN is the column of the sign, 0 for a layer without a
gate. Each other column holds the start of a parameter of the layer in the flat array, or -1 if the layer does not have
that parameter."""
_LOGITS, _OFFSETS, _BASES, KEY_SLOPES, QUERY_SLOPES = (np.int64(number) for number in range(5))
ARRAYS, GRADIENTS = 5, 3
NONE, ONE = np.int64(0), np.int64(1)
STEPS = np.int64(2)
"""The sign of a layer whose K is computed from tokens only, not from its input."""


def gated_columns(gates: np.ndarray) -> dict[np.int64, bool]:
    """Return, for each of the slots `key_offset`, `key_slope` and `query_slope`, whether some layer computes it."""
    return {
        KEY_OFFSET: bool(gates[:, SIGN].any()),
        KEY_SLOPE: bool((gates[:, KEY_DIRECTION] >= 0).any()),
        QUERY_SLOPE: bool((gates[:, QUERY_DIRECTION] >= 0).any()),
    }


@inner
def of_head(which, h, act, sizes, a):
    """Return one of the arrays of a head, from its first row on."""
    return at(act, a.gates + (which * sizes.heads + h) * sizes.length)


@inner
def gradients_of_head(which, h, workspace, own, sizes, a):
    """Return the gradients of K (0), of the slopes of keys (1), or of the slopes of queries (2), for one sequence."""
    return at(workspace, a.dgates + (which * sizes.heads + h) * sizes.length + own.start)


@inner
def softplus(x):
    return max(x, 0.0) + math.log1p(math.exp(-abs(x)))


@inner
def _rate(gates, layer, h, w):
    """Return the rate of a head, which is stored as a logarithm."""
    return math.exp(np.float64(get(w, gates[layer, RATE] + h))) if gates[layer, RATE] >= 0 else 1.0


@inner
def make_gates(gates, layer, slopes, u, w, act, pack, sizes, a):
    """Compute z and K of a pack. w: the parameters of the whole model, not only of the layer."""
    if gates is None:
        return
    if not sizes.gated:
        return
    c, start, sign = sizes.width, NONE, np.float64(gates[layer, SIGN])
    for sequence in range(pack.first, pack.last):
        own = rows_of(pack, sequence, start)
        for h in range(sizes.heads):
            logits = at(of_head(_LOGITS, h, act, sizes, a), start)
            offsets = at(of_head(_OFFSETS, h, act, sizes, a), start)
            if sign == 0.0:
                clear(offsets, own.before + own.length)
                continue
            if sign == STEPS:
                for i in range(own.length):
                    put(offsets, own.before + i, scalar(offsets, get(slopes, h) * place_of(1, i, own)))
                continue
            rate, weight = _rate(gates, layer, h, w), gates[layer, WEIGHT]
            bias = np.float64(get(w, gates[layer, BIAS] + h))
            lost = np.float64(get(offsets, own.before - 1)) if own.before else 0.0
            for i in range(own.length):
                z = bias
                if weight >= 0:
                    z += np.float64(dot(at(u, (start + i) * c), at(w, weight + h * c), c))
                lost += rate * softplus(sign * z)
                put(logits, own.before + i, scalar(logits, z))
                put(offsets, own.before + i, scalar(offsets, lost))
        start += own.length


@inner
def gates_of_head(gates, h, act, own, sizes, a):
    """Return the columns (key offsets and slopes) that attention reads, for one head of one sequence."""
    if gates is None:
        return None
    offsets = at(of_head(_OFFSETS, h, act, sizes, a), own.start)
    bases = at(of_head(_BASES, h, act, sizes, a), own.start)
    of_keys = at(of_head(KEY_SLOPES, h, act, sizes, a), own.start)
    return HeadColumns(offsets, of_keys, at(of_head(QUERY_SLOPES, h, act, sizes, a), own.start), bases, offsets)


@inner
def gate_gradients(gates, h, j0, workspace, own, sizes, a):
    """Return the addresses of the gradients of columns. The gradients for keys start at key j0."""
    if gates is None:
        return None
    return ColumnGradients(
        at(gradients_of_head(NONE, h, workspace, own, sizes, a), j0),
        at(gradients_of_head(ONE, h, workspace, own, sizes, a), j0),
        gradients_of_head(ONE + ONE, h, workspace, own, sizes, a),
    )


@inner
def clear_gate_gradients(gates, workspace, own, sizes, a):
    """Set the gradients of the columns of a sequence to zero, before attention adds to them."""
    if gates is None:
        return
    if not sizes.gated:
        return
    for which in range(GRADIENTS):
        for h in range(sizes.heads):
            clear(gradients_of_head(which, h, workspace, own, sizes, a), own.length)


@inner
def gates_backward(gates, layer, u, du, w, g, act, workspace, pack, sizes, a):
    """Given the gradients of K, add to du, the gradient of u, and to g, which holds the gradients of
    all parameters.
    """
    if gates is None:
        return
    if not sizes.gated:
        return
    c, start, sign = sizes.width, NONE, np.float64(gates[layer, SIGN])
    if sign == 0.0 or sign == STEPS:
        return
    take_turn(pack)
    for sequence in range(pack.first, pack.last):
        own = rows_of(pack, sequence, start)
        for h in range(sizes.heads):
            rate, weight = _rate(gates, layer, h, w), gates[layer, WEIGHT]
            logits = at(of_head(_LOGITS, h, act, sizes, a), start)
            offsets = at(of_head(_OFFSETS, h, act, sizes, a), start)
            doffsets = gradients_of_head(NONE, h, workspace, own, sizes, a)
            later, of_rate, of_bias = 0.0, 0.0, 0.0
            for back in range(own.length):
                i = own.length - 1 - back
                d = np.float64(get(doffsets, i))
                later += d
                of_rate += d * np.float64(get(offsets, i))
                dz = later * rate * sign / (1.0 + math.exp(-sign * np.float64(get(logits, i))))
                of_bias += dz
                if weight >= 0:
                    add_scaled(at(du, (start + i) * c), scalar(du, dz), at(w, weight + h * c), c)
                    add_scaled(at(g, weight + h * c), scalar(g, dz), at(u, (start + i) * c), c)
            add_number(g, gates[layer, BIAS] + h, of_bias)
            if gates[layer, RATE] >= 0:
                add_number(g, gates[layer, RATE] + h, of_rate)
        start += own.length
    pass_on(pack)


@inner
def add_number(g, place, value):
    """g[place] += value."""
    put(g, place, scalar(g, np.float64(get(g, place)) + value))
