"""Relative random walk probabilities: for nodes i and j, the probabilities that t random steps lead from i to j.

    P_ij = [I_ij, M_ij, (M^2)_ij, .., (M^(K-1))_ij],   M = D^-1 A,   A the adjacency matrix, D the degrees
    PE[i] = P_ii weight          S_ij = s q_i . k_j + (P_ij pair_weight)_h

Source: Ma et al. 2023, "Graph Inductive Biases in Transformers without Message Passing" (arXiv:2305.17589), GRIT;
LiamMa/GRIT, grit/transform/rrwp.py and grit/encoder/rrwp_encoder.py. As in the authors' code, the linear maps have no
bias.

**Slots**: `table` (N, C) and `scores` (H, N, N). **Learns**, shared by all layers: `weight` (K, C) and `pair_weight`
(K, H), initially uniform in ±sqrt(6/(rows + columns)).

**Options**
- `edges`: the edges of the undirected graph, as a flat list of nodes u1, v1, u2, v2, ...: edge i joins the nodes ui and
  vi. Nodes are numbered 0 .. N-1, where N is the length. For example, `edges=0,1,1,2,2,0` is a triangle. A repeated
  edge counts once. Default: the path 0-1-2-...
- `walk_length`: K, the number of matrix powers in P. The authors use 21 on ZINC, and 16 to 32 elsewhere. With 1, P
  contains the two powers I and M, as with 2; the authors' code does the same.

**Parts of GRIT that are left out.** The attention of GRIT is not a dot product. For every pair and channel it adds q
and k, multiplies the sum by a linear map of P, and adds another linear map of P. Then it takes signed roots and a ReLU,
and sums over channels. GRIT's layers also update the feature vector of every pair, which here stays P_ij. Here a linear
map turns P_ij into one number for each head, not into C channels. This number is added to the score; it is the same in
all layers.

The edges alone determine the place of a node: passing `positions` raises an error, and `start` has no effect.

**Past the training length**: defined. When the default path grows, rows change only for nodes less than K steps from
its last node. Nodes near the new end get the rows that nodes near the old end had. If i and j are K or more edges
apart, P_ij is 0.

**Traps.** P is not symmetric: if an edge joins i and j, M_ij is one over the degree of i, the query. However, reversing
the order of a path's nodes does not change P, so without a causal mask the model cannot tell left from right. A node
without edges has P_ii = [1, 0, 0, ..]. The first entry of P_ii is 1 for every node, so it adds the same vector to all
nodes.

**Speed.** `scores` takes O(N^2) memory. Computing P takes `edges * N * K` operations; for small graphs, P is cached.
The linear map to scores takes `N^2 * K * H` operations.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from fastpe.base.initial_values import initial_values
from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Needs
from fastpe.encodings.parts import graphs, learned_map
from fastpe.encodings.parts.graphs import Array, Edges
from fastpe.encodings.parts.offsets import stream_of
from fastpe.encodings.slots import Spec
from fastpe.kernels.arrays import gemm

_BLOCK = 2**19  # numbers of P computed together


def _columns(walk_length: int) -> int:
    return max(walk_length, 2)


def check(spec: Spec, *, edges: Edges, **options: Any) -> None:
    """Check that `edges` is a graph of these nodes, and that no positions are given."""
    graphs.check(spec, edges, spec.length)


def remarks(spec: Spec, *, walk_length: int, **options: Any) -> tuple[str, ...]:
    """Return a remark that walk_length=1 gives two columns."""
    return ("walk_length=1 has two columns, as in the authors' code",) if walk_length == 1 else ()


def parameters(spec: Spec, *, walk_length: int, **options: Any) -> dict[str, tuple[int, ...]]:
    """A row for every number of steps."""
    return {"weight": (_columns(walk_length), spec.dim), "pair_weight": (_columns(walk_length), spec.heads)}


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """Uniform, by Glorot and Bengio's rule."""
    return {
        name: initial_values("xavier_uniform", stream_of(rng, name), "weight", shape, (shape[0], shape[1]))
        for name, shape in parameters(spec, **options).items()
    }


