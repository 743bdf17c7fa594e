"""SignNet: no sign changes a bit, nodes may be renumbered, and the networks are those of the formula."""

import numpy as np
import pytest

import fastpe
from fastpe.encodings.input import signnet

GRAPH = (0, 1, 1, 2, 2, 3, 3, 4, 4, 0, 0, 2, 4, 5)  # no two eigenvalues are equal
SIZES = {"dim": 7, "count": 4, "hidden": 5, "width": 3, "dtype": np.float64}


def drawn(**options: object) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(2)
    first = fastpe.init("signnet", train_length=6, **{**SIZES, **options})
    return {name: rng.normal(size=value.shape) for name, value in first.items()}


def flipped(monkeypatch: pytest.MonkeyPatch, signs: np.ndarray) -> None:
    """From here on eigenvectors have these signs."""
    basis = signnet._basis

    def other(*request: object) -> object:
        found = basis(*request)
        return found._replace(vectors=found.vectors * signs)

    monkeypatch.setattr(signnet, "_basis", other)


@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("edges", [None, GRAPH])
def test_no_sign_changes_a_bit(depth: int, dtype: type, edges: tuple | None, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {**SIZES, "depth": depth, "dtype": dtype, "edges": edges}
    params = drawn(depth=depth)
    change = np.random.default_rng(5).normal(size=(6, 7)).astype(dtype)

    def found() -> tuple[np.ndarray, dict[str, np.ndarray]]:
        table = fastpe.build("signnet", 6, params=params, **options)["table"]
        return table, fastpe.pull("signnet", 6, {"table": change}, params=params, **options)

    table, gradients = found()
    assert np.abs(table[0] - table[1]).max() > 0.01
    for signs in ([-1, 1, 1, 1], [-1, -1, -1, -1], [1, -1, 1, -1]):
        with monkeypatch.context() as changed:
            flipped(changed, np.array(signs))
            other, others = found()
        np.testing.assert_array_equal(other, table)
        for name, gradient in gradients.items():  # the order of a sum changes
            np.testing.assert_allclose(others[name], gradient, rtol=0, atol=20 * np.finfo(dtype).eps * size(gradient))


def size(array: np.ndarray) -> float:
    return 1 + float(np.abs(array).max())


def test_phi_of_both_signs_is_added_before_rho() -> None:
    """By hand: phi(x) = (relu(x), relu(2x) + 1), rho the identity on what is positive."""
    params = {
        "phi_w_in": np.array([1.0, 2.0]), "phi_b_in": np.zeros(2), "phi_w_out": np.eye(2),
        "phi_b_out": np.array([0.0, 1.0]), "rho_w_in": np.eye(2), "rho_b_in": np.zeros(2), "rho_w_out": np.eye(2),
        "rho_b_out": np.array([10.0, 20.0]),
    }  # fmt: skip
    table = fastpe.build("signnet", 4, dim=2, count=1, hidden=2, width=2, params=params, dtype=np.float64)["table"]
    u = np.array([0.577350269, 0.40824829, 0.40824829, 0.577350269])
    np.testing.assert_allclose(table, np.stack([10 + u, 22 + 2 * u], axis=1), rtol=0, atol=1.1e-9)


def test_renumbered_nodes_have_the_same_rows() -> None:
    order, params = np.array([3, 5, 0, 4, 1, 2]), drawn()
    table = fastpe.build("signnet", 6, edges=GRAPH, params=params, **SIZES)["table"]
    moved = fastpe.build("signnet", 6, edges=tuple(order[list(GRAPH)].tolist()), params=params, **SIZES)["table"]
    np.testing.assert_allclose(moved[order], table, rtol=0, atol=1e-11)


def test_what_has_no_eigenvectors_gets_that_of_zeros() -> None:
    params = drawn()
    table = fastpe.build("signnet", 8, edges=GRAPH, params=params, **SIZES)["table"]
    np.testing.assert_array_equal(table[6], table[7])
    np.testing.assert_array_equal(table[6], fastpe.build("signnet", 1, params=params, **SIZES)["table"][0])
