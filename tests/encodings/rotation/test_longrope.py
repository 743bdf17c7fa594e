"""LongRoPE's two lists: which length chooses between them, and what that moves."""

import math

import numpy as np
import pytest

import fastpe
from fastpe.encodings import registry
from fastpe.encodings.rotation.rope_longrope import critical_list


def test_longropes_lists_and_first_tokens() -> None:
    short, long = (1.0, 1.25, 2.0, 4.0), (1.0, 3.0, 5.5, 9.0)
    keywords = {"dim": 8, "train_length": 50, "short": short, "long": long, "start_tokens": 3}
    plain = fastpe.build("rope", 60, dim=8)["angles"][0]
    for length, factors in ((50, short), (60, long)):
        slots = fastpe.build("rope_longrope", length, dtype=np.float64, **keywords)
        np.testing.assert_array_equal(slots["angles"][0, :3], plain[:3])
        np.testing.assert_allclose(np.exp(1j * slots["angles"][0, 3:]), [
            [np.exp(1j * p * 10.0 ** (-t) / factors[t]) for t in range(4)] for p in range(3, length)
        ], rtol=0, atol=1e-13)  # fmt: skip
    assert fastpe.build("rope_longrope", 50, dim=4, heads=1, train_length=50)["scale"] == 0.5
    np.testing.assert_allclose(fastpe.build("rope_longrope", 9, dim=4, mscale=3.0)["scale"], 4.5)
    batch = fastpe.build("rope_longrope", 2, positions=[[2, 3], [0, 9]], **keywords)["angles"]
    line = fastpe.build("rope_longrope", 10, **keywords)["angles"]
    np.testing.assert_array_equal(batch[:, 0], line[0][[[2, 3], [0, 9]]])


@pytest.mark.parametrize("reference", [False, True])
def test_longropes_list_is_chosen_by_the_target_or_by_the_sequence(reference: bool) -> None:
    short, long = (1.0, 1.25, 2.0, 4.0), (1.0, 3.0, 5.5, 9.0)

    def factors(places: list[int], **options: object) -> np.ndarray:
        """What divides the angles of `rope`, and the score's factor with the temperature in it."""
        slots = fastpe.build(
            "rope_longrope", len(places), dim=8, train_length=50, positions=places, dtype=np.float64, short=short,
            long=long, reference=reference, **options,
        )  # fmt: skip
        np.testing.assert_allclose(slots["scale"], (1 + math.log(4) / math.log(50)) / math.sqrt(8), rtol=1e-15)
        return 10.0 ** -np.arange(4) / slots["angles"][0, 1]

    for options in ({"factor": 4.0}, {"factor": 4.0, "chosen_by": "target"}):
        np.testing.assert_allclose(factors([0, 1, 49], **options), long, rtol=1e-14)
    for last, expected in ((49, short), (50, long), (199, long), (300, long)):
        found = factors([0, 1, last], factor=4.0, chosen_by="sequence")
        np.testing.assert_allclose(found, expected, rtol=1e-14, err_msg=str(last))
    # a longer sequence beside it in the batch chooses for both
    batch = fastpe.build(
        "rope_longrope", 2, dim=8, train_length=50, positions=[[0, 1], [0, 50]], long=long, factor=4.0,
        chosen_by="sequence", reference=reference,
    )["angles"]  # fmt: skip
    np.testing.assert_allclose(batch[0, 0, 1], 10.0 ** -np.arange(4) / long, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "moves"),
    [
        ({}, True),  # the temperature follows the length
        ({"mscale": 1.0}, True),
        ({"mscale": 1.0, "short": (1.0, 2.0, 3.0, 4.0)}, False),
        ({"factor": 4.0}, False),
        ({"factor": 4.0, "chosen_by": "sequence"}, True),
        ({"factor": 4.0, "chosen_by": "sequence", "short": (1.0, 2.0, 3.0, 4.0)}, False),
    ],
)
def test_moves_states_whether_earlier_positions_change(options: dict, moves: bool) -> None:
    options = {"long": (1.0, 2.0, 3.0, 4.0), **options}
    within, past = (fastpe.build("rope_longrope", n, dim=8, train_length=50, **options) for n in (50, 51))
    same = within["scale"] == past["scale"] and np.array_equal(within["angles"], past["angles"][:, :50])
    (part,) = registry.parse("rope_longrope", options)
    assert (part.encoding.moves(**part.options), not same) == (moves, moves)


def test_the_critical_pair_of_the_second_paper() -> None:
    factors = critical_list(48, 32.0, train_length=2048)  # Phi3-mini: 31, where 30.16 is rounded up
    assert factors[30] < 32.0 == factors[31] == factors[47]
    assert critical_list(48, 32.0, train_length=2048, critical=19)[18:20] == (32.0 ** (18 / 19), 32.0)
    theta = fastpe.build(
        "rope_longrope", 2, dim=96, train_length=2048, factor=32.0, long=factors, dtype=np.float64
    )["angles"][0, 1]  # fmt: skip
    steps = theta[1:31] / theta[:30]
    np.testing.assert_allclose(steps, steps[0], rtol=1e-13)  # a ladder of another base up to the critical pair
    np.testing.assert_allclose(theta[31:] * 32, 10000.0 ** (-np.arange(31, 48) / 48), rtol=1e-14)
    with pytest.raises(ValueError, match=r"critical must be an index from 1 to 48, not 0"):
        critical_list(48, 32.0, train_length=6)
    with pytest.raises(ValueError, match=r"factor must be at least 1, not 0\.5"):
        critical_list(48, 0.5, train_length=2048)
