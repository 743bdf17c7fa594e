"""Graphormer: a learned bias for every distance in a graph, a learned vector for every degree.

    S_uv = s q_u . k_v + bias[min(d(u, v), 510) + 1, h]
    PE[v] = zin[min(degree v, 510) + 1] + zout[min(degree v, 510) + 1]

d is the number of edges of a shortest path; nodes that none joins have d = 510.

Source: Ying et al. 2021, "Do Transformers Really Perform Bad for Graph Representation?" (arXiv:2106.05234), section
3.1, eqs. (5) and (6); microsoft/Graphormer, graphormer/modules/graphormer_layers.py, GraphNodeFeature and
GraphAttnBias: tables of 512 rows, of which row 0 is for padding and stays zero.

**Slots**: `index` (N, N) and `values` (H, V), and `table` (N, C) with `centrality`. **Learns**: `bias` (512, H), `zin`
and `zout` (512, C), `virtual` (1, H); N(0, 0.02^2) at first. Every layer shares them. The authors' term of edge
features has no place here: edges have none.

**Options**
- `edges`: the graph, undirected: nodes u1, v1, u2, v2, ... of its edges, in 0 .. N-1, N being the length; for example
  `edges=0,1,1,2,2,0`. A repeated edge counts once. Without it the path 0-1-2-...
- `spatial_max`: pairs with d at least this do not attend to each other: their entry of `values` is -1e30, which leaves
  no weight, for the authors' -inf. The default, as theirs, cuts off nothing; at most 510 also parts what no path joins.
- `centrality`: whether the degrees' vectors are added to the embeddings.
- `virtual_node`: token 0 stands for the whole graph, and nodes 0 .. N-2 are the tokens after it: its row and column of
  scores get `virtual` instead, and its row of the table is zero.

Undirected graphs have equal degrees in and out, and both tables are added all the same. Nodes have no positions but
their edges: `positions` are refused, and `start` changes nothing.

**Past the training length**: clipped at d = 510, as at any length. On the path every longer distance is one whose row
was never trained, so it adds next to nothing there. Its last node has one neighbour, and so another row once the path
goes on.

**Traps.** `index` is quadratic in N, whatever the graph, and paths of a given graph, found once and kept, take half of
that again. On the path the bias is even in j - i: without a causal mask left and right are the same. Degrees past 510
share a row, where the released code fails.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Needs
from fastpe.encodings.parts import graphs
from fastpe.encodings.parts.graphs import Array, Edges
from fastpe.encodings.slots import Spec
from fastpe.kernels.compile.decorators import entry

TABLE_ROWS = 512
FARTHEST = 510
"""The length of a path that does not exist, and the longest of those that do."""
NEVER = -1e30
"""Added to the score of a pair that does not attend."""
_ROWS = 256


def _nodes(spec: Spec, virtual_node: bool) -> int:
    return spec.length - virtual_node


def _special(spatial_max: int, virtual_node: bool) -> tuple[int, int, int]:
    """The entries of `values` for the virtual node and for pairs that do not attend, and how many there are."""
    masked = TABLE_ROWS + virtual_node
    return TABLE_ROWS, masked, masked + (spatial_max <= FARTHEST)


def check(spec: Spec, *, edges: Edges, virtual_node: bool, **options: Any) -> None:
    """The graph must be one."""
    graphs.check(spec, edges, _nodes(spec, virtual_node))


def shapes(spec: Spec, *, centrality: bool, spatial_max: int, virtual_node: bool, **options: Any) -> dict[str, Any]:
    """The usual ones."""
    found = {"index": (spec.length, spec.length), "values": (spec.heads, _special(spatial_max, virtual_node)[2])}
    return found | {"table": (spec.length, spec.dim)} if centrality else found


def parameters(spec: Spec, *, centrality: bool, virtual_node: bool, **options: Any) -> dict[str, tuple[int, ...]]:
    """A row for every distance, and for every degree."""
    found: dict[str, tuple[int, ...]] = {"bias": (TABLE_ROWS, spec.heads)}
    if centrality:
        found |= {"zin": (TABLE_ROWS, spec.dim), "zout": (TABLE_ROWS, spec.dim)}
    return found | {"virtual": (1, spec.heads)} if virtual_node else found


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """N(0, 0.02^2); the row of padding is zero."""
    found = {}
    for name, shape in parameters(spec, **options).items():
        found[name] = 0.02 * replace(rng, step=name).normal(shape)
        if name != "virtual":
            found[name][0] = 0.0
    return found


def reference(
    spec: Spec,
    params: dict[str, Any],
    *,
    edges: Edges,
    spatial_max: int,
    centrality: bool,
    virtual_node: bool,
) -> dict[str, Any]:
    """Ying et al. 2021, section 3.1; paths by Floyd and Warshall, as the authors find them."""
    nodes = _nodes(spec, virtual_node)
    adjacent = graphs.dense(nodes, edges)
    path = np.where(adjacent > 0, 1.0, np.inf)
    np.fill_diagonal(path, 0)
    for k in range(nodes):
        path = np.minimum(path, path[:, k, None] + path[k])
    path = np.minimum(path, FARTHEST)
    at_node, masked, count = _special(spatial_max, virtual_node)
    index = np.full((spec.length, spec.length), at_node)
    index[virtual_node:, virtual_node:] = np.where(path >= spatial_max, masked, path + 1)
    values = np.concatenate([params["bias"], params.get("virtual", params["bias"][:0])]).T
    values = np.pad(values, ((0, 0), (0, count - values.shape[1])), constant_values=NEVER)
    found = {"index": index, "values": values}
    if centrality:
        degree = np.minimum(adjacent.sum(axis=1).astype(int), FARTHEST) + 1
        table = params["zin"][degree] + params["zout"][degree]
        found["table"] = np.concatenate([np.zeros((int(virtual_node), spec.dim)), table])
    return found


def fill(
    spec: Spec,
    params: dict[str, Any],
    out: dict[str, Any],
    *,
    edges: Edges,
    spatial_max: int,
    centrality: bool,
    virtual_node: bool,
) -> None:
    """Fill `index` and `values`, and `table`."""
    at_node, masked, count = _special(spatial_max, virtual_node)
    index, values = out["index"], out["values"]
    if virtual_node:
        index[0], index[:, 0], values[:, at_node] = at_node, at_node, params["virtual"][0]
    index, nodes = index[virtual_node:, virtual_node:], _nodes(spec, virtual_node)
    entries = np.arange(1, FARTHEST + 2, dtype=np.int32)
    entries[spatial_max:] = masked
    if edges is None:  # the row of every node is a part of the same line
        line = entries[np.minimum(np.abs(np.arange(1 - nodes, nodes)), FARTHEST)]
        index[...] = np.lib.stride_tricks.sliding_window_view(line, nodes)[::-1]
    else:
        for start in range(0, nodes, _ROWS):
            index[start : start + _ROWS] = entries[_lengths(nodes, edges)[start : start + _ROWS]]
    values[:, :TABLE_ROWS] = params["bias"].T
    values[:, masked:count] = NEVER
    if centrality:
        table, degree = out["table"], _degree_rows(nodes, edges)
        table[:virtual_node] = 0
        np.add(params["zin"][degree], params["zout"][degree], out=table[virtual_node:])


def pull(
    spec: Spec,
    params: dict[str, Any],
    dslots: dict[str, Any],
    dparams: dict[str, Any],
    *,
    edges: Edges,
    spatial_max: int,
    centrality: bool,
    virtual_node: bool,
) -> None:
    """Rows of `values` are those of `bias`; a row of the table goes back to its degree's."""
    dvalues = dslots["values"]
    dparams["bias"] += dvalues[:, :TABLE_ROWS].T
    if virtual_node:
        dparams["virtual"] += dvalues[:, TABLE_ROWS]
    if centrality:
        order, starts, rows = _by_degree(_nodes(spec, virtual_node), edges)
        change = np.add.reduceat(dslots["table"][virtual_node:][order], starts, dtype=np.float64)
        for name in ("zin", "zout"):
            dparams[name][rows] += change.astype(spec.dtype)


