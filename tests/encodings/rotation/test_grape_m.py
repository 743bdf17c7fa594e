"""Rotary with learned logarithms of frequencies: rope at first, mpmath, gradients, heads of their own."""

import math

import mpmath
import numpy as np
import pytest

import fastpe

DOUBLE = {"dtype": np.float64}


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("scale", [16.0, 1.0])
def test_it_begins_as_rope(shared: bool, scale: float) -> None:
    request = {"dim": 32, "heads": 2, "train_length": 30, **DOUBLE}
    found = fastpe.build("grape_m", 30, shared=shared, scale=scale, **request)
    rope = fastpe.build("rope", 30, pairs="half", **request)
    assert found["pairs"] == "half"
    assert found["angles"].shape == (1 if shared else 2, 30, 8)
    np.testing.assert_allclose(found["angles"], np.broadcast_to(rope["angles"], found["angles"].shape), atol=1e-13)
    start = fastpe.init("grape_m", shared=shared, scale=scale, **request)["log_freq"]
    np.testing.assert_allclose(start[-1], -scale * np.arange(0, 16, 2) / 16 * math.log(10000), rtol=1e-15)


@pytest.mark.parametrize("reference", [False, True])
def test_angles_of_any_logarithms(reference: bool) -> None:
    log_freq = np.array([[1.5, -2.0, 0.25]])
    angles = fastpe.build(
        "grape_m", 3, dim=6, positions=[7.0, -2.5, 1000.0], scale=2.0, params={"log_freq": log_freq},
        reference=reference, **DOUBLE,
    )["angles"][0]  # fmt: skip
    with mpmath.workdps(40):
        for row, p in zip(angles, (7.0, -2.5, 1000.0), strict=True):
            for angle, each in zip(row, log_freq[0], strict=True):
                turned = p * mpmath.exp(mpmath.mpf(each) / 2)
                right = turned - 2 * mpmath.pi * mpmath.nint(turned / (2 * mpmath.pi))
                assert abs(angle - right) < 4e-16 * max(1, abs(p) * 3)


def test_float32_is_no_less_exact_than_its_parameters() -> None:
    """At the initial values a frequency is off by some 10^-6 of itself, as the page says."""
    request = {"dim": 128, "train_length": 9}
    found, rope = (fastpe.build(name, 2, **request)["angles"][0, 1] for name in ("grape_m", "rope"))
    assert 1e-8 < np.abs(found / rope - 1).max() < 1e-6


def test_the_gradient_is_the_sum_of_positions_times_gradients_of_angles() -> None:
    change = np.ones((1, 4, 1))
    found = fastpe.pull("grape_m", 4, {"angles": change}, params={"log_freq": [[16 * math.log(0.5)]]}, dim=2, **DOUBLE)
    np.testing.assert_allclose(found["log_freq"], 0.5 / 16 * (0 + 1 + 2 + 3), rtol=1e-14)
