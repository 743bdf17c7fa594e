"""Encodings of the nodes of a graph: printed values, general solvers, and what a graph must not depend on."""

import itertools
import re

import numpy as np
import pytest
from scipy import fft, sparse
from scipy.sparse import csgraph

import fastpe
from fastpe.encodings.combined import remarks
from fastpe.encodings.parts import eigenvectors as parts
from fastpe.encodings.registry import parse
from fastpe.encodings.slots import make_spec

NAMES = ["graphormer", "laplacian", "magnetic", "rrwp", "rwse", "signnet"]
C4 = (0, 1, 1, 2, 2, 3, 3, 0)


def path(nodes: int, first: int = 0) -> tuple[int, ...]:
    """The edges of a path, as an option."""
    return tuple(node for v in range(first, first + nodes - 1) for node in (v, v + 1))


def random_graph(nodes: int, edges: int) -> tuple[tuple[int, ...], np.ndarray]:
    """Edges as an option, and the adjacency matrix."""
    rng = np.random.default_rng(nodes)
    pairs = np.array([rng.permutation(nodes)[:2] for _ in range(edges)])
    matrix = np.zeros((nodes, nodes))
    matrix[pairs[:, 0], pairs[:, 1]] = matrix[pairs[:, 1], pairs[:, 0]] = 1
    return tuple(pairs.ravel().tolist()), matrix


def eigenvectors(nodes: int, count: int, **options: object) -> np.ndarray:
    """(N, k): the learned map is the identity."""
    request = {"dim": count, "count": count, "dtype": np.float64, "params": {"weight": np.eye(count)}, **options}
    return fastpe.build("laplacian", nodes, **request)["table"]


def matrix_of(adjacent: np.ndarray, normalisation: str) -> np.ndarray:
    degree = adjacent.sum(axis=1)
    if normalisation == "combinatorial":
        return np.diag(degree) - adjacent
    return csgraph.laplacian(adjacent, normed=True)


# ---------------------------------------------------------------------------------------------------------------------
# Laplacian


@pytest.mark.parametrize("edges", [None, path(4)])
def test_printed_eigenvectors_of_the_path(edges: tuple | None) -> None:
    u = eigenvectors(4, 3, edges=edges)
    np.testing.assert_allclose(u[:, 0], [0.577350269, 0.40824829, -0.40824829, -0.577350269], rtol=0, atol=5.1e-10)
    adjacent = np.eye(4, k=1) + np.eye(4, k=-1)
    values = np.diag(u.T @ matrix_of(adjacent, "normalised") @ u)
    np.testing.assert_allclose(values, [0.5, 1.5, 2], rtol=1e-14)
    u = eigenvectors(4, 3, edges=edges, normalisation="combinatorial")
    values = np.diag(u.T @ matrix_of(adjacent, "combinatorial") @ u)
    np.testing.assert_allclose(values, [0.585786438, 2, 3.414213562], rtol=0, atol=5.1e-10)
    cosines = fft.idct(np.eye(4), norm="ortho", axis=0)[:, 1:]  # DCT-II vectors, orthonormal
    np.testing.assert_allclose(np.abs(u.T @ cosines), np.eye(3), rtol=0, atol=1e-14)


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 17, 64, 99])
@pytest.mark.parametrize("normalisation", ["normalised", "combinatorial"])
@pytest.mark.parametrize("sign", ["largest", "first"])
def test_the_closed_form_of_the_path_is_what_the_solver_finds(nodes: int, normalisation: str, sign: str) -> None:
    options = {"normalisation": normalisation, "sign": sign}
    closed, solved = eigenvectors(nodes, 7, **options), eigenvectors(nodes, 7, edges=path(nodes), **options)
    np.testing.assert_allclose(closed, solved, rtol=0, atol=1e-10)


@pytest.mark.parametrize("normalisation", ["normalised", "combinatorial"])
def test_a_long_path_has_eigenvectors(normalisation: str) -> None:
    n = 4096
    u = eigenvectors(n, 8, normalisation=normalisation)
    adjacent = sparse.diags_array([np.ones(n - 1), np.ones(n - 1)], offsets=[-1, 1]).tocsr()
    image = csgraph.laplacian(adjacent, normed=normalisation == "normalised") @ u
    t = np.arange(1, 9)
    values = 1 - np.cos(np.pi * t / (n - 1)) if normalisation == "normalised" else 2 - 2 * np.cos(np.pi * t / n)
    np.testing.assert_allclose(image, values * u, rtol=0, atol=1e-15)
    np.testing.assert_allclose(u.T @ u, np.eye(8), rtol=0, atol=1e-13)


