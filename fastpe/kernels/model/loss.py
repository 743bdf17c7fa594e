"""The losses of one sequence, and their gradients with respect to the model's outputs. The gradients may overwrite the
outputs.

    squared error   sum_i share_i (y_i - target_i)^2                    dy_i = 2 (y_i - target_i) share_i
    cross entropy   sum_i share_i (log sum_v exp z_iv - z_i[token_i])   dz_iv = (softmax(z_i)_v - [v = token_i]) share_i

share_i: the weight of target i in the batch's mean, divided by the sum of all weights. It is `shares[i * step]`, where
step is 0 if all shares are equal. If share_i is 0, the target does not count: neither the target nor the output is
read. y: n elements. z: n rows of `vocabulary` contiguous elements; tokens are integers in [0, vocabulary), held in the
type of z. Sums are float64. Cross entropy passes over a row three times, in cache, with about 20 FLOP per element, most
of them for exp.
"""

import math

import numpy as np

from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.model.embedding_and_head import copy
from fastpe.kernels.simd import (
    at,
    exp,
    get,
    keep_first,
    lanes,
    largest,
    load_first,
    maximum,
    put,
    scalar,
    splat,
    store_first,
    total,
    zeros,
)


@inner
def step_of(shares):
    """Return the distance between the shares of two successive targets: 0 if the array has one share for all targets, 1
    if it has one for each.
    """
    return np.int64(shares.size > 1)


@inner
def counted(shares, step, n):
    """Return the number of targets that count."""
    count = n
    if step:
        count = np.int64(0)
        for i in range(n):
            count += np.int64(get(shares, i) > 0)
    return count


@inner
def pick_rows(x, tokens, shares, step, picked, picked_tokens, picked_shares, n, c):
    """Copy the rows of x (n rows of c elements) whose targets count, with their tokens and shares.
    Return their number.
    """
    count = np.int64(0)
    for i in range(n):
        if get(shares, i * step) > 0:
            copy(at(x, i * c), at(picked, count * c), c)
            put(picked_tokens, count, get(tokens, i))
            put(picked_shares, count, get(shares, i * step))
            count += 1
    return count


@inner
def spread_rows(picked, shares, step, x, n, c):
    """Copy the rows of `picked` back to their places in x. Rows whose targets do not count become 0. Return the number
    of rows copied.
    """
    count = np.int64(0)
    for i in range(n):
        counts = get(shares, i * step) > 0
        for j in range(0, c, lanes(x)):
            value = load_first(picked, count * c + j, c - j) if counts else zeros(x)
            store_first(x, i * c + j, value, c - j)
        count += np.int64(counts)
    return count


@inner
def squared_error(y, target, dy, n, shares, step):
    """Return the weighted sum of squared errors, and compute dy."""
    loss = 0.0
    for i in range(n):
        share, error = get(shares, i * step), scalar(y, 0.0)
        if share > 0:
            error = get(y, i) - get(target, i)
        loss += float(share) * (float(error) * float(error))
        put(dy, i, scalar(dy, 2.0) * error * share)
    return loss


@inner
def cross_entropy(z, tokens, dz, n, vocabulary, shares, step, loss):
    """Return `loss` plus the weighted sum of -log softmax(z_i)[token_i] (natural logarithm), and compute dz.

    `loss` is the sum over earlier rows: if a caller passes rows in several calls, terms are added in the same order,
    and the result has the same bits, as in one call.
    """
    width, lowest = lanes(z), scalar(z, -np.inf)
    for i in range(n):
        row, grad, share = at(z, i * vocabulary), at(dz, i * vocabulary), get(shares, i * step)
        if share <= 0:
            for j in range(0, vocabulary, width):
                store_first(grad, j, zeros(z), vocabulary - j)
            continue
        token = np.int64(get(tokens, i))
        top = splat(lowest)
        for j in range(0, vocabulary, width):
            top = maximum(top, keep_first(load_first(row, j, vocabulary - j), vocabulary - j, lowest))
        peak = largest(top)  # subtracted before exp, so that nothing overflows and one term is exactly 1
        below = np.float64(peak) - np.float64(get(row, token))
        mass = zeros(z)
        for j in range(0, vocabulary, width):
            x = exp(keep_first(load_first(row, j, vocabulary - j) - splat(peak), vocabulary - j, lowest))
            store_first(grad, j, x, vocabulary - j)
            mass = mass + x
        whole = total(mass)
        loss += np.float64(share) * (math.log(np.float64(whole)) + below)
        scaled = splat(share / whole)
        for j in range(0, vocabulary, width):
            store_first(grad, j, load_first(grad, j, vocabulary - j) * scaled, vocabulary - j)
        put(grad, token, get(grad, token) - share)
    return loss
