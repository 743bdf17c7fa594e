"""The activations of the feed-forward network, with one input x or with two inputs x and y:

    gelu        x Phi(x), Phi the normal distribution function: the exact form (Hendrycks and Gimpel 2016)
    gelu_tanh   x (1 + tanh(u)) / 2, u = sqrt(2 / pi) (x + 0.044715 x^3): the approximation in the same paper, called
                "gelu_new" in GPT-2
    swiglu      x / (1 + exp(-x)) times y, where x and y are the results of two linear layers (Shazeer 2020)
    relu2       max(x, 0)^2 (So et al. 2021)
    geglu       gelu_tanh of x, times y, as in swiglu (Shazeer 2020)

ReLU needs no kernel here. A flag of the preceding matrix product applies it (`products.float_gemm.RELU`), and another
flag computes its backward pass (`products.float_gemm.WHERE_POSITIVE`).

With s(t) = 1 / (1 + exp(-t)), (1 + tanh(u)) / 2 = s(2u). So `gelu_tanh`, `swiglu` and `geglu` need one exponential per
element, computed at -|t| so that nothing overflows, and about 30 FLOP.

For t >= 0, Phi(-t) is computed as exp(-t^2/2) r(t), so that the relative error is small even where Phi(-t) is close to
0, and Phi(t) as 1 - Phi(-t). The ratio r, half of the scaled complementary error function, has no simple form. But
(1 + 1.25 t) r(t) is a smooth function of w = (t - K)/(t + K), with the constant K of `_CENTRE`. w maps [0, inf) to
[-1, 1), and the function is approximated by a polynomial in w. `gelu` takes about 30 (float32) or 60 (float64) FLOP per
element.

Forward passes overwrite their input with the derivatives, called slopes. The derivatives cost little once the values
are computed, and the backward pass then only has to multiply by them.
"""

import math

import numpy as np
from numba.extending import intrinsic

from fastpe.kernels.compile.decorators import inlined, inner
from fastpe.kernels.simd import (
    absolute,
    at,
    code,
    exp,
    fma,
    lanes,
    load_first,
    minus,
    scalar,
    splat,
    store_first,
    where_negative,
    zeros,
)

RELU, GELU, GELU_TANH, SWIGLU, RELU2, GEGLU = (np.int64(number) for number in range(6))

_DENSITY = 1.0 / math.sqrt(2.0 * math.pi)
_TANH_SLOPE, _TANH_CUBE = 2.0 * math.sqrt(2.0 / math.pi), 0.044715  # 2u = slope (x + cube x^3)

# K, and the coefficients from the highest power of w: interpolation at the Chebyshev nodes, in 40 digits with mpmath.
# Largest relative error of r: 5e-8 (float32) and 2e-16 (float64).
_CENTRE = {32: 4.0, 64: 5.0}
_COEFFICIENTS = {
    32: (
        -7.981576392552628e-05, -5.338685359588837e-05, 0.0008818012236428376, -0.0005651118165781527,
        -0.006365819141118514, 0.024563376834347256, -0.04796594936099793, 0.05367377485183856, -0.013595148933220922,
        -0.07827974122147932, 0.5664638478118136,
    ),
    64: (
        -5.146382428193451e-10, -3.215442205510038e-10, 5.824570642455965e-09, 4.182548375080131e-09,
        -4.051017929293932e-08, -3.02902364716649e-08, 2.556606027101369e-07, 1.4075214271153581e-07,
        -1.6955892329564023e-06, 8.072161747722354e-08, 1.1642549303885496e-05, -1.4031179655638312e-05,
        -6.724989660023716e-05, 0.00024302453905693735, -2.382969127717125e-05, -0.0021499781128456086,
        0.008747211920490687, -0.02121086189102172, 0.03652467917680597, -0.04496514177891562, 0.0327239097975576,
        0.009770757560953556, -0.07857596347650818, 0.5576649610687956,
    ),
}  # fmt: skip


@intrinsic
def _tail_ratio(typingctx, t):
    """Return r(t) = Phi(-t) exp(t^2/2) for t >= 0."""

    def emit(context, b, signature, arguments):
        bits, (t_value,) = t.dtype.bitwidth, arguments
        centre = code.constant(t, _CENTRE[bits])
        u = b.fdiv(b.fsub(t_value, centre), b.fadd(t_value, centre))
        highest, *others = _COEFFICIENTS[bits]
        p = code.constant(t, highest)
        for coefficient in others:
            p = code.multiply_add(b, t, p, u, code.constant(t, coefficient))
        return b.fdiv(p, code.multiply_add(b, t, code.constant(t, 1.25), t_value, code.constant(t, 1.0)))

    return t(t), emit


