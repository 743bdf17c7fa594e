"""Eigenvectors of a graph's Laplacian, mapped by networks that are invariant to their signs, added to the embeddings.

    PE[v] = rho([phi(u_1[v]) + phi(-u_1[v]), .., phi(u_k[v]) + phi(-u_k[v])])
    phi(x) = W_out relu(.. relu(W relu(w_in x + b_in) + b) ..) + b_out,      rho in the same way, from k p numbers to C

u_1, u_2, .. are the eigenvectors of `laplacian`. All eigenvectors share one network phi, which maps a single entry of
an eigenvector to p numbers.

Source: Lim, Robinson, Zhao, Smidt, Sra, Maron and Jegelka 2022, "Sign and Basis Invariant Networks for Spectral Graph
Representation Learning" (arXiv:2202.13013); cptq/SignNet-BasisNet, GraphPrediction/layers/deepsigns.py.

**Slot**: `table` (N, C). **Learns**, shared by all layers: `phi_w_in`, `phi_b_in` (K,), `phi_w` (L-1, K, K), `phi_b`
(L-1, K), `phi_w_out` (K, p) and `phi_b_out` (p,). The parameters of rho are named in the same way; `rho_w_in` is (k p,
K), `rho_w_out` (K, C) and `rho_b_out` (C,). With L = 1 there are no `phi_w`, `phi_b`, `rho_w` and `rho_b`. All are
initially uniform in ±1/sqrt(fan in).

**Options**
- `edges`: the edges of the undirected graph, as a flat list of nodes u1, v1, u2, v2, ...: edge i joins the nodes ui and
  vi. Nodes are numbered 0 .. N-1, where N is the length. For example, `edges=0,1,1,2,2,0` is a triangle. A repeated
  edge counts once. Default: the path 0-1-2-...
- `count`: k, the number of eigenvectors; 16 in the authors' code for ZINC.
- `normalisation`: the form of the Laplacian, `normalised` or `combinatorial`, as for `laplacian`.
- `hidden`: K, the hidden width of both networks; 64 in the authors' code.
- `width`: p, the number of outputs of phi; 4 in the authors' code.
- `depth`: L, the number of hidden layers of each network. The authors use 7, and batch normalisation, which is left out
  here.

The edges alone determine the place of a node: `positions` must not be given, and `start` has no effect.

**Choice of eigenvectors.** Changing the sign of an eigenvector leaves every bit of the table unchanged. If an
eigenvalue repeats, any rotation of its eigenvectors is also valid, and the networks are not invariant to rotations. As
in `laplacian`, the chosen eigenvectors then depend on the order of the nodes, and a remark says so. The authors'
BasisNet, which uses projectors on eigenspaces instead, is not implemented.

**Past the training length**: resized, as for `laplacian`: when the default path grows, all its rows change. If there
are fewer than k eigenvectors, phi reads zeros in place of the missing ones. At nodes without edges, all inputs of phi
are zeros.

**Traps.** Here phi reads each node separately, so the sum of phi for both signs depends only on |u_t[v]|. Two nodes
whose entries differ only in sign cannot be distinguished, for example mirrored nodes of the path. For molecules, the
authors use a graph network as phi. It also reads a node's neighbours, so it can detect where the sign changes. Without
a causal mask the model cannot tell left from right. Entries of eigenvectors are as small as 1/sqrt(N), so initially the
biases of phi outweigh them. Batch normalisation would prevent this.

**Speed.** With one hidden layer, the networks take about 4 k K (p + 1) + 2 K (k p + C) operations for each node. Every
further hidden layer adds 4 k K^2. Gradients make this three times as many. The eigenvectors are computed and cached as
for `laplacian`, so a connected component may have at most 2048 nodes.
"""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from fastpe.base.initial_values import initial_values
from fastpe.base.option import Option
from fastpe.encodings.encoding import Encoding, Needs
from fastpe.encodings.parts import eigenvectors, graphs
from fastpe.encodings.parts.graphs import Array, Edges
from fastpe.encodings.parts.offsets import stream_of
from fastpe.encodings.slots import Spec
from fastpe.kernels.arrays import column_sums, gemm
from fastpe.kernels.products.float_gemm import FROM, RELU, WHERE_POSITIVE

Maps = list[tuple[Array, Array]]
"""Weights and biases of the maps of a network, in order."""

_BLOCK = 2**17  # hidden units computed together


def check(spec: Spec, *, edges: Edges, **options: Any) -> None:
    """Check that `edges` is a graph, and that no connected component is too large for a dense matrix."""
    eigenvectors.check(spec, edges)


