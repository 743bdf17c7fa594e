"""CLEX: printed frequencies, the closed form, SciPy's solvers, gradients, and where it is `rope` itself."""

import math

import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.special import expit

import fastpe
from fastpe.encodings.parts import frequency_flow

FOURFOLD = {"positions": [1, 99], "train_length": 100, "original_length": 25, "heads": 1, "dtype": np.float64}


def theta(dim: int, **request: object) -> np.ndarray:
    """The frequencies at tau = 4, none of which may be above pi."""
    return fastpe.build("clex", 2, dim=dim, **{**FOURFOLD, **request})["angles"][0, 0]


def printed_maps() -> dict:
    n = np.arange(32.0)
    return {"up": 0.1 * np.sin(1 + n).reshape(4, 8), "down": 0.1 * np.cos(n).reshape(8, 4)}


@pytest.mark.parametrize("reference", [False, True])
def test_printed_frequencies(reference: bool) -> None:
    plain = theta(8, step=0.05, reference=reference)
    np.testing.assert_allclose(plain, [1, 0.052275794, 0.002732759, 0.00014285713], rtol=0, atol=5.1e-10)
    request = {"learned": True, "act": "silu", "step": 0.05, "params": printed_maps(), "reference": reference}
    printed = [1.473620625, 0.067112338, 0.002429199, 9.79805768e-5]
    np.testing.assert_allclose(theta(8, **request), printed, rtol=0, atol=5.1e-10)


def test_maps_of_zeros_give_the_closed_form() -> None:
    t = np.arange(16)
    exact = 10000.0 ** (-t / 16) * 7.0 ** (-t / 15)
    for step, bound in ((0.05, 1e-7), (0.025, 1e-8), (0.005, 2e-11)):  # of fourth order
        np.testing.assert_allclose(theta(32, step=step), exact, rtol=bound)
    first = fastpe.init("clex", dim=32, heads=1, train_length=100, original_length=25, learned=True, dtype=np.float64)
    np.testing.assert_array_equal(theta(32, learned=True, params=first), theta(32))


@pytest.mark.parametrize("act", ["tanh", "silu"])
def test_frequencies_beside_those_of_another_solver(act: str) -> None:
    rng, d = np.random.default_rng(1), 6
    up, down = 0.4 * rng.normal(size=(3, 2 * d)), 0.4 * rng.normal(size=(2 * d, 3))
    log_theta, share = -np.arange(3) / 3 * math.log(100.0), np.arange(3) / 2

    def slope(tau: float, z: np.ndarray) -> np.ndarray:
        h = (z + log_theta - share * math.log(2 * tau - 1)) @ up
        return -2 * share / (2 * tau - 1) + (np.tanh(h) if act == "tanh" else h * expit(h)) @ down

    exact = np.exp(solve_ivp(slope, (1, 4), log_theta, "DOP853", rtol=1e-12, atol=1e-12).y[:, -1])
    assert exact.max() < math.pi
    assert np.abs(exact - np.exp(log_theta - share * math.log(7))).max() > 0.1
    request = {"learned": True, "act": act, "hidden": 2, "base": 100.0, "params": {"up": up, "down": down}}
    np.testing.assert_allclose(theta(d, **request), exact, rtol=1e-7)


def test_tau_is_how_many_original_lengths_there_are() -> None:
    request = {"dim": 8, "heads": 1, "dtype": np.float64}
    rope = fastpe.build("rope", 25, pairs="half", **request)["angles"]
    np.testing.assert_array_equal(fastpe.build("clex", 25, train_length=25, **request)["angles"], rope)
    inside = fastpe.build("clex", 25, train_length=100, original_length=25, **request)["angles"]
    np.testing.assert_array_equal(inside, rope)

    def slowest(length: int, **options: object) -> float:
        return fastpe.build("clex", length, train_length=25, **request, **options)["angles"][0, 1, -1] * 1000

    for length, tau in ((26, 2), (50, 2), (51, 3), (400, 16), (1000, 16)):
        assert slowest(length) == pytest.approx(1 / (2 * tau - 1), rel=1e-8)
    assert slowest(1000, max_factor=3) == pytest.approx(1 / 5, rel=1e-8)
    assert slowest(25, learned=True) == pytest.approx(1 / 3, rel=1e-8)
    assert slowest(13, learned=True) == slowest(13)
    assert slowest(1000, max_factor=1) == rope[0, 1, -1] * 1000


def test_steps_end_at_tau() -> None:
    np.testing.assert_array_equal(frequency_flow.places(1, 0.01), [1])
    np.testing.assert_allclose(frequency_flow.places(2, 0.3), [1, 1.3, 1.6, 1.9, 2])
    for tau in range(2, 17):
        assert len(frequency_flow.places(tau, 0.01)) == 100 * (tau - 1) + 1
        assert frequency_flow.places(tau, 0.01)[-1] == tau


def test_gradients_of_samples_add_up_and_begin_with_those_of_one_map() -> None:
    rng = np.random.default_rng(0)
    request = {"dim": 16, "heads": 2, "train_length": 12, "original_length": 5, "learned": True, "dtype": np.float64}
    first = fastpe.init("clex", **request)
    positions = np.array([[0.0, 3, 11], [-2, 11, 4.5]])
    dangles = rng.normal(size=(2, 1, 3, 4))
    found = fastpe.pull("clex", 3, {"angles": dangles}, params=first, positions=positions, **request)
    alone = [
        fastpe.pull("clex", 3, {"angles": d}, params=first, positions=own, **request)
        for d, own in zip(dangles, positions, strict=True)
    ]
    np.testing.assert_allclose(found["down"], alone[0]["down"] + alone[1]["down"], rtol=1e-12)
    assert not found["up"].any()  # behind a map that is zero
    assert found["down"].all()
    within = fastpe.pull("clex", 3, {"angles": dangles[0]}, params=first, **request)
    assert not any(gradient.any() for gradient in within.values())


def test_frequencies_that_are_not_finite_are_an_error() -> None:
    params = {"up": np.zeros((4, 8)), "down": np.zeros((8, 4))}
    params["up"][3], params["down"][:, 0] = 50.0, -300.0  # the slowest drives the fastest
    with pytest.raises(OverflowError, match=r"^the ODE of .clex. gives frequencies that are not finite at tau=4"):
        theta(8, learned=True, params=params)
