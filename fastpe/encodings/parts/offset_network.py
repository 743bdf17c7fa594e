"""A small network that maps each offset to one number for every head.

    z_0 = x w_in + b_in,    z_l = f(z_(l-1)) w_(l-1) + b_(l-1),    u = f(z_last) w_out + b_out

Rows of x are offsets. The encoding that uses the network chooses the function f, which may have parameters.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from fastpe.kernels.arrays import column_sums, gemm
from fastpe.kernels.products.float_gemm import FROM

Array = np.ndarray[Any, Any]

Back = Callable[[Array], Array]
"""A function from the gradient of f(z) to that of z."""
Between = Callable[[Array, int], tuple[Array, Back]]
"""A function from z and the index of its layer to f(z) and its backward pass."""


def parameters(inputs: tuple[int, ...], width: int, depth: int, heads: int) -> dict[str, tuple[int, ...]]:
    """The maps of a network with `depth` hidden layers; `inputs` is () for a single number, else (number of inputs,).

    >>> parameters((2,), 4, 1, 8)
    {'w_in': (2, 4), 'b_in': (4,), 'w_out': (4, 8), 'b_out': (8,)}
    """
    inner = {"w": (depth - 1, width, width), "b": (depth - 1, width)} if depth > 1 else {}
    return {"w_in": (*inputs, width), "b_in": (width,), **inner, "w_out": (width, heads), "b_out": (heads,)}


def as_float64(params: Mapping[str, Array]) -> dict[str, Array]:
    """The parameters in float64, as the functions below expect them."""
    return {name: np.ascontiguousarray(each, np.float64) for name, each in params.items()}


def _maps(network: Mapping[str, Array]) -> list[tuple[Array, Array]]:
    """The map and bias after each hidden layer."""
    inner = zip(network.get("w", ()), network.get("b", ()), strict=True)
    return [*inner, (network["w_out"], network["b_out"])]


def forward(
    x: Array, network: Mapping[str, Array], between: Between, layers: list[tuple[Array, Back]] | None = None
) -> Array:
    """u (M, H) of offsets x (M, inputs); the results of `between` for each hidden layer are appended to `layers`."""
    z = gemm(x, network["w_in"].reshape(x.shape[1], -1), FROM, network["b_in"][None])
    for layer, (w, b) in enumerate(_maps(network)):
        units, back = between(z, layer)
        if layers is not None:
            layers.append((units, back))
        z = gemm(units, w, FROM, b[None])
    return z


def backward(
    x: Array, network: Mapping[str, Array], layers: Sequence[tuple[Array, Back]], du: Array, found: Mapping[str, Array]
) -> None:
    """From the gradient `du` of u, add the gradients of the maps to the float64 arrays `found`."""
    own = np.ascontiguousarray(du, np.float64)
    chain = zip(reversed(layers), reversed(_maps(network)), reversed(_maps(found)), strict=True)
    for (units, back), (w, _), (dw, db) in chain:
        dw += gemm(units.T, own)
        db += column_sums(own)
        own = back(gemm(own, np.ascontiguousarray(w.T)))
    dw_in = found["w_in"].reshape(x.shape[1], -1)  # a view
    dw_in += gemm(x.T, own)
    found["b_in"][...] += column_sums(own)
