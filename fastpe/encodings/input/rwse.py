"""Probabilities that a random walk on a graph returns after 1 .. k steps, added to the embeddings.

    PE[v] = scale f(v) weight,   f_t(v) = ((D^-1 A)^t)[v, v],   t = 1 .. k

A is the adjacency matrix, D the diagonal matrix of degrees. Without `learned`,
PE[v] = scale [f_1(v), .., f_k(v), 0, 0, ...].

Source: Dwivedi, Luu, Laurent, Bengio and Bresson 2022, "Graph Neural Networks with Learnable Structural and Positional
Representations" (arXiv:2110.07875), "Definition of initial PE": the paper's RWPE uses A D^-1 instead of D^-1 A, and the
powers of both have the same diagonals; vijaydwivedi75/gnn-lspe, data/molecules.py, init_positional_encoding.

**Slot**: `table` (N, C). **Learns**: `weight` (k, C), initially uniform in ±1/sqrt(k).

**Options**
- `edges`: the edges of the undirected graph, as a flat list of nodes u1, v1, u2, v2, ...: edge i joins the nodes ui and
  vi. Nodes are numbered 0 .. N-1, where N is the length. For example, `edges=0,1,1,2,2,0` is a triangle. A repeated
  edge counts once. Default: the path 0-1-2-...
- `steps`: k, the length of the longest walk.
- `learned`: whether the features are multiplied by the learned weights; if not, they fill the first k channels
  unchanged.
- `scale`: multiplies the table.

The edges alone determine the place of a node: `positions` must not be given, and `start` has no effect.

**Past the training length**: defined. On the default path, all nodes more than k/2 steps from both ends have the same
features: f_t is t! / (t/2)!^2 / 2^t for even t and 0 for odd t. Nodes near an end have other features. When the path
grows, nodes near the new end get the features that nodes near the old end had.

**Traps.** Unlike in `laplacian`, there is no sign to choose. However, nodes with equal surroundings get equal rows: for
example, both ends of a path, and the inner nodes of a long path. In a graph without odd cycles, f_t is zero for odd t.
A node without edges has a row of zeros.

**Speed.** Walks of k/2 steps are enough: f_2s(v) is the squared norm of S^s e_v, where S = D^(-1/2) A D^(-1/2) and e_v
is the unit vector of node v. This takes nodes * edges * k operations, and the result is cached. A graph given by
`edges` may have at most 8192 nodes with edges. For the default path of any length, at most 2k + 3 nodes are computed.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from scipy import sparse

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Needs
from fastpe.encodings.parts import feature_columns, graphs, learned_map
from fastpe.encodings.parts.gather import Term, fill_terms, pull_terms
from fastpe.encodings.parts.graphs import Array, Edges
from fastpe.encodings.slots import Spec

_MOST_NODES = 8192
_AT_ONCE = 256


def check(spec: Spec, *, edges: Edges, **options: Any) -> None:
    """Check that `edges` is a graph, and that it is not too large."""
    graphs.check(spec, edges, spec.length)
    if edges is None:
        return
    nodes = int((graphs.degrees(graphs.adjacency(spec.length, edges)) > 0).sum())
    if nodes > _MOST_NODES:
        raise ValueError(f"option 'edges' must name at most {_MOST_NODES} different nodes, not {nodes}")


def remarks(spec: Spec, *, steps: int, learned: bool, **options: Any) -> tuple[str, ...]:
    """Remark on the number of channels that are used."""
    return () if learned else feature_columns.remark(steps, spec.dim, "features")


def parameters(spec: Spec, *, steps: int, learned: bool, **options: Any) -> dict[str, tuple[int, ...]]:
    """A row for each length of a walk."""
    return {"weight": (steps, spec.dim)} if learned else {}


def init(spec: Spec, rng: Any, *, steps: int, learned: bool, **options: Any) -> dict[str, Any]:
    """Uniform in ±1/sqrt(k)."""
    return {"weight": (2 * rng.uniform((steps, spec.dim)) - 1) / np.sqrt(steps)} if learned else {}


def reference(
    spec: Spec, params: dict[str, Any], *, edges: Edges, steps: int, learned: bool, scale: float
) -> dict[str, Any]:
    """The diagonals of powers of D^-1 A."""
    adjacent = graphs.dense(spec.length, edges)
    walk = adjacent / np.maximum(adjacent.sum(axis=1, keepdims=True), 1)
    diagonals = [np.diag(np.linalg.matrix_power(walk, t)) for t in range(1, steps + 1)]
    features = np.stack(diagonals, axis=1)
    if learned:
        return {"table": scale * (features @ params["weight"])}
    return {"table": feature_columns.beside_zeros(features, spec.dim, scale)}


def fill(
    spec: Spec,
    params: dict[str, Any],
    out: dict[str, Any],
    *,
    edges: Edges,
    steps: int,
    learned: bool,
    scale: float,
) -> None:
    """Fill `table`."""
    table, (features, rows) = out["table"], _features(spec.length, edges, steps)
    distinct = table if rows is None else np.empty((len(features), spec.dim), table.dtype)
    if learned:
        learned_map.fill(features, params["weight"], scale, distinct)
    else:
        feature_columns.fill_columns(distinct, lambda rows: np.ascontiguousarray(features[rows].T), scale)
    if rows is not None:
        fill_terms(table, [Term(distinct, rows)])


def pull(
    spec: Spec,
    params: dict[str, Any],
    dslots: dict[str, Any],
    dparams: dict[str, Any],
    *,
    edges: Edges,
    steps: int,
    learned: bool,
    scale: float,
) -> None:
    """dweight = the features, transposed, times dtable."""
    dtable, (features, rows) = dslots["table"], _features(spec.length, edges, steps)
    if rows is not None:
        (dtable,) = pull_terms(dtable, [Term(np.empty((len(features), spec.dim)), rows)])
    learned_map.pull(features, scale, dtable, dparams["weight"])


@lru_cache(maxsize=8)
def _features(length: int, edges: Edges, steps: int) -> tuple[Array, Array | None]:
    """The features, and the index of each node's row among them (None if each node has its own row)."""
    rows = None
    if edges is None:
        features, rows = _of_path(length, steps)
    else:
        features = np.zeros((length, steps))
        matrix = graphs.adjacency(length, edges)
        nodes = np.flatnonzero(graphs.degrees(matrix))
        features[nodes] = _of_graph(matrix[nodes][:, nodes], steps)
    features.flags.writeable = False
    return features, rows


