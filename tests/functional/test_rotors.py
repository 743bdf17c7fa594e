"""Maps of blocks of channels: the slot `rotors` of attention."""

import numpy as np
import pytest
from attention_problems import assert_agrees, problem
from skipping import N, alibi, assert_bounds_are_of_rows_as_multiplied, trained

import fastpe
from fastpe import reference


@pytest.fixture
def rng():
    return np.random.default_rng(31)


def maps(rng, d, b, h=1, length=1, dtype=np.float64):
    return (rng.standard_normal((h, length, d // b, b, b)) / np.sqrt(b)).astype(dtype)


@pytest.mark.parametrize("pairs", ["interleaved", "half"])
@pytest.mark.parametrize("b", [1, 2, 3, 4, 6, 8, 12, 24])
def test_blocks_of_any_size_agree_with_the_reference(b, pairs):
    rng = np.random.default_rng(b)
    dtype = np.float32 if b % 4 else np.float64
    for length, h in ((1, 1), (7, 2), (7, 1), (1, 2)):
        given = problem(rng, ("angles", "row_scale"), n=5, m=7, d=24, dtype=dtype)
        given["rotors"] = maps(rng, 24, b, h, length, dtype)
        assert_agrees(given, causal=True, pairs=pairs)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("b", [2, 4, 8, 16, 32, 64])
def test_blocks_that_are_shorter_than_a_register_and_longer(b, dtype):
    """Powers of 2, of which a row of 128 channels has parts of a register, whole ones, and several."""
    rng = np.random.default_rng(b)
    for length in (1, 4):
        given = problem(rng, n=3, m=4, d=128, dtype=dtype)
        given["rotors"] = maps(rng, 128, b, 1, length, dtype)
        assert_agrees(given, causal=True)


@pytest.mark.parametrize("attention", [fastpe.attention, reference.attention])
@pytest.mark.parametrize("pairs", ["interleaved", "half"])
def test_outputs_are_those_of_rows_mapped_by_hand(rng, attention, pairs):
    """Keys stand at positions 0 to 8, queries at 5 to 8; block r is channels 3 r on, or every fourth from r on."""
    given = problem(rng, ("angles",), n=4, m=9, d=12)
    rotors = maps(rng, 12, 3, 2, 9)

    def mapped(x, own):
        if pairs == "half":
            return np.einsum("hnrij,bhnjr->bhnir", own, x.reshape(*x.shape[:3], 3, 4)).reshape(x.shape)
        return np.einsum("hnrij,bhnrj->bhnri", own, x.reshape(*x.shape[:3], 4, 3)).reshape(x.shape)

    by_hand = {**given, "q": mapped(given["q"], rotors[:, 5:]), "k": mapped(given["k"], rotors)}
    expected = attention(**by_hand, pairs=pairs, causal=True)
    np.testing.assert_allclose(attention(**given, rotors=rotors, pairs=pairs, causal=True), expected, atol=1e-13)


@pytest.mark.parametrize("pairs", ["interleaved", "half"])
def test_blocks_of_two_can_be_rotations(rng, pairs):
    given = problem(rng, ("angles", "rel_key", "key_bias"), n=100, d=16)
    angles = given.pop("angles")
    cos, sin = np.cos(angles), np.sin(angles)
    rotors = np.stack([np.stack([cos, -sin], axis=-1), np.stack([sin, cos], axis=-1)], axis=-2)
    out, pull = fastpe.attention_vjp(**given, rotors=rotors, pairs=pairs)
    expected, turned = fastpe.attention_vjp(**given, angles=angles, pairs=pairs)
    np.testing.assert_allclose(out, expected, atol=1e-13)
    found, expected = pull(given["q"]), turned(given["q"])
    for name in given:
        np.testing.assert_allclose(found[name], expected[name], atol=1e-11, err_msg=name)
    d = found["rotors"]
    of_angles = cos * (d[..., 1, 0] - d[..., 0, 1]) - sin * (d[..., 0, 0] + d[..., 1, 1])
    np.testing.assert_allclose(of_angles, expected["angles"], atol=1e-11)


@pytest.mark.parametrize("starts", [3, np.array([0, 6, 11])])
def test_queries_that_stand_elsewhere(rng, starts):
    for length, led in ((25, False), (25, True), (1, True)):
        given = problem(rng, ("angles",), b=3, h=4, hk=2, n=5, m=20, d=8)
        given["angles"] = rng.standard_normal((1, 25, 4))
        rotors = rng.standard_normal((3 if led else 1, 4, length, 2, 4, 4)) / 2
        given["rotors"] = rotors if led else rotors[0]
        assert_agrees(given, query_start=starts, causal=True)


def far_key_that_maps_enlarge(rng):
    """Rows of small norm as they come; the maps of an early key, and of the later queries, make it matter."""
    arguments = trained(rng) | {"bias": alibi([0.3])}
    rotors = np.tile(np.eye(4), (1, N, 4, 1, 1))
    rotors[0, 40] *= 300.0
    arguments["q"][..., 0] = np.abs(arguments["q"][..., 0]) + 2.0
    arguments["k"][0, 0, 40] = np.eye(16)[0] * 4.0
    return arguments | {"rotors": rotors}


@pytest.mark.parametrize("tolerance", [None, 1e-3])
@pytest.mark.parametrize("bends", [False, True])
def test_bounds_of_tiles_are_those_of_mapped_rows(tolerance, bends):
    arguments = far_key_that_maps_enlarge(np.random.default_rng(3))
    if bends:
        arguments |= {"angles": np.zeros((1, N, 8)), "row_scale": np.full((1, N), 0.9)}
    without = {name: array for name, array in arguments.items() if name != "rotors"}
    assert_bounds_are_of_rows_as_multiplied(arguments, without, tolerance)


@pytest.mark.parametrize(
    "shape", [(1, 1, 3, 2, 2), (1, 1, 4, 2, 3), (1, 6, 4, 2, 2), (3, 1, 4, 2, 2), (4, 2, 2), (1, 1, 2, 2, 2), (1,) * 5]
)
def test_maps_that_do_not_fit_are_refused(rng, shape):
    given = problem(rng, n=5, d=8)
    for attention in (fastpe.attention, reference.attention):
        with pytest.raises(ValueError, match=r"rotors must have the shape \(H or 1, max\(N, M\) or 1, D/b, b, b\)"):
            attention(**given, rotors=np.zeros(shape))
    with pytest.raises(ValueError, match="rotors must be finite"):
        fastpe.attention(**given, rotors=np.full((1, 1, 4, 2, 2), np.nan))
    with pytest.raises(TypeError, match="rotors must have the dtype of q"):
        fastpe.attention(**given, rotors=np.zeros((1, 1, 4, 2, 2), np.float32))
