"""Sinks: scores without a key, which take weight from all keys."""

import math

import numpy as np

from fastpe.kernels.compile.decorators import entry, inner


@inner
def with_sink(lse, sink):
    """Return log(exp(lse) + exp(sink)), for an lse and a sink in float64."""
    return max(lse, sink) + math.log1p(math.exp(-abs(lse - sink)))


@entry(label="sinks")
def apply_sinks(out, lse, sinks):
    """Add the score of a head's sink to lse (B, H, N), and multiply each row of out (B, H, N, Dv) by the weight that
    the sink leaves to the keys. sinks: (H,)."""
    samples, heads, queries = lse.shape
    for b in range(samples):
        for h in range(heads):
            for i in range(queries):
                own = np.float64(lse[b, h, i])
                lse[b, h, i] = with_sink(own, np.float64(sinks[h]))
                share = math.exp(own - np.float64(lse[b, h, i]))
                for c in range(out.shape[3]):
                    out[b, h, i, c] = np.float64(out[b, h, i, c]) * share
