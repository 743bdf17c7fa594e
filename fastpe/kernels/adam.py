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
def adam(p, first, second, gradients, stride, groups, start, stop, rate, beta1, beta2, new1, new2, correction2, eps):
    """Update the parameters [start, stop); gradient j of group g lies at gradients[g * stride + j].

    new1, new2: 1 - beta1 and 1 - beta2, rounded once (float32(1) - float32(0.999) is off by 5e-5).
    """
    keep1, keep2, new1, new2 = splat(beta1), splat(beta2), splat(new1), splat(new2)
    rates, corrections, epsilons = splat(rate), splat(correction2), splat(eps)
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
