"""The temperature of rotations that leave some channels of a head as they are sharpens the rotated channels alone."""

import math

import numpy as np
import pytest
from layer_checks import assert_gradients_are_the_references

import fastpe
from fastpe import reference

D, R, N, L0 = 16, 12, 40, 16
YARN, LONG = 1 + 0.1 * math.log(4), math.sqrt(1 + math.log(4) / math.log(L0))
CASES = {
    "yarn": ("rope_yarn", {"factor": 4.0}, YARN),
    "yarn of neighbours": ("rope_yarn", {"factor": 4.0, "pairs": "interleaved", "ramp": "turns"}, YARN),
    "yarn by length": ("rope_yarn", {}, 1 + 0.1 * math.log(N / L0)),
    "longrope": ("rope_longrope", {"factor": 4.0, "long": (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)}, LONG),
    "longrope as told": ("rope_longrope", {"mscale": 1.75}, 1.75),
    "resonance": ("rope_resonance", {"factor": 4.0, "rescaling": "yarn"}, YARN),
    "no temperature": ("rope_resonance", {"factor": 4.0, "rescaling": "ntk"}, 1.0),
}
OF_CASES = pytest.mark.parametrize(("name", "options", "mscale"), CASES.values(), ids=CASES)


def built(name, options, **more):
    return fastpe.build(name, N, dim=2 * D, heads=2, train_length=L0, causal=True, rotated=R, **options, **more)


def scores(q, k, slots, mscale):
    """As models of transformers have them: cosine and sine times mscale, on the first R channels."""
    cos, sin = (mscale * of(slots["angles"][0]) for of in (np.cos, np.sin))
    first, second = slice(0, R // 2), slice(R // 2, R)
    if slots["pairs"] == "interleaved":
        first, second = slice(0, R, 2), slice(1, R, 2)

    def turned(x):
        y = x.copy()
        y[..., first] = x[..., first] * cos - x[..., second] * sin
        y[..., second] = x[..., second] * cos + x[..., first] * sin
        return y

    return turned(q) @ turned(k).swapaxes(-1, -2) / math.sqrt(D)


def expected(q, k, v, slots, mscale):
    weights = np.where(np.tri(N, dtype=bool), scores(q, k, slots, mscale), -np.inf)
    weights = np.exp(weights - weights.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ v


def drawn():
    return np.random.default_rng(0).normal(size=(3, 1, 2, N, D)) * 2


@OF_CASES
def test_attention_by_the_cosines_and_sines_of_models(name, options, mscale):
    q, k, v = drawn()
    slots = built(name, options)  # of the default dtype: they fit float64 and float32
    right = expected(q, k, v, slots, mscale)
    np.testing.assert_allclose(fastpe.attention(q, k, v, causal=True, **slots), right, rtol=0, atol=1e-13)
    np.testing.assert_allclose(reference.attention(q, k, v, causal=True, **slots), right, rtol=0, atol=1e-13)
    by_formula = built(name, options, reference=True)
    np.testing.assert_allclose(fastpe.attention(q, k, v, causal=True, **by_formula), right, rtol=0, atol=1e-11)
    last = fastpe.attention(q[..., -1:, :], k, v, causal=True, **slots)  # as in generation
    np.testing.assert_allclose(last, right[..., -1:, :], rtol=0, atol=1e-13)
    single = fastpe.attention(*np.float32((q, k, v)), causal=True, **slots)
    assert single.dtype == np.float32
    np.testing.assert_allclose(single, right, rtol=0, atol=2e-5)


@OF_CASES
def test_a_model_is_its_reference(name, options, mscale):
    options = {**options, "rotated": R}
    config = fastpe.ModelConfig(
        name, options, width=2 * D, heads=2, layers=2, hidden=8, causal=True, train_length=N, dtype="float64"
    )
    assert_gradients_are_the_references(config, N)


def test_a_model_writes_with_a_cache_as_without():
    config = fastpe.ModelConfig(
        "rope_yarn", {"factor": 4.0, "rotated": 4}, width=16, heads=2, layers=2, causal=True, train_length=L0,
        vocabulary=7,
    )  # fmt: skip
    model = fastpe.Transformer(config)
    written = model.generate([1, 2, 3], 20, temperature=0.0)
    np.testing.assert_array_equal(written, model.generate([1, 2, 3], 20, temperature=0.0, cache=False))


def test_layers_without_the_rotation_have_no_temperature():
    config = fastpe.ModelConfig(
        "rope_yarn,nope", {"rope_yarn.factor": 4.0, "rope_yarn.rotated": 4}, width=16, heads=2, layers=2, causal=True,
        train_length=L0, dtype="float64",
    )  # fmt: skip
    assert_gradients_are_the_references(config, L0)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_torch_and_jax_take_the_slots(dtype):
    q, k, v = drawn().astype(dtype)
    name, options, mscale = CASES["longrope"]
    slots = built(name, options, dtype=dtype)
    right, atol = expected(*np.float64((q, k, v)), slots, mscale), {"float32": 2e-5, "float64": 1e-13}[dtype]
    torch = pytest.importorskip("torch")
    from fastpe.torch import Encoding, attention

    sizes = {"dim": 2 * D, "heads": 2, "train_length": L0, "causal": True, "rotated": R}
    own = Encoding(name, **sizes, dtype=getattr(torch, dtype), **options)(N)
    found = attention(*map(torch.from_numpy, (q, k, v)), causal=True, **own)
    np.testing.assert_allclose(found.numpy(), right, rtol=0, atol=atol)
    if dtype == "float32":
        pytest.importorskip("jax")
        from fastpe import jax

        own = jax.build(name, N, **sizes, **options)
        np.testing.assert_allclose(jax.attention(q, k, v, causal=True, **own), right, rtol=0, atol=atol)


@pytest.mark.parametrize("name", ["rope_yarn", "rope_longrope", "rope_resonance"])
def test_the_temperature_of_whole_heads_is_part_of_scale(name):
    options = {"rescaling": "yarn"} if name == "rope_resonance" else {}
    slots = fastpe.build(name, N, dim=D, train_length=L0, **options)
    assert set(slots) == {"angles", "pairs", "scale"}
    assert slots["scale"] > 1 / math.sqrt(D)
    given = fastpe.build(name, N, dim=D, train_length=L0, rotated=D, **options)
    assert given.keys() == slots.keys()
    assert given["scale"] == slots["scale"]
