"""The term of scores for the number of counted keys between query and key (CoPE), in plain NumPy, with pullback."""

from collections.abc import Callable
from typing import Any

import numpy as np

from fastpe.reference._case import Array, Case, Gradients, add_up
from fastpe.reference._nonfinite import where_nonzero
from fastpe.reference._rounding import like
from fastpe.reference._sizes import Sizes


def counted(case: Case, content: Array, *, sizes: bool) -> tuple[Any, Callable[[Array, Gradients], Any]]:
    """Return the term that counts add to scores. Its pullback returns the gradient of `content`, the logits of gates.

    If `sizes` is true, the products of queries and vectors are computed with `Sizes`, as sums of absolute values.
    """
    if "counts" not in case.slots:
        return 0, lambda dlogits, gradients: 0
    vectors, q = case.slots["counts"], case.q.view(Sizes) if sizes else case.q
    gates = np.where(case.visible, _sigmoid(np.asarray(content)), 0)
    sums = np.flip(np.cumsum(np.flip(gates, -1), -1), -1)
    places = np.minimum(np.where(np.isnan(sums), 0, sums), vectors.shape[-2] - 1)
    share, z = places - np.floor(places), q @ _t(vectors)
    below, above = np.floor(places).astype(int), np.ceil(places).astype(int)
    of_below, of_above = (np.take_along_axis(z, whole, -1) for whole in (below, above))

    def pullback(dlogits: Array, gradients: Gradients) -> Array:
        slopes = np.where(above > below, of_above - of_below, 0)
        dgates = np.cumsum(dlogits * slopes, axis=-1)
        # for sizes, 1 is used: a small fraction, or 1 minus a gate near 1, has the rounding error of larger numbers
        lower, upper, shut = (1, 1, 1) if isinstance(dlogits, Sizes) else (1 - share, share, 1 - gates)
        dz = add_up(dlogits * lower, below, z.shape[-1]) + add_up(dlogits * upper, above, z.shape[-1])
        dz = like(dz, case.q)
        gradients.add("q", dz @ vectors)
        gradients.add("counts", _t(dz) @ case.q)
        return where_nonzero(gates, dgates * (gates * shut))

    return (1 - share) * of_below + share * of_above, pullback


def _sigmoid(x: Array) -> Array:
    below = np.exp(-np.abs(x))
    return np.where(x < 0, below, 1) / (1 + below)


def _t(matrices: Array) -> Array:
    return np.swapaxes(matrices, -1, -2)
