"""GELU, the exact one (Hendrycks and Gimpel 2016): x Phi(x), Phi the normal distribution function.

ReLU needs no kernel of its own: it is a flag of the matrix product that feeds it (`gemm.RELU`), and so is its backward
pass (`gemm.WHERE_POSITIVE`).
"""

import math

from fastpe.kernels._jit import inner
from fastpe.kernels.simd import get, put, scalar

_ROOT_HALF = math.sqrt(0.5)
_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)


@inner
def gelu_forward(x, y, n):
    """y = x Phi(x) for n elements; erfc keeps Phi's relative precision where x is very negative."""
    for i in range(n):
        v = float(get(x, i))
        put(y, i, scalar(y, 0.5 * v * math.erfc(-v * _ROOT_HALF)))


@inner
def gelu_backward(x, dy, n):
    """dy <- dy (Phi(x) + x phi(x)) for n elements, phi the normal density."""
    for i in range(n):
        v = float(get(x, i))
        slope = 0.5 * math.erfc(-v * _ROOT_HALF) + v * _DENSITY * math.exp(-0.5 * v * v)
        put(dy, i, scalar(dy, float(get(dy, i)) * slope))
