"""Encodings that map blocks of channels: printed values, mpmath, identities, gradients, and what is refused."""

import math

import mpmath
import numpy as np
import pytest
from scipy.linalg import circulant, expm
from through_attention import assert_same_along

import fastpe

DOUBLE = {"dtype": np.float64, "heads": 1}
Q, K = np.array([1.0, 2, 3, 4]), np.array([0.5, -1, 2, 1])


def sines(*shape: int) -> np.ndarray:
    return np.sin(1 + np.arange(float(math.prod(shape)))).reshape(shape)


def of_pairs(rotors: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Rows x (N, D) times maps (N, D/2, 2, 2) of channels c and c + D/2."""
    return np.einsum("ncij,njc->nic", rotors, x.reshape(len(x), 2, -1)).reshape(x.shape)


def fope_matrices() -> dict:
    t, c = np.arange(3.0)[:, None], np.arange(3.0)
    return {
        "cosines": (np.eye(3) + 0.1 * np.cos(t - c))[None],
        "sines": (np.eye(3) + 0.1 * np.sin(1 + t + 2 * c))[None],
    }


@pytest.mark.parametrize("reference", [False, True])
def test_printed_values_of_fope(reference: bool) -> None:
    request = {
        **DOUBLE,
        "dim": 16,
        "train_length": 64,
        "learned": True,
        "params": fope_matrices(),
        "reference": reference,
    }
    slots = fastpe.build("fope", 1, positions=[5], **request)
    assert slots["pairs"] == "half"
    y = of_pairs(slots["rotors"][0], np.arange(1.0, 17)[None])[0]
    printed = [8.752269218, -8.544915419, -3.465370901, -8.0, 1.532619132, -8.0, 24.0]
    np.testing.assert_allclose(y[[0, 1, 2, 3, 8, 7, 15]], printed, rtol=0, atol=5.1e-10)
    rotors = fastpe.build("fope", 8, **request)["rotors"][0]
    i = np.arange(8.0)[:, None]
    q, k = np.sin(i + 1 + 0.5 * np.arange(16)), np.cos(0.7 * i + 0.3 * np.arange(16))
    np.testing.assert_allclose((of_pairs(rotors, q) @ of_pairs(rotors, k).T / 4)[7, 3], 2.998416083, atol=5.1e-10)


def test_frequencies_that_fope_keeps() -> None:
    """Eight of a head of 64 channels turn in 50 positions, and get pairs of their own; others are all ones."""
    rotors = fastpe.build("fope", 50, dim=64, train_length=50, **DOUBLE)["rotors"][0]
    kept = [t for t in range(32) if 10000 ** (-t / 32) >= 2 * math.pi / 50]
    assert len(kept) == 8
    assert np.ptp(rotors[:, :8], axis=0).min() > 0.01
    np.testing.assert_array_equal(rotors[:, 8:], np.broadcast_to([[1.0, -1.0], [1.0, 1.0]], (50, 24, 2, 2)))
    same = fastpe.build("fope", 50, dim=64, train_length=50, gain=0.0, **DOUBLE)["rotors"][0]
    angles = fastpe.build("rope", 50, dim=64, train_length=50, **DOUBLE)["angles"][0, :, :8]
    np.testing.assert_allclose(same[:, :8, 0, 0], np.cos(angles), atol=1e-15)  # without the random part: rotary
    np.testing.assert_allclose(same[:, :8, 1, 0], np.sin(angles), atol=1e-15)
    few = fastpe.build("fope", 3, dim=64, train_length=3, gain=0.0, **DOUBLE)["rotors"][0]
    np.testing.assert_allclose(few[:, 0, 1, 0], np.sin(np.arange(3)), atol=1e-15)  # the fastest stays
    half = fastpe.init("fope", dim=64, heads=2, train_length=2**17, learned=True, gain=0.0)["cosines"][0]
    assert half.shape == (16, 8)
    np.testing.assert_array_equal(np.argwhere(half), [[2 * i, i] for i in range(8)])
    other = fastpe.build("fope", 50, dim=64, train_length=50, draw=1, **DOUBLE)["rotors"][0]
    assert np.abs(other - rotors)[:, :8].max() > 0.1


@pytest.mark.parametrize("reference", [False, True])
def test_printed_values_of_comrope(reference: bool) -> None:
    printed = {"ld": [-0.822821284, -0.530555620, 0.203180228, -0.013916331],
               "ap": [0.849437239, 0.450496682, -0.036958153, -0.272292513]}  # fmt: skip
    for variant, row in printed.items():
        params = {"generators": sines(1, 2, 4, 4)}
        if variant == "ld":
            params["multipliers"] = np.tile([[0.5, 2.0]], (2, 1))
        rotors = fastpe.build(
            "comrope", 1, dim=8, train_length=1, positions=[[-0.25, 0.25]], coordinates=2, block=4, variant=variant,
            params=params, reference=reference, **DOUBLE,
        )["rotors"]  # fmt: skip
        np.testing.assert_allclose(rotors[0, 0, 0, 0], row, rtol=0, atol=5.1e-10)  # at (1/4, 3/4)


def test_coordinates_of_comrope_are_centres_of_cells() -> None:
    """With blocks of two the angle is s (B_10 - B_01); here the two axes, of 2 and 3 cells, in turn."""
    generators = np.zeros((1, 2, 2, 2))
    generators[0, :, 1, 0] = 1.0
    request = {**DOUBLE, "dim": 4, "block": 2, "variant": "ap", "params": {"generators": generators}}
    rotors = fastpe.build("comrope", 6, train_length=6, coordinates=2, grid=(2, 3), **request)["rotors"][0]
    rows, columns = np.divmod(np.arange(6), 3)
    angles = np.stack([(rows + 0.5) / 2, (columns + 0.5) / 3], axis=1)
    np.testing.assert_allclose(rotors[..., 1, 0], np.sin(angles), atol=1e-15)
    larger = fastpe.build("comrope", 12, train_length=6, coordinates=2, grid=(4, 3), train_grid=(2, 3), **request)
    np.testing.assert_allclose(larger["rotors"][0, :6], rotors, atol=1e-15)
    line = fastpe.build("comrope", 5, train_length=4, **request)["rotors"][0]
    np.testing.assert_allclose(line[:, 1, 1, 0], np.sin((np.arange(5) + 0.5) / 4), atol=1e-15)


@pytest.mark.parametrize("reference", [False, True])
def test_printed_values_of_liere(reference: bool) -> None:
    request = {**DOUBLE, "dim": 8, "train_length": 6, "coordinates": 2, "grid": (2, 3), "block": 4}
    params = {"generators": sines(2, 1, 2, 4, 4)}
    rotors = fastpe.build("liere", 6, params=params, reference=reference, **request)["rotors"][0]
    printed = [-0.156190751, 0.594917152, 0.772144970, 0.159593789]
    np.testing.assert_allclose(rotors[5, 0, 0], printed, rtol=0, atol=5.1e-10)
    scores = [(rotors[p, 0] @ Q) @ (rotors[p + 4, 0] @ K) for p in (0, 1)]  # one offset, two places
    np.testing.assert_allclose(scores, [6.567604037, 5.133291953], rtol=0, atol=5.1e-10)
    request |= {"class_token": True, "train_length": 7}
    with_class = fastpe.build("liere", 7, params=params, reference=reference, **request)["rotors"][0]
    np.testing.assert_allclose(with_class[0], np.broadcast_to(np.eye(4), (2, 4, 4)), atol=1e-14)
    np.testing.assert_allclose(with_class[1:], rotors, atol=1e-14)


@pytest.mark.parametrize("reference", [False, True])
def test_printed_values_of_string(reference: bool) -> None:
    upper = [math.sin(1 + 4 * i + j) for i in range(4) for j in range(i + 1, 4)]
    params = {"skew": np.array([upper]), "frequencies": np.array([[[1.0, 0.01]]])}
    slots = fastpe.build("string", 15, dim=4, params=params, reference=reference, **DOUBLE)
    basis = slots["rotors"][0, 0, 0]
    np.testing.assert_allclose(basis[0], [0.002575483, -0.318328928, -0.394794666, 0.861856851], rtol=0, atol=5.1e-10)
    np.testing.assert_allclose(basis @ basis.T, np.eye(4), atol=1e-14)

    def placed(x: np.ndarray, p: int) -> np.ndarray:
        return fastpe.rotate((basis @ x)[None], slots["angles"][0, p : p + 1])[0]

    printed = [-1.297034138, 2.444068516, 4.293868527, -1.976594193]
    np.testing.assert_allclose(placed(Q, 3), printed, rtol=0, atol=5.1e-10)
    scores = [placed(Q, 3) @ placed(K, 7), placed(Q, 10) @ placed(K, 14)]
    np.testing.assert_allclose(scores, 6.401868758, rtol=0, atol=5.1e-10)


def test_string_begins_as_rope() -> None:
    found, rope = (fastpe.build(name, 9, dim=16, train_length=9, **DOUBLE) for name in ("string", "rope"))
    np.testing.assert_array_equal(found["rotors"], np.eye(8 * 2)[None, None, None])
    np.testing.assert_allclose(found["angles"], rope["angles"], rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize("pairs", ["interleaved", "half"])
@pytest.mark.parametrize("reference", [False, True])
def test_circulant_string_is_the_exponential_of_circulant_matrices(pairs: str, reference: bool) -> None:
    """Printed values of one axis, and SciPy's exponential of two."""
    request = {**DOUBLE, "form": "circulant", "pairs": pairs, "reference": reference}

    def turned(columns: np.ndarray, x: np.ndarray, place: list) -> np.ndarray:
        where = {"positions": [place] if len(place) > 1 else place, "coordinates": len(place)}
        params = {"circulant": columns[None]}
        slots = fastpe.build("string", 1, dim=len(x), params=params, train_length=1, **where, **request)
        basis = slots["rotors"][0, 0, 0]
        np.testing.assert_allclose(basis @ basis.T, np.eye(len(x)), atol=1e-15)
        return basis.T @ fastpe.rotate((basis @ x)[None], slots["angles"][0], pairs=pairs)[0]

    printed = [0.705603160, 3.569681331, 3.294396840, 2.430318669]
    np.testing.assert_allclose(turned(np.array([[0, 0.3, -0.2, 0.5]]), Q, [3.0]), printed, rtol=0, atol=5.1e-10)
    rng = np.random.default_rng(0)
    columns, x, place = rng.normal(size=(2, 10)), rng.normal(size=10), [2.0, -0.75]
    generator = sum(p * circulant(c) for p, c in zip(place, columns, strict=True))
    np.testing.assert_allclose(turned(columns, x, place), expm(generator - generator.T) @ x, rtol=0, atol=1e-13)


def test_circulant_string_begins_as_rope_in_another_basis() -> None:
    request = {**DOUBLE, "dim": 16, "train_length": 9}
    found, rope = fastpe.build("string", 9, form="circulant", **request), fastpe.build("rope", 9, **request)
    np.testing.assert_allclose(found["angles"][..., :7], rope["angles"][..., :7], rtol=0, atol=1e-14)
    np.testing.assert_array_equal(found["angles"][..., 7], 0)  # what does not change along a head, and what alternates
    np.testing.assert_allclose(found["rotors"][0, 0, 0, -2:], 0.25 * np.array([[1] * 16, [1, -1] * 8]), atol=1e-15)
    two = fastpe.init("string", form="circulant", coordinates=2, **request)["circulant"][0]
    frequencies = -2 * np.fft.rfft(two).imag[:, 1:8]
    ladder = 10000.0 ** (-np.arange(7) / 8)
    np.testing.assert_allclose(frequencies, ladder * (np.arange(7) % 2 == [[0], [1]]), atol=1e-14)


@pytest.mark.parametrize("name", ["liere", "comrope"])
def test_exponentials_against_mpmath_far_away_too(name: str) -> None:
    positions = np.array([0.0, 3.0, -7.5, 1e6])
    request = {**DOUBLE, "dim": 5, "block": 5, "train_length": 11, "positions": positions}
    params = fastpe.init(name, dim=5, heads=1, block=5, train_length=11, dtype=np.float64)
    rotors = fastpe.build(name, 4, params=params, **request)["rotors"][0]
    b = params["generators"].reshape(5, 5)
    upper = np.triu(b, 1) if name == "liere" else b
    for p, found in zip(positions, rotors[:, 0], strict=True):
        with mpmath.workdps(40):
            x = mpmath.mpf(p) / 10 if name == "liere" else (mpmath.mpf(p) + 0.5) / 11 * params["multipliers"][0, 0]
            exact = mpmath.expm(
                mpmath.matrix((upper - upper.T).tolist()) * x, method="taylor" if abs(p) < 9 else "pade"
            )
            off = max(abs(found[i, j] - exact[i, j]) for i in range(5) for j in range(5))
        assert off <= 2e-15 * (10 + 20 * abs(float(x)))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("comrope", {"variant": "ap", "block": 2, "coordinates": 2}),
        ("liere", {"coordinates": 2, "grid": (5, 1), "class_token": True}),
        ("string", {"form": "circulant", "coordinates": 2, "grid": (2, 3), "pairs": "half"}),
    ],
)
def test_gradients_with_several_coordinates(name: str, options: dict) -> None:
    assert_same_along(name, 6, 3, dim=8, heads=2, train_length=6, **options)


def test_blocks_of_one_channel_are_not_rotated() -> None:
    """A skew matrix of one entry is 0."""
    rotors = fastpe.build("comrope", 6, dim=8, heads=2, block=1, train_length=6, dtype=np.float64)["rotors"]
    np.testing.assert_array_equal(rotors, 1.0)