@lru_cache(maxsize=8)
def _by_degree(nodes: int, edges: Edges) -> tuple[Array, Array, Array]:
    """The nodes in the order of their rows of the tables; where in it each row's begin, and which rows they are."""
    degree = _degree_rows(nodes, edges)
    rows, starts = np.unique(np.sort(degree), return_index=True)
    found = np.argsort(degree, kind="stable"), starts, rows
    for each in found:
        each.flags.writeable = False
    return found


@lru_cache(maxsize=8)
def _degree_rows(nodes: int, edges: Edges) -> Array:
    found: Array = np.minimum(graphs.degrees(graphs.adjacency(nodes, edges)), FARTHEST) + 1
    found.flags.writeable = False
    return found


@lru_cache(maxsize=2)
def _lengths(nodes: int, edges: Edges) -> Array:
    """d(u, v), at most `FARTHEST`, of all nodes, int16."""
    matrix, path = graphs.adjacency(nodes, edges), np.full((nodes, nodes), FARTHEST, np.int16)
    _search(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), FARTHEST, path)
    path.flags.writeable = False
    return path


@entry(label="shortest paths")
def _search(begin: Array, neighbours: Array, farthest: int, path: Array) -> None:
    """Breadth first from every node; nodes + edges operations for each."""
    waiting = np.empty(path.shape[1], np.int64)
    for row in range(path.shape[0]):
        path[row, row] = 0
        waiting[0], head, tail = row, 0, 1
        while head < tail:
            node = waiting[head]
            head += 1
            further = path[row, node] + 1
            if further >= farthest:
                break
            for k in range(begin[node], begin[node + 1]):
                if path[row, neighbours[k]] == farthest:
                    path[row, neighbours[k]] = further
                    waiting[tail] = neighbours[k]
                    tail += 1


ENCODING = Encoding(
    summary="a bias for each shortest-path length in a graph",
    use="other",
    needs=Needs("graph", "the graph is the path from the first token to the last"),
    slots=("table", "index", "values"),
    options={
        "edges": graphs.EDGES,
        "spatial_max": Option(1024, "pairs this many edges apart, or more, do not attend", int, minimum=1),
        "centrality": Option(True, "whether degrees have vectors", bool),
        "virtual_node": Option(False, "whether token 0 stands for the graph", bool),
    },
    beyond="clipped",
    moves=lambda *, edges, centrality, **options: edges is None and centrality,
    direction="no",
    source="Ying et al. 2021, arXiv:2106.05234, section 3.1, eqs. (5) and (6)",
    ulp=1.0,
)
