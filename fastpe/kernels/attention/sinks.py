"""Sinks: scores of no key, which take weight from all others."""

import math

import numpy as np

from fastpe.kernels.compile.decorators import entry


@entry(label="sinks")
def apply_sinks(out, lse, sinks):
    """All weights of a row shrink alike, and its lse is that of one more key. out (B, H, N, Dv), sinks (H,)."""
    samples, heads, queries = lse.shape
    for b in range(samples):
        for h in range(heads):
            for i in range(queries):
                own, sink = np.float64(lse[b, h, i]), np.float64(sinks[h])
                lse[b, h, i] = max(own, sink) + math.log1p(math.exp(-abs(own - sink)))
                share = math.exp(own - np.float64(lse[b, h, i]))
                for c in range(out.shape[3]):
                    out[b, h, i, c] = np.float64(out[b, h, i, c]) * share
