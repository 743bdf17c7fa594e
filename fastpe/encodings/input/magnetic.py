"""Eigenvectors of a directed graph's magnetic Laplacian, mapped by learned weights and added to the embeddings.

    PE = scale [Re v_1 .. Re v_k, Im v_1 .. Im v_k] weight,   L v_t = lambda_t v_t,   lambda_1 <= lambda_2 <= ...
    H_uv = max(A_uv, A_vu) exp(2 pi i q (A_uv - A_vu)),   L = I - D^(-1/2) H D^(-1/2)   or   D - H

A_uv is 1 if an edge goes from u to v; D counts the neighbours of each node in either direction. An edge changes the
phase by 2 pi q, so phases distinguish upstream from downstream; a pair of opposite edges does not change the phase.

Source: Geisler, Li, Mankowitz, Cemgil, Günnemann and Paduraru 2023, "Transformers Meet Directed Graphs"
(arXiv:2302.00049); google-deepmind/digraph_transformer, utils.py, eigv_magnetic_laplacian_numba.

**Slot**: `table` (N, C). **Learns**: `weight` (2k, C), initially normal with variance 1/k, truncated at two standard
deviations. This is the authors' plain form, NaiveMagLapNet, without its two constant rows. Their usual form replaces
the linear map by a network. In this network, one ReLU layer maps each pair (Re, Im) to C/16 numbers, its outputs for v
and -v are summed, and another layer maps all these sums to C channels. For some tasks, the authors also use attention
between eigenvectors, a graph network, and eigenvalues as inputs.

**Options**
- `edges`: the edges of the directed graph, as a flat list of nodes u1, v1, u2, v2, ...: edge i goes from node ui to
  node vi. Nodes are numbered 0 .. N-1, where N is the length. For example, `edges=0,1,1,2,0,2` has the edges 0>1, 1>2
  and 0>2. A repeated edge counts once. Default: the path 0>1>2>...
- `count`: k, the number of eigenvectors.
- `q`: the change of phase along an edge, in turns, from -1 to 1. With 0, the directions of edges have no effect.
- `absolute`: whether q is used as given. By default q is divided by min(m, n), where n is the number of nodes, and m is
  the number of pairs of nodes that have an edge in one direction only. No path then changes the phase by more than q
  turns, which is a right angle for the default q.
- `normalisation`: `normalised` or `combinatorial`, the two forms of L. The authors' results use the first.
- `scale`: multiplies the table.

The table depends on the edges only: `positions` must not be given, and `start` has no effect.

**Phases.** The phase of an eigenvector is arbitrary. The authors' convention has two steps. First, v_1 is rotated so
that it is real at node 0 and its real part of largest absolute value is positive. Second, every eigenvector is rotated
so that it is real and positive at the node where the imaginary part of v_1 is largest. If several nodes have this
largest value, the first of them is used. (The authors' code relies on LAPACK to return a v_1 that is real at node 0.) A
vector that is zero at the chosen node is rotated so that it is real and positive where its absolute value is largest.

Each connected component has its own min(m, n) and its own eigenvectors of norm 1. The node with the lowest number takes
the role of node 0. The rows of a component therefore do not depend on other components. The row of a node without edges
is zero. If two eigenvalues differ by at most 1e-9 of the largest one, their eigenvectors depend on the order of the
nodes, as in `laplacian`, and a remark says so.

**Past the training length**: resized. The eigenvectors of the path are those of `laplacian`, including the one with
eigenvalue 0, but the entry of node p is multiplied by exp(-2 pi i q p). By default q is divided by N - 1 here. These
vectors stretch over the length of the path, so all rows change when the path grows. If the graph is given by `edges`, a
longer sequence adds nodes without edges, and their rows are zero.

**Traps.** The node with the largest imaginary part may change with the order of nodes, and then the phases of all
vectors change. With a large q, phases wrap around, and the direction of a long path can no longer be told from them.

**Speed.** The eigenvectors of the path have a closed form at any length. In a graph given by `edges`, a connected
component may have at most 2048 nodes, because its Laplacian is stored as a dense matrix. The matrix is complex, so
computing its eigenvectors takes about four times as long as for `laplacian`. The eigenvectors are computed once and
cached.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
from scipy import special

from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Needs
from fastpe.encodings.parts import eigenvectors, graphs, learned_map
from fastpe.encodings.parts.eigenvectors import Basis, Part
from fastpe.encodings.parts.graphs import Array, Edges
from fastpe.encodings.slots import Spec

_NOTHING = 1e-9  # entries of unit vectors below this count as zero


def check(spec: Spec, *, edges: Edges, **options: Any) -> None:
    """Check that `edges` is a graph, and that no connected component is too large for a dense matrix."""
    eigenvectors.check(spec, edges)


def remarks(spec: Spec, *, scale: float, **options: Any) -> tuple[str, ...]:
    """Remark on missing eigenvectors, and on those that depend on a convention."""
    return eigenvectors.remarks(_basis(spec.length, **options), options["count"])


def parameters(spec: Spec, *, count: int, **options: Any) -> dict[str, tuple[int, ...]]:
    """A row for each real and each imaginary part."""
    return {"weight": (2 * count, spec.dim)}


def init(spec: Spec, rng: Any, *, count: int, **options: Any) -> dict[str, Any]:
    """Normal with variance 1/k, truncated at two standard deviations."""
    below = special.ndtr(-2.0)
    return {"weight": special.ndtri(below + (1 - 2 * below) * rng.uniform((2 * count, spec.dim))) / np.sqrt(count)}


def reference(
    spec: Spec, params: dict[str, Any], *, edges: Edges, count: int, q: float, absolute: bool, normalisation: str,
    scale: float,
) -> dict[str, Any]:  # fmt: skip
    """The eigenvectors of the printed matrix of each component; phases are fixed for one vector at a time."""
    directed = graphs.dense(spec.length, edges, directed=True)
    found = np.zeros((spec.length, count), complex)
    for nodes in eigenvectors.together(np.maximum(directed, directed.T)):
        if len(nodes) == 1:
            continue
        a = directed[np.ix_(nodes, nodes)]
        both = a + a.T
        both = np.where((a != 0) & (a.T != 0), both / 2, both)
        turn = q if absolute else q / max(min((a != a.T).sum() / 2, len(nodes)), 1)
        degree = both.sum(axis=0)
        matrix = np.diag(degree) - both * np.exp(2j * np.pi * turn * (a - a.T))
        if normalisation == "normalised":
            matrix = matrix / np.sqrt(degree)[:, None] / np.sqrt(degree)
        vectors = eigenvectors.projected(matrix, 0, count)
        first = vectors[:, 0] * np.exp(-1j * np.angle(vectors[0, 0] if abs(vectors[0, 0]) > _NOTHING else 1))
        size = np.abs(first.real)
        first = first * np.sign(first.real[np.flatnonzero(size >= (1 - _NOTHING) * size.max())[0]])
        root = np.flatnonzero(first.imag >= first.imag.max() - _NOTHING)[0]
        for column, vector in enumerate(vectors.T):
            phase = np.angle(vector[root]) if abs(vector[root]) > _NOTHING else 0.0
            found[nodes, column] = vector * np.exp(-1j * phase)
    return {"table": scale * (np.concatenate([found.real, found.imag], axis=1) @ params["weight"])}


def fill(spec: Spec, params: dict[str, Any], out: dict[str, Any], *, scale: float, **options: Any) -> None:
    """Fill `table`."""
    learned_map.fill(_basis(spec.length, **options).vectors, params["weight"], scale, out["table"])


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, scale: float, **options: Any
) -> None:
    """dweight = the real and imaginary parts, transposed, times dtable."""
    learned_map.pull(_basis(spec.length, **options).vectors, scale, dslots["table"], dparams["weight"])


@lru_cache(maxsize=8)
def _basis(length: int, edges: Edges, count: int, q: float, absolute: bool, normalisation: str) -> Basis:
    """The real parts, then the imaginary parts, (N, 2k)."""
    if edges is None:
        basis = _of_path(length, count, q if absolute else q / max(length - 1, 1), normalisation)
    else:
        components = eigenvectors.parts(
            graphs.arcs(length, edges), lambda a: _laplacian(a, q, absolute, normalisation), 0, count
        )
        basis = eigenvectors.joined(map(_turned, components), length, count, complex)
    vectors = np.concatenate([basis.vectors.real, basis.vectors.imag], axis=1)
    vectors.flags.writeable = False
    return basis._replace(vectors=vectors)


def _laplacian(a: Array, q: float, absolute: bool, normalisation: str) -> Array:
    one_way, both = a - a.T, np.maximum(a, a.T)
    turn = q if absolute else q / max(min(int(np.abs(one_way).sum()) // 2, len(a)), 1)
    degree = both.sum(axis=1)
    turning = both * np.exp(2j * np.pi * turn * one_way)
    if normalisation == "combinatorial":
        return np.diag(degree) - turning
    root = np.sqrt(degree)
    return np.eye(len(a)) - turning / np.outer(root, root)


def _of_path(length: int, count: int, q: float, normalisation: str) -> Basis:
    """On a path the phases of edges can be moved to the nodes: the eigenvectors are those of `laplacian`, each entry
    times the phase of its node."""
    plain = eigenvectors.of_path(length, count - 1, normalisation, "largest")
    degree = np.full(length, 2.0 if normalisation == "normalised" else 1.0)
    degree[[0, -1]] = 1.0
    phase = np.exp(-2j * np.pi * np.remainder(q * np.arange(length), 1.0))
    vectors = np.column_stack([np.sqrt(degree / degree.sum()), plain.vectors])[:, :length] * phase[:, None]
    whole = [Part(np.arange(length), vectors, 0, plain.gap)] if length > 1 else []  # a single node has zeros
    return eigenvectors.joined(map(_turned, whole), length, count, complex)


def _turned(part: Part) -> Part:
    """Apply the convention of phases to the vectors of a component.

    The phase of a vector is less accurate if it is taken from a small entry. For this reason `gap` is multiplied by the
    size of that entry relative to the largest entry of the vector, for the vector where this ratio is smallest.
    """
    vectors, size = part.vectors, np.abs(part.vectors)
    first = vectors[:, 0] * (vectors[0, 0].conj() if size[0, 0] > _NOTHING else 1)
    real = np.abs(first.real)
    first = first * np.sign(first.real[np.argmax(real >= (1 - _NOTHING) * real.max())]) / np.linalg.norm(first)
    root = int(np.argmax(first.imag >= first.imag.max() - _NOTHING))
    largest = np.argmax(size >= (1 - _NOTHING) * size.max(axis=0), axis=0)
    place = np.where(size[root] > _NOTHING, root, largest), np.arange(size.shape[1])
    least = (size[place] / size.max(axis=0)).min()
    return part._replace(vectors=vectors * (vectors[place].conj() / size[place]), gap=part.gap * float(least))


ENCODING = Encoding(
    summary="magnetic Laplacian eigenvectors of a graph, mapped",
    formula=r"""
        \mathrm{PE} &= \mathrm{scale}\, [\mathrm{Re}\, v_1 \dots \mathrm{Re}\, v_k,\ \mathrm{Im}\, v_1 \dots
            \mathrm{Im}\, v_k]\, \mathrm{weight} \\
        L v_t &= \lambda_t v_t, \quad \lambda_1 \le \lambda_2 \le \dots \\
        H_{uv} &= \max(A_{uv}, A_{vu}) \exp(2 \pi i q (A_{uv} - A_{vu})) \\
        L &= I - D^{-1/2} H D^{-1/2} \quad \text{or} \quad D - H
    """,
    use_when="inputs are directed graphs, and the directions of edges matter",
    also_called=("NaiveMagLapNet", "magnetic Laplacian eigenvectors"),
    use="other",
    needs=Needs("graph", "the graph is the directed path from the first token to the last"),
    slots=("table",),
    options={
        "edges": graphs.ARCS,
        "count": replace(eigenvectors.COUNT, default=10),
        "q": Option(0.25, "change of phase by an edge, in turns", float, minimum=-1.0, maximum=1.0, samples=(0.1,)),
        "absolute": Option(False, "whether to use q without dividing it", bool),
        "normalisation": eigenvectors.NORMALISATION,
        "scale": Option(1.0, "multiplies the table", float),
    },
    beyond="resized",
    moves=lambda *, edges, **options: edges is None,
    direction="yes",
    source="Geisler et al. 2023, arXiv:2302.00049, and released code",
    ulp=lambda spec, scale, **options: eigenvectors.error(_basis(spec.length, **options)),
)
