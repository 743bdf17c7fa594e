"""RoPE, its rescalings and xPos: printed values, mpmath, the attention they act in, and their identities."""

import math

import mpmath
import numpy as np
import pytest
from fixture_attention import K, Q, results

import fastpe
from fastpe.kernels.simd import FUSED

ULP = 0.51 if FUSED else 1.01  # units in the last place of an angle itself
RESCALED = ["rope_linear", "rope_ntk", "rope_dynamic", "rope_yarn", "rope_longrope", "rope_llama3"]


def built(name: str, positions: list | np.ndarray, **keywords: object) -> dict:
    causal = name == "xpos"
    return fastpe.build(name, len(positions), positions=positions, dtype=np.float64, causal=causal, **keywords)


def frequencies(name: str, *, length: int = 2, **keywords: object) -> np.ndarray:
    """The angles of position 1, in a sequence of some length."""
    return built(name, [1, length - 1], **keywords)["angles"][0, 0]


def rotated(x: np.ndarray, slots: dict) -> np.ndarray:
    """x (N, D) rotated as Su et al. print it."""
    angles, y = slots["angles"][0], x.copy()
    pairs = angles.shape[-1]
    interleaved = slots["pairs"] == "interleaved"
    for t in range(pairs):
        first, second = (2 * t, 2 * t + 1) if interleaved else (t, t + pairs)
        cos, sin = np.cos(angles[:, t]), np.sin(angles[:, t])
        y[:, first] = x[:, first] * cos - x[:, second] * sin
        y[:, second] = x[:, first] * sin + x[:, second] * cos
    return y


def score(q: np.ndarray, k: np.ndarray, slots: dict) -> float:
    """The product of q at the first position and k at the second, rotated and grown."""
    growth = slots.get("growth", np.zeros(slots["angles"].shape[1:]))
    channels = np.repeat(growth, 2, axis=1) if slots["pairs"] == "interleaved" else np.tile(growth, 2)
    grown = np.exp(channels[0] - channels[1])
    return float((rotated(np.stack([q, k]), slots).prod(axis=0) * grown).sum())


# ---------------------------------------------------------------------------------------------------------------------
# RoPE


@pytest.mark.parametrize(
    ("pairs", "printed"),
    [
        ("interleaved", [0.469213890, 0.268586547, 0.114858535, 0.477458337, 0.633900828]),
        ("half", [0.424928003, 0.165591276, 0.157009051, 0.454865591, 0.644626724]),
    ],
)
def test_the_attention_it_acts_in(pairs: str, printed: list[float]) -> None:
    slots = fastpe.build("rope", 4, dim=4, pairs=pairs, dtype=np.float64)
    np.testing.assert_allclose(results(slots, causal=False), printed, rtol=0, atol=5.1e-10)


def test_some_channels_may_pass_through() -> None:
    q, k, v = np.random.default_rng(2).normal(size=(3, 1, 2, 7, 10))
    slots = fastpe.build("rope", 7, dim=20, heads=2, rotated=4, dtype=np.float64)
    np.testing.assert_array_equal(slots["angles"], fastpe.build("rope", 7, dim=4, dtype=np.float64)["angles"])
    passing = [np.concatenate([rotated(x[0, h], slots) for h in (0, 1)]).reshape(1, 2, 7, 10) for x in (q, k)]
    np.testing.assert_array_equal(passing[0][..., 4:], q[..., 4:])
    np.testing.assert_allclose(fastpe.attention(q, k, v, **slots), fastpe.attention(*passing, v), rtol=0, atol=1e-13)


# ---------------------------------------------------------------------------------------------------------------------
# To the last place: frequencies by mpmath, straight from the papers


