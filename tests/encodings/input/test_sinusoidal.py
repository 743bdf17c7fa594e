"""The sinusoidal table against mpmath, printed values and its identities."""

import mpmath
import numpy as np
import pytest

import fastpe


def table(length: int, dim: int, **keywords: object) -> np.ndarray:
    return fastpe.build("sinusoidal", length, dim=dim, dtype=np.float64, **keywords)["table"]


@pytest.mark.parametrize(
    ("dim", "position", "row"),
    [
        (4, 0, [0, 1, 0, 1]),
        (4, 1, [0.8414709848, 0.5403023059, 0.009999833334, 0.9999500004]),
        (
            8,
            100,
            [
                -0.5063656411,
                0.8623188723,
                -0.5440211109,
                -0.8390715291,
                0.8414709848,
                0.5403023059,
                0.09983341665,
                0.9950041653,
            ],
        ),
        (5, 1, [0.8414709848, 0.5403023059, 0.02511622291, 0.9996845379, 0.0006309573026]),
    ],
)
def test_printed_rows(dim: int, position: int, row: list[float]) -> None:
    np.testing.assert_allclose(table(1, dim, start=position)[0], row, rtol=0, atol=5.1e-11)


@pytest.mark.parametrize("base", [10000.0, 1.0, 3.7])
@pytest.mark.parametrize("dim", [6, 33])
def test_last_place_against_mpmath(dim: int, base: float) -> None:
    rng = np.random.default_rng(dim)
    limit = 2**24
    zeros = np.arange(1, 30) * 123457 * np.pi / 2  # reals next to zeros
    special = [limit, -limit, 0.5, 1e-300, -1e-9, *(float(k * np.pi / 2) for k in (1, 2, 3, 1000, 9999999)), *zeros]
    positions = np.concatenate([rng.integers(-limit, limit, 15), rng.uniform(-limit, limit, 15), special])
    exact = table(len(positions), dim, positions=positions, base=base)
    single = fastpe.build("sinusoidal", len(positions), dim=dim, positions=positions, base=base)["table"]
    with mpmath.workdps(60):
        for i, p in enumerate(positions):
            for c in range(dim):
                angle = mpmath.mpf(float(p)) / mpmath.mpf(base) ** (mpmath.mpf(2 * (c // 2)) / dim)
                value = mpmath.cos(angle) if c % 2 else mpmath.sin(angle)
                nearest = float(value)
                assert abs(mpmath.mpf(float(exact[i, c])) - value) <= np.spacing(abs(nearest)), (p, c)
                ulp32 = float(np.spacing(np.float32(abs(nearest))))
                assert abs(mpmath.mpf(float(single[i, c])) - value) <= 0.501 * ulp32, (p, c)


def test_the_reference_keeps_the_phase_too() -> None:
    positions = np.array([2**24 - 1, 12345678.25])
    got = fastpe.build("sinusoidal", 2, dim=6, positions=positions, reference=True)["table"]
    with mpmath.workdps(50):
        angles = [[mpmath.mpf(p) / mpmath.mpf(10000) ** (mpmath.mpf(t) / 3) for t in range(3)] for p in positions]
        expected = [[f(a) for a in row for f in (mpmath.sin, mpmath.cos)] for row in angles]
    np.testing.assert_allclose(got, np.array(expected, dtype=np.float64), rtol=0, atol=3e-16)