@pytest.mark.parametrize("normalisation", ["normalised", "combinatorial"])
def test_a_random_graph(normalisation: str) -> None:
    edges, adjacent = random_graph(40, 90)
    assert csgraph.connected_components(adjacent)[0] == 1
    matrix = matrix_of(adjacent, normalisation)
    u = eigenvectors(40, 6, edges=edges, normalisation=normalisation)
    np.testing.assert_allclose(matrix @ u, np.linalg.eigvalsh(matrix)[1:7] * u, rtol=0, atol=1e-12)
    np.testing.assert_allclose(u.T @ u, np.eye(6), rtol=0, atol=1e-12)
    assert (u[np.abs(u).argmax(axis=0), range(6)] > 0).all()


def test_repeated_eigenvalues_have_one_basis() -> None:
    root = np.sqrt(0.5)
    expected = np.array([[root, 0, 0.5], [0, root, -0.5], [-root, 0, 0.5], [0, -root, -0.5]])
    np.testing.assert_allclose(eigenvectors(4, 3, edges=C4), expected, rtol=0, atol=1e-15)
    values = np.linalg.eigvalsh(matrix_of(np.roll(np.eye(4), 1, 0) + np.roll(np.eye(4), -1, 0), "normalised"))
    np.testing.assert_allclose(values, [0, 1, 1, 2], atol=1e-15)
    rng = np.random.default_rng(0)
    for unit, sign in itertools.product((0, 1j), ("largest", "first")):
        space = np.linalg.qr(rng.normal(size=(9, 3)) + unit * rng.normal(size=(9, 3)))[0]
        turned = space @ np.linalg.qr(rng.normal(size=(3, 3)) + unit * rng.normal(size=(3, 3)))[0]
        one, other = parts.canonical(space, sign), parts.canonical(turned, sign)
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-14)
        np.testing.assert_allclose(one @ one.conj().T, space @ space.conj().T, rtol=0, atol=1e-14)
        np.testing.assert_allclose(one.conj().T @ one, np.eye(3), rtol=0, atol=1e-14)


def test_connected_components_do_not_affect_each_other() -> None:
    alone = eigenvectors(4, 5, edges=path(4))
    together = eigenvectors(11, 5, edges=path(4) + path(2, 4) + path(4, 7))
    np.testing.assert_allclose(together[:4], alone, rtol=0, atol=1e-14)
    np.testing.assert_allclose(together[7:], alone, rtol=0, atol=1e-14)
    np.testing.assert_allclose(together[4:6], [[np.sqrt(0.5), 0, 0, 0, 0], [-np.sqrt(0.5), 0, 0, 0, 0]], atol=1e-15)
    np.testing.assert_array_equal(together[6], 0)
    np.testing.assert_array_equal(together[:, 3:], 0)


def test_signs_of_a_growing_path() -> None:
    for nodes in range(14, 60):
        assert (eigenvectors(nodes, 6, sign="first")[0] > 0).all()
    u = eigenvectors(13, 3)  # t = 2: the middle is larger than the ends, and negative there
    assert u[6, 1] > 0 > u[0, 1]


# ---------------------------------------------------------------------------------------------------------------------
# Random walks


def returns(nodes: int, steps: int, **options: object) -> np.ndarray:
    request = {"dim": steps, "steps": steps, "learned": False, "dtype": np.float64, **options}
    return fastpe.build("rwse", nodes, **request)["table"]


@pytest.mark.parametrize("edges", [None, path(4)])
def test_printed_walks_on_the_path(edges: tuple | None) -> None:
    end, inner = [0, 0.5, 0, 0.375], [0, 0.75, 0, 0.6875]
    np.testing.assert_allclose(returns(4, 4, edges=edges), [end, inner, inner, end], rtol=0, atol=1e-15)


def test_walks_on_other_graphs() -> None:
    np.testing.assert_allclose(returns(3, 4, edges=(0, 1, 1, 2, 2, 0)), [[0, 1 / 2, 1 / 4, 3 / 8]] * 3, atol=1e-15)
    edges, adjacent = random_graph(40, 50)
    degree = adjacent.sum(axis=1)
    assert degree.min() == 0
    walk = adjacent / np.maximum(degree, 1)[:, None]
    expected = np.stack([np.diag(np.linalg.matrix_power(walk, t)) for t in range(1, 10)], axis=1)
    np.testing.assert_allclose(returns(40, 9, edges=edges), expected, rtol=0, atol=1e-15)


