"""Relative random walk probabilities: how likely t steps lead from node i to j, for every pair.

    P_ij = [I_ij, M_ij, (M^2)_ij, .., (M^(K-1))_ij],   M = D^-1 A,   A the adjacency matrix, D the degrees
    PE[i] = P_ii weight          S_ij = s q_i . k_j + (P_ij pair_weight)_h

Source: Ma et al. 2023, "Graph Inductive Biases in Transformers without Message Passing" (arXiv:2305.17589), GRIT;
LiamMa/GRIT, grit/transform/rrwp.py and grit/encoder/rrwp_encoder.py, whose maps have no constant row either.

**Slots**: `table` (N, C) and `scores` (H, N, N). **Learns**: `weight` (K, C) and `pair_weight` (K, H), uniform in
±sqrt(6/(rows + columns)) at first. Every layer shares them.

**Options**
- `edges`: the graph, undirected: nodes u1, v1, u2, v2, ... of its edges, in 0 .. N-1, N being the length; for example
  `edges=0,1,1,2,2,0`. A repeated edge counts once. Without it the path 0-1-2-...
- `walk_length`: K, how many columns P has; the authors take 21 on ZINC, and from 16 to 32 elsewhere. As in their code,
  1 yields two columns, I and M, as 2 does.

**What of GRIT is not here.** Its own attention is no dot product: for every pair and channel it adds q and k,
multiplies them by a map of P, adds another one, takes signed roots and a ReLU, and only then sums over channels; and
its layers change what they know of pairs. Here P enters the score once, as a bias, the same in all layers, by a linear
map to the heads in the place of one to C channels.

Nodes have no positions but their edges: `positions` are refused, and `start` changes nothing.

**Past the training length**: defined. On the path only walks that reach an end differ from those of a longer path, so
the rows of the far end move along as it grows. Nodes K or more edges apart have P_ij = 0, whatever the distance.

**Traps.** P is not symmetric: M_ij is one over the degree of i, the query. On the path all the same, what is reversed
has the same P, so left and right are alike without a causal mask. A node without edges has P_ii = 1, 0, 0, ..; column
0 of the table's map is one vector for all nodes.

**Speed.** `scores` is quadratic in N, and takes edges * N * K operations for the walks, kept where they are few, and
N^2 K H for the map.
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
    """The graph must be one."""
    graphs.check(spec, edges, spec.length)


def remarks(spec: Spec, *, walk_length: int, **options: Any) -> tuple[str, ...]:
    """Say where a walk is longer than asked for."""
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
    """Powers of D^-1 A, all at once."""
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
    """dweight = the returns, transposed, times dtable; dpair_weight = the sum of P_ij dscores_ij over pairs."""
    features = np.empty((spec.length, _columns(walk_length)))
    for rows, walks in _blocks(spec.length, edges, _columns(walk_length)):
        features[rows] = _returns(rows, walks)
        change = np.ascontiguousarray(dslots["scores"][:, rows], np.float64).reshape(spec.heads, -1)
        dparams["pair_weight"] += gemm(walks.reshape(len(walks), -1), np.ascontiguousarray(change.T))
    learned_map.pull(features, 1.0, dslots["table"], dparams["weight"])


def _returns(rows: slice, walks: Array) -> Array:
    """P_ii of some nodes, (n, K)."""
    return walks[:, np.arange(walks.shape[1]), np.arange(rows.start, rows.stop)].T


def _blocks(nodes: int, edges: Edges, columns: int) -> Iterator[tuple[slice, Array]]:
    """P of some queries and all keys, (K, n, N), by rows of the scores."""
    most = max(1, _BLOCK // (columns * nodes))
    for start in range(0, nodes, most):
        stop = min(start + most, nodes)
        yield slice(start, stop), _walks(nodes, edges, columns, start, stop)


@lru_cache(maxsize=8)  # all of a small graph's
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
    summary="random walks between the nodes of a graph",
    use="other",
    needs=Needs("graph", "the graph is the path from the first token to the last"),
    slots=("table", "scores"),
    options={
        "edges": graphs.EDGES,
        "walk_length": Option(21, "how many powers of the walk, the zeroth among them", int, minimum=1),
    },
    beyond="defined",
    moves=lambda *, edges, **options: edges is None,
    direction="no",
    source="Ma et al. 2023, arXiv:2305.17589",
    ulp=lambda spec, walk_length, **options: 64.0 * _columns(walk_length),  # the map's sums may cancel
)
