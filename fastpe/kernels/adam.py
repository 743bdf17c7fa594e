"""Adam (Kingma and Ba 2015, algorithm 1, bias-corrected), on a flat range of parameters.

    g = the sum of the groups' gradients, in their order
    first <- beta1 first + (1 - beta1) g,      second <- beta2 second + (1 - beta2) g^2
    p <- p - rate first / (sqrt(second correction2) + eps)
    with rate = lr / (1 - beta1^t) and correction2 = 1 / (1 - beta2^t)

Reads groups + 3 elements and writes 3 per parameter: bound by the cache, not by arithmetic.
"""

from fastpe.kernels._jit import inner
from fastpe.kernels.simd import fma, lanes, load_first, splat, sqrt, store_first


@inner
def adam(p, first, second, gradients, stride, groups, start, stop, numbers):
    """Update the parameters [start, stop); gradient j of group g lies at gradients[g * stride + j].

    numbers: an array of rate, beta1, beta2, 1 - beta1, 1 - beta2, correction2 and eps, in p's type; each is rounded
    once (float32(1) - float32(0.999) is off by 5e-5).
    """
    rates, keep1, keep2, new1 = splat(numbers[0]), splat(numbers[1]), splat(numbers[2]), splat(numbers[3])
    new2, corrections, epsilons = splat(numbers[4]), splat(numbers[5]), splat(numbers[6])
    for j in range(start, stop, lanes(p)):
        n = stop - j
        g = load_first(gradients, j, n)
        for group in range(1, groups):
            g = g + load_first(gradients, group * stride + j, n)
        m = fma(keep1, load_first(first, j, n), new1 * g)
        v = fma(keep2, load_first(second, j, n), new2 * (g * g))
        store_first(first, j, m, n)
        store_first(second, j, v, n)
        step = rates * m / (sqrt(v * corrections) + epsilons)
        store_first(p, j, load_first(p, j, n) - step, n)
