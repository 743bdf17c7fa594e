"""Pullbacks beside central differences."""

import numpy as np


def differences(function, value, dresult, step=1e-6):
    """The gradient of sum(dresult function(value)), by central differences."""
    found = np.zeros(value.shape)
    for place in np.ndindex(value.shape):
        ends = []
        for sign in (1, -1):
            moved = value.copy()
            moved[place] += sign * step
            ends.append(np.sum(dresult * function(moved)))
        found[place] = (ends[0] - ends[1]) / (2 * step)
    return found


def slope(function, value, step=1e-6):
    """The derivative of a number by the second entry of an array, by central differences."""
    ends = []
    for sign in (1, -1):
        moved = value.copy()
        moved.flat[1] += sign * step
        ends.append(function(moved))
    return (ends[0] - ends[1]) / (2 * step)


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


def jacobian(function, at, step=1e-6):
    """The derivatives of an array by an array: the axes of the function's result, then those of `at`."""
    columns = []
    for place in np.ndindex(at.shape):
        moved = np.zeros_like(at)
        moved[place] = step
        columns.append((function(at + moved) - function(at - moved)) / (2 * step))
    return np.stack(columns, axis=-1).reshape(*columns[0].shape, *at.shape)
