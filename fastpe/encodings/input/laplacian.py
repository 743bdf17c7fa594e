"""Eigenvectors of a graph's Laplacian, through a learned map, added to the embeddings.

    PE = scale [u_1 .. u_k] weight,   L u_t = lambda_t u_t,   0 = lambda_0 < lambda_1 <= lambda_2 <= ...
    L = I - D^(-1/2) A D^(-1/2)   or   D - A,   A the adjacency matrix, D the degrees

Source: Dwivedi and Bresson 2020, "A Generalization of Transformer Networks to Graphs" (arXiv:2012.09699), section 2.2,
eq. (1), and, for the learned map, section 2.3, eq. (3); graphdeeplearning/graphtransformer, data/molecules.py,
laplacian_positional_encoding. They use the normalised form and k from 2 to 10.

**Slot**: `table` (N, C). **Learns**: `weight` (k, C), at first uniform in ±1/sqrt(k) as in the released code (whose
constant row beside it is left out).

**Options**
- `edges`: the graph, undirected: nodes u1, v1, u2, v2, ... of its edges, in 0 .. N-1, N being the length; for example
  `edges=0,1,1,2,2,0`. A repeated edge counts once. Without it the path 0-1-2-...
- `count`: k, how many eigenvectors.
- `normalisation`: `normalised` or `combinatorial`, the two forms of L.
- `sign`: which entry of an eigenvector is positive: the one of the `largest` modulus, or the `first` of at least 0.6
  times that, which keeps the signs of the path's eigenvectors as it grows. Of equal entries, to 1e-9, the first counts.
- `scale`: multiplies the table.

Nodes have no positions but their edges: `positions` are refused, and `start` changes nothing.

**What an eigenvector leaves open.** Each connected part is taken by itself, with unit vectors of its own but for that
of the eigenvalue 0: a graph has the same rows whatever else is in the table, a node without edges has zeros, and a
part with fewer than k + 1 nodes has zeros in the last columns. Where an eigenvalue repeats (to 1e-9 of the largest),
any rotation of its eigenvectors would do. The ones taken depend on the eigenspace and the order of nodes alone: with
P the projector on it, the first is the column of P at the node with the largest P_vv, the next the same of what is
left of P, and so on. Renumbering the nodes of such a graph may change its rows, and a remark says where that can be.

**Past the training length**: resized. The path's eigenvectors stretch over its length, so that all rows move as it
grows: cosines cos(pi t (p + 1/2)/N) for D - A, and those of pi t p/(N - 1) times the root of the degree for the
other form. Of a given graph, nodes that no edge names have zeros.

**Speed.** The path's vectors have this closed form, at any length. Of a given graph, a connected part has at most 2048
nodes: its matrix is dense. The vectors are computed once and kept.
"""

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding
from fastpe.encodings.parts import graphs, learned_map
from fastpe.encodings.parts.graphs import Array, Edges
from fastpe.encodings.slots import Spec

_MOST_NODES = 2048
_REPEATED = 1e-9
_SHARE = {"largest": 1 - 2e-9, "first": 0.36}  # of the largest square


class Basis(NamedTuple):
    """Eigenvectors (N, k), how many of them belong to repeated eigenvalues, how many no part has, the smallest gap."""

    vectors: Array
    repeated: int
    missing: int
    gap: float


def check(spec: Spec, *, edges: Edges, **options: Any) -> None:
    """The graph must be one, and a connected part fit into a dense matrix."""
    graphs.check(spec, edges, spec.length)
    if edges is None:
        return
    if (largest := graphs.largest_part(spec.length, edges)) > _MOST_NODES:
        raise ValueError(f"option 'edges' must have connected parts of at most {_MOST_NODES} nodes, not {largest}")


def remarks(spec: Spec, *, edges: Edges, count: int, normalisation: str, sign: str, scale: float) -> tuple[str, ...]:
    """Say where there are fewer eigenvectors, or where they are a matter of convention."""
    basis = _basis(spec.length, edges, count, normalisation, sign)
    found = []
    if basis.missing:
        found.append(
            f"no connected part has more than {count - basis.missing} of {count} eigenvectors; the rest are zero"
        )
    if basis.repeated:
        found.append(f"{basis.repeated} eigenvectors of repeated eigenvalues depend on the order of the nodes")
    return tuple(found)


def parameters(spec: Spec, *, count: int, **options: Any) -> dict[str, tuple[int, ...]]:
    """A row for every eigenvector."""
    return {"weight": (count, spec.dim)}


def init(spec: Spec, rng: Any, *, count: int, **options: Any) -> dict[str, Any]:
    """Uniform in ±1/sqrt(k)."""
    return {"weight": (2 * rng.uniform((count, spec.dim)) - 1) / np.sqrt(count)}


