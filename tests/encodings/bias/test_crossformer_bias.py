"""A normalised network of the offset of two cells: printed values, unit by unit, gradients, grids and positions."""

import math

import numpy as np
import pytest

import fastpe

DOUBLE = {"dtype": np.float64}


def printed_parameters() -> dict[str, np.ndarray]:
    """Parameter n, in the order of the modules, is cos(0.6 k + n) over its entries; maps have outputs first."""
    shapes = [(4, 2), (4,), *([(4,), (4,), (4, 4), (4,)] * 2), (4,), (4,), (2, 4), (2,)]
    every = [np.cos(0.6 * np.arange(math.prod(shape)) + n).reshape(shape) for n, shape in enumerate(shapes)]
    w_in, b_in, weight1, bias1, w1, b1, weight2, bias2, w2, b2, weight3, bias3, w_out, b_out = every
    return {
        "w_in": w_in.T, "b_in": b_in, "w": np.stack([w1.T, w2.T]), "b": np.stack([b1, b2]), "w_out": w_out.T,
        "b_out": b_out, "norm_weight": np.stack([weight1, weight2, weight3]),
        "norm_bias": np.stack([bias1, bias2, bias3]),
    }  # fmt: skip


PRINTED = {
    (0, 0): [3.305640986, -2.138397924],
    (1, -2): [3.263319511, -2.086809479],
    (-3, 1): [3.860937706, -2.392206758],
}


@pytest.mark.parametrize("reference", [False, True])
def test_printed_values(reference: bool) -> None:
    request = {"heads": 2, "hidden": 4, "params": printed_parameters(), "reference": reference, **DOUBLE}
    slots = fastpe.build("crossformer_bias", 12, grid=(4, 3), **request)
    bias = slots["values"][:, slots["index"]]
    for (dy, dx), printed in PRINTED.items():
        query, key = 3 * max(dy, 0) + max(dx, 0), 3 * max(-dy, 0) + max(-dx, 0)
        np.testing.assert_allclose(bias[:, query, key], printed, rtol=0, atol=5.1e-10)
        scores = fastpe.build("crossformer_bias", 2, positions=[[0.5 + dy, 0.5 + dx], [0.5, 0.5]], **request)["scores"]
        np.testing.assert_allclose(scores[:, 0, 1], printed, rtol=0, atol=5.1e-10)


def by_units(params: dict, dy: float, dx: float) -> list[float]:
    """The network with plain numbers."""
    width = len(params["b_in"])
    z = [dy * params["w_in"][0, k] + dx * params["w_in"][1, k] + params["b_in"][k] for k in range(width)]
    maps = [*zip(params["w"], params["b"], strict=True), (params["w_out"], params["b_out"])]
    for layer, (w, b) in enumerate(maps):
        mean = sum(z) / width
        deviation = math.sqrt(sum((x - mean) ** 2 for x in z) / width + 1e-5)
        weight, bias = params["norm_weight"][layer], params["norm_bias"][layer]
        units = [max(weight[k] * (z[k] - mean) / deviation + bias[k], 0) for k in range(width)]
        z = [sum(units[k] * w[k, c] for k in range(width)) + b[c] for c in range(len(b))]
    return [float(x) for x in z]


@pytest.mark.parametrize("width", [1, 3, 9])
def test_the_network_computed_unit_by_unit(width: int) -> None:
    params = fastpe.init("crossformer_bias", heads=3, dim=48, train_length=6, hidden=width, **DOUBLE)
    rng = np.random.default_rng(6)
    params = {name: value + rng.normal(size=value.shape) for name, value in params.items()}
    slots = fastpe.build("crossformer_bias", 6, heads=3, dim=48, grid=(2, 3), hidden=width, params=params, **DOUBLE)
    bias = slots["values"][:, slots["index"]]
    for a, b in np.ndindex(6, 6):
        expected = by_units(params, a // 3 - b // 3, a % 3 - b % 3)
        np.testing.assert_allclose(bias[:, a, b], expected, rtol=1e-12, atol=1e-12)


def test_at_first_all_offsets_in_one_direction_share_a_bias() -> None:
    """And no longer once b_in is there, as its page says; (0, 0) has a bias of its own."""
    request = {"heads": 2, "dim": 128, "positions": [[0, 0], [1, 2], [7, 14], [2, 1]], **DOUBLE}
    params = fastpe.init("crossformer_bias", heads=2, dim=128, train_length=4, **DOUBLE)
    same, other = (fastpe.build("crossformer_bias", 4, params=params | {"b_in": b_in}, **request)["scores"][:, :, 0]
                   for b_in in (0.0 * params["b_in"], 0.1 * np.arange(8)))  # fmt: skip
    np.testing.assert_allclose(same[:, 1], same[:, 2], atol=1e-6)
    assert np.abs(same[:, 1] - same[:, 3]).max() > 1e-3
    assert np.abs(other[:, 1] - other[:, 2]).max() > 1e-3
    np.testing.assert_array_equal(same[:, 0], 0)


def test_the_bias_is_bounded_by_the_last_map() -> None:
    """As its page says: normalised values have at most the root of K, whatever the offset."""
    params = fastpe.init("crossformer_bias", heads=2, dim=128, train_length=4, **DOUBLE)
    request = {"heads": 2, "dim": 128, "positions": [[0, 0], [1e6, -3e5]], "params": params, **DOUBLE}
    far = fastpe.build("crossformer_bias", 2, **request)
    most = math.sqrt(8) * np.abs(params["w_out"]).sum(axis=0)
    assert (np.abs(far["scores"]).max(axis=(1, 2)) <= most).all()
