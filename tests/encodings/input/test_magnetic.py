"""The magnetic Laplacian: printed values, NumPy's eigenvectors turned by the authors' steps, and what phases say."""

import numpy as np
import pytest
from scipy import special

import fastpe
from fastpe.encodings.combined import remarks
from fastpe.encodings.registry import parse
from fastpe.encodings.slots import make_spec

EDGES = (0, 1, 1, 2, 2, 3, 0, 2)


def path(nodes: int, first: int = 0) -> tuple[int, ...]:
    return tuple(node for v in range(first, first + nodes - 1) for node in (v, v + 1))


def eigenvectors(nodes: int, count: int, **options: object) -> np.ndarray:
    """(N, k) complex: the learned map is the identity."""
    request = {"dim": 2 * count, "count": count, "dtype": np.float64, "params": {"weight": np.eye(2 * count)}}
    table = fastpe.build("magnetic", nodes, **request, **options)["table"]
    return table[:, :count] + 1j * table[:, count:]


def matrix_of(edges: tuple[int, ...], nodes: int, turn: float, normalisation: str = "combinatorial") -> np.ndarray:
    """The Laplacian entry by entry; `turn` is q as it is."""
    arcs = set(zip(edges[::2], edges[1::2], strict=True))
    found = np.zeros((nodes, nodes), complex)
    for u, v in arcs:
        found[u, v] = -1 if (v, u) in arcs else -np.exp(2j * np.pi * turn)
        found[v, u] = found[u, v].conj()
    degree = np.abs(found).sum(axis=1)
    if normalisation == "combinatorial":
        return found + np.diag(degree)
    root = np.sqrt(np.maximum(degree, 1))
    return np.eye(nodes) + found / root / root[:, None]


def random_graph(nodes: int, extra: int, seed: int = 0) -> tuple[int, ...]:
    """Connected, some of its edges both ways."""
    rng = np.random.default_rng(seed)
    arcs = [(v, int(rng.integers(v))) for v in range(1, nodes)]
    arcs += [tuple(map(int, rng.permutation(nodes)[:2])) for _ in range(extra)]
    arcs += [(v, u) for u, v in arcs[::4]]
    return tuple(node for arc in arcs for node in (arc if rng.random() < 0.5 else arc[::-1]))


# ---------------------------------------------------------------------------------------------------------------------
# Printed values


@pytest.mark.parametrize(
    ("options", "turn", "values"),
    [
        ({}, 0.25 / 4, [0.012781873, 1, 2.950825474, 4.036392652]),
        ({"q": 0.1, "absolute": True}, 0.1, [0.032441589, 1, 2.881486737, 4.086071674]),
    ],
)
def test_printed_eigenvalues(options: dict, turn: float, values: list[float]) -> None:
    v = eigenvectors(4, 4, edges=EDGES, normalisation="combinatorial", **options)
    np.testing.assert_allclose(v.conj().T @ v, np.eye(4), rtol=0, atol=1e-14)
    matrix = (v * values) @ v.conj().T
    np.testing.assert_allclose(matrix, matrix_of(EDGES, 4, turn), rtol=0, atol=2e-9)
    found = v.conj().T @ matrix_of(EDGES, 4, turn) @ v
    np.testing.assert_allclose(found, np.diag(values), rtol=0, atol=5.1e-10)


# ---------------------------------------------------------------------------------------------------------------------
# Independent ways


def turned_as_the_authors_do(vectors: np.ndarray) -> np.ndarray:
    """Their steps on what LAPACK gives, vector by vector."""
    vectors = vectors.copy()
    for vector in vectors.T:
        vector *= np.sign(vector.real[np.abs(vector.real).argmax()])
    height = vectors[:, 0].imag
    root = np.argmax(height > height.max() - 1e-12)  # the first of equal ones, where theirs is as rounding has it
    return vectors * np.exp(-1j * np.angle(vectors[root]))