@pytest.mark.parametrize("nodes", [1, 2, 13, 14, 15, 16, 40])
@pytest.mark.parametrize("steps", [1, 5, 6])
def test_a_long_path_is_a_short_one_with_more_of_its_middle(nodes: int, steps: int) -> None:
    np.testing.assert_allclose(returns(nodes, steps), returns(nodes, steps, edges=path(nodes)), rtol=0, atol=1e-15)


def test_a_learned_map_of_walks() -> None:
    weight = np.random.default_rng(1).normal(size=(4, 3))
    got = fastpe.build("rwse", 6, dim=3, steps=4, params={"weight": weight}, dtype=np.float64, scale=2.0)["table"]
    np.testing.assert_allclose(got, 2 * returns(6, 4) @ weight, rtol=1e-13)
    assert remarks(parse("rwse"), make_spec(6, dim=3)) == ()
    (said,) = remarks(parse("rwse", {"learned": False}), make_spec(6, dim=3))
    assert said == "rwse: only the first 3 of 16 features have a channel"


# ---------------------------------------------------------------------------------------------------------------------
# Graphormer


def graphormer(nodes: int, **options: object) -> dict[str, np.ndarray]:
    return fastpe.build("graphormer", nodes, **{"heads": 2, "dim": 4, "dtype": np.float64, **options})


def test_printed_indices_of_the_path() -> None:
    rows = np.arange(512.0)[:, None]
    params = {"bias": rows + np.array([0, 1000]), "zin": rows * [1, 0, 0, 0], "zout": rows * [0, 1, 0, 0]}
    for edges in (None, path(4)):
        slots = graphormer(4, edges=edges, params=params)
        np.testing.assert_array_equal(slots["index"][0], [1, 2, 3, 4])
        np.testing.assert_array_equal(slots["table"][:, :2], [[2, 2], [3, 3], [3, 3], [2, 2]])
        np.testing.assert_array_equal(slots["values"][:, :4], [[0, 1, 2, 3], [1000, 1001, 1002, 1003]])


def test_shortest_paths_are_scipys() -> None:
    edges, adjacent = random_graph(300, 320)
    length = csgraph.shortest_path(sparse.csr_array(adjacent), unweighted=True)
    assert np.isinf(length).any()
    expected = np.where(np.isinf(length), 510, length) + 1
    np.testing.assert_array_equal(graphormer(300, edges=edges)["index"], expected)
    degree = adjacent.sum(axis=1).astype(int) + 1
    params = fastpe.init("graphormer", dim=4, heads=2, train_length=300, edges=edges, dtype=np.float64)
    np.testing.assert_array_equal(graphormer(300)["table"].shape, (300, 4))
    table = graphormer(300, edges=edges, params=params)["table"]
    np.testing.assert_array_equal(table, params["zin"][degree] + params["zout"][degree])


def test_paths_longer_than_the_table_share_its_last_row() -> None:
    expected = np.minimum(np.abs(np.subtract.outer(np.arange(600), np.arange(600))), 510) + 1
    np.testing.assert_array_equal(graphormer(600)["index"], expected)
    np.testing.assert_array_equal(graphormer(600, edges=path(600))["index"], expected)
    star = graphormer(600, edges=tuple(node for v in range(1, 600) for node in (0, v)))["table"]
    hub = fastpe.init("graphormer", dim=4, heads=2, train_length=600, dtype=np.float64)
    np.testing.assert_array_equal(star[0], hub["zin"][511] + hub["zout"][511])


def test_pairs_that_do_not_attend() -> None:
    # 0-1-2 and 3-4 apart: with spatial_max=2 only neighbours attend
    slots = graphormer(5, edges=(0, 1, 1, 2, 3, 4), spatial_max=2)
    q, k = np.random.default_rng(0).normal(size=(2, 1, 2, 5, 2))
    weights = np.zeros((2, 5, 5))
    for j in range(5):
        v = np.zeros((1, 2, 5, 2))
        v[:, :, j] = 1
        out = fastpe.attention(q, k, v, index=slots["index"], values=slots["values"])
        weights[:, :, j] = out[0, :, :, 0]
    near = np.eye(5) + np.eye(5, k=1) + np.eye(5, k=-1)
    near[2, 3] = near[3, 2] = 0
    np.testing.assert_array_equal(weights > 0, [near > 0] * 2)
    np.testing.assert_allclose(weights.sum(axis=2), 1, rtol=1e-14)
    assert graphormer(5)["values"].shape == (2, 512)