def ladder_by_mpmath(base: float, width: int) -> list:
    return [mpmath.mpf(base) ** (-mpmath.mpf(2 * t) / width) for t in range(width // 2)]


def yarn_by_mpmath(width: int, s: float, length: int) -> list:
    def place(turns: int) -> mpmath.mpf:
        return width * mpmath.log(length / (2 * mpmath.pi * turns)) / (2 * mpmath.log(10000))

    lo, hi = max(mpmath.floor(place(32)), 0), min(mpmath.ceil(place(1)), width - 1)
    ramp = [min(max((t - lo) / (hi - lo), 0), 1) for t in range(width // 2)]
    return [own * (1 - r) + own / s * r for own, r in zip(ladder_by_mpmath(10000, width), ramp, strict=True)]


def llama_by_mpmath(width: int, length: int) -> list:
    theta = ladder_by_mpmath(500000, width)
    kept = [min(max((length * own / (2 * mpmath.pi) - 1) / 3, 0), 1) for own in theta]
    return [own * share + own / 8 * (1 - share) for own, share in zip(theta, kept, strict=True)]


N0 = 2**22  # training length of the case below, whose positions reach 2**24
LISTS = tuple(1 + 0.37 * t for t in range(12))
EXACT = {
    "rope": ({"base": 7.5}, lambda: ladder_by_mpmath(7.5, 24)),
    "xpos": ({}, lambda: ladder_by_mpmath(10000, 24)),
    "rope_linear": ({"factor": 3.3}, lambda: [own / mpmath.mpf(3.3) for own in ladder_by_mpmath(10000, 24)]),
    "rope_ntk": ({}, lambda: ladder_by_mpmath(10000 * mpmath.mpf(2**24 + 1) ** (24 / mpmath.mpf(22))
                                              / mpmath.mpf(N0) ** (24 / mpmath.mpf(22)), 24)),
    "rope_dynamic": ({"factor": 2.5}, lambda: ladder_by_mpmath(
        10000 * (2.5 * mpmath.mpf(2**24 + 1) / N0 - 1.5) ** (mpmath.mpf(24) / 22), 24)),
    "rope_yarn": ({"factor": 16.0}, lambda: yarn_by_mpmath(24, 16, N0)),
    "rope_longrope": ({"long": LISTS}, lambda: [
        own / mpmath.mpf(each) for own, each in zip(ladder_by_mpmath(10000, 24), LISTS, strict=True)]),
    "rope_llama3": ({}, lambda: llama_by_mpmath(24, N0)),
}  # fmt: skip


def compare_with_mpmath(angles: np.ndarray, positions: np.ndarray, theta: list) -> None:
    assert np.abs(angles).max() <= math.pi
    for t, own in enumerate(theta):
        for i, p in enumerate(positions):
            exact = mpmath.mpf(float(p)) * own
            exact -= 2 * mpmath.pi * mpmath.nint(exact / (2 * mpmath.pi))
            assert abs(mpmath.mpf(float(angles[i, t])) - exact) <= ULP * np.spacing(abs(float(exact))), (p, t)


@pytest.mark.parametrize("start", [-40, 2**24 - 50, 2**27 - 101, 1000.5])
def test_angles_of_positions_in_a_row_against_mpmath(start: float) -> None:
    angles = fastpe.build("rope", 101, dim=22, start=start)["angles"][0]
    with mpmath.workdps(60):
        compare_with_mpmath(angles, start + np.arange(101), ladder_by_mpmath(10000, 22))


@pytest.mark.parametrize("name", EXACT)
def test_angles_against_mpmath(name: str) -> None:
    rng = np.random.default_rng(3)
    limit = 2**24
    positions = np.array([*rng.integers(-limit, limit, 9), *rng.uniform(-limit, limit, 9), 1e-9, math.pi, limit])
    options, theta = EXACT[name]
    keywords = {"dim": 24, "train_length": N0, **options}
    angles = built(name, positions, **keywords)["angles"][0]
    with mpmath.workdps(60):
        compare_with_mpmath(angles, positions, theta())
    # the reference is as good
    np.testing.assert_array_max_ulp(built(name, positions, **keywords, reference=True)["angles"][0], angles, 1)


def shares(name: str, **keywords: object) -> np.ndarray:
    """How much of each frequency is interpolated, from 0 to 1."""
    own = frequencies("rope", dim=keywords["dim"], base=keywords.get("base", 10000.0))
    return (1 - frequencies(name, **keywords) / own) / (1 - 1 / keywords["factor"])


def test_yarns_other_ramp_is_linear_in_turns() -> None:
    keywords = {"dim": 128, "train_length": 2048, "factor": 4.0}
    turns = 2048 * frequencies("rope", dim=128) / (2 * np.pi)
    found = shares("rope_yarn", ramp="turns", **keywords)
    np.testing.assert_allclose(found, 1 - np.clip((turns - 1) / 31, 0, 1), rtol=0, atol=1e-14)
    # below one turn in all of the training length the code's ramp would run backwards: every later pair is interpolated
    np.testing.assert_allclose(shares("rope_yarn", dim=8, train_length=5, factor=2.0), [0, 1, 1, 1], rtol=0, atol=1e-14)


# ---------------------------------------------------------------------------------------------------------------------
# Past the training length


@pytest.mark.parametrize("name", RESCALED)
def test_what_follows_the_length_is_rope_up_to_the_training_length(name: str) -> None:
    plain = fastpe.build("rope", 100, dim=32, dtype=np.float64)["angles"]
    within = fastpe.build(name, 30, dim=32, train_length=50, dtype=np.float64)
    past = fastpe.build(name, 100, dim=32, train_length=50, dtype=np.float64)
    if name == "rope_llama3":  # its frequencies are what they are
        np.testing.assert_array_equal(within["angles"], past["angles"][:, :30])
        return
    np.testing.assert_array_equal(within["angles"], plain[:, :30])
    if name == "rope_longrope":
        np.testing.assert_array_equal(past["angles"], plain)
        np.testing.assert_allclose(past["scale"], (1 + math.log(2) / math.log(50)) / math.sqrt(32), rtol=1e-15)
        return
    # the slowest pair of twice the length is back in the range of angles that training showed
    np.testing.assert_allclose(past["angles"][0, :, -1], plain[0, :, -1] / 2, rtol=1e-15)
    assert past["angles"][0, 1, 0] == (0.5 if name == "rope_linear" else 1)
    if name == "rope_yarn":
        assert within["scale"] == 1 / math.sqrt(32) < past["scale"]
    if name == "rope_dynamic":
        ntk = fastpe.build("rope_ntk", 100, dim=32, train_length=50)["angles"]
        np.testing.assert_array_equal(past["angles"], ntk)
    else:
        fixed = fastpe.build(name, 30, dim=32, train_length=50, factor=2.0, dtype=np.float64)
        np.testing.assert_array_equal(fixed["angles"], past["angles"][:, :30])
        assert fixed.get("scale") == past.get("scale")


# ---------------------------------------------------------------------------------------------------------------------
# xPos


def test_xpos_in_attention() -> None:
    printed = [0.471152107, 0.266909908, 0.205723834, 0.345517197, 0.634201200]
    for centre in (0.0, 2.0, 1e4):
        slots = fastpe.build("xpos", 4, dim=4, causal=True, centre=centre, dtype=np.float64)
        found = results(slots, causal=True)
        np.testing.assert_allclose(found[1:], printed[1:], rtol=0, atol=5.1e-10)
        pair = {name: array[..., [1, 3], :] for name, array in slots.items() if name != "pairs"}
        np.testing.assert_allclose(
            score(Q[1], K[3], pair | {"pairs": "interleaved"}) / 2, printed[0], rtol=0, atol=5.1e-10
        )


def test_xpos_is_rope_with_growth_and_does_not_overflow() -> None:
    slots = fastpe.build("xpos", 300_000, dim=4, causal=True, start=2**26)
    np.testing.assert_array_equal(slots["angles"], fastpe.build("rope", 300_000, dim=4, start=2**26)["angles"])
    last = {name: array[..., -64:, :] for name, array in slots.items() if name != "pairs"}
    q, k, v = np.random.default_rng(4).normal(size=(3, 1, 1, 64, 4))
    early = fastpe.build("xpos", 64, dim=4, causal=True)
    out = fastpe.attention(q, k, v, causal=True, **last)
    np.testing.assert_allclose(out, fastpe.attention(q, k, v, causal=True, **early), rtol=0, atol=1e-9)


# ---------------------------------------------------------------------------------------------------------------------
# Bad requests