@inner
def gelu(x, y, n):
    """y = x Phi(x) for n elements. x is overwritten with the slope, Phi(x) + x phi(x), where phi is the normal
    density."""
    one, half, density = splat(scalar(x, 1.0)), splat(scalar(x, -0.5)), splat(scalar(x, _DENSITY))
    for j in range(0, n, lanes(x)):
        v = load_first(x, j, n - j)
        t = absolute(v)
        bell = exp(t * t * half)
        tail = bell * _tail_ratio(t)
        share = where_negative(v, tail, one - tail)
        store_first(y, j, v * share, n - j)
        store_first(x, j, fma(v * density, bell, share), n - j)


@inlined
def logistic(t, one):
    """Return s(t) and its slope s(t) (1 - s(t))."""
    small = exp(minus(absolute(t)))
    share = one / (one + small)
    return where_negative(t, small * share, share), small * share * share


@inner
def relu2(x, y, n):
    """y = max(x, 0)^2 for n elements. x is overwritten with the slope."""
    for j in range(0, n, lanes(x)):
        v = load_first(x, j, n - j)
        v = where_negative(v, zeros(x), v)
        store_first(y, j, v * v, n - j)
        store_first(x, j, v + v, n - j)


@inlined
def _gelu_tanh_of(v, like):
    """For a vector v, return s(2u), and the slope of v s(2u), which is s + v s' (2u)'. like: a pointer to elements of
    the same type.
    """
    one, slope, cube = splat(scalar(like, 1.0)), splat(scalar(like, _TANH_SLOPE)), splat(scalar(like, _TANH_CUBE))
    cubed = cube * v * v
    share, rise = logistic(slope * fma(cubed, v, v), one)
    return share, fma(v * rise, slope * fma(splat(scalar(like, 3.0)), cubed, one), share)


@inner
def gelu_tanh(x, y, n):
    """y = x s(2u) for n elements. x is overwritten with the slope."""
    for j in range(0, n, lanes(x)):
        v = load_first(x, j, n - j)
        share, slope = _gelu_tanh_of(v, x)
        store_first(y, j, v * share, n - j)
        store_first(x, j, slope, n - j)


@inlined
def _gate_row(gate, linear, out, n, tanh):
    """Do the work of `gated` for one row. tanh: a literal, so that the loop does not test it."""
    for j in range(0, n, lanes(out)):
        v, other = load_first(gate, j, n - j), load_first(linear, j, n - j)
        if tanh:
            share, slope = _gelu_tanh_of(v, out)
        else:
            share, rise = logistic(v, splat(scalar(out, 1.0)))
            slope = fma(v, rise, share)
        store_first(out, j, v * share * other, n - j)
        store_first(gate, j, other * slope, n - j)
        store_first(linear, j, v * share, n - j)


@inner
def gated(both, y, rows, n, which):
    """y = x f(x) z, where f(x) is s(x) for SWIGLU and s(2u) for GEGLU. `both` holds x and z as adjacent rows of n
    elements each. x is overwritten with the derivative of y with respect to x, and z with the derivative of y with
    respect to z.
    """
    for i in range(rows):
        gate, linear, out = at(both, 2 * i * n), at(both, (2 * i + 1) * n), at(y, i * n)
        if which == SWIGLU:
            _gate_row(gate, linear, out, n, False)
        else:
            _gate_row(gate, linear, out, n, True)


@inner
def activate(x, y, rows, n, which):
    """Apply an activation. y: rows of n elements. x: the input, with rows twice as wide for SWIGLU and GEGLU; it is
    overwritten with the slopes."""
    if which == GELU:
        gelu(x, y, rows * n)
    elif which == GELU_TANH:
        gelu_tanh(x, y, rows * n)
    elif which == RELU2:
        relu2(x, y, rows * n)
    else:
        gated(x, y, rows, n, which)


@inner
def _times(slopes, dy, dx, n):
    for j in range(0, n, lanes(dy)):
        store_first(dx, j, load_first(slopes, j, n - j) * load_first(dy, j, n - j), n - j)


@inner
def activate_backward(slopes, dy, rows, n, which):
    """Overwrite dy, the gradient of `y` in `activate`, with the gradient of `x`. For SWIGLU and GEGLU, rows of dy are
    twice as wide, and hold the gradient of y in their second halves.
    """
    if which != SWIGLU and which != GEGLU:
        _times(slopes, dy, dy, rows * n)
        return
    for i in range(rows):
        first, second = at(dy, 2 * i * n), at(dy, (2 * i + 1) * n)
        _times(at(slopes, 2 * i * n), second, first, n)
        _times(at(slopes, (2 * i + 1) * n), second, second, n)
