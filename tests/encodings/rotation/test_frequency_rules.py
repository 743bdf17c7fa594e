"""Rotations that choose their frequencies anew: printed values, the attention they act in, what they promise."""

import numpy as np
import pytest
from fixture_attention import results

import fastpe


def angles_at(name: str, position: float, **keywords: object) -> np.ndarray:
    """The angles of one position."""
    return fastpe.build(name, 1, positions=[position], dtype=np.float64, **keywords)["angles"][0, 0]


def turned(x: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """x (D,) with channel t paired with t + D/2."""
    half = len(x) // 2
    z = (x[:half] + 1j * x[half:]) * np.exp(1j * angles)
    return np.concatenate([z.real, z.imag])


# ---------------------------------------------------------------------------------------------------------------------
# p-RoPE


def test_printed_frequencies_of_gemmas_global_layers() -> None:
    theta = angles_at("rope_proportional", 1, dim=512, base=1e6)
    np.testing.assert_allclose(theta[[1, 63]], [0.947463526, 0.033376247], rtol=0, atol=5.1e-10)
    assert np.count_nonzero(theta) == 64
    assert (theta[64:] == 0).all()


@pytest.mark.parametrize(
    ("factor", "printed"),
    [
        (1.0, [-1.695592537, 0.137551738, 3, 4, -4.808842475, 6.323059348, 7, 8]),
        (8.0, [-0.900855024, 1.773646645, 3, 4, 5.018810639, 6.070764167, 7, 8]),
    ],
)
def test_printed_rotation_of_some_pairs(factor: float, printed: list[float]) -> None:
    angles = angles_at("rope_proportional", 3, dim=8, proportion=0.5, factor=factor)
    np.testing.assert_allclose(turned(np.arange(1.0, 9), angles), printed, rtol=0, atol=5.1e-10)


def test_the_attention_of_half_the_pairs() -> None:
    slots = fastpe.build("rope_proportional", 4, dim=4, proportion=0.5, dtype=np.float64)
    printed = [0.416407684, 0.161443310, 0.156244239, 0.455202589, 0.644422345]
    np.testing.assert_allclose(results(slots, causal=False), printed, rtol=0, atol=5.1e-10)


def test_the_number_of_pairs_is_rounded_down_and_its_ends_are_rope_and_nothing() -> None:
    assert np.count_nonzero(angles_at("rope_proportional", 1, dim=10, proportion=0.3)) == 1
    request = {"dim": 12, "dtype": np.float64, "start": -3}
    plain = fastpe.build("rope", 40, **request)["angles"]
    np.testing.assert_array_equal(fastpe.build("rope_proportional", 40, proportion=1.0, **request)["angles"], plain)
    np.testing.assert_array_equal(fastpe.build("rope_proportional", 40, proportion=0.0, **request)["angles"], 0 * plain)


# ---------------------------------------------------------------------------------------------------------------------
# Resonance RoPE


def test_printed_wavelengths() -> None:
    theta = angles_at("rope_resonance", 1, dim=16)
    np.testing.assert_allclose(2 * np.pi / theta, [6, 20, 63, 199, 628, 1987, 6283, 19869], rtol=1e-14)
    np.testing.assert_allclose(theta[3], 0.031573796, rtol=0, atol=5.1e-10)
    cosines = np.cos(angles_at("rope_resonance", 50, dim=16)[:4])
    np.testing.assert_allclose(cosines, [-0.5, -1, 0.270840468, -0.007893367], rtol=0, atol=5.1e-10)


def test_printed_wavelengths_and_temperature_over_yarn() -> None:
    slots = fastpe.build(
        "rope_resonance", 2, dim=16, train_length=64, factor=4.0, rescaling="yarn", dtype=np.float64
    )  # fmt: skip
    printed = [6, 20, 101, 795, 2513, 7948, 25133, 79477]
    np.testing.assert_allclose(2 * np.pi / slots["angles"][0, 1], printed, rtol=1e-14)
    np.testing.assert_allclose(slots["scale"], 1.138629436**2 / 4, rtol=1e-9)


def test_the_attention_in_whole_wavelengths() -> None:
    slots = fastpe.build("rope_resonance", 4, dim=4, dtype=np.float64)
    printed = [0.433283159, 0.189128259, 0.157318574, 0.454046362, 0.646362044]
    np.testing.assert_allclose(results(slots, causal=False), printed, rtol=0, atol=5.1e-10)


def test_wavelengths_over_ntk_are_rounded_too() -> None:
    ntk = 2 * np.pi / angles_at("rope_ntk", 1, dim=16, factor=3.0)
    found = 2 * np.pi / angles_at("rope_resonance", 1, dim=16, factor=3.0, rescaling="ntk")
    np.testing.assert_allclose(found, np.rint(ntk), rtol=1e-14)


# ---------------------------------------------------------------------------------------------------------------------
# Rules of the length


@pytest.mark.parametrize("reference", [False, True])
def test_printed_steps_of_the_base(reference: bool) -> None:
    found = []
    for length in (2048, 2049, 4096, 4097, 8192, 32768):
        keywords = {"dim": 128, "train_length": 2048, "rule": "steps", "reference": reference}
        theta = fastpe.build("rope_dynamic", 2, positions=[1, length - 1], dtype=np.float64, **keywords)["angles"][0, 0]
        found.append(float(theta[1]) ** -64)
    printed = [10000, 30527.7367488, 30527.7367488, 72195.8600865, 72195.8600865, 327366.399335]
    np.testing.assert_allclose(found, printed, rtol=1e-11)


def test_printed_frequencies_of_the_mixed_radix() -> None:
    theta = angles_at("rope_ntk_mixed", 1, dim=16, factor=12.0)
    np.testing.assert_allclose(theta[:3], [0.593102958, 0.131356574, 0.030398240], rtol=0, atol=5.1e-10)
    np.testing.assert_allclose(theta[7], 2.63523138e-5, rtol=0, atol=5.1e-14)
    plain = angles_at("rope", 1, dim=16)
    np.testing.assert_allclose(theta[7], plain[7] / 12, rtol=1e-15)
    ladder = angles_at("rope_ntk_mixed", 1, dim=16, factor=12.0, power=1.0)
    np.testing.assert_allclose(ladder[1:] / ladder[:-1], (10000 * 12) ** -0.125, rtol=1e-14)
    within = fastpe.build("rope_ntk_mixed", 20, dim=16, dtype=np.float64)["angles"]
    np.testing.assert_array_equal(within, fastpe.build("rope", 20, dim=16, dtype=np.float64)["angles"])


# ---------------------------------------------------------------------------------------------------------------------
# Clipped RoPE, HoPE without decay, MrRoPE


def test_printed_frequencies_of_clipped_rope() -> None:
    plain = angles_at("rope", 1, dim=128, base=5e5, pairs="half")
    theta = angles_at("rope_clipped", 1, dim=128, base=5e5)
    np.testing.assert_array_equal(theta[:45], plain[:45])  # the first clipped pair is unchanged
    printed = [120.7697374115, 97.7102143725, 7.1290650361, 0.0205525485]
    np.testing.assert_allclose(1e6 * theta[[44, 45, 54, 62]], printed, rtol=0, atol=5.1e-11)
    assert theta[63] == 0
    narrow = angles_at("rope_clipped", 1, dim=64)
    np.testing.assert_allclose(1e6 * narrow[22], 815.7151301455, rtol=0, atol=5.1e-11)
    hard = angles_at("rope_clipped", 1, dim=128, base=5e5, soft=False)
    np.testing.assert_array_equal(hard, np.where(np.arange(64) < 44, plain, 0))


def test_the_attention_of_a_soft_clip_of_two_pairs_is_that_of_a_hard_clip_of_one() -> None:
    printed = [0.4164076838, 0.1614433099, 0.1562442387, 0.4552025886, 0.6444223452]
    for options in ({"count": 2}, {"count": 1, "soft": False}):
        slots = fastpe.build("rope_clipped", 4, dim=4, dtype=np.float64, **options)
        np.testing.assert_allclose(results(slots, causal=False), printed, rtol=0, atol=5.1e-11)


def test_a_soft_clip_of_at_most_one_pair_is_rope() -> None:
    plain = angles_at("rope", 3, dim=12, pairs="half")
    for count in (0, 1):
        np.testing.assert_array_equal(angles_at("rope_clipped", 3, dim=12, count=count), plain)


@pytest.mark.parametrize(("base", "length", "kept"), [(5e5, 8192, 35), (1e4, 4096, 46), (1e4, 6, 0)])
def test_printed_numbers_of_pairs_with_a_turn_in_training(base: float, length: int, kept: int) -> None:
    theta = angles_at("hope", 1, dim=128, base=base, train_length=length)
    plain = angles_at("rope", 1, dim=128, base=base, pairs="half")
    np.testing.assert_array_equal(theta, np.where(np.arange(64) < kept, plain, 0))


@pytest.mark.parametrize(
    ("rule", "printed"),
    [
        ("pro", {19: 0.019964030042, 26: 0.0025204093780, 34: 7.9816616138e-5, 35: 4.7781061770e-5}),
        ("uni", {19: 0.017269815297, 26: 0.0013126493808}),
    ],
)
@pytest.mark.parametrize("reference", [False, True])
def test_printed_frequencies_of_mixed_radix(rule: str, printed: dict[int, float], reference: bool) -> None:
    keywords = {"dim": 128, "base": 5e5, "train_length": 8192, "factor": 16.0, "rule": rule, "reference": reference}
    theta = angles_at("rope_mixed_radix", 1, **keywords)
    plain = angles_at("rope", 1, dim=128, base=5e5, pairs="half")
    np.testing.assert_array_equal(theta[:19], plain[:19])  # l = 18
    for t, value in (printed | {63: 1.5344629945e-7}).items():
        np.testing.assert_allclose(theta[t], value, rtol=1e-10)
    np.testing.assert_allclose(theta[35:], plain[35:] / 16, rtol=1e-15)  # h = 35
    scale = fastpe.build("rope_mixed_radix", 1, **keywords)["scale"]
    np.testing.assert_allclose(scale, (1 + 0.1 * np.log(16)) ** 2 / np.sqrt(128), rtol=1e-15)


def test_pairs_of_mixed_radix_are_slowed_from_the_first_one_if_training_is_short() -> None:
    theta = angles_at("rope_mixed_radix", 1, dim=8, train_length=6, factor=3.0)  # no pair makes a turn: l = h = 0
    np.testing.assert_allclose(theta, angles_at("rope", 1, dim=8) / [1, 3, 3, 3], rtol=1e-15)


# ---------------------------------------------------------------------------------------------------------------------
# Ms-PoE


def test_printed_scales_of_the_heads_of_ms_poe() -> None:
    plain = angles_at("rope", 1, dim=4, pairs="half")
    request = {"dim": 16, "heads": 4, "positions": [1], "dtype": np.float64}
    for ranks, ratios in ((None, [1.2, 1.35, 1.5, 1.65]), ((3, 0, 1, 2), [1.65, 1.2, 1.35, 1.5])):
        angles = fastpe.build("ms_poe", 1, ranks=ranks, **request)["angles"][:, 0]
        np.testing.assert_allclose(plain / angles, np.array(ratios)[:, None] * [1, 1], rtol=1e-15)
    with pytest.raises(ValueError, match=r"^option 'ranks' must have each of 0 .. 3 once, not \(0, 1, 1, 2\)"):
        fastpe.build("ms_poe", 1, ranks=(0, 1, 1, 2), **request)


def test_the_attention_of_a_head_that_divides_positions() -> None:
    slots = fastpe.build("ms_poe", 4, dim=4, least=1.5, dtype=np.float64)
    printed = [0.2545386822, -0.0912376248, 0.2473530456, 0.3314050414, 0.6603571282]
    np.testing.assert_allclose(results(slots, causal=True), printed, rtol=0, atol=5.1e-11)
