"""Eigenvectors of a graph's Laplacian, mapped by learned weights and added to the embeddings.

    PE = scale [u_1 .. u_k] weight,   L u_t = lambda_t u_t,   0 = lambda_0 < lambda_1 <= lambda_2 <= ...
    L = I - D^(-1/2) A D^(-1/2)   or   D - A,   A the adjacency matrix, D the degrees

Source: Dwivedi and Bresson 2020, "A Generalization of Transformer Networks to Graphs" (arXiv:2012.09699), section 2.2,
eq. (1), and, for the learned map, section 2.3, eq. (3); graphdeeplearning/graphtransformer, data/molecules.py,
laplacian_positional_encoding. The authors use the normalised form and k from 2 to 10.

**Slot**: `table` (N, C). **Learns**: `weight` (k, C), initially uniform in ±1/sqrt(k) as in the released code. The bias
of that code's map is left out.

**Options**
- `edges`: the edges of the undirected graph, as a flat list of nodes u1, v1, u2, v2, ...: edge i connects the nodes ui
  and vi. Nodes are numbered 0 .. N-1, where N is the length. For example, `edges=0,1,1,2,2,0` is a triangle. A repeated
  edge counts once. Default: the path 0-1-2-...
- `count`: k, the number of eigenvectors.
- `normalisation`: `normalised` or `combinatorial`, the two forms of L.
- `sign`: which entry of an eigenvector is made positive. `largest`: the entry with the largest absolute value. `first`:
  the first entry with at least 0.6 times the largest absolute value; with this rule, the eigenvectors of the path keep
  their signs when the path grows. Absolute values that differ by less than 1e-9 of the largest count as equal. The
  first of equal entries is used.
- `scale`: multiplies the table.

The table depends on the edges only: `positions` must not be given, and `start` has no effect.

**Choice of eigenvectors.** The eigenvectors of each connected component are computed separately and have norm 1. The
eigenvector with eigenvalue 0 is left out. The rows of a component therefore do not depend on other components. The row
of a node without edges is zero. In a component with fewer than k + 1 nodes, the missing eigenvectors are replaced by
zeros. Eigenvalues that differ by at most 1e-9 of the largest one count as one repeated eigenvalue. Its eigenvectors are
determined only up to a rotation, so they are chosen by a rule that depends only on the eigenspace and the order of
nodes. Let P be the projector on the eigenspace. The first vector is the column of P at the node v with the largest
P_vv, divided by its norm. Its projector is subtracted from P, and the next vector is chosen in the same way. If an
eigenvalue is repeated, renumbering the nodes may change the rows, and a remark says so.

**Past the training length**: resized. The eigenvectors of the path stretch over its length, so all rows change when the
path grows. Up to a factor, the entry of eigenvector t at node p is cos(pi t (p + 1/2)/N) for D - A. For the normalised
form it is cos(pi t p/(N - 1)) times the square root of the degree. If the graph is given by `edges`, a longer sequence
adds nodes without edges, and their rows are zero.

**Speed.** The eigenvectors of the path are computed by these formulas at any length. In a graph given by `edges`, a
connected component may have at most 2048 nodes, because its Laplacian is stored as a dense matrix. The vectors are
computed once and cached.
"""

from typing import Any

import numpy as np

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Needs
from fastpe.encodings.parts import eigenvectors, graphs, learned_map
from fastpe.encodings.parts.graphs import Edges
from fastpe.encodings.slots import Spec


def check(spec: Spec, *, edges: Edges, **options: Any) -> None:
    """Check that `edges` is a graph, and that no connected component is too large for a dense matrix."""
    eigenvectors.check(spec, edges)


def remarks(spec: Spec, *, edges: Edges, count: int, normalisation: str, sign: str, scale: float) -> tuple[str, ...]:
    """Remark on missing eigenvectors, and on those that depend on a convention."""
    return eigenvectors.remarks(eigenvectors.of_laplacian(spec.length, edges, count, normalisation, sign), count)


def parameters(spec: Spec, *, count: int, **options: Any) -> dict[str, tuple[int, ...]]:
    """A row for each eigenvector."""
    return {"weight": (count, spec.dim)}


def init(spec: Spec, rng: Any, *, count: int, **options: Any) -> dict[str, Any]:
    """Uniform in ±1/sqrt(k)."""
    return {"weight": (2 * rng.uniform((count, spec.dim)) - 1) / np.sqrt(count)}


def reference(
    spec: Spec, params: dict[str, Any], *, edges: Edges, count: int, normalisation: str, sign: str, scale: float
) -> dict[str, Any]:
    """Dwivedi and Bresson 2020, with explicit projectors on the eigenspaces of each component."""
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
    """The error of an eigenvector is the rounding of the matrix divided by the gap to the next eigenvalue."""
    return eigenvectors.error(eigenvectors.of_laplacian(spec.length, edges, count, normalisation, sign))


ENCODING = Encoding(
    summary="Laplacian eigenvectors of a graph, mapped",
    formula=r"""
        \mathrm{PE} &= \mathrm{scale}\, [u_1 \dots u_k]\, \mathrm{weight} \\
        L u_t &= \lambda_t u_t, \quad 0 = \lambda_0 < \lambda_1 \le \lambda_2 \le \dots \\
        L &= I - D^{-1/2} A D^{-1/2} \quad \text{or} \quad D - A \\
        A &\text{ the adjacency matrix, } D \text{ the degrees}
    """,
    use_when="inputs are undirected graphs, and a node's place in the whole graph matters",
    also_called=("LapPE", "Laplacian eigenvectors"),
    use="other",
    needs=Needs("graph", "the graph is the path from the first token to the last"),
    slots=("table",),
    options={
        "edges": graphs.EDGES,
        "count": eigenvectors.COUNT,
        "normalisation": eigenvectors.NORMALISATION,
        "sign": Option("largest", "which entry is made positive", str, ("largest", "first")),
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="resized",
    moves=lambda *, edges, **options: edges is None,
    direction="yes",
    source="Dwivedi and Bresson 2020, arXiv:2012.09699, sections 2.2 and 2.3, eqs. (1) and (3)",
    ulp=_error,
)
