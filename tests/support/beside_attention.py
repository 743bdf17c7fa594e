"""Attention that goes a way of its own, and adds its terms there, beside ordinary attention."""

import numpy as np

import fastpe


def assert_is_attention(given, own, **options):
    """Outputs, logarithms and gradients are those without the slots named `own`, which do nothing here."""
    options |= {"return_lse": True}
    plain = {name: array for name, array in given.items() if name not in own}
    (out, lse), pull = fastpe.attention_vjp(**given, **options)
    (expected, same), back = fastpe.attention_vjp(**plain, **options)
    np.testing.assert_allclose(out, expected, rtol=0, atol=1e-13)
    np.testing.assert_allclose(lse, same, rtol=0, atol=1e-12)
    found, gradients = pull((out, lse)), back((out, lse))
    for name, gradient in gradients.items():
        scale = 1 + np.abs(gradient).max()
        np.testing.assert_allclose(found[name], gradient, rtol=0, atol=1e-12 * scale, err_msg=name)