def _of_path(length: int, steps: int) -> tuple[Array, Array]:
    """The features of a shorter path, and the index of each node's row among them. In the shorter path, the middle node
    is far from both ends: all nodes that are left out have the middle node's row."""
    short = min(length, 2 * steps + 3)
    middle, added = short // 2, length - short
    rows = np.concatenate([np.arange(middle), np.full(added, middle), np.arange(middle, short)])
    return _of_graph(graphs.adjacency(short, None), steps), rows


def _of_graph(matrix: Any, steps: int) -> Array:
    nodes = matrix.shape[0]
    features = np.zeros((nodes, steps))
    root = sparse.diags_array(1 / np.sqrt(np.maximum(graphs.degrees(matrix), 1)))
    step = sparse.csr_array(root @ matrix @ root)
    for start in range(0, nodes, _AT_ONCE):
        stop = min(start + _AT_ONCE, nodes)
        walked = np.zeros((nodes, stop - start))
        walked[np.arange(start, stop), np.arange(stop - start)] = 1.0
        for t in range(0, steps, 2):
            further = step @ walked
            features[start:stop, t] = (walked * further).sum(axis=0)
            if t + 1 < steps:
                features[start:stop, t + 1] = np.square(further).sum(axis=0)
            walked = further
    return features


ENCODING = Encoding(
    summary="return probabilities of random walks on a graph",
    formula=r"""
        \mathrm{PE}[v] &= \mathrm{scale}\, f(v)\, \mathrm{weight} \\
        f_t(v) &= \left((D^{-1} A)^t\right)[v, v], \quad t = 1, \dots, k
    """,
    use_when="inputs are graphs, and the neighbourhood of a node matters more than its place in the whole graph",
    also_called=("RWPE", "random walk structural encoding"),
    not_to_be_confused={"rrwp": "it also has the probabilities between different nodes, as a bias"},
    use="other",
    needs=Needs("graph", "the graph is the path from the first token to the last"),
    slots=("table",),
    options={
        "edges": graphs.EDGES,
        "steps": Option(16, "length of the longest walk", int, minimum=1),
        "learned": Option(True, "whether the features are mapped by learned weights", bool),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="defined",
    moves=lambda *, edges, **options: edges is None,
    direction="no",
    source='Dwivedi et al. 2022, arXiv:2110.07875, "Definition of initial PE"',
    ulp=lambda spec, steps, **options: 64.0 * steps,  # the map's sums may cancel
)
