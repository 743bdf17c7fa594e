"""Graphormer: a learned bias for every distance in a graph, and a learned vector for every degree.

    S_uv = s q_u . k_v + bias[min(d(u, v), 510) + 1, h]
    PE[v] = zin[min(degree v, 510) + 1] + zout[min(degree v, 510) + 1]

d is the number of edges of a shortest path, or 510 if no path joins the nodes.

Source: Ying et al. 2021, "Do Transformers Really Perform Bad for Graph Representation?" (arXiv:2106.05234), section
3.1, eqs. (5) and (6); microsoft/Graphormer, graphormer/modules/graphormer_layers.py, GraphNodeFeature and
GraphAttnBias. The tables in this code have 512 rows; row 0 is for padding and stays zero.

**Slots**: `index` (N, N) and `values` (H, V); with `centrality` also `table` (N, C). **Learns**, shared by all layers:
`bias` (512, H), `zin` and `zout` (512, C), `virtual` (1, H); initially N(0, 0.02^2). The authors' term for features of
edges is left out, because edges have no features here.

**Options**
- `edges`: the undirected graph, as the two nodes of each edge in turn: u1, v1, u2, v2, ..., with nodes 0 .. N-1; for
  example `edges=0,1,1,2,2,0`. A repeated edge counts once. Default: the path 0-1-2-...
- `spatial_max`: pairs with d at least this large do not attend to each other: their entry of `values` is -1e30, so that
  their attention weight is 0 (the authors use -inf). The default, as in the authors' code, hides no pair. A value of at
  most 510 also hides pairs that no path joins.
- `centrality`: whether the vectors of the degrees are added to the embeddings.
- `virtual_node`: token 0 stands for the whole graph, and nodes 0 .. N-2 are the tokens after it. In the scores, the row
  and the column of token 0 get `virtual` instead of the bias of a distance. Token 0's row of `table` is zero.

In undirected graphs the in-degree equals the out-degree, but both tables are added. The encoding depends on edges only:
passing `positions` raises an error, and `start` has no effect.

**Past the training length**: clipped; at any length, distances of 510 and more share a row. On the default path, the
rows of distances that did not occur in training are untrained and near zero, so they add almost nothing. The last node
of the path has one neighbour; on a longer path the same node has two, so it uses another row.

**Traps.** `index` takes O(N^2) memory for any graph. If `edges` are given, the path lengths are computed once and
cached; the cache takes half as much memory as `index`. On the default path, the bias is even in j - i: without a causal
mask the model cannot tell left from right. Degrees past 510 share a row; the released code fails on them.
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
"""Larger distances are replaced by this one. It is also the distance of nodes that no path joins."""
NEVER = -1e30
"""Added to the score of a pair of nodes that do not attend to each other."""
_ROWS = 256


def _nodes(spec: Spec, virtual_node: bool) -> int:
    return spec.length - virtual_node


def _special(spatial_max: int, virtual_node: bool) -> tuple[int, int, int]:
    """Two indices into `values`, of the virtual node and of pairs that do not attend, and the number of entries."""
    masked = TABLE_ROWS + virtual_node
    return TABLE_ROWS, masked, masked + (spatial_max <= FARTHEST)


def check(spec: Spec, *, edges: Edges, virtual_node: bool, **options: Any) -> None:
    """Check that `edges` is a graph of these nodes, and that no positions are given."""
    graphs.check(spec, edges, _nodes(spec, virtual_node))


def shapes(spec: Spec, *, centrality: bool, spatial_max: int, virtual_node: bool, **options: Any) -> dict[str, Any]:
    """The shapes of `index` and `values`, and of `table` with `centrality`."""
    found = {"index": (spec.length, spec.length), "values": (spec.heads, _special(spatial_max, virtual_node)[2])}
    return found | {"table": (spec.length, spec.dim)} if centrality else found


def parameters(spec: Spec, *, centrality: bool, virtual_node: bool, **options: Any) -> dict[str, tuple[int, ...]]:
    """A row for every distance, and for every degree."""
    found: dict[str, tuple[int, ...]] = {"bias": (TABLE_ROWS, spec.heads)}
    if centrality:
        found |= {"zin": (TABLE_ROWS, spec.dim), "zout": (TABLE_ROWS, spec.dim)}
    return found | {"virtual": (1, spec.heads)} if virtual_node else found


def init(spec: Spec, rng: Any, **options: Any) -> dict[str, Any]:
    """Parameters drawn from N(0, 0.02^2); the row for padding is zero."""
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
    """Ying et al. 2021, section 3.1; paths by the Floyd-Warshall algorithm, as in the authors' code."""
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
    """Fill `index` and `values`, and `table` with `centrality`."""
    at_node, masked, count = _special(spatial_max, virtual_node)
    index, values = out["index"], out["values"]
    if virtual_node:
        index[0], index[:, 0], values[:, at_node] = at_node, at_node, params["virtual"][0]
    index, nodes = index[virtual_node:, virtual_node:], _nodes(spec, virtual_node)
    entries = np.arange(1, FARTHEST + 2, dtype=np.int32)
    entries[spatial_max:] = masked
    if edges is None:  # every node's row is a slice of the same array
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
    """Add dvalues to dbias and dvirtual, and each row of dtable to the rows of its node's degree in dzin and dzout."""
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
    """The nodes sorted by their rows of the tables; where the nodes of each row begin; and the rows that occur."""
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
    """d(u, v) for all pairs of nodes, at most `FARTHEST`, int16."""
    matrix, path = graphs.adjacency(nodes, edges), np.full((nodes, nodes), FARTHEST, np.int16)
    _search(matrix.indptr.astype(np.int64), matrix.indices.astype(np.int64), FARTHEST, path)
    path.flags.writeable = False
    return path


@entry(label="shortest paths")
def _search(begin: Array, neighbours: Array, farthest: int, path: Array) -> None:
    """Breadth-first search from every node; nodes + edges operations for each."""
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
    summary="learned bias for each shortest-path length",
    formula=r"""
        S_{uv} &= s\, q_u \cdot k_v + \mathrm{bias}[\min(d(u, v), 510) + 1,\ h] \\
        \mathrm{PE}[v] &= \mathrm{zin}[\min(\mathrm{degree}\, v, 510) + 1] + \mathrm{zout}[\min(\mathrm{degree}\, v,
            510) + 1]
    """,
    use_when="inputs are graphs, and the steps between nodes and their degrees matter, as in Graphormer",
    also_called=("SPD bias", "spatial encoding"),
    use="other",
    needs=Needs("graph", "the graph is the path from the first token to the last"),
    slots=("table", "index", "values"),
    options={
        "edges": graphs.EDGES,
        "spatial_max": Option(1024, "pairs at least this many edges apart do not attend", int, minimum=1),
        "centrality": Option(True, "whether vectors of the degrees are added to the input", bool),
        "virtual_node": Option(False, "whether token 0 stands for the graph", bool),
    },
    beyond="clipped",
    moves=lambda *, edges, centrality, **options: edges is None and centrality,
    direction="no",
    source="Ying et al. 2021, arXiv:2106.05234, section 3.1, eqs. (5) and (6)",
    ulp=1.0,
)
