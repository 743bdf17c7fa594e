"""Products of positions with positions: printed values, the formula pair by pair, gradients, what is refused."""

import math

import numpy as np
import pytest
from through_attention import assert_same_along

import fastpe

DOUBLE = {"dtype": np.float64}


def sines(*shape: int) -> np.ndarray:
    return np.sin(0.37 * np.arange(float(math.prod(shape)))).reshape(shape)


def printed_parameters() -> dict[str, np.ndarray]:
    """Those of the check: maps as PyTorch has them, outputs first, and nothing added."""
    n = np.arange(64.0).reshape(8, 8)
    return {
        "position": sines(6, 8), "norm_weight": np.ones(8), "norm_bias": np.zeros(8),
        "query": np.cos(0.21 * n).T, "query_bias": np.zeros(8), "key": np.cos(1 + 0.33 * n).T, "key_bias": np.zeros(8),
    }  # fmt: skip


@pytest.mark.parametrize("reference", [False, True])
def test_printed_values(reference: bool) -> None:
    request = {"dim": 8, "heads": 2, "train_length": 5, "class_token": True, **DOUBLE}
    slots = fastpe.build("tupe", 4, params=printed_parameters(), reference=reference, **request)
    assert slots["scale"] == 1 / math.sqrt(2 * 4)
    np.testing.assert_allclose(slots["scores"][0, 0], [-1.586482249] * 4, rtol=0, atol=5.1e-10)
    printed = [-2.364761860, -2.873933637, 3.084929354, -3.209632333]
    np.testing.assert_allclose(slots["scores"][0, 1], printed, rtol=0, atol=5.1e-10)


def drawn(options: dict, train_length: int = 6) -> dict[str, np.ndarray]:
    """Parameters of which none is zero or one."""
    first = fastpe.init("tupe", dim=6, heads=2, train_length=train_length, **options, **DOUBLE)
    rng = np.random.default_rng(4)
    return {name: value + rng.normal(size=value.shape) for name, value in first.items()}


def by_pairs(params: dict, places: list[int], class_token: bool, buckets: int | None) -> np.ndarray:
    """The paper's term, one pair of tokens after the other, without a matrix."""
    heads, width = 2, 3

    def vector(row: int, name: str, head: int) -> list[float]:
        p = [float(x) for x in params["position"][row]]
        mean = sum(p) / len(p)
        deviation = math.sqrt(sum((x - mean) ** 2 for x in p) / len(p) + 1e-5)
        hat = [
            float(g) * (x - mean) / deviation + float(b)
            for x, g, b in zip(p, params["norm_weight"], params["norm_bias"], strict=True)
        ]
        channels = range(head * width, (head + 1) * width)
        return [sum(hat[a] * params[name][a, c] for a in range(len(hat))) + params[f"{name}_bias"][c] for c in channels]

    def entry(offset: int) -> int:
        """Six buckets, three a side: 0 and 1 to 11 and farther on, as sqrt(128) is 11.3."""
        return (abs(offset) > 0) + (abs(offset) > 11) + 3 * (offset > 0)

    scores = np.empty((heads, len(places), len(places)))
    for h, i, j in np.ndindex(scores.shape):
        left, right = (places[each] + class_token for each in (i, j))
        if class_token and i == 0:
            left = right = 0
        elif class_token and j == 0:
            left = right = 1
        product = sum(a * b for a, b in zip(vector(left, "query", h), vector(right, "key", h), strict=True))
        scores[h, i, j] = product / math.sqrt(2 * width)
        if buckets:
            own = entry(places[j] - places[i])
            own = buckets // 2 if class_token and i == 0 else buckets if class_token and j == 0 else own
            scores[h, i, j] += params["table"][own, h]
    return scores


@pytest.mark.parametrize("class_token", [False, True])
@pytest.mark.parametrize("buckets", [None, 6])
@pytest.mark.parametrize("places", [None, [4, 0, 17, 4, 1]])
@pytest.mark.parametrize("reference", [False, True])
def test_scores_computed_pair_by_pair(
    class_token: bool, buckets: int | None, places: list[int] | None, reference: bool
) -> None:
    options = {"class_token": class_token, "buckets": buckets, "rows": 20}
    params = drawn(options)
    found = fastpe.build(
        "tupe", 5, dim=6, heads=2, positions=places, params=params, reference=reference, **options, **DOUBLE
    )["scores"]  # fmt: skip
    expected = by_pairs(params, places or list(range(5)), class_token, buckets)
    np.testing.assert_allclose(found, expected, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("places", [None, [4, 0, 5, 4, 1]])
def test_gradients_with_buckets_and_a_class_token(places: list[int] | None) -> None:
    assert_same_along("tupe", 5, 3, dim=6, heads=2, positions=places, class_token=True, buckets=6, train_length=6)


def test_more_rows_give_more_positions() -> None:
    assert fastpe.build("tupe", 5, dim=8, train_length=4, rows=5)["scores"].shape == (1, 5, 5)
