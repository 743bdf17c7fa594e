"""The slots `reflectors` and `reflect` (reflections between key and query, PaTH) in the form that kernels take."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from fastpe.functional.arguments import Array
from fastpe.functional.layouts import contiguous
from fastpe.kernels import simd
from fastpe.kernels.attention.inputs import Case, Inputs, Path
from fastpe.kernels.attention.path import calls
from fastpe.kernels.attention.tile import SUBTILE
from fastpe.kernels.threads.team import run_team, workers_for

_SUBTILE = int(SUBTILE)


def path_of(slots: Mapping[str, Array], key_heads: int, dtype: np.dtype[Any]) -> Path | None:
    """Return the reflections of a call, without their products, or None if there are no reflections."""
    if "reflectors" not in slots:
        return None
    w, beta = slots["reflectors"], slots["reflect"]
    if w.shape[:3] != beta.shape:
        shape = np.broadcast_shapes(w.shape[:3], beta.shape)
        w, beta = np.broadcast_to(w, (*shape, w.shape[-1])), np.broadcast_to(beta, shape)
    samples, heads, m = beta.shape
    of_sample, of_head = heads * m if samples > 1 else 0, m if heads > 1 else 0
    rows, far = contiguous(w, dtype).reshape(-1), contiguous(beta, dtype).reshape(-1)
    return Path(rows, far, np.empty(0, dtype), of_sample, of_head, max(heads, key_heads))


def with_products(inputs: Inputs, case: Case) -> Inputs:
    """Return the inputs with the products of the reflectors and keys of every sub-tile.

    The products are computed only if the inputs have reflections and no products yet.
    """
    path = inputs.path
    if path is None or path.products.size:
        return inputs
    tasks = case.batch * path.pairs * -(-case.keys // _SUBTILE)
    found = np.zeros(tasks * 2 * _SUBTILE**2, path.w.dtype)
    inputs = inputs._replace(path=path._replace(products=found))
    workers = workers_for(found.size * case.width, tasks)
    workspaces = simd.aligned_zeros((workers, case.width * _SUBTILE), found.dtype)
    run_team(workers, calls.make_products, inputs, case, workspaces)
    return inputs