@pytest.mark.parametrize("normalisation", ["normalised", "combinatorial"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("options", "turn"), [({}, 0.25 / 25), ({"q": 0.4, "absolute": True}, 0.4)])
def test_lapacks_vectors_and_the_authors_steps(normalisation: str, seed: int, options: dict, turn: float) -> None:
    edges = random_graph(25, 20, seed)
    arcs = set(zip(edges[::2], edges[1::2], strict=True))
    one_way = sum((v, u) not in arcs for u, v in arcs)
    assert 25 <= one_way < len(arcs)
    values, vectors = np.linalg.eigh(matrix_of(edges, 25, turn, normalisation))
    assert np.diff(values).min() > 1e-6
    found = eigenvectors(25, 12, edges=edges, normalisation=normalisation, **options)
    np.testing.assert_allclose(found, turned_as_the_authors_do(vectors)[:, :12], rtol=0, atol=1e-11)


@pytest.mark.parametrize("nodes", [1, 2, 3, 5, 17, 64])
@pytest.mark.parametrize("normalisation", ["normalised", "combinatorial"])
@pytest.mark.parametrize("turn", [{}, {"q": 0.21, "absolute": True}, {"q": -0.4}])
def test_the_closed_form_of_the_path_is_what_the_solver_finds(nodes: int, normalisation: str, turn: dict) -> None:
    options = {"normalisation": normalisation, **turn}
    closed, solved = eigenvectors(nodes, 7, **options), eigenvectors(nodes, 7, edges=path(nodes), **options)
    np.testing.assert_allclose(closed, solved, rtol=0, atol=1e-10)


def test_a_long_path_has_eigenvectors() -> None:
    n, phase = 4096, np.exp(2j * np.pi * 0.25 / 4095)
    v = eigenvectors(n, 8, normalisation="combinatorial")
    image = 2 * v
    image[[0, -1]] = v[[0, -1]]
    image[:-1] -= phase * v[1:]
    image[1:] -= phase.conj() * v[:-1]
    values = 2 - 2 * np.cos(np.pi * np.arange(8) / n)
    np.testing.assert_allclose(image, values * v, rtol=0, atol=1e-15)
    np.testing.assert_allclose(v.conj().T @ v, np.eye(8), rtol=0, atol=1e-13)
    np.testing.assert_allclose(np.angle(v[:, 0]), -np.pi / 2 * np.arange(n) / (n - 1), rtol=0, atol=1e-12)


# ---------------------------------------------------------------------------------------------------------------------
# What phases say


def test_no_direction_is_the_laplacian_with_its_lowest_vector() -> None:
    edges = random_graph(12, 9)
    plain = fastpe.build(
        "laplacian", 12, dim=5, count=5, edges=edges, params={"weight": np.eye(5)}, dtype=np.float64
    )["table"]  # fmt: skip
    both_ways = edges + tuple(np.array(edges).reshape(-1, 2)[:, ::-1].ravel().tolist())
    for options in ({"edges": edges, "q": 0.0}, {"edges": both_ways}):
        v = eigenvectors(12, 6, **options)
        np.testing.assert_allclose(v.imag, 0, rtol=0, atol=1e-13)
        np.testing.assert_allclose(v[:, 1:], plain * np.sign(plain[0]), rtol=0, atol=1e-12)
        assert (v[0] > 0).all()
        np.testing.assert_allclose(v[:, 0] ** 2 / (v[0, 0] ** 2), degree(both_ways) / degree(both_ways)[0], rtol=1e-12)


def degree(both_ways: tuple[int, ...]) -> np.ndarray:
    arcs = set(zip(both_ways[::2], both_ways[1::2], strict=True))
    return np.bincount([u for u, _ in arcs], minlength=12)


def test_connected_components_do_not_affect_each_other() -> None:
    alone = eigenvectors(4, 6, edges=EDGES)
    moved = tuple(node + 5 for node in EDGES)
    together = eigenvectors(9, 6, edges=EDGES + moved)
    np.testing.assert_allclose(together[:4], alone, rtol=0, atol=1e-14)
    np.testing.assert_allclose(together[5:], alone, rtol=0, atol=1e-14)
    np.testing.assert_array_equal(together[4], 0)
    np.testing.assert_array_equal(together[:, 4:], 0)


def test_a_vector_that_is_zero_at_the_root_is_positive_where_it_is_largest() -> None:
    """Leaves 1 and 2 of node 0 are alike: one vector tells them apart, and is zero elsewhere."""
    edges = (0, 1, 0, 2, 0, 3, 3, 4)
    v = eigenvectors(5, 5, edges=edges, normalisation="combinatorial")
    for vector in v.T:
        root = vector[0] if abs(vector[0]) > 1e-9 else vector[np.argmax(np.abs(vector) > np.abs(vector).max() - 1e-9)]
        assert root.real > 0
        assert abs(root.imag) < 1e-14
    assert (np.abs(v[0]) < 1e-9).any()


@pytest.mark.parametrize("q", [0.25, 0.9])
def test_repeated_eigenvalues_have_one_basis(q: float) -> None:
    """Three branches alike, of two edges each, where phases differ along a branch."""
    options = {"edges": (0, 1, 1, 2, 0, 3, 3, 4, 0, 5, 5, 6), "q": q}
    v = eigenvectors(7, 7, **options)
    np.testing.assert_allclose(v.conj().T @ v, np.eye(7), rtol=0, atol=1e-13)
    np.testing.assert_allclose(eigenvectors(7, 7, reference=True, **options), v, rtol=0, atol=1e-13)
    assert len(remarks(parse("magnetic", {**options, "count": 7}), make_spec(7))) == 1


def test_initial_values_are_cut_off_at_two_deviations() -> None:
    weight = fastpe.init("magnetic", dim=4000, train_length=4, dtype=np.float64)["weight"] * np.sqrt(10)
    assert weight.shape == (20, 4000)
    assert 1.99 < np.abs(weight).max() <= 2
    density = np.exp(-2) / np.sqrt(2 * np.pi)
    np.testing.assert_allclose(weight.var(), 1 - 4 * density / special.erf(np.sqrt(2)), rtol=0.02)
