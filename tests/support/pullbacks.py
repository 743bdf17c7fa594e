"""Derivatives by central differences, and pullbacks beside them."""

import content_checks
import numpy as np


def differences(function, value, dresult):
    """The gradient of sum(dresult function(value)), by central differences."""
    return content_checks.differences(lambda x: np.sum(dresult * function(x)), value)


def jacobian(function, at, step=1e-6):
    """The derivatives of an array by an array: the axes of the function's result, then those of `at`."""
    columns = []
    for place in np.ndindex(at.shape):
        moved = np.zeros_like(at)
        moved[place] = step
        columns.append((function(at + moved) - function(at - moved)) / (2 * step))
    return np.stack(columns, axis=-1).reshape(*columns[0].shape, *at.shape)


def assert_gradients(vjp, arguments, rtol=1e-7):
    """Those of every argument, by differences."""
    value, pullback = vjp(**arguments)
    dresult = np.random.default_rng(0).standard_normal(value.shape)
    found = pullback(dresult)
    for name, gradient in found.items():
        assert gradient.shape == np.shape(arguments[name]), name
        expected = differences(
            lambda x, name=name: vjp(**{**arguments, name: x})[0], np.asarray(arguments[name]), dresult
        )
        np.testing.assert_allclose(gradient, expected, rtol=rtol, atol=1e-8, err_msg=name)
