"""A network of the look-back as a bias: printed values, gradients at any depth, real positions."""

import numpy as np
import pytest

import fastpe


def filled(width: int, heads: int) -> dict[str, np.ndarray]:
    """Parameter n of the network, layer by layer, is cos(0.6 k + n) over its entries k; rows of maps are outputs."""
    shapes = [(width, 1), (width,), (width, width), (width,), (heads, width), (heads,)]
    w_in, b_in, w, b, w_out, b_out = (
        np.cos(0.6 * np.arange(np.prod(shape)) + n).reshape(shape) for n, shape in enumerate(shapes)
    )
    return {"w_in": w_in[:, 0], "b_in": b_in, "w": w.T[None], "b": b[None], "w_out": w_out.T, "b_out": b_out}


@pytest.mark.parametrize(
    ("logarithm", "printed"), [(False, [1.590105021, 0.205237577]), (True, [0.858008851, 0.185912288])]
)
@pytest.mark.parametrize("reference", [False, True])
def test_printed_biases(logarithm: bool, printed: list[float], reference: bool) -> None:
    bias = fastpe.build(
        "dynamic_bias", 4, heads=2, hidden=3, logarithm=logarithm, params=filled(3, 2), reference=reference,
        dtype=np.float64,
    )["bias"]  # fmt: skip
    np.testing.assert_allclose([bias[0, 3 - 2], bias[1, 3 + 2]], printed, rtol=0, atol=2e-7)  # made in float32


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("given", [False, True])
def test_gradients_are_slopes(depth: int, given: bool) -> None:
    rng = np.random.default_rng(9)
    request = {"heads": 2, "dim": 12, "depth": depth, "logarithm": depth == 2, "dtype": np.float64}
    request |= {"positions": rng.uniform(-3, 3, (2, 5))} if given else {}
    params = fastpe.init("dynamic_bias", heads=2, dim=12, depth=depth, dtype=np.float64, train_length=9)
    assert params["w_in"].shape == (3,)
    slot, shape = ("scores", (2, 2, 5, 5)) if given else ("bias", (2, 9))
    dslot = rng.normal(size=shape)
    found = fastpe.pull("dynamic_bias", 5, {slot: dslot}, params=params, **request)
    for key, value in params.items():
        for place in np.ndindex(value.shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = {each: array.copy() for each, array in params.items()}
                moved[key][place] += step
                built = fastpe.build("dynamic_bias", 5, params=moved, reference=True, **request)[slot]
                ends.append(float((built * dslot).sum()))
            np.testing.assert_allclose(found[key][place], (ends[0] - ends[1]) / 2e-6, rtol=0, atol=1e-7)


def test_positions_in_a_row_have_the_biases_of_their_offsets() -> None:
    params = fastpe.init("dynamic_bias", heads=2, dtype=np.float64, train_length=9)
    request = {"heads": 2, "params": params, "dtype": np.float64}
    bias = fastpe.build("dynamic_bias", 6, **request)["bias"]
    scores = fastpe.build("dynamic_bias", 6, positions=np.arange(6.0) + 4, **request)["scores"]
    offsets = np.arange(6) - np.arange(6)[:, None]
    np.testing.assert_allclose(scores, bias[:, offsets + 5], rtol=1e-13)
    for key, value in params.items():
        limit = 1.0 if key in ("w_in", "b_in") else 0.25  # of fan in 1 and 16
        assert 0.8 * limit < np.abs(value).max() <= limit or value.size < 8
