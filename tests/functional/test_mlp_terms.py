"""Every other term of the score beside a network over scores: gain, products with rows over offsets, caps, masks."""

import numpy as np
import pytest
from attention_problems import problem
from beside_attention import assert_is_attention
from network_problems import TERMS, agrees
from network_problems import problem as network

import fastpe
from fastpe import reference
from fastpe.functional.slots import NETWORK
from fastpe.kernels.attention.dape.network import MOST_TAPS


@pytest.fixture
def rng():
    return np.random.default_rng(56)


def all_terms(rng, *, b=2, h=4, hk=2, n=40, m=65, dtype=np.float64, taps=3):
    """Arguments with every term, a mask of floats and sinks."""
    own = ("bias", "scores", "angles", "sinks", "scale")
    given = network(rng, b=b, h=h, hk=hk, n=n, m=m, d=8, dv=5, w=5, taps=taps, dtype=dtype, beside=own)
    more = problem(rng, TERMS, b=b, h=h, hk=hk, n=n, m=m, d=8, dtype=dtype)
    more["rel_value"] = rng.standard_normal((h, 9, 5)).astype(dtype)
    mask = np.where(rng.random((b, 1, n, m)) < 0.7, rng.standard_normal((b, 1, n, m)), -np.inf)
    return more | given | {"mask": mask.astype(dtype)}


@pytest.mark.parametrize("vjp", [fastpe.attention_vjp, reference.attention_vjp])
def test_weights_are_those_of_the_formula(rng, vjp):
    """A term of each place where there is one: before the network, in it, and after it."""
    given = network(rng, b=1, h=2, n=7, d=4, w=3, taps=1, beside=("bias",))
    terms = ("row_scale", "rel_key", "gain", "values", "key_offset", "key_slope")
    given |= {name: x for name, x in problem(rng, terms, b=1, h=2, n=7, d=4, reach=6).items() if name not in "qkv"}
    given["bias"], given["v"] = rng.standard_normal((2, 13)), np.broadcast_to(np.eye(7), (1, 2, 7, 7))
    mask = (rng.random((7, 7)) < 0.6) & (np.tri(7) > 0)
    weights, (q, k) = vjp(**given, mask=mask, softcap=1.5, causal=True)[0], (given[name][0] for name in "qk")
    o = np.arange(7) - np.arange(7)[:, None]
    scaled = given["row_scale"][..., None] * q
    inner = scaled @ k.swapaxes(-1, -2) + np.einsum("hid,hijd->hij", q, given["rel_key"][:, o + 6])
    c, b = given["gain"][:, o + 6] * inner / 2, given["bias"][:, o + 6] + given["values"][:, given["index"]]
    x = np.where(mask, np.concatenate([c, b]), 0)
    hidden = np.einsum("uc,cij->uij", given["mlp_in"][..., 0], x) + given["mlp_bias"][:, None, None]
    hidden = np.where(np.maximum.accumulate(mask, axis=-1), np.where(hidden > 0, hidden, 0.01 * hidden), 0)
    s = c + b + np.einsum("hu,uij->hij", given["mlp_out"][..., 0], hidden)
    s = s + given["key_offset"][:, None, :] + o * given["key_slope"][:, None, :]
    powers = np.where(mask, np.exp(1.5 * np.tanh(s / 1.5)), 0)
    expected = powers / np.maximum(powers.sum(axis=-1, keepdims=True), 1e-30)
    np.testing.assert_allclose(weights[0], expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("options", [{}, {"softcap": 3.0}, {"lengths": [65, 30]}, {"dropout": 0.4, "dropout_seed": 7}])
@pytest.mark.parametrize("causal", [True, False])
def test_a_network_that_adds_nothing_is_attention(rng, causal, options):
    """Which adds its terms elsewhere, and drops the same weights."""
    given = all_terms(rng)
    given["mlp_out"] = np.zeros_like(given["mlp_out"])
    assert_is_attention(given, NETWORK, causal=causal, **options)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("options", [{"softcap": 2.0}, {"window": 30, "dropout": 0.2, "dropout_seed": 3}])
@pytest.mark.parametrize("causal", [True, False])
def test_all_terms_together_agree_with_the_reference(rng, causal, options, dtype):
    agrees(all_terms(rng, dtype=dtype), causal=causal, **options)


@pytest.mark.parametrize("options", [{}, {"dropout": 0.3, "dropout_seed": 5}], ids=["all", "dropped"])
@pytest.mark.parametrize("taps", [9, 35, MOST_TAPS])
def test_many_taps(rng, taps, options):
    """That reach over more keys than are made at once."""
    agrees(all_terms(rng, b=1, h=2, hk=1, n=29, m=200, taps=taps), causal=True, **options)


def test_more_taps_than_there_is_room_for(rng):
    given = network(rng, n=3, taps=MOST_TAPS + 2)
    with pytest.raises(
        ValueError, match=r"^mlp_in must have at most 63 taps \(fastpe.reference.attention takes more\), not 65$"
    ):
        fastpe.attention(**given)
    assert np.isfinite(reference.attention(**given)).all()


# --------------------------------------------------------------------------------------------------- masks


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(33, 65), (1, 65), (2, 1, 33, 65), (2, 33, 65)])
def test_masks_of_all_kinds(rng, shape, causal):
    """Those of heads, too: the network reads what is hidden from one head as 0."""
    given = network(rng, n=33, m=65, taps=3, beside=("bias",))
    seen = rng.random(shape) < 0.5
    for mask in (seen, np.where(seen, rng.standard_normal(shape), -np.inf), rng.standard_normal(shape)):
        agrees({**given, "mask": mask}, causal=causal)


@pytest.mark.parametrize("options", [{}, {"softcap": 2.0}])
def test_a_hidden_key_changes_nothing_whatever_it_holds(rng, options):
    """Neither outputs nor gradients know of a key that no query sees, whatever it holds."""
    given = options | network(rng, n=40, m=70, d=8, taps=3)
    given["mask"] = np.broadcast_to(rng.random(70) < 0.6, (40, 70)).copy()
    given["mask"][3] = False
    out, pull = fastpe.attention_vjp(**given)
    found = pull(out)
    k = np.where(given["mask"][0][:, None], given["k"], np.nan)
    same, back = fastpe.attention_vjp(**{**given, "k": k})
    np.testing.assert_array_equal(same, out)
    for name, gradient in back(out).items():
        if name not in "qk":  # products of what is hidden with rows that are no numbers are none
            np.testing.assert_array_equal(gradient, found[name], err_msg=name)


def test_a_row_whose_keys_all_have_the_least_number_shares_its_weight(rng):
    """As without a network, where a mask adds that number in place of minus infinity."""
    given, least = network(rng, n=40, m=48, taps=3, dtype=np.float32, beside=("bias",)), np.finfo(np.float32).min
    mask = np.where(rng.random((40, 48)) < 0.7, 0, least).astype(np.float32)
    mask[3] = least
    expected = reference.attention(**given, mask=mask)
    np.testing.assert_allclose(fastpe.attention(**given, mask=mask), expected, rtol=0, atol=1e-5)