def remarks(spec: Spec, *, edges: Edges, count: int, normalisation: str, **options: Any) -> tuple[str, ...]:
    """Remark on missing eigenvectors, and on those that depend on a convention."""
    return eigenvectors.remarks(_basis(spec, edges, count, normalisation), count)


def parameters(
    spec: Spec, *, count: int, hidden: int, width: int, depth: int, **options: Any
) -> dict[str, tuple[int, ...]]:
    """Both networks."""
    inner = {"w": (depth - 1, hidden, hidden), "b": (depth - 1, hidden)} if depth > 1 else {}
    both = {
        "phi": {"w_in": (hidden,), "b_in": (hidden,), **inner, "w_out": (hidden, width), "b_out": (width,)},
        "rho": {
            "w_in": (count * width, hidden), "b_in": (hidden,), **inner,
            "w_out": (hidden, spec.dim), "b_out": (spec.dim,),
        },
    }  # fmt: skip
    return {f"{name}_{key}": shape for name, network in both.items() for key, shape in network.items()}


def init(spec: Spec, rng: Any, *, count: int, hidden: int, width: int, **options: Any) -> dict[str, Any]:
    """Uniform in ±1/sqrt(fan in)."""
    own = parameters(spec, count=count, hidden=hidden, width=width, **options)
    entering = {"phi_w_in": 1, "phi_b_in": 1, "rho_w_in": count * width, "rho_b_in": count * width}
    return {
        name: initial_values("uniform", stream_of(rng, name), "weight", shape, (entering.get(name, hidden), hidden))
        for name, shape in own.items()
    }


def reference(
    spec: Spec, params: dict[str, Any], *, edges: Edges, count: int, normalisation: str, **options: Any
) -> dict[str, Any]:
    """The formula above, computed one node at a time."""

    def network(name: str, x: Array) -> Array:
        own = {key.removeprefix(f"{name}_"): value for key, value in params.items() if key.startswith(name)}
        x = np.maximum(x @ own["w_in"].reshape(len(x), -1) + own["b_in"], 0)
        for w, b in zip(own.get("w", ()), own.get("b", ()), strict=True):
            x = np.maximum(x @ w + b, 0)
        return x @ own["w_out"] + own["b_out"]

    rows = [
        network("rho", np.concatenate([network("phi", np.array([u])) + network("phi", np.array([-u])) for u in node]))
        for node in eigenvectors.by_projectors(spec.length, edges, count, normalisation, "largest")
    ]
    return {"table": np.array(rows)}


def fill(
    spec: Spec, params: dict[str, Any], out: dict[str, Any], *, edges: Edges, count: int, normalisation: str,
    **options: Any,
) -> None:  # fmt: skip
    """Fill `table`."""
    phi, rho = _maps(params, "phi"), _maps(params, "rho")
    for rows, entries in _blocks(_basis(spec, edges, count, normalisation).vectors, phi):
        made = _of_both_signs(_forward(entries, phi)[0], count)
        out["table"][rows] = _forward(made, rho)[0]


def pull(
    spec: Spec, params: dict[str, Any], dslots: dict[str, Any], dparams: dict[str, Any], *, edges: Edges, count: int,
    normalisation: str, **options: Any,
) -> None:  # fmt: skip
    """Backpropagate through rho, and through phi for both signs."""
    phi, rho = _maps(params, "phi"), _maps(params, "rho")
    dphi, drho = ([(np.zeros(w.shape), np.zeros(b.shape)) for w, b in maps] for maps in (phi, rho))
    for rows, entries in _blocks(_basis(spec, edges, count, normalisation).vectors, phi):
        made, of_phi = _forward(entries, phi)
        of_rho = _forward(_of_both_signs(made, count), rho)[1]
        dunits = _backward(np.ascontiguousarray(dslots["table"][rows], np.float64), of_rho, rho, drho)
        dmade = gemm(dunits, rho[0][0].T)
        _backward(np.tile(dmade.reshape(-1, made.shape[1]), (2, 1)), of_phi, phi, dphi)
    for name, found in (("phi", dphi), ("rho", drho)):
        for key, gradient in _named(found).items():
            target = dparams[f"{name}_{key}"]
            target += gradient.reshape(target.shape)


def _basis(spec: Spec, edges: Edges, count: int, normalisation: str) -> eigenvectors.Basis:
    return eigenvectors.of_laplacian(spec.length, edges, count, normalisation, "largest")


