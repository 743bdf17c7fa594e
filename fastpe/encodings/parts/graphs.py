"""Unweighted graphs with nodes 0 .. N-1. An option gives the edges; the default is a path.

Most encodings use undirected edges (`EDGES`, `adjacency`), a few directed ones (`ARCS`, `arcs`).
"""

from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from fastpe.base.option import Option
from fastpe.encodings.slots import Spec

Array = np.ndarray[Any, Any]
Edges = tuple[int, ...] | None

EDGES = Option(
    None,
    "undirected edges u1, v1, u2, v2, ... of the graph; none: the path 0-1-2-...",
    tuple,
    optional=True,
    samples=((0, 1), (0, 1, 1, 2, 2, 0, 3, 4), (0, 4, 4, 1, 1, 3, 3, 2, 2, 0, 1, 0), (5, 0, 6, 5)),
)
ARCS = replace(EDGES, doc="directed edges u1, v1, u2, v2, ..., each from u to v; none: the path 0>1>2>...")


def check(spec: Spec, edges: Edges, nodes: int) -> None:
    """Raise ValueError if positions are given, or if `edges` is not a graph of this many nodes."""
    if spec.positions is not None:
        raise ValueError("positions cannot be given: the nodes of a graph are placed by its edges")
    adjacency(nodes, edges)


@lru_cache(maxsize=8)
def arcs(nodes: int, edges: Edges) -> Any:
    """The adjacency matrix (N, N) of directed edges, float64, in sparse row format: entry (u, v) is 1 if an edge goes
    from u to v.

    Raises
    ------
    ValueError
        If the edges are not pairs of different nodes.
    """
    return _matrix(nodes, *_ends(nodes, edges))


@lru_cache(maxsize=8)
def adjacency(nodes: int, edges: Edges) -> Any:
    """The symmetric adjacency matrix (N, N) of undirected edges, in the format of `arcs`."""
    first, second = _ends(nodes, edges)
    return _matrix(nodes, np.concatenate([first, second]), np.concatenate([second, first]))


def _ends(nodes: int, edges: Edges) -> tuple[Array, Array]:
    if edges is None:
        return np.arange(nodes - 1), np.arange(1, nodes)
    if len(edges) % 2:
        raise ValueError(f"option 'edges' must be pairs of nodes, one after the other, not {len(edges)} integers")
    first, second = np.array(edges, np.int64).reshape(-1, 2).T
    for u, v in zip(first.tolist(), second.tolist(), strict=True):
        if not (0 <= u < nodes and 0 <= v < nodes):
            raise ValueError(f"option 'edges' must name nodes from 0 to {nodes - 1}, but one is ({u}, {v})")
        if u == v:
            raise ValueError(f"option 'edges' must join different nodes, but one is ({u}, {v})")
    return first, second


def _matrix(nodes: int, rows: Array, columns: Array) -> Any:
    matrix = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(nodes, nodes))
    matrix.sum_duplicates()
    matrix.data[:] = 1.0
    return matrix


def degrees(matrix: Any) -> Array:
    """The number of edges of each node, (N,) int64."""
    return np.diff(matrix.indptr).astype(np.int64)


def components(matrix: Any) -> Iterator[Array]:
    """Yield the nodes, ascending, of each connected component that has an edge."""
    label = csgraph.connected_components(matrix, directed=False)[1]
    order = np.argsort(label, kind="stable")
    for nodes in np.split(order, np.flatnonzero(np.diff(label[order])) + 1):
        if len(nodes) > 1:
            yield nodes


@lru_cache(maxsize=8)
def largest_part(nodes: int, edges: Edges) -> int:
    """The number of nodes of the largest connected component that has an edge."""
    return max(map(len, components(adjacency(nodes, edges))), default=0)


def dense(nodes: int, edges: Edges, *, directed: bool = False) -> Array:
    """For references: the matrix of `adjacency`, or of `arcs` if `directed`, as a dense array."""
    pairs = [(u, u + 1) for u in range(nodes - 1)] if edges is None else list(zip(edges[::2], edges[1::2], strict=True))
    matrix = np.zeros((nodes, nodes))
    for u, v in pairs:
        matrix[u, v] = 1.0
    return matrix if directed else np.maximum(matrix, matrix.T)
