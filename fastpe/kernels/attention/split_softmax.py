"""Weights for merging the softmaxes of parts of the keys (`functional.split_softmax`)."""

import math

import numpy as np

from fastpe.kernels.compile.decorators import entry, inlined

_LOG_2 = math.log(2.0)


@inlined
def _log_of_sum(a, b):
    """Return log(exp(a) + exp(b))."""
    if a == b:
        return a + _LOG_2
    high, low = (a, b) if a > b else (b, a)
    return high + math.log1p(math.exp(low - high))


@entry(label="the weights of parts of keys")
def weigh(lses, sinks, lse):
    """Fill lse (B, H, N) with the log-sum-exp over all parts and the optional sinks (H,). lses (parts, B, H, N) holds
    the log-sum-exp of each part, and is overwritten with the weights of the parts. All arrays are float64."""
    parts, samples, heads, queries = lses.shape
    for b in range(samples):
        for h in range(heads):
            for i in range(queries):
                whole = lses[0, b, h, i]
                for number in range(1, parts):
                    whole = _log_of_sum(whole, lses[number, b, h, i])
                if sinks.size:
                    whole = _log_of_sum(whole, np.float64(sinks[h]))
                lse[b, h, i] = whole
                for number in range(parts):
                    lses[number, b, h, i] = math.exp(lses[number, b, h, i] - (0.0 if whole == -np.inf else whole))
