"""Sandwich at large distances, and with many frequencies."""

from decimal import Decimal

import mpmath
import numpy as np
import pytest

import fastpe
from fastpe.encodings.parts import frequencies


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("positions", [(0, 1, 2**27, 99_999_989), (-5e7, 0.25, 5e7 + 1 / 3, 7e7)])
def test_the_sum_is_right_at_any_positions(positions: tuple[float, ...], reference: bool) -> None:
    request = {"dbar": 128, "divisors": (1.0,), "dtype": np.float64, "reference": reference}
    scores = fastpe.build("sandwich", 4, positions=positions, **request)["scores"][0]
    with mpmath.workdps(50):
        omega = [mpmath.mpf(10000) ** (-mpmath.mpf(t) / 64) for t in range(64)]
        for i, one in enumerate(positions):
            for j, other in enumerate(positions):
                exact = sum(mpmath.cos((other - one) * frequency) for frequency in omega)
                assert abs(float(scores[i, j]) - exact) < 4 * 2**-52 * 64


def test_many_frequencies_take_one_power(monkeypatch: pytest.MonkeyPatch) -> None:
    """A power of fifty digits takes a tenth of a millisecond: half a million of them took most of a minute."""
    powers = []

    class Counted(Decimal):
        def __pow__(self, *exponent):
            powers.append(exponent)
            return super().__pow__(*exponent)

    monkeypatch.setattr(frequencies, "Decimal", Counted)
    high, low = frequencies.frequencies(9999.0, 50_000)
    assert len(powers) == 1
    with mpmath.workdps(50):
        for t in (0, 1, 12_345, 24_999):
            exact = mpmath.mpf(9999) ** (-2 * mpmath.mpf(t) / 50_000)
            assert abs(mpmath.mpf(float(high[t])) + mpmath.mpf(float(low[t])) - exact) < exact * mpmath.mpf(2) ** -104


@pytest.mark.full("takes seconds")
def test_the_largest_dbar_is_the_reference_and_more_is_refused() -> None:
    got, exact = (fastpe.build("sandwich", 2, dbar=10**6, reference=reference)["bias"] for reference in (False, True))
    np.testing.assert_allclose(got, exact, rtol=1e-6)
    with pytest.raises(ValueError, match=r"^option 'dbar' must be an integer >= 2 and <= 1e\+06, not 1000002$"):
        fastpe.build("sandwich", 2, dbar=10**6 + 2)
