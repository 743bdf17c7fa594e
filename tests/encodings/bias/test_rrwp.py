"""Random walks between nodes: printed values, SciPy's powers, and what the maps make of them."""

import numpy as np
from scipy import sparse

import fastpe
from fastpe.encodings.combined import remarks
from fastpe.encodings.registry import parse
from fastpe.encodings.slots import make_spec

STAR = (0, 1, 1, 2, 1, 3)


def walks(nodes: int, walk_length: int, **options: object) -> tuple[np.ndarray, np.ndarray]:
    """P (K, N, N) and its diagonals (N, K): both maps are the identity."""
    columns = max(walk_length, 2)
    sizes = {"dim": columns, "heads": columns, "walk_length": walk_length, "dtype": np.float64}
    params = {"weight": np.eye(columns), "pair_weight": np.eye(columns)}
    slots = fastpe.build("rrwp", nodes, params=params, **sizes, **options)
    return slots["scores"], slots["table"]


def test_printed_walks() -> None:
    pairs, own = walks(4, 4, edges=STAR)
    third = 1 / 3
    np.testing.assert_allclose(pairs[:, 0, 1], [0, 1, 0, 1], rtol=0, atol=1e-15)
    np.testing.assert_allclose(pairs[:, 1, 0], [0, third, 0, third], rtol=0, atol=1e-15)
    np.testing.assert_allclose(pairs[:, 0, 2], [0, 0, third, 0], rtol=0, atol=1e-15)
    np.testing.assert_allclose(own, [[1, 0, third, 0], [1, 0, 1, 0], *[[1, 0, third, 0]] * 2], rtol=0, atol=1e-15)


def test_a_walk_of_one_column_has_two() -> None:
    one, two = walks(4, 1, edges=STAR), walks(4, 2, edges=STAR)
    assert one[0].shape == (2, 4, 4)
    for found, expected in zip(one, two, strict=True):
        np.testing.assert_array_equal(found, expected)
    spec = make_spec(4)
    assert remarks(parse("rrwp", {"walk_length": 1}), spec) == (
        "rrwp: walk_length=1 has two columns, as in the authors' code",
    )
    assert remarks(parse("rrwp", {"walk_length": 2}), spec) == ()


def test_walks_are_scipys_powers() -> None:
    rng = np.random.default_rng(4)
    pairs = np.array([rng.permutation(30)[:2] for _ in range(35)])
    adjacent = sparse.coo_array((np.ones(70), np.concatenate([pairs, pairs[:, ::-1]]).T), (30, 30)).tocsr()
    adjacent.data[:] = 1
    degree = adjacent.sum(axis=1)
    assert degree.min() == 0
    onward = sparse.diags_array(1 / np.maximum(degree, 1)) @ adjacent
    powers, own = walks(30, 9, edges=tuple(pairs.ravel().tolist()))
    expected = sparse.eye_array(30)
    for step in range(9):
        np.testing.assert_allclose(powers[step], expected.toarray(), rtol=0, atol=1e-15)
        np.testing.assert_allclose(own[:, step], expected.diagonal(), rtol=0, atol=1e-15)
        expected = expected @ onward
    np.testing.assert_allclose(powers.sum(axis=2), [np.ones(30), *[(degree > 0)] * 8], rtol=0, atol=1e-14)
    np.testing.assert_allclose(own[:, 1:], fastpe.build(
        "rwse", 30, dim=8, steps=8, learned=False, edges=tuple(pairs.ravel().tolist()), dtype=np.float64
    )["table"], rtol=0, atol=1e-15)  # fmt: skip
