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

from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Needs
from fastpe.encodings.parts import eigenvectors, graphs, learned_map
from fastpe.encodings.parts.graphs import Edges
from fastpe.encodings.slots import Spec


def check(spec: Spec, *, edges: Edges, **options: Any) -> None:
    """The graph must be one, and a connected part fit into a dense matrix."""
    eigenvectors.check(spec, edges)


def remarks(spec: Spec, *, edges: Edges, count: int, normalisation: str, sign: str, scale: float) -> tuple[str, ...]:
    """Say where there are fewer eigenvectors, or where they are a matter of convention."""
    return eigenvectors.remarks(eigenvectors.of_laplacian(spec.length, edges, count, normalisation, sign), count)


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
    features = eigenvectors.by_projectors(spec.length, edges, count, normalisation, sign)
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
    vectors = eigenvectors.of_laplacian(spec.length, edges, count, normalisation, sign).vectors
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
    vectors = eigenvectors.of_laplacian(spec.length, edges, count, normalisation, sign).vectors
    learned_map.pull(vectors, scale, dslots["table"], dparams["weight"])


def _error(spec: Spec, *, edges: Edges, count: int, normalisation: str, sign: str, scale: float) -> float:
    """An eigenvector is known to the rounding of the matrix over the gap to the next eigenvalue."""
    return eigenvectors.error(eigenvectors.of_laplacian(spec.length, edges, count, normalisation, sign))


ENCODING = Encoding(
    summary="eigenvectors of a graph through a trained map",
    use="other",
    needs=Needs("graph", "the graph is the path from the first token to the last"),
    slots=("table",),
    options={
        "edges": graphs.EDGES,
        "count": eigenvectors.COUNT,
        "normalisation": eigenvectors.NORMALISATION,
        "sign": Option("largest", "which entry is positive", str, ("largest", "first")),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="resized",
    moves=lambda *, edges, **options: edges is None,
    direction="yes",
    source="Dwivedi and Bresson 2020, arXiv:2012.09699, sections 2.2 and 2.3, eqs. (1) and (3)",
    ulp=_error,
)
