"""Encodings used together: slots add, multiply or exclude each other, and gradients reach every part."""

from dataclasses import replace

import numpy as np
import pytest

import fastpe
from fastpe.encodings import combined, combined_slots, registry
from fastpe.encodings.encoding import Encoding, Part
from fastpe.encodings.slots import make_spec


def test_tables_add_and_gradients_reach_every_part() -> None:
    name = "learned+sinusoidal+legendre"
    options = {"legendre.learned": True}
    params = fastpe.init(name, dim=4, train_length=5, dtype=np.float64, **options)
    assert set(params) == {"learned.table", "legendre.gamma"}
    keywords = {"dim": 4, "dtype": np.float64}
    total = fastpe.build(name, 5, params=params, **keywords, **options)["table"]
    terms = [
        params["learned.table"],
        fastpe.build("sinusoidal", 5, **keywords)["table"],
        fastpe.build("legendre", 5, **keywords)["table"],
    ]
    np.testing.assert_allclose(total, sum(terms), rtol=0, atol=4e-16 * 4)
    dtable = np.random.default_rng(1).normal(size=(5, 4))
    pulled = fastpe.pull(name, 5, {"table": dtable}, params=params, **keywords, **options)
    np.testing.assert_array_equal(pulled["learned.table"], dtable)
    alone = fastpe.pull("legendre", 5, {"table": dtable}, params={"gamma": [1.0]}, learned=True, **keywords)
    np.testing.assert_array_equal(pulled["legendre.gamma"], alone["gamma"])


@pytest.mark.parametrize(
    ("slot", "shape", "wide"),
    [
        ("bias", (1, 3), (2, 7)), ("bias", (2, 7), (3, 2, 7)), ("rel_key", (1, 5, 4), (2, 3, 9, 4)),
        ("gain", (2, 1), (2, 5)), ("values", (1, 4), (5, 2, 4)), ("rel_gain", (3, 5, 4), (3, 5, 4)),
    ],
)  # fmt: skip
def test_a_gradient_is_narrowed_by_the_adjoint_of_widening(slot, shape, wide) -> None:
    rng = np.random.default_rng(3)
    array, gradient = rng.standard_normal(shape), rng.standard_normal(wide)
    narrow = combined_slots.narrowed(slot, gradient, shape)
    assert narrow.shape == shape
    product = np.sum(combined_slots.widened(slot, array, wide) * gradient)
    np.testing.assert_allclose(np.sum(array * narrow), product, rtol=1e-12)


def _made_up(slot: str, value: float, shape: tuple[int, ...]) -> Encoding:
    def fill(spec: object, params: object, out: dict, **options: object) -> None:
        out[slot][...] = value

    return replace(registry.get("nope"), slots=(slot,), fill=fill, shapes=lambda spec, **options: {slot: shape})


def test_gains_multiply_and_what_cannot_be_shared_is_an_error() -> None:
    spec = make_spec(3)
    parts = [Part("a", _made_up("gain", 3.0, (1, 5)), {}), Part("b", _made_up("gain", 5.0, (1, 5)), {})]
    out = combined.allocate(parts, spec)
    combined.fill(parts, spec, {}, out)
    np.testing.assert_array_equal(out["gain"], 15.0)
    parts = [Part("a", _made_up("taps", 3.0, (3, 4)), {}), Part("b", _made_up("taps", 5.0, (3, 4)), {})]
    with pytest.raises(ValueError, match=r"both fill slot 'taps'"):
        combined.allocate(parts, spec)
    parts = [Part("a", _made_up("bias", 3.0, (2, 5)), {}), Part("b", _made_up("bias", 5.0, (3, 5)), {})]
    with pytest.raises(ValueError, match=r"'bias' has different shapes in 'a\+b': \(2, 5\), \(3, 5\)"):
        combined.allocate(parts, spec)


# ---------------------------------------------------------------------------------------------------------------------
# Any two encodings

N, SIZES = 12, {"dim": 24, "heads": 2, "train_length": 20, "dtype": np.float64}
PAIRS = (
    "shaw+huang4", "li_eq5+alibi", "t5+rope", "transformer_xl+shaw", "huang1+huang2", "huang2+da", "huang3+tener",
    "deberta+shaw", "rope+rope_mixed", "wavelet+learned", "fire+t5", "swin_bias+beit_bias", "t5+tener", "xpos+alibi",
)  # fmt: skip
OPTIONS = {
    "shaw": {"reach": 3}, "li_eq5": {"reach": 2}, "alibi": {"learned": True}, "huang1": {"reach": 4, "per_head": True},
    "huang3": {"reach": 2}, "deberta": {"reach": 2},
}  # fmt: skip
OFFSETS = np.arange(-30, 31)


def some_pairs(count: int) -> list[str]:
    names, rng = np.array(fastpe.list_encodings()), np.random.default_rng(0)
    return ["+".join(rng.choice(names, 2, replace=False)) for _ in range(count)]


def request_of(name: str) -> tuple[dict, list[tuple[str, dict]]]:
    """What `build` takes beside the name, and the names of the parts with what it takes for each."""
    schemes = name.split("+")
    sizes = {**SIZES, "causal": any(registry.get(scheme).direction == "causal" for scheme in schemes)}
    own = [(scheme, {**sizes, **OPTIONS.get(scheme, {})}) for scheme in schemes]
    joint = {f"{scheme}.{key}": value for scheme in schemes for key, value in OPTIONS.get(scheme, {}).items()}
    return {**sizes, **joint}, own


