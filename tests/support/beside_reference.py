"""Attention that goes a way of its own, through a network of scores or reflections, compared with the reference."""

import numpy as np
from guards import assert_error_law

import fastpe
from fastpe.doctor.allowed_error import wider
from fastpe.reference._attention import attention_vjp_in
from fastpe.reference._sizes import Sizes


def assert_agrees_in(terms, gradient_terms, arguments, *, by_sizes=None, **options):
    """Outputs, logarithms and all gradients obey the error law, with sums of so many terms; returns the outputs.

    by_sizes: gradients where the sizes of terms say what their rounding leaves, None for all: those do not that come
    through maps multiplied along a path, as sizes grow with every one.
    """
    dtype, options = arguments["q"].dtype, options | {"return_lse": True}
    ours, pull = fastpe.attention_vjp(**arguments, **options)
    exact, exact_pull = attention_vjp_in(wider(dtype), **arguments, **options)
    plain, plain_pull = attention_vjp_in(dtype, **arguments, **options)
    unseen = exact[1] == -np.inf
    np.testing.assert_array_equal(ours[1][unseen], -np.inf)
    np.testing.assert_array_equal(ours[0][unseen], 0)
    rows = np.random.default_rng(3)
    douts = tuple(rows.standard_normal(x.shape).astype(dtype) for x in ours)
    found, expected, same = pull(douts), exact_pull(douts), plain_pull(douts)
    sized = found.keys() if by_sizes is None else found.keys() & by_sizes
    sizes = exact_pull(tuple(x.view(Sizes) for x in douts)) if sized else {}
    cells = exact[1].size * arguments["k"].shape[-2]
    assert found.keys() == expected.keys()
    _assert_law(ours[0], exact[0], plain[0], terms)
    _assert_law(*(np.where(unseen, 0, x) for x in (ours[1], exact[1], plain[1])), terms)
    for name, gradient in found.items():
        assert gradient.shape == np.shape(arguments[name])
        assert gradient.dtype == np.asarray(arguments[name]).dtype
        narrow = gradient.astype(dtype)  # that of scale is summed in float64, of terms that are not
        if name in sized:  # terms may cancel; what their rounding leaves grows as the root of their number
            scattered = np.max(sizes[name], initial=0.0) / np.sqrt(max(1.0, cells / max(1, gradient.size)))
            _assert_law(narrow, expected[name], same[name], gradient_terms, least=max(0.25, float(scattered)))
        else:  # where a row sees a single key, gradients of its weight cancel that are several times what is left
            condition = 4.0 / (1 - options.get("dropout", 0.0))  # and dropout makes them larger by as much
            _assert_law(narrow, expected[name], same[name], gradient_terms, condition)
    return ours


def _assert_law(result, exact, same_dtype, terms, condition=1.0, least=0.25):
    """The error law, with no less than so much for the largest entry: of what is next to nothing the terms are not."""
    ours, exact, numpys = (np.append(x, x.dtype.type(least)) for x in (result, exact, same_dtype.astype(result.dtype)))
    assert_error_law(ours, exact, numpys, terms, condition)