def reference(spec: Spec, params: dict[str, Any], *, edges: Edges, walk_length: int) -> dict[str, Any]:
    """The formula above, with all powers of D^-1 A in memory."""
    adjacent = graphs.dense(spec.length, edges)
    walk = adjacent / np.maximum(adjacent.sum(axis=1, keepdims=True), 1)
    powers = [np.linalg.matrix_power(walk, t) for t in range(_columns(walk_length))]
    table = np.stack([np.diag(power) for power in powers], axis=1) @ params["weight"]
    return {"table": table, "scores": np.einsum("tij,th->hij", np.array(powers), params["pair_weight"])}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, edges: Edges, walk_length: int) -> None:
    """Fill `table` and `scores`."""
    features = np.empty((spec.length, _columns(walk_length)))
    of_heads = np.ascontiguousarray(params["pair_weight"].T, np.float64)
    for rows, walks in _blocks(spec.length, edges, _columns(walk_length)):
        features[rows] = _returns(rows, walks)
        scores = gemm(of_heads, walks.reshape(len(walks), -1))
        out["scores"][:, rows] = scores.reshape(spec.heads, -1, spec.length)
    learned_map.fill(features, params["weight"], 1.0, out["table"])


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, edges: Edges,
    walk_length: int,
) -> None:  # fmt: skip
    """dweight = the sum of P_ii dtable_i over nodes; dpair_weight = the sum of P_ij dscores_ij over pairs."""
    features = np.empty((spec.length, _columns(walk_length)))
    for rows, walks in _blocks(spec.length, edges, _columns(walk_length)):
        features[rows] = _returns(rows, walks)
        change = np.ascontiguousarray(dslots["scores"][:, rows], np.float64).reshape(spec.heads, -1)
        dparams["pair_weight"] += gemm(walks.reshape(len(walks), -1), np.ascontiguousarray(change.T))
    learned_map.pull(features, 1.0, dslots["table"], dparams["weight"])


def _returns(rows: slice, walks: Array) -> Array:
    """P_ii of some nodes, shape (n, K)."""
    return walks[:, np.arange(walks.shape[1]), np.arange(rows.start, rows.stop)].T


def _blocks(nodes: int, edges: Edges, columns: int) -> Iterator[tuple[slice, Array]]:
    """Yield a slice of n queries, and P of these queries with all keys, (K, n, N)."""
    most = max(1, _BLOCK // (columns * nodes))
    for start in range(0, nodes, most):
        stop = min(start + most, nodes)
        yield slice(start, stop), _walks(nodes, edges, columns, start, stop)


@lru_cache(maxsize=8)  # room for all blocks of a small graph
def _walks(nodes: int, edges: Edges, columns: int, start: int, stop: int) -> Array:
    matrix = graphs.adjacency(nodes, edges)
    onward = (matrix / np.maximum(graphs.degrees(matrix), 1)[:, None]).T.tocsr()
    found = np.zeros((columns, stop - start, nodes))
    found[0, np.arange(stop - start), np.arange(start, stop)] = 1.0
    for step in range(1, columns):
        found[step] = (onward @ found[step - 1].T).T
    found.flags.writeable = False
    return found


ENCODING = Encoding(
    summary="random-walk probabilities of pairs of graph nodes",
    formula=r"""
        P_{ij} &= [I_{ij}, M_{ij}, (M^2)_{ij}, \dots, (M^{K-1})_{ij}], \quad M = D^{-1} A \\
        \mathrm{PE}[i] &= P_{ii}\, \mathrm{weight},
            \quad S_{ij} = s\, q_i \cdot k_j + (P_{ij}\, \mathrm{pair\_weight})_h \\
        A &\text{ the adjacency matrix, } D \text{ the degrees}
    """,
    use_when="inputs are graphs, and pairs of nodes need more than the length of their shortest path",
    also_called=("GRIT's encoding", "relative random walk probabilities"),
    not_to_be_confused={"rwse": "only the probabilities of returning to a node, added to the embeddings"},
    use="other",
    needs=Needs("graph", "the graph is the path from the first token to the last"),
    slots=("table", "scores"),
    options={
        "edges": graphs.EDGES,
        "walk_length": Option(21, "number of powers of the walk matrix, including the zeroth", int, minimum=1),
    },
    beyond="defined",
    moves=lambda *, edges, **options: edges is None,
    direction="no",
    source="Ma et al. 2023, arXiv:2305.17589",
    ulp=lambda spec, walk_length, **options: 64.0 * _columns(walk_length),  # the sums of the map may cancel
)
