"""Arguments of attention drawn at random, and the comparison of its kernels with the reference."""

import numpy as np
from guards import assert_error_law

import fastpe
from fastpe.bands import Band
from fastpe.doctor.allowed_error import sum_bound, wider
from fastpe.functional.slots import SLOTS as TABLE
from fastpe.functional.slots import samples
from fastpe.reference._attention import attention_vjp_in
from fastpe.reference._sizes import Sizes

SLOTS = (
    *(name for name, slot in TABLE.items() if slot.layout and name not in ("index", "counts")),
    "angles",
    "scale",
    "row_scale",
    "rotors",
)
"""Slots that may be given in any combination, causal or not."""


def problem(rng, names=(), *, b=2, h=2, hk=None, n=5, m=None, d=8, dv=None, dtype=np.float64, sharp=1.0, **sizes):
    """Arguments of `fastpe.attention`: q, k, v and the slots named; a scale for each head may be one of them.

    sharp: the size of q. Others as for `fastpe.functional.slots.samples`.
    """
    m, hk = n if m is None else m, hk or h
    shapes = {"q": (b, h, n, d), "k": (b, hk, m, d), "v": (b, hk, m, d if dv is None else dv)}
    arguments = {name: rng.standard_normal(shape).astype(dtype) for name, shape in shapes.items()}
    arguments["q"] *= arguments["q"].dtype.type(sharp)
    if "scale" in names:
        arguments["scale"] = np.linspace(0.2, 0.5, h)
    slots = [name for name in names if name != "scale"]
    return arguments | samples(slots, rng, b=b, h=h, n=n, m=m, d=d, dv=dv, dtype=dtype, **sizes)


def random_bands(rng, b, n, m, count=3):
    """Bands that share the keys of every query out between them, a few to none, at random places."""
    edges = np.sort(rng.integers(0, m + 1, (b, n, count + 1)), axis=-1)
    return tuple(
        Band(3 * rng.standard_normal((b, n)), 3 * rng.standard_normal(m), edges[..., place : place + 2])
        for place in rng.permutation(count)
    )


def _largest_angle(arguments, options):
    """Radians of rows of bands, places times theta, which are rounded in float64 themselves."""
    if not options.get("bands") or arguments["q"].dtype != np.float64:
        return 1.0
    places = [np.abs(each).max(initial=0.0) for band in options["bands"] for each in (band.queries, band.keys)]
    return max(1.0, max(places) * np.abs(arguments["theta"]).max(initial=0.0))


def _moved_by_theta(arguments, bands, sizes):
    """What the gradient of theta is summed of: of every row its place, times its gradient across the row. Those of
    queries and keys at nearly the same place cancel, which look-backs, as the reference has them, do not know."""
    whole = 0.0
    for name, places in (("q", [band.queries for band in bands]), ("k", [band.keys for band in bands])):
        across = np.sum(abs(np.asarray(sizes[name])), axis=-1) * np.sum(abs(arguments[name]), axis=-1)
        farthest = np.max([np.abs(own).reshape(-1, own.shape[-1]).max(axis=0) for own in places], axis=0)
        whole += np.sum(across * farthest)
    return whole


def assert_within(bound, result, exact, name):
    """Every entry is within its own bound."""
    error = np.abs(np.asarray(result) - exact)
    worst = np.max(error / np.maximum(bound, np.finfo(float).tiny), initial=0.0)
    assert worst <= 1, f"{name}: an error of {error.max():.3g}, {worst:.3g} times the entry's bound"


def assert_agrees(arguments, *, condition=1.0, tolerance=None, **options):
    """Outputs, logarithms of denominators and all gradients obey the error law; returns outputs and gradients."""
    dtype, (n, d), m = arguments["q"].dtype, arguments["q"].shape[-2:], arguments["k"].shape[-2]
    (out, lse), pullback = fastpe.attention_vjp(**arguments, **options, tolerance=tolerance, return_lse=True)
    exact, exact_pullback = attention_vjp_in(wider(dtype), **arguments, **options, return_lse=True)
    plain, plain_pullback = attention_vjp_in(dtype, **arguments, **options, return_lse=True)
    terms = n + m + d + (2 * arguments["rotors"].shape[-1] if "rotors" in arguments else 0)
    terms += 8 if options.get("bands") else 0  # both rotations and their way back, which few cells do not hide
    condition *= _largest_angle(arguments, options)
    # every slot is one more term of the score, whose roundings add up as chance has it: a relative error of the weights
    condition *= np.sqrt(1 + len(arguments.keys() & {*SLOTS, "counts"}))
    assert_error_law(out, exact[0], plain[0], terms, condition)
    seen = np.isfinite(exact[1])
    np.testing.assert_array_equal(lse[~seen], -np.inf)
    np.testing.assert_array_equal(out[~seen], 0)
    # the sum of a peak and of a logarithm of at least 0, which may cancel: measured by no less than 1
    assert_within(sum_bound(1 + abs(exact[1][seen]), dtype, terms, condition), lse[seen], exact[1][seen], "lse")
    rng = np.random.default_rng(5)
    douts = tuple(rng.standard_normal(each.shape).astype(dtype) for each in (out, lse))
    gradients, exact = pullback(douts), exact_pullback(douts)
    assert gradients.keys() == exact.keys()
    sizes = exact_pullback(tuple(each.astype(wider(dtype)).view(Sizes) for each in douts))
    # counts sum up what scores round to, and make scores again: no entry's own terms know of it, NumPy's error does
    ours = plain_pullback(douts) if "counts" in arguments else exact
    for name, gradient in gradients.items():
        assert gradient.shape == np.shape(arguments[name])
        assert gradient.dtype == (np.float64 if name in ("angles", "growth", "scale", "theta") else dtype)
        size = abs(np.asarray(sizes[name]))
        if name == "theta":
            size = size + _moved_by_theta(arguments, options["bands"], sizes)
        bound = sum_bound(size, dtype, terms, condition)
        bound = bound + 2 * np.max(np.abs(np.asarray(ours[name]) - exact[name]), initial=0.0)
        assert_within(bound, gradient, exact[name], name)
    return out, gradients
