"""The sinusoidal table against mpmath, printed values and its identities."""

import mpmath
import numpy as np
import pytest

import fastpe


def table(length: int, dim: int, **keywords: object) -> np.ndarray:
    return fastpe.build("sinusoidal", length, dim=dim, dtype=np.float64, **keywords)["table"]


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