def test_the_virtual_node() -> None:
    params = fastpe.init("graphormer", dim=4, heads=2, train_length=4, virtual_node=True, dtype=np.float64)
    slots = graphormer(5, edges=path(4), virtual_node=True, params=params, spatial_max=3)
    score = slots["values"][:, slots["index"]]
    np.testing.assert_array_equal(score[:, 0], np.tile(params["virtual"].T, 5))
    np.testing.assert_array_equal(score[:, :, 0], np.tile(params["virtual"].T, 5))
    np.testing.assert_array_equal(score[:, 1, 1:4], params["bias"][1:4].T)
    np.testing.assert_array_equal(score[:, 1, 4], -1e30)
    plain = graphormer(4, edges=path(4), params={k: v for k, v in params.items() if k != "virtual"})
    np.testing.assert_array_equal(slots["table"], [np.zeros(4), *plain["table"]])


def test_initial_values_are_normal_and_padding_is_zero() -> None:
    params = fastpe.init("graphormer", dim=64, heads=8, train_length=9, virtual_node=True, dtype=np.float64)
    for name, value in params.items():
        if name != "virtual":
            assert not value[0].any()
            np.testing.assert_allclose(value[1:].std(), 0.02, rtol=0.03)
    assert abs(np.corrcoef(params["zin"].ravel(), params["zout"].ravel())[0, 1]) < 0.02


# ---------------------------------------------------------------------------------------------------------------------
# Of several encodings


@pytest.mark.parametrize(
    ("name", "enough", "count", "most"), [("laplacian", 9, 8, 3), ("magnetic", 10, 10, 4), ("signnet", 17, 16, 3)]
)
def test_remarks_say_what_is_missing_or_free(name: str, enough: int, count: int, most: int) -> None:
    def said(nodes: int, **options: object) -> tuple[str, ...]:
        return remarks(parse(name, options), make_spec(nodes))

    assert said(enough) == ()
    assert said(4) == (
        f"{name}: no connected component has more than {most} of {count} eigenvectors; the rest are zero",
    )
    free = f"{name}: 2 eigenvectors of repeated eigenvalues depend on the order of the nodes"
    assert said(4, edges=(0, 1, 0, 2, 0, 3), count=3) == (free,)


# ---------------------------------------------------------------------------------------------------------------------
# Graphs that are none


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("edges", "message"),
    [
        ((0, 1, 2), "'edges' must be pairs of nodes, one after the other, not 3 integers"),
        ((0, 1, 1, 5), "'edges' must name nodes from 0 to 4, but one is (1, 5)"),
        ((0, 9), "'edges' must name nodes from 0 to 4, but one is (0, 9)"),
        ((-1, 1), "'edges' must name nodes from 0 to 4, but one is (-1, 1)"),
        ((0, 1, 3, 3), "'edges' must join different nodes, but one is (3, 3)"),
    ],
)
def test_invalid_edges_are_refused(name: str, edges: tuple, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        fastpe.build(name, 5, edges=edges)


@pytest.mark.parametrize("name", NAMES)
def test_positions_are_refused_and_repeated_edges_ignored(name: str) -> None:
    with pytest.raises(ValueError, match="positions cannot be given: the nodes of a graph are placed by"):
        fastpe.build(name, 3, positions=[0, 1, 2])
    one, other = fastpe.build(name, 6), fastpe.build(name, 6, start=3)
    for slot in one:
        np.testing.assert_array_equal(one[slot], other[slot])
    again = (0, 1, 2, 3) if name == "magnetic" else (1, 0, 0, 1)
    repeated = fastpe.build(name, 6, edges=(*path(6), *again))
    for slot in one:
        np.testing.assert_allclose(repeated[slot], one[slot], rtol=0, atol=1e-6)


def test_graphs_that_are_too_large_are_refused() -> None:
    star = tuple(node for v in range(1, 9000) for node in (0, v))
    for name in ("laplacian", "magnetic", "signnet"):
        with pytest.raises(ValueError, match="connected components of at most 2048 nodes, not 9000"):
            fastpe.build(name, 9000, edges=star)
    with pytest.raises(ValueError, match="at most 8192 different nodes, not 9000"):
        fastpe.build("rwse", 9000, edges=star)
