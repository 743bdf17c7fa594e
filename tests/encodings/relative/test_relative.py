"""Relative vectors and multipliers against results computed elsewhere, and against the scores that the papers print."""

import math

import mpmath
import numpy as np
import pytest
from fixture_attention import results, vectors
from relative_encodings import NAMES

import fastpe
from fastpe.encodings.relative.deberta import bucket

C = np.arange(4.0)
OFFSETS = np.arange(-2, 3)
U, V_VECTOR = np.array([[0.1, 0.2, -0.1, 0.05]]), np.array([[-0.2, 0.1, 0.3, 0.0]])
KEY_AND_VALUE = {"key": vectors(OFFSETS), "value": 0.1 * np.cos(OFFSETS[:, None] - C)}
XL = {"u": U, "v": V_VECTOR, "weight": 0.5 * np.eye(4) + 0.1}


def of_rank_two() -> dict[str, np.ndarray]:
    """table key = 0.1 sin(t + c) and table query = 0.1 cos(t - c), t = 0 .. 5, by the addition theorems."""
    t = np.arange(6.0)
    table, key, query = np.zeros((6, 4)), np.zeros((4, 4)), np.zeros((4, 4))
    table[:, 0], table[:, 1] = np.sin(t), np.cos(t)
    key[0], key[1] = 0.1 * np.cos(C), 0.1 * np.sin(C)
    query[0], query[1] = 0.1 * np.sin(C), 0.1 * np.cos(C)
    return {"table": table, "key": key, "query": query}


FIXTURE = [
    (
        "shaw", {"reach": 2, "use_values": False}, {"key": KEY_AND_VALUE["key"]}, False,
        [-0.283294744, -0.625601462, 0.087268301, 0.496593609, 0.696199438],
    ),
    ("shaw", {"reach": 2}, KEY_AND_VALUE, False, [-0.283294744, -0.625601462, 0.087268301, 0.555697508, 0.623186403]),
    (
        "li_eq5", {"reach": 2}, {"vector": np.ones(4), "table": vectors(OFFSETS)}, False,
        [-0.431267126, -0.737983900, 0.073730788, 0.495079781, 0.692524084],
    ),
    ("transformer_xl", {}, XL, True, [-0.743059410, -1.164955812, 0.202230229, 0.349381368, 0.663384515]),
    ("transformer_xl", {}, XL, False, [-0.743059410, -1.164955812, 0.109870639, 0.484034637, 0.663384515]),
    (
        "tener", {"form": "paper"}, {"u": U, "v": V_VECTOR}, False,
        [-2.132894714, -2.409984605, 0.038741583, 0.547391857, 0.634895410],
    ),
    (
        "tener", {"form": "code"}, {"u": U, "v": V_VECTOR}, False,
        [-0.881545400, -0.192649837, 0.262608699, 0.366929853, 0.803731132],
    ),
    (
        "huang1", {"reach": 3}, {"weight": 1 - 0.1 * np.arange(3.0)[None]}, False,
        [-0.272269907, -0.537162373, 0.104232174, 0.479161227, 0.684983685],
    ),
    (
        "huang2", {"reach": 3}, {"weight": 1 + 0.05 * OFFSETS[None]}, False,
        [-0.374371122, -0.604307670, 0.092068578, 0.491697073, 0.690032488],
    ),
    (
        "huang3", {"reach": 3}, {"weight": 1 + vectors(OFFSETS)[None]}, False,
        [-0.376144823, -0.622047915, 0.087276099, 0.490532705, 0.692592398],
    ),
    (
        "huang4", {"reach": 3}, {"weight": vectors(OFFSETS)[None]}, False,
        [-0.229773963, -0.684335877, 0.084571077, 0.497801144, 0.697719720],
    ),
    (
        "deberta", {"reach": 3}, of_rank_two(), False,
        [-0.181827110, -0.408392102, 0.133548301, 0.454103809, 0.693661659],
    ),
    (
        "deberta", {"reach": 3, "p2c_index": "paper"}, of_rank_two(), False,
        [-0.102948157, -0.365116561, 0.139264324, 0.453785020, 0.689356389],
    ),
    (
        "da", {}, {"w": np.array([-0.5]), "v": np.array([1.0])}, False,
        [0.000000000, 0.000000000, 0.180366972, 0.433254382, 0.628412127],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "options", "params", "causal", "printed"), FIXTURE)
def test_the_shared_attention_fixture(name, options, params, causal, printed) -> None:
    slots = fastpe.build(name, 4, dim=4, causal=causal, dtype=np.float64, params=params, **options)
    np.testing.assert_allclose(results(slots, causal=causal), printed, rtol=0, atol=6e-10)


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize(
    ("w", "v", "printed"),
    [
        (1.0, 1.0, [1, 1.85914091, 2.71828183, 3.27505177, 3.71782301]),
        (1.0, -1.0, [1, 1.20482421, 1.30300657, 1.34327647, 1.36785660]),
        (-1.0, 1.0, [1, 0.443230059, 0.176342762, 0.0668777977, 6.21005934e-5]),
        (-1.0, -1.0, [1, 0.683939721, 0.367879441, 0.163055226, 1.68788904e-4]),
    ],
)
def test_da_factors(reference: bool, w: float, v: float, printed: list[float]) -> None:
    params = {"w": np.array([w]), "v": np.array([v])}
    slots = fastpe.build("da", 11, dtype=np.float64, params=params, reference=reference)
    assert slots["rectify"] is True
    np.testing.assert_allclose(slots["gain"][0, [10, 11, 12, 13, 20]], printed, rtol=5e-9)
    np.testing.assert_array_equal(slots["gain"], slots["gain"][:, ::-1])


