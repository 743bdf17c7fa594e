"""Certified Lipschitz constants: the values of the specification, and random networks never beyond them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pullbacks import jacobian as by_differences

from fastpe import reference
from fastpe.theory.jacobian import attained_share, attention_jacobian, unbounded_example
from fastpe.theory.layers import SLOPES, FeedForward, Head, Layer, Norm, equal_layers
from fastpe.theory.lipschitz import (
    influence_bound,
    influence_length,
    largest_column_sum,
    stack_bounds,
)

PLAIN = FeedForward(1.0, 1.0)


def alone(head: Head, out: float = 1.0) -> Layer:
    """Attention, then something of constant 1."""
    return Layer((head,), out, PLAIN, residual=False)


@pytest.mark.parametrize(("radius", "slope"), [(1, 1), (10, 67), (100, 6667), (1000, 666667)])
def test_no_bound_of_weights_bounds_attention(radius, slope):
    assert unbounded_example(radius).value == pytest.approx(slope, rel=1e-12)
    # P5's constant holds there, and its query's half is what is attained, up to the 2/3 of three tokens
    assert slope <= stack_bounds([alone(Head(1.0, 1.0))], float(radius)).product.value


def test_attention_jacobian_is_that_of_differences():
    rng = np.random.default_rng(0)
    z, score, bias = rng.normal(size=(5, 3)), rng.normal(size=(3, 3)), rng.normal(size=(5, 5))
    bias[np.triu_indices(5, 1)] = -np.inf

    def run(tokens):
        q, k = tokens @ score, tokens
        return reference.attention(q[None], k[None], tokens[None], scale=1.0, scores=bias[None], causal=True)[0]

    np.testing.assert_allclose(attention_jacobian(z, score, bias), by_differences(run, z), atol=1e-8)


def test_random_attention_stays_below_the_token_constant():
    share = attained_share(300).value
    assert 0.5 < share <= 1.0


def test_query_and_key_halves_are_needed():
    """Half of the tokens at R, half at -R, seen by one at 0, attain almost |A| R^2; the key's part is attained too."""
    z = np.concatenate([[0.0], np.ones(200), -np.ones(200)])[:, None] * 10.0
    jacobian = attention_jacobian(z, np.eye(1))
    assert jacobian[0, 0, 0, 0] > 0.99 * (100.0 + 1 / 401)
    # weights of both sides made even by their numbers: sum of P_j |1 + (z_j - mean) u| with u R = 1.5
    u, plus, minus = 1.5, 10, round(10 * math.exp(3.0))
    keys = np.concatenate([np.ones(plus), -np.ones(minus)])
    weights = np.exp(u * keys) / np.exp(u * keys).sum()
    total = np.sum(weights * np.abs(1 + (keys - weights @ keys) * u))
    bound = stack_bounds([alone(Head(0.0, 1.0, key=u))], 1.0).product.value
    assert 1.45 < total <= bound == 2.5