def at_offsets(slot: str, array: np.ndarray) -> np.ndarray:
    """What a slot says at each of many offsets, or the slot itself if it is not over offsets."""
    axis = {"bias": -1, "gain": -1, "rel_key": -2, "rel_query": -2, "rel_value": -2, "rel_gain": -2}.get(slot)
    if axis is None:
        return array
    reach = array.shape[axis] // 2
    return np.take(array, np.clip(OFFSETS, -reach, reach) + reach, axis)


@pytest.mark.parametrize("name", sorted({*PAIRS, *some_pairs(40)}))
def test_a_sum_is_what_its_parts_add_up_to(name: str) -> None:
    request, own = request_of(name)
    alone = [fastpe.build(scheme, N, **keywords) for scheme, keywords in own]
    shared = [slot for slot in alone[0] if slot in alone[1]]
    differ = [slot for slot in shared if isinstance(alone[0][slot], str | float) and alone[0][slot] != alone[1][slot]]
    if differ or {"index", "taps"} & set(shared):
        with pytest.raises(ValueError, match=r"cannot be shared|to both"):
            fastpe.build(name, N, **request)
        return
    if "angles" in shared and len({each["angles"].shape[-1] for each in alone}) > 1:
        with pytest.raises(ValueError, match="slot 'angles' has different shapes"):
            fastpe.build(name, N, **request)
        return
    for reference in (False, True):
        both = fastpe.build(name, N, **request, reference=reference)
        assert set(both) == set(alone[0]) | set(alone[1])
        for slot, value in both.items():
            terms = [each[slot] for each in alone if slot in each]
            if not isinstance(value, np.ndarray):
                assert value == terms[0]
                continue
            first, *rest = (at_offsets(slot, term) for term in terms)
            for term in rest:
                first = first * term if slot in ("gain", "rel_gain") else first + term
            expected = np.broadcast_to(first, at_offsets(slot, value).shape)
            np.testing.assert_allclose(at_offsets(slot, value), expected, rtol=1e-12, atol=1e-12, err_msg=slot)


@pytest.mark.parametrize("name", ["shaw+huang4", "li_eq5+alibi", "transformer_xl+shaw", "huang1+huang2", "huang2+da"])
def test_gradients_of_a_sum_are_those_of_its_reference(name: str) -> None:
    request, _ = request_of(name)
    rng = np.random.default_rng(1)
    params = fastpe.init(name, **request)
    params = {key: value + rng.uniform(0.1, 1, value.shape) for key, value in params.items()}
    slots = fastpe.build(name, N, **request, params=params, reference=True)
    dslots = {slot: rng.normal(size=array.shape) for slot, array in slots.items() if isinstance(array, np.ndarray)}
    got = fastpe.pull(name, N, dslots, params=params, **request)
    assert {key.split(".")[0] for key in got} == set(name.split("+"))
    for key in params:
        for _ in range(3):  # directions
            step = rng.normal(size=params[key].shape)
            ends = []
            for size in (1e-6, -1e-6):
                built = fastpe.build(
                    name, N, **request, params={**params, key: params[key] + size * step}, reference=True
                )
                ends.append(sum((built[slot] * dslots[slot]).sum() for slot in dslots))
            slope = (ends[0] - ends[1]) / 2e-6
            np.testing.assert_allclose((got[key] * step).sum(), slope, rtol=1e-6, atol=1e-6, err_msg=key)


def test_attention_of_a_sum_is_that_of_all_by_hand() -> None:
    name = "shaw+huang4+huang1+huang2+li_eq5+alibi"
    request, own = request_of(name)
    rng = np.random.default_rng(2)
    q, k, v = rng.normal(size=(3, 2, N, 12))
    rows = np.arange(N) - np.arange(N)[:, None] - OFFSETS[0]  # of the offset j - i of every pair

    def of_pairs(slot: str) -> list[np.ndarray]:
        """The slot of each part that fills it, (H, i, j, ...)."""
        found = [
            each[slot] for each in (fastpe.build(scheme, N, **keywords) for scheme, keywords in own) if slot in each
        ]
        wide = [at_offsets(slot, array)[:, rows] for array in found]
        return [np.broadcast_to(array, (2, *array.shape[1:])) for array in wide]

    score = np.einsum("hid,hjd->hij", q, k)
    score = score + sum(np.einsum("hid,hijd->hij", q, vectors) for vectors in of_pairs("rel_key"))
    score = score + sum(np.einsum("hjd,hijd->hij", k, vectors) for vectors in of_pairs("rel_query"))
    slots = fastpe.build(name, N, **request)
    score = np.prod(of_pairs("gain"), axis=0) * score * slots.get("scale", 12**-0.5) + sum(of_pairs("bias"))
    weights = np.exp(score) / np.exp(score).sum(axis=-1, keepdims=True)
    expected = weights @ v + np.einsum("hij,hijd->hid", weights, sum(of_pairs("rel_value")))
    np.testing.assert_allclose(fastpe.attention(q, k, v, **slots), expected, rtol=1e-11, atol=1e-12)