def _maps(params: dict[str, Any], name: str) -> Maps:
    own = {key: np.asarray(value, np.float64) for key, value in params.items() if key.startswith(name)}
    first = own[f"{name}_w_in"].reshape(-1, own[f"{name}_b_in"].size), own[f"{name}_b_in"]
    inner = zip(own.get(f"{name}_w", ()), own.get(f"{name}_b", ()), strict=True)
    return [first, *inner, (own[f"{name}_w_out"], own[f"{name}_b_out"])]


def _named(maps: Maps) -> dict[str, Array]:
    """The arrays of a network by name, without the prefix `phi_` or `rho_`."""
    (w_in, b_in), *inner, (w_out, b_out) = maps
    between = {"w": np.stack([w for w, _ in inner]), "b": np.stack([b for _, b in inner])} if inner else {}
    return {"w_in": w_in, "b_in": b_in, **between, "w_out": w_out, "b_out": b_out}


def _blocks(vectors: Array, phi: Maps) -> Iterator[tuple[slice, Array]]:
    """Yield some nodes, and the entries of all eigenvectors there: first as they are, then negated,
    `(2 * nodes * k, 1)`."""
    nodes, count = vectors.shape
    most = max(1, _BLOCK // (2 * count * len(phi[0][1])))
    for start in range(0, nodes, most):
        rows = slice(start, min(start + most, nodes))
        entries = vectors[rows].reshape(-1, 1)
        yield rows, np.concatenate([entries, -entries])


def _of_both_signs(made: Array, count: int) -> Array:
    """The sums of phi over both signs for all entries of each node, (nodes, k p)."""
    ahead, behind = np.split(made, 2)
    return (ahead + behind).reshape(len(ahead) // count, -1)


def _forward(x: Array, maps: Maps) -> tuple[Array, list[Array]]:
    """The output of a network for each row, and the input of each of its maps."""
    entering = [x]
    for w, b in maps[:-1]:
        entering.append(gemm(entering[-1], w, FROM | RELU, b[None]))
    w, b = maps[-1]
    return gemm(entering[-1], w, FROM, b[None]), entering


def _backward(dout: Array, entering: list[Array], maps: Maps, found: Maps) -> Array:
    """Add the gradients of the maps to `found`; return the gradient of the first map's output, before the ReLU."""
    for number, (x, (w, _), (dw, db)) in reversed(list(enumerate(zip(entering, maps, found, strict=True)))):
        dw += gemm(x.T, dout)
        db += column_sums(dout)
        if number:
            dout = gemm(dout, w.T, WHERE_POSITIVE, e=x)
    return dout


def _error(spec: Spec, *, edges: Edges, count: int, normalisation: str, hidden: int, depth: int, **options: Any) -> Any:
    """The error of an eigenvector, propagated by both networks, plus the errors of sums whose products may cancel."""
    of_vectors = eigenvectors.error(_basis(spec, edges, count, normalisation))
    return 4.0 * of_vectors + 64.0 + 32.0 * depth * math.sqrt(hidden)


ENCODING = Encoding(
    summary="eigenvectors of a graph, invariant to their signs",
    formula=r"""
        \mathrm{PE}[v] &= \rho\left([\phi(u_1[v]) + \phi(-u_1[v]),\ \dots,\ \phi(u_k[v]) + \phi(-u_k[v])]\right) \\
        \phi(x) &= W_{\mathrm{out}}\, \mathrm{relu}(\dots \mathrm{relu}(W\, \mathrm{relu}(w_{\mathrm{in}} x +
            b_{\mathrm{in}}) + b) \dots) + b_{\mathrm{out}} \\
        \rho &\text{ in the same way, from } k p \text{ numbers to } C
    """,
    use_when="inputs are graphs, and results must not depend on the arbitrary signs of eigenvectors",
    not_to_be_confused={"BasisNet": "it is also invariant to rotations in the space of a repeated eigenvalue"},
    use="other",
    needs=Needs("graph", "the graph is the path from the first token to the last"),
    slots=("table",),
    options={
        "edges": graphs.EDGES,
        "count": Option(16, "number of eigenvectors", int, minimum=1),
        "normalisation": eigenvectors.NORMALISATION,
        "hidden": Option(64, "width of both networks", int, minimum=1),
        "width": Option(4, "number of outputs of phi for each entry", int, minimum=1),
        "depth": Option(1, "hidden layers of each network", int, minimum=1, maximum=64),
    },
    beyond="resized",
    moves=lambda *, edges, **options: edges is None,
    direction="no",
    source="Lim et al. 2022, arXiv:2202.13013",
    ulp=_error,
)