@pytest.mark.parametrize("v", [-40.0, -3.0, 0.0, 1.0, 20.0, 300.0])
@pytest.mark.parametrize("w", [-90.0, -1e-3, 0.0, 1e-9, 0.7, 1e6])
def test_da_factors_keep_their_error_at_any_size(w: float, v: float) -> None:
    """Within (6 + 3 |v|) 2^-52 of the largest factor, and no overflow on the way, as the page says."""
    with mpmath.workdps(60):
        exact = [(1 + mpmath.exp(v)) / (1 + mpmath.exp(mpmath.mpf(v) - mpmath.mpf(w) * r)) for r in range(40)]
        gain = fastpe.build("da", 40, dtype=np.float64, params={"w": np.array([w]), "v": np.array([v])})["gain"][0, 39:]
        errors = [abs(mpmath.mpf(float(got)) - right) for got, right in zip(gain, exact, strict=True)]
        assert max(errors) <= (6 + 3 * abs(v)) * mpmath.mpf(2) ** -52 * max(exact)


@pytest.mark.parametrize("v", [-750.0, 700.0, 746.0, 1e4])
@pytest.mark.parametrize("w", [-400.0, 0.0, 0.5, 20.0])
def test_the_reference_of_da_overflows_nowhere_that_a_factor_does_not(w: float, v: float) -> None:
    params = {"w": np.array([w]), "v": np.array([v])}
    with mpmath.workdps(60):
        exact = [float((1 + mpmath.exp(v)) / (1 + mpmath.exp(mpmath.mpf(v) - mpmath.mpf(w) * r))) for r in range(5)]
    for reference in (False, True):
        gain = fastpe.build("da", 5, dtype=np.float64, params=params, reference=reference)["gain"][0, 4:]
        np.testing.assert_allclose(gain, exact, rtol=1e-13, atol=1e-300)


def test_a_da_factor_that_leaves_the_dtype_is_refused() -> None:
    params = {"w": np.array([1.0, 1.0]), "v": np.array([1.0, 100.0])}
    assert np.isfinite(fastpe.build("da", 200, heads=2, params=params, dtype=np.float64)["gain"]).all()
    with pytest.raises(ValueError, match=r"'gain' of 'da' is not finite in float32.*params\['v'\].*100"):
        fastpe.build("da", 200, heads=2, params=params)
    with pytest.raises(ValueError, match="not finite in float64"):
        fastpe.build("da", 2000, params={"w": np.array([1.0]), "v": np.array([800.0])}, dtype=np.float64)


def test_log_buckets() -> None:
    distances = [127, 128, 129, 200, 300, 400, 511, -511]
    assert bucket(np.array(distances), 256, 512).tolist() == [127, 128, 129, 169, 207, 233, 255, -255]


def test_buckets_reach_the_last_rows_of_the_table_and_no_further() -> None:
    """Each row's number, carried through projections that copy it: which row an offset j - i has."""
    request = {"dim": 2, "heads": 1, "reach": 512, "buckets": 256, "dtype": np.float64}
    params = {"table": np.arange(512.0)[:, None] * [1.0, 0.0], "key": np.eye(2), "query": np.eye(2)}
    rows = fastpe.build("deberta", 1000, **request, params=params)["rel_key"][0, :, 0]
    assert len(rows) == 2 * 512 + 1
    assert rows[[0, 1, 312, 511, 512, 513, 712, 1023, 1024]].tolist() == [511, 511, 425, 257, 256, 255, 87, 1, 0]
    short = fastpe.build("deberta", 100, **request, params=params)["rel_key"][0, :, 0]
    np.testing.assert_array_equal(short, rows[512 - 99 : 512 + 100])


@pytest.mark.parametrize(
    ("c2p", "p2c", "slots"), [(1, 1, {"rel_key", "rel_query"}), (1, 0, {"rel_key"}), (0, 1, {"rel_query"})]
)
def test_deberta_scales_by_the_terms_there_are(c2p: int, p2c: int, slots: set[str]) -> None:
    built = fastpe.build("deberta", 4, dim=16, heads=2, reach=4, c2p=bool(c2p), p2c=bool(p2c))
    assert built["scale"] == 1 / math.sqrt(8 * (1 + c2p + p2c))
    assert set(built) == {"scale"} | slots


# ---------------------------------------------------------------------------------------------------------------------
# What holds for all of them


@pytest.mark.parametrize(
    ("name", "options", "rows"),
    [
        ("shaw", {}, 33),
        ("li_eq5", {}, 33),
        ("transformer_xl", {"clamp_len": 20}, 41),
        *((f"huang{method}", {}, 99) for method in (1, 2, 3, 4)),
        ("huang4", {"reach": 8}, 15),
        ("deberta", {}, 1025),
        ("deberta", {"reach": 40, "buckets": 16}, 81),
    ],
)
def test_memory_does_not_grow_with_the_length_where_offsets_are_clipped(name, options, rows) -> None:
    for length in (2000, 2**17):
        slots = fastpe.build(name, length, train_length=50, dim=4, **options)
        offsets = {slot: a.shape[1] for slot, a in slots.items() if slot not in ("key_bias", "scale")}
        assert set(offsets.values()) == {rows}


@pytest.mark.parametrize("name", NAMES)
def test_given_positions_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"positions cannot be given: '{name}'"):
        fastpe.build(name, 3, positions=[0, 2, 4])
    with pytest.raises(ValueError, match="dim must be a multiple of heads=3, not 8"):
        fastpe.build(name, 3, dim=8, heads=3)
