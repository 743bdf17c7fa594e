"""Sinks, as in gpt-oss: each head has one learned score without a key, which takes weight from all keys.

    lse'_i = log(exp(lse_i) + exp(sink));    out'_i = exp(lse_i - lse'_i) out_i
    dsink = -sum_i exp(sink - lse'_i) dout'_i . out'_i

The backward pass of attention computes weights from lse', so it needs no other change.
"""

import math

import numpy as np

from fastpe.kernels.attention.sinks import with_sink
from fastpe.kernels.attention.tile import dot, scale_row
from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.model.attention_head import lse_of, mixed_of
from fastpe.kernels.model.gates import add_number
from fastpe.kernels.model.pack import pass_on, rows_of, take_turn
from fastpe.kernels.simd import at, get, put, scalar

NONE = np.int64(0)


@inner
def apply_sinks(w, act, position, pack, sizes, o, a):
    """Multiply the output of attention, in `mixed`, by the weight that sinks leave to keys, and add sinks to lse."""
    if not sizes.sinks:
        return
    start = NONE
    for sequence in range(pack.first, pack.last):
        own = rows_of(pack, sequence, start)
        for h in range(sizes.heads):
            out, lse, sink = mixed_of(h, act, own, sizes, a), lse_of(h, act, position, own, a), _sink(h, w, o)
            for i in range(own.before, own.before + own.length):
                keys = np.float64(get(lse, i))
                whole = with_sink(keys, sink)
                put(lse, i, scalar(lse, whole))
                scale_row(at(out, i * sizes.query_width), sizes.head, scalar(out, math.exp(keys - whole)))
        start += own.length


@inner
def sinks_backward(w, g, act, workspace, position, pack, sizes, o, a):
    """Add to the gradients of sinks, in the turn of the pack. `dmixed` holds the gradient of the output
    of attention.
    """
    if not sizes.sinks:
        return
    start, width = NONE, sizes.query_width
    take_turn(pack)
    for sequence in range(pack.first, pack.last):
        own = rows_of(pack, sequence, start)
        for h in range(sizes.heads):
            out, lse, sink = mixed_of(h, act, own, sizes, a), lse_of(h, act, position, own, a), _sink(h, w, o)
            dout, found = at(workspace, a.dmixed + start * width + h * sizes.head), 0.0
            for i in range(own.length):
                delta = np.float64(dot(at(dout, i * width), at(out, i * width), sizes.head))
                found -= math.exp(sink - np.float64(get(lse, i))) * delta
            add_number(g, o.sinks + h, found)
        start += own.length
    pass_on(pack)


@inner
def _sink(h, w, o):
    return np.float64(get(w, o.sinks + h))
