"""The Legendre table against SciPy, mpmath, printed values, and orthogonality."""

import math

import numpy as np
import pytest
from scipy.special import eval_legendre

import fastpe
from fastpe.encodings.encoding import BeyondTrainingLength


def table(length: int, **keywords: object) -> np.ndarray:
    return fastpe.build("legendre", length, **{"train_length": 50, "dtype": np.float64, **keywords})["table"]


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("tanh", lambda p: math.tanh(2 * p / 50)),
        ("clamp", lambda p: 2 * min(max(p, 0), 50) / 50 - 1),
        ("linear", lambda p: 2 * p / 50 - 1),
        ("log", lambda p: 2 * min(1, math.log(1 + max(p, 0)) / math.log(51)) - 1),
    ],
)
def test_maps(name: str, formula: object) -> None:
    positions = np.array([-3, 0, 0.25, 20, 50, 50.5, 90])
    rows = table(7, map=name, gamma=2.0, positions=positions, dim=12)
    places = np.array([formula(p) for p in positions])
    np.testing.assert_allclose(rows[:, 1], places, rtol=0, atol=4e-16)
    np.testing.assert_allclose(rows, eval_legendre(np.arange(12), places[:, None]), rtol=1e-12, atol=1e-13)


def test_the_linear_map_explodes_and_is_refused_where_not_finite() -> None:
    last = table(1, map="linear", start=100, dim=64)[0, -1]
    np.testing.assert_allclose(last, 1.222279e47, rtol=1e-6)
    with pytest.raises(BeyondTrainingLength, match="map 'linear' is not finite in float32 here: P_63 at x = 3"):
        table(1, map="linear", start=100, dim=64, dtype=np.float32)
    for name in ("tanh", "clamp", "log"):
        np.testing.assert_allclose(table(1, map=name, start=10000, dtype=np.float32), 1)


def test_a_learned_gamma_begins_with_the_option() -> None:
    assert fastpe.init("legendre", train_length=50, learned=True, gamma=2.5)["gamma"].tolist() == [2.5]


def test_tanh_near_zero_near_one_and_past_it() -> None:
    y = np.concatenate([np.linspace(-3, 3, 601), np.linspace(0.29, 0.31, 99), [1e-300, 1e-9, -1e-5, 20.0, 400.0, -1e6]])
    x = fastpe.build("legendre", len(y), dim=2, train_length=1, positions=y, dtype="float64")["table"][:, 1]
    np.testing.assert_array_max_ulp(x, np.tanh(y), 4)  # of which one may be NumPy's
    np.testing.assert_array_equal(x[-3:], [1.0, 1.0, -1.0])
