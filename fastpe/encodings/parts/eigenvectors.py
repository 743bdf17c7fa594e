"""Uniquely defined eigenvectors of graph Laplacians, for each connected component; a rule fixes signs and bases.

Eigenvalues that differ by at most 1e-9 of the largest one count as one repeated eigenvalue. Its vectors depend only on
the eigenspace and the order of nodes: let P be the projector on the eigenspace. The first vector is the column of P at
a node v with a large P_vv, divided by its norm. Its projector is subtracted from P, and the next vector is chosen in
the same way. Each vector is real and positive at its own node v, so the rule also fixes the sign or phase of an
eigenvector whose eigenvalue does not repeat.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from fastpe.base.option import Option
from fastpe.encodings.parts import graphs
from fastpe.encodings.parts.graphs import Array, Edges
from fastpe.encodings.slots import Spec

COUNT = Option(8, "number of eigenvectors", int, minimum=1)
NORMALISATION = Option("normalised", "which Laplacian", str, ("normalised", "combinatorial"))

_MOST_NODES = 2048
_REPEATED = 1e-9
_SHARE = {"largest": 1 - 2e-9, "first": 0.36}  # the first entry with at least this share of the largest square


class Basis(NamedTuple):
    """Eigenvectors (N, k), the number of them with a repeated eigenvalue, the number of columns that are zero in every
    component, and the smallest gap between eigenvalues, relative to the largest eigenvalue."""

    vectors: Array
    repeated: int
    missing: int
    gap: float


class Part(NamedTuple):
    """The nodes of a connected component, with its part of a `Basis`."""

    nodes: Array
    vectors: Array
    repeated: int
    gap: float


def check(spec: Spec, edges: Edges) -> None:
    """Check that `edges` is a graph, and that no connected component is too large for a dense matrix."""
    graphs.check(spec, edges, spec.length)
    if edges is None:
        return
    if (largest := graphs.largest_part(spec.length, edges)) > _MOST_NODES:
        raise ValueError(f"option 'edges' must have connected components of at most {_MOST_NODES} nodes, not {largest}")


def remarks(basis: Basis, count: int) -> tuple[str, ...]:
    """Remark on missing eigenvectors, and on those that depend on a convention."""
    found = []
    if basis.missing:
        found.append(
            f"no connected component has more than {count - basis.missing} of {count} eigenvectors; the rest are zero"
        )
    if basis.repeated:
        found.append(f"{basis.repeated} eigenvectors of repeated eigenvalues depend on the order of the nodes")
    return tuple(found)


def error(basis: Basis) -> float:
    """The error in units of eps: the rounding of the matrix divided by the gap to the next eigenvalue."""
    length, count = basis.vectors.shape
    return 16.0 * length * float(np.sqrt(count * length)) / basis.gap


@lru_cache(maxsize=8)
def of_laplacian(length: int, edges: Edges, count: int, normalisation: str, sign: str) -> Basis:
    """The eigenvectors of an undirected graph, from the second on (the first carries no information)."""
    if edges is None:
        basis = of_path(length, count, normalisation, sign)
    else:
        matrix = graphs.adjacency(length, edges)
        basis = joined(parts(matrix, lambda a: _laplacian(a, normalisation), 1, count, sign), length, count)
    basis.vectors.flags.writeable = False
    return basis


def _laplacian(a: Array, normalisation: str) -> Array:
    degree = a.sum(axis=1)
    if normalisation == "combinatorial":
        return np.diag(degree) - a
    root = np.sqrt(degree)
    return np.eye(len(a)) - a / np.outer(root, root)


def of_path(length: int, count: int, normalisation: str, sign: str) -> Basis:
    """The eigenvectors of the path 0-1-2-..., from the second on, in closed form."""
    vectors, used = np.zeros((length, count)), min(count, length - 1)
    wave, place = np.arange(1, used + 1), np.arange(length)[:, None]
    if normalisation == "combinatorial":
        # multiples of pi / 2N, reduced as integers
        angle = np.pi / (2 * length) * (wave * (2 * place + 1) % (4 * length))
        vectors[:, :used] = np.sqrt(2 / length) * np.cos(angle)
        values = 2 - 2 * np.cos(np.pi * np.arange(used + 2) / length)
    else:
        period = max(length - 1, 1)
        degree = np.where((place == 0) | (place == length - 1), 1, 2)
        norm = np.sqrt(np.where(wave == period, 2 * period, period))
        vectors[:, :used] = np.sqrt(degree) * np.cos(np.pi / period * (wave * place % (2 * period))) / norm
        values = 1 - np.cos(np.pi * np.arange(used + 2) / period)
    for column in vectors.T[:used]:
        column *= np.sign(column[_pivot(column**2, sign)])
    return Basis(vectors, 0, count - used, float(np.diff(values[:length]).min(initial=1.0)) / 4)


def parts(
    adjacency: Any, matrix_of: Callable[[Array], Array], first: int, count: int, sign: str = "largest"
) -> Iterator[Part]:
    """For each connected component, at most `count` eigenvectors of a Hermitian matrix, from number `first` on."""
    for nodes in graphs.components(adjacency):
        values, basis = np.linalg.eigh(matrix_of(adjacency[nodes][:, nodes].toarray()))
        same = np.diff(values) <= _REPEATED * values[-1]
        chosen, repeated, gap = [basis[:, :0]], 0, 1.0
        for space in np.split(np.arange(first, len(nodes)), np.flatnonzero(~same[first:]) + 1):
            left = count - sum(vectors.shape[1] for vectors in chosen)
            if left <= 0:
                break
            chosen.append(canonical(basis[:, space], sign)[:, :left])
            repeated += chosen[-1].shape[1] if len(space) > 1 else 0
            gaps = values[[space[0], min(space[-1] + 1, len(nodes) - 1)]] - values[[space[0] - 1, space[-1]]]
            gap = min(gap, *(gaps[gaps > _REPEATED * values[-1]] / values[-1]))
        yield Part(nodes, np.concatenate(chosen, axis=1), repeated, float(gap))


def joined(components: Iterable[Part], length: int, count: int, dtype: Any = np.float64) -> Basis:
    """The vectors of all components in one basis, with zeros for missing vectors."""
    vectors, repeated, most, gap = np.zeros((length, count), dtype), 0, 0, 1.0
    for part in components:
        columns = part.vectors.shape[1]
        vectors[part.nodes, :columns] = part.vectors
        repeated, most, gap = repeated + part.repeated, max(most, columns), min(gap, part.gap)
    return Basis(vectors, repeated, count - most, gap)


def canonical(space: Array, sign: str) -> Array:
    """The basis (n, m) that the rule chooses for the space that the orthonormal vectors `space` (n, m) span."""
    out = np.empty_like(space)
    for column in range(space.shape[1]):
        size = np.square(np.abs(space)).sum(axis=1)  # the diagonal of what is left of the projector
        pivot = _pivot(size, sign)
        out[:, column] = space @ space[pivot].conj() / np.sqrt(size[pivot])
        space = space - np.outer(out[:, column], out[:, column].conj() @ space)
    return out


def _pivot(size: Array, sign: str) -> int:
    return int(np.argmax(size >= _SHARE[sign] * size.max()))


# ---------------------------------------------------------------------------------------------------------------------
# For references


def by_projectors(length: int, edges: Edges, count: int, normalisation: str, sign: str) -> Array:
    """For references: the vectors (N, k) of `of_laplacian`, by explicit projectors on the eigenspaces."""
    adjacent = graphs.dense(length, edges)
    features = np.zeros((length, count))
    for nodes in together(adjacent):
        a = adjacent[np.ix_(nodes, nodes)]
        degree = a.sum(axis=1)
        matrix = np.diag(degree) - a
        if normalisation == "normalised":
            root = np.sqrt(np.maximum(degree, 1))
            matrix = matrix / root[:, None] / root
        columns = projected(matrix, 1, count, sign)
        features[nodes, : columns.shape[1]] = columns
    return features


def together(adjacent: Array) -> list[list[int]]:
    """The nodes of each connected component of a dense matrix, including single nodes."""
    reachable = np.eye(len(adjacent)) + adjacent > 0
    for _ in range(len(adjacent).bit_length()):
        reachable = reachable @ reachable
    return [list(nodes) for nodes in {tuple(map(int, np.flatnonzero(row))) for row in reachable}]


def projected(matrix: Array, first: int, count: int, sign: str = "largest") -> Array:
    """Eigenvectors of a Hermitian matrix from number `first` on, at most `count`."""
    values, vectors = linalg.eigh(matrix, driver="ev")
    taken, columns = first, list[Array]()
    while taken < len(values) and len(columns) < count:
        same = np.abs(values - values[taken]) <= _REPEATED * values[-1]
        projector = vectors[:, same] @ vectors[:, same].conj().T
        for _ in range(min(int(same.sum()), count - len(columns))):
            size = np.diag(projector).real
            pivot = int(np.flatnonzero(size >= _SHARE[sign] * size.max())[0])
            columns.append(projector[:, pivot] / np.sqrt(size[pivot]))
            projector = projector - np.outer(columns[-1], columns[-1].conj())
        taken += int(same.sum())
    return np.array(columns, matrix.dtype).reshape(len(columns), len(values)).T
