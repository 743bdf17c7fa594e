"""AdamW on a flat range of parameters: Adam (Kingma and Ba 2015, algorithm 1, bias-corrected) with decoupled weight
decay (Loshchilov and Hutter 2019, algorithm 2), and clipping by the norm of all gradients (Pascanu et al. 2013).

    g = share times the sum of the gradients of all groups, added in the order of the groups
    first <- beta1 first + (1 - beta1) g,      second <- beta2 second + (1 - beta2) g^2
    p <- keep p - rate first / (sqrt(second correction2) + eps)
    with rate = lr / (1 - beta1^t), correction2 = 1 / (1 - beta2^t), keep = 1 - lr decay for decaying parameters, else 1

and share = min(1, limit / (norm + 1e-6)), as in PyTorch. A group is a part of the batch whose gradients are summed
separately (`model.batch`). Per parameter, the update reads G + 3 elements, where G is the number of groups, and writes
3: the cache is the bottleneck, not arithmetic. With clipping, the summed gradient is also written and read again,
because the norm of all gradients must be known before the update.
"""

import math

import numpy as np

from fastpe.kernels.compile.decorators import inner
from fastpe.kernels.simd import fma, lanes, load_first, scalar, splat, sqrt, store_first, total, zeros

KEEP, LIMIT = 7, 8  # indices in `numbers`


@inner
def adam(p, first, second, gradients, stride, groups, start, stop, numbers, decays, share):
    """Update the parameters start .. stop - 1. Gradient j of group g is gradients[g * stride + j].

    numbers: an array of rate, beta1, beta2, 1 - beta1, 1 - beta2, correction2, eps, keep and limit, in the dtype of p.
    `limit` is the largest norm that clipping allows; the docstring of the module defines the other names. Each number
    is computed in float64 and rounded once, because float32(1) - float32(0.999) is off by 5e-5. decays: whether weight
    decay applies to these parameters. share: the factor by which clipping multiplies the gradients.
    """
    rates, keep1, keep2, new1 = splat(numbers[0]), splat(numbers[1]), splat(numbers[2]), splat(numbers[3])
    new2, corrections, epsilons = splat(numbers[4]), splat(numbers[5]), splat(numbers[6])
    keeps, shares = splat(numbers[KEEP] if decays else scalar(p, 1.0)), splat(scalar(p, share))
    for j in range(start, stop, lanes(p)):
        n = stop - j
        g = load_first(gradients, j, n)
        for group in range(1, groups):
            g = g + load_first(gradients, group * stride + j, n)
        g = g * shares
        m = fma(keep1, load_first(first, j, n), new1 * g)
        v = fma(keep2, load_first(second, j, n), new2 * (g * g))
        store_first(first, j, m, n)
        store_first(second, j, v, n)
        step = rates * m / (sqrt(v * corrections) + epsilons)
        store_first(p, j, load_first(p, j, n) * keeps - step, n)


@inner
def add_up(gradients, stride, groups, start, stop):
    """Add the gradients start .. stop - 1 of all other groups to those of the first group. Return the sum of the
    squares of the results.
    """
    squares = zeros(gradients)
    for j in range(start, stop, lanes(gradients)):
        n = stop - j
        g = load_first(gradients, j, n)
        for group in range(1, groups):
            g = g + load_first(gradients, group * stride + j, n)
        store_first(gradients, j, g, n)
        squares = fma(g, g, squares)
    return np.float64(total(squares))


@inner
def clipped_share(squares, numbers):
    """Return the factor by which clipping multiplies all gradients, or 1 if `squares` is empty. squares: for each range
    of parameters, the sum of the squares of their gradients.
    """
    if squares.size == 0:
        return 1.0
    whole = 0.0
    for square in squares:
        whole += square
    return min(1.0, np.float64(numbers[LIMIT]) / (math.sqrt(whole) + 1e-6))