def reference(
    spec: Spec, params: dict[str, Any], *, edges: Edges, count: int, normalisation: str, sign: str, scale: float
) -> dict[str, Any]:
    """Dwivedi and Bresson 2020, with explicit projectors on the eigenspaces of each part."""
    adjacent = graphs.dense(spec.length, edges)
    reachable = np.eye(spec.length) + adjacent > 0
    for _ in range(spec.length.bit_length()):
        reachable = reachable @ reachable
    features = np.zeros((spec.length, count))
    for nodes in {tuple(np.flatnonzero(row)) for row in reachable}:
        a = adjacent[np.ix_(nodes, nodes)]
        degree = a.sum(axis=1)
        matrix = np.diag(degree) - a
        if normalisation == "normalised":
            root = np.sqrt(np.maximum(degree, 1))
            matrix = matrix / root[:, None] / root
        values, vectors = linalg.eigh(matrix, driver="ev")
        taken = 1
        while taken < len(nodes) and taken <= count:
            same = np.abs(values - values[taken]) <= _REPEATED * values[-1]
            projector = vectors[:, same] @ vectors[:, same].T
            for column in range(taken, min(taken + int(same.sum()), count + 1)):
                size = np.diag(projector)
                pivot = int(np.flatnonzero(size >= _SHARE[sign] * size.max())[0])
                vector = projector[:, pivot] / np.sqrt(size[pivot])
                features[list(nodes), column - 1] = vector
                projector = projector - np.outer(vector, vector)
            taken += int(same.sum())
    return {"table": scale * (features @ params["weight"])}


def fill(
    spec: Spec,
    params: dict[str, Any],
    out: dict[str, Any],
    *,
    edges: Edges,
    count: int,
    normalisation: str,
    sign: str,
    scale: float,
) -> None:
    """Fill `table`."""
    vectors = _basis(spec.length, edges, count, normalisation, sign).vectors
    learned_map.fill(vectors, params["weight"], scale, out["table"])


def pull(
    spec: Spec,
    params: dict[str, Any],
    dslots: dict[str, Any],
    dparams: dict[str, Any],
    *,
    edges: Edges,
    count: int,
    normalisation: str,
    sign: str,
    scale: float,
) -> None:
    """dweight = the eigenvectors, transposed, times dtable."""
    vectors = _basis(spec.length, edges, count, normalisation, sign).vectors
    learned_map.pull(vectors, scale, dslots["table"], dparams["weight"])


@lru_cache(maxsize=8)
def _basis(length: int, edges: Edges, count: int, normalisation: str, sign: str) -> Basis:
    basis = (
        _of_path(length, count, normalisation, sign)
        if edges is None
        else _of_graph(graphs.adjacency(length, edges), count, normalisation, sign)
    )
    basis.vectors.flags.writeable = False
    return basis


def _of_path(length: int, count: int, normalisation: str, sign: str) -> Basis:
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


def _of_graph(matrix: Any, count: int, normalisation: str, sign: str) -> Basis:
    vectors, repeated, most, gap = np.zeros((matrix.shape[0], count)), 0, 0, 1.0
    for nodes in graphs.components(matrix):
        a = matrix[nodes][:, nodes].toarray()
        degree = a.sum(axis=1)
        if normalisation == "normalised":
            root = np.sqrt(degree)
            laplacian = np.eye(len(nodes)) - a / np.outer(root, root)
        else:
            laplacian = np.diag(degree) - a
        values, basis = np.linalg.eigh(laplacian)
        same = np.diff(values) <= _REPEATED * values[-1]
        column = 0
        for space in np.split(np.arange(1, len(nodes)), np.flatnonzero(~same[1:]) + 1):
            if column >= count:
                break
            chosen = _canonical(basis[:, space], sign)[:, : count - column]
            vectors[nodes, column : column + chosen.shape[1]] = chosen
            column += chosen.shape[1]
            repeated += chosen.shape[1] if len(space) > 1 else 0
            gaps = values[[space[0], min(space[-1] + 1, len(nodes) - 1)]] - values[[space[0] - 1, space[-1]]]
            gap = min(gap, *(gaps[gaps > _REPEATED * values[-1]] / values[-1]))
        most = max(most, column)
    return Basis(vectors, repeated, count - most, float(gap))


def _canonical(space: Array, sign: str) -> Array:
    """The basis of a space, (n, m) orthonormal in and out, that its projector alone determines."""
    out = np.empty_like(space)
    for column in range(space.shape[1]):
        size = np.square(space).sum(axis=1)  # the diagonal of what is left of the projector
        pivot = _pivot(size, sign)
        out[:, column] = space @ space[pivot] / np.sqrt(size[pivot])
        space = space - np.outer(out[:, column], out[:, column] @ space)
    return out


def _pivot(size: Array, sign: str) -> int:
    return int(np.argmax(size >= _SHARE[sign] * size.max()))


def _error(spec: Spec, *, edges: Edges, count: int, normalisation: str, sign: str, scale: float) -> float:
    """An eigenvector is known to the rounding of the matrix over the gap to the next eigenvalue."""
    basis = _basis(spec.length, edges, count, normalisation, sign)
    return 16.0 * spec.length * float(np.sqrt(count * spec.length)) / basis.gap


ENCODING = Encoding(
    summary="eigenvectors of a graph through a trained map",
    use="other",
    slots=("table",),
    options={
        "edges": graphs.EDGES,
        "count": Option(8, "number of eigenvectors", int, minimum=1),
        "normalisation": Option("normalised", "which Laplacian", str, ("normalised", "combinatorial")),
        "sign": Option("largest", "which entry is positive", str, ("largest", "first")),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="resized",
    moves=lambda *, edges, **options: edges is None,
    direction="yes",
    source="Dwivedi and Bresson 2020, arXiv:2012.09699, sections 2.2 and 2.3, eqs. (1) and (3)",
    ulp=_error,
)