@settings(max_examples=3 * settings().max_examples)
@given(st.integers(0, 2**32), st.integers(1, 7), st.integers(1, 4), st.booleans(), st.floats(0.05, 20.0))
def test_random_attention_with_every_term_stays_below_both_constants(seed, count, width, causal, loud):
    """One head with terms of the query alone, of the key alone, shifts, and vectors added to values: by differences."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(count, width))
    radius = np.linalg.norm(z, axis=1).max()
    score = loud * rng.normal(size=(width, width)) / width * rng.choice([0.05, 1.0])
    met_query, met_key = rng.normal(size=(2, count, count, width)) * rng.choice([0.0, 0.3, 3.0], size=(2, 1, 1, 1))
    added = rng.normal(size=(count, count, width)) * rng.choice([0.0, 2.0])
    shift = rng.normal(size=(count, width)) * rng.choice([0.0, 1.0])
    hidden = causal & np.triu(np.ones((count, count)), 1).astype(bool)
    bias = np.where(hidden, -np.inf, 3.0 * rng.normal(size=(count, count)))
    value = rng.normal(size=(width, width))

    def run(tokens):
        seen = tokens + shift
        terms = np.einsum("ia,ija->ij", seen, met_query) + np.einsum("ja,ija->ij", seen, met_key)
        weights = np.exp(_below(seen @ score @ seen.T + terms + bias))
        weights /= weights.sum(axis=1, keepdims=True)
        return weights @ tokens @ value + np.einsum("ij,ija->ia", weights, added)

    jacobian = by_differences(run, z)
    norms = [np.linalg.norm(each, axis=-1).max() for each in (met_query, met_key, shift, added)]
    head = Head(np.linalg.norm(score, 2), np.linalg.norm(value, 2), norms[0], norms[1], 0.0, norms[2], norms[3])
    blocks = np.linalg.norm(jacobian.transpose(0, 2, 1, 3), 2, axis=(2, 3)).sum(axis=1).max()
    assert blocks <= stack_bounds([alone(head)], radius).product.value * (1 + 1e-4)
    zero = np.exp(_below(bias))
    colmax = (zero / zero.sum(axis=1, keepdims=True)).sum(axis=0).max()
    spectral = np.linalg.norm(jacobian.reshape(count * width, -1), 2)
    bound = stack_bounds([alone(head)], radius, colmax=colmax, length=count).product.value
    assert spectral <= bound * (1 + 1e-4)


def _below(logits):
    return logits - logits.max(axis=1, keepdims=True)


def test_weights_grow_by_at_most_kappa():
    rng = np.random.default_rng(3)
    for _ in range(200):
        bias, content = rng.normal(size=(2, 6, 6))
        scores = np.abs(content).max()
        zero, full = (np.exp(x) / np.exp(x).sum(axis=1, keepdims=True) for x in (bias, bias + content))
        kappa = largest_column_sum(scores, zero.sum(axis=0).max(), 6).value
        assert full.sum(axis=0).max() <= kappa
        assert np.linalg.norm(full, 2) ** 2 <= kappa
    assert largest_column_sum(0.0, 4.499205, 50).value == 4.499205  # nothing learned: exactly that of the bias
    assert largest_column_sum(1e6, 1.0, 50).value == 50.0


def test_frobenius_of_one_token_is_that_of_tokens():
    layers = equal_layers(2)
    assert stack_bounds(layers, 2.0, colmax=1.0, length=1).product == stack_bounds(layers, 2.0).product


def test_several_heads_are_root_sum_square():
    one, four = (stack_bounds(equal_layers(1, heads=h, residual=False), 1.0).product.value for h in (1, 4))
    assert four == pytest.approx(2 * one)


def test_norm_constants_hold():
    rng = np.random.default_rng(0)
    for _ in range(500):
        x, direction = rng.normal(size=(2, 6))
        x *= 10.0 ** rng.uniform(-4, 3)
        gain, bias = rng.normal(size=(2, 6))
        norm = Norm(np.abs(gain).max(), np.linalg.norm(bias), 6)
        for out, back in (
            reference.layer_norm_vjp(x[None], gain, bias),
            reference.rms_norm_vjp(x[None], gain),
        ):
            assert np.linalg.norm(out) <= norm.radius() * (1 + 1e-12)
            assert np.linalg.norm(back(direction[None])[0]) <= norm.slope() * np.linalg.norm(direction) * (1 + 1e-12)
    # attained: the smallest inputs see the steepest slope
    found = reference.layer_norm_vjp(np.zeros((1, 2)), np.ones(2), np.zeros(2))[1](np.array([[1.0, -1.0]]))[0]
    assert np.linalg.norm(found) / math.sqrt(2) == pytest.approx(316.227766, rel=1e-9)


@pytest.mark.parametrize("name", ["relu", "gelu", "gelu_tanh"])
def test_slopes_of_activations_are_barely_enough(name):
    x = np.linspace(-6, 6, 240001)
    slopes = getattr(reference, f"{name}_vjp")(x)[1](np.ones_like(x))
    assert np.abs(slopes).max() <= SLOPES[name] < np.abs(slopes).max() + 2e-7


def test_swiglu_on_bounded_tokens():
    rng = np.random.default_rng(1)
    for _ in range(300):
        gate, widen, narrow = rng.normal(size=(3, 3, 3)) * 10 ** rng.uniform(-1, 1, size=(3, 1, 1))
        gate_bias, widen_bias, narrow_bias = rng.normal(size=(3, 3))
        z = rng.normal(size=(1, 3))
        _, back = reference.swiglu_vjp(z @ gate + gate_bias, z @ widen + widen_bias)
        jacobian = []
        for row in narrow.T:
            dgate, dhidden = back(row[None])
            jacobian.append((dgate @ gate.T + dhidden @ widen.T)[0])
        norms = [np.linalg.norm(each, 2) for each in (widen, narrow)]
        biases = [np.linalg.norm(each) for each in (widen_bias, narrow_bias)]
        found = FeedForward(*norms, *biases, "swiglu", np.linalg.norm(gate, 2), np.linalg.norm(gate_bias))
        radius = float(np.linalg.norm(z))
        assert np.linalg.norm(jacobian, 2) <= found.slope(radius)
        out = reference.swiglu(z @ gate + gate_bias, z @ widen + widen_bias) @ narrow + narrow_bias
        assert np.linalg.norm(out) <= found.radius(radius)


def test_swiglu_attains_both_halves():
    large = reference.swiglu_vjp(np.array([[50.0]]), np.array([[50.0]]))[1](np.ones((1, 1)))
    bound = FeedForward(1.0, 1.0, activation="swiglu", gate=1.0).slope(50.0)
    assert 0.95 * bound < float(large[0][0, 0] + large[1][0, 0]) <= bound


@given(st.integers(1, 5), st.floats(0.01, 3.0), st.floats(0.05, 1.5), st.floats(1e-6, 1e9))
def test_influence_stays_below_the_threshold_from_the_influence_length_on(count, slope, weight, below):
    layers = equal_layers(count, weight, 4)
    found = int(influence_length(layers, 0.5, slope, below).value)
    late = [influence_bound(layers, 0.5, slope, n).value for n in range(found, found + 200)]
    assert max(late) < below
    if found > 1:
        assert influence_bound(layers, 0.5, slope, found - 1).value >= below


def network(rng, width, length, slope, layers=2):
    """|d out_n / d z_1| of a random causal network with unit spectral norms, residuals, ReLU blocks: chain rule."""
    z = rng.normal(size=(length, width))
    z /= np.linalg.norm(z, axis=1).max()
    places = np.arange(length)
    bias = np.where(places <= places[:, None], -slope * (places[:, None] - places), -np.inf)
    total = np.zeros((length, width, width))
    total[0] = np.eye(width)  # derivatives of all tokens by the first
    for _ in range(layers):
        query, key, value, out, widen, narrow = (_unit(rng, width) for _ in range(6))
        score = query @ key.T / math.sqrt(width)
        jacobian = attention_jacobian(z, score, bias)
        moved = np.einsum("iajb,jbc->iac", jacobian, total)
        total = total + np.einsum("iac,ad->idc", moved, value @ out)
        logits = _below(z @ score @ z.T + bias)
        weights = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        z = z + weights @ z @ value @ out
        active = (z @ widen > 0).astype(float)
        total = total + np.einsum("iac,ah,ih,hd->idc", total, widen, active, narrow)
        z = z + np.maximum(z @ widen, 0) @ narrow
    return np.linalg.norm(total[-1], 2)


def _unit(rng, width):
    found = rng.normal(size=(width, width))
    return found / np.linalg.norm(found, 2)


@pytest.mark.parametrize("slope", [0.05, 0.5, 2.0])
@pytest.mark.parametrize("length", [1, 2, 10, 25])
def test_random_networks_stay_below_the_influence_bound(slope, length):
    rng = np.random.default_rng(length)
    bound = influence_bound(equal_layers(2, head_width=3), 1.0, slope, length).value
    found = max(network(rng, 3, length, slope) for _ in range(30))
    assert 0.0 < found <= bound


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: stack_bounds([], 1.0), "layers must be a sequence of at least one Layer"),
        (lambda: stack_bounds(equal_layers(1), -1.0), "radius must be at least 0, not -1"),
        (lambda: stack_bounds(equal_layers(2), [1.0]), "radius must be one number, or 2"),
        (lambda: stack_bounds(equal_layers(1), math.nan), "radius must be finite"),
        (lambda: stack_bounds(equal_layers(1), 1.0, colmax=1.0), "colmax and length must be given together"),
        (lambda: equal_layers(0), "count must be at least 1, not 0"),
        (lambda: influence_bound(equal_layers(1), 1.0, 0.0, 5), "slope must be above 0"),
        (lambda: influence_length(equal_layers(1), 1.0, 1.0, -1.0), "below must be above 0"),
        (lambda: largest_column_sum(1.0, 1.0, 0), "length must be at least 1, not 0"),
        (lambda: FeedForward(1.0, 1.0, activation="tanh"), "activation must be relu or"),
        (lambda: attention_jacobian(np.ones((2, 3)), np.eye(2)), r"score must have shape \(3, 3\)"),
        (lambda: attention_jacobian(np.ones(3), np.eye(2)), "tokens must have shape"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_measured_radii_are_used_in_place_of_growing_ones():
    layers = equal_layers(2)
    local, grown = stack_bounds(layers, [9.0, 9.0]), stack_bounds(layers, 9.0)
    assert local.layers[0] == grown.layers[0]
    assert local.layers[1].value == pytest.approx(local.layers[0].value)
    assert local.product.value < grown.product.value
